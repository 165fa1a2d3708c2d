"""Idle device time in, why nothing ran out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import GapKind, Ids, Ints, Launches

KINDS = tuple(GapKind)
EVER = np.iinfo(np.int64)
LONGEST_DISPATCH_NS = 50_000
"""An enqueued kernel that starts later than this waited for something: of 42,500 queued gaps in traces from V100 to
B200 and MI300 all but three took at most 16 us and those at most 35, while 223 of one trace took up to 65 ms."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Every stretch of the windows in which nothing ran, in order of time."""

    length_ns: Ints
    step: Ids
    kind: Ids
    """Index into KINDS."""
    follower: Ids
    """Position of the kernel that ends the idle time, be it in a later window; -1 after the last."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Idle:
    """Stretches in which nothing ran, before the first kernel and after the last too; disjoint and sorted."""

    start_ns: Ints
    end_ns: Ints
    previous: Ints
    """Position of the kernel that ended last before; -1 before the first."""
    follower: Ints
    """Position of the kernel that ends it; -1 after the last."""


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
    idle = _idle(start_ns, end_ns)
    # Stretches are disjoint and sorted, so those that reach into a window lie in a row.
    first = np.searchsorted(idle.end_ns, window_start, side="right")
    count = np.maximum(np.searchsorted(idle.start_ns, window_end, side="left") - first, 0)
    step = np.repeat(np.arange(len(window_start)), count)
    row = np.arange(len(step)) + np.repeat(first - (np.cumsum(count) - count), count)
    since = np.maximum(idle.start_ns[row], window_start[step])
    length = np.minimum(idle.end_ns[row], window_end[step]) - since
    kept = length > 0
    row, since = row[kept], since[kept]
    return Gaps(
        length_ns=length[kept],
        step=step[kept].astype(np.int32),
        kind=_kinds(idle.follower[row], idle.previous[row], since, length[kept], stream, launch, launches),
        follower=idle.follower[row].astype(np.int32),
    )


def _idle(start_ns: Ints, end_ns: Ints) -> _Idle:
    if not len(start_ns):
        nothing = np.array([-1], dtype=np.int64)
        return _Idle(start_ns=np.array([EVER.min]), end_ns=np.array([EVER.max]), previous=nothing, follower=nothing)
    reached = np.maximum.accumulate(end_ns)
    follower = np.flatnonzero(np.append(True, start_ns[1:] > reached[:-1]))
    last_to_end = _argmax_so_far(end_ns, reached)
    return _Idle(
        start_ns=np.concatenate([[EVER.min], reached[follower[1:] - 1], reached[-1:]]),
        end_ns=np.append(start_ns[follower], EVER.max),
        previous=np.concatenate([[-1], last_to_end[follower[1:] - 1], last_to_end[-1:]]),
        follower=np.append(follower, -1),
    )


def _argmax_so_far(values: Ints, reached: Ints) -> Ints:
    """For each position that of the largest value up to it; `reached` is the running maximum."""
    where: Ints = np.maximum.accumulate(np.where(values >= reached, np.arange(len(values)), 0))
    return where


def _kinds(
    follower: Ints,
    previous: Ints,
    idle_since_ns: Ints,
    length_ns: Ints,
    stream: Ints,
    launch: Ids,
    launches: Launches,
) -> Ids:
    """DESIGN's rule: enqueued before the device fell idle, or not; and if not, was the host itself waiting for it."""
    kind = np.full(len(follower), KINDS.index(GapKind.UNEXPLAINED), dtype=np.int32)
    # No kernel follows, yet the window goes on: another device still works on the step.
    kind[follower < 0] = KINDS.index(GapKind.DEPENDENCY)
    known = np.flatnonzero(follower >= 0)
    known = known[launch[follower[known]] >= 0]
    if not len(known):
        return kind
    row = launch[follower[known]]
    idle, before = idle_since_ns[known], previous[known]
    # A graph's later nodes were enqueued with its first: its launch call may still be returning while they run.
    same_graph = (before >= 0) & launches.is_graph[row] & (launch[np.maximum(before, 0)] == row)
    enqueued = same_graph | (launches.end_ns[row] <= idle)
    other_stream = (before >= 0) & (stream[np.maximum(before, 0)] != stream[follower[known]])
    late = length_ns[known] > LONGEST_DISPATCH_NS
    waited = _host_waited(row, idle, launches)
    kind[known] = np.select(
        [enqueued & (other_stream | late), enqueued, waited],
        [KINDS.index(GapKind.DEPENDENCY), KINDS.index(GapKind.QUEUED), KINDS.index(GapKind.SYNCHRONISATION)],
        default=KINDS.index(GapKind.HOST_STARVED),
    )
    return kind


def _host_waited(row: Ids, idle_since_ns: Ints, launches: Launches) -> NDArray[np.bool_]:
    """Whether the launching thread came out of a wait for the device after it had fallen idle and before the launch."""
    waited = np.zeros(len(row), dtype=np.bool_)
    for (process, thread), (starts, ends) in _waits(launches).items():
        mine = np.flatnonzero((launches.thread[row] == thread) & (launches.process[row] == process))
        # The wait during which the device fell idle; one that began later delayed nothing.
        first = np.searchsorted(ends, idle_since_ns[mine], side="left")
        at = np.minimum(first, len(ends) - 1)
        waited[mine] = (
            (first < len(ends)) & (starts[at] < idle_since_ns[mine]) & (ends[at] <= launches.start_ns[row[mine]])
        )
    return waited


def _waits(launches: Launches) -> dict[tuple[int, int], tuple[Ints, Ints]]:
    """For each (process, thread) the (start, end) of its waits for the device, sorted by end."""
    waits = np.flatnonzero(launches.is_sync)
    waits = waits[np.argsort(launches.end_ns[waits], kind="stable")]
    threads = sorted(set(zip(launches.process[waits].tolist(), launches.thread[waits].tolist(), strict=True)))
    of_thread = {}
    for process, thread in threads:
        rows = waits[(launches.thread[waits] == thread) & (launches.process[waits] == process)]
        of_thread[process, thread] = (launches.start_ns[rows], launches.end_ns[rows])
    return of_thread
