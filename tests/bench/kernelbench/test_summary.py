"""What planted evaluations say together, against values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from addrfrac.bench import score
from addrfrac.bench.kernelbench import summary
from addrfrac.bench.kernelbench.records import Evaluation, Outcome, Study
from addrfrac.verification.records import Status

Sample, Make = Callable[..., Evaluation], Callable[..., Study]
WRONG = (("published, seed 42", Status.WRONG_VALUES, "allclose needs a tolerance of 1"),)


def outcome(study: Study, protocol: str, kind: str = "all") -> Outcome:
    (found,) = [one for one in summary.outcomes(study) if (one.protocol, one.kind) == (protocol, kind)]
    return found


def test_each_protocol_s_speedup_is_by_its_own_baseline_and_clock(sample: Sample, study: Make) -> None:
    found = study(sample(1), problems=1)
    speedups = [outcome(found, name).over_correct.value for name in found.protocols]
    assert speedups == pytest.approx([4.0, 2.0, 1.5])


def test_failures_and_problems_without_a_solution_count_as_one_where_the_denominator_is_fixed(
    sample: Sample, study: Make
) -> None:
    mine = outcome(study(sample(1), sample(2, published=WRONG), problems=4), "kernelbench")
    assert mine.over_correct.value == pytest.approx(4.0)
    assert mine.fixed.value == pytest.approx(4.0 ** (1 / 4))
    assert (mine.passed.hits, mine.passed.total) == (1, 4)
    assert mine.passed == score.wilson(1, 4)
    assert mine.failures == {"no solution": 2, "wrong values": 1}
    assert mine.fast_p["3"].value == pytest.approx(1 / 4)
    assert mine.fast_p["5"].value == 0.0


def test_what_passes_and_has_no_time_is_right_and_counts_as_one(sample: Sample, study: Make) -> None:
    mine = outcome(study(sample(1, speedup=None), sample(2), problems=2), "addrfrac")
    assert (mine.passed.hits, mine.untimed, mine.over_correct.count) == (2, 1, 1)
    assert mine.fixed.value == pytest.approx(math.sqrt(1.5))


def test_a_lost_evaluation_fails_under_every_protocol(sample: Sample, study: Make) -> None:
    lost = replace(sample(1), verdicts=(), failure="its worker was lost")
    found = study(lost, problems=1)
    assert [outcome(found, name).failures for name in found.protocols] == [{"lost": 1}] * 3
    assert summary.side_by_side(found)[0].reasons["addrfrac"] == "lost: its worker was lost"


def test_kinds_are_told_apart_over_the_problems_that_have_one(sample: Sample, study: Make) -> None:
    found = study(sample(1), sample(2, kind="triton", published=WRONG), problems=3)
    assert {one.kind for one in summary.outcomes(found)} == {"all", "cuda", "triton"}
    cuda, triton = outcome(found, "kernelbench", "cuda"), outcome(found, "kernelbench", "triton")
    assert (cuda.passed.hits, cuda.passed.total) == (1, 1)
    assert (triton.passed.hits, triton.passed.total) == (0, 1)


def test_several_samples_are_averaged_within_their_problem_first(sample: Sample, study: Make) -> None:
    slow = {"eager-strict": 1.0, "eager-tf32": 1.0, "candidate": 1.0}
    rows = [sample(1, sample=0), sample(1, sample=1, published=WRONG), sample(2, sample=0, naive=slow)]
    rows.append(sample(2, sample=1, naive=slow))
    mine = outcome(study(*rows, problems=2), "kernelbench")
    assert mine.fixed.value == pytest.approx(math.sqrt(2.0)), "problem 1 is worth the root of 4, problem 2 is worth 1"
    assert mine.over_correct.value == pytest.approx(2.0)
    assert mine.pass_at_k == pytest.approx({"1": 0.75, "2": 1.0})


def test_the_interval_draws_problems_and_not_samples_as_if_they_were_problems() -> None:
    problems = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    alone = summary.mean_of_problems([[value] for value in problems])
    repeated = summary.mean_of_problems([[value] * 8 for value in problems])
    assert alone.low is not None
    assert alone.high is not None
    assert (repeated.low, repeated.high) == pytest.approx((alone.low, alone.high), abs=0.2)
    scattered = summary.mean_of_problems([[value - 6.0, value + 6.0] for value in problems])
    assert scattered.value == pytest.approx(alone.value)
    assert scattered.high is not None
    assert scattered.high > alone.high + 1.0, "samples that differ widen it"


def test_a_problem_is_drawn_with_its_own_number_of_samples_only() -> None:
    same = summary.mean_of_problems([[1.0], [1.0, 1.0, 1.0], [1.0], [None, 1.0]])
    assert (same.value, same.low, same.high, same.count) == (1.0, 1.0, 1.0, 4)
    pairs = [[-6.0, 6.0]] * 8
    alone, beside_many = summary.mean_of_problems(pairs), summary.mean_of_problems([*pairs, [0.0] * 40])
    assert alone.high is not None
    assert beside_many.high is not None
    assert beside_many.high > 0.75 * alone.high, "another problem's forty samples are no more draws of these two"


def test_fewer_than_three_problems_have_no_interval_and_none_has_no_mean() -> None:
    assert summary.mean_of_problems([[1.0], [2.0]]).low is None
    assert summary.mean_of_problems([[None], []]).value is None
    assert summary.mean_of_problems([]).count == 0


def test_published_reproduced_and_verified_stand_side_by_side_with_the_reason(sample: Sample, study: Make) -> None:
    shapes = (("shapes", Status.SHAPE_SPECIALISED, "8x32: wrong"),)
    right, refused = summary.side_by_side(study(sample(1, published_speedup=9.0), sample(2, ours=shapes), problems=2))
    assert (right.published, right.reproduced, right.verified) == pytest.approx((9.0, 4.0, 1.5))
    assert right.reasons == {}
    assert (refused.published, refused.verified) == (None, None)
    assert refused.reproduced == pytest.approx(4.0)
    assert refused.reasons == {"addrfrac": "shape-specialised: shapes: 8x32: wrong"}


def test_a_study_without_any_evaluation_has_no_outcome(study: Make) -> None:
    assert summary.outcomes(study(problems=2)) == ()
    empty = replace(study(problems=2), without_solution={"llm": ((1, 1), (1, 2))})
    assert [one.failures for one in summary.outcomes(empty)] == [{"no solution": 2}] * 3
