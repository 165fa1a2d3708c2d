"""Published runs in, the page and the README table that list them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from addrfrac.records import Run
from addrfrac.report import facts, markdown
from addrfrac.report.document import banners, document
from addrfrac.report.markup import escape, hint, section, table


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One published run and where its page lies."""

    run: Run
    page: str
    """Address of its report.html, relative to the index or README."""


def render_index(entries: Sequence[IndexEntry]) -> str:
    """`reports/index.html`: every published run with its headline figures, linked to its page."""
    devices = ", ".join(dict.fromkeys(facts.device(entry.run) for entry in entries)) or "no runs yet"
    runs = [entry.run for entry in entries]
    body = section("runs", "Runs", _table(entries), hint(NOTE)) if entries else section("runs", "Runs", hint("none"))
    header = f'<h1>Published runs</h1><p class="device">{escape(devices)}</p>{banners(runs)}'
    return document("Published runs · addrfrac", header, [("runs", "Runs", body)], [], None)


NOTE = (
    "Addressable: share of busy time, from replaceable kernels alone to replaceable or unknown ones. Ceiling: Amdahl "
    "on that share, a bound. Busy: share of the unprofiled step in which a kernel ran."
)


def render_index_markdown(entries: Sequence[IndexEntry]) -> str:
    """The table for a README: step time, busy share, addressable interval by policy, ceiling, linked to each page."""
    links = [f"[{markdown.plain(facts.title(entry.run))}]({quote(entry.page)})" for entry in entries]
    return markdown.headline_table([entry.run for entry in entries], links) + "\n"


def _table(entries: Sequence[IndexEntry]) -> str:
    policies = facts.policy_names([entry.run for entry in entries])
    rows = [
        [
            f'<a href="{escape(quote(entry.page))}">{escape(facts.title(entry.run))}</a>',
            escape(facts.device(entry.run)),
            *map(escape, facts.headline_cells(entry.run, policies)),
            escape(entry.run.grade.letter),
            escape(entry.run.created[:10]),
        ]
        for entry in entries
    ]
    columns = ["run", "device", *facts.headline_columns(policies), "trace grade", "saved"]
    return table("Headline figures, each run under its own policy where none is named", columns, rows)
