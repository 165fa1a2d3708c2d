"""Raw columns in, the joined columns of a Trace out: kernel -> launch -> innermost op -> stack, inputs, module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from addrfrac.parse import match, nesting, stacks
from addrfrac.parse.columns import FRAME_ANNOTATION, Columns, RawTables, distinct
from addrfrac.parse.events import MODULE_PREFIX
from addrfrac.records import (
    KIND_KERNEL,
    RANGE_STEP,
    RANGE_USER,
    Collective,
    Ints,
    Kernels,
    Launches,
    Loss,
    OpInputs,
    Ranges,
)

LONGEST_NS = 24 * 3600 * 1_000_000_000
"""Durations and distances beyond a day are clock faults."""
STEP = re.compile(r"^ProfilerStep#\d+")
GRAPH_LAUNCH = re.compile(r"GraphLaunch")
SYNCHRONISES = re.compile(r"^(cuda|cu|hip).*Synchronize|^(cuda|hip)Memcpy(?!.*(Async|Batch))|^cuMemcpy(?!.*Async)")
COMMUNICATES = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
AnyInts = NDArray[np.integer[Any]]
NEVER = np.iinfo(np.int64).max
ENQUEUED_BEFORE = "device events enqueued before the recording began, of no step"
HOST_REMEDY = "record with ProfilerActivity.CPU and ProfilerActivity.CUDA, and start the profiler before the loop"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """The columns of a Trace, and what was lost on the way."""

    names: tuple[str, ...]
    op_stacks: tuple[tuple[str, ...], ...]
    op_inputs: tuple[OpInputs, ...]
    modules: tuple[str, ...]
    collectives: tuple[Collective, ...]
    kernels: Kernels
    launches: Launches
    ranges: Ranges
    losses: tuple[Loss, ...]


def join(tables: RawTables) -> Joined:
    """The whole join."""
    names = tuple(str(name) for name in tables.names.ids)
    losses: list[Loss] = []
    device = sound_device(tables.table("device"), losses)
    frames = sound(tables.table("frames"), "operator and annotation events", losses)
    calls = sound(tables.table("calls"), "runtime calls", losses)
    modules = sound(tables.table("modules"), "module calls", losses)

    call, ambiguous = match.launching_calls(device, calls)
    calls, launch = _kept_calls(calls, call, names)
    early = enqueued_before(launch, device["start"], device["device"], device["stream"])
    _note_launches(losses, launch, early, ambiguous)
    frame_thread, call_thread, module_thread = nesting.thread_numbers(
        *((table["process"], table["thread"]) for table in (frames, calls, modules))
    )
    forest = nesting.nest(frame_thread, frames["start"], frames["end"])
    frames = {name: column[forest.order] for name, column in frames.items()}
    frame = nesting.innermost(forest, call_thread, calls["start"])
    inherited = stacks.inherit(forest, frames, frame, names, name_flags(names, STEP))
    frame_of_kernel = of_launch(frame, launch)
    collective = np.where(device["collective"] >= 0, device["collective"], inherited.collective[frame_of_kernel])

    used = Used(names)
    inputs, op_inputs = compact_inputs(inherited.inputs[frame_of_kernel], tables)
    module, module_names = _modules(modules, module_thread, call_thread, calls["start"], launch, names)
    collective, collectives = _collectives(np.where(_communicates(device, names), collective, -1), tables)
    kernels = Kernels(
        name=used.compact(device["name"]),
        kind=device["kind"].astype(np.uint8),
        start_ns=device["start"],
        end_ns=device["end"],
        device=device["device"].astype(np.int32),
        stream=device["stream"],
        launch=launch.astype(np.int32),
        op_stack=inherited.stack[frame_of_kernel].astype(np.int32),
        forward_stack=inherited.forward_stack[frame_of_kernel].astype(np.int32),
        op_call=frame_of_kernel.astype(np.int32),
        inputs=inputs.astype(np.int32),
        module=module.astype(np.int32),
        collective=collective.astype(np.int32),
        bytes=device["bytes"],
        graph_node=device["node"],
    )
    return Joined(
        kernels=kernels,
        launches=launch_table(calls, names, used),
        ranges=range_table(frames, names, used),
        names=used.texts(),
        op_stacks=inherited.texts,
        op_inputs=op_inputs,
        modules=module_names,
        collectives=collectives,
        losses=tuple(losses),
    )


class Used:
    """Numbers the names that columns still point to, in order of first use."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.ids: dict[int, int] = {}

    def compact(self, column: Ints) -> NDArray[np.int32]:
        """The column, renumbered."""
        numbers, places = distinct(column)
        return np.array([self.ids.setdefault(name, len(self.ids)) for name in numbers.tolist()], np.int32)[places]

    def texts(self) -> tuple[str, ...]:
        """The names by their new numbers."""
        return tuple(self.names[name] for name in self.ids)


