"""A trace file in, its top-level fields and pieces of whole events out; nothing is decoded here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from addrfrac.errors import UnreadableTrace
from addrfrac.parse.damage import DECODER

PIECE_BYTES = 1 << 20
"""About 2,500 events: small enough to stay in the cache while they are decoded."""
MOST_PIECES = 1 << 13
LAST_PIECE = 1 << 60
PROBE_BYTES = 1 << 14
BLOCK_BYTES = 1 << 16
LONGEST_EVENT_BYTES = 1 << 20
HEAD_LIMIT_BYTES = 1 << 28
EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')
ENDING_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList:
    """Where the events of a file begin and how one tells that a new event starts."""

    begin: int
    """Offset of the byte after the opening bracket."""
    head: dict[str, Any]
    """Top-level fields before the events."""
    bare: bool
    """The file is the list itself, without top-level fields."""
    boundary: re.Pattern[bytes]
    """Matches from the closing brace of one event to the first key of the next."""


def located(name: str, blocks: Iterator[bytes]) -> tuple[EventList, bytes]:
    """Where the events begin, and what was read beyond that."""
    head = b""
    looked_at = 0
    for block in blocks:
        head += block
        if len(head) < 2 * looked_at:
            continue
        looked_at = len(head)
        events = locate_events(name, head, whole=False)
        if events is not None:
            return events, head[events.begin :]
    events = locate_events(name, head, whole=True)
    assert events is not None
    return events, head[events.begin :]


def locate_events(name: str, head: bytes, whole: bool) -> EventList | None:
    """Where the events begin, from the first bytes of a file; None where `head` must be longer to tell.

    `whole` says that `head` is all there is.
    """
    start = len(head) - len(head.lstrip(b"\xef\xbb\xbf \t\r\n"))
    text = head[start : start + 1]
    if not text:
        raise UnreadableTrace(f"{name} is empty; record or copy the trace again")
    if text == b"[":
        return _event_list(head, start + 1, {}, bare=True)
    if text != b"{":
        raise UnreadableTrace(
            f"{name} is not JSON; give a torch.profiler trace (.json, .json.gz) or an Nsight .sqlite export"
        )
    found = EVENT_LIST.search(head)
    if found is not None:
        before = head[start : found.start()].rstrip().rstrip(b",")
        return _event_list(head, found.end(), tolerant_object(before + b"}"), bare=False)
    if whole or len(head) > HEAD_LIMIT_BYTES:
        raise UnreadableTrace(f"{name} holds no traceEvents; give a trace that torch.profiler exported")
    return None


def _event_list(head: bytes, begin: int, fields: dict[str, Any], *, bare: bool) -> EventList:
    """The layout, learned from the first event: its first key starts all the others too."""
    key = FIRST_KEY.match(head, begin)
    first = re.escape(key.group(1)) if key else rb'"ph"'
    return EventList(
        begin=begin,
        head=fields,
        bare=bare,
        boundary=re.compile(rb"\}\s*,\s*\{\s*" + first + rb"\s*:"),
    )


def tolerant_object(text: bytes) -> dict[str, Any]:
    """A JSON object, control characters and NaN allowed; empty where it cannot be read."""
    try:
        found = json.loads(text.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def comma_after(match: re.Match[bytes]) -> int:
    """Offset of the comma between two events."""
    return match.string.index(b",", match.start(), match.end())


def cut_offsets(file: BinaryIO, events: EventList, size: int) -> list[int]:
    """Offsets of the commas that cut a plain file into pieces of whole events; first `begin - 1`, last `size`."""
    piece_bytes = max(PIECE_BYTES, size // MOST_PIECES + 1)
    cuts = [events.begin - 1]
    target = events.begin + piece_bytes
    while target < size:
        cut = _next_comma(file, events.boundary, target, size)
        if cut is None:
            break
        cuts.append(cut)
        target = cut + piece_bytes
    cuts.append(size)
    return cuts


def _next_comma(file: BinaryIO, boundary: re.Pattern[bytes], offset: int, size: int) -> int | None:
    """The first comma between two events at or after an offset."""
    window = BLOCK_BYTES
    while True:
        file.seek(offset)
        text = file.read(window)
        found = list(boundary.finditer(text))
        sure = next((match for match in found if _starts_event(match)), None)
        if sure is None and offset + len(text) >= size:
            return None
        if sure is not None or (found and window > LONGEST_EVENT_BYTES):
            return offset + comma_after(sure or found[0])
        window *= 4


def _starts_event(boundary: re.Match[bytes]) -> bool:
    """Whether a whole event follows; an object within an event's arguments can look like the start of one."""
    begin = comma_after(boundary) + 1
    text = boundary.string[begin : begin + PROBE_BYTES].decode("utf-8", "replace").lstrip()
    try:
        event, _ = DECODER.raw_decode(text)
    except ValueError:
        return False
    return isinstance(event, dict) and {"ph", "name"} <= event.keys()


