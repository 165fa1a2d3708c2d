"""Columns as they come out of a file, before anything is joined; workers hand them back and they are put end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Ints

FRAME_OP, FRAME_ANNOTATION = 0, 1

Columns = dict[str, NDArray[np.int64]]
"""Equally long columns, by name."""

FRAME_FIELDS = ("name", "start", "duration", "process", "thread", "sequence", "forward", "inputs", "collective", "kind")
CALL_FIELDS = ("name", "start", "duration", "process", "thread", "correlation")
MODULE_FIELDS = ("name", "start", "duration", "process", "thread")
DEVICE_FIELDS = (
    "name",
    "kind",
    "start",
    "duration",
    "device",
    "stream",
    "correlation",
    "bytes",
    "node",
    "collective",
)


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


@dataclass(slots=True, kw_only=True)
class RawTables:
    """What one reader took from its pieces: four tables, the texts they index, and what it could not use."""

    frames: list[Columns] = field(default_factory=list)
    """Ops and annotations on host threads."""
    calls: list[Columns] = field(default_factory=list)
    """Runtime and driver calls."""
    modules: list[Columns] = field(default_factory=list)
    """nn.Module calls, from python stacks."""
    device: list[Columns] = field(default_factory=list)
    names: Interner = field(default_factory=Interner)
    inputs: Interner = field(default_factory=Interner)
    collectives: Interner = field(default_factory=Interner)
    events: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """Categories of accelerators that are not read -> events."""
    unreadable: int = 0
    """Events whose text is no JSON even with tolerance."""
    undated: int = 0
    """Events of a wanted category without a usable time stamp or duration."""
    foreign: int = 0
    """Events whose fields are none of torch.profiler's."""


def concatenated(tables: Sequence[Columns], names: Sequence[str]) -> Columns:
    """Tables put end to end."""
    if not tables:
        return {name: np.empty(0, np.int64) for name in names}
    return {name: np.concatenate([table[name] for table in tables]) for name in names}


def merged(parts: Sequence[RawTables]) -> RawTables:
    """The tables of several readers as one; their texts are numbered anew."""
    whole = RawTables()
    for part in parts:
        renumbered = {
            "name": _renumbering(whole.names, part.names),
            "inputs": _renumbering(whole.inputs, part.inputs),
            "collective": _renumbering(whole.collectives, part.collectives),
        }
        for table in ("frames", "calls", "modules", "device"):
            for columns in getattr(part, table):
                getattr(whole, table).append(_renumber(columns, renumbered))
        for category, count in part.left_out.items():
            whole.left_out[category] = whole.left_out.get(category, 0) + count
        whole.events += part.events
        whole.unreadable += part.unreadable
        whole.undated += part.undated
        whole.foreign += part.foreign
    return whole


def _renumbering(into: Interner, of: Interner) -> Ints:
    """New number of each old one; the last entry keeps -1 where it is."""
    return np.array([*into.ids_of(list(of.ids)), -1], np.int64)


def _renumber(columns: Columns, renumbered: dict[str, Ints]) -> Columns:
    return {name: renumbered[name][column] if name in renumbered else column for name, column in columns.items()}
