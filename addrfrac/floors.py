"""A labelled timeline and a device model in; what each kernel must cost at least, and what lies above it, out.

A floor belongs to a call of an op, whatever kernels it launches; they share it in proportion to their time, so
that workspaces and split sums count as headroom of the call. It is an interval. Its low end takes the fewest bytes
and flops, the best fit of any access type (of writing alone only for what only writes), and data that may lie in L2
from there: no honest kernel is below it. Its high end takes the most bytes at the op's own access type, cold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from addrfrac import units
from addrfrac.dataflow import Crossing, Group
from addrfrac.fits import BYTES_PER_US_TO_GB_PER_S, time_us
from addrfrac.records import (
    KIND_MEMCPY,
    KIND_MEMSET,
    AccessFit,
    Bound,
    DeviceModel,
    FloorRow,
    Floors,
    Ints,
    Labels,
    Range,
    Trace,
)
from addrfrac.shares import DeviceTimeline
from addrfrac.work import Facts, Work, work_of

NOTHING = Range(low=None, high=None)
FLOPS_PER_US_TO_TFLOPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a step besides its trace and its device."""

    step_us: float
    """Unprofiled where that was measured."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """A capture's workload-specific facts."""
    parameters: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Numeric switches of the environment."""
    crossing: Crossing | None = None
    """Of the step's data flow, where it was recorded and the policy leaves to libraries what it did there."""


# --- one call -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A device model as floors ask for it."""

    cold: Mapping[str, AccessFit]
    l2: Sequence[AccessFit]
    l2_bytes: float
    peaks: Mapping[str, tuple[float, float]]
    """Matrix dtype -> (upper end, median) of the best size, in TFLOP/s."""

    def least_us(self, moved: float, access: str) -> float:
        """The fewest microseconds for these bytes: best access, upper end of its bandwidth, L2 where it may help."""
        cold = [fit for name, fit in self.cold.items() if _applies(name, access)]
        l2 = [fit for fit in self.l2 if _applies(fit.access, access)]
        least = min(_least(fit, moved) for fit in cold)
        if not l2:
            return least
        inside = min(moved, self.l2_bytes)
        rest = (moved - inside) * BYTES_PER_US_TO_GB_PER_S / max(fit.high_gb_per_s for fit in cold)
        return min(least, min(_least(fit, inside) for fit in l2) + rest)

    def own_us(self, moved: float, access: str) -> float:
        """The line of an access type, cold; of streaming where that type was not measured."""
        return time_us(self.cold.get(access) or self.cold["stream"], moved)


def _applies(fitted: str, access: str) -> bool:
    """Writing alone is faster than anything that reads too."""
    return fitted != "write" or access == "write"


def _least(fit: AccessFit, moved: float) -> float:
    return fit.t0_us + moved * BYTES_PER_US_TO_GB_PER_S / fit.high_gb_per_s


def reach(model: DeviceModel) -> Reach | None:
    """None where the model lacks the one fit that every floor needs: streaming, cold."""
    cold = {fit.access: fit for fit in model.fits if fit.residency == "cold"}
    if "stream" not in cold:
        return None
    peaks: dict[str, tuple[float, float]] = {}
    for peak in model.peaks:
        upper, middle = peaks.get(peak.dtype, (0.0, 0.0))
        peaks[peak.dtype] = max(upper, peak.high_tflops), max(middle, peak.tflops)
    return Reach(
        cold=cold,
        l2=[fit for fit in model.fits if fit.residency == "l2"],
        l2_bytes=float(model.environment.l2_bytes or 0),
        peaks=peaks,
    )


def floor_of(work: Work, device: Reach) -> Range:
    """Microseconds that this work takes at least: its bytes or its flops, whichever takes longer."""
    low, high = device.least_us(work.low_bytes, work.access), device.own_us(work.high_bytes, work.access)
    if work.high_flops and work.dtype in device.peaks:
        upper, middle = device.peaks[work.dtype]
        low = max(low, work.low_flops * FLOPS_PER_US_TO_TFLOPS / upper)
        high = max(high, work.high_flops * FLOPS_PER_US_TO_TFLOPS / middle)
    return Range(low=min(low, high), high=high)


