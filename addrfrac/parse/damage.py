"""Events that strict JSON refuses in, the same events as clean JSON out; what cannot be saved is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

EVENT_START = re.compile(rb'\}\s*,?\s*(?=\{\s*"(?:ph|name|cat|args|pid|tid|ts|id|dur|s|bp)"\s*:)')
BAD_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf|infinity)(?:\([a-z]*\))?(?=\s*[,}\]])", re.IGNORECASE)
JOINED_FRAGMENTS = 8
"""How many fragments in a row are tried as one event before they are given up."""
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
    clean: list[bytes] = []
    unreadable = 0
    pending: list[bytes] = []
    for fragment in fragments(piece):
        event = fragment if decodes(fragment) else _cleaned(fragment)
        if event is None and pending:
            pending.append(fragment)
            event = _cleaned(b",".join(pending))
            if event is not None:
                pending = []
            elif len(pending) > JOINED_FRAGMENTS:
                unreadable += 1
                pending = []
        elif event is None:
            pending = [fragment]
        elif pending:
            unreadable += 1
            pending = []
        if event is not None:
            clean.append(event)
    unreadable += bool(pending)
    return Repaired(text=b"[" + b",".join(clean) + b"]", unreadable=unreadable)


def fragments(piece: bytes) -> list[bytes]:
    """A piece cut before everything that looks like the start of an event."""
    found: list[bytes] = []
    begin = 0
    for gap in EVENT_START.finditer(piece):
        found.append(piece[begin : gap.start() + 1])
        begin = gap.end()
    found.append(piece[begin:])
    return [fragment for fragment in found if fragment.strip(b" \t\r\n,")]


def tolerant_event(fragment: bytes) -> dict[str, Any] | None:
    """An event read with NaN, Infinity, control characters and bad escapes allowed; None where it is none."""
    text = fragment.decode("utf-8", "replace").strip(" \t\r\n,")
    for mended in (text, BAD_ESCAPE.sub(_mended_escape, BARE_NUMBER.sub(r"\1null", text))):
        try:
            event = json.loads(mended, strict=False, parse_float=Decimal)
        except (ValueError, RecursionError):
            continue
        return event if isinstance(event, dict) and "ph" in event else None
    return None


def _mended_escape(found: re.Match[str]) -> str:
    return found.group(0) if len(found.group(0)) > 1 else "\\\\"


def _cleaned(fragment: bytes) -> bytes | None:
    """The event with only the fields that are read, each of the type expected; None where it is no event."""
    event = tolerant_event(fragment)
    if event is None:
        return None
    clean: dict[str, Any] = {key: event[key] for key in TEXTS if isinstance(event.get(key), str)}
    clean |= {key: event[key] for key in IDENTITIES if isinstance(event.get(key), int | str)}
    args = event.get("args")
    if isinstance(args, dict):
        clean["args"] = _cleaned_args(args)
    fields = [f"{json.dumps(key)}:{json.dumps(value, default=str)}" for key, value in clean.items()]
    fields += [f'"{key}":{stamp}' for key in STAMPS if (stamp := _stamp(event.get(key))) is not None]
    return ("{" + ",".join(fields) + "}").encode("utf-8", "replace")


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
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float | str):
        return None
    try:
        number = int(Decimal(value))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return number if abs(number) < 1 << 62 else None


def _stamp(value: object) -> str | None:
    """A time stamp as a plain decimal number; None out of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float | str):
        return None
    try:
        number = Decimal(value)
    except (InvalidOperation, ValueError):
        return None
    return f"{number:f}" if number.is_finite() and abs(number) < 10**18 else None
