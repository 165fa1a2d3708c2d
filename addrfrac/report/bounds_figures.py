"""Ladder, ceilings and floors in, plotly figures out; the style is that of `figures`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from addrfrac import units
from addrfrac.records import AccessFit, Bound, Ceiling, CeilingRow, DeviceModel, FloorRow, Floors, Range, Run, Rung
from addrfrac.report import ceilings, headroom, ladders
from addrfrac.report.figures import (
    BOUND_COLOURS,
    GAP,
    GAP_LINE,
    INK,
    MUTED,
    PAPER,
    blank,
    safe_text,
    transparent,
)
from addrfrac.report.names import clipped, clipped_middle, one_line, short_kernel

if TYPE_CHECKING:
    import plotly.graph_objects as go

KEPT, MEASURED, OF_BUSY, OF_WALL = "#2e8f7d", "#c2541e", "#2f6db5", "#8a5fb5"
ROW = 30
"""Pixels of a bar with its label."""


def ladder(run: Run) -> go.Figure:
    """Step time down the ladder: base, every measured rung in the order tried, best-library anew; 95 % intervals."""
    assert run.ladder is not None
    rungs = ladders.measured(run.ladder)
    # A ladder that begins with its base as a rung needs no bar of it from the arms.
    has_base = bool(rungs) and rungs[0].gain is None and not rungs[0].switches
    rows = [None if has_base else _base_bar(run), *map(_rung_bar, rungs), _best_bar(run)]
    bars = [bar for bar in rows if bar is not None]
    figure = blank(height=110 + ROW * len(bars))
    for name, kept in (("kept", True), ("tried, not kept", False)):
        members = [bar for bar in bars if bar["kept"] is kept]
        if members:
            _time_bars(figure, members, name, KEPT if kept else GAP)
    free = ceilings.row_of_all(ceilings.last_word(run))
    if free is not None and free.reduced_us is not None:
        _free_line(figure, free.reduced_us)
    figure.update_layout(bargap=0.3, showlegend=True, uniformtext={"minsize": 10, "mode": "show"})
    _rows_in_order(figure, [bar["label"] for bar in bars])
    longest = max(bar["high"] for bar in bars) / 1e3 if bars else 1.0
    figure.update_xaxes(title_text="ms a step", range=[0, longest * 1.15])
    return figure


def _base_bar(run: Run) -> dict[str, Any] | None:
    assert run.ladder is not None
    times = ladders.arm(run.ladder, ladders.EAGER)
    return (
        None if times is None else _bar("eager, as it stands", times.median_us, times.low_us, times.high_us, True, "")
    )


def _best_bar(run: Run) -> dict[str, Any] | None:
    assert run.ladder is not None
    times = ladders.arm(run.ladder, ladders.BEST)
    if times is None:
        return None
    return _bar("best-library, measured anew", times.median_us, times.low_us, times.high_us, True, "")


def _rung_bar(rung: Rung) -> dict[str, Any]:
    times, gain = rung.times, rung.gain
    assert times is not None
    factor = "" if gain is None else f", {units.speedup_range(gain.low, gain.high)} against the best so far"
    label = f"{clipped(one_line(rung.name), 34)} ({one_line(rung.launch)})"
    hover = f"{factor}<br>{safe_text(clipped(one_line(rung.reason), 90))}"
    return _bar(label, times.median_us, times.low_us, times.high_us, rung.kept, hover)


def _bar(label: str, us: float, low: float, high: float, kept: bool, hover: str) -> dict[str, Any]:
    return {"label": safe_text(label), "us": us, "low": low, "high": high, "kept": kept, "hover": hover}


def _time_bars(figure: go.Figure, bars: Sequence[dict[str, Any]], name: str, colour: str) -> None:
    figure.add_bar(
        y=[bar["label"] for bar in bars],
        x=[bar["us"] / 1e3 for bar in bars],
        orientation="h",
        name=name,
        width=0.62,
        text=[f"  {units.microseconds(bar['us'])}" for bar in bars],
        textposition="outside",
        textfont={"color": INK},
        cliponaxis=False,
        marker={"color": colour, "line": {"color": GAP_LINE if colour == GAP else colour, "width": 1}},
        error_x=_errors(bars),
        customdata=[
            f"{units.microseconds(bar['us'])} (95 % {units.microseconds_range(bar['low'], bar['high'])}){bar['hover']}"
            for bar in bars
        ],
        hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
    )


def _errors(bars: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [(bar["high"] - bar["us"]) / 1e3 for bar in bars],
        "arrayminus": [(bar["us"] - bar["low"]) / 1e3 for bar in bars],
        "color": INK,
        "thickness": 1.5,
        "width": 4,
    }


def _free_line(figure: go.Figure, us: float) -> None:
    figure.add_vline(x=us / 1e3, line={"color": MEASURED, "width": 1.6, "dash": "dash"})
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="lines",
        name=f"best-library, were every replaceable kernel free: {units.microseconds(us)} (measured)",
        line={"color": MEASURED, "width": 1.6, "dash": "dash"},
    )


def ceiling(record: Ceiling) -> go.Figure:
    """Speed-up of each row: measured with its interval, beside Amdahl of busy and of wall."""
    rows = [row for row in record.rows if row.kind != "complement"]
    labels = _distinct([clipped_middle(ceilings.label(row), 44) for row in rows])
    figure = blank(height=120 + ROW * len(rows))
    kinds = (
        ("Amdahl of busy", OF_BUSY, "diamond-open", [row.amdahl_of_busy for row in rows]),
        ("Amdahl of wall", OF_WALL, "square-open", [row.amdahl_of_wall for row in rows]),
        ("measured", MEASURED, "circle", [_gain_interval(row) for row in rows]),
    )
    for name, colour, symbol, intervals in kinds:
        _interval_marks(figure, labels, intervals, name, colour, symbol)
    _rows_in_order(figure, labels)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="step time before / after, with these kernels free", ticksuffix="x")
    figure.update_yaxes(showgrid=True)
    return figure


def _gain_interval(row: CeilingRow) -> Range:
    return Range(low=None, high=None) if row.gain is None else Range(low=row.gain.low, high=row.gain.high)


def _interval_marks(
    figure: go.Figure, labels: Sequence[str], intervals: Sequence[Range], name: str, colour: str, symbol: str
) -> None:
    """A mark at the middle of each interval with its ends as whiskers; nothing where it is open or absent."""
    known = [
        (label, each.low, each.high)
        for label, each in zip(labels, intervals, strict=True)
        if each.low is not None and each.high is not None
    ]
    if not known:
        return
    middles = [(low + high) / 2 for _, low, high in known]
    figure.add_scatter(
        x=middles,
        y=[label for label, _, _ in known],
        mode="markers",
        name=name,
        marker={"color": colour, "symbol": symbol, "size": 10, "line": {"color": colour, "width": 2}},
        error_x={
            "type": "data",
            "array": [high - middle for (_, _, high), middle in zip(known, middles, strict=True)],
            "color": colour,
            "thickness": 2,
            "width": 4,
        },
        customdata=[units.speedup_range(low, high) for _, low, high in known],
        hovertemplate=f"<b>%{{y}}</b><br>{name}: %{{customdata}}<extra></extra>",
    )


def headrooms(floors: Floors) -> go.Figure:
    """Device time of the kernels with most headroom: floor, what is uncertain of it, headroom; coloured by owner."""
    rows = [row for row in floors.rows[: headroom.TOP] if row.floor_us.low is not None]
    labels = _distinct([clipped_middle(short_kernel(row.name), 44) for row in rows])
    figure = blank(height=110 + ROW * len(rows))
    for bound in Bound:
        members = [(label, row) for label, row in zip(labels, rows, strict=True) if row.bound is bound]
        if members:
            _floor_bars(figure, members, BOUND_COLOURS[bound], str(bound))
    _rows_in_order(figure, labels)
    figure.update_layout(barmode="stack", bargap=0.3, showlegend=True)
    figure.update_xaxes(
        title_text="device time, µs a step: solid up to the floor, hatched where the floor is not sure, pale above it",
        rangemode="tozero",
    )
    return figure


def _distinct(labels: Sequence[str]) -> list[str]:
    """Names cut short can coincide; a number keeps their bars apart."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(safe_text(label if seen[label] == 1 else f"{label} #{seen[label]}"))
    return found


