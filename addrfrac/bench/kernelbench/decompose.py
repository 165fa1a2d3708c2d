"""A study in, which factor takes how much of the published harness's speedup out: exact Shapley values.

Every factor can be on or off; `values` says what one sample is worth for each subset of them, from what its evaluation
left. With none on that is what the published harness says, with all on what our protocol says, so that the parts of
all factors are together the whole drop, whatever order one would have taken them in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac.bench import score
from addrfrac.bench.kernelbench.evaluate import speedup
from addrfrac.bench.kernelbench.records import NAIVE, TRUSTED, Drop, Evaluation, Part, Study, StudyRule
from addrfrac.bench.kernelbench.summary import (
    correct_speedup,
    mean_of_problems,
    passed,
    samples_by_problem,
    solution_sets,
)
from addrfrac.stats import Floats
from addrfrac.verification.protocols import ADDRFRAC, KERNELBENCH, KERNELBENCH_VERIFIED
from addrfrac.verification.records import Check, Status

TF32, DISTRIBUTIONS, PARAMETERS, SHAPES, SCHEMA, CLOCK, BASELINES, OTHER = FACTORS = (
    "TF32 baseline",
    "distributions",
    "parameters",
    "shapes",
    "schema",
    "clock",
    "stronger baselines",
    "other checks",
)
_BITS = {factor: 1 << index for index, factor in enumerate(FACTORS)}
_SUBSETS = np.arange(1 << len(FACTORS))

_FACTOR_OF_STATUS = {
    Status.WRONG_SCHEMA: SCHEMA,
    Status.IGNORES_PARAMETERS: PARAMETERS,
    Status.PARAMETERS_NOT_VARIED: PARAMETERS,
    Status.SHAPE_SPECIALISED: SHAPES,
    Status.TIMING_DISAGREEMENT: CLOCK,
    Status.TOO_FAST: CLOCK,
    Status.TOO_SMALL_TO_TIME: CLOCK,
}
_FACTOR_OF_CHECK = {"shapes": SHAPES, "layouts": SHAPES, "clock": CLOCK}
_INITIAL = "distributions at initial parameters"
_VALUE_CHECKS = (_INITIAL, "probes", "numbers of few bits", "endurance")
"""Values at other inputs than the published; 'endurance' makes many calls at the same distributions."""


# --- Shapley values -------------------------------------------------------------------------------------------


def shapley(worth: Floats) -> Floats:
    """Shapley values of a game: [..., subset] in, [..., player] out; bit p of a subset's index says that p is in it.

    Exact, over all subsets (Shapley 1953): the mean over all orders of what a player adds to those before it. Raises
    ValueError where the number of subsets is no power of two.
    """
    subsets = worth.shape[-1]
    players = subsets.bit_length() - 1
    if subsets != 1 << players:
        raise ValueError(f"{subsets} subsets are no power of two")
    index = np.arange(subsets)
    sizes = np.array([subset.bit_count() for subset in range(subsets)])
    orders = math.factorial(players)
    weights = np.array([math.factorial(s) * math.factorial(max(players - s - 1, 0)) / orders for s in sizes])
    found = np.empty((*worth.shape[:-1], players))
    for player in range(players):
        without = index[index & (1 << player) == 0]
        found[..., player] = (weights[without] * (worth[..., without | (1 << player)] - worth[..., without])).sum(-1)
    return found


# --- one sample -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """Logarithms of a sample's speedup and of what each way to measure it changes."""

    naive: float
    """TF32-less eager / candidate by the published clock; 0 where it was not timed."""
    naive_tf32: float
    """What TF32 for eager adds to it."""
    trusted: float
    trusted_tf32: float
    stronger: float
    """What the best baseline adds to TF32 eager, by the trusted clock."""


