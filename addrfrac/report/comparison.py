"""Several runs in, one HTML page out that sets them side by side, along a curve where they form one."""

from __future__ import annotations

from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Run
from addrfrac.report import facts, figures, kernel_table, ladders, tables
from addrfrac.report.document import Figures, Shared, banners, document
from addrfrac.report.markup import bound_mark, escape, section, table
from addrfrac.report.page import breakdown_sections


def render_comparison(runs: Sequence[Run], shared: Shared | None = None) -> str:
    """The page of several runs; `shared` as for one."""
    runs = facts.ordered(runs)
    sweep = facts.sweep(runs)
    common = facts.common_title(runs)
    placed = Figures(common)
    sections = [
        (
            "answer",
            "Answer",
            section("answer", "Side by side", _headline_table(runs), _share_table(runs), _trio_table(runs)),
        ),
        *([("sweep", "Curve", _sweep(runs, placed))] if sweep else []),
        *(part for run in runs if run.ranks is not None for part in breakdown_sections(run)),
        ("step", "Step", _steps_of_all(runs, placed)),
        ("gain", "Gain", _gain_of_all(runs, placed)),
        ("kernels", facts.kernel_noun(runs[0]).capitalize() + "s", kernel_table.kernels_section(runs)),
        ("trace", "Commands and notes", _commands(runs)),
    ]
    header = f'<h1>{escape(facts.comparison_kind(runs))}</h1><p class="device">{escape(common)}</p>{banners(runs)}'
    return document(
        f"{facts.comparison_title(runs)} · addrfrac",
        header,
        sections,
        [*placed.scripts, *kernel_table.kernels_data(runs)],
        shared,
    )


def _headline_table(runs: Sequence[Run]) -> str:
    rows = []
    for run, label in zip(runs, facts.labels(runs), strict=True):
        times = facts.step_times(run)
        rows.append(
            (
                escape(label),
                units.DASH if times is None else units.microseconds(times.median_us),
                units.DASH if times is None else units.microseconds_range(times.low_us, times.high_us),
                units.microseconds(facts.graph_us(run), units.DASH),
                units.microseconds(run.accounts.span_us),
                facts.busy_share(run, units.DASH),
                facts.throughput_text(run, units.DASH),
                facts.host_answer(run),
                escape(run.grade.letter),
            )
        )
    columns = ["run", ">step", ">95 %", ">as a graph", ">profiled span", ">busy", ">rate", "host", "trace grade"]
    return table("Times", columns, rows)


def _share_table(runs: Sequence[Run]) -> str:
    policies = facts.policy_names(runs)
    rows = []
    for run, label in zip(runs, facts.labels(runs), strict=True):
        cells = [escape(label)]
        for policy in policies:
            share = run.addressable.by_policy.get(policy)
            cells += (
                [units.DASH, units.DASH]
                if share is None
                else [
                    facts.range_percent(share.share_of_busy, units.DASH),
                    facts.ceiling(share.speedup_of_busy, share.share_of_busy, units.DASH),
                ]
            )
        rows.append(cells)
    columns = ["run", *(column for policy in policies for column in (f">{policy}: of busy", ">ceiling of busy"))]
    return table("Addressable share of busy and its Amdahl ceiling, by policy", columns, rows)


def _trio_table(runs: Sequence[Run]) -> str:
    """What free switches reach and what is above them, for the runs that know."""
    rows = [
        [escape(label), *map(escape, ladders.trio_cells(run))]
        for run, label in zip(runs, facts.labels(runs), strict=True)
        if ladders.has_ends(run)
    ]
    title = "Free switches: step and addressable share of busy; then with every replaceable kernel free"
    return table(title, ["run", *ladders.TRIO], rows) if rows else ""


def _sweep(runs: Sequence[Run], placed: Figures) -> str:
    sweep = facts.sweep(runs)
    assert sweep is not None
    field = facts.FIELD_WORDS[sweep.field]
    subject = facts.subject(runs[0])
    fraction = placed.place(
        figures.sweep_fraction(runs),
        f"Addressable share of busy over {field}",
        f"Band of the addressable share over {field}; the tables above have the numbers.",
        subject,
    )
    step = placed.place(
        figures.sweep_step(runs),
        f"Step time over {field}",
        f"Step time with its 95 % interval over {field}; the tables above have the numbers.",
        subject,
    )
    return section("sweep", f"Over {field}", f'<div class="two"><div>{fraction}</div><div>{step}</div></div>')


def _steps_of_all(runs: Sequence[Run], placed: Figures) -> str:
    picture = placed.place(
        figures.steps_of_all(runs),
        "The step by who could replace it",
        "One stacked bar a run: library, system, unknown and replaceable time, overlap, and time without a kernel.",
        _policies_in_force(runs),
    )
    frame = tables.classes_of_all(runs)
    rows = [
        [escape(op), bound_mark(bound), *(units.microseconds(us, units.DASH) for us in times)]
        for (op, bound), times in tables.class_rows(frame)
    ]
    listed = table("Device time a step by class", ["class", "bound", *(f">{label}" for label in frame.columns)], rows)
    return section("step", "Where the steps go", picture, listed if rows else "")


def _policies_in_force(runs: Sequence[Run]) -> str:
    policies = dict.fromkeys(run.addressable.policy for run in runs)
    return " · ".join(text for text in (facts.common_title(runs), f"policy {', '.join(policies)}") if text)


def _gain_of_all(runs: Sequence[Run], placed: Figures) -> str:
    if all(run.addressable.share_of_busy.low is None for run in runs):
        return section("gain", "What a gain could bring", f"<p>{units.NOT_MEASURED}</p>")
    basis = figures.amdahl_basis(runs)
    picture = placed.place(
        figures.amdahl(runs),
        f"Amdahl: end-to-end speed-up over the addressable share of {basis}",
        "Speed-up curves over the addressable fraction; thick marks are the interval of each run, listed above.",
        _policies_in_force(runs),
    )
    return section("gain", "What a gain could bring", picture)


def _commands(runs: Sequence[Run]) -> str:
    rows = [
        (
            escape(label),
            f"<code>{escape(run.command)}</code>",
            escape(run.created),
            escape(facts.device_line(run)),
            escape("; ".join([*facts.losses(run), *run.notes])),
        )
        for run, label in zip(runs, facts.labels(runs), strict=True)
    ]
    return section("trace", "Commands and notes", table("Runs", ["run", "command", "saved", "where", "notes"], rows))
