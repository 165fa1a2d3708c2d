"""Why nothing ran: each kind of gap by the smallest timeline that shows it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.gaps import KINDS, find_gaps
from addrfrac.records import GapKind


def gaps_of(built, low, high):
    """(kind, length, name of the kernel that follows) of each gap in one window."""
    trace = built.build()
    kernels = trace.kernels
    found = find_gaps(
        kernels.start_ns,
        kernels.end_ns,
        kernels.stream,
        kernels.launch,
        trace.launches,
        np.array([low], dtype=np.int64),
        np.array([high], dtype=np.int64),
    )
    return [
        (KINDS[kind], int(length), trace.names[kernels.name[follower]] if follower >= 0 else None)
        for kind, length, follower in zip(found.kind, found.length_ns, found.follower, strict=True)
    ]


@pytest.fixture
def built(trace_builder):
    return trace_builder()


def test_a_queued_gap_belongs_to_the_kernel_that_follows(built):
    built.launched("first", 0, 10, 20)
    built.launched("second", 5, 23, 30)  # enqueued while the first still ran
    assert gaps_of(built, 10, 30) == [(GapKind.QUEUED, 3, "second")]


def test_a_kernel_launched_after_the_device_fell_idle_starved_for_the_host(built):
    built.launched("first", 0, 10, 20)
    built.launched("second", 25, 32, 40)
    assert gaps_of(built, 10, 40) == [(GapKind.HOST_STARVED, 12, "second")]


def test_a_launch_call_that_began_before_but_returned_after_the_last_kernel_is_starvation(built):
    built.launched("first", 0, 10, 20)
    built.kernel("second", 24, 30, launch=built.call(15, 22))
    assert gaps_of(built, 10, 30) == [(GapKind.HOST_STARVED, 4, "second")]


def test_a_launch_that_returned_just_as_the_device_fell_idle_was_queued(built):
    built.launched("first", 0, 10, 20)
    built.kernel("second", 24, 30, launch=built.call(15, 20))
    assert gaps_of(built, 10, 30) == [(GapKind.QUEUED, 4, "second")]


def test_a_host_that_waited_for_the_device_could_not_launch_sooner(built):
    built.launched("first", 0, 10, 20)
    built.call(2, 22, "cudaStreamSynchronize", sync=True)
    built.launched("second", 24, 30, 40)
    assert gaps_of(built, 10, 40) == [(GapKind.SYNCHRONISATION, 10, "second")]


def test_a_wait_that_began_when_the_device_was_idle_delayed_nothing(built):
    built.launched("first", 0, 10, 20)
    built.call(21, 22, "cudaStreamSynchronize", sync=True)
    built.launched("second", 24, 30, 40)
    assert gaps_of(built, 10, 40) == [(GapKind.HOST_STARVED, 10, "second")]


def test_a_second_wait_on_an_idle_device_does_not_hide_the_first(built):
    built.launched("first", 0, 10, 20)
    built.call(2, 22, "cudaStreamSynchronize", sync=True)
    built.call(23, 24, "cudaEventSynchronize", sync=True)
    built.launched("second", 26, 30, 40)
    assert gaps_of(built, 10, 40) == [(GapKind.SYNCHRONISATION, 10, "second")]


def test_a_wait_on_another_thread_does_not_excuse_the_launching_one(built):
    built.launched("first", 0, 10, 20)
    built.call(2, 22, "cudaStreamSynchronize", sync=True, thread=2)
    built.launched("second", 24, 30, 40)
    assert gaps_of(built, 10, 40)[0][0] is GapKind.HOST_STARVED


def test_threads_of_two_processes_with_one_number_are_two_threads(built):
    built.launched("first", 0, 10, 20)
    built.call(2, 22, "cudaStreamSynchronize", sync=True, thread=1, process=2)
    built.launched("second", 24, 30, 40)
    assert gaps_of(built, 10, 40)[0][0] is GapKind.HOST_STARVED


def test_a_wait_for_an_earlier_kernel_does_not_count_for_a_later_gap(built):
    built.launched("first", 0, 10, 20)
    built.call(2, 15, "cudaEventSynchronize", sync=True)  # came back while the device still worked
    built.launched("second", 24, 30, 40)
    assert gaps_of(built, 10, 40)[0][0] is GapKind.HOST_STARVED


def test_an_enqueued_kernel_after_one_of_another_stream_waited_for_it(built):
    built.launched("first", 0, 10, 20, stream=7)
    built.launched("second", 5, 24, 30, stream=8)
    assert gaps_of(built, 10, 30) == [(GapKind.DEPENDENCY, 4, "second")]


def test_the_stream_that_ends_last_before_the_gap_decides_what_was_waited_for(built):
    built.launched("long", 0, 10, 30, stream=7)
    built.launched("short", 1, 12, 20, stream=8)
    built.launched("next", 5, 34, 40, stream=7)
    assert gaps_of(built, 10, 40) == [(GapKind.QUEUED, 4, "next")]


def test_an_enqueued_kernel_that_stays_away_for_long_waited_for_something(built):
    built.launched("first", 0, 10, 20)
    built.launched("second", 5, 60_020, 60_030)  # no dispatch takes 60 us
    assert gaps_of(built, 10, 60_030) == [(GapKind.DEPENDENCY, 60_000, "second")]


def test_a_kernel_without_launch_event_leaves_its_gap_unexplained(built):
    built.launched("first", 0, 10, 20)
    built.kernel("second", 24, 30)
    assert gaps_of(built, 10, 30) == [(GapKind.UNEXPLAINED, 4, "second")]


def test_nodes_of_one_graph_launch_are_queued_though_the_call_still_returns(built):
    call = built.call(0, 100, "cudaGraphLaunch", graph=True)
    built.kernel("node one", 10, 20, launch=call)
    built.kernel("node two", 22, 30, launch=call)
    assert gaps_of(built, 10, 30) == [(GapKind.QUEUED, 2, "node two")]


def test_a_branch_of_a_graph_on_another_stream_is_a_dependency(built):
    call = built.call(0, 100, "cudaGraphLaunch", graph=True)
    built.kernel("node one", 10, 20, launch=call, stream=7)
    built.kernel("node two", 22, 30, launch=call, stream=8)
    assert gaps_of(built, 10, 30) == [(GapKind.DEPENDENCY, 2, "node two")]


def test_the_first_node_of_a_graph_launched_too_late_starved(built):
    built.launched("before", 0, 10, 20)
    call = built.call(25, 40, "cudaGraphLaunch", graph=True)
    built.kernel("node one", 30, 50, launch=call)
    assert gaps_of(built, 10, 50) == [(GapKind.HOST_STARVED, 10, "node one")]


def test_the_gap_at_the_head_of_a_window_is_measured_from_the_window(built):
    built.launched("only", 5, 15, 20)
    assert gaps_of(built, 10, 20) == [(GapKind.QUEUED, 5, "only")]


def test_idle_time_at_the_end_of_a_window_is_a_gap_that_no_kernel_follows(built):
    built.launched("only", 5, 10, 20)
    assert gaps_of(built, 10, 26) == [(GapKind.DEPENDENCY, 6, None)]


def test_a_window_in_which_nothing_ran_is_one_gap(built):
    built.launched("elsewhere", 5, 10, 20)
    assert [length for _, length, _ in gaps_of(built, 30, 40)] == [10]


def test_kernels_that_overlap_leave_no_gap(built):
    built.launched("first", 0, 10, 20, stream=7)
    built.launched("second", 1, 15, 25, stream=8)
    assert gaps_of(built, 10, 25) == []


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(7, 8)), max_size=8),
    st.lists(st.integers(0, 50), min_size=2, max_size=5, unique=True),
)
def test_gaps_and_busy_time_close_on_every_window(trace_builder, spans, edges):
    built = trace_builder()
    for start, length, stream in spans:
        built.launched("kernel", max(start - 5, 0), start, start + length, stream=stream)
    edges.sort()
    trace = built.build()
    kernels = trace.kernels
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    found = find_gaps(kernels.start_ns, kernels.end_ns, kernels.stream, kernels.launch, trace.launches, low, high)
    for k, window in enumerate(zip(low, high, strict=True)):
        idle = sum(1 for m in range(*window) if not any(s <= m < s + length for s, length, _ in spans))
        assert found.length_ns[found.step == k].sum() == idle
