"""A measured ceiling in, its table and sentences as plain text out; every format draws the same ones."""

from __future__ import annotations

from addrfrac import units
from addrfrac.errors import brief
from addrfrac.records import Ceiling, CeilingRow, Range, Run
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped_middle, one_line, short_kernel

NARROW = ("what is free", ">nodes", ">own time", ">without", ">measured", ">Amdahl", ">of wall")
"""Columns for 80 characters; the last two are Amdahl's, of busy and of wall."""
WIDE = (
    "what is free",
    ">nodes",
    ">own device time",
    ">step without",
    ">measured speed-up",
    ">95 %",
    ">Amdahl of busy",
    ">Amdahl of wall",
)


def ceilings(run: Run) -> tuple[Ceiling, ...]:
    """Every ceiling of a run: its own, or those above the arms of its ladder, best-library last."""
    own = () if run.ceiling is None else (run.ceiling,)
    return own + (() if run.ladder is None else run.ladder.ceilings)


def last_word(run: Run) -> Ceiling | None:
    """The ceiling that decides: above best-library where there is one, else the last that was taken."""
    found = ceilings(run)
    above_best = [ceiling for ceiling in found if ceiling.arm == "best-library"]
    return next(iter([*above_best[-1:], *found[-1:]]), None)


def above(run: Run, arm: str) -> Ceiling | None:
    """The ceiling above one arm; None where there is none."""
    return next((ceiling for ceiling in ceilings(run) if ceiling.arm == arm), None)


def row_of_all(ceiling: Ceiling | None) -> CeilingRow | None:
    """The row in which everything replaceable is free; None where it was not tried."""
    rows = () if ceiling is None else ceiling.rows
    return next((row for row in rows if row.kind == "all"), None)


def speedup(ceiling: Ceiling | None, missing: str = units.DASH) -> str:
    """Measured speed-up with everything replaceable free, as its interval."""
    row = row_of_all(ceiling)
    return missing if row is None else measured(row, missing)


def measured(row: CeilingRow, missing: str = units.DASH) -> str:
    return missing if row.gain is None else units.speedup_range(row.gain.low, row.gain.high)


def amdahl(interval: Range, missing: str = units.DASH) -> str:
    return units.speedup_range(interval.low, interval.high, missing)


def share_of_busy(row: CeilingRow) -> Range:
    """The share f that Amdahl's 1 / (1 - f) of busy was taken of."""
    low, high = row.amdahl_of_busy.low, row.amdahl_of_busy.high
    if low is None:
        return Range(low=None, high=None)
    return Range(low=1 - 1 / low, high=1.0 if high is None else 1 - 1 / high)


def title(ceiling: Ceiling) -> str:
    """'Ceiling above best-library: its CUDA graph without some of its kernels'."""
    if not ceiling.measured:
        return f"Ceiling above {one_line(ceiling.arm)}: not measured, Amdahl only"
    return f"Ceiling above {one_line(ceiling.arm)}: its CUDA graph without some of its kernels"


def narrow(ceiling: Ceiling, limit: int) -> Listing:
    """What 80 columns have room for; explanations stand below."""
    rows = tuple((clipped_middle(label(row), 25), *_figures(row)[1:]) for row in ceiling.rows[:limit])
    left_out = len(ceiling.rows) - len(rows)
    notes = [
        f"{one_line(row.what)}: {text}" for row in ceiling.rows if row.kind == "all" for text in [_why(row)] if text
    ]
    notes += [f"{units.plural(left_out, 'more row')}: --format html lists all"] if left_out else []
    return Listing(title=title(ceiling), columns=NARROW, rows=rows, notes=(*notes, *_notes(ceiling)))


