"""Pieces of a Kineto trace in, raw columns out; alone knows the format's categories and fields."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np

from addrfrac.parse import damage, stamps
from addrfrac.parse.columns import FRAME_ANNOTATION, FRAME_OP, Columns, RawTables
from addrfrac.records import KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET

NOTHING = msgspec.Raw()
MODULE_PREFIX = "nn.Module: "
LONG_FRACTION = re.compile(rb'"ts"\s*:\s*"?\d{14,}\.\d')

OP, ANNOTATION, PYTHON, CALL, KERNEL, MEMCPY, MEMSET = (
    "op",
    "annotation",
    "python",
    "call",
    "kernel",
    "memcpy",
    "memset",
)
CATEGORIES: dict[str, str] = {
    "cpu_op": OP,
    "operator": OP,  # until 2022
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "hip_runtime": CALL,
    "hip_driver": CALL,
    "runtime": CALL,
    "kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
}
DEVICE_KINDS = {KERNEL: KIND_KERNEL, MEMCPY: KIND_MEMCPY, MEMSET: KIND_MEMSET}
OTHER_ACCELERATOR = re.compile(r"^(xpu|mtia|hpu|glow|privateuse1)(_|$)")
TORCH_CATEGORIES = frozenset({"ac2g", "fwdbwd", "trace", "overhead", "gpu_user_annotation", "cpu_instant_event"})


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments of an event that any stage uses; all others are skipped undecoded."""

    correlation: int = -1
    device: int = -1
    stream: int = -1
    bytes: int = -1
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward: int = msgspec.field(default=0, name="Fwd thread id")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    node: int = msgspec.field(default=-1, name="graph node id")
    collective: str = msgspec.field(default="", name="Collective name")
    group: str = msgspec.field(default="", name="Process Group Name")
    group_size: int = msgspec.field(default=-1, name="Group size")
    dtype: str = ""
    elements: int = msgspec.field(default=-1, name="In msg nelems")
    order: int = msgspec.field(default=-1, name="Seq")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """An event whose stamps fit a float64."""

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = float("nan")
    dur: float = float("nan")
    args: Args = NO_ARGS


class LongEvent(msgspec.Struct, gc=False):
    """An event whose stamps must be read digit by digit."""

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: Args = NO_ARGS


AnyEvent = Event | LongEvent
FLOAT_DECODER = msgspec.json.Decoder(list[Event], strict=False)
TEXT_DECODER = msgspec.json.Decoder(list[LongEvent], strict=False)
ONE_DECODER = msgspec.json.Decoder(LongEvent, strict=False)


def add_piece(tables: RawTables, piece: bytes) -> None:
    """Decode a piece (events with commas between them, no brackets) and add what is wanted to the tables."""
    text = b"[" + piece + b"]"
    if LONG_FRACTION.search(text, 0, 1 << 14):
        _add_long(tables, text)
        return
    try:
        events = FLOAT_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        repaired = damage.repair(piece, _decodes)
        tables.unreadable += repaired.unreadable
        _add_long(tables, repaired.text)
        return
    columns = _columns(tables, events)
    if columns is None:
        _add_long(tables, text)
        return
    _append(tables, columns, len(events))


def _add_long(tables: RawTables, text: bytes) -> None:
    """The same with exact stamps; the text may still hold what only the tolerant reader takes."""
    try:
        events = TEXT_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        repaired = damage.repair(text[1:-1], _decodes)
        tables.unreadable += repaired.unreadable
        events = TEXT_DECODER.decode(repaired.text)
    columns = _columns(tables, events)
    assert columns is not None
    _append(tables, columns, len(events))


def _decodes(fragment: bytes) -> bool:
    """Whether a single event decodes as it stands."""
    try:
        ONE_DECODER.decode(fragment)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _append(tables: RawTables, columns: dict[str, list[Columns]], events: int) -> None:
    for table, parts in columns.items():
        getattr(tables, table).extend(parts)
    tables.events += events


