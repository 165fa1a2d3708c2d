"""Text in, HTML out: escaping and the few elements that every page is made of."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Sequence

from addrfrac.report.names import clipped, one_line, short_kernel


def escape(text: object) -> str:
    """Text from anywhere, safe inside an element or a quoted attribute; control characters become visible."""
    return html.escape(one_line(str(text)))


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], row_classes: Sequence[str] | None = None
) -> str:
    """A table of HTML cells; the first heads its row, and a column that starts with '>' holds numbers."""
    numeric = [column.startswith(">") for column in columns]
    head = "".join(
        f'<th scope="col"{_number(is_numeric)}>{_breakable(column.removeprefix(">"))}</th>'
        for column, is_numeric in zip(columns, numeric, strict=True)
    )
    body = "".join(
        f"<tr{_class(row_class)}>{_cells(row, numeric)}</tr>\n"
        for row, row_class in zip(rows, row_classes or [""] * len(rows), strict=True)
    )
    label = escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _breakable(title: str) -> str:
    """A column's title that may wrap inside a long name, where the name has a joint."""
    return re.sub(r"(?<=[_.\-·])", "<wbr>", escape(title)) if len(title) > 20 else escape(title)


def _cells(row: Sequence[str], numeric: Sequence[bool]) -> str:
    first, *others = row
    cells = "".join(
        f"<td{_number(is_numeric)}>{cell}</td>" for cell, is_numeric in zip(others, numeric[1:], strict=True)
    )
    return f'<th scope="row" class="wrap">{first}</th>{cells}'


def _number(is_numeric: bool) -> str:
    return ' class="number"' if is_numeric else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def section(identifier: str, title: str, *parts: str) -> str:
    """A titled card of the page."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{identifier}"><h2>{escape(title)}</h2>\n{body}\n</section>'


def definitions(pairs: Sequence[tuple[str, str]], kind: str = "facts") -> str:
    """A list of term and text, both plain; pairs without text are left out."""
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs if text)
    return f'<dl class="{kind}">{items}</dl>' if items else ""


def bound_mark(bound: str) -> str:
    """The word for a bound in its colour."""
    return f'<span class="bound bound-{bound}">{bound}</span>'


def kernel_name(name: str) -> str:
    """A kernel's name on one line, cut where space ends; more of it appears on hover, all of it in the kernel table."""
    title = escape(clipped(one_line(name), HOVERED))
    return f'<span class="kernel mono" title="{title}">{escape(short_kernel(name))}</span>'


def bullets(lines: Sequence[str]) -> str:
    return f'<ul class="plain">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def hint(text: str) -> str:
    return f'<p class="hint">{escape(text)}</p>'


HOVERED = 160
_DATA = re.compile(r'<script type="application/json" id="([^"]*)">(.*)</script>', re.DOTALL)


def packed(scripts: Sequence[str]) -> str:
    """All data of a page as one script, deflated, in base64; page.js unpacks it."""
    found = [_DATA.fullmatch(script) for script in scripts]
    texts = {each.group(1): each.group(2) for each in found if each is not None}
    assert len(texts) == len(scripts)
    text = base64.b64encode(zlib.compress(json.dumps(texts, separators=(",", ":")).encode(), 9)).decode()
    return f'<script type="application/json" id="packed">{text}</script>'


def data(identifier: str, value: object) -> str:
    """JSON that a script reads by id; nothing in it can end the script element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{identifier}">{text}</script>'
