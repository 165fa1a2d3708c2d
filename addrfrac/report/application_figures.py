"""Kernels put into a model in, the waterfall of what each group of sites saves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from addrfrac import units
from addrfrac.records import Applied, ArmTimes
from addrfrac.report import applications
from addrfrac.report.bounds_figures import KEPT, MEASURED, OF_BUSY, ROW
from addrfrac.report.figures import GAP, GAP_LINE, INK, blank, safe_text
from addrfrac.report.names import clipped_middle, one_line

if TYPE_CHECKING:
    import plotly.graph_objects as go

CAPTURE = "capture"
"""The part of the credit that ends in the model whose sites were timed."""
MOST = 14
"""Groups of sites that get a bar of their own."""


def can_draw(applied: Applied) -> bool:
    """There are savings of sites, and the two arms that they lie between."""
    return bool(applications.savings(applied)) and _ends(applied) is not None


def _ends(applied: Applied) -> tuple[ArmTimes, ArmTimes] | None:
    """The arms without kernels and with them."""
    if not applied.credits:
        return None
    times = {each.arm: each for each in applied.arms}
    captured = next((each.after for each in applied.credits if each.part == CAPTURE), "")
    before, after = times.get(captured), times.get(applied.credits[-1].after)
    return (before, after) if before is not None and after is not None else None


def waterfall(applied: Applied) -> go.Figure:
    """What each group of sites was to save, one after the other, and what all of them were measured to save."""
    ends = _ends(applied)
    assert ends is not None, "asked only where it can be drawn"
    before, after = ends
    steps, rest = applications.savings(applied)[:MOST], applications.savings(applied)[MOST:]
    if rest:
        steps.append((f"{len(rest)} more groups", sum(each[1] for each in rest), sum(each[2] for each in rest)))
    bars, reached = [], 0.0
    for name, count, us in steps:
        bars.append((f"{clipped_middle(one_line(name), 40)} x {count}", reached, us, KEPT if us >= 0 else MEASURED))
        reached += us
    measured = before.median_us - after.median_us
    bars.append(("not as projected", reached, measured - reached, GAP))
    bars.append((f"measured: {before.arm} to {after.arm}", 0.0, measured, OF_BUSY))
    return _drawn(bars, f"saved, µs of a step of {units.microseconds(before.median_us)}")


def _drawn(bars: Sequence[tuple[str, float, float, str]], axis: str) -> go.Figure:
    """Bars of (label, begin, length with its sign, colour), the first at the top."""
    figure = blank(height=110 + ROW * len(bars))
    labels = [safe_text(label) for label, *_ in bars]
    figure.add_bar(
        y=labels,
        x=[abs(length) for _, _, length, _ in bars],
        base=[min(begin, begin + length) for _, begin, length, _ in bars],
        orientation="h",
        width=0.62,
        marker={
            "color": [colour for *_, colour in bars],
            "line": {"color": [GAP_LINE if colour == GAP else colour for *_, colour in bars], "width": 1},
        },
        text=[f" {units.signed_microseconds(length)} " for _, _, length, _ in bars],
        textposition="outside",
        textfont={"color": INK},
        cliponaxis=False,
        hovertemplate="<b>%{y}</b><br>%{text}<extra></extra>",
        showlegend=False,
    )
    ends = [end for _, begin, length, _ in bars for end in (begin, begin + length)]
    room = 0.15 * ((max(ends) - min(ends)) or 1.0)
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], showgrid=False, tickfont={"color": INK})
    figure.update_xaxes(title_text=axis, range=[min(ends) - (room if min(ends) < 0 else 0.0), max(ends) + room])
    return figure
