"""Intervals cover what they say, by simulation; verdicts claim nothing from noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as reference

from addrfrac import stats
from addrfrac.records import Verdict

REPEATS = 250
NOISE = 0.02


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    """The simulations average over hundreds of series, so each needs fewer draws."""
    monkeypatch.setattr(stats, "DRAWS", 400)
    monkeypatch.setattr(stats.resample, "__defaults__", (400,))


def series(rng: np.random.Generator, steps: int, correlation: float, median: float = 100.0) -> np.ndarray:
    """A first-order autoregression about `median`, as step times drift with clocks."""
    shocks = rng.standard_normal(steps + 30)
    values = np.zeros(steps + 30)
    for i in range(1, len(values)):
        values[i] = correlation * values[i - 1] + np.sqrt(1 - correlation**2) * shocks[i]
    return median * (1 + NOISE * values[30:])


@pytest.mark.parametrize(("steps", "correlation", "least"), [(10, 0.0, 0.92), (30, 0.0, 0.92), (30, 0.5, 0.88)])
def test_the_interval_of_the_median_covers_it(steps, correlation, least):
    rng = np.random.default_rng(1)
    found = [stats.times(series(rng, steps, correlation), "") for _ in range(REPEATS)]
    assert np.mean([one.low_us <= 100.0 <= one.high_us for one in found]) >= least


@pytest.mark.parametrize(("steps", "correlation", "least"), [(10, 0.0, 0.92), (10, 0.5, 0.86), (40, 0.5, 0.88)])
def test_the_interval_of_the_mean_over_steps_covers_it(steps, correlation, least):
    rng = np.random.default_rng(2)
    found = [stats.sampling_range(series(rng, steps, correlation)) for _ in range(REPEATS)]
    assert np.mean([one.low <= 100.0 <= one.high for one in found]) >= least


def test_the_interval_is_no_wider_than_students_by_much_where_steps_are_independent():
    rng = np.random.default_rng(3)
    found = [stats.sampling_range(series(rng, 40, 0.0)) for _ in range(100)]
    student = 2 * reference.t.ppf(0.975, 39) * 100 * NOISE / np.sqrt(40)
    assert np.mean([one.high - one.low for one in found]) < 1.35 * student


@pytest.mark.parametrize("statistic", ["mean", "median"])
@pytest.mark.parametrize(("steps", "correlation"), [(5, 0.0), (10, 0.0), (30, 0.0), (10, 0.5), (30, 0.5)])
def test_a_pair_with_no_difference_is_seldom_called_one(statistic, steps, correlation):
    rng = np.random.default_rng(4)
    verdicts = [
        stats.change(series(rng, steps, correlation), series(rng, steps, correlation), statistic)[2]
        for _ in range(REPEATS)
    ]
    wrong = sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts)
    # 5 % is the claim; 8 % is what 250 tries may show of it by chance once in a hundred times.
    assert wrong / REPEATS <= 0.08


def test_a_real_difference_is_found_with_its_sign():
    rng = np.random.default_rng(5)
    slow, fast = series(rng, 20, 0.0, 100.0), series(rng, 20, 0.0, 90.0)
    assert stats.change(fast, slow, "median")[2] is Verdict.SLOWER
    difference, interval, verdict = stats.change(slow, fast, "median")
    assert verdict is Verdict.FASTER
    assert interval.low <= difference <= interval.high < 0


@pytest.mark.parametrize("few", [1, 2, 4])
def test_fewer_than_five_steps_a_side_are_inconclusive_whatever_they_say(few):
    difference, interval, verdict = stats.change([100.0] * few, [50.0] * 30)
    assert difference == -50.0
    assert (interval.low, interval.high) == (None, None)
    assert verdict is Verdict.INCONCLUSIVE


def test_without_samples_nothing_is_said():
    assert stats.change([], [1.0] * 9)[2] is Verdict.INCONCLUSIVE


def test_two_quiet_series_are_the_same_only_within_the_margin():
    rng = np.random.default_rng(6)
    quiet = 100 + 0.05 * rng.standard_normal((2, 30))
    assert stats.change(quiet[0], quiet[1])[2] is Verdict.SAME
    assert stats.change(quiet[0], quiet[1] + 0.5)[2] is Verdict.SAME
    assert stats.change(quiet[0], quiet[1] + 1.5)[2] is Verdict.SLOWER


def test_two_constant_series_have_an_interval_of_no_width():
    difference, interval, verdict = stats.change([10.0] * 6, [12.0] * 6)
    assert (difference, interval.low, interval.high) == (2.0, 2.0, 2.0)
    assert verdict is Verdict.SLOWER


def test_the_same_samples_give_the_same_interval_each_time():
    samples = series(np.random.default_rng(7), 20, 0.3)
    assert stats.times(samples, "") == stats.times(samples, "")


def test_a_series_keeps_its_samples_in_the_order_taken():
    found = stats.times([3.0, 1.0, 2.0], "clock")
    assert found.samples_us == (3.0, 1.0, 2.0)
    assert found.median_us == 2.0
    assert found.low_us <= 2.0 <= found.high_us


def test_one_sample_has_an_interval_of_no_width():
    found = stats.times([5.0], "clock")
    assert (found.low_us, found.median_us, found.high_us) == (5.0, 5.0, 5.0)


def test_an_empty_series_is_an_error():
    with pytest.raises(ValueError, match="no samples"):
        stats.times([], "clock")


def test_fewer_than_three_steps_have_no_sampling_interval():
    found = stats.sampling_range([1.0, 2.0])
    assert (found.low, found.high) == (None, None)


def test_drifting_steps_are_drawn_in_longer_blocks():
    rng = np.random.default_rng(8)
    assert stats.block_length(series(rng, 100, 0.0)) <= 3
    assert stats.block_length(series(rng, 100, 0.8)) >= 6


def test_of_many_kernels_that_did_not_change_seldom_one_is_called_changed():
    rng = np.random.default_rng(9)
    tables = [
        [
            stats.change(series(rng, 10, 0.0), series(rng, 10, 0.0), comparisons=40)[2]
            in (Verdict.FASTER, Verdict.SLOWER)
            for _ in range(40)
        ]
        for _ in range(25)
    ]
    assert sum(map(any, tables)) <= 4  # 5 % is the claim; without the correction three tables in four


def test_a_large_change_is_found_among_many_comparisons():
    rng = np.random.default_rng(10)
    found = stats.change(series(rng, 10, 0.0), series(rng, 10, 0.0, 120.0), comparisons=100)
    assert found[2] is Verdict.SLOWER


@pytest.mark.parametrize("freedom", [2.0, 3.0, 5.0, 10.0, 100.0])
def test_the_widening_for_few_steps_is_students(freedom):
    exact = reference.t.ppf(0.975, freedom) / reference.norm.ppf(0.975)
    assert stats.student_over_normal(freedom) == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("freedom", [4.0, 10.0, 100.0])
def test_several_comparisons_ask_for_bonferronis_quantile(freedom):
    exact = reference.t.ppf(1 - 0.025 / 50, freedom) / reference.norm.ppf(0.975)
    assert stats.student_over_normal(freedom, 50) == pytest.approx(exact, rel=0.08)


def test_the_interval_of_a_median_never_leaves_the_samples() -> None:
    drifting = [30.0] * 14 + [17.0] * 16
    found = stats.times(drifting, "a host that got faster half-way")
    assert 17.0 <= found.low_us <= found.median_us <= found.high_us <= 30.0
