"""A diff or a what-if in, one HTML page out; no figures, so no plotly."""

from __future__ import annotations

from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Diff, DiffRow, WhatIf
from addrfrac.report import facts
from addrfrac.report.document import document
from addrfrac.report.markup import bullets, definitions, escape, hint, kernel_name, section, table


def render_diff(record: Diff) -> str:
    """The page of what moved between two runs."""
    title = f"{record.before} → {record.after}"
    sections = [
        ("answer", "Answer", _answer(record)),
        ("classes", "Classes", section("classes", "Classes", _rows("Classes, largest change first", record.classes))),
        ("gaps", "Gaps", section("gaps", "Gaps", _rows("Idle device time", record.gaps))),
        ("kernels", "Kernels", section("kernels", "Kernels", _rows("Kernels, largest change first", record.kernels))),
        ("notes", "Notes", section("notes", "Notes", bullets(record.notes) or hint("none"))),
    ]
    return document(f"{title} · addrfrac", f"<h1>{escape(title)}</h1>", sections, [], None)


def _answer(record: Diff) -> str:
    verdict = record.step.verdict
    slowdown = units.signed_percent_range(record.slowdown.low, record.slowdown.high, "no interval")
    shares = [
        (escape(policy), facts.range_percent(before, units.DASH), facts.range_percent(after, units.DASH))
        for policy, (before, after) in record.shares.items()
    ]
    return section(
        "answer",
        "The answer",
        f'<p class="answer"><span class="big {verdict}">{verdict}</span> {escape(facts.moved(record.step))}; '
        f"95 % of the change {slowdown}</p>",
        hint(f"Compared are {record.basis}."),
        table("Addressable share of busy", ["policy", ">before", ">after"], shares) if shares else "",
    )


def _rows(caption: str, rows: Sequence[DiffRow]) -> str:
    cells = [
        (
            kernel_name(row.name),
            units.microseconds(row.before_us, units.DASH),
            units.microseconds(row.after_us, units.DASH),
            units.signed_microseconds(row.change_us),
            units.signed_microseconds_range(row.interval_us.low, row.interval_us.high, units.DASH),
            f'<span class="{row.verdict}">{row.verdict}</span>',
        )
        for row in rows
    ]
    columns = ["what", ">before", ">after", ">change", ">95 % of the change", "verdict"]
    return table(caption, columns, cells) if cells else hint("none")


def render_what_if(record: WhatIf) -> str:
    """The page of what a step would cost if some kernels were faster."""
    rows = [
        (
            f"<code>{escape(row.what)}</code>",
            units.speedup(row.speedup),
            units.count(row.kernels),
            units.microseconds(row.device_us),
            units.microseconds_range(row.saved_us.low, row.saved_us.high, units.DASH),
        )
        for row in record.rows
    ]
    columns = ["assumed", ">faster", ">kernels", ">time a step", ">would save"]
    body = section(
        "answer",
        "Projected, not measured",
        definitions(facts.what_if_lines(record)),
        table("Assumptions", columns, rows),
        bullets(record.notes),
    )
    title = f"What if: {record.title}"
    return document(f"{title} · addrfrac", f"<h1>{escape(title)}</h1>", [("answer", "Answer", body)], [], None)
