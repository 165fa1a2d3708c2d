"""Idle device time in, why nothing ran out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import GapKind, Ids, Ints, Launches

KINDS = tuple(GapKind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Every stretch of the windows in which nothing ran, in order of time."""

    length_ns: Ints
    step: Ids
    kind: Ids
    """Index into KINDS."""
    follower: Ids
    """Position of the kernel that ends the gap; -1 at the end of a window."""


def find_gaps(
    start_ns: Ints,
    end_ns: Ints,
    stream: Ints,
    launch: Ids,
    launches: Launches,
    window_start: Ints,
    window_end: Ints,
) -> Gaps:
    """The gaps of kernels sorted by start, each with its kind; windows are disjoint and sorted."""
    lengths: list[Ints] = []
    steps, kinds, followers = [], [], []
    reached = np.maximum.accumulate(end_ns) if len(end_ns) else end_ns
    last_to_end = _argmax_so_far(end_ns)
    syncs = _sync_ends(launches)
    for k, (low, high) in enumerate(zip(window_start, window_end, strict=True)):
        i, j = np.searchsorted(start_ns, [low, high])
        before = np.maximum(reached[i - 1 : j - 1] if i else np.append(low, reached[: j - 1]), low)
        gap = start_ns[i:j] - before[: j - i]
        rows = np.flatnonzero(gap > 0)
        follower = rows + i
        lengths.append(gap[rows])
        steps.append(np.full(len(rows), k, dtype=np.int32))
        followers.append(follower.astype(np.int32))
        previous = np.where(follower > 0, last_to_end[np.maximum(follower - 1, 0)], -1)
        kinds.append(_kinds(follower, previous, before[rows], stream, launch, launches, syncs))
    return Gaps(
        length_ns=np.concatenate(lengths) if lengths else start_ns[:0],
        step=_join(steps),
        kind=_join(kinds),
        follower=_join(followers),
    )


def _join(parts: list[NDArray[np.int32]]) -> Ids:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _argmax_so_far(values: Ints) -> Ints:
    """For each position that of the largest value up to it."""
    if not len(values):
        return values
    reached = np.maximum.accumulate(values)
    is_new = values >= reached
    where: Ints = np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))
    return where


def _sync_ends(launches: Launches) -> dict[int, tuple[Ints, Ints]]:
    """For each thread the (start, end) of its waits for the device, sorted by end."""
    waits = np.flatnonzero(launches.is_sync)
    threads: dict[int, tuple[Ints, Ints]] = {}
    for thread in np.unique(launches.thread[waits]):
        rows = waits[launches.thread[waits] == thread]
        rows = rows[np.argsort(launches.end_ns[rows], kind="stable")]
        threads[int(thread)] = (launches.start_ns[rows], launches.end_ns[rows])
    return threads


def _kinds(
    follower: Ints,
    previous: Ints,
    idle_since_ns: Ints,
    stream: Ints,
    launch: Ids,
    launches: Launches,
    syncs: dict[int, tuple[Ints, Ints]],
) -> Ids:
    """DESIGN's rule: enqueued before the device fell idle, or not; and if not, was the host itself waiting for it."""
    kind = np.full(len(follower), KINDS.index(GapKind.UNEXPLAINED), dtype=np.int32)
    known = launch[follower] >= 0
    if not known.any():
        return kind
    row = launch[follower[known]]
    idle, before = idle_since_ns[known], previous[known]
    # A graph's later nodes were enqueued with its first: its launch call may still be returning while they run.
    same_graph = (before >= 0) & launches.is_graph[row] & (launch[np.maximum(before, 0)] == row)
    enqueued = same_graph | (launches.end_ns[row] <= idle)
    other_stream = (before >= 0) & (stream[np.maximum(before, 0)] != stream[follower[known]])
    waited = _host_waited(row, idle, launches, syncs)
    kind[known] = np.select(
        [enqueued & other_stream, enqueued, waited],
        [KINDS.index(GapKind.DEPENDENCY), KINDS.index(GapKind.QUEUED), KINDS.index(GapKind.SYNCHRONISATION)],
        default=KINDS.index(GapKind.HOST_STARVED),
    )
    return kind


def _host_waited(
    row: Ids, idle_since_ns: Ints, launches: Launches, syncs: dict[int, tuple[Ints, Ints]]
) -> NDArray[np.bool_]:
    """Whether the launching thread came out of a wait for the device after it had fallen idle and before the launch."""
    waited = np.zeros(len(row), dtype=np.bool_)
    for thread, (starts, ends) in syncs.items():
        mine = np.flatnonzero(launches.thread[row] == thread)
        last = np.searchsorted(ends, launches.start_ns[row[mine]], side="right") - 1
        found = last >= 0
        at = np.maximum(last, 0)
        # A wait that began when the device was already idle delayed nothing.
        waited[mine] = found & (ends[at] >= idle_since_ns[mine]) & (starts[at] < idle_since_ns[mine])
    return waited
