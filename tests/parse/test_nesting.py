from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.parse import nesting


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    thread, start, length = np.array(rows, np.int64).reshape(-1, 3).T
    return thread, start, start + length


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Properly nested intervals with distinct stamps on a few threads, as (thread, start, length), in any order."""
    rows: list[tuple[int, int, int]] = []
    for thread in range(draw(st.integers(1, 3))):
        clock, open_starts = 0, []
        for opens in draw(st.lists(st.booleans(), max_size=40)):
            clock += draw(st.integers(1, 5))
            if opens:
                open_starts.append(clock)
            elif open_starts:
                begin = open_starts.pop()
                rows.append((thread, begin, clock - begin))
        for begin in reversed(open_starts):
            clock += 1
            rows.append((thread, begin, clock - begin))
    return draw(st.permutations(rows))


@given(nested(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 250)), max_size=30))
@settings(max_examples=200)
def test_the_innermost_interval_is_the_latest_that_is_open(
    rows: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    thread, start, end = columns(rows)
    forest = nesting.nest(thread, start, end)
    asked_thread, moment = np.array(asked, np.int64).reshape(-1, 2).T
    found = nesting.innermost(forest, asked_thread, moment)
    for (number, now), row in zip(asked, found.tolist(), strict=True):
        around = [s for t, s, length in rows if t == number and s <= now < s + length]
        assert (forest.start[row] if row >= 0 else None) == (max(around) if around else None)


@given(nested())
def test_a_parent_is_the_shortest_interval_around(rows: list[tuple[int, int, int]]) -> None:
    forest = nesting.nest(*columns(rows))
    for row in range(len(rows)):
        around = [
            other
            for other in range(len(rows))
            if other != row
            and forest.thread[other] == forest.thread[row]
            and forest.start[other] <= forest.start[row]
            and forest.end[other] >= forest.end[row]
        ]
        expected = min(around, key=lambda other: forest.end[other] - forest.start[other], default=-1)
        assert forest.parent[row] == expected
    for depth, level in enumerate(forest.levels):
        for row in level.tolist():
            ancestors = 0
            while (row := forest.parent[row]) >= 0:
                ancestors += 1
            assert ancestors == depth


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20)), max_size=40))
def test_intervals_that_overlap_without_nesting_never_hold_a_moment_outside_them(
    rows: list[tuple[int, int, int]],
) -> None:
    forest = nesting.nest(*columns(rows))
    moment = np.arange(-1, 62, dtype=np.int64)
    for thread in range(3):
        found = nesting.innermost(forest, np.full(len(moment), thread), moment)
        for now, row in zip(moment.tolist(), found.tolist(), strict=True):
            assert row < 0 or forest.start[row] <= now <= forest.end[row]
            assert row < 0 or forest.thread[row] == thread


def test_of_equal_intervals_the_first_recorded_is_the_outer() -> None:
    forest = nesting.nest(*columns([(0, 5, 10), (0, 5, 10)]))
    assert forest.parent.tolist() == [-1, 0]
    assert np.arange(2)[forest.order].tolist() == [0, 1]


def test_threads_get_one_number_over_several_tables() -> None:
    first, second = nesting.thread_numbers(
        (np.array([1, 1, 2]), np.array([7, 8, 7])), (np.array([2, 1]), np.array([7, 7]))
    )
    assert first[2] == second[0]
    assert first[0] == second[1]
    assert len({*first.tolist(), *second.tolist()}) == 3


def test_no_intervals_enclose_nothing() -> None:
    forest = nesting.nest(*columns([]))
    assert nesting.innermost(forest, np.array([0]), np.array([5])).tolist() == [-1]