def _floor_bars(figure: go.Figure, members: Sequence[tuple[str, FloorRow]], colour: str, bound: str) -> None:
    lows = [min(row.floor_us.low or 0.0, row.device_us) for _, row in members]
    highs = [min(row.floor_us.high or 0.0, row.device_us) for _, row in members]
    above = [row.device_us - high for high, (_, row) in zip(highs, members, strict=True)]
    between = [high - low for low, high in zip(lows, highs, strict=True)]
    pieces = (
        (bound, lows, {"color": colour}),
        ("", between, {"color": transparent(colour), "pattern": {"shape": "/", "size": 5}}),
        ("", above, {"color": transparent(colour)}),
    )
    hovers = [
        f"{units.microseconds(row.device_us)} a step; floor {headroom.interval(row.floor_us)}, "
        f"headroom {headroom.interval(row.headroom_us)}<br>{safe_text(clipped(one_line(row.basis), 100))}"
        for _, row in members
    ]
    for name, lengths, marker in pieces:
        if any(length > 0 for length in lengths):
            figure.add_bar(
                y=[label for label, _ in members],
                x=lengths,
                orientation="h",
                name=name or bound,
                showlegend=bool(name),
                marker={**marker, "line": {"color": colour, "width": 1}},
                customdata=hovers,
                hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
            )


def can_draw_roofline(floors: Floors) -> bool:
    return bool(_points(floors)) and bool(floors.device_model.peaks or _streams(floors.device_model))


def undrawn(floors: Floors) -> int:
    """Kernels that the roofline leaves out: no flops, or no bytes."""
    return len(floors.rows) - len(_points(floors))


