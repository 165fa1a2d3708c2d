"""Published runs in, the page and the README table that list them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from addrfrac import units
from addrfrac.records import Run
from addrfrac.report import ceilings, facts, headroom, ladders, markdown
from addrfrac.report.document import Shared, banners, document
from addrfrac.report.markup import escape, hint, section, table


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One published run and where its page lies."""

    run: Run
    page: str
    """Address of its report.html, relative to the index or README."""


def render_index(
    entries: Sequence[IndexEntry], comparisons: Sequence[tuple[str, str]] = (), shared: Shared | None = None
) -> str:
    """`reports/index.html`: every published run with its headline figures, linked to its page.

    `comparisons` are title and address of pages over several of the runs: sweeps and the like.
    """
    devices = ", ".join(dict.fromkeys(facts.device(entry.run) for entry in entries)) or "no runs yet"
    runs = [entry.run for entry in entries]
    listed = section("runs", "Runs", _table(entries) if entries else "", hint(NOTE if entries else "none"))
    climbed = [entry for entry in entries if entry.run.ladder is not None]
    first = (
        [("ladders", "Ladders", section("ladders", "Ladders", _ladders(climbed), hint(LADDER_NOTE)))] if climbed else []
    )
    links = [*first, ("runs", "Runs", listed)]
    if comparisons:
        pages = "".join(f'<li><a href="{escape(quote(page))}">{escape(title)}</a></li>' for title, page in comparisons)
        links.append(("sweeps", "Sweeps", section("sweeps", "Sweeps", f'<ul class="plain">{pages}</ul>')))
    header = f'<h1>Published runs</h1><p class="device">{escape(devices)}</p>{banners(runs)}'
    return document("Published runs · addrfrac", header, links, [], shared)


NOTE = (
    "Addressable: share of busy time, from replaceable kernels alone to replaceable or unknown ones. Ceiling: Amdahl "
    "on that share, a bound. Busy: share of the unprofiled step in which a kernel ran."
)


LADDER_NOTE = (
    "Step and addressable share of busy time as the framework runs it, with torch.compile and a CUDA graph, and with "
    "every free switch that helps; then best-library with every replaceable kernel deleted from its graph, measured."
)


def _ladders(entries: Sequence[IndexEntry]) -> str:
    rows = [
        [
            f'<a href="{escape(quote(entry.page))}">{escape(facts.title(entry.run))}</a>',
            *map(escape, ladders.trio_cells(entry.run)),
        ]
        for entry in entries
    ]
    return f'<div class="index">{table("Where free switches lead", ["run", *ladders.TRIO], rows)}</div>'


def render_index_markdown(entries: Sequence[IndexEntry]) -> str:
    """The table for a README: step time, busy share, addressable interval by policy, ceiling, linked to each page."""
    links = [f"[{markdown.plain(facts.title(entry.run))}]({quote(entry.page)})" for entry in entries]
    return markdown.headline_table([entry.run for entry in entries], links) + "\n"


def render_ladder_markdown(entries: Sequence[tuple[IndexEntry, IndexEntry | None]]) -> str:
    """The headline table: for each ladder eager, compile + graph and best-library with the share that each leaves.

    Each entry is the run of a ladder and that of its best-library, where this was profiled.
    """
    columns = [
        "run",
        ">eager",
        ">compile + graph",
        ">best-library",
        ">ceiling above best-library",
        ">floor of best-library",
        ">utilisation",
    ]
    return markdown.table(columns, [_ladder_row(entry, best) for entry, best in entries]) + "\n"


def _ladder_row(entry: IndexEntry, best: IndexEntry | None) -> list[str]:
    run = entry.run
    ladder = run.ladder
    assert ladder is not None
    parts = {} if run.configuration is None else facts.configuration_parts(run.configuration)
    short = " · ".join(text for key, text in parts.items() if key not in ("layout", "execution")) or facts.title(run)
    floors = headroom.covering(best.run.floors) if best is not None else None
    link = "{}" if best is None else f"[{{}}]({quote(best.page)})"
    return [
        f"[{markdown.plain(short)}]({quote(entry.page)})",
        ladders.step_and_share(run, ladders.arm(ladder, ladders.EAGER)),
        ladders.step_and_share(run, ladders.compiled(ladder)),
        link.format(ladders.step_and_share(run, ladders.arm(ladder, ladders.BEST))),
        ceilings.speedup(ceilings.above(run, ladders.BEST)),
        units.DASH if floors is None else headroom.interval(floors.step_floor_us),
        headroom.utilisation(floors),
    ]


def _table(entries: Sequence[IndexEntry]) -> str:
    runs = [entry.run for entry in entries]
    policies = facts.policy_names(runs)
    several_devices = len(set(map(facts.device, runs))) > 1
    rows = []
    for run, page in ((entry.run, entry.page) for entry in entries):
        link = f'<a href="{escape(quote(page))}">{{}}</a>'
        where = [escape(facts.device(run))] if several_devices else []
        cells = map(escape, [*facts.headline_cells(run, policies)])
        rows.append([link.format(escape(facts.title(run))), *where, *cells, escape(run.grade.letter)])
        if run.extrapolation is not None:
            cells = map(escape, [*facts.extrapolated_cells(run, policies)])
            rows.append([link.format(escape(facts.extrapolated_title(run))), *where, *cells, units.DASH])
    columns = ["run", *(["device"] if several_devices else []), *facts.headline_columns(policies)]
    listed = table("Headline figures", [*columns, "grade"], rows)
    return f'<div class="index">{listed}</div>'
