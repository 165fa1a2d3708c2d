"""Samples in, intervals and verdicts out; numpy only, every random draw seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Range, Times, Verdict

Floats = NDArray[np.float64]

DRAWS = 2000
SEED = 20260928
MINIMUM_STEPS = 5
"""Below this many steps a side no comparison is made."""
SAME_MARGIN = 0.01
"""Two times are `same` when the whole interval of their ratio lies within this of 1."""
FEWEST_EFFECTIVE = 3.0
"""However correlated, a series counts for at least this many independent steps: below it no interval is of any use."""

STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda values: np.asarray(values.mean(axis=-1)),
    "median": lambda values: np.asarray(np.median(values, axis=-1)),
}


def centre(statistic: str) -> Callable[[Sequence[float]], float]:
    """The function that sums up one series: 'mean' or 'median'."""
    of = STATISTICS[statistic]
    return lambda samples: float(of(np.asarray(samples, dtype=np.float64)))


# --- one series ---------------------------------------------------------------------------------------------


def lag_one(samples: Floats) -> float:
    """Lag-1 correlation of a series, 0 to 0.9, less the bias of its usual estimate, -(1 + 3r) / n (Kendall 1954)."""
    n = len(samples)
    centred = samples - samples.mean()
    power = float(centred @ centred)
    if n < 4 or power == 0.0:
        return 0.0
    estimate = float(centred[1:] @ centred[:-1]) / power
    return min(max((n * estimate + 1.0) / (n - 3.0), 0.0), 0.9)


def block_length(samples: Floats) -> int:
    """Steps a block must hold for blocks to be nearly independent.

    Carlstein's rule for a first-order autoregression (Ann. Statist. 14, 1986): (sqrt(6) r / (1 - r^2))^(2/3) n^(1/3)
    with r the lag-1 correlation. Steps on a GPU drift with clocks, so treating them as independent covers too little.
    """
    n, r = len(samples), lag_one(samples)
    length = (math.sqrt(6.0) * r / (1.0 - r * r)) ** (2.0 / 3.0) * n ** (1.0 / 3.0)
    return int(min(max(1, round(length)), max(1, n // 3)))


def resample(samples: Floats, rng: np.random.Generator, draws: int = DRAWS) -> Floats:
    """`draws` circular-block bootstrap resamples of a series; shape (draws, n)."""
    n = len(samples)
    block = block_length(samples)
    starts = rng.integers(0, n, size=(draws, math.ceil(n / block)))
    index = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n] % n
    resampled: Floats = samples[index]
    return resampled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A statistic of one series and how it may vary."""

    value: float
    deviations: Floats
    """Bootstrap values less `value`, widened to the variance that the series' correlation implies."""
    variance: float
    """Of the mean."""
    freedom: float
    """Degrees of freedom that `variance` was estimated with."""


def sampled(samples: Floats, statistic: str, rng: np.random.Generator) -> Sampled:
    """Block-bootstrap a statistic, corrected for what blocks of a short series miss.

    A few blocks vary less than the series they stand for, and their correlation is underestimated: alone they cover
    61-86 % where 95 % is said (5-50 steps, lag-1 correlation 0.5). So the deviations are widened to the variance of the
    mean of a first-order autoregression, s^2 (1 + r) / (1 - r) / n, with s^2 freed of the bias that r gives it.
    """
    n, r = len(samples), lag_one(samples)
    resampled = resample(samples, rng)
    value = float(STATISTICS[statistic](samples))
    effective = max(n * (1.0 - r) / (1.0 + r), min(FEWEST_EFFECTIVE, n))
    if n < 2:
        return Sampled(value=value, deviations=np.zeros(DRAWS), variance=0.0, freedom=1.0)
    unbiased = float(samples.var(ddof=1)) / max(1.0 - (n / effective - 1.0) / (n - 1.0), 0.25)
    variance, of_blocks = unbiased / effective, float(resampled.mean(axis=1).var())
    widen = max(1.0, math.sqrt(variance / of_blocks)) if of_blocks > 0.0 else 1.0
    return Sampled(
        value=value,
        deviations=widen * (STATISTICS[statistic](resampled) - value),
        variance=variance,
        freedom=effective - 1.0,
    )


