from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addrfrac.parse import skim


def python_event(name: str = "torch/nn/modules/linear.py(12): forward", **fields: object) -> dict[str, object]:
    event = {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}
    return {**event, "args": {"Python id": 1}, **fields}


def instant() -> dict[str, object]:
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {}}


def kernel() -> dict[str, object]:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3, "dur": 1, "args": {}}


def test_a_piece_of_python_frames_is_passed_over() -> None:
    found = skim.skim(json.dumps([python_event()] * 50).encode())
    assert found is not None
    assert (found.events, found.kept) == (50, b"")


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True}])
def test_module_calls_are_kept(layout: dict[str, object]) -> None:
    modules = [python_event(f"nn.Module: Linear_{number}", args={"Python id": number}) for number in range(3)]
    events = [modules[0], python_event(), python_event(), modules[1], python_event(), modules[2]]
    found = skim.skim(json.dumps(events, **layout).encode())  # type: ignore[arg-type]
    assert found is not None
    assert found.events == 3
    assert json.loads(found.kept) == modules


@pytest.mark.parametrize("place", [0, 25, 50])
def test_one_wanted_event_anywhere_makes_the_whole_piece_be_decoded(place: int) -> None:
    events = [python_event()] * 50
    events.insert(place, kernel())
    assert skim.skim(json.dumps(events).encode()) is None


def test_a_wanted_event_written_otherwise_than_its_neighbours_is_not_missed() -> None:
    text = json.dumps([python_event()] * 10 + [kernel()] + [python_event()] * 10)
    for odd in ('"cat":"kernel"', '"cat" : "kernel"', '"cat":\n"kernel"'):
        assert skim.skim(text.replace('"cat": "kernel"', odd).encode()) is None


def test_two_kinds_that_nobody_reads_may_stand_in_one_piece() -> None:
    found = skim.skim(json.dumps([instant()] * 7 + [python_event()] * 5).encode())
    assert found is not None
    assert found.events == 12


def test_quoted_text_that_looks_like_a_category_does_not_count() -> None:
    sly = python_event('say "cat": "python_function"')
    found = skim.skim(json.dumps([sly] * 4).encode())
    assert found is None or found.events == 4


@given(st.lists(st.sampled_from([python_event(), python_event("nn.Module: M_0"), instant(), kernel()]), max_size=12))
def test_no_wanted_event_is_ever_lost(events: list[dict[str, object]]) -> None:
    found = skim.skim(json.dumps(events).encode())
    if found is not None:
        kept = json.loads(found.kept) if found.kept else []
        assert kept == [event for event in events if event["name"] == "nn.Module: M_0"]
        assert all(event["cat"] != "kernel" for event in events)
        assert found.events + len(kept) == len(events)


@given(st.binary(max_size=200).map(lambda noise: noise.replace(b'"cat', b"") + b'"cat' + noise[:50]))
def test_four_bytes_are_counted_like_a_search_counts_them(text: bytes) -> None:
    assert skim.count_of_four(text, b'"cat') == text.count(b'"cat')
