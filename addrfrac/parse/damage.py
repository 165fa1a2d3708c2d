"""Events that strict JSON refuses in, the same events as clean JSON out; what cannot be saved is counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

FIRST_KEYS = "ph|name|cat|args|pid|tid|ts|id|dur|s|bp"
BETWEEN_EVENTS = re.compile(rf'\}}\s*,?\s*(?=\{{\s*"(?:{FIRST_KEYS})"\s*:)'.encode())
EVENT_START = re.compile(rf'\{{\s*"(?:{FIRST_KEYS})"\s*:')
BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf|infinity)(?:\([a-z]*\))?(?=\s*[,}\]])", re.IGNORECASE)
JOINED_FRAGMENTS = 8
"""How many fragments in a row are tried as one event, for what looks like the start of one may lie within another."""
TEXTS = ("cat", "name")
STAMPS = ("ts", "dur")
IDENTITIES = ("pid", "tid")
WHOLE_ARGS = (
    "correlation",
    "device",
    "stream",
    "bytes",
    "Sequence number",
    "Fwd thread id",
    "graph node id",
    "Group size",
    "In msg nelems",
    "Seq",
)
TEXT_ARGS = ("Collective name", "Process Group Name", "dtype")
RAW_ARGS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A damaged piece, as far as it could be read."""

    text: bytes
    """A JSON list of events that strict decoding takes."""
    unreadable: int
    """Fragments that are no event."""


def repair(piece: bytes, decodes: Callable[[bytes], bool]) -> Repaired:
    """Each event of a piece cleaned on its own, so that one bad event costs no other; what `decodes` stays."""
    pieces = fragments(piece)
    clean: list[bytes] = []
    unreadable = 0
    number = 0
    while number < len(pieces):
        fragment = pieces[number]
        number += 1
        if decodes(fragment):
            clean.append(fragment)
            continue
        events, lost = _events_in(fragment)
        if lost:
            for joined in range(2, JOINED_FRAGMENTS + 1):
                whole = _events_in(b",".join(pieces[number - 1 : number - 1 + joined]))
                if whole == (whole[0][:1], 0) and whole[0]:
                    events, lost = whole
                    number += joined - 1
                    break
        clean.extend(_cleaned(event) for event in events)
        unreadable += lost
    return Repaired(text=b"[" + b",".join(clean) + b"]", unreadable=unreadable)


def fragments(piece: bytes) -> list[bytes]:
    """A piece cut before everything that looks like the start of an event."""
    found: list[bytes] = []
    begin = 0
    for gap in BETWEEN_EVENTS.finditer(piece):
        found.append(piece[begin : gap.start() + 1])
        begin = gap.end()
    found.append(piece[begin:])
    return [fragment for fragment in found if fragment.strip(SEPARATORS)]


def _events_in(fragment: bytes) -> tuple[list[dict[str, Any]], int]:
    """The events of a fragment, and how many stretches of it are none.

    NaN, Infinity, control characters and bad escapes are allowed.
    """
    text = fragment.decode("utf-8", "replace")
    text = BAD_ESCAPE.sub(_mended_escape, BARE_NUMBER.sub(r"\1null", text))
    events: list[dict[str, Any]] = []
    lost = 0
    read_to = looked_to = 0
    while start := EVENT_START.search(text, looked_to):
        looked_to = start.end()
        try:
            event, end = DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        if {"ph", "name"} <= event.keys():
            lost += bool(text[read_to : start.start()].strip(SEPARATORS.decode()))
            events.append(event)
            read_to = looked_to = end
    return events, lost + bool(text[read_to:].strip(SEPARATORS.decode()))


def _nothing(_constant: str) -> None:
    """What NaN and the infinities count as."""


def _mended_escape(found: re.Match[str]) -> str:
    return found.group(0) if len(found.group(0)) > 1 else "\\\\"


DECODER = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=_nothing)
SEPARATORS = b" \t\r\n,"


def _cleaned(event: dict[str, Any]) -> bytes:
    """The event with only the fields that are read, each of the type expected."""
    clean: dict[str, Any] = {key: event[key] for key in TEXTS if isinstance(event.get(key), str)}
    clean |= {key: event[key] for key in IDENTITIES if isinstance(event.get(key), str)}
    clean |= {key: number for key in IDENTITIES if (number := whole_number(event.get(key))) is not None}
    args = event.get("args")
    if isinstance(args, dict):
        clean["args"] = _cleaned_args(args)
    fields = [f"{json.dumps(key)}:{json.dumps(value, default=_plain)}" for key, value in clean.items()]
    fields += [f'"{key}":{stamp}' for key in STAMPS if (stamp := _stamp(event.get(key))) is not None]
    return ("{" + ",".join(fields) + "}").encode("utf-8", "replace")


def _plain(value: Decimal) -> float | None:
    """A number as JSON can hold it."""
    number = float(value)
    return number if math.isfinite(number) else None


def _cleaned_args(args: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = {key: args[key] for key in RAW_ARGS if key in args}
    clean |= {key: args[key] for key in TEXT_ARGS if isinstance(args.get(key), str)}
    for key in WHOLE_ARGS:
        number = whole_number(args.get(key))
        if number is not None:
            clean[key] = number
    return clean


def whole_number(value: object) -> int | None:
    """A 64-bit whole number out of a number or a number's text; None out of anything else."""
    number = _number(value)
    return int(number) if number is not None and abs(number) < 1 << 62 else None


def _stamp(value: object) -> str | None:
    """A time stamp as a plain decimal number; None out of anything else."""
    number = _number(value)
    return None if number is None else f"{number:f}"


def _number(value: object) -> Decimal | None:
    """A number of sane size, from a number or its text."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float | str):
        return None
    try:
        number = Decimal(value)
    except (InvalidOperation, ValueError):
        return None
    if not number.is_finite() or number.adjusted() > 18:
        return None
    return number if number.adjusted() > -20 else Decimal(0)
