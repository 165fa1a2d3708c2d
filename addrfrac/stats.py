"""Samples in, intervals and verdicts out; numpy only, every random draw seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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


def block_length(samples: Floats) -> int:
    """Steps a block must hold for blocks to be nearly independent.

    Carlstein's rule for a first-order autoregression (Ann. Statist. 14, 1986): (sqrt(6) r / (1 - r^2))^(2/3) n^(1/3)
    with r the lag-1 correlation. Steps on a GPU drift with clocks, so treating them as independent covers too little.
    """
    n = len(samples)
    centred = samples - samples.mean()
    power = float(centred @ centred)
    if n < 4 or power == 0.0:
        return 1
    r = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), 0.95)
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


def interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """The central interval of bootstrap values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def times(samples_us: Sequence[float], method: str) -> Times:
    """The median of a series of durations with its 95 % block-bootstrap interval.

    Raises ValueError for an empty series.
    """
    if not len(samples_us):
        raise ValueError("no samples")
    samples = np.asarray(samples_us, dtype=np.float64)
    low, high = interval(np.median(resample(samples, np.random.default_rng(SEED)), axis=1))
    return Times(
        samples_us=tuple(round(float(s), 3) for s in samples),
        median_us=float(np.median(samples)),
        low_us=low,
        high_us=high,
        method=method,
    )


def sampling_range(values: Sequence[float]) -> Range:
    """95 % interval of the mean over steps; empty with fewer than three steps."""
    if len(values) < 3:
        return Range(low=None, high=None)
    samples = np.asarray(values, dtype=np.float64)
    low, high = interval(resample(samples, np.random.default_rng(SEED)).mean(axis=1))
    return Range(low=low, high=high)


STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda values: np.asarray(values.mean(axis=-1)),
    "median": lambda values: np.asarray(np.median(values, axis=-1)),
}


def centre(statistic: str) -> Callable[[Sequence[float]], float]:
    """The function that sums up one series: 'mean' or 'median'."""
    of = STATISTICS[statistic]
    return lambda samples: float(of(np.asarray(samples, dtype=np.float64)))


def change(before: Sequence[float], after: Sequence[float], statistic: str = "mean") -> tuple[float, Range, Verdict]:
    """(after - before, its 95 % interval, verdict) of two independent series, e.g. one sample a step.

    The verdict is `same` only where the whole interval lies within SAME_MARGIN of the time before, and `inconclusive`
    with fewer than MINIMUM_STEPS a side, whatever the figures.
    """
    of = STATISTICS[statistic]
    a, b = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if not len(a) or not len(b):
        return 0.0, Range(low=None, high=None), Verdict.INCONCLUSIVE
    difference = float(of(b) - of(a))
    if min(len(a), len(b)) < MINIMUM_STEPS:
        return difference, Range(low=None, high=None), Verdict.INCONCLUSIVE
    rng = np.random.default_rng(SEED)
    low, high = interval(of(resample(b, rng)) - of(resample(a, rng)))
    margin = SAME_MARGIN * float(of(a))
    if -margin <= low and high <= margin:
        verdict = Verdict.SAME
    elif low > 0:
        verdict = Verdict.SLOWER
    elif high < 0:
        verdict = Verdict.FASTER
    else:
        verdict = Verdict.INCONCLUSIVE
    return difference, Range(low=low, high=high), verdict
