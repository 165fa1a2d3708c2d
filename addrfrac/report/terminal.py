"""Runs in, one screen of 80 columns out that answers first (rich)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from addrfrac import units
from addrfrac.records import Bound, Diff, DiffRow, KernelRow, Run, Verdict, WhatIf
from addrfrac.report import applications, breakdowns, ceilings, facts, headroom, ladders, tables
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped, clipped_middle, one_line, short_kernel

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

WIDTH = 80
TOP_KERNELS = 8
TOP_CLASSES = 12
COMPARED_RUNS = 4
BAR_WIDTH = 8
STYLES = {
    Bound.LIBRARY: "blue",
    Bound.REPLACEABLE: "yellow",
    Bound.SYSTEM: "bright_black",
    Bound.UNKNOWN: "magenta",
}
VERDICT_STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.SAME: "bright_black",
    Verdict.INCONCLUSIVE: "yellow",
}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def as_text(parts: Sequence[RenderableType]) -> str:
    """What a console of 80 columns without colour would show."""
    from rich.console import Console

    page = io.StringIO()
    print_parts(parts, Console(file=page, width=WIDTH, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def print_parts(parts: Sequence[RenderableType], console: Console) -> None:
    for part in parts:
        # No highlighter and no emoji codes: what a trace supplied is shown as it is.
        console.print(part, highlight=False, markup=False, emoji=False)


def run_parts(runs: Sequence[Run]) -> list[RenderableType]:
    """The parts of the screen from top to bottom: one run's report, or a comparison of several."""
    if len(runs) == 1:
        run = runs[0]
        return [
            *_head(run),
            *_answer(run),
            *_accounts(run),
            *_breakdowns(run),
            *_ladder(run),
            *_applied(run),
            *_ceiling(run),
            *_floors(run),
            *_kernels(run),
            *_notes(run),
        ]
    return _comparison(runs)


# --- one run ------------------------------------------------------------------------------------------------


def _head(run: Run) -> list[RenderableType]:
    from rich.panel import Panel
    from rich.text import Text

    parts: list[RenderableType] = []
    if facts.is_recorded(run):
        parts.append(Panel(Text(facts.recorded_line(run)), title="RECORDED", border_style="cyan", width=WIDTH))
    parts += [Text(facts.title(run), style="bold"), Text(facts.device_line(run), style="bright_black")]
    if facts.is_cpu(run):
        parts.append(Text(f"CPU RUN. {facts.cpu_line(run)}", style="yellow"))
    return parts


def _answer(run: Run) -> list[RenderableType]:
    from rich.text import Text

    noun = "busy CPU time" if facts.is_cpu(run) else "busy GPU time"
    parts: list[RenderableType] = [_heading(f"Addressable by replacement {facts.kernel_noun(run)}s, share of {noun}")]
    if run.addressable.by_policy:
        parts.append(_policies(run))
    else:
        parts.append(Text(facts.headline(run)))
    parts.append(_lines(_answer_lines(run)))
    return parts


def _answer_lines(run: Run) -> list[tuple[str, str]]:
    lines = [
        ("Step", facts.step_line(run)),
        ("", facts.graph_line(run)),
        ("Rate", "" if facts.throughput(run) is None else facts.throughput_text(run)),
        ("Busy", facts.busy_line(run)),
        ("Spread", facts.sampling_line(run)),
        ("Host", facts.host_line(run)),
        ("Note", facts.distortion_line(run)),
        ("Depth", facts.extrapolation_line(run)),
        *_bounds(run),
    ]
    return [(word, text) for word, text in lines if text]


def _bounds(run: Run) -> list[tuple[str, str]]:
    """What free switches reach and what kernels of no cost would, each in one sentence."""
    last = ceilings.last_word(run)
    return [
        ("Kernels", applications.words(run.applied)[0] if run.applied is not None else ""),
        ("Ladder", ladders.words(run)[0] if run.ladder is not None else ""),
        ("Ceiling", "" if last is None else next(iter(ceilings.words(last)), "")),
    ]


