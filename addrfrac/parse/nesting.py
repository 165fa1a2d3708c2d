"""Intervals on host threads in, their parents and what encloses a moment out; no loop over events."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from addrfrac.parse.columns import distinct
from addrfrac.records import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """Nested intervals, sorted by (thread, start, longest first); rows index these arrays."""

    order: Ints | slice
    """Row -> position in the arrays it was built from; a slice of all where they were in this order."""
    thread: Ints
    start: Ints
    end: Ints
    parent: Ints
    """Row of the enclosing interval; -1 at the top."""
    levels: tuple[Ints, ...]
    """Rows by their number of ancestors."""


def thread_numbers(*pairs: tuple[Ints, Ints]) -> tuple[Ints, ...]:
    """A number for each distinct (process, thread), the same over all the given pairs of columns."""
    process = np.concatenate([pair[0] for pair in pairs])
    thread = np.concatenate([pair[1] for pair in pairs])
    if not len(process):
        return tuple(np.empty(0, np.int64) for _ in pairs)
    # Only where one of the two changes: events of a thread mostly stand together.
    first = np.flatnonzero(np.r_[True, (process[1:] != process[:-1]) | (thread[1:] != thread[:-1])])
    _, processes = distinct(process[first])
    known, threads = distinct(thread[first])
    _, numbers = distinct(processes * len(known) + threads)
    every = np.repeat(numbers, np.diff(np.r_[first, len(process)]))
    return tuple(np.split(every, np.cumsum([len(pair[0]) for pair in pairs])[:-1]))


def nest(thread: Ints, start: Ints, end: Ints) -> Forest:
    """Who encloses whom: the latest earlier interval of the thread that is still open when one starts."""
    order = _nested_order(thread, start, end)
    thread, start, end = thread[order], start[order], end[order]
    parent = np.full(len(start), -1, np.int64)
    bounds = np.flatnonzero(np.r_[True, thread[1:] != thread[:-1], True]) if len(start) else np.zeros(1, np.int64)
    for begin, stop in pairwise(bounds):
        parent[begin:stop] = _parents(start[begin:stop], end[begin:stop], int(begin))
    return Forest(order=order, thread=thread, start=start, end=end, parent=parent, levels=_levels(parent))


def _nested_order(thread: Ints, start: Ints, end: Ints) -> Ints | slice:
    """Rows by thread, start, longest first; recorders mostly write them so, which spares a copy."""
    same = thread[1:] == thread[:-1]
    falls = same & (start[1:] < start[:-1])
    falls |= same & (start[1:] == start[:-1]) & (end[1:] > end[:-1])
    falls |= thread[1:] < thread[:-1]
    return np.lexsort((-end, start, thread)) if falls.any() else slice(None)


def _parents(start: Ints, end: Ints, offset: int) -> Ints:
    """Rows of the parents of one thread's intervals, plus an offset; -1 at the top."""
    count = len(start)
    # An interval of no length would close before it opens and upset the count of open ones.
    open_end = np.maximum(end, start + 1)
    closed_before = np.searchsorted(np.sort(open_end), start, side="right")
    depth = np.arange(count) - closed_before
    parent = np.full(count, -1, np.int64)
    above: NDArray[np.int64] | None = None
    for level in range(int(depth.max()) + 1):
        rows = np.flatnonzero(depth == level)
        if above is not None and len(above) and len(rows):
            place = np.searchsorted(above, rows) - 1
            parent[rows] = np.where(place >= 0, above[np.maximum(place, 0)], -1)
        above = rows
    # Intervals that overlap without nesting can have a parent that has ended: climb until one is open.
    while len(stale := np.flatnonzero((parent >= 0) & (open_end[np.maximum(parent, 0)] <= start))):
        parent[stale] = parent[parent[stale]]
    return np.where(parent >= 0, parent + offset, -1)


def _levels(parent: Ints) -> tuple[Ints, ...]:
    """Rows by their number of ancestors."""
    depth = np.zeros(len(parent), np.int64)
    rows = np.flatnonzero(parent >= 0)
    climber = parent[rows]
    while len(rows):
        depth[rows] += 1
        climber = parent[climber]
        rows, climber = rows[climber >= 0], climber[climber >= 0]
    order = np.argsort(depth, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(depth))[:-1])) if len(parent) else ()


def innermost(forest: Forest, thread: Ints, moment: Ints) -> Ints:
    """For each moment on a thread the row of the innermost interval open then; -1 where none is."""
    found = np.full(len(moment), -1, np.int64)
    for number in distinct(thread)[0].tolist():
        begin, stop = np.searchsorted(forest.thread, [number, number + 1])
        if begin == stop:
            continue
        asked = np.flatnonzero(thread == number)
        row = np.searchsorted(forest.start[begin:stop], moment[asked], side="right") - 1
        row = np.where(row >= 0, row + begin, -1)
        while len(late := np.flatnonzero((row >= 0) & (forest.end[np.maximum(row, 0)] <= moment[asked]))):
            ended = row[late]
            # An interval of no length holds the moment it stands at.
            point = (forest.start[ended] == moment[asked][late]) & (forest.end[ended] == moment[asked][late])
            if point.all():
                break
            late = late[~point]
            row[late] = forest.parent[row[late]]
        found[asked] = row
    return found
