"""Pieces of a Kineto trace in, raw columns out; alone knows the format's categories and fields."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Annotated

import msgspec

from addrfrac.parse import damage, skim, stamps
from addrfrac.parse.columns import FRAME_ANNOTATION, FRAME_OP, RawTables
from addrfrac.records import KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET, Ints

NOTHING = msgspec.Raw()
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
MODULE_PREFIX = "nn.Module: "
PROBE_BYTES = 1 << 14
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


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments of an event that any stage uses; all others are skipped undecoded."""

    correlation: Whole = -1
    device: Whole = -1
    stream: Whole = -1
    bytes: Whole = -1
    sequence: Whole = msgspec.field(default=-1, name="Sequence number")
    forward: Whole = msgspec.field(default=0, name="Fwd thread id")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    node: Whole = msgspec.field(default=-1, name="graph node id")
    collective: str = msgspec.field(default="", name="Collective name")
    group: str = msgspec.field(default="", name="Process Group Name")
    group_size: Whole = msgspec.field(default=-1, name="Group size")
    dtype: str = ""
    elements: Whole = msgspec.field(default=-1, name="In msg nelems")
    order: Whole = msgspec.field(default=-1, name="Seq")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """An event whose stamps fit a float64."""

    cat: str = ""
    name: str = ""
    pid: Whole | str = 0
    tid: Whole | str = 0
    ts: float = float("nan")
    dur: float = float("nan")
    args: Args = NO_ARGS


class LongEvent(msgspec.Struct, gc=False):
    """An event whose stamps must be read digit by digit."""

    cat: str = ""
    name: str = ""
    pid: Whole | str = 0
    tid: Whole | str = 0
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: Args = NO_ARGS


AnyEvent = Event | LongEvent
FLOAT_DECODER = msgspec.json.Decoder(list[Event], strict=False)
TEXT_DECODER = msgspec.json.Decoder(list[LongEvent], strict=False)
ONE_DECODER = msgspec.json.Decoder(LongEvent, strict=False)


def add_piece(tables: RawTables, piece: bytes, index: int) -> None:
    """Decode a piece (events with commas between them, no brackets) and add what is wanted to the tables."""
    skipped = skim.skim(piece)
    if skipped is not None:
        tables.events += skipped.events
        piece = skipped.kept
        if not piece:
            return
    if not LONG_FRACTION.search(piece, 0, PROBE_BYTES):
        try:
            events = FLOAT_DECODER.decode(b"[" + piece + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # the exact reader below mends what is bad
        else:
            if _add_events(tables, events, index):
                return
    text = b"[" + piece + b"]"
    try:
        long_events = TEXT_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        repaired = damage.repair(piece, _decodes)
        tables.unreadable += repaired.unreadable
        long_events = TEXT_DECODER.decode(repaired.text)
    _add_events(tables, long_events, index)


def _decodes(fragment: bytes) -> bool:
    """Whether a single event decodes as it stands."""
    try:
        ONE_DECODER.decode(fragment)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _add_events(tables: RawTables, events: Sequence[AnyEvent], index: int) -> bool:
    """Add the wanted events; False, and nothing added, where floats cannot hold their stamps."""
    groups = _grouped(events)
    dated: dict[str, tuple[Ints, Ints]] = {}
    for category, members in groups.items():
        stamps_of = _dated(members)
        if stamps_of is None:
            return False
        dated[category] = stamps_of
    tables.events += len(events)
    for category, members in groups.items():
        start, duration = dated[category]
        usable = (start != stamps.MISSING_NS) & (duration != stamps.MISSING_NS)
        if not usable.all():
            tables.undated += len(members) - int(usable.sum())
            members = [member for member, keep in zip(members, usable.tolist(), strict=True) if keep]
            start, duration = start[usable], duration[usable]
        _add_group(tables, category, members, {"start": start, "duration": duration}, index)
    return True


def _grouped(events: Sequence[AnyEvent]) -> dict[str, list[AnyEvent]]:
    """Events that are wanted, by kind; other accelerators' under their own category."""
    by_category: dict[str, list[AnyEvent]] = {}
    for event in events:
        group = by_category.get(event.cat)
        if group is None:
            by_category[event.cat] = [event]
        else:
            group.append(event)
    wanted: dict[str, list[AnyEvent]] = {}
    for category, members in by_category.items():
        low = category.lower()
        kind = CATEGORIES.get(low) or (low if OTHER_ACCELERATOR.match(low) else None)
        if kind == PYTHON:
            members = [event for event in members if event.name.startswith(MODULE_PREFIX)]
        if kind is not None and members:
            wanted[kind] = wanted[kind] + members if kind in wanted else members
    return wanted


def _dated(events: Sequence[AnyEvent]) -> tuple[Ints, Ints] | None:
    """Start and duration in nanoseconds; None where floats cannot hold them."""
    if isinstance(events[0], LongEvent):
        return (
            stamps.from_texts([bytes(event.ts) for event in events]),  # type: ignore[arg-type]
            stamps.from_texts([bytes(event.dur) for event in events]),  # type: ignore[arg-type]
        )
    start, exact = stamps.from_floats([event.ts for event in events])  # type: ignore[misc]
    duration, _ = stamps.from_floats([event.dur for event in events])  # type: ignore[misc]
    return (start, duration) if exact else None


def _add_group(
    tables: RawTables, kind: str, events: Sequence[AnyEvent], columns: dict[str, Sequence[int] | Ints], index: int
) -> None:
    """Add the events of one kind to their table."""
    if kind in DEVICE_KINDS:
        args = [event.args for event in events]
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
        table = "device"
    elif kind == PYTHON:
        table = "modules"
    elif kind == CALL:
        columns["correlation"] = [event.args.correlation for event in events]
        table = "calls"
    elif kind in (OP, ANNOTATION):
        args = [event.args for event in events]
        columns["kind"] = [FRAME_ANNOTATION if kind == ANNOTATION else FRAME_OP] * len(events)
        columns["sequence"] = [arg.sequence for arg in args]
        columns["forward"] = [arg.forward for arg in args]
        columns["collective"] = _collectives(tables, args)
        columns["inputs"] = _inputs(tables, args)
        table = "frames"
    else:
        tables.left_out[kind] = tables.left_out.get(kind, 0) + len(events)
        return
    columns["name"] = tables.names.ids_of([event.name for event in events])
    if table != "device":
        columns["process"] = _numbers([event.pid for event in events])
        columns["thread"] = _numbers([event.tid for event in events])
    tables.add(table, index, columns)


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


def _numbers(identities: Sequence[int | str]) -> Sequence[int]:
    """Processes or threads as numbers."""
    if all(type(identity) is int for identity in set(identities)):
        return identities  # type: ignore[return-value]
    return [number_of(identity) for identity in identities]


def number_of(identity: int | str) -> int:
    """A process, thread or stream as a number; names get a large negative one of their own."""
    if isinstance(identity, int):
        return identity
    try:
        return int(identity)
    except ValueError:
        return -(1 << 40) - zlib.crc32(identity.encode("utf-8", "replace"))
