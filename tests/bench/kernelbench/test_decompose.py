"""The drop from the published harness to ours comes apart into its factors, and nothing is left over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.bench.kernelbench import decompose, summary
from addrfrac.bench.kernelbench.records import Drop, Evaluation, Study
from addrfrac.verification.records import Check, Status

Sample, Make = Callable[..., Evaluation], Callable[..., Study]
INITIAL = "distributions at initial parameters"
REFUSALS = {
    "distributions": (INITIAL, Status.WRONG_VALUES, "x3: worst slice"),
    "parameters": ("distributions at reseeded 1 parameters", Status.IGNORES_PARAMETERS, "published: off"),
    "shapes": ("shapes", Status.SHAPE_SPECIALISED, "8x32: wrong"),
    "schema": (INITIAL, Status.WRONG_SCHEMA, "published: shape"),
    "clock": ("clock", Status.TIMING_DISAGREEMENT, "the parent waited longer"),
    "other checks": ("writes", Status.NOT_WRITTEN, "bytes follow the memory"),
}
WRONG = (("published, seed 42", Status.WRONG_VALUES, "allclose"),)
GAMES = st.integers(1, 5).flatmap(
    lambda players: st.lists(st.floats(-5, 5), min_size=1 << players, max_size=1 << players)
)


@given(GAMES)
@settings(max_examples=80, deadline=None)
def test_shapley_values_are_together_what_the_whole_game_is_worth(worth: list[float]) -> None:
    found = decompose.shapley(np.array(worth))
    assert found.sum() == pytest.approx(worth[-1] - worth[0], abs=1e-9)


@given(GAMES)
@settings(max_examples=30, deadline=None)
def test_shapley_values_are_the_mean_over_all_orders(worth: list[float]) -> None:
    players = len(worth).bit_length() - 1
    added = [0.0] * players
    orders = list(itertools.permutations(range(players)))
    for order in orders:
        before = 0
        for player in order:
            added[player] += (worth[before | 1 << player] - worth[before]) / len(orders)
            before |= 1 << player
    assert decompose.shapley(np.array(worth)) == pytest.approx(added, abs=1e-9)


def test_a_game_of_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="3 subsets"):
        decompose.shapley(np.zeros(3))


def parts(drop: Drop) -> dict[str, float]:
    return {part.factor: part.log_ratio for part in drop.parts}


def test_what_only_the_measurement_changes_is_told_by_factor(sample: Sample, study: Make) -> None:
    # 4x of strict eager by the naive clock, 3x by ours; TF32 halves the first and takes a third of the second.
    (drop,) = decompose.drops(study(sample(1), problems=1))
    assert (drop.before, drop.after) == pytest.approx((4.0, 1.5))
    found = parts(drop)
    assert found["stronger baselines"] == pytest.approx(math.log(1.5 / 2.0))
    assert found["TF32 baseline"] == pytest.approx((math.log(1 / 2) + math.log(2 / 3)) / 2)
    assert found["clock"] == pytest.approx((math.log(3 / 4) + math.log(1)) / 2)
    assert all(found[factor] == 0.0 for factor in ("distributions", "parameters", "shapes", "schema", "other checks"))


@pytest.mark.parametrize("factor", REFUSALS)
def test_a_kernel_that_one_check_refuses_loses_by_that_factor(sample: Sample, study: Make, factor: str) -> None:
    level = {"eager-strict": 4.0, "eager-tf32": 4.0, "candidate": 1.0}
    (drop,) = decompose.drops(study(sample(1, ours=(REFUSALS[factor],), naive=level), problems=1))
    found = parts(drop)
    assert found.pop(factor) == pytest.approx(-math.log(4.0))
    assert not any(found.values())


def test_two_checks_that_refuse_share_the_loss(sample: Sample, study: Make) -> None:
    level = {"eager-strict": 4.0, "eager-tf32": 4.0, "candidate": 1.0}
    one = sample(1, ours=(REFUSALS["shapes"], REFUSALS["parameters"]), naive=level)
    found = parts(decompose.drops(study(one, problems=1))[0])
    assert found["shapes"] == found["parameters"] == pytest.approx(-math.log(4.0) / 2)


def test_the_published_inputs_judged_more_strictly_are_no_matter_of_distributions(sample: Sample) -> None:
    one = sample(1, ours=((INITIAL, Status.WRONG_VALUES, "published: relative Frobenius 1.00e+00"),))
    assert decompose.factors_refusing(one) == {"other checks"}


def test_a_coarse_class_explains_the_shapes_that_it_makes_wrong(sample: Sample) -> None:
    one = sample(1, ours=(REFUSALS["shapes"],))
    ours = next(verdict for verdict in one.verdicts if verdict.protocol == "addrfrac")
    coarse = replace(one, verdicts=(replace(ours, status=Status.LOWER_PRECISION),))
    assert decompose.factors_refusing(coarse) == {"other checks"}


def test_what_both_refuse_takes_no_part_and_is_told(sample: Sample, study: Make) -> None:
    (drop,) = decompose.drops(study(sample(1, published=WRONG, ours=(REFUSALS["shapes"],)), problems=1))
    assert not any(parts(drop).values())
    assert drop.notes == ("1 of 1 samples are refused by both harnesses and take no part in the drop",)


def test_what_only_the_published_harness_refuses_is_a_gain_by_other_checks(sample: Sample, study: Make) -> None:
    (drop,) = decompose.drops(study(sample(1, published=WRONG), problems=1))
    assert (drop.before, drop.after) == pytest.approx((1.0, 1.5))
    assert parts(drop)["other checks"] > 0


def test_a_published_speedup_is_averaged_over_the_same_denominator(sample: Sample, study: Make) -> None:
    assert decompose.drops(study(sample(1), problems=1))[0].published is None
    assert decompose.drops(study(sample(1, published_speedup=9.0), problems=2))[0].published == pytest.approx(3.0)


DRAWN = st.fixed_dictionaries(
    {
        "published": st.sampled_from([(), WRONG]),
        "ours": st.lists(st.sampled_from(sorted(REFUSALS.values())), max_size=3, unique=True),
        "naive": st.fixed_dictionaries(
            {name: st.floats(0.1, 100) for name in ("candidate",)},
            optional={name: st.floats(0.1, 100) for name in ("eager-strict", "eager-tf32")},
        ),
        "speedup": st.one_of(st.none(), st.floats(0.01, 100)),
    }
)


@given(st.lists(DRAWN, min_size=1, max_size=4), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_the_parts_are_together_the_drop_between_the_two_outcomes(
    sample: Sample, study: Make, drawn: list[dict[str, object]], absent: int
) -> None:
    rows = [sample(number, **fields) for number, fields in enumerate(drawn, 1)]
    found = study(*rows, problems=len(rows) + absent)
    (drop,) = decompose.drops(found)
    assert sum(parts(drop).values()) == pytest.approx(math.log(drop.after / drop.before), abs=1e-9)
    fixed = {one.protocol: one.fixed.value for one in summary.outcomes(found) if one.kind == "all"}
    assert (drop.before, drop.after) == pytest.approx((fixed["kernelbench"], fixed["addrfrac"]))


def test_without_one_of_the_two_protocols_there_is_no_drop(sample: Sample, study: Make) -> None:
    assert decompose.drops(replace(study(sample(1), problems=1), protocols=("kernelbench",))) == ()


# --- the study's rule ---------------------------------------------------------------------------------------------


def with_published_check(one: Evaluation) -> Evaluation:
    """Planted verdicts hold only checks that refuse: here the published inputs' stands before them where it passes."""
    right = Check(name="published, seed 42", passed=True, status=Status.PASSED, detail="")
    verdicts = (
        verdict
        if any(check.name == right.name for check in verdict.checks)
        else replace(verdict, checks=(right, *verdict.checks))
        for verdict in one.verdicts
    )
    return replace(one, verdicts=tuple(verdicts))


def test_the_studys_rule_counts_halved_speedups_and_hidden_failures_of_all_problems(
    sample: Sample, study: Make
) -> None:
    hidden = (("x3, seed 42", Status.WRONG_VALUES, "allclose"),)
    level = {"eager-strict": 4.0, "eager-tf32": 2.1, "candidate": 1.0}  # falls by less than half
    rows = [
        sample(1),  # 4x to 2x
        sample(2, naive=level),
        sample(3, verified=hidden),  # both
        sample(4, verified=hidden, naive=level),
        sample(5, verified=WRONG),  # wrong as published: neither
    ]
    (rule,) = decompose.study_rules(study(*map(with_published_check, rows), problems=8))
    assert [(share.hits, share.total) for share in (rule.tf32, rule.hidden, rule.both)] == [(2, 8), (2, 8), (1, 8)]
