"""A trace in, the steps that a run speaks of out.

Steps belong to launches, not to time: a kernel is of the step during whose host range its launch call began,
however late it ran.
"""

from __future__ import annotations

import fnmatch

import numpy as np
from numpy.typing import NDArray

from addrfrac.errors import AddrfracError
from addrfrac.records import RANGE_STEP, RANGE_USER, Ids, Ints, Trace, Window


def find_window(trace: Trace, *, steps: str | None = None, annotation: str | None = None) -> Window:
    """The window of a trace: its profiler steps, or the ranges called `annotation`, cut to `steps` ('a:b').

    Without steps in the trace the whole of it is one step. A lead-in step that our own capture recorded only to fix
    where the timeline begins is left out. Raises AddrfracError where the asked steps are not there.
    """
    rows = _range_rows(trace, annotation)
    if rows.size == 0:
        if steps is not None:
            raise AddrfracError(
                "the trace has no ProfilerStep ranges to choose from; leave --steps out or use --annotation"
            )
        return _whole_trace(trace)
    order = rows[np.argsort(trace.ranges.start_ns[rows], kind="stable")]
    of_kernel = _step_of_kernels(trace, order, tiles=annotation is None)
    chosen = _chosen(len(order), steps, lead_in=annotation is None and _has_lead_in(trace))
    what = f"ranges called {annotation!r}" if annotation else "profiler steps"
    return _cut(trace, order, of_kernel, chosen, what, tiles=annotation is None)


def _has_lead_in(trace: Trace) -> bool:
    ours = trace.source.metadata.get("addrfrac")
    return isinstance(ours, dict) and bool(ours.get("lead_in", False))


def _range_rows(trace: Trace, annotation: str | None) -> Ints:
    ranges = trace.ranges
    if annotation is None:
        rows = np.flatnonzero(ranges.kind == RANGE_STEP)
        return _of_busiest_process(trace, rows)
    names = {i: trace.names[i] for i in np.unique(ranges.name[ranges.kind == RANGE_USER])}
    wanted = [i for i, name in names.items() if name == annotation or fnmatch.fnmatchcase(name, annotation)]
    if not wanted:
        known = ", ".join(sorted(set(names.values()))[:8]) or "none"
        raise AddrfracError(f"no annotation {annotation!r} in the trace; it has: {known}")
    return _of_busiest_process(trace, np.flatnonzero(np.isin(ranges.name, wanted)))


def _of_busiest_process(trace: Trace, rows: Ints) -> Ints:
    """Ranges of the process that has most of them: a file can hold several ranks' hosts."""
    if rows.size == 0:
        return rows
    processes, counts = np.unique(trace.ranges.process[rows], return_counts=True)
    kept: Ints = rows[trace.ranges.process[rows] == processes[np.argmax(counts)]]
    return kept


def _whole_trace(trace: Trace) -> Window:
    kernels = trace.kernels
    return Window(
        step=np.zeros(len(kernels), dtype=np.int32),
        names=("whole trace",),
        start_ns=kernels.start_ns.min(initial=np.iinfo(np.int64).max, keepdims=True),
        end_ns=kernels.end_ns.max(initial=0, keepdims=True),
        how="the whole trace as one step: it has no ProfilerStep ranges",
    )


def _step_of_kernels(trace: Trace, order: Ints, *, tiles: bool) -> Ids:
    """For each kernel the position in `order` of the range that launched it, -1 outside."""
    ranges, kernels = trace.ranges, trace.kernels
    starts, ends = ranges.start_ns[order], ranges.end_ns[order]
    if tiles:  # profiler steps follow each other; a call between two belongs to the first
        ends = np.append(np.maximum(starts[1:], ends[:-1]), ends[-1])
    launched = kernels.launch >= 0
    step = np.full(len(kernels), -1, dtype=np.int32)
    call_ns = trace.launches.start_ns[kernels.launch[launched]]
    position = np.searchsorted(starts, call_ns, side="right") - 1
    inside = (position >= 0) & (call_ns <= ends[np.maximum(position, 0)])
    step[launched] = np.where(inside, position, -1)
    if not launched.all():
        _follow_stream_order(trace, step, launched)
    return step


