"""Bounds on the gain: Amdahl solved exactly, the impossible said, what-ifs that name what they touch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from addrfrac.errors import AddrfracError
from addrfrac.project import GAINS, class_speedup, what_if
from addrfrac.records import Bound, Op


@pytest.fixture
def built(trace_builder):
    return trace_builder()


@pytest.fixture
def run(built, label, run_of):
    """Busy 10 us: GEMM 5, norm 3, rotary 1, NCCL 1, one after the other."""
    built.launched("nvjet_tst_128x256", 0, 1000, 6000, label=label(Op.GEMM, "cublas", op_stack=("aten::mm",)))
    built.launched(
        "rms_norm_kernel", 1, 6000, 9000, label=label(Op.NORMALIZATION, "aten", op_stack=("vllm::rms_norm",))
    )
    built.launched("rotary", 2, 9000, 10000, label=label(Op.ROPE, "inductor", fused_ops=("cat", "index", "mul")))
    built.launched("ncclDevKernel_AllReduce", 3, 10000, 11000, label=label(Op.COMMUNICATION, "nccl"))
    return run_of(built)


def ends(interval):
    return interval.low, interval.high


# --- break-even ---------------------------------------------------------------------------------------------


@given(st.floats(0.001, 1.0), st.floats(0.001, 2.0))
def test_break_even_solves_amdahl_exactly(share, gain):
    speedup = class_speedup(share, gain)
    assume(speedup is not None and speedup < 1e6)
    assert 1.0 / (1.0 - share * (1.0 - 1.0 / speedup)) == pytest.approx(1.0 + gain)


@given(st.floats(0.0, 1.0), st.floats(0.001, 2.0))
def test_break_even_is_impossible_just_where_even_free_is_not_enough(share, gain):
    best = float("inf") if share == 1.0 else 1.0 / (1.0 - share)
    assume(abs(best - (1.0 + gain)) > 1e-9)
    assert (class_speedup(share, gain) is None) == (best < 1.0 + gain)


def test_break_even_rests_on_the_time_that_a_class_runs_alone(built, label, run_of):
    built.launched("gemm", 0, 1000, 11000, stream=7, label=label(Op.GEMM, "cublas"))
    built.launched("norm", 1, 1000, 5000, stream=8, label=label(Op.NORMALIZATION))
    rows = {(row.op, row.for_gain): row for row in run_of(built).projection.break_even}
    hidden = rows[Op.NORMALIZATION, 0.01]
    assert hidden.class_speedup is None, "wholly hidden behind the GEMM, it cannot shorten anything"
    assert ends(hidden.share_of_busy) == (0.0, 0.4)


def test_every_op_that_computes_has_its_break_evens_and_communication_has_none(run):
    ops = {row.op for row in run.projection.break_even}
    assert ops == {Op.GEMM, Op.NORMALIZATION, Op.ROPE}
    assert [row.for_gain for row in run.projection.break_even if row.op is Op.GEMM] == list(GAINS)


def test_the_largest_class_stands_first(run):
    assert run.projection.break_even[0].op is Op.GEMM


# --- targets ------------------------------------------------------------------------------------------------


def test_targets_are_the_replaceable_kernels_by_the_time_they_hold(run):
    assert [(one.name, one.device_us) for one in run.projection.targets] == [("rms_norm_kernel", 3.0), ("rotary", 1.0)]


def test_a_target_says_what_the_step_would_gain_if_it_were_free(run):
    assert run.projection.targets[0].speedup_if_free == pytest.approx(10 / 7)


# --- what-if ------------------------------------------------------------------------------------------------


def test_a_what_if_takes_the_saved_time_off_the_step(run):
    found = what_if(run, {"normalization": 1.5})
    assert ends(found.rows[0].saved_us) == (pytest.approx(1.0), pytest.approx(1.0))
    assert ends(found.busy_after_us) == (pytest.approx(9.0), pytest.approx(9.0))
    assert found.speedup_of_busy.low == pytest.approx(10 / 9)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("normalization", "rms_norm_kernel"),
        ("rmsnorm", "rms_norm_kernel"),
        ("RMS_Norm", "rms_norm_kernel"),
        ("vllm::rms_norm", "rms_norm_kernel"),
        ("gemm/cublas", "nvjet_tst_128x256"),
        ("aten::mm", "nvjet_tst_128x256"),
        ("index", "rotary"),
        ("rope/inductor", "rotary"),
    ],
)
def test_a_key_names_an_op_an_owner_a_kernel_a_launching_op_or_a_fused_one(run, key, name):
    row = what_if(run, {key: 2.0}).rows[0]
    assert row.kernels == 1
    assert row.device_us == next(kernel.device_us for kernel in run.kernels if kernel.name == name)


def test_a_kernel_that_two_keys_name_counts_for_the_first(run):
    found = what_if(run, {"rms": 2.0, "kernel": 4.0})  # rms_norm_kernel, then what else is a kernel: NCCL's
    assert [(row.what, row.device_us) for row in found.rows] == [("rms", 3.0), ("kernel", 1.0)]


def test_a_key_that_names_nothing_is_refused_with_a_suggestion(run):
    with pytest.raises(AddrfracError, match="did you mean normalization"):
        what_if(run, {"normalisation": 2.0})


def test_an_op_that_the_run_does_not_have_is_refused_with_those_it_has(run):
    with pytest.raises(AddrfracError, match=r"attention.*gemm"):
        what_if(run, {"attention": 2.0})


@pytest.mark.parametrize("speedup", [0.0, -1.0])
def test_a_speed_up_that_is_not_positive_is_refused(run, speedup):
    with pytest.raises(AddrfracError, match="not positive"):
        what_if(run, {"gemm": speedup})


def test_a_slow_down_lengthens_the_step(run):
    found = what_if(run, {"gemm": 0.5})
    assert found.busy_after_us.low == pytest.approx(15.0)
    assert found.speedup_of_busy.high == pytest.approx(10 / 15)


def test_hidden_time_saves_something_between_nothing_and_all_of_it(built, label, run_of):
    built.launched("gemm", 0, 1000, 11000, stream=7, label=label(Op.GEMM, "cublas"))
    built.launched("norm", 1, 9000, 13000, stream=8, label=label(Op.NORMALIZATION))
    found = what_if(run_of(built), {"normalization": 2.0})
    assert ends(found.rows[0].saved_us) == (pytest.approx(1.0), pytest.approx(2.0))
    assert ends(found.busy_after_us) == (pytest.approx(10.0), pytest.approx(11.0))


def test_without_a_wall_nothing_is_said_of_it(run):
    found = what_if(run, {"gemm": 2.0})
    assert found.wall_us is None
    assert ends(found.wall_after_us) == ends(found.speedup_of_wall) == (None, None)


def test_the_wall_loses_what_busy_time_loses(run, wall):
    found = what_if(replace(run, wall=wall(11.0)), {"gemm": 2.0})
    assert ends(found.wall_after_us) == (pytest.approx(8.5), pytest.approx(8.5))
    assert found.speedup_of_wall.high == pytest.approx(11 / 8.5)


def test_a_host_bound_step_may_keep_its_wall(run, wall):
    host_bound = replace(run, wall=wall(20.0), accounts=replace(run.accounts, host_bound=True))
    found = what_if(host_bound, {"gemm": 2.0})
    assert ends(found.wall_after_us) == (pytest.approx(17.5), pytest.approx(20.0))
    assert found.speedup_of_wall.low == pytest.approx(1.0)
    assert any("host-bound" in note for note in found.notes)


def test_a_what_if_says_that_it_was_not_measured(run):
    assert any("not measured" in note for note in what_if(run, {"gemm": 2.0}).notes)


def test_library_kernels_are_no_targets_under_the_runs_policy(built, label, run_of):
    built.launched("batch norm", 0, 1000, 2000, label=label(Op.NORMALIZATION, "cudnn"))
    assert run_of(built, policy="paper").projection.targets[0].name == "batch norm"
    strict = run_of(built, policy="strict")
    assert strict.kernels[0].bound is Bound.LIBRARY
    assert strict.projection.targets == ()
