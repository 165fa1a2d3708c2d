"""Runs in, plotly figures out; colours are those of the light page, `DARK` holds their partners on the dark one."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from addrfrac import units
from addrfrac.records import Bound, Op, Phase, Range, Run, Times
from addrfrac.report import facts, tables
from addrfrac.report.names import clipped, one_line

if TYPE_CHECKING:
    import plotly.graph_objects as go

INK, MUTED, GRID, PAPER = "#1c2330", "#5b6575", "#dfe3e9", "#ffffff"
GAP, GAP_LINE = "#e4e8ee", "#aab3c0"
DARK = {INK: "#e6e9ef", MUTED: "#9aa5b5", GRID: "#313947", PAPER: "#171b22", GAP: "#262d38", GAP_LINE: "#596375"}
"""Light colour -> dark colour; the page swaps them when the theme changes. Others serve both."""

BOUND_COLOURS = {
    Bound.LIBRARY: "#4a7fc1",
    Bound.SYSTEM: "#8b95a3",
    Bound.UNKNOWN: "#9673c4",
    Bound.REPLACEABLE: "#dd8a2e",
}
OVERLAP_COLOUR = "#3d9c90"
PART_COLOURS = {**{str(bound): colour for bound, colour in BOUND_COLOURS.items()}, tables.OVERLAP: OVERLAP_COLOUR}
"""Of `tables.parts`; what is not here is idle."""
POLICY_COLOURS = ("#c2541e", "#2f6db5", "#2e8f7d", "#8a5fb5", "#7a7f36", "#b8457a", "#3f8fb8", "#8c6239")

# Cool for what the default policy calls a library op, warm for the rest, grey for copies and communication.
OP_COLOURS = {
    Op.GEMM: "#3f6fb0",
    Op.CONV: "#5b93d6",
    Op.ATTENTION: "#3594a8",
    Op.LINEAR_ATTENTION: "#62b0ba",
    Op.LINALG: "#6c7fc4",
    Op.FFT: "#8899d8",
    Op.SPARSE: "#7fa3c9",
    Op.RNN: "#5a84a6",
    Op.NORMALIZATION: "#dd8a2e",
    Op.ELEMENTWISE: "#e5b04a",
    Op.REDUCTION: "#c9653a",
    Op.SOFTMAX: "#d8735f",
    Op.SCAN: "#b9774e",
    Op.COPY_LAYOUT: "#bb9455",
    Op.GATHER_SCATTER: "#d1899c",
    Op.EMBEDDING: "#c4567a",
    Op.POOLING: "#cfa977",
    Op.RESAMPLE: "#a98358",
    Op.OPTIMIZER: "#a85b86",
    Op.LOSS: "#b5523c",
    Op.SORT_TOPK: "#d06f86",
    Op.RNG: "#9c8a4e",
    Op.QUANTIZATION: "#a3953c",
    Op.MOE_ROUTING: "#97a04a",
    Op.ROPE: "#e0994f",
    Op.KV_CACHE: "#c98d7c",
    Op.SAMPLING: "#b86b9c",
    Op.SCHEDULING: "#9a9178",
    Op.MEMCPY: "#8b95a3",
    Op.MEMSET: "#a9b1bc",
    Op.COMMUNICATION: "#717c8c",
    Op.FUSED_UNKNOWN: "#9673c4",
    Op.OTHER: "#b39ad6",
}

LONGEST_AXIS = 10.0
"""A ceiling above this is off the picture; the tables still give it."""


# --- the step -----------------------------------------------------------------------------------------------


def step(run: Run) -> go.Figure:
    """The profiled step as stacked bars: by bound and by class, then the unprofiled wall and the graph replay below."""
    figure = blank(height=150 + 44 * len(_below(run)))
    bar_of_bounds, bar_of_classes = "who could<br>replace it", "what it<br>computes"
    frame = tables.accounts(run)
    for bound in tables.BOUND_ORDER:
        of_bound = frame[(frame["kind"] == "class") & (frame["bound"] == bound)]
        if not of_bound.empty:
            us = float(of_bound["us"].sum())
            _segment(figure, bar_of_bounds, str(bound), us, us / run.accounts.span_us, BOUND_COLOURS[bound])
    for row in frame.to_dict("records"):
        if row["us"] <= 0:
            continue
        bars = (bar_of_classes,) if row["kind"] == "class" else (bar_of_bounds, bar_of_classes)
        for bar in bars:
            _segment(figure, bar, part_name(row), row["us"], row["share_of_span"], *part_colour(row))
    for name, times in _below(run):
        _time_bar(figure, name, times)
    order = [bar_of_bounds, bar_of_classes, *(name for name, _ in _below(run))]
    figure.update_layout(barmode="stack", bargap=0.28, uniformtext={"minsize": 11, "mode": "hide"})
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], showgrid=False, tickfont={"color": INK})
    figure.update_xaxes(title_text="ms a step", rangemode="tozero")
    return figure


def _below(run: Run) -> list[tuple[str, Times]]:
    if run.wall is None:
        return []
    return [("unprofiled<br>wall", run.wall.device or run.wall.host)] + (
        [("as a CUDA<br>graph", run.wall.graph)] if run.wall.graph is not None else []
    )


def part_name(row: dict[Any, Any]) -> str:
    return {"overlap": "two classes at once", "gap": f"gap: {row['part']}"}.get(row["kind"], str(row["part"]))


def part_colour(row: dict[Any, Any]) -> tuple[str, str]:
    """Fill and pattern of one part of the accounts."""
    if row["kind"] == "class":
        return OP_COLOURS[Op(row["part"])], ""
    if row["kind"] == "overlap":
        return OVERLAP_COLOUR, ""
    return GAP, {"host-starved": "/", "queued": "", "synchronisation": "x", "dependency": "\\"}.get(row["part"], ".")


def _segment(
    figure: go.Figure, bar: str, name: str, us: float, share_of_span: float, colour: str, pattern: str = ""
) -> None:
    """One stacked piece; its label shows where it fits."""
    figure.add_bar(
        y=[bar],
        x=[us / 1e3],
        orientation="h",
        name=name,
        text=[name],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": INK if colour == GAP else readable_on(colour)},
        marker={
            "color": colour,
            "line": {"color": PAPER, "width": 1},
            "pattern": {"shape": pattern, "fgcolor": GAP_LINE, "size": 6},
        },
        hovertemplate=f"<b>{name}</b><br>{units.microseconds(us)}, {units.percent(share_of_span)} of span"
        "<extra></extra>",
    )


def _time_bar(figure: go.Figure, name: str, times: Times) -> None:
    plain = name.replace("<br>", " ")
    figure.add_bar(
        y=[name],
        x=[times.median_us / 1e3],
        orientation="h",
        name=plain,
        text=[units.microseconds(times.median_us)],
        textposition="inside",
        insidetextanchor="start",
        textfont={"color": INK},
        marker={"color": PAPER, "line": {"color": MUTED, "width": 1.5}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(times.high_us - times.median_us) / 1e3],
            "arrayminus": [(times.median_us - times.low_us) / 1e3],
            "color": MUTED,
            "thickness": 1.5,
        },
        hovertemplate=f"<b>{plain}</b><br>{units.microseconds(times.median_us)} ({facts.interval(times)})"
        "<extra></extra>",
    )


def phases(run: Run) -> go.Figure:
    """Forward, backward and optimizer as stacked bars by bound."""
    frame = tables.phases(run)
    present = [str(phase) for phase in Phase if str(phase) in set(frame["phase"])]
    figure = blank(height=90 + 42 * len(present))
    for bound in tables.BOUND_ORDER:
        times = {row["phase"]: row["us"] for row in frame[frame["bound"] == bound].to_dict("records")}
        if not times:
            continue
        figure.add_bar(
            y=present,
            x=[times.get(phase, 0.0) / 1e3 for phase in present],
            orientation="h",
            name=str(bound),
            marker={"color": BOUND_COLOURS[bound], "line": {"color": PAPER, "width": 1}},
            customdata=[units.microseconds(times.get(phase, 0.0)) for phase in present],
            hovertemplate=f"<b>{bound}</b>, %{{y}}<br>%{{customdata}}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3, showlegend=True)
    figure.update_yaxes(categoryorder="array", categoryarray=present[::-1], showgrid=False, tickfont={"color": INK})
    figure.update_xaxes(title_text="ms a step, each class while it ran alone", rangemode="tozero")
    return figure


# --- the ceiling --------------------------------------------------------------------------------------------


def amdahl_basis(runs: Sequence[Run]) -> str:
    """'wall' where every run has a share of wall under its policy, else 'busy'."""
    return "wall" if all(run.addressable.share_of_wall.low is not None for run in runs) else "busy"


def amdahl(runs: Sequence[Run]) -> go.Figure:
    """End-to-end speed-up over the addressable fraction, for kernels 1.5x, 2x, 4x faster and for free ones.

    One run is an interval for each of its policies; several are one interval each under the run's own policy.
    """
    basis = amdahl_basis(runs)
    intervals = _intervals(runs, basis)
    highest = max((_bounded(share.high) for _, share in intervals), default=2.0)
    top = min(LONGEST_AXIS, max(2.0, highest * 1.2))
    figure = blank(height=max(380, 44 * (4 + len(intervals))))  # a legend takes at most half of it
    for factor, dash in ((1.5, "dot"), (2.0, "dash"), (4.0, "dashdot"), (None, "solid")):
        _amdahl_curve(figure, factor, dash, top)
    for number, (name, share) in enumerate(intervals):
        _amdahl_interval(figure, name, share, POLICY_COLOURS[number % len(POLICY_COLOURS)], top, basis)
    figure.update_layout(showlegend=True, hovermode="closest")
    figure.update_xaxes(title_text=f"addressable share of {basis}", range=[0, 1], tickformat=".0%")
    figure.update_yaxes(title_text="end-to-end speed-up", range=[1, top], ticksuffix="x")
    return figure


def _intervals(runs: Sequence[Run], basis: str) -> list[tuple[str, Range]]:
    def pick(run: Run, policy: str) -> Range:
        share = run.addressable.by_policy[policy]
        return share.share_of_wall if basis == "wall" else share.share_of_busy

    if len(runs) == 1:
        # Policies that agree share a mark: drawn twice, one would hide the other.
        by_reading: dict[str, list[str]] = {}
        for policy, _ in facts.policies(runs[0]):
            by_reading.setdefault(facts.range_percent(pick(runs[0], policy)), []).append(policy)
        named = [(f"policy {safe_text(', '.join(names))}", pick(runs[0], names[0])) for names in by_reading.values()]
    else:
        named = [
            (safe_text(clipped(label, 60)), pick(run, run.addressable.policy))
            for run, label in zip(runs, facts.labels(runs), strict=True)
            if run.addressable.policy in run.addressable.by_policy
        ]
    return [(name, share) for name, share in named if share.low is not None and share.high is not None]


def _bounded(share: float | None) -> float:
    return LONGEST_AXIS if share is None or share >= 1 - 1 / LONGEST_AXIS else 1 / (1 - share)


def _speedup(share: float, factor: float | None) -> float:
    remaining = 1 - share + (share / factor if factor else 0.0)
    return 1 / remaining if remaining > 0 else float("inf")


def _amdahl_curve(figure: go.Figure, factor: float | None, dash: str, top: float) -> None:
    points = [(number / 100, _speedup(number / 100, factor)) for number in range(101)]
    points = [(share, round(value, 4)) for share, value in points if value <= top * 1.05]
    name = "kernels cost nothing (ceiling)" if factor is None else f"kernels {factor:g}x faster"
    figure.add_scatter(
        x=[share for share, _ in points],
        y=[value for _, value in points],
        mode="lines",
        name=name,
        line={"color": INK if factor is None else MUTED, "width": 2 if factor is None else 1.2, "dash": dash},
        hovertemplate=f"{name}<br>%{{x:.1%}} → %{{y:.2f}}x<extra></extra>",
    )


def _amdahl_interval(figure: go.Figure, name: str, share: Range, colour: str, top: float, basis: str) -> None:
    assert share.low is not None
    assert share.high is not None
    fractions = [share.low + (share.high - share.low) * number / 12 for number in range(13)]
    ceiling = units.speedup_range(_speedup(share.low, None), _speedup(share.high, None))
    reading = f"{facts.range_percent(share)} → {ceiling}"
    figure.add_scatter(
        x=fractions,
        y=[min(top, _speedup(fraction, None)) for fraction in fractions],
        mode="lines+markers",
        name=f"{name}: {reading}",
        line={"color": colour, "width": 7},
        # Markers at both ends only: an interval, not a series of measurements.
        marker={"color": colour, "size": [11, *[0] * 11, 11], "opacity": 1, "line": {"color": PAPER, "width": 1.5}},
        hovertemplate=f"<b>{name}</b><br>{reading} of {basis}, at most<extra></extra>",
    )


# --- steps and samples --------------------------------------------------------------------------------------


def samples(run: Run) -> go.Figure:
    """Unprofiled step times in the order taken, with median and 95 % interval of each clock."""
    figure = blank(height=300)
    assert run.wall is not None
    clocks = (
        ("device events", run.wall.device, "#2f6db5"),
        ("host clock", run.wall.host, "#8b95a3"),
        ("CUDA graph replay", run.wall.graph, "#2e8f7d"),
    )
    for name, times, colour in clocks:
        if times is None:
            continue
        order = list(range(1, len(times.samples_us) + 1))
        figure.add_scatter(
            x=order,
            y=[us / 1e3 for us in times.samples_us],
            mode="markers",
            name=f"{name}: {units.microseconds(times.median_us)}",
            marker={"color": colour, "size": 6, "opacity": 0.85},
            customdata=[units.microseconds(us) for us in times.samples_us],
            hovertemplate=f"{name}, sample %{{x}}<br>%{{customdata}}<extra></extra>",
        )
        figure.add_hline(y=times.median_us / 1e3, line={"color": colour, "width": 1.2})
        figure.add_hrect(
            y0=times.low_us / 1e3, y1=times.high_us / 1e3, fillcolor=colour, opacity=0.15, line={"width": 0}
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="sample, in the order taken")
    figure.update_yaxes(title_text="ms a step", nticks=7)
    return figure


def profiled_steps(run: Run) -> go.Figure:
    """Addressable share of busy, as an interval, in each profiled step."""
    frame = tables.steps(run).dropna(subset=["share_low", "share_high"])
    figure = blank(height=300)
    low, high = frame["share_low"].tolist(), frame["share_high"].tolist()
    padding = max(0.02, 0.5 * (max(high) - min(low)))
    figure.add_bar(
        x=[safe_text(clipped(one_line(name).removeprefix("ProfilerStep"), 20)) for name in frame["step"]],
        y=[max(top - bottom, padding / 20) for bottom, top in zip(low, high, strict=True)],
        base=low,
        name="addressable share of busy",
        marker={"color": BOUND_COLOURS[Bound.REPLACEABLE]},
        customdata=[
            [units.percent_range(bottom, top), units.microseconds(span), units.microseconds(busy)]
            for bottom, top, span, busy in zip(low, high, frame["span_us"], frame["busy_us"], strict=True)
        ],
        hovertemplate="%{x}: %{customdata[0]} of busy<br>span %{customdata[1]}, busy %{customdata[2]}<extra></extra>",
    )
    figure.update_layout(bargap=0.35)
    figure.update_xaxes(type="category", showgrid=False, title_text="profiled step")
    figure.update_yaxes(title_text="share of busy", tickformat=".0%", nticks=6)
    figure.update_yaxes(range=[max(0.0, min(low) - padding), min(1.0, max(high) + padding)])
    return figure


# --- several runs -------------------------------------------------------------------------------------------


def steps_of_all(runs: Sequence[Run]) -> go.Figure:
    """One stacked bar a run: the step by bound, overlap and time without a kernel, as shares of the whole step."""
    of_wall = tables.all_have_walls(runs)
    labels = [safe_text(clipped(label, 34)) for label in facts.labels(runs)]
    figure = blank(height=110 + 40 * len(runs))
    parts = [dict(tables.parts(run, of_wall)) for run in runs]
    wholes = [sum(part.values()) or 1.0 for part in parts]
    for name in parts[0]:
        us = [part[name] for part in parts]
        if not any(us):
            continue
        shares = [value / whole for value, whole in zip(us, wholes, strict=True)]
        figure.add_bar(
            y=labels,
            x=shares,
            orientation="h",
            name=name,
            marker={"color": PART_COLOURS.get(name, GAP), "line": {"color": PAPER, "width": 1}},
            customdata=[
                f"{units.microseconds(value)}, {units.percent(share)}" for value, share in zip(us, shares, strict=True)
            ],
            hovertemplate=f"<b>{name}</b>, %{{y}}<br>%{{customdata}} of the step<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3, showlegend=True)
    figure.update_yaxes(autorange="reversed", showgrid=False, tickfont={"color": INK})
    whole = "unprofiled wall" if of_wall else "profiled span"
    figure.update_xaxes(title_text=f"share of the {whole}", tickformat=".0%", range=[0, 1])
    return figure


def sweep_fraction(runs: Sequence[Run]) -> go.Figure:
    """Addressable share of busy over the swept number: the band between both ends, for each series."""
    figure = blank(height=320)
    for number, (name, members) in enumerate(_series(runs)):
        colour = POLICY_COLOURS[number % len(POLICY_COLOURS)]
        x = [point for point, _ in members]
        shares = [run.addressable.share_of_busy for _, run in members]
        texts = [facts.range_percent(share) for share in shares]
        for edge, fill in (
            ([share.high for share in shares], None),
            ([share.low for share in shares], "tonexty"),
        ):
            figure.add_scatter(
                x=x,
                y=edge,
                mode="lines+markers",
                name=name or "addressable",
                showlegend=bool(name) and fill is not None,
                fill=fill,
                fillcolor=transparent(colour),
                line={"color": colour, "width": 2},
                marker={"size": 7},
                customdata=texts,
                hovertemplate="%{x}: %{customdata} of busy<extra></extra>",
            )
    return _swept(figure, runs, "addressable share of busy", {"tickformat": ".0%", "range": [0, 1]})


def sweep_step(runs: Sequence[Run]) -> go.Figure:
    """Step time with its 95 % interval over the swept number, both logarithmic; the span where no wall was measured."""
    figure = blank(height=320)
    for number, (name, members) in enumerate(_series(runs)):
        colour = POLICY_COLOURS[number % len(POLICY_COLOURS)]
        times = [facts.step_times(run) for _, run in members]
        figure.add_scatter(
            x=[point for point, _ in members],
            y=[_step_us(run) / 1e3 for _, run in members],
            mode="lines+markers",
            name=name or "step time",
            showlegend=bool(name),
            line={"color": colour, "width": 2},
            marker={"size": 7},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [0 if time is None else (time.high_us - time.median_us) / 1e3 for time in times],
                "arrayminus": [0 if time is None else (time.median_us - time.low_us) / 1e3 for time in times],
            },
            customdata=[facts.step_line(run) for _, run in members],
            hovertemplate="%{x}: %{customdata}<extra></extra>",
        )
    points = [us / 1e3 for run in runs for us in (_step_us(run),) if us > 0]
    ticks = _one_two_five(min(points), max(points)) if points else []
    ticked = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return _swept(figure, runs, "ms a step", {"type": "log", **ticked})


def _step_us(run: Run) -> float:
    times = facts.step_times(run)
    return run.accounts.span_us if times is None else times.median_us


def _one_two_five(low: float, high: float) -> list[float]:
    """Ticks 1, 2, 5, 10, ... that cover an interval of a logarithmic axis."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    return [tick for tick in ticks if low / 2.5 <= tick <= high * 2.5]