def sound(table: Columns, what: str, losses: list[Loss]) -> Columns:
    """The rows whose stamps can be true, with an `end` column; the others become a loss."""
    start, duration = table["start"], table["duration"]
    middle = int(np.median(start)) if len(start) else 0
    good = (duration >= 0) & (duration < LONGEST_NS) & (np.abs(start - middle) < LONGEST_NS)
    if not good.all():
        losses.append(Loss(what=f"{what} with impossible time stamps", count=int((~good).sum()), remedy=""))
        table = {name: column[good] for name, column in table.items()}
    return {**table, "end": table["start"] + table["duration"]}


def sound_device(table: Columns, losses: list[Loss]) -> Columns:
    """Device events that can be true, each once, sorted by (start, end)."""
    table = sound(table, "device events", losses)
    if not len(table["start"]):
        return table
    identity = ("end", "device", "stream", "correlation", "name", "node")
    order = np.lexsort((*(table[name] for name in reversed(identity)), table["start"]))
    table = {name: column[order] for name, column in table.items()}
    again = table["duration"][1:] > 0
    for name in ("start", *identity):
        again = again & (table[name][1:] == table[name][:-1])
    if again.any():
        losses.append(Loss(what="device events recorded twice", count=int(again.sum()), remedy=""))
        table = {name: column[np.r_[True, ~again]] for name, column in table.items()}
    return table


def _kept_calls(calls: Columns, call: Ints, names: Sequence[str]) -> tuple[Columns, Ints]:
    """The calls that launched device work or waited for it, by start, and for each kernel its row among them."""
    keep = name_flags(names, SYNCHRONISES)[calls["name"]]
    keep[call[call >= 0]] = True
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(calls["start"][rows], kind="stable")]
    row_of_call = np.full(len(keep) + 1, -1, np.int64)
    row_of_call[rows] = np.arange(len(rows))
    return {name: column[rows] for name, column in calls.items()}, row_of_call[call]