def _policies(run: Run) -> RenderableType:
    has_wall = run.addressable.share_of_wall.low is not None
    wall, wall_ceiling = ([">of wall"], [">wall"]) if has_wall else ([], [])
    table = _table(
        "policy", ">of busy", *wall, ">ceiling: busy", *wall_ceiling, ">replaceable", gap=1 if has_wall else 2
    )
    for policy, share in facts.policies(run):
        own = policy == run.addressable.policy
        of_wall = facts.range_percent(share.share_of_wall, units.DASH)
        ceiling_of_wall = facts.ceiling(share.speedup_of_wall, share.share_of_wall, units.DASH)
        table.add_row(
            clipped(one_line(policy), 13) + (" ◂" if own else ""),
            facts.range_percent(share.share_of_busy, units.DASH),
            *([of_wall] if has_wall else []),
            facts.ceiling(share.speedup_of_busy, share.share_of_busy, units.DASH),
            *([ceiling_of_wall] if has_wall else []),
            units.microseconds_range(share.replaceable_us.low, share.replaceable_us.high, units.DASH),
            style="bold" if own else "",
        )
    return table


def _accounts(run: Run) -> list[RenderableType]:
    from rich.text import Text

    if not run.accounts.span_us:
        return [_heading("Where the step goes"), Text("Nothing ran on the device in this window.")]
    table = _table("class", "owner", "bound", ">launches", ">a step", ">of span", "", gap=1)
    rows = tables.classes(run).to_dict("records")
    for row in rows[:TOP_CLASSES]:
        bound = Bound(row["bound"])
        table.add_row(
            row["op"],
            clipped(one_line(row["provider"]), 14),
            Text(bound, style=STYLES[bound]),
            units.count(row["launches"]),
            units.microseconds(row["exclusive_us"]),
            units.percent(row["share_of_span"]),
            Text(_bar(row["share_of_span"]), style=STYLES[bound]),
        )
    rest = rows[TOP_CLASSES:]
    if rest:
        us = sum(row["exclusive_us"] for row in rest)
        _accounts_row(
            table, run, units.plural(len(rest), "more class", "more classes"), us, sum(row["launches"] for row in rest)
        )
    _accounts_row(table, run, "two classes at once", run.accounts.overlap_us)
    for gap in run.accounts.gaps:
        _accounts_row(table, run, f"gap: {gap.kind}", gap.us, gap.count)
    _accounts_row(table, run, "residual", run.accounts.residual_us)
    table.add_row(
        "span",
        "",
        "",
        units.count(run.accounts.launches),
        units.microseconds(run.accounts.span_us),
        "100 %",
        "",
        style="bold",
    )
    steps = units.plural(len(run.accounts.steps), "step")
    return [_heading(f"Where the step goes (mean of {steps}; a class while it ran alone)"), table]


def _accounts_row(table: Table, run: Run, part: str, us: float, number: float | None = None) -> None:
    share = us / run.accounts.span_us
    cells = ("", "", "" if number is None else units.count(number), units.microseconds(us), units.percent(share))
    table.add_row(part, *cells, _bar(share), style="bright_black")


BREAKDOWN_ROWS = 12
LEFT_OUT = {">requests", ">tokens", ">95 %", ">own work", "dtype", ">elements", "group"}
"""Columns of breakdowns that 80 columns have no room for."""


def _breakdowns(run: Run) -> list[RenderableType]:
    from rich.text import Text

    parts: list[RenderableType] = []
    for listing in breakdowns.listings(run, [run.addressable.policy], BREAKDOWN_ROWS):
        kept = [number for number, column in enumerate(listing.columns) if column not in LEFT_OUT]
        table = _table(*(listing.columns[number] for number in kept), gap=1)
        for row in listing.rows:
            table.add_row(*(Text(row[number]) for number in kept))
        parts += [_heading(listing.title), table, *(Text(note, style="bright_black") for note in listing.notes)]
    return parts


CEILING_ROWS = 14


def _ladder(run: Run) -> list[RenderableType]:
    if run.ladder is None:
        return []
    ladder = run.ladder
    rungs = ladders.climbed(run)
    parts = [*_listing(ladders.arms(run, narrow=True)), *_sentences(ladders.words(run)[1:])]
    parts += _listing(rungs) if rungs.rows else [_heading(rungs.title), _lines([("none", "")])]
    rejected, inapplicable = ladders.rejected(ladder), ladders.inapplicable(ladder)
    if rejected:
        parts += [_heading("Tried and not kept"), _lines([(clipped(name, 24), reason) for name, reason in rejected])]
    if inapplicable:
        parts += [_heading("Not tried here"), *_sentences([ladders.folded(inapplicable)])]
    notes = [ladders.noise_line(ladder), *map(one_line, ladder.notes)]
    return [*parts, *_faint(notes)]


