"""A trace file in, its top-level fields and pieces of whole events out; nothing is decoded here."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import msgspec

from addrfrac.errors import UnreadableTrace

PIECE_BYTES = 1 << 20
"""About 2,500 events: small enough to stay in the cache while they are decoded."""
MOST_PIECES = 1 << 13
PROBE_BYTES = 1 << 16
HEAD_LIMIT_BYTES = 1 << 28
EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')
GZIP_MAGIC = b"\x1f\x8b"
ENDING_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Inflater(Protocol):
    """What `zlib.decompressobj` and its faster stand-ins share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes) -> bytes: ...


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
    empty: bool
    """No event at all."""


def is_gzip(file: BinaryIO) -> bool:
    """Whether the content (not the name) is gzip."""
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return magic == GZIP_MAGIC


def located(name: str, blocks: Iterator[bytes]) -> tuple[EventList, bytes]:
    """Where the events begin, and what was read beyond that."""
    head = b""
    for block in blocks:
        head += block
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
        empty=key is None,
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
    window = PROBE_BYTES
    while True:
        file.seek(offset)
        text = file.read(window)
        found = boundary.search(text)
        if found is not None:
            return offset + comma_after(found)
        if offset + len(text) >= size:
            return None
        window *= 4


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


def inflated(file: BinaryIO) -> Iterator[bytes]:
    """The content of a gzip file in blocks, as far as it is whole; several members in a row are one content."""
    inflater: Inflater = zlib.decompressobj(wbits=31)
    while block := file.read(1 << 20):
        while block:
            try:
                content = inflater.decompress(block)
            except zlib.error:
                return
            if content:
                yield content
            block = b""
            if inflater.eof:
                block = inflater.unused_data
                inflater = zlib.decompressobj(wbits=31)


def streamed_pieces(
    blocks: Iterator[bytes], rest: bytes, events: EventList, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[bytes, bool]]:
    """Pieces of whole events from a stream, each with whether it is the last; `rest` is what was read already."""
    buffer = rest
    for block in blocks:
        buffer += block
        if len(buffer) < piece_bytes:
            continue
        found = list(events.boundary.finditer(buffer, len(buffer) - PROBE_BYTES)) or list(
            events.boundary.finditer(buffer)
        )
        if found:
            comma = comma_after(found[-1])
            yield buffer[:comma], False
            buffer = buffer[comma + 1 :]
    yield buffer, True


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
