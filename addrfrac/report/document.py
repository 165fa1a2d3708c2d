"""Sections and figures in, one HTML document out that opens offline: no request leaves it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from addrfrac.records import Run
from addrfrac.report import facts, figures
from addrfrac.report.markup import data, escape, packed

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Files that many pages share, by their addresses relative to the page; its data is packed then."""

    plotly: str
    style: str = ""
    """'': the page has its own."""
    script: str = ""


class Figures:
    """The figures of one page: each call places one and keeps its data for the end of the page."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.scripts: list[str] = []

    def place(self, figure: go.Figure, title: str, description: str, subject: str = "") -> str:
        """The HTML of a figure; `description` is for a screen reader, `subject` names device, dtype, mode, policy."""
        identifier = f"figure-{len(self.scripts) + 1}"
        self.scripts.append(data(identifier, json.loads(figure.to_json())))
        return (
            f'<figure><figcaption>{escape(title)}<span class="subject">{escape(subject or self.subject)}</span>'
            f'</figcaption><div class="plot" data-figure="{identifier}" role="img" aria-label="{escape(description)}" '
            f'style="height:{figure.layout.height}px"></div></figure>'
        )


def banners(runs: Sequence[Run]) -> str:
    """What a reader must know before the first number."""
    recorded = [("RECORDED", text) for text in dict.fromkeys(map(facts.recorded_line, runs)) if text]
    cpu = [("CPU RUN", text) for text in dict.fromkeys(map(facts.cpu_line, runs)) if text]
    return "".join(
        f'<p class="banner" role="note"><strong>{word}</strong> {escape(text)}</p>' for word, text in [*recorded, *cpu]
    )


def document(
    title: str,
    header: str,
    sections: Sequence[tuple[str, str, str]],
    scripts: Sequence[str],
    shared: Shared | None,
) -> str:
    """The whole page from (id, link text, HTML) sections; plotly is left out where no figure needs it."""
    links = "".join(f'<a href="#{identifier}">{escape(word)}</a>' for identifier, word, _ in sections)
    nav = (
        f'<nav aria-label="Sections"><div><strong>addrfrac</strong>{links}'
        '<button id="theme" type="button">Theme</button></div></nav>'
    )
    main = "\n".join(content for _, _, content in sections)
    return Template(resource("page.html")).substitute(
        title=escape(title),
        version=escape(_version()),
        policy=_content_policy(shared),
        style=_style(shared),
        script=_script(shared),
        body=f'{nav}\n<header>{header}</header>\n<main id="content">\n{main}\n</main>\n<footer>{_footer()}</footer>',
        data="\n".join([data("dark-colours", figures.DARK), *_data(scripts, shared)]),
        plotly=_plotly_script(shared) if any('id="figure-' in script for script in scripts) else "",
    )


def _data(scripts: Sequence[str], shared: Shared | None) -> Sequence[str]:
    return scripts if shared is None or not scripts else [packed(scripts)]


def _version() -> str:
    from addrfrac import __version__

    return __version__


def _footer() -> str:
    return f"addrfrac {escape(_version())}. This page needs no network and makes no request."


def _content_policy(shared: Shared | None) -> str:
    """No request leaves the page; only files that it shares with pages beside it may be read."""
    beside = "" if shared is None else " 'self' file:"
    return (
        f"default-src 'none'; script-src 'unsafe-inline'{beside}; style-src 'unsafe-inline'{beside}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _style(shared: Shared | None) -> str:
    if shared is not None and shared.style:
        return f'<link rel="stylesheet" href="{escape(shared.style)}">'
    return f"<style>\n{resource('page.css')}\n</style>"


def _script(shared: Shared | None) -> str:
    if shared is not None and shared.script:
        return f'<script src="{escape(shared.script)}"></script>'
    return f"<script>\n{resource('page.js')}\n</script>"


def _plotly_script(shared: Shared | None) -> str:
    if shared is not None:
        return f'<script src="{escape(shared.plotly)}"></script>'
    return f"<script>{plotly_source()}</script>"


@cache
def plotly_source() -> str:
    """plotly.min.js of the installed plotly."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    assert "</script" not in source.lower()
    return source


@cache
def resource(name: str) -> str:
    """A file that every page is made of: page.html, page.css, page.js."""
    return resources.files("addrfrac.report").joinpath(name).read_text(encoding="utf-8")