# --- all calls ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Row:
    """Sums over the launches of one distinct kernel."""

    launches: int = 0
    device_us: float = 0.0
    known_us: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0
    low_bytes: float = 0.0
    high_bytes: float = 0.0
    flops: float = 0.0
    peak_us: float = 0.0
    """Flops / peak of their dtype."""
    access: str = ""
    basis: str = ""
    why_not: str = ""


def floors(
    trace: Trace,
    timeline: DeviceTimeline,
    labels: Labels,
    bounds: Sequence[Bound],
    steps: int,
    model: DeviceModel,
    known: Known,
) -> Floors:
    """Floors of every kernel of the window, whoever owns it; `bounds` has one for each label."""
    device = reach(model)
    sums = _sums(trace, timeline, labels, device, known)
    rows = [_row(trace, labels, bounds, key, row, steps) for key, row in sums.items()]
    rows.sort(key=lambda row: (row.headroom_us.low is None, -_middle(row.headroom_us), -row.device_us))
    device_us = sum(row.device_us for row in sums.values()) / steps
    covered_us = sum(row.known_us for row in sums.values()) / steps
    bandwidth = device.cold["stream"].gb_per_s if device is not None else None
    return Floors(
        device_model=model,
        rows=tuple(rows),
        covered_share=covered_us / device_us if device_us else 0.0,
        standalone_us=_whole(rows, lambda row: row.bound is Bound.REPLACEABLE),
        fused_us=_fused(rows, known.crossing, device),
        absorbed_us=_absorbed(rows, known.crossing, device),
        step_floor_us=_whole(rows, lambda row: True),
        bandwidth_utilisation=_bandwidth_utilisation(rows, known.step_us, bandwidth),
        flops_utilisation=_flops_utilisation(sums.values(), steps, known.step_us),
        notes=tuple(_notes(trace, model, device, known.crossing)),
    )


def _middle(interval: Range) -> float:
    return ((interval.low or 0.0) + (interval.high or 0.0)) / 2


def _sums(
    trace: Trace, timeline: DeviceTimeline, labels: Labels, device: Reach | None, known: Known
) -> dict[tuple[int, int], _Row]:
    """(name, label) -> sums, from a walk over the calls."""
    kernels = trace.kernels
    facts = _facts(known)
    sums: dict[tuple[int, int], _Row] = defaultdict(_Row)
    known_works: dict[tuple[Any, ...], tuple[Work | str, Range]] = {}
    for members in _calls(trace, timeline):
        rows = timeline.row[members]
        names = kernels.name[rows].tolist()
        took = (timeline.device_ns[members] / 1e3).tolist()
        first = int(rows[0])
        label = labels.table[int(timeline.label[members[0]])]
        signature = (label.launching_op, int(kernels.inputs[first]), tuple(names), int(kernels.bytes[first]))
        if signature not in known_works:
            work = _work(trace, first, label.launching_op, names, facts)
            floor = NOTHING if isinstance(work, str) or device is None else floor_of(work, device)
            known_works[signature] = work, floor
        work, floor = known_works[signature]
        whole = sum(took)
        for name, place, us in zip(names, members.tolist(), took, strict=True):
            _add(
                sums[name, int(timeline.label[place])],
                us,
                us / whole if whole else 1.0 / len(names),
                work,
                floor,
                device,
            )
    return dict(sums)


def _calls(trace: Trace, timeline: DeviceTimeline) -> Iterator[Ints]:
    """Places in the timeline of the kernels of each call, in order of launch; what no op launched stands alone."""
    kernels = trace.kernels
    call = kernels.op_call[timeline.row].astype(np.int64)
    launch = kernels.launch[timeline.row].astype(np.int64)
    if len(trace.launches):
        replay = np.where((launch >= 0) & trace.launches.is_graph[launch], launch + 1, 0)
        call = np.where(call >= 0, call * (len(trace.launches) + 1) + replay, call)
    alone = call < 0
    call[alone] = -1 - np.arange(int(alone.sum()))
    order = np.argsort(call, kind="stable")
    if not len(order):
        return
    yield from np.split(order, np.flatnonzero(np.diff(call[order])) + 1)