def _follow_stream_order(trace: Trace, step: Ids, launched: NDArray[np.bool_]) -> None:
    """A kernel without launch event is of the step of the kernel before it on its stream: streams keep order."""
    kernels = trace.kernels
    order = np.lexsort((kernels.start_ns, kernels.stream, kernels.device))
    known = launched[order]
    before = np.maximum.accumulate(np.where(known, np.arange(len(order)), -1))
    same = (
        (before >= 0)
        & (kernels.stream[order] == kernels.stream[order[before]])
        & (kernels.device[order] == kernels.device[order[before]])
    )
    missing = ~known & same
    step[order[missing]] = step[order[before[missing]]]


def _chosen(count: int, steps: str | None, *, lead_in: bool) -> range:
    if steps is None:
        return range(1 if lead_in and count > 1 else 0, count)
    try:
        first, _, last = steps.partition(":")
        chosen = (
            range(count)[slice(int(first) if first else None, int(last) if last else None)]
            if ":" in steps
            else range(int(first), int(first) + 1)
        )
    except ValueError:
        raise AddrfracError(f"--steps {steps!r} is not of the form a:b; the trace has steps 0:{count}") from None
    if not len(chosen) or chosen[0] >= count:
        raise AddrfracError(f"--steps {steps} chooses none of the trace's {count} steps; choose within 0:{count}")
    return chosen


def _end_of_work_before(trace: Trace, host_ns: Ints) -> Ints:
    """When all device work launched before each host moment had ended; -1 where there was none."""
    kernels = trace.kernels
    launch_ns = kernels.start_ns.copy()
    launched = kernels.launch >= 0
    launch_ns[launched] = trace.launches.start_ns[kernels.launch[launched]]
    order = np.argsort(launch_ns, kind="stable")
    ended = np.maximum.accumulate(kernels.end_ns[order])
    count = np.searchsorted(launch_ns[order], host_ns, side="left")
    before: Ints = np.where(count > 0, ended[np.maximum(count - 1, 0)], -1)
    return before


def _cut(trace: Trace, order: Ints, of_kernel: Ids, chosen: range, what: str, *, tiles: bool) -> Window:
    """Keep the chosen steps that launched something, and lay out their parts of the device timeline."""
    kernels, ranges = trace.kernels, trace.ranges
    has_work = np.bincount(of_kernel[of_kernel >= 0], minlength=len(order)) > 0
    kept = np.array([s for s in chosen if has_work[s]], dtype=np.int64)
    if not kept.size:
        raise AddrfracError(f"the chosen {what} launched no device work; choose other steps")
    position = np.full(len(order), -1, dtype=np.int32)
    position[kept] = np.arange(len(kept), dtype=np.int32)
    step = np.where(of_kernel >= 0, position[np.maximum(of_kernel, 0)], -1).astype(np.int32)

    mine = step >= 0
    first = np.full(len(kept), np.iinfo(np.int64).max)
    ends = np.zeros(len(kept), dtype=np.int64)
    np.minimum.at(first, step[mine], kernels.start_ns[mine])
    np.maximum.at(ends, step[mine], kernels.end_ns[mine])
    asked_ns = ranges.start_ns[order[kept]]
    before = _end_of_work_before(trace, asked_ns)
    starts = np.where(before >= 0, before, first)
    if not tiles:  # ranges with other work between them begin no earlier than they were asked for
        starts = np.maximum(starts, np.minimum(first, asked_ns))
    ends = np.maximum(ends, starts)
    if tiles:
        ends = np.maximum.accumulate(ends)
        starts[1:] = np.where(np.diff(kept) == 1, ends[:-1], np.maximum(starts[1:], ends[:-1]))
    left_out = len(order) - len(kept)
    names = tuple(trace.names[ranges.name[order[s]]] for s in kept)
    how = f"{len(kept)} of {len(order)} {what}" + (f" ({left_out} left out)" if left_out else "")
    return Window(step=step, names=names, start_ns=starts, end_ns=ends, how=how)
