"""Blocks of several processes in, a verdict on the speed out: hierarchical bootstrap, margin for 'same', A/A floor."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SAME_MARGIN = 0.02
DRAWS = 2000
Blocks = Sequence[Sequence[float]]
"""[process][block]: microseconds a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many times faster one side is, and how sure that is."""

    verdict: str
    """'faster', 'slower', 'same' or 'inconclusive'."""
    speedup: float
    low: float
    high: float
    least_detectable: float
    noise_floor: float | None


def compare(baseline: Blocks, candidate: Blocks, noise_floor: float | None = None, seed: int = 0) -> Comparison:
    """Median of process medians, baseline over candidate; one process alone cannot decide."""
    rng = np.random.default_rng(seed)
    point = _centre(baseline) / _centre(candidate)
    draws = _drawn(baseline, rng) / _drawn(candidate, rng)
    low, high = (float(v) for v in np.quantile(draws, (0.025, 0.975)))
    floor = noise_floor or 0.0
    half = max((high - low) / 2 / point, floor)
    low, high = min(low, point * (1 - floor)), max(high, point * (1 + floor))
    margin = max(SAME_MARGIN, floor)
    if min(len(baseline), len(candidate)) < 2:
        verdict = "inconclusive"
    elif low > 1 + floor:
        verdict = "faster"
    elif high < 1 / (1 + floor):
        verdict = "slower"
    elif low > 1 / (1 + margin) and high < 1 + margin:
        verdict = "same"
    else:
        verdict = "inconclusive"
    return Comparison(
        verdict=verdict, speedup=point, low=low, high=high, least_detectable=half, noise_floor=noise_floor
    )


def noise_between(first: Blocks, second: Blocks) -> float:
    """|ratio - 1| of two separately built instances of the same thing."""
    return abs(_centre(first) / _centre(second) - 1.0)


def choose_best(baselines: Mapping[str, Blocks]) -> tuple[str, dict[str, Blocks]]:
    """The baseline that is best on the even blocks, and the odd blocks of each, on which to report it.

    Choosing and reporting on the same samples makes the minimum of equals look faster than any of them.
    """
    selecting: dict[str, Blocks] = {name: [p[0::2] for p in blocks] for name, blocks in baselines.items()}
    reporting: dict[str, Blocks] = {name: [p[1::2] or p for p in blocks] for name, blocks in baselines.items()}
    best = min(selecting, key=lambda name: _centre(selecting[name]))
    return best, reporting


def _centre(blocks: Blocks) -> float:
    return statistics.median(statistics.median(process) for process in blocks)


def _drawn(blocks: Blocks, rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The centre of each of DRAWS resamples: processes first, blocks within each."""
    medians = np.empty((DRAWS, len(blocks)))
    for index, process in enumerate(blocks):
        values = np.asarray(process, dtype=np.float64)
        medians[:, index] = np.median(values[rng.integers(0, len(values), (DRAWS, len(values)))], axis=1)
    chosen = rng.integers(0, len(blocks), (DRAWS, len(blocks)))
    centres: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.median(
        np.take_along_axis(medians, chosen, axis=1), axis=1
    )
    return centres


def order_of_turns(sides: Sequence[str], rounds: int) -> list[str]:
    """A B B A turns: neither side is always first on a cold or a hot device."""
    turns: list[str] = []
    for index in range(rounds):
        turns += list(sides) if index % 2 == 0 else list(reversed(sides))
    return turns


def three_totals(speedups: Sequence[float | None]) -> dict[str, tuple[float, int]]:
    """The geometric mean with its denominator: over what passed, failures as 1.0, and failures left as failures."""
    passed = [s for s in speedups if s is not None]

    def geometric(values: Sequence[float]) -> float:
        return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")

    return {
        "passed only": (geometric(passed), len(passed)),
        "failures as 1.0": (geometric([1.0 if s is None else s for s in speedups]), len(speedups)),
        "passed, of all": (geometric(passed), len(speedups)),
    }
