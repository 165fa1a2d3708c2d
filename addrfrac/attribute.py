"""A trace with its labels and window in, the closed accounts, the addressable share and one row a kernel out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac import units
from addrfrac.classify import bound
from addrfrac.gaps import KINDS, Gaps
from addrfrac.kernel_rows import kernel_rows
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
    StepAccount,
    Trace,
    Wall,
    Window,
)
from addrfrac.shares import DeviceTimeline, Held, device_timeline, hold, policy_share
from addrfrac.timeline import Occupancy, occupancy

HOST_BOUND_SHARE = 0.10
"""A step is called host-bound when the device idled for want of launches for more than this share of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """What the timeline says, before any projection."""

    accounts: Accounts
    addressable: Addressable
    kernels: tuple[KernelRow, ...]
    timeline: DeviceTimeline
    held: Mapping[str, Held]
    """Who held the timeline under each policy, step by step."""
    notes: tuple[str, ...]


def attribute(
    trace: Trace,
    labels: Labels,
    window: Window,
    policies: Mapping[str, Policy],
    policy: str,
    wall: Wall | None = None,
) -> Attribution:
    """Account for the window's steps under `policy`, with the addressable share under every policy beside it."""
    timeline, notes = device_timeline(trace, labels, window)
    bounds = {name: [bound(one, label) for label in labels.table] for name, one in policies.items()}
    held = {name: hold(timeline, bounds[name], window) for name in policies}
    shares = {name: policy_share(held[name], wall) for name in policies}
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
        kernels=kernel_rows(trace, timeline, labels, bounds, policy, window, int(held[policy].by_bound.busy_ns.sum())),
        timeline=timeline,
        held=held,
        notes=notes,
    )


def _accounts(
    trace: Trace,
    timeline: DeviceTimeline,
    labels: Labels,
    bounds: Sequence[Bound],
    held: Held,
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


def _classes(labels: Labels, bounds: Sequence[Bound]) -> tuple[list[tuple[Label, Bound]], Ids]:
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
    keys: list[tuple[Label, Bound]], group: Ids, timeline: DeviceTimeline, by_class: Occupancy, steps: int
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
    profiled = f"profiled: {units.percent(starved / span_us)} of the span waits for the host"
    if wall is None:
        if of.get(GapKind.UNEXPLAINED, 0.0) > HOST_BOUND_SHARE * span_us:
            return None, "the trace holds no launch events for the kernels after most gaps"
        return starved > HOST_BOUND_SHARE * span_us, f"{profiled} (no unprofiled wall: the profiler slows the host)"
    device_paced = busy_us + of.get(GapKind.QUEUED, 0.0) + of.get(GapKind.DEPENDENCY, 0.0)
    idle = wall.step_us - device_paced
    step, worked = units.microseconds(wall.step_us), units.microseconds(device_paced)
    text = f"unprofiled step {step}, of which the device had work for {worked}; {profiled}"
    if idle < 0:
        text += f"; the two clocks differ by {units.microseconds(-idle)} the other way"
    if wall.graph is not None:
        text += f"; as a CUDA graph {units.microseconds(wall.graph.median_us)}"
    return idle > HOST_BOUND_SHARE * wall.step_us, text