def wide(ceiling: Ceiling) -> Listing:
    """Every row; why measured and Amdahl differ stands in `explanations`."""
    rows = []
    for row in ceiling.rows:
        what, nodes, own, without, interval, of_busy, of_wall = _figures(row)
        factor = units.DASH if row.gain is None else units.speedup(row.gain.speedup)
        rows.append((what, nodes, own, without, factor, interval, of_busy, of_wall))
    return Listing(title=title(ceiling), columns=WIDE, rows=tuple(rows), notes=_notes(ceiling))


def label(row: CeilingRow) -> str:
    """What was deleted; the name of a single kernel made short."""
    if row.kind != "kernel":
        return one_line(row.what)
    return short_kernel(row.what.removeprefix("kernel "))


def explanations(ceiling: Ceiling) -> list[tuple[str, str]]:
    """For each row why measured and Amdahl differ, or why it was not measured."""
    return [(label(row), text) for row in ceiling.rows for text in [_why(row)] if text]


def _figures(row: CeilingRow) -> tuple[str, ...]:
    return (
        label(row),
        units.count(row.nodes),
        units.microseconds(row.deleted_us, units.DASH),
        units.microseconds(row.reduced_us, units.DASH),
        measured(row),
        amdahl(row.amdahl_of_busy),
        amdahl(row.amdahl_of_wall),
    )


def _why(row: CeilingRow) -> str:
    return "; ".join(one_line(brief(text)) for text in (row.note, row.explanation) if text)


def _notes(ceiling: Ceiling) -> tuple[str, ...]:
    return tuple(map(one_line, ceiling.notes))


def graph_line(ceiling: Ceiling) -> str:
    """What was captured: nodes, edges, labels, noise."""
    if not ceiling.measured:
        return ""
    shape = "with branches" if ceiling.branches else "a chain"
    parts = [
        f"{units.count(ceiling.nodes)} nodes, {units.count(ceiling.edges)} edges, {shape}",
        f"{units.count(ceiling.labelled_nodes)} of {units.count(ceiling.kernel_nodes)} kernel nodes labelled",
    ]
    if ceiling.noise_floor is not None:
        parts.append(f"the same graph twice differs by {units.percent(ceiling.noise_floor)}")
    return "; ".join(parts)


def words(ceiling: Ceiling) -> list[str]:
    """What it means for someone who decides where kernel work pays."""
    row = row_of_all(ceiling)
    if not ceiling.measured:
        bound = "" if row is None else amdahl(row.amdahl_of_busy, "")
        stand_in = f" Amdahl's bound stands in its place: {bound} of busy." if bound else ""
        return [f"Not measured: {one_line(brief(ceiling.why_not)) or 'no reason was recorded'}.{stand_in}"]
    said = [_all_free(ceiling, row)] if row is not None and row.gain is not None else []
    return [*said, *(text for kind in ("class", "kernel") for text in [_best_of_kind(ceiling, kind)] if text)]


def _all_free(ceiling: Ceiling, row: CeilingRow) -> str:
    assert row.gain is not None
    return (
        f"If every replaceable kernel cost nothing, this step ({one_line(ceiling.arm)}, as a CUDA graph) would take "
        f"{units.microseconds(row.reduced_us)} instead of {units.microseconds(row.full_us)}. "
        f"No kernel can pay more than {units.speedup(row.gain.high)} here."
    )


KIND_WORDS = {"class": "class", "kernel": "single kernel"}


def _best_of_kind(ceiling: Ceiling, kind: str) -> str:
    measured_rows = [row for row in ceiling.rows if row.kind == kind and row.gain is not None]
    if not measured_rows:
        return ""
    best = max(measured_rows, key=lambda row: row.gain.low if row.gain is not None else 0.0)
    assert best.gain is not None
    what = clipped_middle(label(best).removeprefix(f"{kind} "), 60)
    if best.gain.low <= 1:
        return f"No {KIND_WORDS[kind]} alone would be seen to pay, were it free."
    saved = units.microseconds_range(best.gain.saved_us.low, best.gain.saved_us.high)
    return f"The {KIND_WORDS[kind]} that would pay most, were it free, is {what}: {measured(best)}, {saved} a step."