def name_flags(names: Sequence[str], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """For each name whether it holds a pattern."""
    return np.array([pattern.search(name) is not None for name in names], np.bool_)


def of_launch(values: Ints, launch: Ints) -> Ints:
    """For each kernel the value of its launch; -1 without one."""
    return np.append(values, -1)[launch]


def enqueued_before(launch: AnyInts, start_ns: Ints, device: AnyInts, stream: Ints) -> NDArray[np.bool_]:
    """Whether each kernel was enqueued before the recording began: it has no launch and runs before all those of its
    stream that have one. Streams keep order, so its launch was never there to be lost."""
    early = np.zeros(len(launch), np.bool_)
    lost = launch < 0
    for one, its_stream in set(zip(device[lost].tolist(), stream[lost].tolist(), strict=True)):
        mine = (device == one) & (stream == its_stream)
        first = start_ns[mine & ~lost].min() if (mine & ~lost).any() else -NEVER
        early |= mine & lost & (start_ns < first)
    return early


def _note_launches(losses: list[Loss], launch: Ints, early: NDArray[np.bool_], ambiguous: int) -> None:
    if early.any():
        losses.append(Loss(what=ENQUEUED_BEFORE, count=int(early.sum()), remedy=""))
    missing = int((launch < 0).sum() - early.sum())
    if missing:
        losses.append(Loss(what="device events without a launch event", count=missing, remedy=HOST_REMEDY))
    if ambiguous:
        what = "device events whose correlation id several processes use; matched by time"
        losses.append(Loss(what=what, count=ambiguous, remedy="record one file a process"))


def launch_table(calls: Columns, names: Sequence[str], used: Used) -> Launches:
    """The kept calls as the record."""
    return Launches(
        name=used.compact(calls["name"]),
        start_ns=calls["start"],
        end_ns=calls["end"],
        process=calls["process"],
        thread=calls["thread"],
        correlation=calls["correlation"],
        is_graph=name_flags(names, GRAPH_LAUNCH)[calls["name"]],
        is_sync=name_flags(names, SYNCHRONISES)[calls["name"]],
    )


def range_table(frames: Columns, names: Sequence[str], used: Used) -> Ranges:
    """Steps and user annotations as the record."""
    is_step = name_flags(names, STEP)[frames["name"]]
    rows = np.flatnonzero(is_step | (frames["kind"] == FRAME_ANNOTATION))
    rows = rows[np.lexsort((-frames["end"][rows], frames["start"][rows]))]
    return Ranges(
        name=used.compact(frames["name"][rows]),
        kind=np.where(is_step[rows], RANGE_STEP, RANGE_USER).astype(np.uint8),
        start_ns=frames["start"][rows],
        end_ns=frames["end"][rows],
        process=frames["process"][rows],
        thread=frames["thread"][rows],
    )


def compact_inputs(inputs: Ints, tables: RawTables) -> tuple[Ints, tuple[OpInputs, ...]]:
    """The recorded inputs that kernels point to, each once, and the column renumbered."""
    recorded: list[Any] = list(tables.inputs.ids)
    ids: dict[OpInputs, int] = {}
    numbers, places = distinct(inputs)
    renumbered = [
        -1 if number < 0 else ids.setdefault(_inputs_record(recorded[number]), len(ids)) for number in numbers.tolist()
    ]
    return np.array(renumbered, np.int64)[places], tuple(ids)


def _inputs_record(texts: tuple[bytes, bytes, bytes, bytes]) -> OpInputs:
    dims, types, strides, concrete = (_one_line(text) for text in texts)
    return OpInputs(dims=dims, types=types, strides=strides, concrete=concrete)


def _one_line(text: bytes) -> str:
    """JSON text on one line with a space after each comma, however the recorder laid it out."""
    return msgspec.json.format(text, indent=0).decode("utf-8", "replace") if text else ""


def _modules(
    modules: Columns, thread: Ints, call_thread: Ints, moment: Ints, launch: Ints, names: Sequence[str]
) -> tuple[Ints, tuple[str, ...]]:
    """For each kernel the innermost nn.Module open at its launch, and the modules' names."""
    forest = nesting.nest(thread, modules["start"], modules["end"])
    row = nesting.innermost(forest, call_thread, moment)
    name = np.append(modules["name"][forest.order], -1)[row]
    kept, module = _dense(of_launch(name, launch))
    return module, tuple(names[number].removeprefix(MODULE_PREFIX) for number in kept)


def _dense(column: Ints) -> tuple[list[int], Ints]:
    """The distinct values from 0 up, and the column as places among them; what is below 0 becomes -1."""
    numbers, places = distinct(np.maximum(column, -1))
    missing = int(len(numbers) > 0 and numbers[0] < 0)
    return numbers[missing:].tolist(), places - missing


def _communicates(device: Columns, names: Sequence[str]) -> NDArray[np.bool_]:
    named: NDArray[np.bool_] = name_flags(names, COMMUNICATES)[device["name"]]
    named[device["kind"] != KIND_KERNEL] = False
    return named


def _collectives(collective: Ints, tables: RawTables) -> tuple[Ints, tuple[Collective, ...]]:
    """The collectives that kernels point to, and the column renumbered."""
    recorded: list[Any] = list(tables.collectives.ids)
    kept, places = _dense(collective)
    fields = ("name", "group", "group_size", "dtype", "elements", "sequence")
    found = tuple(Collective(**dict(zip(fields, recorded[number], strict=True))) for number in kept)
    return places, found
