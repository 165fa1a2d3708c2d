"""Floors of calls and steps: on traces built by hand, and on kernels recorded on an H200."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac import store
from addrfrac.analysis import Options, analyze
from addrfrac.dataflow import Crossing, Group
from addrfrac.fits import fit_access
from addrfrac.floors import Known, Reach, floor_of, floors, reach
from addrfrac.records import (
    AccessFit,
    Bound,
    DeviceModel,
    Environment,
    Floors,
    MatmulPeak,
    Op,
    OpInputs,
    Range,
    Run,
)
from addrfrac.shares import device_timeline
from addrfrac.window import find_window
from addrfrac.work import Work

TRACES = Path(__file__).parent / "traces"
L2_BYTES = 50_000_000
# Near what is published of the card: nothing below depends on the exact figures.
COLD = {"stream": (1.3, 4300.0), "write": (1.2, 4680.0), "reduce": (1.5, 4400.0), "gather": (2.0, 3900.0)}
L2 = {"stream": (0.8, 9000.0), "write": (0.65, 9000.0)}


@cache
def fit(access: str, residency: str, t0_us: float, gb_per_s: float) -> AccessFit:
    samples = {size: [t0_us + size / gb_per_s / 1e3] for size in (10**5, 10**6, 10**7, 10**8)}
    return fit_access(access=access, residency=residency, samples_us=samples, what="of the tests")


def model(**changes: Any) -> DeviceModel:
    environment = Environment(
        device="NVIDIA H200",
        device_kind="cuda",
        device_memory_bytes=None,
        multiprocessors=132,
        l2_bytes=L2_BYTES,
        driver="",
        host_cpu="",
        python="",
        platform="",
        versions={},
        settings={},
    )
    whole = DeviceModel(
        schema=1,
        created="",
        version="",
        command="",
        environment=environment,
        fits=(
            *(fit(access, "cold", *line) for access, line in COLD.items()),
            *(fit(access, "l2", *line) for access, line in L2.items()),
        ),
        peaks=(MatmulPeak(dtype="bf16", tflops=790.0, low_tflops=780.0, high_tflops=800.0, size=8192),),
        launch_us=3.5,
        graph_node_us=0.5,
    )
    return replace(whole, **changes)


def device() -> Reach:
    found = reach(model())
    assert found is not None
    return found


def moving(low: float, high: float | None = None, access: str = "stream") -> Work:
    return Work(low_bytes=low, high_bytes=low if high is None else high, access=access, basis="of the tests")


# --- one call -----------------------------------------------------------------------------------------------


def test_a_large_op_s_floor_is_its_bytes_over_the_bandwidth() -> None:
    found = floor_of(moving(4.3e9), device())
    assert found.high == pytest.approx(1.3 + 1000.0)
    assert found.low is not None
    assert 950.0 < found.low < 1000.0  # some of it may lie in L2, and reducing was a little faster


def test_a_small_op_may_find_its_data_in_l2() -> None:
    found = floor_of(moving(9e6), device())
    assert found.low == pytest.approx(0.8 + 1.0)
    assert found.high == pytest.approx(1.3 + 9e6 / 4.3e6)


def test_only_what_writes_alone_has_the_floor_of_writing() -> None:
    wrote, streamed = floor_of(moving(4e9, access="write"), device()), floor_of(moving(4e9), device())
    assert wrote.low is not None
    assert streamed.low is not None
    assert wrote.low < streamed.low


def test_flops_decide_where_they_take_longer_than_bytes() -> None:
    product = replace(moving(1e6), low_flops=7.9e11, high_flops=7.9e11, dtype="bf16")
    found = floor_of(product, device())
    assert found.high == pytest.approx(1000.0)
    assert found.low == pytest.approx(987.5)


def test_flops_of_a_dtype_without_a_peak_do_not_count() -> None:
    product = replace(moving(1e6), low_flops=7.9e11, high_flops=7.9e11, dtype="fp64")
    assert (floor_of(product, device()).high or 0.0) < 10.0


@settings(deadline=None)
@given(
    moved=st.floats(1.0, 1e10),
    access=st.sampled_from(sorted(COLD)),
    in_l2=st.floats(0.0, 1.0),
    slower=st.floats(1.0, 10.0),
)
def test_no_floor_is_above_an_honest_kernel(moved: float, access: str, in_l2: float, slower: float) -> None:
    """Such a kernel moves its bytes at the measured rate of its access, part of them within L2 as far as they fit."""
    inside = min(moved * in_l2, L2_BYTES)
    cold_t0, cold = COLD[access]
    fastest_t0, fastest = L2.get(access, L2["stream"])
    took = min(cold_t0, fastest_t0) + (inside / fastest + (moved - inside) / cold) / 1e3
    assert (floor_of(moving(moved, access=access), device()).low or 0.0) <= took * slower * (1 + 1e-6)


@settings(deadline=None)
@given(low=st.floats(0.0, 1e10), more=st.floats(0.0, 1e10), access=st.sampled_from([*sorted(COLD), "transpose"]))
def test_an_interval_s_low_end_is_never_above_its_high_end(low: float, more: float, access: str) -> None:
    found = floor_of(moving(low, low + more, access), device())
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.high


# --- calls of a trace ---------------------------------------------------------------------------------------


def shaped(built: Any, calls: list[int], shape: list[int], op: str = "aten::add_") -> tuple[Any, Any]:
    """The built trace, its kernels launched by these calls of an op on one bf16 tensor of that shape."""
    trace, labels = built.build(), built.labels()
    text = json.dumps([shape, shape, []])
    recorded = OpInputs(dims=text, types='["c10::BFloat16", "c10::BFloat16", "Scalar"]', strides="", concrete="")
    kernels = replace(
        trace.kernels,
        op_call=np.array(calls, dtype=np.int32),
        inputs=np.zeros(len(calls), dtype=np.int32),
    )
    table = tuple(replace(label, launching_op=op) for label in labels.table)
    return replace(trace, kernels=kernels, op_inputs=(recorded,)), replace(labels, table=table)


def floors_of(trace: Any, labels: Any, bound: Bound = Bound.REPLACEABLE, **known: Any) -> Floors:
    window = find_window(trace)
    timeline, _ = device_timeline(trace, labels, window)
    bounds = [bound] * len(labels.table)
    return floors(trace, timeline, labels, bounds, window.steps, model(), Known(step_us=1e4, **known))


@pytest.fixture
def two_kernels(trace_builder: Any, label: Any) -> Any:
    """Two kernels of 60 and 30 us, in one step."""
    built = trace_builder()
    launch = built.call(0, 1_000)
    built.kernel("main", 10_000, 70_000, launch=launch, label=label(Op.ELEMENTWISE, "aten"))
    built.kernel("aux", 80_000, 110_000, launch=launch, label=label(Op.ELEMENTWISE, "aten"))
    return built


def test_kernels_of_one_call_share_its_bytes(two_kernels: Any) -> None:
    elements = 4_300_000
    one_call = floors_of(*shaped(two_kernels, [7, 7], [elements]))
    two_calls = floors_of(*shaped(two_kernels, [7, 8], [elements]))
    once = 3 * 2 * elements
    assert sum(row.bytes.high or 0.0 for row in one_call.rows) == pytest.approx(once)
    assert sum(row.bytes.high or 0.0 for row in two_calls.rows) == pytest.approx(2 * once)
    shares = {row.name: row.floor_us.high or 0.0 for row in one_call.rows}
    assert shares["main"] == pytest.approx(2 * shares["aux"])  # in proportion to their time


def test_headroom_is_what_lies_above_the_floor_and_never_negative(two_kernels: Any) -> None:
    found = floors_of(*shaped(two_kernels, [7, 8], [1_000_000]))
    for row in found.rows:
        assert row.floor_us.low is not None
        assert row.floor_us.high is not None
        assert row.headroom_us == Range(low=row.device_us - row.floor_us.high, high=row.device_us - row.floor_us.low)
    assert found.rows[0].name == "main"
    huge = floors_of(*shaped(two_kernels, [7, 8], [10**9]))
    assert all(row.headroom_us == Range(low=0.0, high=0.0) for row in huge.rows)
    assert huge.step_floor_us.high == pytest.approx(90.0)  # no step's floor is above the time that it took


def test_a_kernel_without_shapes_has_no_floor_and_says_why(two_kernels: Any) -> None:
    trace, labels = shaped(two_kernels, [7, 8], [1000])
    bare = replace(trace, kernels=replace(trace.kernels, inputs=np.full(2, -1, dtype=np.int32)))
    found = floors_of(bare, labels)
    assert found.covered_share == 0.0
    assert all(row.floor_us == Range(low=None, high=None) and row.flops is None for row in found.rows)
    assert all("not recorded" in row.basis for row in found.rows)
    assert found.step_floor_us == Range(low=0.0, high=pytest.approx(90.0))
    assert found.flops_utilisation is None


def test_library_kernels_keep_their_time_in_the_standalone_floor(two_kernels: Any) -> None:
    trace, labels = shaped(two_kernels, [7, 8], [1_000_000])
    assert floors_of(trace, labels, Bound.LIBRARY).standalone_us == Range(
        low=pytest.approx(90.0), high=pytest.approx(90.0)
    )
    replaceable = floors_of(trace, labels).standalone_us
    assert (replaceable.high or 0.0) < 10.0


def test_fused_and_absorbed_floors_are_empty_without_the_data_flow(two_kernels: Any) -> None:
    trace, labels = shaped(two_kernels, [7, 8], [1_000_000])
    assert floors_of(trace, labels).fused_us == floors_of(trace, labels).absorbed_us == Range(low=None, high=None)
    known = Crossing(
        ops=3,
        library_ops=1,
        fused=(Group(ops=2, low_bytes=4.3e6, high_bytes=4.3e6), Group(ops=1, low_bytes=0.0, high_bytes=0.0)),
        absorbed_low_bytes=4.3e5,
        absorbed_high_bytes=4.3e5,
        rest=(),
    )
    found = floors_of(trace, labels, crossing=known)
    assert found.fused_us.high == pytest.approx(1.3 + 1.0)
    assert found.absorbed_us.high == pytest.approx(0.1)  # inside a library call there is no launch
    assert (found.absorbed_us.low or 0.0) < (found.fused_us.low or 0.0)


def test_utilisation_is_taken_of_the_unprofiled_step(two_kernels: Any) -> None:
    elements = 4_300_000
    found = floors_of(*shaped(two_kernels, [7, 8], [elements]))
    assert found.bandwidth_utilisation.high == pytest.approx(2 * 3 * 2 * elements / (1e4 * 4.3e6))


def test_a_model_without_a_stream_fit_gives_no_floors_and_says_so(two_kernels: Any) -> None:
    trace, labels = shaped(two_kernels, [7, 8], [1000])
    window = find_window(trace)
    timeline, _ = device_timeline(trace, labels, window)
    found = floors(trace, timeline, labels, [Bound.REPLACEABLE], window.steps, model(fits=()), Known(step_us=1e4))
    assert found.covered_share == 0.0
    assert any("no cold stream fit" in note for note in found.notes)


# --- recorded traces ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> dict[str, Run]:
    options = Options(device_model=model())
    graph = replace(options, capture=TRACES / "h200_resnet50_graph_capture.json.gz")
    return {
        "dlrm": analyze(TRACES / "h200_dlrm_fbgemm_infer.json.gz", options)[0],
        "resnet": analyze(TRACES / "h200_resnet50_graph_trace.json.gz", graph)[0],
    }


@pytest.mark.parametrize("name", ["dlrm", "resnet"])
def test_most_of_a_recorded_step_has_a_floor_and_no_kernel_is_below_it(recorded: dict[str, Run], name: str) -> None:
    found = recorded[name].floors
    assert found is not None
    assert found.covered_share > 0.9
    below = [row for row in found.rows if row.floor_us.low is not None and row.device_us < 0.97 * row.floor_us.low]
    assert not below, [(row.name[:60], row.device_us, row.floor_us) for row in below]


def test_whoever_owns_a_kernel_it_stands_in_the_one_list(recorded: dict[str, Run]) -> None:
    found = recorded["resnet"].floors
    assert found is not None
    assert {Bound.LIBRARY, Bound.REPLACEABLE} <= {row.bound for row in found.rows}
    middles = [(row.headroom_us.low or 0.0) + (row.headroom_us.high or 0.0) for row in found.rows]
    assert middles == sorted(middles, reverse=True)


def test_the_step_s_floor_is_below_the_standalone_floor_and_that_below_the_step(recorded: dict[str, Run]) -> None:
    for run in recorded.values():
        found = run.floors
        assert found is not None
        busy = sum(row.device_us for row in found.rows)
        assert (found.step_floor_us.high or 0.0) <= (found.standalone_us.high or 0.0) <= busy * (1 + 1e-9)


def test_a_run_with_floors_is_saved_and_comes_back(recorded: dict[str, Run], tmp_path: Path) -> None:
    store.save(recorded["dlrm"], tmp_path / "run.json")
    assert store.load(tmp_path / "run.json").floors == recorded["dlrm"].floors


def test_without_a_device_model_a_run_has_no_floors() -> None:
    assert analyze(TRACES / "h200_dlrm_fbgemm_infer.json.gz", Options())[0].floors is None
