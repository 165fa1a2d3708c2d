"""A trace of an eager run or of a graph's capture in, its launches in order out, as `Trace.kernels`.

While a graph is captured nothing runs on the device: an engine's capture trace holds launch calls without kernels. They
stand here as kernels of no duration, with the op stack, shapes and module of their call. ROCm writes the kernel's name
into the call; CUDA does not, and their name is ''. `graph_node` counts the launches of one capture from 0; it is -1 for
what was launched outside of captures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from addrfrac.errors import UnreadableTrace
from addrfrac.parse import inflate, join, match, nesting, reading, stacks
from addrfrac.parse.columns import Columns
from addrfrac.parse.events import CALL, CATEGORIES, NOTHING, UNREADABLE
from addrfrac.records import (
    KIND_KERNEL,
    KIND_MEMCPY,
    KIND_MEMSET,
    Ids,
    Ints,
    Kernels,
    Launches,
    Loss,
    Trace,
    TraceSource,
)

_LAUNCHES = re.compile(r"Launch(?!HostFunc)|^(?:cuda|hip|cu)Mem(?:cpy|set).*Async")
_MEMCPY, _MEMSET = re.compile(r"Memcpy"), re.compile(r"Memset")
_BEGINS, _ENDS = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")


class _CallArgs(msgspec.Struct, gc=False):
    kernel: str = ""
    correlation: int = -1


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    args: msgspec.Raw = NOTHING


class _Document(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(default_factory=list, name="traceEvents")


def read_capture(path: Path) -> Trace:
    """The launches of a capture or eager trace in launch order, graph launches left out."""
    if not path.is_file():
        raise UnreadableTrace(f"{path} is no file; give one trace of an eager run or of the capture")
    tables = reading._content(path).tables
    names = [str(name) for name in tables.names.ids]
    losses: list[Loss] = []
    device = join.sound_device(tables.table("device"), losses)
    frames = join.sound(tables.table("frames"), "operator and annotation events", losses)
    calls = join.sound(tables.table("calls"), "runtime calls", losses)
    modules = join.sound(tables.table("modules"), "module calls", losses)

    ran, captured = _launches(device, calls, names)
    call = np.concatenate([ran[1], captured])
    if not len(call):
        raise UnreadableTrace(f"{path.name} holds no launch call; record the capture with ProfilerActivity.CUDA")
    order = np.argsort(calls["start"][call], kind="stable")
    texts, kernel_name = _names(device["name"][ran[0]], calls["correlation"][captured], names, path)
    call, kernel_name = call[order], kernel_name[order]

    frame_thread, call_thread, module_thread = nesting.thread_numbers(
        *((table["process"], table["thread"]) for table in (frames, calls, modules))
    )
    forest = nesting.nest(frame_thread, frames["start"], frames["end"])
    frames = {name: column[forest.order] for name, column in frames.items()}
    frame = nesting.innermost(forest, call_thread[call], calls["start"][call])
    inherited = stacks.inherit(forest, frames, frame, names, join.name_flags(names, join.STEP))
    inputs, op_inputs = join.compact_inputs(inherited.inputs[frame], tables)
    count = len(call)
    module, module_names = join._modules(
        modules, module_thread, call_thread[call], calls["start"][call], np.arange(count), names
    )
    kind = np.concatenate([device["kind"][ran[0]], _kinds(calls["name"][captured], names)])[order]
    none = np.full(count, -1, np.int64)
    used = join.Used([*texts, *(names[number] for number in calls["name"][call].tolist())])
    return Trace(
        source=_source(path, tables.events),
        op_stacks=inherited.texts,
        op_inputs=op_inputs,
        modules=module_names,
        collectives=(),
        kernels=Kernels(
            name=used.compact(kernel_name),
            kind=kind.astype(np.uint8),
            start_ns=calls["start"][call],
            end_ns=calls["start"][call],
            device=np.zeros(count, np.int32),
            stream=none,
            launch=np.arange(count, dtype=np.int32),
            op_stack=inherited.stack[frame].astype(np.int32),
            forward_stack=inherited.forward_stack[frame].astype(np.int32),
            op_call=frame.astype(np.int32),
            inputs=inputs.astype(np.int32),
            module=module.astype(np.int32),
            collective=none.astype(np.int32),
            bytes=none,
            graph_node=_nodes(calls, call, call_thread, names),
        ),
        launches=Launches(
            name=used.compact(np.arange(count) + len(texts)),
            start_ns=calls["start"][call],
            end_ns=calls["end"][call],
            process=calls["process"][call],
            thread=calls["thread"][call],
            correlation=calls["correlation"][call],
            is_graph=np.zeros(count, np.bool_),
            is_sync=np.zeros(count, np.bool_),
        ),
        ranges=join.range_table(frames, names, used),
        names=used.texts(),
    )


def _launches(device: Columns, calls: Columns, names: Sequence[str]) -> tuple[tuple[Ints, Ints], Ints]:
    """((device events that a call of their own launched, their calls), calls that launched what never ran)."""
    is_graph = join.name_flags(names, join.GRAPH_LAUNCH)[calls["name"]]
    call_of_event, _ = match.launching_calls(device, calls)
    ran = np.flatnonzero(call_of_event >= 0)
    ran = ran[~is_graph[call_of_event[ran]]]
    launches = join.name_flags(names, _LAUNCHES)[calls["name"]] & ~is_graph
    launches[call_of_event[call_of_event >= 0]] = False
    return (ran, call_of_event[ran]), np.flatnonzero(launches)


def _names(ran: Ints, captured: Ints, names: Sequence[str], path: Path) -> tuple[list[str], Ints]:
    """Names of kernels, and for each launch (those that ran first) its number among them."""
    by_correlation = kernel_names(path) if len(captured) else {}
    texts = [names[number] for number in ran.tolist()]
    texts += [by_correlation.get(number, "") for number in captured.tolist()]
    distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(distinct), np.array([distinct[text] for text in texts], np.int64)


def kernel_names(path: Path) -> dict[int, str]:
    """Correlation id -> the kernel that a launch call names, as ROCm writes it; {} where no call does."""
    with path.open("rb") as file:
        text = b"".join(inflate.inflated(file)) if inflate.is_gzip(file) else file.read()
    try:
        if text.lstrip()[:1] == b"[":
            events = msgspec.json.decode(text, type=list[_Event])
        else:
            events = msgspec.json.decode(text, type=_Document).events
        naming = [
            event.args
            for event in events
            if CATEGORIES.get(event.cat.lower()) == CALL and b'"kernel"' in bytes(event.args)
        ]
        called = msgspec.json.decode(b"[" + b",".join(naming) + b"]", type=list[_CallArgs], strict=False)
    except UNREADABLE:
        return {}
    return {each.correlation: each.kernel for each in called if each.kernel}


def _kinds(name: Ints, names: Sequence[str]) -> NDArray[np.int64]:
    """What each launch call makes: a kernel, a copy or a set."""
    is_copy, is_set = join.name_flags(names, _MEMCPY)[name], join.name_flags(names, _MEMSET)[name]
    return np.where(is_copy, KIND_MEMCPY, np.where(is_set, KIND_MEMSET, KIND_KERNEL))


def _nodes(calls: Columns, call: Ints, thread: Ids | Ints, names: Sequence[str]) -> Ints:
    """For each launch its number within the capture that was open on its thread; -1 outside of captures."""
    node = np.full(len(call), -1, np.int64)
    begins = np.flatnonzero(join.name_flags(names, _BEGINS)[calls["name"]])
    ends = np.flatnonzero(join.name_flags(names, _ENDS)[calls["name"]])
    moment = calls["start"][call]
    for begin in begins.tolist():
        closing = ends[(thread[ends] == thread[begin]) & (calls["start"][ends] > calls["start"][begin])]
        until = calls["start"][closing].min() if len(closing) else np.iinfo(np.int64).max
        inside = (thread[call] == thread[begin]) & (moment > calls["start"][begin]) & (moment < until)
        node[inside] = np.arange(inside.sum())
    return node


def _source(path: Path, events: int) -> TraceSource:
    return TraceSource(
        path=path.name,
        format="kineto",
        size_bytes=path.stat().st_size,
        events=events,
        device_kind="cuda",
        device_names=(),
        rank=None,
        world_size=None,
        metadata={},
        losses=(),
    )
