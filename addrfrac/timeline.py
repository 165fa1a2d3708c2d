"""Intervals with a group each in, the time that each group held alone, together and at all out.

All arithmetic is in integer nanoseconds, so that what is cut from one timeline adds up to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Ids, Ints

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """Who held the timeline; rows are steps, columns are groups, all in ns."""

    exclusive_ns: Ints
    """(steps, groups): only this group was active."""
    union_ns: Ints
    """(steps, groups): at least one interval of the group was active."""
    even_ns: NDArray[np.float64]
    """(steps, groups): overlap divided evenly between the active groups."""
    busy_ns: Ints
    """(steps,): at least one group was active."""
    overlap_ns: Ints
    """(steps,): two or more groups were active."""


def serialise_streams(start_ns: Ints, end_ns: Ints, stream: Ints) -> tuple[Ints, Ints]:
    """Start and end with each moment of a stream given to the earlier kernel.

    Under programmatic dependent launch a kernel starts while the one before it on its stream still runs, and waits: the
    earlier keeps the moment. Intervals must be sorted by start within each stream; length can become zero.
    """
    start, end = start_ns.copy(), end_ns.copy()
    for one in np.unique(stream):
        rows = np.flatnonzero(stream == one)
        reached = np.maximum.accumulate(end_ns[rows])
        start[rows[1:]] = np.maximum(start_ns[rows[1:]], reached[:-1])
        end[rows] = np.maximum(reached, start[rows])
    return start, end


def merge(start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as disjoint, sorted intervals; empty ones vanish."""
    kept = end_ns > start_ns
    start, end = start_ns[kept], end_ns[kept]
    if not start.size:
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    opens = np.append(True, start[1:] > reached[:-1])
    first = np.flatnonzero(opens)
    return start[first], reached[np.append(first[1:], len(start)) - 1]


def occupancy(start_ns: Ints, end_ns: Ints, group: Ids, groups: int, window_start: Ints, window_end: Ints) -> Occupancy:
    """Sweep the intervals over the disjoint, sorted windows [window_start, window_end), one a step."""
    merged = [merge(start_ns[group == g], end_ns[group == g]) for g in range(groups)]
    of = np.repeat(np.arange(groups), [len(s) for s, _ in merged])
    start = np.concatenate([s for s, _ in merged]) if merged else start_ns[:0]
    end = np.concatenate([e for _, e in merged]) if merged else end_ns[:0]

    # A cut at each window edge keeps every segment within one step.
    moment = np.concatenate([start, end, window_start, window_end])
    active = np.concatenate([np.ones(len(start)), -np.ones(len(end)), np.zeros(2 * len(window_start))]).astype(np.int64)
    # With one active group the sum of active ids is that group's id.
    ids = np.concatenate([of, -of, np.zeros(2 * len(window_start), dtype=np.int64)])
    order = np.argsort(moment, kind="stable")
    moment = moment[order]
    count, id_sum = np.cumsum(active[order])[:-1], np.cumsum(ids[order])[:-1]
    length = np.diff(moment)
    step = np.searchsorted(window_start, moment[:-1], side="right") - 1
    before_all = np.iinfo(np.int64).min  # what lies before the first window has step -1, and takes this end
    inside = (length > 0) & (moment[:-1] < np.append(window_end, before_all)[step])

    steps = len(window_start)
    alone, busy, shared = inside & (count == 1), inside & (count >= 1), inside & (count >= 2)
    exclusive = _sum(step[alone] * groups + id_sum[alone], length[alone], steps * groups).reshape(steps, groups)
    weight = np.where(count >= 1, 1.0 / np.maximum(count, 1), 0.0) * length
    union, even = np.zeros((steps, groups), dtype=np.int64), np.zeros((steps, groups))
    even_until = np.concatenate([[0.0], np.cumsum(weight)])
    edges = np.concatenate([window_start, window_end])
    for g, (s, e) in enumerate(merged):
        held = _held_until(s, e, s, e, edges, edges)
        union[:, g] = held[steps:] - held[:steps]
        cuts = [even_until[np.searchsorted(moment, at)] for at in (s, e, edges)]
        shared_evenly = _held_until(s, e, cuts[0], cuts[1], edges, cuts[2])
        even[:, g] = shared_evenly[steps:] - shared_evenly[:steps]
    return Occupancy(
        exclusive_ns=exclusive,
        union_ns=union,
        even_ns=even,
        busy_ns=_sum(step[busy], length[busy], steps),
        overlap_ns=_sum(step[shared], length[shared], steps),
    )


def _held_until(start: Ints, end: Ints, at_start: Numbers, at_end: Numbers, until: Ints, at_until: Numbers) -> Numbers:
    """How much of a quantity falls into the intervals up to each moment of `until`.

    The intervals are disjoint and sorted; `at_start`, `at_end` and `at_until` are the quantity's running total there.
    """
    before = np.searchsorted(start, until, side="right")
    total = np.concatenate([at_start[:0], [0], np.cumsum(at_end - at_start)])[before]
    last = np.maximum(before - 1, 0)
    if not len(start):
        return total
    still_open = (before > 0) & (until < end[last])
    held: Numbers = total - np.where(still_open, at_end[last] - at_until, 0)
    return held


def _sum(index: Ints, weights: Ints, size: int) -> Ints:
    """Integer bincount: floats would lose whole nanoseconds in long traces."""
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, index, weights)
    return total
