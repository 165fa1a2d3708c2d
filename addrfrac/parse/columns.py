"""Columns as they come out of a file, before anything is joined; workers hand them back and they are put end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Ints

FRAME_OP, FRAME_ANNOTATION = 0, 1

Column = Sequence[int] | Ints | int
Columns = dict[str, NDArray[np.int64]]
"""Equally long columns, by name."""

Block = NDArray[np.int64]
"""The columns of a table for some rows: (fields, rows)."""

FIELDS: dict[str, tuple[str, ...]] = {
    "frames": (
        "name",
        "start",
        "duration",
        "process",
        "thread",
        "sequence",
        "forward",
        "inputs",
        "collective",
        "kind",
    ),
    "calls": ("name", "start", "duration", "process", "thread", "correlation"),
    "modules": ("name", "start", "duration", "process", "thread"),
    "device": (
        "name",
        "kind",
        "start",
        "duration",
        "process",
        "device",
        "stream",
        "correlation",
        "bytes",
        "node",
        "collective",
    ),
}


@dataclass(slots=True)
class Interner:
    """Distinct values in order of first sight."""

    ids: dict[object, int] = field(default_factory=dict)

    def id_of(self, value: object) -> int:
        """The value's number."""
        return self.ids.setdefault(value, len(self.ids))

    def ids_of(self, values: Sequence[object]) -> list[int]:
        """The numbers of many values."""
        ids = self.ids
        return [ids.setdefault(value, len(ids)) for value in values]


def _no_parts() -> dict[str, list[tuple[int, Block]]]:
    return {table: [] for table in FIELDS}


@dataclass(slots=True, kw_only=True)
class RawTables:
    """What one reader took from its pieces: four tables, the texts they index, and what it could not use."""

    parts: dict[str, list[tuple[int, Block]]] = field(default_factory=_no_parts)
    """For each table of FIELDS (frames = ops and annotations on host threads, calls = runtime and driver calls,
    modules = nn.Module calls from python stacks, device) its parts, each with the number of its piece."""
    names: Interner = field(default_factory=Interner)
    inputs: Interner = field(default_factory=Interner)
    collectives: Interner = field(default_factory=Interner)
    events: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """Categories of accelerators that are not read -> events."""
    unreadable: int = 0
    """Fragments that are no JSON even with tolerance."""
    undated: int = 0
    """Events of a wanted category without a usable time stamp or duration."""

    def add(self, table: str, piece: int, columns: dict[str, Column]) -> None:
        """Append rows that came from a piece; a single number stands for a column of it."""
        block = np.empty((len(FIELDS[table]), np.size(columns["start"])), np.int64)
        for row, name in enumerate(FIELDS[table]):
            block[row] = columns[name]
        self.parts[table].append((piece, block))

    def has(self, table: str) -> bool:
        """Whether a table has any row."""
        return any(block.shape[1] for _, block in self.parts[table])

    def table(self, name: str) -> Columns:
        """One table, in the file's order."""
        blocks = [block for _, block in sorted(self.parts[name], key=lambda part: part[0])]
        whole = np.concatenate(blocks, axis=1) if blocks else np.empty((len(FIELDS[name]), 0), np.int64)
        return dict(zip(FIELDS[name], whole, strict=True))


def merged(shares: Sequence[RawTables]) -> RawTables:
    """The tables of several readers as one; their texts are numbered anew."""
    whole = shares[0]
    for share in shares[1:]:
        renumbered = {
            "name": _renumbering(whole.names, share.names),
            "inputs": _renumbering(whole.inputs, share.inputs),
            "collective": _renumbering(whole.collectives, share.collectives),
        }
        for table, parts in share.parts.items():
            for piece, block in parts:
                for row, name in enumerate(FIELDS[table]):
                    if name in renumbered:
                        block[row] = renumbered[name][block[row]]
                whole.parts[table].append((piece, block))
        for category, count in share.left_out.items():
            whole.left_out[category] = whole.left_out.get(category, 0) + count
        whole.events += share.events
        whole.unreadable += share.unreadable
        whole.undated += share.undated
    return whole


def _renumbering(into: Interner, of: Interner) -> Ints:
    """New number of each old one; the last entry keeps -1 where it is."""
    return np.array([*into.ids_of(list(of.ids)), -1], np.int64)


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values, ascending, and for each row its place among them.

    In place of `numpy.unique`, whose first call loads numpy's masked arrays, half as long as a whole join takes.
    """
    if not len(values):
        return values, np.empty(0, np.int64)
    low = int(values.min())
    width = int(values.max()) - low + 1
    if width <= 4 * len(values) + 1024:
        present = np.zeros(width, np.bool_)
        present[values - low] = True
        place = np.cumsum(present) - 1
        return np.flatnonzero(present) + low, place[values - low]
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    first = np.r_[True, ascending[1:] != ascending[:-1]]
    place = np.empty(len(values), np.int64)
    place[order] = np.cumsum(first) - 1
    return ascending[first], place
