"""Floors of a step in, their tables and sentences as plain text out; every format draws the same ones."""

from __future__ import annotations

from addrfrac import units
from addrfrac.records import Bound, DeviceModel, FloorRow, Floors, Range, Run
from addrfrac.report import facts
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped_middle, one_line, short_kernel

TOP = 10
NARROW = ("kernel", "owner", ">time", ">floor", ">headroom")
WIDE = (
    "kernel",
    "computes",
    "owner",
    "bound",
    ">launches",
    ">time a step",
    ">floor",
    ">headroom",
    ">bytes",
    ">flops",
    "basis",
)


def listing(floors: Floors, *, narrow: bool, limit: int | None = TOP) -> Listing:
    """Kernels by headroom, whoever owns them; the names are cut to the width there is."""
    shown = floors.rows[:limit]
    rows = tuple(_narrow(row) if narrow else _wide(row) for row in shown)
    left_out = len(floors.rows) - len(shown)
    notes = (f"{units.plural(left_out, 'more kernel')} with less headroom or no floor",) if left_out else ()
    return Listing(
        title=f"Headroom above the floor, a step: the {len(rows)} largest, whoever owns the kernel",
        columns=NARROW if narrow else WIDE,
        rows=rows,
        notes=notes,
    )


def _narrow(row: FloorRow) -> tuple[str, ...]:
    return (
        clipped_middle(short_kernel(row.name), 27),
        clipped_middle(one_line(row.provider), 10),
        units.microseconds(row.device_us),
        interval(row.floor_us),
        interval(row.headroom_us),
    )


def _wide(row: FloorRow) -> tuple[str, ...]:
    return (
        clipped_middle(short_kernel(row.name), 70),
        row.op,
        one_line(row.provider),
        row.bound,
        units.count(row.launches),
        units.microseconds(row.device_us),
        interval(row.floor_us),
        interval(row.headroom_us),
        _bytes(row.bytes),
        units.quantity(row.flops, "flop", units.DASH),
        one_line(row.basis),
    )


def interval(times: Range) -> str:
    return units.microseconds_range(times.low, times.high, units.DASH)


def _bytes(sizes: Range) -> str:
    if sizes.low is None or sizes.high is None:
        return units.DASH
    low, high = units.bytes_(sizes.low), units.bytes_(sizes.high)
    return low if low == high else f"{low}–{high}"


def floor_lines(floors: Floors) -> list[tuple[str, str]]:
    """The floors of the whole step, as name and text; what is not known is left out."""
    pairs = [
        ("whole step", floors.step_floor_us, "every op at its floor, one after the other"),
        ("standalone", floors.standalone_us, "replaceable ops at their floors, library calls as they are"),
        ("fused", floors.fused_us, "replaceable ops moving only what must cross between library calls"),
        ("absorbed", floors.absorbed_us, "replaceable work inside the library calls"),
    ]
    return [(word, f"{interval(times)}, {about}") for word, times, about in pairs if times.low is not None]


def utilisation_line(floors: Floors) -> str:
    """What the step makes of the card's memory and matrix units; '' where neither is known."""
    parts = []
    if floors.bandwidth_utilisation.low is not None:
        parts.append(f"{facts.range_percent(floors.bandwidth_utilisation)} of the card's copy bandwidth")
    if floors.flops_utilisation is not None:
        parts.append(f"{units.percent(floors.flops_utilisation)} of its matrix peak")
    return ", ".join(parts)


COVERED = 0.9
"""Share of device time that must have a floor before a floor of the whole step says anything."""


def covering(floors: Floors | None) -> Floors | None:
    """The floors where they cover the step; None where most of it has none (replayed graphs whose ops nobody saw)."""
    return floors if floors is not None and floors.covered_share >= COVERED else None


def utilisation(floors: Floors | None, missing: str = units.DASH) -> str:
    """The larger of the two utilisations, for a column."""
    if floors is None:
        return missing
    bandwidth, flops = floors.bandwidth_utilisation, floors.flops_utilisation
    if flops is not None and flops >= (bandwidth.high or 0.0):
        return f"{units.percent(flops)} flops"
    return f"{facts.range_percent(bandwidth)} bytes" if bandwidth.low is not None else missing


def words(run: Run, floors: Floors) -> list[str]:
    """What it means for someone who decides where kernel work pays."""
    said = []
    used = utilisation_line(floors)
    low, high = floors.step_floor_us.low, floors.step_floor_us.high
    step_us = facts.wall_us(run)
    if low and high and step_us:
        times = units.speedup_range(step_us / high, step_us / low)
        said.append(
            f"With every op at its floor this step would take {units.microseconds_range(low, high)}; it takes "
            f"{units.microseconds(step_us)}, {times} as long."
        )
    if used:
        said.append(f"The step as it runs uses {used}.")
    total = _sum(floors, None)
    if total[1] > 0:
        parts = [f"{bound} {_share(_sum(floors, bound), total)}" for bound in Bound if _sum(floors, bound)[1] > 0]
        said.append(
            f"Above the floors of single kernels lie {units.microseconds_range(*total)} a step, by owner: "
            f"{', '.join(parts)}. What is library is won by a better library call, not by a replacement kernel."
        )
    said.append(f"{units.percent(floors.covered_share)} of device time has a floor; the rest lacks shapes or a model.")
    return said


def _sum(floors: Floors, bound: Bound | None) -> tuple[float, float]:
    rows = [row.headroom_us for row in floors.rows if bound in (None, row.bound)]
    return sum(each.low or 0.0 for each in rows), sum(each.high or 0.0 for each in rows)


def _share(part: tuple[float, float], total: tuple[float, float]) -> str:
    return units.percent(sum(part) / sum(total))


def device_line(model: DeviceModel) -> str:
    """What was measured of the card."""
    fits = [
        f"{fit.access} {fit.residency} {units.significant(fit.gb_per_s)} GB/s + {units.microseconds(fit.t0_us)}"
        for fit in model.fits
    ]
    peaks = [f"{one_line(peak.dtype)} {units.significant(peak.tflops)} TFLOP/s" for peak in model.peaks]
    return "; ".join([*fits, *peaks])
