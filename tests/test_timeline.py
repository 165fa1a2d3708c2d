"""The sweep over integer nanoseconds against a model that looks at every single one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from addrfrac.timeline import merge, occupancy, serialise_streams

LONGEST = 30


@dataclass(frozen=True)
class Case:
    """Kernels with a group each, and windows."""

    start: list[int]
    end: list[int]
    group: list[int]
    windows: list[tuple[int, int]]
    groups: int = 3


@st.composite
def cases(draw: st.DrawFn) -> Case:
    spans = draw(st.lists(st.tuples(st.integers(0, LONGEST), st.integers(0, 8), st.integers(0, 2)), max_size=12))
    edges = sorted(draw(st.lists(st.integers(0, LONGEST + 8), min_size=2, max_size=6)))
    if len(edges) % 2:
        edges = edges[:-1]
    return Case(
        start=[s for s, _, _ in spans],
        end=[s + length for s, length, _ in spans],
        group=[g for _, _, g in spans],
        windows=list(zip(edges[::2], edges[1::2], strict=True)),
    )


def active_groups(case: Case, moment: int) -> set[int]:
    return {g for s, e, g in zip(case.start, case.end, case.group, strict=True) if s <= moment < e}


def swept(case: Case):
    window = np.array(case.windows, dtype=np.int64).reshape(-1, 2)
    return occupancy(
        np.array(case.start, dtype=np.int64),
        np.array(case.end, dtype=np.int64),
        np.array(case.group, dtype=np.int32),
        case.groups,
        window[:, 0],
        window[:, 1],
    )


@settings(max_examples=300, deadline=None)
@given(cases())
@example(Case(start=[0, 2], end=[5, 4], group=[0, 1], windows=[]))
@example(Case(start=[], end=[], group=[], windows=[(3, 9)]))
@example(Case(start=[0, 0], end=[9, 9], group=[0, 0], windows=[(0, 4), (4, 4), (4, 9)]))
def test_the_sweep_equals_a_count_of_every_nanosecond(case):
    found = swept(case)
    for k, (low, high) in enumerate(case.windows):
        active = [active_groups(case, moment) for moment in range(low, high)]
        assert found.busy_ns[k] == sum(1 for groups in active if groups)
        assert found.overlap_ns[k] == sum(1 for groups in active if len(groups) > 1)
        for g in range(case.groups):
            assert found.exclusive_ns[k, g] == sum(1 for groups in active if groups == {g})
            assert found.union_ns[k, g] == sum(1 for groups in active if g in groups)
            np.testing.assert_allclose(
                found.even_ns[k, g], sum(1 / len(groups) for groups in active if g in groups), atol=1e-9
            )


@settings(max_examples=200, deadline=None)
@given(cases())
def test_exclusive_and_overlap_close_on_busy_to_the_nanosecond(case):
    found = swept(case)
    np.testing.assert_array_equal(found.exclusive_ns.sum(axis=1) + found.overlap_ns, found.busy_ns)
    np.testing.assert_allclose(found.even_ns.sum(axis=1), found.busy_ns, atol=1e-9)
    assert (found.union_ns >= found.exclusive_ns).all()
    assert (found.union_ns.sum(axis=1) >= found.busy_ns).all()


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 10**18))
def test_stamps_of_this_century_lose_no_nanosecond(case, offset):
    moved = Case(
        start=[s + offset for s in case.start],
        end=[e + offset for e in case.end],
        group=case.group,
        windows=[(low + offset, high + offset) for low, high in case.windows],
    )
    np.testing.assert_array_equal(swept(moved).exclusive_ns, swept(case).exclusive_ns)
    np.testing.assert_array_equal(swept(moved).busy_ns, swept(case).busy_ns)


def test_windows_that_touch_share_no_time_and_lose_none():
    whole = swept(Case(start=[2, 5], end=[8, 11], group=[0, 1], windows=[(0, 12)]))
    parts = swept(Case(start=[2, 5], end=[8, 11], group=[0, 1], windows=[(0, 6), (6, 7), (7, 12)]))
    assert parts.busy_ns.sum() == whole.busy_ns[0] == 9
    assert parts.overlap_ns.sum() == whole.overlap_ns[0] == 3


# --- streams ------------------------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    spans = draw(st.lists(st.tuples(st.integers(0, LONGEST), st.integers(0, 8), st.integers(0, 1)), max_size=10))
    spans.sort(key=lambda span: span[0])
    return (
        np.array([s for s, _, _ in spans], dtype=np.int64),
        np.array([s + length for s, length, _ in spans], dtype=np.int64),
        np.array([stream for _, _, stream in spans], dtype=np.int64),
    )


@settings(max_examples=200, deadline=None)
@given(streams())
def test_a_serial_stream_runs_one_kernel_at_a_time_over_the_same_moments(case):
    start, end, stream = case
    serial_start, serial_end = serialise_streams(start, end, stream)
    assert (serial_end >= serial_start).all()
    for one in np.unique(stream):
        rows = np.flatnonzero(stream == one)
        before = {m for i in rows for m in range(start[i], end[i])}
        after = [m for i in rows for m in range(serial_start[i], serial_end[i])]
        assert len(after) == len(set(after)), "two kernels of a stream hold one moment"
        assert set(after) == before


def test_under_dependent_launch_the_earlier_kernel_keeps_the_moment():
    start, end = serialise_streams(np.array([0, 8]), np.array([10, 20]), np.array([7, 7]))
    assert list(zip(start, end, strict=True)) == [(0, 10), (10, 20)]


def test_a_kernel_inside_an_earlier_one_of_its_stream_holds_nothing():
    start, end = serialise_streams(np.array([0, 2, 12]), np.array([10, 5, 15]), np.array([7, 7, 7]))
    assert (end - start).tolist() == [10, 0, 3]


def test_other_streams_keep_their_overlap():
    start, end = serialise_streams(np.array([0, 2]), np.array([10, 5]), np.array([7, 8]))
    assert (end - start).tolist() == [10, 3]


def test_merged_intervals_are_disjoint_and_touching_ones_are_one():
    start, end = merge(np.array([5, 0, 3, 9, 9]), np.array([8, 3, 5, 9, 12]))
    assert list(zip(start, end, strict=True)) == [(0, 8), (9, 12)]
