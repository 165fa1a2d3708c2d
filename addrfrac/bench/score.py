"""Evaluations in, win rates and middle speedups with intervals out; numpy only, every random draw seeded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np

from addrfrac import stats
from addrfrac.bench.records import Centre, Evaluation, Score, Share
from addrfrac.records import ArmTimes, Gain, Verdict

DRAWS = 4000
SEED = 20260928
THRESHOLDS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


def wilson(hits: int, total: int) -> Share:
    """A share with Wilson's interval (J. Am. Stat. Assoc. 22, 1927); good at few cases and at the ends."""
    if not total:
        return Share(hits=0, total=0, low=None, high=None)
    z = NormalDist().inv_cdf(0.975)
    p, shrink = hits / total, 1.0 + z * z / total
    middle = (p + z * z / (2 * total)) / shrink
    half = z * math.sqrt(p * (1.0 - p) / total + z * z / (4 * total * total)) / shrink
    return Share(hits=hits, total=total, low=max(0.0, middle - half), high=min(1.0, middle + half))


def median(speedups: Sequence[float]) -> Centre:
    return _centre(speedups, lambda logs: np.median(logs, axis=-1))


def geometric_mean(speedups: Sequence[float]) -> Centre:
    return _centre(speedups, lambda logs: logs.mean(axis=-1))


def _centre(speedups: Sequence[float], of: Callable[[np.ndarray], np.ndarray]) -> Centre:
    """The middle and its percentile bootstrap over problems; no interval for fewer than three."""
    if not speedups:
        return Centre(value=None, low=None, high=None, count=0)
    logs = np.log(np.asarray(speedups, dtype=np.float64))
    value = float(np.exp(of(logs)))
    if len(logs) < 3:
        return Centre(value=value, low=None, high=None, count=len(logs))
    index = np.random.default_rng(SEED).integers(0, len(logs), (DRAWS, len(logs)))
    low, high = np.exp(np.quantile(of(logs[index]), (0.025, 0.975)))
    return Centre(value=value, low=float(low), high=float(high), count=len(logs))


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that one of k samples drawn from `samples`, of which `right` are right, is right.

    The unbiased estimate of Chen et al. (arXiv 2107.03374). Raises ValueError where k is above `samples`.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"k from 1 to {samples}, not {k}")
    if samples - right < k:
        return 1.0
    return 1.0 - math.prod((samples - right - i) / (samples - i) for i in range(k))


def is_right(evaluation: Evaluation) -> bool:
    """Verified, and in agreement with the reference at this size wherever that was looked at."""
    failed = evaluation.failure and not evaluation.failure.endswith("--no-time")
    return evaluation.judged.passed and evaluation.agrees is not False and not failed


def scores(evaluations: Iterable[Evaluation]) -> tuple[Score, ...]:
    """One score a solution set, size and index distribution; a problem without ids counts under both distributions."""
    rows = list(evaluations)
    kinds = sorted({e.indices for e in rows if e.indices != "-"}) or ["-"]
    keys = sorted({(e.solution, e.size) for e in rows})
    return tuple(
        _score(solution, size, indices, chosen)
        for solution, size in keys
        for indices in kinds
        if (chosen := [e for e in rows if (e.solution, e.size) == (solution, size) and e.indices in (indices, "-")])
    )