def values(one: Evaluation) -> Floats:
    """Logarithm of what a sample is worth for each subset of `FACTORS`; refused is 1.0x, so 0.

    What both harnesses refuse is worth nothing in any subset, and takes no part in the drop. What only the published
    one refuses is accepted once 'other checks' is on, whose errors are judged otherwise. Where the trusted clock was
    not reached, the sample's factors that speak of times go by the published clock.
    """
    refusing = factors_refusing(one)
    before = passed(one, KERNELBENCH.name)
    if refusing and not before:
        return np.zeros(len(_SUBSETS))
    accepted = _SUBSETS & sum(_BITS[factor] for factor in refusing) == 0
    if not before:
        accepted &= _has(OTHER)
    return np.where(accepted, _measured(_logs(one)), 0.0)


def _has(factor: str) -> NDArray[np.bool_]:
    has: NDArray[np.bool_] = (_SUBSETS & _BITS[factor]) != 0
    return has


def _measured(logs: _Logs) -> Floats:
    tf32, clock, stronger = _has(TF32), _has(CLOCK), _has(BASELINES)
    eager: Floats = np.where(clock, logs.trusted, logs.naive)
    allowed = np.where(clock, logs.trusted_tf32, logs.naive_tf32)
    return eager + np.where(tf32, allowed, 0.0) + np.where(stronger, logs.stronger, 0.0)


def _logs(one: Evaluation) -> _Logs:
    naive, naive_tf32 = (_log(speedup(one, name, NAIVE)) for name in ("eager-strict", "eager-tf32"))
    naive_step = naive_tf32 - naive if naive is not None and naive_tf32 is not None else 0.0
    ours = _log(correct_speedup(one, ADDRFRAC.name))
    if ours is None:
        untimed = passed(one, ADDRFRAC.name)  # worth 1.0x by our protocol, as in every other figure
        return _Logs(
            naive=naive or 0.0,
            naive_tf32=naive_step,
            trusted=0.0 if untimed else naive or 0.0,
            trusted_tf32=0.0 if untimed else naive_step,
            stronger=0.0,
        )
    strict, tf32 = (_log(speedup(one, name, TRUSTED)) for name in ("eager-strict", "eager-tf32"))
    eager = next((each for each in (strict, tf32) if each is not None), ours)
    allowed = tf32 if tf32 is not None else eager
    return _Logs(
        naive=naive or 0.0,
        naive_tf32=naive_step,
        trusted=eager,
        trusted_tf32=allowed - eager,
        stronger=ours - allowed,
    )


def _log(value: float | None) -> float | None:
    return math.log(value) if value else None


def factors_refusing(one: Evaluation) -> frozenset[str]:
    """Factors whose checks make our protocol refuse it, each by itself enough; empty where it accepts."""
    verdict = one.verdict(ADDRFRAC.name)
    if verdict is None:
        return frozenset({OTHER})
    if verdict.passed:
        return frozenset()
    failed = [check for check in verdict.checks if not check.passed]
    if verdict.status not in {check.status for check in failed}:  # decided by none of them, and so explains them
        return frozenset({_FACTOR_OF_STATUS.get(verdict.status, OTHER)})
    return frozenset(map(_factor, failed))


def _factor(check: Check) -> str:
    if check.status in _FACTOR_OF_STATUS:
        return _FACTOR_OF_STATUS[check.status]
    if check.name in _FACTOR_OF_CHECK:
        return _FACTOR_OF_CHECK[check.name]
    if check.status not in (Status.WRONG_VALUES, Status.RAISED):
        return OTHER
    if check.name.startswith("distributions at ") and check.name != _INITIAL:
        return PARAMETERS
    as_published = check.detail.startswith("published:")  # the published inputs themselves, judged more strictly
    return DISTRIBUTIONS if check.name in _VALUE_CHECKS and not as_published else OTHER


# --- a solution set -------------------------------------------------------------------------------------------


def drops(study: Study) -> tuple[Drop, ...]:
    """One a solution set; none where the study did not ask both protocols that it lies between."""
    if not {KERNELBENCH.name, ADDRFRAC.name} <= set(study.protocols) or not study.planned:
        return ()
    return tuple(_drop(solution, samples_by_problem(study, solution)) for solution in solution_sets(study))


