"""A piece that holds only events nobody reads in, their number and the few that are read out: no decoding."""

from __future__ import annotations

import re
from dataclasses import dataclass

CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"\\]*)"')
SKIPPED = frozenset({b"python_function", b"cpu_instant_event", b"ac2g"})
MODULE = b'"nn.Module: '
BETWEEN_EVENTS = re.compile(rb'\}\s*,\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')
PROBE_BYTES = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Skimmed:
    """What a skipped piece comes to."""

    events: int
    """Events passed over."""
    kept: bytes
    """Events to decode, with commas between them."""


def skim(piece: bytes) -> Skimmed | None:
    """The piece passed over at the speed of a text search; None where any of its events may be wanted.

    Safe because it counts: each `"cat"` of the piece must be the key of one of the skipped categories, and inside a
    JSON string a quote has a backslash before it.
    """
    first = CATEGORY.search(piece, 0, PROBE_BYTES)
    if first is None or first.group(1) not in SKIPPED:
        return None
    patterns = {first.group(0)}
    last = piece.rfind(b'"cat"')
    found = CATEGORY.match(piece, last)
    if found is None or found.group(1) not in SKIPPED:
        return None
    patterns.add(found.group(0))
    events = sum(piece.count(pattern) for pattern in patterns)
    if events != piece.count(b'"cat"'):
        return None
    kept = _modules(piece) if b"python_function" in first.group(0) + found.group(0) else []
    if kept is None:
        return None
    return Skimmed(events=events - len(kept), kept=b",".join(kept))


def _modules(piece: bytes) -> list[bytes] | None:
    """The events of nn.Module calls; None where their ends cannot be told."""
    found = piece.find(MODULE)
    if found < 0:
        return []
    between = BETWEEN_EVENTS.search(piece)
    if between is None:
        return None
    gap = between.group(0)
    comma = gap.index(b",")
    kept: list[bytes] = []
    while found >= 0:
        before = piece.rfind(gap, 0, found)
        after = piece.find(gap, found)
        begin = before + comma + 1 if before >= 0 else 0
        end = after + comma if after >= 0 else len(piece)
        kept.append(piece[begin:end])
        found = piece.find(MODULE, end)
    return kept
