"""A trace in, the steps that a run speaks of out.

Steps belong to launches, not to time: a kernel is of the step during whose host range its launch call began,
however late it ran.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

import numpy as np

from addrfrac.errors import AddrfracError
from addrfrac.records import RANGE_STEP, RANGE_USER, Ids, Ints, Trace, Window

EVER = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostSteps:
    """Host ranges that stand for steps, sorted by start, none inside another."""

    what: str
    """What they are, in the plural."""
    names: tuple[str, ...]
    start_ns: Ints
    end_ns: Ints
    process: int | None
    """Only launches of this process count; None: all do."""
    owns_work_after: bool
    """Work launched between two ranges belongs to the first."""
    owns_idle_before: bool
    """The device's idle time before a step belongs to it even where the host had not begun it yet."""

    def __len__(self) -> int:
        return len(self.names)


def find_window(trace: Trace, *, steps: str | None = None, annotation: str | None = None) -> Window:
    """The window of a trace: its profiler steps, or the ranges called `annotation`, cut to `steps` ('a:b').

    Without steps in the trace the whole of it is one step. A lead-in step that our own capture recorded only to fix
    where the timeline begins is left out, and `steps` does not count it. Raises AddrfracError where the asked steps are
    not there.
    """
    if not len(trace.kernels):
        raise AddrfracError("the trace holds no device work; record it with ProfilerActivity.CUDA around running steps")
    if annotation is not None:
        return window_of(trace, _annotated(trace, annotation), steps=steps)
    found = _profiler_steps(trace)
    if not len(found) or not (trace.kernels.launch >= 0).any():
        why = "ProfilerStep ranges" if not len(found) else "launch events to tell steps by"
        if steps is not None:
            raise AddrfracError(f"the trace has no {why}, so --steps has nothing to choose from; leave it out")
        return _whole_trace(trace, f"the whole trace as one step: it has no {why}")
    return window_of(trace, found, steps=steps, lead_in=_has_lead_in(trace))


def window_of(trace: Trace, found: HostSteps, *, steps: str | None = None, lead_in: bool = False) -> Window:
    """The window of the given host ranges, cut to `steps` ('a:b').

    Raises AddrfracError where `steps` chooses none, or where the chosen launched nothing.
    """
    chosen = _chosen(len(found), steps, lead_in=lead_in)
    return _cut(trace, found, chosen)


def _has_lead_in(trace: Trace) -> bool:
    ours = trace.source.metadata.get("addrfrac")
    return isinstance(ours, dict) and bool(ours.get("lead_in", False))


def _whole_trace(trace: Trace, how: str) -> Window:
    kernels = trace.kernels
    return Window(
        step=np.zeros(len(kernels), dtype=np.int32),
        names=("whole trace",),
        start_ns=kernels.start_ns.min(keepdims=True),
        end_ns=kernels.end_ns.max(keepdims=True),
        how=how,
    )


# --- ranges -------------------------------------------------------------------------------------------------


def _profiler_steps(trace: Trace) -> HostSteps:
    rows = np.flatnonzero(trace.ranges.kind == RANGE_STEP)
    return host_steps(trace, rows, "profiler steps", owns_work_after=True, owns_idle_before=True)


def _annotated(trace: Trace, annotation: str) -> HostSteps:
    ranges = trace.ranges
    names = {int(i): trace.names[i] for i in np.unique(ranges.name[ranges.kind == RANGE_USER])}
    wanted = [i for i, name in names.items() if name == annotation or fnmatch.fnmatchcase(name, annotation)]
    if not wanted:
        raise AddrfracError(f"no annotation {annotation!r} in the trace; {known_annotations(trace)}")
    rows = np.flatnonzero((ranges.kind == RANGE_USER) & np.isin(ranges.name, wanted))
    what = f"ranges called {annotation!r}"
    return host_steps(trace, rows, what, owns_work_after=False, owns_idle_before=False)


def known_annotations(trace: Trace) -> str:
    """What to choose from instead, for an error's last words."""
    rows = trace.ranges.kind == RANGE_USER
    known = sorted({trace.names[i] for i in np.unique(trace.ranges.name[rows])})
    shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    return f"it has: {shown}" if known else "it has none: wrap your steps in torch.profiler.record_function"


def host_steps(trace: Trace, rows: Ints, what: str, *, owns_work_after: bool, owns_idle_before: bool) -> HostSteps:
    """Rows of `Trace.ranges` as steps: those of the process that has most, and of nested ones the outermost."""
    ranges = trace.ranges
    process: int | None = None
    if rows.size:
        processes, counts = np.unique(ranges.process[rows], return_counts=True)
        process = int(processes[np.argmax(counts)])  # a file can hold several ranks' hosts
        rows = rows[ranges.process[rows] == process]
        rows = rows[np.lexsort((-ranges.end_ns[rows], ranges.start_ns[rows]))]
        reached = np.maximum.accumulate(ranges.end_ns[rows])
        rows = rows[np.append(True, ranges.end_ns[rows[1:]] > reached[:-1])]
        if not (trace.launches.process == process).any():
            process = None
    return HostSteps(
        what=what,
        names=tuple(trace.names[i] for i in ranges.name[rows]),
        start_ns=ranges.start_ns[rows],
        end_ns=ranges.end_ns[rows],
        process=process,
        owns_work_after=owns_work_after,
        owns_idle_before=owns_idle_before,
    )


