"""Pieces of a Kineto trace in, raw columns out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from addrfrac.parse import damage, skim, stamps
from addrfrac.parse.columns import FRAME_ANNOTATION, FRAME_OP, Column, RawTables
from addrfrac.parse.events import (
    ANNOTATION,
    CALL,
    CALL_ARGS,
    CATEGORIES,
    DEVICE_ARGS,
    FLOAT_DECODER,
    FRAME_ARGS,
    KERNEL,
    MEMCPY,
    MEMSET,
    MODULE_PREFIX,
    OP,
    OTHER_ACCELERATOR,
    PYTHON,
    TEXT_DECODER,
    UNREADABLE,
    AnyEvent,
    CollectiveArgs,
    LongEvent,
    args_text,
    decodes,
)
from addrfrac.parse.inputs import InputReader
from addrfrac.parse.match import UNKNOWN_PROCESS
from addrfrac.records import KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET, Ints

PROBE_BYTES = 1 << 14
LONGEST_FRACTION = re.compile(rb'"ts"\s*:\s*"?\d{14,}\.\d*[1-9]')
"""A stamp that float64 cannot hold: where a piece starts with one, decoding with floats is not even tried."""
LONG_FRACTION = re.compile(rb'"ts"\s*:\s*"?\d{13,}\.\d*[1-9]')
DEVICE_KINDS = {KERNEL: KIND_KERNEL, MEMCPY: KIND_MEMCPY, MEMSET: KIND_MEMSET}
FRAME_DETAILS = (b'"Sequence number"', b'"Collective name"')
TABLES = {
    OP: "frames",
    ANNOTATION: "frames",
    PYTHON: "modules",
    CALL: "calls",
    KERNEL: "device",
    MEMCPY: "device",
    MEMSET: "device",
}
Piece = bytes | bytearray
Rows = dict[str, Column]


class Reader:
    """Adds piece after piece to one set of tables."""

    def __init__(self) -> None:
        self.tables = RawTables()
        self.inputs = InputReader(self.tables.inputs)

    def add(self, piece: Piece, index: int) -> None:
        """Decode a piece (a JSON list of events) and add what is wanted."""
        tables = self.tables
        skimmed = skim.skim(piece)
        if skimmed is not None:
            tables.events += skimmed.events
            piece = skimmed.kept
            if not piece:
                return
        if not LONGEST_FRACTION.search(piece, 0, PROBE_BYTES) and self._added(piece, index, FLOAT_DECODER.decode):
            return
        if self._added(piece, index, TEXT_DECODER.decode):
            return
        repaired = damage.repair(bytes(piece[1:-1]), decodes)
        tables.unreadable += repaired.unreadable
        added = self._added(repaired.text, index, TEXT_DECODER.decode)
        assert added, "repaired events decode"

    def _added(self, piece: Piece, index: int, decode: Callable[[Piece], Sequence[AnyEvent]]) -> bool:
        """Add the wanted events; False, and nothing added, where they cannot be decoded exactly this way."""
        groups: list[tuple[str, Rows]] = []
        undated = 0
        all_exact = True
        try:
            events = decode(piece)
            by_kind = grouped(events)
            for kind, members in by_kind.items():
                if kind not in TABLES:
                    continue
                usable, rows, exact = _stamped(members)
                all_exact &= exact
                undated += len(members) - len(usable)
                groups.append((TABLES[kind], self._columns(kind, usable, rows)))
        except UNREADABLE:
            return False
        if not all_exact and LONG_FRACTION.search(piece):
            return False
        tables = self.tables
        tables.events += len(events)
        tables.undated += undated
        for table, rows in groups:
            tables.add(table, index, rows)
        for kind in by_kind.keys() - TABLES.keys():
            tables.left_out[kind] = tables.left_out.get(kind, 0) + len(by_kind[kind])
        return True

    def _columns(self, kind: str, events: Sequence[AnyEvent], rows: Rows) -> Rows:
        """The columns of the events of one kind."""
        tables = self.tables
        rows["name"] = tables.names.ids_of([event.name for event in events])
        if kind in DEVICE_KINDS:
            args = DEVICE_ARGS.decode(args_text(events))
            rows["kind"] = DEVICE_KINDS[kind]
            rows["process"] = UNKNOWN_PROCESS  # the format does not say
            rows["device"] = [
                arg.device if arg.device >= 0 else number_of(event.pid) for arg, event in zip(args, events, strict=True)
            ]
            rows["stream"] = [
                arg.stream if arg.stream >= 0 else number_of(event.tid) for arg, event in zip(args, events, strict=True)
            ]
            rows["correlation"] = [arg.correlation for arg in args]
            rows["bytes"] = [arg.bytes for arg in args]
            rows["node"] = [arg.node for arg in args]
            rows["collective"] = _collectives(tables, args)
            return rows
        rows["process"] = _numbers([event.pid for event in events])
        rows["thread"] = _numbers([event.tid for event in events])
        if kind == CALL:
            rows["correlation"] = [arg.correlation for arg in CALL_ARGS.decode(args_text(events))]
        elif kind in (OP, ANNOTATION):
            rows["kind"] = FRAME_ANNOTATION if kind == ANNOTATION else FRAME_OP
            rows["inputs"] = self.inputs.numbers([event.args for event in events])
            text = args_text(events)
            frame_args = FRAME_ARGS.decode(text) if any(detail in text for detail in FRAME_DETAILS) else []
            rows["sequence"] = [arg.sequence for arg in frame_args] or -1
            rows["forward"] = [arg.forward for arg in frame_args] or 0
            rows["collective"] = _collectives(tables, frame_args) or -1
        return rows


def grouped(events: Sequence[AnyEvent]) -> dict[str, list[AnyEvent]]:
    """The wanted events by kind; those of accelerators that are not read under their own category."""
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


def _stamped(events: Sequence[AnyEvent]) -> tuple[Sequence[AnyEvent], Rows, bool]:
    """The events that say when they ran, and when; and whether floats hold any such stamp."""
    exact = True
    if isinstance(events[0], LongEvent):
        start = stamps.from_texts([bytes(event.ts) for event in events])  # type: ignore[arg-type]
        duration = stamps.from_texts([bytes(event.dur) for event in events])  # type: ignore[arg-type]
    else:
        start, exact = stamps.from_floats([event.ts for event in events])  # type: ignore[misc]
        duration, _ = stamps.from_floats([event.dur for event in events])  # type: ignore[misc]
    usable = (start != stamps.MISSING_NS) & (duration != stamps.MISSING_NS)
    if not usable.all():
        events = [event for event, keep in zip(events, usable.tolist(), strict=True) if keep]
        start, duration = start[usable], duration[usable]
    return events, {"start": start, "duration": duration}, exact


def _collectives(tables: RawTables, args: Sequence[CollectiveArgs]) -> list[int]:
    """For each event the number of the collective it describes; -1 for all others."""
    id_of = tables.collectives.id_of
    return [
        id_of((arg.collective, arg.group, arg.group_size, arg.dtype, arg.elements, arg.order)) if arg.collective else -1
        for arg in args
    ]


def _numbers(identities: Sequence[int | str]) -> Ints:
    """Processes or threads as numbers."""
    try:
        return np.array(identities, np.int64)
    except ValueError:  # names among them
        return np.array([number_of(identity) for identity in identities], np.int64)


def number_of(identity: int | str) -> int:
    """A process, thread or stream as a number; names get a large negative one of their own."""
    if isinstance(identity, int):
        return identity
    try:
        return int(identity)
    except ValueError:
        return -(1 << 40) - zlib.crc32(identity.encode("utf-8", "replace"))
