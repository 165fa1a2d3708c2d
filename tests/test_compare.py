"""What moved between two runs, and what merely looks so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from addrfrac.compare import diff
from addrfrac.records import Op, Verdict


@pytest.fixture
def steps_of(trace_builder, label, run_of):
    """A run of steps in which a GEMM and a norm run so many ns each."""

    def build(gemms, norms=(), *, norm_name="norm", norm_delay=0, **run):
        built = trace_builder()
        for number, length in enumerate(gemms):
            start = 1_000_000 * number
            built.step(number, start, start + 999_999)
            built.launched("gemm", start + 10, start + 1000, start + 1000 + length, label=label(Op.GEMM, "cublas"))
            if norms:
                begin = start + 1000 + length + norm_delay
                built.launched(
                    norm_name, start + 20, begin, begin + norms[number], label=label(Op.NORMALIZATION, "aten")
                )
        return run_of(built, **run)

    return build


def noisy(mean, count=12, seed=0):
    return [int(x) for x in np.random.default_rng(seed).normal(mean, 0.002 * mean, count)]


def rows_by_name(rows):
    return {row.name: row for row in rows}


def test_a_class_that_became_slower_is_named_with_its_interval(steps_of):
    found = diff(steps_of(noisy(50_000), noisy(20_000, seed=1)), steps_of(noisy(50_000, seed=2), noisy(25_000, seed=3)))
    norm = rows_by_name(found.classes)["normalization · aten · forward"]
    assert norm.verdict is Verdict.SLOWER
    assert norm.change_us == pytest.approx(5.0, abs=0.2)
    assert norm.interval_us.low <= norm.change_us <= norm.interval_us.high
    assert found.classes[0] is norm, "the largest change stands first"
    assert rows_by_name(found.classes)["gemm · cublas · forward"].verdict is Verdict.SAME


def test_two_runs_of_one_thing_move_nothing(steps_of):
    found = diff(steps_of(noisy(50_000), noisy(20_000, seed=1)), steps_of(noisy(50_000, seed=2), noisy(20_000, seed=3)))
    assert {row.verdict for row in (*found.classes, *found.kernels)} <= {Verdict.SAME, Verdict.INCONCLUSIVE}


def test_a_kernel_that_is_gone_ran_for_no_time_after(steps_of):
    before = steps_of(noisy(50_000), noisy(20_000, seed=1))
    after = steps_of(noisy(50_000, seed=2), noisy(10_000, seed=3), norm_name="fused norm")
    kernels = rows_by_name(diff(before, after).kernels)
    assert kernels["norm"].after_us is None
    assert kernels["norm"].change_us == pytest.approx(-20.0, abs=0.2)
    assert kernels["norm"].verdict is Verdict.FASTER
    assert kernels["fused norm"].before_us is None
    assert kernels["fused norm"].verdict is Verdict.SLOWER


def test_rows_of_one_name_count_together(steps_of):
    found = diff(steps_of(noisy(50_000), noisy(20_000)), steps_of(noisy(50_000), noisy(20_000)))
    assert len(found.kernels) == 2


def test_a_gap_that_grew_is_named(steps_of):
    before = steps_of(noisy(50_000), noisy(20_000, seed=1), norm_delay=1000)
    after = steps_of(noisy(50_000, seed=2), noisy(20_000, seed=3), norm_delay=6000)
    gap = rows_by_name(diff(before, after).gaps)["queued"]
    assert gap.change_us == pytest.approx(5.0)
    assert gap.verdict is Verdict.SLOWER


def test_the_step_is_compared_on_unprofiled_times_where_both_runs_have_them(steps_of, wall):
    slow = [100.0 + 0.1 * x for x in range(10)]
    fast = [90.0 + 0.1 * x for x in range(10)]
    before, after = (steps_of(noisy(50_000), wall=wall(*samples)) for samples in (fast, slow))
    found = diff(before, after)
    assert "host clock" in found.basis
    assert (found.step.before_us, found.step.after_us) == (pytest.approx(90.45), pytest.approx(100.45))
    assert found.step.verdict is Verdict.SLOWER
    assert 0.09 < found.slowdown.low < 10 / 90.45 < found.slowdown.high < 0.13


def test_device_events_go_before_the_host_clock(steps_of, wall):
    both = [steps_of(noisy(50_000), wall=wall(*([90.0] * 6), device=True)) for _ in range(2)]
    assert "device events" in diff(*both).basis
    mixed = steps_of(noisy(50_000), wall=wall(*([90.0] * 6)))
    assert "host clock" in diff(both[0], mixed).basis


def test_without_a_wall_the_profiled_spans_are_compared_and_that_is_said(steps_of, wall):
    found = diff(steps_of(noisy(50_000)), steps_of(noisy(50_000), wall=wall(90.0)))
    assert "profiled spans" in found.basis


@pytest.mark.parametrize("few", [1, 2, 4])
def test_fewer_than_five_steps_are_inconclusive_and_say_so(steps_of, few):
    found = diff(steps_of(noisy(50_000, few)), steps_of(noisy(90_000, 12)))
    assert found.step.verdict is Verdict.INCONCLUSIVE
    assert (found.slowdown.low, found.slowdown.high) == (None, None)
    assert all(row.verdict is Verdict.INCONCLUSIVE for row in (*found.classes, *found.kernels, *found.gaps))
    assert any("at least 5 a side" in note for note in found.notes)


def test_shares_stand_side_by_side_under_the_policies_that_both_runs_have(steps_of):
    found = diff(steps_of(noisy(50_000), noisy(50_000)), steps_of(noisy(50_000), noisy(25_000)))
    before, after = found.shares["paper"]
    assert before.low == pytest.approx(0.5, abs=0.01)
    assert after.low == pytest.approx(1 / 3, abs=0.01)


def test_spread_between_processes_is_said_to_be_missing(steps_of):
    assert any("one process" in note for note in diff(steps_of(noisy(50_000)), steps_of(noisy(50_000))).notes)


def test_two_devices_are_told(steps_of):
    before = steps_of(noisy(50_000))
    after = replace(before, source=replace(before.source, device_names=("another GPU",)))
    assert any("different devices" in note for note in diff(before, after).notes)
