"""A trace with its labels and window in, the closed accounts, the addressable share and one row a kernel out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac import stats
from addrfrac.classify import bound
from addrfrac.gaps import KINDS, Gaps, find_gaps
from addrfrac.records import (
    Accounts,
    Addressable,
    Bound,
    ClassTime,
    GapKind,
    GapTime,
    Ids,
    Ints,
    KernelRow,
    Label,
    Labels,
    Policy,
    PolicyShare,
    Range,
    StepAccount,
    Trace,
    Wall,
    Window,
)
from addrfrac.timeline import Occupancy, occupancy, serialise_streams

HOST_BOUND_SHARE = 0.10
"""A step is called host-bound when the device idled for want of launches for more than this share of it."""
MOST_STEPS_KEPT = 200
"""Per-step samples of single kernels are kept up to this many steps; `run.json` stays readable."""

BOUNDS = tuple(Bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What the timeline says, before any projection."""

    accounts: Accounts
    addressable: Addressable
    kernels: tuple[KernelRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Timeline:
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
class _Held:
    """Who held the timeline under one policy."""

    by_bound: Occupancy
    """Groups are BOUNDS."""
    replaceable_alone_ns: Ints
    """(steps,): replaceable kernels ran and nothing else."""
    replaceable_touched_ns: Ints
    """(steps,): at least one replaceable or unknown kernel ran."""


def attribute(
    trace: Trace,
    labels: Labels,
    window: Window,
    policies: Mapping[str, Policy],
    policy: str,
    wall: Wall | None = None,
) -> Attribution:
    """Account for the window's steps under `policy`, with the addressable share under every policy beside it."""
    timeline, notes = _timeline(trace, labels, window)
    bounds = {name: [bound(one, label) for label in labels.table] for name, one in policies.items()}
    held = {name: _hold(timeline, bounds[name], window) for name in policies}
    shares = {name: _policy_share(held[name], wall) for name in policies}
    accounts = _accounts(trace, timeline, labels, bounds[policy], held[policy], window, wall)
    headline = shares[policy]
    return Attribution(
        accounts=accounts,
        addressable=Addressable(
            policy=policy,
            share_of_busy=headline.share_of_busy,
            share_of_wall=headline.share_of_wall,
            by_policy=shares,
        ),
        kernels=_kernel_rows(trace, timeline, labels, bounds, policy, window, int(held[policy].by_bound.busy_ns.sum())),
        notes=notes,
    )


def _timeline(trace: Trace, labels: Labels, window: Window) -> tuple[_Timeline, tuple[str, ...]]:
    kernels = trace.kernels
    rows = np.flatnonzero(window.step >= 0)
    devices, counts = np.unique(kernels.device[rows], return_counts=True)
    notes: tuple[str, ...] = ()
    if len(devices) > 1:  # a union over devices would call one busy while another idles
        held = [int((kernels.end_ns - kernels.start_ns)[rows][kernels.device[rows] == d].sum()) for d in devices]
        most = devices[int(np.argmax(held))]
        others = ", ".join(f"{d} ({c} launches)" for d, c in zip(devices, counts, strict=True) if d != most)
        notes = (f"accounts are of device {most}, the busiest; left out: device {others}",)
        rows = rows[kernels.device[rows] == most]
    start, end = serialise_streams(kernels.start_ns[rows], kernels.end_ns[rows], kernels.stream[rows])
    order = np.lexsort((end, start))
    rows, start, end = rows[order], start[order], end[order]
    return (
        _Timeline(
            row=rows,
            start_ns=start,
            end_ns=end,
            device_ns=kernels.end_ns[rows] - kernels.start_ns[rows],
            step=window.step[rows],
            label=labels.of_kernel[rows],
            gaps=find_gaps(
                start, end, kernels.stream[rows], kernels.launch[rows], trace.launches, window.start_ns, window.end_ns
            ),
        ),
        notes,
    )


def _hold(timeline: _Timeline, bounds: list[Bound], window: Window) -> _Held:
    of_label = np.array([BOUNDS.index(b) for b in bounds], dtype=np.int32)
    group = of_label[timeline.label]
    by_bound = occupancy(timeline.start_ns, timeline.end_ns, group, len(BOUNDS), window.start_ns, window.end_ns)
    mine = np.isin(group, [BOUNDS.index(Bound.REPLACEABLE), BOUNDS.index(Bound.UNKNOWN)])
    together = np.zeros(int(mine.sum()), dtype=np.int32)
    touched = occupancy(timeline.start_ns[mine], timeline.end_ns[mine], together, 1, window.start_ns, window.end_ns)
    return _Held(
        by_bound=by_bound,
        replaceable_alone_ns=by_bound.exclusive_ns[:, BOUNDS.index(Bound.REPLACEABLE)],
        replaceable_touched_ns=touched.union_ns[:, 0],
    )


def _policy_share(held: _Held, wall: Wall | None) -> PolicyShare:
    alone, touched = held.replaceable_alone_ns, held.replaceable_touched_ns
    busy = held.by_bound.busy_ns
    steps = len(busy)
    low, high = _ratio(alone.sum(), busy.sum()), _ratio(touched.sum(), busy.sum())
    us = Range(low=alone.sum() / steps / 1e3, high=touched.sum() / steps / 1e3)
    of_wall = Range(low=None, high=None)
    if wall is not None and us.low is not None and us.high is not None:
        of_wall = Range(low=min(us.low / wall.step_us, 1.0), high=min(us.high / wall.step_us, 1.0))
    middle = [(a + t) / 2 / b for a, t, b in zip(alone, touched, busy, strict=True) if b]
    union = held.by_bound.union_ns.sum(axis=0) / steps / 1e3
    return PolicyShare(
        share_of_busy=Range(low=low, high=high),
        share_of_wall=of_wall,
        sampling_of_busy=stats.sampling_range(middle),
        replaceable_us=us,
        library_us=float(union[BOUNDS.index(Bound.LIBRARY)]),
        system_us=float(union[BOUNDS.index(Bound.SYSTEM)]),
        unknown_us=float(union[BOUNDS.index(Bound.UNKNOWN)]),
        speedup_of_busy=Range(low=amdahl(low), high=amdahl(high)),
        speedup_of_wall=Range(low=amdahl(of_wall.low), high=amdahl(of_wall.high)),
    )


def amdahl(share: float | None) -> float | None:
    """The speed-up if `share` of the time cost nothing; None where no bound follows."""
    return None if share is None or share >= 1.0 else 1.0 / (1.0 - share)


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def _accounts(
    trace: Trace,
    timeline: _Timeline,
    labels: Labels,
    bounds: list[Bound],
    held: _Held,
    window: Window,
    wall: Wall | None,
) -> Accounts:
    keys, of_label = _classes(labels, bounds)
    group = of_label[timeline.label]
    by_class = occupancy(timeline.start_ns, timeline.end_ns, group, len(keys), window.start_ns, window.end_ns)
    steps = window.steps
    span = window.end_ns - window.start_ns
    gap = _per_step(timeline.gaps.length_ns, timeline.gaps.step, steps)
    residual = span - (by_class.exclusive_ns.sum(axis=1) + by_class.overlap_ns + gap)
    alone, touched = held.replaceable_alone_ns, held.replaceable_touched_ns
    launches = np.bincount(timeline.step, minlength=steps)
    gaps_us = _gaps_by_step(timeline.gaps, steps)
    gaps = _gap_times(timeline.gaps, gaps_us)
    span_us, busy_us = float(span.sum()) / steps / 1e3, float(by_class.busy_ns.sum()) / steps / 1e3
    host_bound, evidence = _host_bound(gaps, span_us, busy_us, wall)
    return Accounts(
        span_us=span_us,
        busy_us=busy_us,
        exclusive_us=float(by_class.exclusive_ns.sum()) / steps / 1e3,
        overlap_us=float(by_class.overlap_ns.sum()) / steps / 1e3,
        residual_us=float(residual.sum()) / steps / 1e3,
        classes=_class_times(keys, group, timeline, by_class, steps),
        gaps=gaps,
        steps=tuple(
            StepAccount(
                name=window.names[k],
                span_us=float(span[k]) / 1e3,
                busy_us=float(by_class.busy_ns[k]) / 1e3,
                gap_us=float(gap[k]) / 1e3,
                gaps_us={gap.kind: float(gaps_us[k, KINDS.index(gap.kind)]) for gap in gaps},
                overlap_us=float(by_class.overlap_ns[k]) / 1e3,
                residual_us=float(residual[k]) / 1e3,
                replaceable_exclusive_us=float(alone[k]) / 1e3,
                replaceable_union_us=float(touched[k]) / 1e3,
                launches=int(launches[k]),
            )
            for k in range(steps)
        ),
        launches=float(launches.sum()) / steps,
        host_calls=len(np.unique(trace.kernels.launch[timeline.row][trace.kernels.launch[timeline.row] >= 0])) / steps,
        distortion=span_us / wall.step_us if wall is not None else None,
        host_bound=host_bound,
        host_bound_evidence=evidence,
    )


def _classes(labels: Labels, bounds: list[Bound]) -> tuple[list[tuple[Label, Bound]], Ids]:
    """Distinct (op, provider, phase, bound), each with one label as its example, and each label's class."""
    index: dict[tuple[str, ...], int] = {}
    keys: list[tuple[Label, Bound]] = []
    of_label = np.zeros(len(labels.table), dtype=np.int32)
    for i, (label, one) in enumerate(zip(labels.table, bounds, strict=True)):
        key = (label.op, label.provider, label.phase, one)
        if key not in index:
            index[key] = len(keys)
            keys.append((label, one))
        of_label[i] = index[key]
    return keys, of_label


def _class_times(
    keys: list[tuple[Label, Bound]], group: Ids, timeline: _Timeline, by_class: Occupancy, steps: int
) -> tuple[ClassTime, ...]:
    count = np.bincount(group, minlength=len(keys))
    device = np.bincount(group, weights=timeline.device_ns, minlength=len(keys))
    exclusive, union = by_class.exclusive_ns.sum(axis=0), by_class.union_ns.sum(axis=0)
    even = by_class.even_ns.sum(axis=0)
    rows = [
        ClassTime(
            op=label.op,
            provider=label.provider,
            bound=one,
            phase=label.phase,
            launches=float(count[g]) / steps,
            device_us=float(device[g]) / steps / 1e3,
            exclusive_us=float(exclusive[g]) / steps / 1e3,
            union_us=float(union[g]) / steps / 1e3,
            even_us=float(even[g]) / steps / 1e3,
        )
        for g, (label, one) in enumerate(keys)
        if count[g]
    ]
    return tuple(sorted(rows, key=lambda row: -row.device_us))


def _per_step(values: Ints, step: Ids | Ints, steps: int) -> Ints:
    total = np.zeros(steps, dtype=np.int64)
    np.add.at(total, step, values)
    return total


def _gaps_by_step(gaps: Gaps, steps: int) -> NDArray[np.float64]:
    """(steps, KINDS) microseconds."""
    at = gaps.step.astype(np.int64) * len(KINDS) + gaps.kind
    return (_per_step(gaps.length_ns, at, steps * len(KINDS)) / 1e3).reshape(steps, len(KINDS))


def _gap_times(gaps: Gaps, gaps_us: NDArray[np.float64]) -> tuple[GapTime, ...]:
    us = gaps_us.mean(axis=0)
    count = np.bincount(gaps.kind, minlength=len(KINDS)) / len(gaps_us)
    return tuple(GapTime(kind=kind, us=float(us[i]), count=float(count[i])) for i, kind in enumerate(KINDS) if count[i])


def _host_bound(
    gaps: tuple[GapTime, ...], span_us: float, busy_us: float, wall: Wall | None
) -> tuple[bool | None, str]:
    """Whether the device idled for want of launches, judged on the unprofiled wall where there is one.

    The profiler slows the host, so the profiled gaps alone would call too many steps host-bound.
    """
    if not span_us:
        return None, "nothing ran"
    of = {gap.kind: gap.us for gap in gaps}
    starved = of.get(GapKind.HOST_STARVED, 0.0) + of.get(GapKind.SYNCHRONISATION, 0.0)
    profiled = f"profiled: {starved / span_us:.0%} of the span waits for the host"
    if wall is None:
        if of.get(GapKind.UNEXPLAINED, 0.0) > HOST_BOUND_SHARE * span_us:
            return None, "the trace holds no launch events for the kernels after most gaps"
        return starved > HOST_BOUND_SHARE * span_us, f"{profiled} (no unprofiled wall: the profiler slows the host)"
    device_paced = busy_us + of.get(GapKind.QUEUED, 0.0) + of.get(GapKind.DEPENDENCY, 0.0)
    idle = wall.step_us - device_paced
    text = f"unprofiled step {wall.step_us:.0f} us, of which the device had work for {device_paced:.0f} us; {profiled}"
    if idle < 0:
        text += f"; the two clocks differ by {-idle:.0f} us the other way"
    if wall.graph is not None:
        text += f"; as a CUDA graph {wall.graph.median_us:.0f} us"
    return idle > HOST_BOUND_SHARE * wall.step_us, text


def _kernel_rows(
    trace: Trace,
    timeline: _Timeline,
    labels: Labels,
    bounds: dict[str, list[Bound]],
    policy: str,
    window: Window,
    busy_ns: int,
) -> tuple[KernelRow, ...]:
    """One row for each distinct (name, label) of the window."""
    kernels, steps = trace.kernels, window.steps
    key = kernels.name[timeline.row].astype(np.int64) * len(labels.table) + timeline.label
    keys, of_row = np.unique(key, return_inverse=True)
    count = np.bincount(of_row, minlength=len(keys))
    by_step = np.zeros(len(keys) * steps, dtype=np.int64)
    np.add.at(by_step, of_row * steps + timeline.step, timeline.device_ns)
    device = by_step.reshape(len(keys), steps)
    median = _median_by_group(timeline.device_ns, of_row, count)
    queued = _queued_before(timeline.gaps, of_row, len(keys))
    inputs = _common_inputs(kernels.inputs[timeline.row], of_row, len(keys))
    rows = []
    for i, one in enumerate(keys):
        name, at = divmod(int(one), len(labels.table))
        label = labels.table[at]
        total_us = float(device[i].sum()) / steps / 1e3
        rows.append(
            KernelRow(
                name=trace.names[name],
                op=label.op,
                provider=label.provider,
                role=label.role,
                phase=label.phase,
                incumbent=label.incumbent,
                bound=bounds[policy][at],
                bounds={each: of[at] for each, of in bounds.items()},
                op_rule=label.op_rule,
                provider_rule=label.provider_rule,
                certainty=label.certainty,
                launching_op=label.launching_op,
                op_stack=label.op_stack,
                fused_ops=label.fused_ops,
                evidence=label.evidence,
                launches=float(count[i]) / steps,
                device_us=total_us,
                median_launch_us=float(median[i]) / 1e3,
                share_of_busy=total_us * 1e3 * steps / busy_ns if busy_ns else 0.0,
                queued_gap_us=float(queued[i]) / steps / 1e3,
                device_us_by_step=tuple((device[i] / 1e3).tolist()) if steps <= MOST_STEPS_KEPT else (),
                inputs=trace.op_inputs[inputs[i]].dims if inputs[i] >= 0 else "",
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.device_us))


def _median_by_group(values: Ints, group: Ints, count: Ints) -> NDArray[np.float64]:
    order = np.lexsort((values, group))
    ordered = values[order]
    first = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    return np.asarray((ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2, dtype=np.float64)


def _queued_before(gaps: Gaps, of_row: Ints, keys: int) -> NDArray[np.float64]:
    queued = (gaps.kind == KINDS.index(GapKind.QUEUED)) & (gaps.follower >= 0)
    weights = gaps.length_ns[queued]
    return np.bincount(of_row[gaps.follower[queued]], weights=weights, minlength=keys).astype(np.float64)


def _common_inputs(inputs: Ids, of_row: Ints, keys: int) -> Ids:
    """The inputs that all launches of a row share, else -1."""
    low = np.full(keys, np.iinfo(np.int32).max, dtype=np.int32)
    high = np.full(keys, -1, dtype=np.int32)
    np.minimum.at(low, of_row, inputs)
    np.maximum.at(high, of_row, inputs)
    return np.where(low == high, high, -1).astype(np.int32)