def _work(trace: Trace, row: int, op: str | None, names: Sequence[int], facts: Facts) -> Work | str:
    """The work of the call that launched a kernel; of a copy or set that no op explains its recorded bytes."""
    kernels = trace.kernels
    texts = tuple(trace.names[name] for name in names)
    inputs = trace.op_inputs[kernels.inputs[row]] if kernels.inputs[row] >= 0 else None
    if any("HtoD" in text or "DtoH" in text for text in texts):
        return "the link to the host was not measured"
    told = work_of(op, inputs, _with_kernels(facts, texts))
    if not isinstance(told, str):
        return told
    moved = int(kernels.bytes[row])
    if moved >= 0 and len(names) == 1 and kernels.kind[row] in (KIND_MEMCPY, KIND_MEMSET):
        times = 2 if kernels.kind[row] == KIND_MEMCPY else 1
        basis = "bytes of the copy, read and written" if times == 2 else "bytes of the set, written"
        return Work(low_bytes=times * moved, high_bytes=times * moved, access="stream", basis=basis)
    return told


def _with_kernels(facts: Facts, texts: tuple[str, ...]) -> Facts:
    return Facts(
        kernels=texts,
        distinct_row_share=facts.distinct_row_share,
        expert_share=facts.expert_share,
        parameters=facts.parameters,
        allows_tf32=facts.allows_tf32,
    )


def _facts(known: Known) -> Facts:
    """What the capture says that bears on bytes and flops."""
    rows, distinct = known.extra.get("row_bytes_per_step"), known.extra.get("distinct_row_bytes_per_step")
    tf32 = {known.settings.get("matmul.allow_tf32"), known.settings.get("cudnn.allow_tf32")}
    return Facts(
        distinct_row_share=distinct / rows if rows and distinct else None,
        expert_share=_expert_share(known.extra.get("tokens_per_expert")),
        parameters=known.parameters,
        allows_tf32=tf32 == {"True"} if len(tf32) == 1 and tf32 != {None} else None,
    )


def _expert_share(tokens: Any) -> float | None:
    """Share of the experts that got a token, from a list a layer."""
    if not isinstance(tokens, list) or not tokens or not all(isinstance(layer, list) and layer for layer in tokens):
        return None
    counts = [count for layer in tokens for count in layer]
    return float(sum(count > 0 for count in counts)) / len(counts)


def _add(row: _Row, us: float, share: float, work: Work | str, floor: Range, device: Reach | None) -> None:
    row.launches += 1
    row.device_us += us
    if isinstance(work, str) or floor.low is None or floor.high is None:
        row.why_not = row.why_not or (work if isinstance(work, str) else "the device model has no cold stream fit")
        return
    row.known_us += us
    row.low_us += share * floor.low
    row.high_us += share * floor.high
    row.low_bytes += share * work.low_bytes
    row.high_bytes += share * work.high_bytes
    row.flops += share * work.low_flops
    if device is not None and work.dtype in device.peaks:
        row.peak_us += share * work.low_flops * FLOPS_PER_US_TO_TFLOPS / device.peaks[work.dtype][1]
    row.access, row.basis = row.access or work.access, row.basis or work.basis


def _row(
    trace: Trace, labels: Labels, bounds: Sequence[Bound], key: tuple[int, int], row: _Row, steps: int
) -> FloorRow:
    name, at = key
    label = labels.table[at]
    covered = row.known_us > 0 or (row.basis != "" and not row.why_not)
    unknown_us = row.device_us - row.known_us if row.why_not else 0.0
    floor = Range(low=row.low_us / steps, high=(row.high_us + unknown_us) / steps) if covered else NOTHING
    basis = row.basis if covered else row.why_not
    if covered and row.why_not:
        basis += f"; {units.percent(unknown_us / row.device_us)} of its time has no floor: {row.why_not}"
    device_us = row.device_us / steps
    return FloorRow(
        name=trace.names[name],
        op=label.op,
        provider=label.provider,
        bound=bounds[at],
        launching_op=label.launching_op,
        launches=row.launches / steps,
        device_us=device_us,
        bytes=Range(low=row.low_bytes / steps, high=row.high_bytes / steps) if covered else NOTHING,
        flops=row.flops / steps if covered and row.flops else None,
        access=row.access,
        floor_us=floor,
        headroom_us=_headroom(device_us, floor),
        basis=basis,
    )


