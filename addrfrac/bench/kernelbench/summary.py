"""A study in, what it says of each solution set under each protocol out; numpy only, every random draw seeded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from addrfrac.bench import score
from addrfrac.bench.kernelbench.evaluate import speedup
from addrfrac.bench.kernelbench.records import NAIVE, Evaluation, Outcome, SideBySide, Study
from addrfrac.bench.records import Centre
from addrfrac.stats import Floats
from addrfrac.verification.protocols import ADDRFRAC, KERNELBENCH
from addrfrac.verification.side_by_side import decisive_check, own_baseline

ALL = "all"
LOST, ABSENT = "lost", "no solution"
_CHUNK = 250
"""Bootstrap draws made at once: bounds the memory that many samples of many problems take."""

Samples = Sequence[Sequence[float | None]]
"""[problem][sample]: a value, or None for a sample that has none."""


def outcomes(study: Study) -> tuple[Outcome, ...]:
    """One a solution set, kind and protocol; 'all' first, kinds apart only where there are several."""
    found = []
    for solution in solution_sets(study):
        mine = [one for one in study.evaluations if one.solution == solution]
        kinds = sorted({one.kind for one in mine})
        for kind in (ALL, *kinds) if len(kinds) > 1 else (ALL,):
            problems = samples_by_problem(study, solution, kind)
            found += [_outcome(solution, kind, protocol, problems) for protocol in study.protocols]
    return tuple(found)


def solution_sets(study: Study) -> tuple[str, ...]:
    """Names of the solution sets in order, those without any solution among them."""
    return tuple(dict.fromkeys((*(one.solution for one in study.evaluations), *study.without_solution)))


def samples_by_problem(study: Study, solution: str, kind: str = ALL) -> list[list[Evaluation]]:
    """A list of samples for each chosen problem, empty where there is none; of one kind, only problems with some."""
    found: dict[tuple[int, int], list[Evaluation]] = {place: [] for place in study.planned}
    for one in study.evaluations:
        if one.solution == solution and kind in (ALL, one.kind):
            found[one.place].append(one)
    ordered = [sorted(samples, key=lambda one: one.sample) for samples in found.values()]
    return ordered if kind == ALL else [samples for samples in ordered if samples]


def passed(one: Evaluation, protocol: str) -> bool:
    """Whether that protocol accepts it; what was not asked or was lost is not accepted."""
    verdict = one.verdict(protocol)
    return verdict is not None and verdict.passed


def protocol_speedup(one: Evaluation, protocol: str) -> float | None:
    """By the protocol's own baseline and clock, whether or not it accepts; None where it was not timed."""
    if protocol != ADDRFRAC.name:
        return speedup(one, own_baseline(protocol), NAIVE)
    verdict = one.verdict(protocol)
    return verdict.speed.speedup if verdict is not None else None


def correct_speedup(one: Evaluation, protocol: str) -> float | None:
    """The same; None also where the protocol refuses it."""
    return protocol_speedup(one, protocol) if passed(one, protocol) else None


def _outcome(solution: str, kind: str, protocol: str, problems: Sequence[Sequence[Evaluation]]) -> Outcome:
    speedups = [[correct_speedup(one, protocol) for one in samples] for samples in problems]
    logs: Samples = [[math.log(value) if value else None for value in samples] for samples in speedups]
    fixed: Samples = [[value or 0.0 for value in samples] or [0.0] for samples in logs]
    every = [one for samples in problems for one in samples]
    right = [one for one in every if passed(one, protocol)]
    return Outcome(
        solution=solution,
        kind=kind,
        protocol=protocol,
        problems=len(problems),
        samples=len(every),
        passed=score.wilson(sum(passed(samples[0], protocol) for samples in problems if samples), len(problems)),
        untimed=sum(not correct_speedup(one, protocol) for one in right),
        over_correct=_exponential(mean_of_problems(logs)),
        fixed=_exponential(mean_of_problems(fixed)),
        fast_p={f"{p:g}": mean_of_problems(_faster_than(p, speedups)) for p in score.THRESHOLDS},
        pass_at_k=_pass_at_k(problems, protocol),
        failures=_failures(problems, protocol),
    )


def _faster_than(p: float, speedups: Samples) -> Samples:
    return [[float(value is not None and value > p) for value in samples] or [0.0] for samples in speedups]