def _applied(run: Run) -> list[RenderableType]:
    """What kernels put into the model were worth."""
    if run.applied is None:
        return []
    tables = [part for listing in applications.listings(run, narrow=True) for part in _listing(listing)]
    return [
        *tables,
        *_sentences(applications.words(run.applied)[1:]),
        *_faint([one_line(note) for note in run.applied.notes]),
    ]


def _ceiling(run: Run) -> list[RenderableType]:
    """The ceiling that decides; those above the other arms are figures in their table."""
    last = ceilings.last_word(run)
    if last is None:
        return []
    listed = ceilings.narrow(last, CEILING_ROWS)
    shown = _listing(listed) if listed.rows else [_heading(listed.title)]
    return [*shown, *_sentences(ceilings.words(last)[1:]), *_faint([ceilings.graph_line(last)])]


def _floors(run: Run) -> list[RenderableType]:
    if run.floors is None:
        return []
    listed = headroom.listing(run.floors, narrow=True)
    styles = [STYLES[row.bound] for row in run.floors.rows]
    return [
        _heading("Floors of the step"),
        _lines(headroom.floor_lines(run.floors)),
        *_sentences(headroom.words(run, run.floors)),
        *(_listing(listed, styles) if listed.rows else []),
        *_faint(run.floors.notes),
    ]


def _listing(listing: Listing, styles: Sequence[str] = ()) -> list[RenderableType]:
    """A heading, the table, its notes; `styles` colours the second cell of each row."""
    from rich.text import Text

    table = _table(*listing.columns, gap=1)
    for number, row in enumerate(listing.rows):
        cells = [Text(cell) for cell in row]
        if styles:
            cells[1].stylize(styles[number])
        table.add_row(*cells)
    return [_heading(listing.title), table, *_faint(listing.notes)]


def _sentences(texts: Sequence[str]) -> list[RenderableType]:
    return [_lines([("·", one_line(text)) for text in texts if text])]


def _faint(texts: Sequence[str]) -> list[RenderableType]:
    from rich.text import Text

    return [Text(one_line(text), style="bright_black") for text in texts if text]


def _kernels(run: Run) -> list[RenderableType]:
    from rich.text import Text

    if not run.kernels:
        return []
    noun = facts.kernel_noun(run)
    shown = run.kernels[:TOP_KERNELS]
    parts: list[RenderableType] = [_heading(f"Top {noun}s: time a step, share of busy, launches")]
    parts += [line for row in shown for line in _kernel_lines(row, tables.has_phases(run))]
    hidden = run.kernels[TOP_KERNELS:]
    if hidden:
        us = sum(row.device_us for row in hidden)
        text = (
            f"{units.microseconds(us):>9} {units.plural(len(hidden), f'more {noun}')}: --format csv or html lists all"
        )
        parts.append(Text(text, style="bright_black"))
    return parts


def _kernel_lines(row: KernelRow, with_phase: bool) -> list[Text]:
    """The figures and the name; below them the owner and the reason for the label."""
    from rich.text import Text

    figures = (
        f"{units.microseconds(row.device_us):>9} {units.percent(row.share_of_busy):>7} {units.count(row.launches):>5}x "
    )
    name = clipped_middle(short_kernel(row.name), WIDTH - len(figures))
    phase = f" · {row.phase}" if with_phase else ""
    reason = f" {row.op} of {row.provider}{phase} · {row.certainty} · rules {row.op_rule}, {row.provider_rule}"
    below = clipped(one_line(reason), WIDTH - 10 - len(row.bound))
    return [
        Text.assemble(figures, (name, "bold")),
        Text.assemble(" " * 10, (row.bound, STYLES[row.bound]), (below, "bright_black")),
    ]


def _notes(run: Run) -> list[RenderableType]:
    notes = [("Trace", facts.trace_line(run)), ("Window", one_line(run.window))]
    notes += [("Lost", text) for text in facts.losses(run)]
    notes += [("Note", one_line(note)) for note in run.notes]
    return [_heading("Notes"), _lines(notes)]


# --- several runs -------------------------------------------------------------------------------------------


