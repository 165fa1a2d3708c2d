"""What evaluations say together, against values worked out by hand and by scipy."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import msgspec
import pytest
from scipy.stats import binomtest

from addrfrac.bench import dlrm, judging, score
from addrfrac.bench.models import saved_share
from addrfrac.bench.records import Evaluation, Judged
from addrfrac.records import ArmTimes, Gain, Range, Verdict

NONE = Range(low=None, high=None)


def _gain(speedup: float, verdict: Verdict | None = None) -> Gain:
    found = verdict or (Verdict.FASTER if speedup > 1 else Verdict.SLOWER)
    return Gain(
        before="eager", after="solution", speedup=speedup, low=speedup * 0.99, high=speedup * 1.01, saved_us=NONE,
        verdict=found, noise_floor=None, least_detectable=0.01, processes=3,
    )  # fmt: skip


def _arm(name: str, blocks: list[float]) -> ArmTimes:
    return ArmTimes(
        arm=name, switches=(), launch="eager", blocks_us=(tuple((us,) for us in blocks),), median_us=blocks[0],
        low_us=blocks[0], high_us=blocks[0], peak_memory_bytes=None, host_us=None, method="",
    )  # fmt: skip


def make_evaluation(number: int, speedup: float | None = 2.0, status: str = "passed", **fields: object) -> Evaluation:
    gain = None if speedup is None else _gain(speedup)
    given: dict[str, object] = {
        "schema": 1, "key": f"k{number}", "number": number, "problem": f"problem_{number}", "size": "medium",
        "indices": "-", "solution": "first", "sample": 0, "error": None, "error_limit": None, "agrees": True,
        "arms": (), "best_baseline": "eager", "over_eager": gain, "over_best": gain, "over_library": None,
        "clock_ratio": 1.0, "bytes": 1, "flops": 0, "floor_us": NONE, "peak_bytes": None,
        "baseline_peak_bytes": None, "failure": "", "seconds": 1.0, "extra": {},
        "judged": Judged(protocol="addrfrac", status=status, reason="", precision="", labels=(), seconds=1.0),
    }  # fmt: skip
    return Evaluation(**(given | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("hits", "total"), [(0, 12), (5, 12), (12, 12), (1, 1), (41, 100)])
def test_the_interval_of_a_share_is_wilsons(hits, total):
    found, expected = score.wilson(hits, total), binomtest(hits, total).proportion_ci(method="wilson")
    assert found.low == pytest.approx(expected.low, abs=1e-9)
    assert found.high == pytest.approx(expected.high, abs=1e-9)


def test_middles_are_those_of_logarithms_and_lie_in_their_intervals():
    speedups = [0.5, 1.0, 2.0, 8.0]
    assert score.geometric_mean(speedups).value == pytest.approx(statistics.geometric_mean(speedups))
    assert score.median(speedups).value == pytest.approx(math.sqrt(2.0))
    found = score.median(speedups)
    assert found.low <= found.value <= found.high
    assert score.median([2.0, 3.0]).low is None, "two problems have no interval"
    assert score.median([]).value is None


def test_pass_at_k_is_the_share_of_draws_with_a_right_one():
    # 5 samples, 2 right: 3 of 10 pairs hold none.
    assert score.pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert score.pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert score.pass_at_k(5, 0, 5) == 0.0
    assert score.pass_at_k(5, 2, 4) == 1.0
    with pytest.raises(ValueError, match="k from 1 to 5"):
        score.pass_at_k(5, 2, 6)


def test_a_win_is_verified_and_faster_beyond_the_noise_of_all_problems():
    rows = [
        make_evaluation(1, 2.0),
        make_evaluation(2, 4.0, status="wrong values"),
        make_evaluation(3, 1.05, over_eager=_gain(1.05, Verdict.INCONCLUSIVE)),
        make_evaluation(4, None, failure="not timed: it crashed"),
        make_evaluation(5, 3.0, agrees=False),
    ]
    (found,) = score.scores(rows)
    assert (found.passed.hits, found.passed.total) == (2, 5)
    assert (found.wins_over_eager.hits, found.wins_over_eager.total) == (1, 5)
    assert found.median_over_eager.count == 2, "only what is right"
    assert found.median_win_over_eager.value == pytest.approx(2.0)
    # Three failures count as 1.0: the denominator is fixed.
    assert found.geometric_mean_fixed.value == pytest.approx((2.0 * 1.05) ** (1 / 5))
    assert found.fast_p["1"] == pytest.approx(2 / 5)
    assert found.fast_p["1.5"] == pytest.approx(1 / 5)
    assert found.failures == {"wrong values": 1, "not timed": 1, "wrong at this size": 1}


def test_what_was_only_verified_passes_and_wins_nothing():
    (found,) = score.scores([make_evaluation(1, None, failure="not timed: left out by --no-time")])
    assert (found.passed.hits, found.wins_over_eager.hits) == (1, 0)


def test_a_problem_without_ids_counts_under_both_distributions():
    rows = [make_evaluation(1), make_evaluation(2, indices="uniform"), make_evaluation(2, indices="zipf")]
    assert [(found.indices, found.passed.total) for found in score.scores(rows)] == [("uniform", 2), ("zipf", 2)]


def test_the_library_is_counted_only_where_there_is_one():
    rows = [
        make_evaluation(1, extra={"library": ["fbgemm"]}, over_library=_gain(1.2)),
        make_evaluation(2, extra={"library": ["fbgemm"]}, status="wrong values"),
        make_evaluation(3),
    ]
    (found,) = score.scores(rows)
    assert (found.wins_over_library.hits, found.wins_over_library.total) == (1, 2)


def test_the_best_of_several_is_chosen_on_other_blocks_than_it_is_told_of():
    lucky = (_arm("eager", [10.0, 10.0]), _arm("solution", [2.0, 10.0]))  # 5x where chosen, 1x where told
    steady = (_arm("eager", [10.0, 10.0]), _arm("solution", [5.0, 5.0]))
    rows = [make_evaluation(1, 2.0, sample=0, arms=steady), make_evaluation(1, 2.0, sample=1, arms=lucky)]
    found = score.best_of(rows)["first"]
    assert found["1"].value == pytest.approx(2.0)
    assert found["2"].value == pytest.approx(1.0), "the lucky one is chosen and told as it is"
    assert score.mean_pass_at_k(rows)["first"] == {"1": 1.0, "2": 1.0}


def test_one_sample_has_no_pass_at_k():
    assert score.mean_pass_at_k([make_evaluation(1)]) == {}


def test_the_studys_projection_comes_out():
    # arXiv 2609.21058: 58.2 % of DLRM inference, 41.7 % won at a median of 1.552x: 8.63 % of the step.
    assert saved_share(0.582, 0.417, 1.552) == pytest.approx(0.0863, abs=5e-5)
    assert saved_share(0.5, 1.0, 0.8) == 0.0, "kernels that lose are not put in"
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        saved_share(1.2, 0.5, 2.0)


def test_verdicts_of_an_earlier_run_count_where_nothing_is_verified_anew(tmp_path):
    known = judging.Kept(key="k", judged=replace(judging.UNVERIFIED, status="passed"))
    (tmp_path / judging.FILE).write_bytes(msgspec.json.encode(known) + b"\n")
    request = dlrm.Request(verify=False, directory=tmp_path)
    assert dlrm._verdicts([], {}, request, None, print) == {"k": known.judged}