def student_over_normal(freedom: float, comparisons: int = 1) -> float:
    """How much wider than a normal 95 % interval one must be whose variance has so many degrees of freedom.

    With several comparisons it is so wide that all of them hold together at 95 % (Bonferroni). Student's quantile by
    Abramowitz and Stegun 26.7.5, within 4 % from two degrees of freedom on for one comparison.
    """
    z = -NormalDist().inv_cdf(0.025 / comparisons)
    terms = (
        (z**3 + z) / (4 * freedom),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3),
    )
    return (z + sum(terms)) / -NormalDist().inv_cdf(0.025)


def interval(deviations: Floats, freedom: float, comparisons: int = 1) -> tuple[float, float]:
    """The 95 % interval of bootstrap deviations; it holds 0."""
    low, high = np.quantile(deviations, [0.025, 0.975]) * student_over_normal(freedom, comparisons)
    return min(float(low), 0.0), max(float(high), 0.0)


def times(samples_us: Sequence[float], method: str) -> Times:
    """The median of a series of durations with its 95 % block-bootstrap interval, never wider than the series itself.

    Raises ValueError for an empty series.
    """
    if not len(samples_us):
        raise ValueError("no samples")
    samples = np.asarray(samples_us, dtype=np.float64)
    found = sampled(samples, "median", np.random.default_rng(SEED))
    low, high = interval(found.deviations, found.freedom)
    return Times(
        samples_us=tuple(round(float(s), 3) for s in samples),
        median_us=found.value,
        low_us=max(found.value + low, float(samples.min())),
        high_us=min(found.value + high, float(samples.max())),
        method=method,
    )


def sampling_range(values: Sequence[float]) -> Range:
    """95 % interval of the mean over steps; empty with fewer than three steps."""
    if len(values) < 3:
        return Range(low=None, high=None)
    found = sampled(np.asarray(values, dtype=np.float64), "mean", np.random.default_rng(SEED))
    low, high = interval(found.deviations, found.freedom)
    return Range(low=found.value + low, high=found.value + high)


# --- two series ---------------------------------------------------------------------------------------------


def change(
    before: Sequence[float], after: Sequence[float], statistic: str = "mean", comparisons: int = 1
) -> tuple[float, Range, Verdict]:
    """(after - before, its 95 % interval, verdict) of two independent series, e.g. one sample a step.

    The verdict is `same` only where the whole interval lies within SAME_MARGIN of the time before, and `inconclusive`
    with fewer than MINIMUM_STEPS a side, whatever the figures. Where this is one of several comparisons, the verdict
    (not the interval) asks for so much more that all of them hold together: of sixty kernels that did not change, one
    by one, two or three would be called faster or slower.
    """
    if not len(before) or not len(after):
        return 0.0, Range(low=None, high=None), Verdict.INCONCLUSIVE
    rng = np.random.default_rng(SEED)
    a = sampled(np.asarray(before, dtype=np.float64), statistic, rng)
    b = sampled(np.asarray(after, dtype=np.float64), statistic, rng)
    difference = b.value - a.value
    if min(len(before), len(after)) < MINIMUM_STEPS:
        return difference, Range(low=None, high=None), Verdict.INCONCLUSIVE
    deviations, freedom = b.deviations - a.deviations, _joint_freedom(a, b)
    low, high = interval(deviations, freedom)
    surely = interval(deviations, freedom, comparisons)
    verdict = _verdict(difference + surely[0], difference + surely[1], SAME_MARGIN * a.value)
    return difference, Range(low=difference + low, high=difference + high), verdict


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if -margin <= low and high <= margin:
        return Verdict.SAME
    if low > 0:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 0 else Verdict.INCONCLUSIVE


def _joint_freedom(a: Sampled, b: Sampled) -> float:
    """Welch and Satterthwaite's degrees of freedom of a difference."""
    total = a.variance + b.variance
    if total == 0.0:
        return max(a.freedom, b.freedom)
    return total**2 / (a.variance**2 / a.freedom + b.variance**2 / b.freedom)