def _columns(tables: RawTables, events: Sequence[AnyEvent]) -> dict[str, list[Columns]] | None:
    """The wanted events as columns; None where their stamps do not fit a float64."""
    groups: dict[str, list[AnyEvent]] = {}
    for event in events:
        group = groups.get(event.cat)
        if group is None:
            groups[event.cat] = [event]
        else:
            group.append(event)
    found: dict[str, list[Columns]] = {"frames": [], "calls": [], "modules": [], "device": []}
    undated = 0
    for category, members in groups.items():
        group_kind = CATEGORIES.get(category) or CATEGORIES.get(category.lower())
        if group_kind is None:
            continue
        if group_kind == PYTHON:
            members = [event for event in members if event.name.startswith(MODULE_PREFIX)]
            if not members:
                continue
        dated = _dated(members)
        if dated is None:
            return None
        table, columns = _table(tables, group_kind, members)
        columns.update(dated)
        usable = (columns["start"] != stamps.MISSING_NS) & (columns["duration"] != stamps.MISSING_NS)
        if not usable.all():
            undated += int((~usable).sum())
            columns = {name: column[usable] for name, column in columns.items()}
        found[table].append(columns)
    tables.undated += undated
    for category, members in groups.items():
        low = category.lower()
        if OTHER_ACCELERATOR.match(low):
            tables.left_out[low] = tables.left_out.get(low, 0) + len(members)
        elif low not in CATEGORIES and low not in TORCH_CATEGORIES and low:
            tables.foreign += len(members)
    return found


def _dated(events: Sequence[AnyEvent]) -> Columns | None:
    """Start and duration in nanoseconds; None where floats cannot hold them."""
    if isinstance(events[0], LongEvent):
        return {
            "start": stamps.from_texts([bytes(event.ts) for event in events]),  # type: ignore[arg-type]
            "duration": stamps.from_texts([bytes(event.dur) for event in events]),  # type: ignore[arg-type]
        }
    start, exact = stamps.from_floats([event.ts for event in events])  # type: ignore[misc]
    duration, _ = stamps.from_floats([event.dur for event in events])  # type: ignore[misc]
    return {"start": start, "duration": duration} if exact else None


def _table(tables: RawTables, kind: str, events: Sequence[AnyEvent]) -> tuple[str, Columns]:
    """Which table a category belongs to, and its columns less the stamps."""
    columns: dict[str, Sequence[int]] = {"name": tables.names.ids_of([event.name for event in events])}
    args = [event.args for event in events]
    if kind in DEVICE_KINDS:
        columns["kind"] = [DEVICE_KINDS[kind]] * len(events)
        columns["device"] = [
            arg.device if arg.device >= 0 else number_of(event.pid) for arg, event in zip(args, events, strict=True)
        ]
        columns["stream"] = [
            arg.stream if arg.stream >= 0 else number_of(event.tid) for arg, event in zip(args, events, strict=True)
        ]
        columns["correlation"] = [arg.correlation for arg in args]
        columns["bytes"] = [arg.bytes for arg in args]
        columns["node"] = [arg.node for arg in args]
        columns["collective"] = _collectives(tables, args)
        return "device", as_arrays(columns)
    columns["process"] = [pid if type(pid) is int else number_of(pid) for pid in [event.pid for event in events]]
    columns["thread"] = [tid if type(tid) is int else number_of(tid) for tid in [event.tid for event in events]]
    if kind == PYTHON:
        return "modules", as_arrays(columns)
    if kind == CALL:
        columns["correlation"] = [arg.correlation for arg in args]
        return "calls", as_arrays(columns)
    columns["kind"] = [FRAME_ANNOTATION if kind == ANNOTATION else FRAME_OP] * len(events)
    columns["sequence"] = [arg.sequence for arg in args]
    columns["forward"] = [arg.forward for arg in args]
    columns["collective"] = _collectives(tables, args)
    columns["inputs"] = _inputs(tables, args)
    return "frames", as_arrays(columns)


def as_arrays(columns: dict[str, Sequence[int]]) -> Columns:
    """Lists of whole numbers as arrays; numbers beyond 64 bits become -1."""
    arrays: Columns = {}
    for name, values in columns.items():
        try:
            arrays[name] = np.array(values, np.int64)
        except OverflowError:
            arrays[name] = np.array([value if abs(value) < 1 << 62 else -1 for value in values], np.int64)
    return arrays


def _inputs(tables: RawTables, args: Sequence[Args]) -> list[int]:
    """For each op the number of its recorded inputs; -1 where none were recorded."""
    ids = tables.inputs.ids
    return [
        ids.setdefault((bytes(arg.dims), bytes(arg.types), bytes(arg.strides), bytes(arg.concrete)), len(ids))
        if arg.dims is not NOTHING
        else -1
        for arg in args
    ]


def _collectives(tables: RawTables, args: Sequence[Args]) -> list[int]:
    """For each event the number of the collective it describes; -1 for all others."""
    id_of = tables.collectives.id_of
    return [
        id_of((arg.collective, arg.group, arg.group_size, arg.dtype, arg.elements, arg.order)) if arg.collective else -1
        for arg in args
    ]


def number_of(identity: int | str) -> int:
    """A process, thread or stream as a number; names get a large negative one of their own."""
    if isinstance(identity, int):
        return identity
    try:
        return int(identity)
    except ValueError:
        return -(1 << 40) - zlib.crc32(identity.encode("utf-8", "replace"))
