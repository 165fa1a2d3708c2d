from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import pytest

from addrfrac.parse import scan


def trace_bytes(events: list[dict[str, Any]], **layout: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}, **layout).encode()


def event(number: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": number, "dur": 1, "args": args}


def pieces_of(content: bytes, monkeypatch: pytest.MonkeyPatch, piece_bytes: int = 300) -> list[bytes]:
    """The pieces that a plain file is cut into."""
    monkeypatch.setattr(scan, "PIECE_BYTES", piece_bytes)
    file = io.BytesIO(content)
    events, _ = scan.located("x", iter([content]))
    cuts = scan.cut_offsets(file, events, len(content))
    return [scan.read_between(file, cut, next_cut) for cut, next_cut in pairwise(cuts)]


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}])
def test_pieces_are_whole_events_in_their_order(monkeypatch: pytest.MonkeyPatch, layout: Any) -> None:
    made = [event(number, note="}, {", list=[{"a": 1}, {"b": 2}]) for number in range(40)]
    pieces = pieces_of(trace_bytes(made, **layout), monkeypatch)
    assert len(pieces) > 5
    ending = scan.split_ending(pieces[-1], bare=False)
    found = [json.loads(b"[" + piece + b"]") for piece in (*pieces[:-1], ending.events)]
    assert [each for piece in found for each in piece] == made
    assert ending.closed
    assert ending.fields == {"traceName": "x"}


def test_lists_of_objects_inside_an_event_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first key is the events' own."""
    made = [
        {"name": f"k{number}", "ph": "X", "args": {"frames": [{"name": "a"}, {"name": "b"}, {"name": "c"}] * 4}}
        for number in range(30)
    ]
    pieces = pieces_of(trace_bytes(made), monkeypatch)
    assert len(pieces) > 5
    for piece in pieces[:-1]:
        assert all("ph" in each for each in json.loads(b"[" + piece + b"]"))


def test_a_stream_is_cut_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [event(number, frames=[{"ph": "a"}, {"ph": "b"}]) for number in range(40)]
    content = trace_bytes(made)
    blocks = iter([content[begin : begin + 700] for begin in range(0, len(content), 700)])
    events, rest = scan.located("x", blocks)
    pieces = list(scan.streamed_pieces(blocks, rest, events, lambda index: True))
    assert [index for index, _ in pieces] == [*range(len(pieces) - 1), -1]
    ending = scan.split_ending(pieces[-1][1], bare=False)
    found = [json.loads(piece) for _, piece in pieces[:-1]] + [json.loads(b"[" + ending.events + b"]")]
    assert [each for piece in found for each in piece] == made


def test_pieces_that_nobody_wants_are_not_made() -> None:
    content = trace_bytes([event(number) for number in range(40)])
    blocks = iter([content[begin : begin + 700] for begin in range(0, len(content), 700)])
    events, rest = scan.located("x", blocks)
    indexes = [index for index, _ in scan.streamed_pieces(blocks, rest, events, lambda index: index % 2 == 1)]
    assert indexes == [*range(1, indexes[-2] + 1, 2), -1]


def test_fields_before_the_events_are_kept_even_when_long() -> None:
    head = {"metadata": {"text": "x" * 200_000}, "value": 3}
    content = json.dumps({**head, "traceEvents": [event(1)]}).encode()
    blocks = iter([content[begin : begin + 1000] for begin in range(0, len(content), 1000)])
    events, _ = scan.located("x", blocks)
    assert events.head == head


def test_fields_that_are_not_quite_json_are_read_all_the_same() -> None:
    events, _ = scan.located("x", iter([b'{"a": NaN, "b": "tab\there", "traceEvents": []}']))
    assert events.head["b"] == "tab\there"


@pytest.mark.parametrize("rest", ['], "traceName": "x"}', "]}", "]\n}\n", '], "INFO": ["a, {", "]"]}'])
def test_the_end_of_the_list_is_found_behind_an_event_that_is_not_quite_json(rest: str) -> None:
    text = json.dumps(event(1, bandwidth="PLACE")).replace('"PLACE"', "NaN")
    ending = scan.split_ending((text + rest).encode(), bare=False)
    assert ending.events.strip() == text.encode()
    assert ending.closed


def test_a_buffer_serves_pieces_of_any_length() -> None:
    file = io.BytesIO(b"[aaaa,bb,cccccc,")
    buffer = bytearray()
    for cut, next_cut, expected in ((0, 5, b"[aaaa]"), (5, 8, b"[bb]"), (8, 15, b"[cccccc]")):
        scan.read_list(file, cut, next_cut, buffer)
        assert bytes(buffer) == expected