# --- arms: blocks of steps within processes -------------------------------------------------------------------

Blocks = Sequence[Sequence[Sequence[float]]]
"""[process][block][step]: durations, in the order taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One arm against another."""

    speedup: float
    """Before / after, each the median of its processes' medians."""
    low: float
    high: float
    saved: Range
    """95 % interval of before - after."""
    verdict: Verdict
    least_detectable: float
    """Half of the interval, relative: what lies below it could not have been told from nothing."""


def _block_medians(blocks: Blocks) -> list[Floats]:
    medians = [np.array([np.median(block) for block in process if len(block)], dtype=np.float64) for process in blocks]
    kept = [each for each in medians if len(each)]
    if not kept:
        raise ValueError("no samples")
    return kept


def arm_median(blocks: Blocks) -> float:
    """Median of the processes' medians, each of its blocks' medians. Raises ValueError where there is no sample."""
    return float(np.median([np.median(process) for process in _block_medians(blocks)]))


def _log_deviations(blocks: Blocks, rng: np.random.Generator) -> tuple[Floats, float]:
    """How the logarithm of an arm's median may vary, and with how many degrees of freedom that was found.

    Processes are resampled, then blocks within each: what differs between processes (addresses, autotuning, clocks)
    never shows within one. Few units vary less than what they stand for, by (n - 1) / n, which is undone.
    """
    medians = _block_medians(blocks)
    units = len(medians) if len(medians) > 1 else len(medians[0])
    inner = np.empty((DRAWS, len(medians)))
    for index, process in enumerate(medians):
        inner[:, index] = np.median(process[rng.integers(0, len(process), (DRAWS, len(process)))], axis=1)
    chosen = rng.integers(0, len(medians), (DRAWS, len(medians)))
    drawn = np.median(np.take_along_axis(inner, chosen, axis=1), axis=1)
    unbiased = math.sqrt(units / (units - 1.0)) if units > 1 else 1.0
    return unbiased * (np.log(drawn) - math.log(arm_median(blocks))), max(units - 1.0, 1.0)


def arm_interval(blocks: Blocks) -> tuple[float, float, float]:
    """(median, low, high) of an arm's step time, with its 95 % hierarchical-bootstrap interval."""
    deviations, freedom = _log_deviations(blocks, np.random.default_rng(SEED))
    low, high = interval(deviations, freedom)
    value = arm_median(blocks)
    return value, value * math.exp(low), value * math.exp(high)


def compare_arms(
    before: Blocks, after: Blocks, noise_floor: float | None = None, margin: float = SAME_MARGIN
) -> Compared:
    """The speedup of one arm over another with its 95 % hierarchical-bootstrap interval.

    The interval is never narrower than the noise floor on either side, so a gain that two instances of the same arm
    show too is no gain. `same` where all of it lies within the margin, as `change` has it.
    """
    rng = np.random.default_rng(SEED)
    of_before, freedom_before = _log_deviations(before, rng)
    of_after, freedom_after = _log_deviations(after, rng)
    low, high = interval(of_before - of_after, freedom_before + freedom_after)
    floor = math.log1p(noise_floor or 0.0)
    low, high = min(low, -floor), max(high, floor)
    time_before, time_after = arm_median(before), arm_median(after)
    point = math.log(time_before / time_after)
    saved = interval(time_before * of_before - time_after * of_after, freedom_before + freedom_after)
    within = max(margin, noise_floor or 0.0)
    return Compared(
        speedup=math.exp(point),
        low=math.exp(point + low),
        high=math.exp(point + high),
        saved=Range(low=time_before - time_after + saved[0], high=time_before - time_after + saved[1]),
        verdict=_opposite(_verdict(point + low, point + high, math.log1p(within))),
        least_detectable=math.expm1((high - low) / 2),
    )


def _opposite(verdict: Verdict) -> Verdict:
    """`_verdict` reads a difference of times; a speedup grows as times fall."""
    return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(verdict, verdict)


def noise_between(first: Blocks, second: Blocks) -> float:
    """|ratio - 1| of two separately built instances of the same arm."""
    return abs(arm_median(first) / arm_median(second) - 1.0)
