"""Which kernels are of which step, and which part of the device timeline a step holds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.errors import AddrfracError
from addrfrac.window import find_window


@pytest.fixture
def built(trace_builder):
    return trace_builder()


def step_names(trace, window):
    """The name of each kernel's step, in order of start; None outside."""
    return [window.names[s] if s >= 0 else None for s in window.step]


def parts(window):
    return list(zip(window.start_ns.tolist(), window.end_ns.tolist(), strict=True))


def three_steps(built):
    """Steps of 100 ns on the host; each launches one kernel that runs 150 ns later."""
    for number in range(3):
        built.step(number, 100 * number, 100 * number + 99)
        built.launched(f"kernel {number}", 100 * number + 10, 100 * number + 160, 100 * number + 200)
    return built.build()


def test_a_kernel_belongs_to_the_step_that_launched_it_however_late_it_runs(built):
    trace = three_steps(built)
    window = find_window(trace)
    # Kernel 0 runs wholly while the host is in step 1.
    assert step_names(trace, window) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_profiler_steps_tile_the_device_timeline(built):
    # What the device did before the first kernel is not in the trace.
    assert parts(find_window(three_steps(built))) == [(160, 200), (200, 300), (300, 400)]


def test_a_launch_between_two_profiler_steps_belongs_to_the_first(built):
    built.step(0, 0, 50)
    built.step(1, 100, 150)
    built.launched("inside", 10, 20, 30)
    built.launched("between", 70, 80, 90)
    built.launched("next", 110, 120, 130)
    trace = built.build()
    assert step_names(trace, find_window(trace)) == ["ProfilerStep#0", "ProfilerStep#0", "ProfilerStep#1"]


def test_work_launched_outside_every_step_is_left_out(built):
    built.step(0, 100, 200)
    built.launched("before", 10, 20, 30)
    built.launched("inside", 110, 120, 130)
    built.launched("after", 300, 310, 320)
    trace = built.build()
    assert step_names(trace, find_window(trace)) == [None, "ProfilerStep#0", None]


def test_the_first_step_begins_with_its_host_range_not_with_the_work_of_long_ago(built):
    built.step(0, 10_000, 10_100)
    built.launched("set-up", 0, 5, 10)
    built.launched("inside", 10_010, 10_020, 10_090)
    assert parts(find_window(built.build())) == [(10_000, 10_090)]


def test_the_first_step_begins_when_the_work_before_it_has_ended(built):
    built.step(0, 100, 200)
    built.launched("warm-up", 10, 90, 150)
    built.launched("inside", 110, 155, 190)
    assert parts(find_window(built.build())) == [(150, 190)]


def test_steps_are_chosen_as_a_slice(built):
    trace = three_steps(built)
    assert find_window(trace, steps="1:3").names == ("ProfilerStep#1", "ProfilerStep#2")
    assert find_window(trace, steps=":1").names == ("ProfilerStep#0",)
    assert find_window(trace, steps="1").names == ("ProfilerStep#1",)
    assert find_window(trace, steps="-1").names == ("ProfilerStep#2",)
    assert parts(find_window(trace, steps="1:2")) == [(200, 300)], "the gap before a step is its own"


@pytest.mark.parametrize("steps", ["3:9", "7", "2:1"])
def test_steps_that_are_not_there_are_refused_with_those_that_are(built, steps):
    with pytest.raises(AddrfracError, match=rf"{steps}.*0:3"):
        find_window(three_steps(built), steps=steps)


@pytest.mark.parametrize("steps", ["a:b", "1:2:3", "1.5"])
def test_steps_that_are_no_slice_are_refused(built, steps):
    with pytest.raises(AddrfracError, match="not of the form a:b"):
        find_window(three_steps(built), steps=steps)


def test_a_lead_in_is_left_out_and_not_counted(trace_builder):
    trace = three_steps(trace_builder(metadata={"addrfrac": {"lead_in": True}}))
    assert find_window(trace).names == ("ProfilerStep#1", "ProfilerStep#2")
    assert find_window(trace, steps="0:1").names == ("ProfilerStep#1",)


def test_a_trace_without_steps_is_one_step(built):
    built.launched("one", 0, 10, 20)
    built.launched("two", 1, 30, 40)
    window = find_window(built.build())
    assert window.names == ("whole trace",)
    assert parts(window) == [(10, 40)]
    assert "no ProfilerStep" in window.how


def test_asking_for_steps_of_a_trace_without_any_is_refused(built):
    built.launched("one", 0, 10, 20)
    with pytest.raises(AddrfracError, match="no ProfilerStep"):
        find_window(built.build(), steps="0:1")


def test_a_trace_without_launch_events_is_one_step_though_it_has_step_ranges(built):
    built.step(0, 0, 50)
    built.kernel("one", 10, 20)
    window = find_window(built.build())
    assert window.names == ("whole trace",)
    assert "launch events" in window.how