def _chosen(count: int, steps: str | None, *, lead_in: bool) -> range:
    """Positions of the asked steps, counted after the lead-in."""
    there = range(1 if lead_in and count > 1 else 0, count)
    if steps is None:
        return there
    first, colon, last = steps.partition(":")
    try:
        low, high = int(first) if first else None, int(last) if last else None
        chosen = there[low:high] if colon else there[slice(int(first), int(first) + 1 or None)]
    except ValueError:
        raise AddrfracError(f"--steps {steps!r} is not of the form a:b; the trace has steps 0:{len(there)}") from None
    if not len(chosen):
        raise AddrfracError(f"--steps {steps} chooses none of the trace's steps; choose within 0:{len(there)}")
    return chosen


# --- kernels to steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launched:
    """When and by whom each kernel was launched, as far as the trace tells."""

    at_ns: Ints
    """Start of the launch call; where the trace lacks it, see `launched`."""
    row: Ids
    """Row of `Trace.launches`; -1 where unknown."""


def launched(trace: Trace) -> Launched:
    """The launch of each kernel, and a stand-in where its event was not recorded.

    Streams keep order, so a kernel without launch event counts as launched with the one before it on its stream. The
    first kernels of a stream have none before them: those that began before the first recorded call were launched
    while the recorder missed the calls, by the time they began; the others had been enqueued before the recording.
    """
    kernels, launches = trace.kernels, trace.launches
    row = _followed(trace)
    first_call = launches.start_ns[0] if len(launches) else EVER.max
    without = np.where(kernels.start_ns < first_call, kernels.start_ns, EVER.min)
    at = np.where(row >= 0, launches.start_ns[row], without) if len(launches) else without
    return Launched(at_ns=at, row=row)


def _followed(trace: Trace) -> Ids:
    """For each kernel its launch, or that of the last one with a launch before it on its stream; -1 where none is."""
    kernels = trace.kernels
    row = kernels.launch.copy()
    if (row >= 0).all():
        return row
    order = np.lexsort((kernels.start_ns, kernels.stream, kernels.device))
    known = row[order] >= 0
    before = np.maximum.accumulate(np.where(known, np.arange(len(order)), -1))
    same = (
        (before >= 0)
        & (kernels.stream[order] == kernels.stream[order[before]])
        & (kernels.device[order] == kernels.device[order[before]])
    )
    missing = ~known & same
    row[order[missing]] = row[order[before[missing]]]
    return row


def _step_of_kernels(trace: Trace, calls: Launched, found: HostSteps) -> Ids:
    """For each kernel the position of the range that launched it, -1 outside."""
    ends = found.end_ns
    if found.owns_work_after:
        ends = np.append(np.maximum(found.start_ns[1:], ends[:-1]), ends[-1] if found.owns_idle_before else EVER.max)
    position = np.searchsorted(found.start_ns, calls.at_ns, side="right") - 1
    inside = (position >= 0) & (calls.at_ns <= ends[np.maximum(position, 0)])
    if found.process is not None:
        inside &= (calls.row < 0) | (trace.launches.process[calls.row] == found.process)
    return np.where(inside, position, -1).astype(np.int32)


# --- the timeline of the steps ------------------------------------------------------------------------------


def _cut(trace: Trace, found: HostSteps, chosen: range) -> Window:
    """Keep the chosen steps that launched something, and lay out their parts of the device timeline."""
    kernels, calls = trace.kernels, launched(trace)
    of_kernel = _step_of_kernels(trace, calls, found)
    has_work = np.bincount(of_kernel[of_kernel >= 0], minlength=len(found)) > 0
    kept = np.array([s for s in chosen if has_work[s]], dtype=np.int64)
    if not kept.size:
        raise AddrfracError(f"the chosen {found.what} launched no device work; choose other steps")
    position = np.full(len(found), -1, dtype=np.int32)
    position[kept] = np.arange(len(kept), dtype=np.int32)
    step = np.where(of_kernel >= 0, position[np.maximum(of_kernel, 0)], -1).astype(np.int32)

    mine = step >= 0
    first = np.full(len(kept), EVER.max)
    ends = np.zeros(len(kept), dtype=np.int64)
    np.minimum.at(first, step[mine], kernels.start_ns[mine])
    np.maximum.at(ends, step[mine], kernels.end_ns[mine])
    before = _end_of_work_before(trace, calls, found.start_ns[kept])
    starts = np.where(before >= 0, before, first)
    # Where no step stands directly before, a step begins no earlier than the host began it.
    alone = (kept == 0) | (not found.owns_idle_before)
    starts = np.where(alone, np.maximum(starts, np.minimum(first, found.start_ns[kept])), starts)
    ends = np.maximum.accumulate(np.maximum(ends, starts))
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    if found.owns_idle_before:
        starts[1:] = np.where(np.diff(kept) == 1, ends[:-1], starts[1:])
    left_out = len(found) - len(kept)
    return Window(
        step=step,
        names=tuple(found.names[s] for s in kept),
        start_ns=starts,
        end_ns=ends,
        how=f"{len(kept)} of {len(found)} {found.what}" + (f" ({left_out} left out)" if left_out else ""),
    )


def _end_of_work_before(trace: Trace, calls: Launched, host_ns: Ints) -> Ints:
    """When all device work launched before each host moment had ended; -1 where there was none."""
    order = np.argsort(calls.at_ns, kind="stable")
    ended = np.maximum.accumulate(trace.kernels.end_ns[order])
    count = np.searchsorted(calls.at_ns[order], host_ns, side="left")
    before: Ints = np.where(count > 0, ended[np.maximum(count - 1, 0)], -1)
    return before