def read_between(file: BinaryIO, cut: int, next_cut: int) -> bytes:
    """The events between two cuts, commas left out."""
    file.seek(cut + 1)
    return file.read(next_cut - cut - 1)


def read_list(file: BinaryIO, cut: int, next_cut: int, buffer: bytearray) -> None:
    """Fill the buffer with the events between two cuts as a JSON list: brackets take the place of the commas.

    One buffer for all pieces, because fresh memory for each costs as much as reading it.
    """
    length = next_cut - cut + 1
    if len(buffer) > length:
        del buffer[length:]
    else:
        buffer.extend(bytes(length - len(buffer)))
    file.seek(cut)
    filled = 0
    with memoryview(buffer) as view:
        while count := file.readinto(view[filled:]):  # type: ignore[attr-defined]
            filled += count
    buffer[0] = ord("[")
    buffer[-1] = ord("]")


def streamed_pieces(
    blocks: Iterator[bytes], rest: bytes, events: EventList, wanted: Callable[[int], bool]
) -> Iterator[tuple[int, bytes]]:
    """The wanted pieces of a stream with their numbers, each a JSON list of whole events.

    The last comes without its brackets, as number -1: what follows the events is still in it. `rest` is what was read
    beyond the opening of the list.
    """
    index = 0
    held = [rest]
    for block in blocks:
        comma = _last_comma(block, events.boundary)
        if comma is None:
            held.append(block)
            continue
        if wanted(index):
            yield index, b"".join([b"[", *held, block[:comma], b"]"])
        index += 1
        held = [block[comma + 1 :]]
    yield -1, b"".join(held)


def _last_comma(block: bytes, boundary: re.Pattern[bytes]) -> int | None:
    """The last comma that a block holds between two events of which the second is whole."""
    for begin in (max(0, len(block) - PROBE_BYTES), 0):
        found = list(boundary.finditer(block, begin))
        sure = next((match for match in reversed(found) if _starts_event(match)), None)
        if sure is not None:
            return comma_after(sure)
    return comma_after(found[-1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The last piece, taken apart."""

    events: bytes
    fields: dict[str, Any]
    """Top-level fields after the events."""
    closed: bool
    """False where the file ends before the list of events does."""


END_OF_LIST = re.compile(rb'(?<=[}\[,])\s*\]\s*(?=,\s*"|\}\s*\Z)')


def split_ending(piece: bytes, bare: bool) -> Ending:
    """The events of the last piece and what follows them."""
    if bare:
        body = piece.rstrip()
        closed = body.endswith(b"]") and (body[:-1].rstrip()[-1:] in (b"}", b",", b""))
        return Ending(events=body[:-1] if closed else body, fields={}, closed=closed)
    try:
        parts = ENDING_DECODER.decode(b'{"traceEvents":[' + piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _tolerant_ending(piece)
    events = bytes(parts.pop("traceEvents")).strip()[1:-1]
    text = b"{" + b",".join(json.dumps(key).encode() + b":" + bytes(value) for key, value in parts.items()) + b"}"
    return Ending(events=events, fields=tolerant_object(text), closed=True)


def _tolerant_ending(piece: bytes) -> Ending:
    """The same where strict decoding fails: the last bracket that whole top-level fields follow ends the list."""
    for found in reversed(list(END_OF_LIST.finditer(piece))):
        rest = piece[found.end() :].strip()
        fields = tolerant_object(b"{" + rest.removeprefix(b","))
        if fields or rest == b"}":
            return Ending(events=piece[: found.start()], fields=fields, closed=True)
    return Ending(events=piece, fields={}, closed=False)
