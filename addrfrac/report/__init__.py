"""Saved runs in, text of any format out; every renderer is a row of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from addrfrac import store
from addrfrac.errors import AddrfracError
from addrfrac.records import Diff, Run, WhatIf
from addrfrac.report import comparison, difference, document, markdown, page, tables, terminal
from addrfrac.report.document import Shared, plotly_source
from addrfrac.report.index import IndexEntry, render_index, render_index_markdown, render_ladder_markdown
from addrfrac.report.picture import render_picture

if TYPE_CHECKING:
    from rich.console import Console

Renderer = TypeVar("Renderer")

__all__ = [
    "FORMATS",
    "IndexEntry",
    "plotly_source",
    "print_diff",
    "print_terminal",
    "print_what_if",
    "render",
    "render_diff",
    "render_index",
    "render_index_markdown",
    "render_ladder_markdown",
    "render_picture",
    "render_what_if",
    "shared_files",
    "shared_in",
]


def render(
    runs: Sequence[Run], format: str, *, shared_plotly: str | None = None, shared_folder: str | None = None
) -> str:
    """The report of one run, or the comparison of several, as text.

    For html only: `shared_plotly` is the address, relative to the page, of a plotly.min.js that several pages share;
    `shared_folder` that of a folder in which they share all of `shared_files`.
    """
    if not runs:
        raise ValueError("nothing to render: no run was given")
    return _chosen(RENDERERS, format)(runs, shared_in(shared_folder) if shared_folder else _shared(shared_plotly))


def shared_in(folder: str) -> Shared:
    """The addresses of `shared_files` in a folder."""
    return Shared(plotly=f"{folder}/plotly.min.js", style=f"{folder}/page.css", script=f"{folder}/page.js")


def shared_files() -> dict[str, str]:
    """Name and content of what pages share besides plotly.min.js."""
    return {name: document.resource(name) for name in ("page.css", "page.js")}


def _shared(plotly: str | None) -> Shared | None:
    return None if plotly is None else Shared(plotly=plotly)


def render_diff(diff: Diff, format: str) -> str:
    """What moved between two runs, as text."""
    return _chosen(DIFF_RENDERERS, format)(diff)


def render_what_if(what_if: WhatIf, format: str) -> str:
    """What a step would cost if some kernels were faster, as text."""
    return _chosen(WHAT_IF_RENDERERS, format)(what_if)


def print_terminal(runs: Sequence[Run], console: Console) -> None:
    """The terminal report on a console of the caller's, which decides width and colour."""
    terminal.print_parts(terminal.run_parts(runs), console)


def print_diff(diff: Diff, console: Console) -> None:
    terminal.print_parts(terminal.diff_parts(diff), console)


def print_what_if(what_if: WhatIf, console: Console) -> None:
    terminal.print_parts(terminal.what_if_parts(what_if), console)


def _json(runs: Sequence[Run], shared: Shared | None) -> str:
    return store.encode(runs[0] if len(runs) == 1 else list(runs)).decode()


def _html(runs: Sequence[Run], shared: Shared | None) -> str:
    if len(runs) == 1:
        return page.render_page(runs[0], shared)
    return comparison.render_comparison(runs, shared)


def _csv(runs: Sequence[Run], shared: Shared | None) -> str:
    frame = tables.everything(runs[0]) if len(runs) == 1 else tables.everything_of_all(runs)
    return frame.to_csv(index=False, lineterminator="\n")


def _record_json(record: Diff | WhatIf) -> str:
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


def _chosen(renderers: Mapping[str, Renderer], format: str) -> Renderer:
    if format not in renderers:
        raise AddrfracError(f"unknown format {format!r}; choose one of {', '.join(renderers)}")
    return renderers[format]


RENDERERS: dict[str, Callable[[Sequence[Run], Shared | None], str]] = {
    "terminal": lambda runs, shared: terminal.as_text(terminal.run_parts(runs)),
    "json": _json,
    "markdown": lambda runs, shared: markdown.render_markdown(runs),
    "html": _html,
    "csv": _csv,
}
FORMATS = tuple(RENDERERS)

DIFF_RENDERERS: dict[str, Callable[[Diff], str]] = {
    "terminal": lambda diff: terminal.as_text(terminal.diff_parts(diff)),
    "json": _record_json,
    "markdown": markdown.render_diff,
    "html": difference.render_diff,
    "csv": lambda diff: tables.diff(diff).to_csv(index=False, lineterminator="\n"),
}

WHAT_IF_RENDERERS: dict[str, Callable[[WhatIf], str]] = {
    "terminal": lambda what_if: terminal.as_text(terminal.what_if_parts(what_if)),
    "json": _record_json,
    "markdown": markdown.render_what_if,
    "html": difference.render_what_if,
    "csv": lambda what_if: tables.what_if(what_if).to_csv(index=False, lineterminator="\n"),
}