def roofline(floors: Floors) -> go.Figure:
    """Each kernel's achieved rate over its arithmetic intensity, under the rates that this card reached."""
    points = _points(floors)
    figure = blank(height=430)
    intensities = [intensity for intensity, _, _ in points]
    left, right = min([*intensities, 1.0]) / 3, max([*intensities, 400.0]) * 3
    for fit in _streams(floors.device_model):
        _memory_roof(figure, fit, floors.device_model, left, right)
    for number, peak in enumerate(floors.device_model.peaks):
        name = f"{one_line(peak.dtype)} matrix peak"
        _roof(figure, [left, right], [peak.tflops] * 2, name, "dash")
        # Side by side: peaks of different types can lie on one line.
        _name_of_roof(figure, left * 4.5**number, peak.tflops, name, "top right")
    for bound in Bound:
        members = [point for point in points if point[2].bound is bound]
        if members:
            _kernels(figure, members, str(bound), BOUND_COLOURS[bound])
    figure.update_layout(showlegend=True, hovermode="closest")
    figure.update_xaxes(type="log", title_text="flops a byte that must move", **_powers(left, right))
    rates = [rate for _, rate, _ in points]
    top = max([*rates, *(peak.tflops for peak in floors.device_model.peaks)])
    figure.update_yaxes(type="log", title_text="TFLOP/s achieved", **_powers(min(rates) / 2, top * 1.5))
    return figure


def _points(floors: Floors) -> list[tuple[float, float, FloorRow]]:
    """(flops a byte, TFLOP/s, row); where bytes are an interval, at its middle."""
    return [
        (row.flops / ((row.bytes.low + row.bytes.high) / 2), row.flops / row.device_us / 1e6, row)
        for row in floors.rows
        if row.flops and row.device_us > 0 and row.bytes.low and row.bytes.high
    ]


def _streams(model: DeviceModel) -> list[AccessFit]:
    return [fit for fit in model.fits if fit.access == "stream"]


def _memory_roof(figure: go.Figure, fit: AccessFit, model: DeviceModel, left: float, right: float) -> None:
    """Bandwidth times intensity, up to the highest matrix peak."""
    top = max((peak.tflops for peak in model.peaks), default=float("inf"))
    end = min(right, top * 1e3 / fit.gb_per_s)
    where = "L2" if fit.residency == "l2" else "memory"
    ends = [left, max(left, end)]
    name = f"{where}, {units.significant(fit.gb_per_s)} GB/s"
    _roof(figure, ends, [x * fit.gb_per_s / 1e3 for x in ends], name, "dot" if where == "L2" else "solid")
    # On the slope, each line's name on its own side of it.
    middle = (ends[0] * ends[1]) ** 0.5
    _name_of_roof(figure, middle, middle * fit.gb_per_s / 1e3, name, "top left" if where == "L2" else "bottom right")


def _roof(figure: go.Figure, x: Sequence[float], y: Sequence[float], name: str, dash: str) -> None:
    figure.add_scatter(
        x=list(x),
        y=list(y),
        mode="lines",
        name=safe_text(name),
        line={"color": MUTED, "width": 1.5, "dash": dash},
        showlegend=False,
        hovertemplate=f"{safe_text(name)}: %{{y:.3g}} TFLOP/s<extra></extra>",
    )


def _name_of_roof(figure: go.Figure, x: float, y: float, name: str, position: str) -> None:
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="text",
        text=[safe_text(name)],
        textposition=position,
        textfont={"color": MUTED, "size": 11},
        showlegend=False,
        hoverinfo="skip",
    )


def _kernels(figure: go.Figure, members: Sequence[tuple[float, float, FloorRow]], name: str, colour: str) -> None:
    longest = max(row.device_us for _, _, row in members)
    figure.add_scatter(
        x=[x for x, _, _ in members],
        y=[y for _, y, _ in members],
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "size": [7 + 17 * (row.device_us / longest) ** 0.5 for _, _, row in members],
            "opacity": 0.8,
            "line": {"color": PAPER, "width": 1},
        },
        customdata=[
            f"<b>{safe_text(clipped_middle(short_kernel(row.name), 60))}</b><br>"
            f"{units.microseconds(row.device_us)} a step, "
            f"{units.significant(y)} TFLOP/s at {units.significant(x)} flops a byte, "
            f"floor {headroom.interval(row.floor_us)}"
            for x, y, row in members
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _powers(low: float, high: float) -> dict[str, Any]:
    """Range and ticks of a logarithmic axis: whole powers of ten only."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [10.0**power for power in range(first, last + 1)]
    return {
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" if 1e-4 <= tick < 1e6 else f"1e{power}" for power, tick in enumerate(ticks, first)],
        "range": [math.log10(low), math.log10(high)],
    }


def _rows_in_order(figure: go.Figure, labels: Sequence[str]) -> None:
    figure.update_yaxes(
        categoryorder="array", categoryarray=list(labels)[::-1], showgrid=False, tickfont={"color": INK}
    )
