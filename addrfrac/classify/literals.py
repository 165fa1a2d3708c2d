"""A rule's pattern in, pieces of plain text out, at least one of which must occur in whatever it matches.

Most rules match nothing of a trace, and looking for a few words is much faster than compiling and running a long
alternation. Where a pattern asks for nothing that can be read off, it is simply tried.
"""

from __future__ import annotations

import re
from functools import cache

_TOKEN = re.compile(
    r"(?P<plain>[\w:,<>=~%&;@ -]+(?![?*+{]))"
    r"|(?P<single>[\w:,<>=~%&;@ -])"
    r"|(?P<open>\((?:\?(?::|<?[=!]))?)"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)"
    r"|(?P<optional>[?*]\??|\{0?(?:,\d*)?\}\??)"
    r"|(?P<repeated>\+\??|\{\d+(?:,\d*)?\}\??)"
    r"|(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)
_NOT_READ = re.compile(r"\(\?[^:!=<]|\(\?<[^!=]")
"""Inline flags, named and atomic groups: such a pattern is simply tried."""
Token = tuple[str, str]


@cache
def required_literals(pattern: str) -> tuple[str, ...] | None:
    """Literals of which a match holds at least one; None where the pattern does not say."""
    if _NOT_READ.search(pattern):
        return None
    tokens = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(pattern)]
    found, _ = _alternatives(tokens, 0)
    return tuple(dict.fromkeys(found)) if found else None


def _alternatives(tokens: list[Token], position: int) -> tuple[list[str], int]:
    """Literals of an alternation ([] where a branch asks for none), and the position of what closes it."""
    together: list[str] = []
    every_branch_asks = True
    while True:
        branch, position = _branch(tokens, position)
        together += branch
        every_branch_asks = every_branch_asks and bool(branch)
        if position >= len(tokens) or tokens[position][0] == "close":
            return (together if every_branch_asks else []), position
        position += 1  # the bar


def _branch(tokens: list[Token], position: int) -> tuple[list[str], int]:
    """The most telling literals that one branch asks for, and where the branch ends."""
    best: list[str] = []
    while position < len(tokens) and tokens[position][0] not in ("bar", "close"):
        kind, text = tokens[position]
        found = [text] if kind in ("plain", "single") else []
        if kind == "open":
            found, position = _alternatives(tokens, position + 1)
            if "=" in text or "!" in text:
                found = []
        position += 1
        if position < len(tokens) and tokens[position][0] in ("optional", "repeated"):
            found = found if tokens[position][0] == "repeated" else []
            position += 1
        best = max(best, found, key=_telling)
    return best, position


def _telling(literals: list[str]) -> int:
    """A list is as telling as its shortest literal."""
    return min(map(len, literals), default=0)
