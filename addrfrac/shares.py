"""A trace with its labels and window in; what held the device under each policy, and the addressable share, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from addrfrac import stats
from addrfrac.gaps import Gaps, find_gaps
from addrfrac.records import Bound, Ids, Ints, Labels, PolicyShare, Range, Trace, Wall, Window
from addrfrac.timeline import Occupancy, occupancy, serialise_streams

BOUNDS = tuple(Bound)
NOTED_SHARE = 0.005
"""Other work in the gaps is worth a note above this share of the span."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTimeline:
    """The window's kernels of one device, streams made serial, sorted by start."""

    row: Ints
    """Row in `Trace.kernels`."""
    start_ns: Ints
    end_ns: Ints
    device_ns: Ints
    """Duration as recorded."""
    step: Ids
    label: Ids
    gaps: Gaps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Who held the timeline under one policy."""

    by_bound: Occupancy
    """Groups are BOUNDS."""
    replaceable_alone_ns: Ints
    """(steps,): replaceable kernels ran and nothing else."""
    replaceable_touched_ns: Ints
    """(steps,): at least one replaceable or unknown kernel ran."""

    @property
    def busy_ns(self) -> Ints:
        """(steps,): anything ran."""
        return self.by_bound.busy_ns


def device_timeline(trace: Trace, labels: Labels, window: Window) -> tuple[DeviceTimeline, tuple[str, ...]]:
    """The timeline of the window's busiest device, and in words what of the window is not on it."""
    kernels = trace.kernels
    rows, notes = _rows_of_one_device(trace, window)
    start, end = serialise_streams(kernels.start_ns[rows], kernels.end_ns[rows], kernels.stream[rows])
    order = np.lexsort((end, start))
    rows, start, end = rows[order], start[order], end[order]
    stream, launch = kernels.stream[rows], kernels.launch[rows]
    timeline = DeviceTimeline(
        row=rows,
        start_ns=start,
        end_ns=end,
        device_ns=kernels.end_ns[rows] - kernels.start_ns[rows],
        step=window.step[rows],
        label=labels.of_kernel[rows],
        gaps=find_gaps(start, end, stream, launch, trace.launches, window.start_ns, window.end_ns),
    )
    return timeline, (*notes, *_other_work(trace, timeline, window))


def _rows_of_one_device(trace: Trace, window: Window) -> tuple[Ints, tuple[str, ...]]:
    """A union over devices would call one busy while another idles."""
    kernels = trace.kernels
    rows = np.flatnonzero(window.step >= 0)
    devices, counts = np.unique(kernels.device[rows], return_counts=True)
    if len(devices) < 2:
        return rows, ()
    held = [int((kernels.end_ns - kernels.start_ns)[rows][kernels.device[rows] == d].sum()) for d in devices]
    most = devices[int(np.argmax(held))]
    others = ", ".join(f"{d} ({c} launches)" for d, c in zip(devices, counts, strict=True) if d != most)
    return (
        rows[kernels.device[rows] == most],
        (f"accounts are of device {most}, the busiest; left out: device {others}",),
    )


def _other_work(trace: Trace, timeline: DeviceTimeline, window: Window) -> tuple[str, ...]:
    """Work of no step can run where the steps' own left a gap: then the gap is not idle, and a reader must know."""
    kernels = trace.kernels
    device = kernels.device[timeline.row[0]] if len(timeline.row) else -1
    others = np.flatnonzero((window.step < 0) & (kernels.device == device))
    start = np.concatenate([timeline.start_ns, kernels.start_ns[others]])
    end = np.concatenate([timeline.end_ns, kernels.end_ns[others]])
    group = np.concatenate([np.zeros(len(timeline.row)), np.ones(len(others))]).astype(np.int32)
    alone = int(occupancy(start, end, group, 2, window.start_ns, window.end_ns).exclusive_ns[:, 1].sum())
    span = int((window.end_ns - window.start_ns).sum())
    if alone <= NOTED_SHARE * span:
        return ()
    percent = 100 * alone / span
    return (f"{percent:.1f} % of the span is counted as gap but ran device work that belongs to none of the steps",)


def hold(timeline: DeviceTimeline, bounds: Sequence[Bound], window: Window) -> Held:
    """Who held the timeline when each label counts as `bounds` says."""
    group = np.array([BOUNDS.index(b) for b in bounds], dtype=np.int32)[timeline.label]
    by_bound = occupancy(timeline.start_ns, timeline.end_ns, group, len(BOUNDS), window.start_ns, window.end_ns)
    mine = np.isin(group, [BOUNDS.index(Bound.REPLACEABLE), BOUNDS.index(Bound.UNKNOWN)])
    together = np.zeros(int(mine.sum()), dtype=np.int32)
    touched = occupancy(timeline.start_ns[mine], timeline.end_ns[mine], together, 1, window.start_ns, window.end_ns)
    return Held(
        by_bound=by_bound,
        replaceable_alone_ns=by_bound.exclusive_ns[:, BOUNDS.index(Bound.REPLACEABLE)],
        replaceable_touched_ns=touched.union_ns[:, 0],
    )


def share_of_busy(held: Held, steps: Ints | slice = slice(None)) -> Range:
    """[replaceable ran alone, replaceable or unknown ran] / busy over some of the steps; empty where nothing ran."""
    busy = float(held.busy_ns[steps].sum())
    if not busy:
        return Range(low=None, high=None)
    return Range(
        low=float(held.replaceable_alone_ns[steps].sum()) / busy,
        high=float(held.replaceable_touched_ns[steps].sum()) / busy,
    )


def policy_share(held: Held, wall: Wall | None) -> PolicyShare:
    """The addressable fraction of the window, of its busy time and, where there is a wall, of that."""
    alone, touched, busy = held.replaceable_alone_ns, held.replaceable_touched_ns, held.busy_ns
    steps = len(busy)
    of_busy, of_wall = share_of_busy(held), Range(low=None, high=None)
    low_us, high_us = float(alone.sum()) / steps / 1e3, float(touched.sum()) / steps / 1e3
    if wall is not None:
        of_wall = Range(low=min(low_us / wall.step_us, 1.0), high=min(high_us / wall.step_us, 1.0))
    middle = [(a + t) / 2 / b for a, t, b in zip(alone, touched, busy, strict=True) if b]
    union = held.by_bound.union_ns.sum(axis=0) / steps / 1e3
    return PolicyShare(
        share_of_busy=of_busy,
        share_of_wall=of_wall,
        sampling_of_busy=stats.sampling_range(middle),
        replaceable_us=Range(low=low_us, high=high_us),
        library_us=float(union[BOUNDS.index(Bound.LIBRARY)]),
        system_us=float(union[BOUNDS.index(Bound.SYSTEM)]),
        unknown_us=float(union[BOUNDS.index(Bound.UNKNOWN)]),
        speedup_of_busy=Range(low=amdahl(of_busy.low), high=amdahl(of_busy.high)),
        speedup_of_wall=Range(low=amdahl(of_wall.low), high=amdahl(of_wall.high)),
    )


def amdahl(share: float | None) -> float | None:
    """The speed-up if `share` of the time cost nothing; None where no bound follows."""
    return None if share is None or share >= 1.0 else 1.0 / (1.0 - share)