def _pass_at_k(problems: Sequence[Sequence[Evaluation]], protocol: str) -> dict[str, float]:
    fewest = min((len(samples) for samples in problems if samples), default=0)
    if fewest < 2:
        return {}
    counts = [(len(samples), sum(passed(one, protocol) for one in samples)) for samples in problems]
    return {
        str(k): sum(score.pass_at_k(total, right, k) if total else 0.0 for total, right in counts) / len(counts)
        for k in range(1, fewest + 1)
    }


def _failures(problems: Sequence[Sequence[Evaluation]], protocol: str) -> dict[str, int]:
    found = Counter(status(one, protocol) for samples in problems for one in samples if not passed(one, protocol))
    found[ABSENT] = sum(not samples for samples in problems)
    return {why: count for why, count in found.most_common() if count}


def status(one: Evaluation, protocol: str) -> str:
    """What the protocol made of it; 'lost' where there is no verdict."""
    verdict = one.verdict(protocol)
    return verdict.status.value if verdict is not None else LOST


# --- means and their intervals --------------------------------------------------------------------------------


def mean_of_problems(samples: Samples) -> Centre:
    """Mean over problems of the mean of each one's samples; what is None counts nowhere.

    The interval draws problems, and within each drawn problem samples, both with replacement: samples of one problem
    are alike, and taking them for independent would make it too narrow. None with fewer than three problems.
    """
    values = _padded(samples)
    count = int((~np.isnan(values)).any(axis=1).sum()) if values.size else 0
    if not count:
        return Centre(value=None, low=None, high=None, count=0)
    value = float(_means(values[None])[0])
    if count < 3:
        return Centre(value=value, low=None, high=None, count=count)
    low, high = np.nanquantile(_drawn_means(values, [len(each) for each in samples]), (0.025, 0.975))
    return Centre(value=value, low=float(low), high=float(high), count=count)


def _padded(samples: Samples) -> Floats:
    most = max((len(each) for each in samples), default=0)
    values = np.full((len(samples), most), np.nan)
    for row, each in enumerate(samples):
        values[row, : len(each)] = [np.nan if value is None else value for value in each]
    return values


def _means(values: Floats) -> Floats:
    """[draw][problem][sample] to the mean of each draw; NaN for a draw that holds nothing."""
    there = ~np.isnan(values)
    samples = there.sum(axis=2)
    of_problem = np.where(there, values, 0.0).sum(axis=2) / np.maximum(samples, 1)
    problems = (samples > 0).sum(axis=1)
    total = np.where(samples > 0, of_problem, 0.0).sum(axis=1)
    means: Floats = np.where(problems > 0, total / np.maximum(problems, 1), np.nan)
    return means


def _drawn_means(values: Floats, lengths: Sequence[int]) -> Floats:
    random = np.random.default_rng(score.SEED)
    held = np.maximum(np.asarray(lengths), 1)
    drawn = []
    for _ in range(score.DRAWS // _CHUNK):
        rows = random.integers(0, len(values), (_CHUNK, len(values)))
        columns = (random.random((*rows.shape, values.shape[1])) * held[rows][..., None]).astype(np.int64)
        inside = np.arange(values.shape[1]) < held[rows][..., None]  # a problem's own number of samples, no more
        drawn.append(_means(np.where(inside, values[rows[..., None], columns], np.nan)))
    return np.concatenate(drawn)


def _exponential(logs: Centre) -> Centre:
    """A mean of logarithms as the geometric mean that it is."""
    value, low, high = (None if each is None else math.exp(each) for each in (logs.value, logs.low, logs.high))
    return Centre(value=value, low=low, high=high, count=logs.count)


# --- one sample beside itself ---------------------------------------------------------------------------------


def side_by_side(study: Study) -> tuple[SideBySide, ...]:
    """Every sample: published, reproduced and verified speedup, and who refuses it why."""
    return tuple(
        SideBySide(
            level=one.level,
            number=one.number,
            title=one.title,
            solution=one.solution,
            sample=one.sample,
            kind=one.kind,
            published=one.published_speedup,
            reproduced=correct_speedup(one, KERNELBENCH.name),
            verified=correct_speedup(one, ADDRFRAC.name),
            gain=one.launched_by,
            reasons={protocol: reason(one, protocol) for protocol in study.protocols if not passed(one, protocol)},
        )
        for one in study.evaluations
    )


def reason(one: Evaluation, protocol: str) -> str:
    """Why the protocol refuses it: its status and the check that caught it, in words."""
    verdict = one.verdict(protocol)
    if verdict is None:
        return f"{LOST}: {one.failure or 'not asked'}"
    check = decisive_check(verdict)
    caught = f"{check.name}: {check.detail}" if check is not None else verdict.reason
    return f"{verdict.status.value}: {caught}"