def test_a_trace_without_device_work_is_refused(built):
    built.step(0, 0, 50)
    with pytest.raises(AddrfracError, match="no device work"):
        find_window(built.build())


def test_a_step_that_launched_nothing_is_left_out_and_counted(built):
    built.step(0, 0, 50)
    built.step(1, 51, 99)
    built.launched("one", 10, 20, 30)
    window = find_window(built.build())
    assert window.names == ("ProfilerStep#0",)
    assert "1 left out" in window.how


def test_kernels_without_launch_event_follow_their_stream(built):
    built.step(0, 0, 99)
    built.step(1, 100, 199)
    built.launched("first", 10, 20, 30)
    built.kernel("after first", 135, 140)
    built.launched("second", 110, 150, 160)
    built.kernel("after second", 161, 170)
    trace = built.build()
    assert step_names(trace, find_window(trace)) == ["ProfilerStep#0"] * 2 + ["ProfilerStep#1"] * 2


def test_work_enqueued_before_the_recording_is_of_no_step_and_the_first_step_begins_after_it(built):
    built.step(0, 100, 200)
    built.kernel("left over", 120, 300)
    built.launched("mine", 110, 300, 340)
    trace = built.build()
    window = find_window(trace)
    assert step_names(trace, window) == [None, "ProfilerStep#0"]
    assert parts(window) == [(300, 340)]


def test_work_that_began_while_the_recorder_missed_the_calls_is_of_the_step_of_that_time(built):
    built.step(0, 100, 200)
    built.kernel("missed", 120, 130)
    built.launched("recorded", 150, 160, 170)
    trace = built.build()
    assert step_names(trace, find_window(trace)) == ["ProfilerStep#0"] * 2


def test_a_kernel_without_launch_does_not_follow_a_stream_of_another_device(built):
    built.step(0, 0, 99)
    built.launched("first", 10, 20, 30, stream=7, device=0)
    built.kernel("elsewhere", 35, 40, stream=7, device=1)  # enqueued before the recording
    trace = built.build()
    assert step_names(trace, find_window(trace)) == ["ProfilerStep#0", None]


def test_launches_of_another_process_are_of_no_step(built):
    built.step(0, 0, 99, process=1)
    built.kernel("mine", 20, 30, launch=built.call(10, 11, process=1))
    built.kernel("theirs", 21, 31, launch=built.call(10, 11, process=2), device=1)
    trace = built.build()
    assert step_names(trace, find_window(trace)) == ["ProfilerStep#0", None]


# --- annotations --------------------------------------------------------------------------------------------


def two_batches(built):
    for number in range(2):
        built.range("batch", 1000 * number, 1000 * number + 100)
        built.launched("work", 1000 * number + 10, 1000 * number + 50, 1000 * number + 90)
    built.launched("elsewhere", 500, 510, 520)
    return built.build()


def test_an_annotation_names_the_steps(built):
    trace = two_batches(built)
    window = find_window(trace, annotation="batch")
    assert step_names(trace, window) == ["batch", None, "batch"]


def test_an_annotated_step_begins_no_earlier_than_the_host_began_it(built):
    assert parts(find_window(two_batches(built), annotation="batch")) == [(50, 90), (1000, 1090)]


def test_an_annotation_can_be_a_pattern(built):
    built.range("execute_1", 0, 10)
    built.range("execute_2", 20, 30)
    built.launched("one", 1, 5, 6)
    built.launched("two", 21, 25, 26)
    assert find_window(built.build(), annotation="execute_*").names == ("execute_1", "execute_2")


def test_an_unknown_annotation_is_refused_with_those_there_are(built):
    with pytest.raises(AddrfracError, match=r"'bach'.*batch"):
        find_window(two_batches(built), annotation="bach")


def test_a_range_inside_another_of_the_pattern_is_no_step_of_its_own(built):
    built.range("execute outer", 0, 100)
    built.range("execute inner", 10, 20)
    built.launched("early", 15, 30, 40)
    built.launched("late", 50, 60, 70)
    trace = built.build()
    window = find_window(trace, annotation="execute*")
    assert window.names == ("execute outer",)
    assert step_names(trace, window) == ["execute outer", "execute outer"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 20), st.integers(7, 8)), min_size=1, max_size=8
    ),
    st.booleans(),
)
def test_windows_are_sorted_and_disjoint(trace_builder, edges, work, tiled):
    built = trace_builder()
    edges.sort()
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        built.range(f"step {number}", low, high, step=tiled)
    built.launched("always", edges[0], edges[0], edges[0] + 3)
    for called, delay, length, stream in work:
        built.launched("kernel", called, called + delay, called + delay + length, stream=stream)
    window = find_window(built.build()) if tiled else find_window(built.build(), annotation="step*")
    assert (window.end_ns >= window.start_ns).all()
    assert (window.start_ns[1:] >= window.end_ns[:-1]).all()
    assert np.unique(window.step[window.step >= 0]).size == window.steps, "each step launched something"