def _score(solution: str, size: str, indices: str, rows: Sequence[Evaluation]) -> Score:
    rows = _one_a_problem(rows)
    right = [row for row in rows if is_right(row)]
    with_library = [row for row in rows if _has_library(row)]
    eager = [row.over_eager.speedup for row in right if row.over_eager is not None]
    best = [row.over_best.speedup for row in right if row.over_best is not None]
    return Score(
        solution=solution,
        size=size,
        indices=indices,
        passed=wilson(len(right), len(rows)),
        wins_over_eager=wilson(sum(_won(row.over_eager) for row in right), len(rows)),
        wins_over_best=wilson(sum(_won(row.over_best) for row in right), len(rows)),
        wins_over_library=wilson(
            sum(_won(row.over_library) for row in with_library if is_right(row)), len(with_library)
        ),
        median_over_eager=median(eager),
        geometric_mean_over_eager=geometric_mean(eager),
        median_over_best=median(best),
        median_win_over_eager=median([r.over_eager.speedup for r in right if r.over_eager and _won(r.over_eager)]),
        median_win_over_best=median([r.over_best.speedup for r in right if r.over_best and _won(r.over_best)]),
        geometric_mean_over_best=geometric_mean(best),
        geometric_mean_fixed=geometric_mean(eager + [1.0] * (len(rows) - len(eager))),
        fast_p={f"{p:g}": sum(speedup > p for speedup in eager) / len(rows) for p in THRESHOLDS},
        failures=dict(Counter(_why(row) for row in rows if not is_right(row)).most_common()),
    )


def mean_pass_at_k(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, float]]:
    """Solution set -> k -> pass@k, averaged over problems; only sets with several samples, up to the fewest of any."""
    found: dict[str, dict[str, float]] = {}
    for solution, problems in _by_problem(evaluations).items():
        fewest = min(len(rows) for rows in problems)
        if fewest < 2:
            continue
        counts = [(len(rows), sum(map(is_right, rows))) for rows in problems]
        found[solution] = {
            str(k): sum(pass_at_k(samples, right, k) for samples, right in counts) / len(counts)
            for k in range(1, fewest + 1)
        }
    return found


def best_of(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Centre]]:
    """Solution set -> k -> median over problems of the best of the first k samples, over eager.

    The best is chosen on even blocks and told of odd ones: the fastest of several equals is else too fast. A problem
    with no right sample among them counts as 1.0.
    """
    found: dict[str, dict[str, Centre]] = {}
    for solution, problems in _by_problem(evaluations).items():
        fewest = min(len(rows) for rows in problems)
        if fewest > 1:
            found[solution] = {
                str(k): median([_best_speedup(rows[:k]) for rows in problems]) for k in range(1, fewest + 1)
            }
    return found


def _best_speedup(rows: Sequence[Evaluation]) -> float:
    timed = [(row, {arm.arm: arm for arm in row.arms}) for row in rows if is_right(row) and row.over_eager is not None]
    if not timed:
        return 1.0
    _, arms = max(timed, key=lambda each: _speedup(each[1], 0))
    return _speedup(arms, 1)


def _speedup(arms: Mapping[str, ArmTimes], parity: int) -> float:
    """Eager over the solution on every other block."""
    before, after = (
        stats.arm_median([list(process[parity::2] or process) for process in arms[name].blocks_us])
        for name in ("eager", "solution")
    )
    return before / after


def _by_problem(evaluations: Iterable[Evaluation]) -> dict[str, list[list[Evaluation]]]:
    """Solution set -> a list of samples for each problem, size and distribution."""
    grouped: dict[str, dict[tuple[object, ...], list[Evaluation]]] = {}
    for row in evaluations:
        place = row.number, row.size, row.indices
        grouped.setdefault(row.solution, {}).setdefault(place, []).append(row)
    return {
        solution: [sorted(rows, key=lambda row: row.sample) for rows in places.values()]
        for solution, places in grouped.items()
    }


def _one_a_problem(rows: Sequence[Evaluation]) -> list[Evaluation]:
    """Of several samples the first, so that a score is of one attempt; `pass_at_k` speaks of more."""
    first: dict[str, Evaluation] = {}
    for row in sorted(rows, key=lambda row: (row.number, row.sample)):
        first.setdefault(row.problem, row)
    return list(first.values())


def _has_library(row: Evaluation) -> bool:
    return bool(row.extra.get("library"))


def _won(gain: Gain | None) -> bool:
    return gain is not None and gain.verdict is Verdict.FASTER


def _why(row: Evaluation) -> str:
    if not row.judged.passed:
        return row.judged.status
    return "wrong at this size" if row.agrees is False else "not timed"