def _comparison(runs: Sequence[Run]) -> list[RenderableType]:
    from rich.text import Text

    runs = facts.ordered(runs)
    sweep = facts.sweep(runs)
    labels = facts.labels(runs)
    short = _short_labels(labels)
    parts: list[RenderableType] = [Text(facts.comparison_title(runs), style="bold")]
    parts += [Text(line, style="yellow") for line in _warnings(runs)]
    if short != labels:
        parts.append(_lines(list(zip(short, labels, strict=True))))
    parts += [_heading("Addressable share of busy time, ceiling of busy, step time"), _headlines(runs, short)]
    if not all(facts.wall_us(run) for run in runs):
        parts.append(Text("* of the profiled span: no wall was measured", style="bright_black"))
    parts += _best_of_all(runs, short)
    if sweep:
        parts += [_heading(f"Over {facts.FIELD_WORDS[sweep.field]}"), _curve(runs, short)]
    parts += [part for run in runs if run.ranks is not None for part in _breakdowns(run)]
    parts += [_heading("Device time a step by class"), *_class_columns(runs, short)]
    return parts


def _short_labels(labels: Sequence[str]) -> list[str]:
    """The labels where they fit beside six columns of figures, else a number for each."""
    if all(len(label) <= 10 for label in labels):
        return list(labels)
    return [f"#{number}" for number in range(1, len(labels) + 1)]


def _warnings(runs: Sequence[Run]) -> list[str]:
    lines = [f"RECORDED: {text}" for text in dict.fromkeys(map(facts.recorded_line, runs)) if text]
    return lines + [f"CPU RUN. {text}" for text in dict.fromkeys(map(facts.cpu_line, runs)) if text]


def _headlines(runs: Sequence[Run], labels: Sequence[str]) -> RenderableType:
    names = facts.policy_names(runs)[:3]
    shares = (f">{clipped(one_line(name), 11)}" for name in names)
    table = _table("run", ">step", ">graph", ">busy", *shares, ">ceiling", gap=1)
    for run, label in zip(runs, labels, strict=True):
        own = run.addressable.by_policy.get(run.addressable.policy)
        table.add_row(
            label,
            units.microseconds(facts.wall_us(run), units.DASH),
            units.microseconds(facts.graph_us(run), units.DASH),
            facts.busy_share(run, units.DASH).replace(" of span", "*"),
            *(_share_of_busy(run, name) for name in names),
            units.DASH if own is None else facts.ceiling(own.speedup_of_busy, own.share_of_busy, units.DASH),
        )
    return table


def _best_of_all(runs: Sequence[Run], labels: Sequence[str]) -> list[RenderableType]:
    """What free switches reach and the ceiling above it, for the runs that know."""
    columns = ladders.end_columns(runs)
    if not columns:
        return []
    table = _table("run", *columns)
    for run, label in zip(runs, labels, strict=True):
        table.add_row(label, *ladders.end_cells(run))
    return [_heading("After the free switches, and with every replaceable kernel free"), table]


def _share_of_busy(run: Run, policy: str) -> str:
    share = run.addressable.by_policy.get(policy)
    return units.DASH if share is None else facts.range_percent(share.share_of_busy, units.DASH)


def _curve(runs: Sequence[Run], labels: Sequence[str]) -> RenderableType:
    """Fraction and step time as bars over the swept number."""
    table = _table("", ">addressable", "0–100 % of busy", ">step", "", ">rate")
    slowest = max((facts.wall_us(run) or run.accounts.span_us for run in runs), default=0.0) or 1.0
    for run, label in zip(runs, labels, strict=True):
        share = run.addressable.share_of_busy
        step_us = facts.wall_us(run) or run.accounts.span_us
        table.add_row(
            label,
            facts.range_percent(share, units.DASH),
            _bar(share.low or 0.0, 15),
            units.microseconds(step_us),
            _bar(step_us / slowest, 8),
            facts.throughput_text(run, units.DASH),
        )
    return table