def _headroom(device_us: float, floor: Range) -> Range:
    if floor.low is None or floor.high is None:
        return NOTHING
    return Range(low=max(0.0, device_us - floor.high), high=max(0.0, device_us - floor.low))


# --- the step -----------------------------------------------------------------------------------------------


def _whole(rows: Sequence[FloorRow], at_its_floor: Callable[[FloorRow], bool]) -> Range:
    """The sum over kernels, those chosen at their floor and the others at the time they take.

    A floor above the time a kernel took (its data lay in L2) counts as that time; one that is not known lies between
    nothing and that time.
    """
    low = high = 0.0
    for row in rows:
        if not at_its_floor(row):
            low, high = low + row.device_us, high + row.device_us
        elif row.floor_us.low is None or row.floor_us.high is None:
            high += row.device_us
        else:
            low, high = low + min(row.floor_us.low, row.device_us), high + min(row.floor_us.high, row.device_us)
    return Range(low=low, high=high)


def _fused(rows: Sequence[FloorRow], crossing: Crossing | None, device: Reach | None) -> Range:
    """Library calls at the time they take, and one kernel a group of replaceable ops."""
    if crossing is None or device is None:
        return NOTHING
    groups = _groups(crossing.fused, device)
    others = _others_us(rows)
    return Range(low=others + (groups.low or 0.0), high=others + (groups.high or 0.0))


def _absorbed(rows: Sequence[FloorRow], crossing: Crossing | None, device: Reach | None) -> Range:
    """The same with what library calls take in: its bytes at the bandwidth, without a launch."""
    if crossing is None or device is None:
        return NOTHING
    groups, stream = _groups(crossing.rest, device), device.cold["stream"]
    fastest = max(fit.high_gb_per_s for fit in (*device.cold.values(), *device.l2))
    others = _others_us(rows)
    inside_low = crossing.absorbed_low_bytes * BYTES_PER_US_TO_GB_PER_S / fastest
    inside_high = crossing.absorbed_high_bytes * BYTES_PER_US_TO_GB_PER_S / stream.gb_per_s
    return Range(low=others + inside_low + (groups.low or 0.0), high=others + inside_high + (groups.high or 0.0))


def _groups(groups: Sequence[Group], device: Reach) -> Range:
    moving = [group for group in groups if group.high_bytes]
    return Range(
        low=sum(device.least_us(group.low_bytes, "stream") for group in moving),
        high=sum(device.own_us(group.high_bytes, "stream") for group in moving),
    )


def _others_us(rows: Sequence[FloorRow]) -> float:
    return sum(row.device_us for row in rows if row.bound is not Bound.REPLACEABLE)


def _bandwidth_utilisation(rows: Sequence[FloorRow], step_us: float, gb_per_s: float | None) -> Range:
    given = [row.bytes for row in rows if row.bytes.low is not None]
    if not gb_per_s or not step_us or not given:
        return NOTHING
    could_move = step_us * gb_per_s / BYTES_PER_US_TO_GB_PER_S
    return Range(
        low=sum(each.low or 0.0 for each in given) / could_move,
        high=sum(each.high or 0.0 for each in given) / could_move,
    )


def _flops_utilisation(sums: Iterable[_Row], steps: int, step_us: float) -> float | None:
    """Time that the flops take at the peaks of their dtypes / step time; None without products."""
    at_peak = sum(row.peak_us for row in sums) / steps
    return at_peak / step_us if at_peak and step_us else None


def _notes(trace: Trace, model: DeviceModel, device: Reach | None, crossing: Crossing | None) -> Iterator[str]:
    if device is None:
        yield "the device model has no cold stream fit, so there are no floors"
    ran_on = trace.source.device_names
    if ran_on and model.environment.device not in ran_on:
        yield f"floors are of a {model.environment.device}, the trace of a {ran_on[0]}"
    yield "floors of rows are of single op calls: bytes that a larger kernel would keep on the chip are counted"
    if crossing is not None:
        yield (
            f"fused and absorbed: {crossing.ops} ops of an eager step, {crossing.library_ops} of them library calls, "
            f"in {len(crossing.fused)} groups between those"
        )