def _series(runs: Sequence[Run]) -> list[tuple[str, list[tuple[int, Run]]]]:
    sweep = facts.sweep(runs)
    assert sweep is not None
    series: dict[str, list[tuple[int, Run]]] = {}
    for run in runs:
        value = facts.swept_value(run, sweep.field)
        assert value is not None
        name = f"{facts.FIELD_WORDS[sweep.series]} {facts.swept_value(run, sweep.series)}" if sweep.series else ""
        series.setdefault(name, []).append((value, run))
    return [(name, sorted(members, key=lambda member: member[0])) for name, members in series.items()]


def _swept(figure: go.Figure, runs: Sequence[Run], title: str, y_axis: dict[str, Any]) -> go.Figure:
    sweep = facts.sweep(runs)
    assert sweep is not None
    values = sorted({value for run in runs if (value := facts.swept_value(run, sweep.field)) is not None})
    figure.update_xaxes(
        type="log",
        title_text=facts.FIELD_WORDS[sweep.field],
        tickvals=values,
        ticktext=[units.count(value) for value in values],
    )
    figure.update_yaxes(title_text=title, **y_axis)
    figure.update_layout(showlegend=sweep.series is not None)
    return figure


# --- pieces -------------------------------------------------------------------------------------------------


def safe_text(text: str) -> str:
    """Text from outside, for plotly, which reads tags and %{...} in names and hover texts."""
    return html.escape(one_line(text), quote=False).replace("%{", "%&#123;")


def readable_on(colour: str) -> str:
    """Black or white, whichever stands out more from a fill (WCAG 2 contrast)."""
    return max(("#ffffff", "#000000"), key=lambda ink: contrast(ink, colour))


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21; text needs 4.5."""
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def transparent(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.22)"


def blank(height: int) -> go.Figure:
    """An empty figure in the page's style; transparent, so that it lies on the page's own background."""
    import plotly.graph_objects as go

    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "tickfont": {"color": MUTED},
        "title": {"font": {"color": MUTED, "size": 12}, "standoff": 8},
        "automargin": True,
        "fixedrange": True,
    }
    return go.Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 8, "r": 24, "t": 12, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
            "hoverlabel": {"bgcolor": PAPER, "bordercolor": MUTED, "font": {"color": INK}, "align": "left"},
            "legend": {
                "traceorder": "normal",
                "orientation": "h",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
                "font": {"color": INK},
            },
            "showlegend": False,
            "xaxis": axis,
            "yaxis": axis,
        }
    )