def _drop(solution: str, problems: Sequence[Sequence[Evaluation]]) -> Drop:
    worth = [[values(one) for one in samples] for samples in problems]
    parts = [[shapley(each) for each in samples] for samples in worth]
    return Drop(
        solution=solution,
        problems=len(problems),
        published=_published(problems),
        before=math.exp(_mean([[each[0] for each in samples] for samples in worth])),
        after=math.exp(_mean([[each[-1] for each in samples] for samples in worth])),
        parts=tuple(
            _part(factor, [[float(each[index]) for each in samples] for samples in parts])
            for index, factor in enumerate(FACTORS)
        ),
        notes=_notes(problems),
    )


def _mean(samples: Sequence[Sequence[float]]) -> float:
    """Mean over problems of the mean over samples; a problem without a solution is worth 0, which is 1.0x."""
    return float(np.mean([np.mean(each) if each else 0.0 for each in samples]))


def _part(factor: str, samples: Sequence[Sequence[float]]) -> Part:
    centre = mean_of_problems([each or [0.0] for each in samples])
    assert centre.value is not None
    return Part(factor=factor, log_ratio=centre.value, low=centre.low, high=centre.high)


def _published(problems: Sequence[Sequence[Evaluation]]) -> float | None:
    said = [[_log(one.published_speedup) for one in samples] for samples in problems]
    if not any(value is not None for each in said for value in each):
        return None
    return math.exp(_mean([[value or 0.0 for value in each] for each in said]))


def _notes(problems: Sequence[Sequence[Evaluation]]) -> tuple[str, ...]:
    every = [one for samples in problems for one in samples]
    accepted = [one for one in every if passed(one, KERNELBENCH.name)]
    both = sum(bool(factors_refusing(one)) and not passed(one, KERNELBENCH.name) for one in every)
    refused = sum(bool(factors_refusing(one)) for one in accepted)
    untimed = sum(passed(one, ADDRFRAC.name) and not correct_speedup(one, ADDRFRAC.name) for one in every)
    said = (
        (both, "are refused by both harnesses and take no part in the drop"),
        (refused, "are accepted by the published harness alone: they have no trusted time, the clock bears none of it"),
        (untimed, "are verified and have no trusted time: they count as 1.0x, which the clock bears"),
    )
    return tuple(f"{count} of {len(every)} samples {words}" for count, words in said if count)


# --- the study's own rule -------------------------------------------------------------------------------------


def study_rules(study: Study) -> tuple[StudyRule, ...]:
    """One a solution set that KernelBench-Verified's protocol was asked of; of several samples the first counts."""
    if KERNELBENCH_VERIFIED.name not in study.protocols:
        return ()
    return tuple(_rule(solution, samples_by_problem(study, solution)) for solution in solution_sets(study))


def _rule(solution: str, problems: Sequence[Sequence[Evaluation]]) -> StudyRule:
    first = [samples[0] for samples in problems if samples]
    tf32 = [is_tf32_affected(one) for one in first]
    hidden = [is_hidden_affected(one) for one in first]
    both = sum(one and other for one, other in zip(tf32, hidden, strict=True))
    total = len(problems)
    return StudyRule(
        solution=solution,
        tf32=score.wilson(sum(tf32), total),
        hidden=score.wilson(sum(hidden), total),
        both=score.wilson(both, total),
    )


def is_tf32_affected(one: Evaluation) -> bool:
    """Right on the published inputs, and its speedup over eager falls by at least half once eager may use TF32."""
    strict, tf32 = (speedup(one, name, NAIVE) for name in ("eager-strict", "eager-tf32"))
    return _right_as_published(one) and bool(strict and tf32 and tf32 <= strict / 2)


def is_hidden_affected(one: Evaluation) -> bool:
    """Right on the published inputs, refused on another distribution of KernelBench-Verified's."""
    return _right_as_published(one) and not passed(one, KERNELBENCH_VERIFIED.name)


def _right_as_published(one: Evaluation) -> bool:
    verdict = one.verdict(KERNELBENCH_VERIFIED.name)
    checks = verdict.checks if verdict is not None else ()
    mine = [check for check in checks if check.name.startswith("published, ")]
    return bool(mine) and all(check.passed for check in mine)
