from __future__ import annotations

import json
from typing import Any

import pytest

from addrfrac.parse import damage, events


def event(name: str, **args: Any) -> str:
    return json.dumps({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": args})


def names(repaired: damage.Repaired) -> list[str]:
    return [each["name"] for each in json.loads(repaired.text)]


def repair(text: str) -> damage.Repaired:
    return damage.repair(text.encode(), events.decodes)


def test_only_the_bad_event_is_touched() -> None:
    good, bad = event("good", note=[1, {"deep": "x"}]), event("bad", note="PLACE").replace('"PLACE"', "NaN")
    repaired = repair(f"{good}, {bad}, {good}")
    assert names(repaired) == ["good", "bad", "good"]
    assert repaired.text.decode().count('"deep"') == 2
    assert repaired.unreadable == 0


def test_objects_inside_an_event_do_not_pass_for_events() -> None:
    inner = [{"name": "a"}, {"name": "b", "ph": "X"}, {"ph": "x"}]
    bad = event("outer", inner=inner, note="PLACE").replace('"PLACE"', "Infinity")
    assert names(repair(f"{event('first')}, {bad}, {event('last')}")) == ["first", "outer", "last"]


def test_a_torn_event_costs_only_itself() -> None:
    torn = event("torn")[:40]
    for text in (f"{event('a')}, {torn}, {event('b')}", f"{torn}{event('a')}, {event('b')}"):
        repaired = repair(text)
        assert names(repaired) == ["a", "b"]
        assert repaired.unreadable == 1


def test_what_is_no_event_is_counted() -> None:
    repaired = repair(f"{event('a')}, 17, {event('b')}, null, [], {event('c')}")
    assert names(repaired) == ["a", "b", "c"]
    assert repaired.unreadable == 2


def test_missing_commas_do_no_harm() -> None:
    assert names(repair(event("a") + event("b") + "\n" + event("c"))) == ["a", "b", "c"]


def test_stamps_of_a_mended_event_keep_all_their_digits() -> None:
    text = event("a", note="PLACE").replace('"PLACE"', "NaN").replace("1.5", "1712195495505582.988")
    assert b"1712195495505582.988" in repair(text).text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), ("12", 12), (2.9, 2), (True, None), (None, None), ("x", None), (1 << 70, None), ([1], None)],
)
def test_whole_numbers_are_taken_from_numbers_and_their_texts_only(value: Any, expected: int | None) -> None:
    assert damage.whole_number(value) == expected