def _class_columns(runs: Sequence[Run], labels: Sequence[str]) -> list[RenderableType]:
    from rich.text import Text

    frame = tables.classes_of_all(runs)
    if frame.empty:
        return [Text("Nothing ran on the device.")]
    shown = labels[:COMPARED_RUNS]
    table = _table("class", *(f">{label}" for label in shown))
    for (op, bound), times in tables.class_rows(frame)[:TOP_CLASSES]:
        cells = (units.microseconds(us, units.DASH) for us in times[: len(shown)])
        table.add_row(Text(op, style=STYLES[bound]), *cells)
    parts: list[RenderableType] = [table]
    left_out = (
        [units.plural(len(frame) - TOP_CLASSES, "more class", "more classes")] if len(frame) > TOP_CLASSES else []
    )
    left_out += [f"runs from {labels[COMPARED_RUNS]} on"] if len(runs) > len(shown) else []
    if left_out:
        parts.append(Text(f"Left out: {' and '.join(left_out)}; --format html lists all", style="bright_black"))
    return parts


# --- diff and what-if ---------------------------------------------------------------------------------------


def diff_parts(record: Diff) -> list[RenderableType]:
    """What moved: the step first, then classes, gaps and kernels."""
    from rich.text import Text

    slowdown = units.signed_percent_range(record.slowdown.low, record.slowdown.high, "no interval")
    parts: list[RenderableType] = [
        Text(f"{one_line(record.before)}  →  {one_line(record.after)}", style="bold"),
        Text(
            f"The step is {record.step.verdict}: {facts.moved(record.step)}", style=VERDICT_STYLES[record.step.verdict]
        ),
        Text(f"95 % of the change: {slowdown}; compared are {one_line(record.basis)}"),
    ]
    if record.shares:
        parts += [_heading("Addressable share of busy"), _diff_shares(record)]
    for title, rows in (("Classes", record.classes), ("Gaps", record.gaps), ("Kernels", record.kernels)):
        if rows:
            parts += [_heading(f"{title}, largest change first"), _diff_rows(rows)]
    if record.notes:
        parts += [_heading("Notes"), _lines([("Note", one_line(note)) for note in record.notes])]
    return parts


def _diff_shares(record: Diff) -> RenderableType:
    table = _table("policy", ">before", ">after")
    for policy, (before, after) in record.shares.items():
        table.add_row(one_line(policy), facts.range_percent(before, units.DASH), facts.range_percent(after, units.DASH))
    return table


def _diff_rows(rows: Sequence[DiffRow]) -> RenderableType:
    from rich.text import Text

    table = _table("", ">before", ">change", ">95 % of the change", "verdict")
    for row in rows[:TOP_CLASSES]:
        table.add_row(
            clipped_middle(short_kernel(row.name), 30),
            units.microseconds(row.before_us, units.DASH),
            units.signed_microseconds(row.change_us),
            units.signed_microseconds_range(row.interval_us.low, row.interval_us.high, units.DASH),
            Text(row.verdict, style=VERDICT_STYLES[row.verdict]),
        )
    if len(rows) > TOP_CLASSES:
        table.add_row(f"{len(rows) - TOP_CLASSES} more", style="bright_black")
    return table


def what_if_parts(record: WhatIf) -> list[RenderableType]:
    """What a step would cost if some kernels were faster."""
    from rich.text import Text

    table = _table("assumed", ">faster", ">kernels", ">time a step", ">would save")
    for row in record.rows:
        table.add_row(
            clipped(one_line(row.what), 30),
            units.speedup(row.speedup),
            units.count(row.kernels),
            units.microseconds(row.device_us),
            units.microseconds_range(row.saved_us.low, row.saved_us.high, units.DASH),
        )
    parts: list[RenderableType] = [
        Text(f"What if: {one_line(record.title)}", style="bold"),
        _lines(facts.what_if_lines(record)),
        Text(""),
        table,
    ]
    if record.notes:
        parts += [_heading("Notes"), _lines([("Note", one_line(note)) for note in record.notes])]
    return parts


# --- pieces -------------------------------------------------------------------------------------------------


def _heading(text: str) -> RenderableType:
    from rich.text import Text

    return Text(f"\n{text}", style="bold cyan")


def _table(*columns: str, gap: int = 2) -> Table:
    """A table without lines; a column that starts with '>' is aligned right, and only the first ever wraps."""
    from rich.table import Table

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bright_black")
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, no_wrap=number > 0, overflow="fold")
    return table


def _lines(pairs: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for word, text in pairs:
        table.add_row(word, Text(text))
    return table


def _bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of `width` cells for a share of 0..1, to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
