"""Timing logic on plain numbers: no clock runs here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from addrfrac.verification.clock import (
    ATTEMPTS,
    Claim,
    calls_in_block,
    distinct_bytes,
    judge_claim,
    settle,
    too_small,
    unrolled_calls,
)
from addrfrac.verification.evidence import busy_us
from addrfrac.verification.records import Status
from addrfrac.verification.speed import choose_best, compare, noise_between, order_of_turns, three_totals

HONEST = Claim(
    call_us=(100.0,) * 20,
    batch_us=12_000.0,
    empty_batch_us=10_000.0,
    span_us=99.0,
    empty_call_us=1.0,
    bytes_moved=100e6,
    peak_gb_per_s=4000.0,
)


def test_what_a_launch_costs_the_host_is_no_disagreement_and_more_than_that_is():
    small = replace(HONEST, call_us=(5.0,) * 20, span_us=4.0, bytes_moved=1e3, batch_us=10_000.0 + 20 * 56)
    assert judge_claim(small)[0] is Status.PASSED
    hidden = replace(small, batch_us=10_000.0 + 20 * 500)
    assert judge_claim(hidden)[0] is Status.TIMING_DISAGREEMENT
    on_a_side_stream = replace(small, span_us=40.0)
    assert judge_claim(on_a_side_stream)[0] is Status.TIMING_DISAGREEMENT


def test_a_claim_that_agrees_with_all_evidence_passes():
    assert judge_claim(HONEST)[0] is Status.PASSED


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"call_us": (10.0,) * 20}, Status.TIMING_DISAGREEMENT),
        ({"call_us": (10.0,) * 20, "batch_us": 10_200.0}, Status.TIMING_DISAGREEMENT),
        ({"call_us": ()}, Status.TIMING_DISAGREEMENT),
        ({"call_us": (-1.0,) * 20}, Status.TIMING_DISAGREEMENT),
        ({"call_us": (float("nan"),) * 20}, Status.TIMING_DISAGREEMENT),
        ({"bytes_moved": 1e9}, Status.TOO_FAST),
    ],
)
def test_a_claim_below_the_evidence_is_rejected(changed, wanted):
    assert judge_claim(replace(HONEST, **changed))[0] is wanted


def test_a_claim_above_the_evidence_is_no_fault():
    assert judge_claim(replace(HONEST, call_us=(400.0,) * 20))[0] is Status.PASSED


def test_small_tables_that_move_few_distinct_rows_are_not_refused():
    everything = distinct_bytes([(1_000_000 * 128, 4, None)])
    touched = distinct_bytes([(1_000_000 * 128, 4, 500 * 128)])
    assert judge_claim(replace(HONEST, bytes_moved=everything))[0] is Status.TOO_FAST
    assert judge_claim(replace(HONEST, bytes_moved=touched))[0] is Status.PASSED


def test_a_short_call_without_a_graph_is_too_small_to_time():
    assert too_small(20.0, None)
    assert not too_small(20.0, 18.0)


def test_a_clear_gain_over_three_processes_is_faster():
    rng = np.random.default_rng(1)
    baseline = [list(100 + rng.standard_normal(6)) for _ in range(3)]
    candidate = [list(70 + rng.standard_normal(6)) for _ in range(3)]
    found = compare(baseline, candidate, noise_floor=0.005)
    assert found.verdict == "faster"
    assert found.low < 100 / 70 < found.high


def test_a_pair_with_no_gain_is_not_called_one():
    rng = np.random.default_rng(2)
    called = 0
    for _ in range(100):
        sides = [
            [list(100 * (1 + 0.004 * rng.standard_normal()) + rng.standard_normal(6)) for _ in range(4)] for _ in "ab"
        ]
        floor = noise_between(sides[0][:2], sides[0][2:])
        called += compare(sides[0], sides[1], noise_floor=floor).verdict in ("faster", "slower")
    assert called <= 10


def test_one_process_alone_decides_nothing():
    assert compare([[100.0, 99.0, 101.0]], [[50.0, 51.0, 49.0]]).verdict == "inconclusive"


def test_the_best_baseline_is_chosen_and_reported_on_different_samples():
    best, reporting = choose_best({"a": [[10.0, 99.0]], "b": [[20.0, 1.0]]})
    assert best == "a"
    assert reporting["a"] == [[99.0]]


def test_what_backward_turns_do_to_a_block_is_in_what_is_reported_as_often_as_in_the_turns():
    forwards, backwards = 1.8, 1.4
    _, reporting = choose_best({"compile": [[forwards, backwards, forwards, backwards]] * 3})
    assert all(sorted(process) == [backwards, forwards] for process in reporting["compile"])


def test_intervals_of_few_processes_cover_what_they_say():
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(400):
        sides = [
            [list(100 * (1 + 0.01 * rng.standard_normal()) + 0.2 * rng.standard_normal(4)) for _ in range(3)]
            for _ in "ab"
        ]
        found = compare(*sides)
        covered += found.low <= 1.0 <= found.high
    assert covered >= 380


def test_turns_alternate_so_that_neither_side_is_always_first():
    assert order_of_turns(["a", "b"], 2) == ["a", "b", "b", "a"]


def test_a_mean_over_what_passed_names_its_denominator():
    totals = three_totals([2.0, None, 0.5])
    assert totals["passed only"] == (pytest.approx(1.0), 2)
    assert totals["failures as 1.0"][1] == 3


def test_a_block_that_disagrees_once_is_measured_again_and_the_first_is_told():
    attempts = iter([replace(HONEST, batch_us=30_000.0), HONEST])
    found = settle(lambda: next(attempts))
    assert found.status is Status.PASSED
    assert found.call_us == pytest.approx(99.0)
    assert len(found.discarded) == 1


def test_a_block_that_disagrees_each_time_is_rejected():
    taken = []
    found = settle(lambda: taken.append(1) or replace(HONEST, call_us=(10.0,) * 20))
    assert found.status is Status.TIMING_DISAGREEMENT
    assert len(taken) == ATTEMPTS


def test_replays_in_a_row_hold_a_claim_to_a_tenth():
    row = replace(HONEST, call_us=(2_000.0,) * 5, batch_us=10_400.0, empty_batch_us=100.0, empty_call_us=0.0)
    row = replace(row, calls_each=200, host_us=100.0, span_us=9.9, bytes_moved=1e3)
    assert judge_claim(row)[0] is Status.PASSED
    assert judge_claim(replace(row, call_us=(1_500.0,) * 5))[0] is Status.TIMING_DISAGREEMENT


def test_a_row_of_replays_is_held_to_the_trace_by_the_call():
    row = replace(HONEST, call_us=(2_000.0,) * 5, batch_us=10_100.0, empty_batch_us=100.0, calls_each=100)
    row = replace(row, bytes_moved=1e3)
    assert judge_claim(replace(row, host_us=100.0, span_us=20.0))[0] is Status.PASSED
    assert judge_claim(replace(row, host_us=100.0, span_us=40.0))[0] is Status.TIMING_DISAGREEMENT


def test_long_calls_make_short_blocks_and_small_ones_long_graphs():
    assert calls_in_block(100.0) == 24
    assert calls_in_block(50_000.0) == 5
    assert unrolled_calls(6.0, 1 << 16) == 250
    assert unrolled_calls(6.0, 64 << 20) == 16
    assert unrolled_calls(0.1, 1) == 256


def test_time_at_work_counts_overlap_once_and_gaps_not_at_all():
    assert busy_us([(0.0, 10.0), (5.0, 12.0), (20.0, 21.0), (6.0, 7.0)]) == pytest.approx(13.0)
    assert busy_us([]) == 0.0
