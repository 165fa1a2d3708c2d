"""Runs in, one small SVG out for a README: each run's step as a bar, its addressable interval beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Run
from addrfrac.report import facts, tables
from addrfrac.report.figures import PART_COLOURS
from addrfrac.report.names import clipped, one_line

WIDTH, LABEL_WIDTH, BAR_WIDTH = 960, 430, 310
ROW, TOP, BOTTOM = 30, 58, 34
GAP_COLOUR = "#c3cad4"
STYLE = (
    "text{font:12.5px system-ui,'Segoe UI',sans-serif;fill:#1c2330}.muted{fill:#5b6575}.strong{font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.muted{fill:#9aa5b5}}"
)


def render_picture(runs: Sequence[Run]) -> str:
    """An SVG that needs no script; its words follow the reader's light or dark theme."""
    of_wall = tables.all_have_walls(runs)
    height = TOP + ROW * len(runs) + BOTTOM
    titles = [facts.title(run) for run in runs] if len(runs) == 1 else facts.labels(runs)
    rows = "".join(
        _row(run, title, TOP + ROW * number, of_wall)
        for number, (run, title) in enumerate(zip(runs, titles, strict=True))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{_text(_description(runs))}"><style>{STYLE}</style>'
        f"{_legend()}{rows}{_words(0, height - 10, _caption(runs), 'muted')}</svg>\n"
    )


def _row(run: Run, title: str, top: int, of_wall: bool) -> str:
    bars, left = [], float(LABEL_WIDTH)
    parts = tables.parts(run, of_wall)
    scale = BAR_WIDTH / (sum(us for _, us in parts) or 1.0)
    for name, us in parts:
        width = scale * us
        if width > 0:
            fill = PART_COLOURS.get(name, GAP_COLOUR)
            bars.append(f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{ROW - 9}" fill="{fill}"/>')
        left += width
    share = facts.range_percent(run.addressable.share_of_busy)
    wall_us = facts.wall_us(run)
    step = units.microseconds(wall_us) if wall_us else f"{units.microseconds(run.accounts.span_us or None)} profiled"
    right = LABEL_WIDTH + BAR_WIDTH + 14
    return (
        _words(0, top + 15, clipped(title, 66))
        + "".join(bars)
        + _words(right, top + 15, share, "strong")
        + _words(right + 120, top + 15, step)
    )


def _legend() -> str:
    entries = [*PART_COLOURS.items(), (tables.IDLE, GAP_COLOUR)]
    drawn, left = [], LABEL_WIDTH
    for name, colour in entries:
        drawn.append(f'<rect x="{left}" y="12" width="11" height="11" fill="{colour}"/>')
        drawn.append(_words(left + 15, 22, name, "muted"))
        left += 30 + 7 * len(name)
    right = LABEL_WIDTH + BAR_WIDTH + 14
    return "".join(drawn) + _words(right, 46, "addressable", "muted") + _words(right + 120, 46, "step", "muted")


def _caption(runs: Sequence[Run]) -> str:
    policies = ", ".join(dict.fromkeys(run.addressable.policy for run in runs))
    devices = ", ".join(dict.fromkeys(map(facts.device, runs)))
    whole = "Unprofiled step" if tables.all_have_walls(runs) else "Profiled step"
    return clipped(f"{whole} by who could replace it; addressable share of busy, policy {policies}; {devices}", 140)


def _description(runs: Sequence[Run]) -> str:
    return "; ".join(f"{facts.title(run)}: {facts.headline(run)}" for run in runs)


def _words(left: int, baseline: int, text: str, kind: str = "") -> str:
    return f'<text x="{left}" y="{baseline}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{_text(text)}</text>'


def _text(text: str) -> str:
    return html.escape(one_line(text))
