"""Blocks of several processes in, a verdict on the speed out: hierarchical bootstrap, margin for 'same', A/A floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from addrfrac import stats

SAME_MARGIN = 0.02
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


def compare(baseline: Blocks, candidate: Blocks, noise_floor: float | None = None) -> Comparison:
    """Median of process medians, baseline over candidate; one process alone cannot decide.

    A gain must lie beyond the noise floor with all of its interval, not with its middle alone.
    """
    margin = max(SAME_MARGIN, noise_floor or 0.0)
    found = stats.compare_arms(_steps(baseline), _steps(candidate), noise_floor, margin)
    beyond = 1.0 + (noise_floor or 0.0)
    if min(len(baseline), len(candidate)) < 2:
        verdict = "inconclusive"
    elif found.low > beyond:
        verdict = "faster"
    elif found.high < 1.0 / beyond:
        verdict = "slower"
    elif found.low > 1.0 / (1.0 + margin) and found.high < 1.0 + margin:
        verdict = "same"
    else:
        verdict = "inconclusive"
    return Comparison(
        verdict=verdict,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        least_detectable=found.least_detectable,
        noise_floor=noise_floor,
    )


def noise_between(first: Blocks, second: Blocks) -> float:
    """|ratio - 1| of two separately built instances of the same thing."""
    return stats.noise_between(_steps(first), _steps(second))


def _steps(blocks: Blocks) -> stats.Blocks:
    """A block's figure is that of its calls together: to `stats` each block is one step."""
    return [[[us] for us in process] for process in blocks]


def choose_best(baselines: Mapping[str, Blocks]) -> tuple[str, dict[str, Blocks]]:
    """The baseline that is best on one half of the blocks, and the other half of each, on which to report it.

    Choosing and reporting on the same samples makes the minimum of equals look faster than any of them. Turns run
    forwards and backwards by turns, and what ran before a block shows in it: each half has as many of either.
    """
    selecting: dict[str, Blocks] = {name: [_half(p, (0, 3)) for p in blocks] for name, blocks in baselines.items()}
    reporting: dict[str, Blocks] = {name: [_half(p, (1, 2)) or p for p in blocks] for name, blocks in baselines.items()}
    best = min(selecting, key=lambda name: stats.arm_median(_steps(selecting[name])))
    return best, reporting


def _half(process: Sequence[float], of_four: tuple[int, int]) -> Sequence[float]:
    """Two of every four blocks."""
    return [us for index, us in enumerate(process) if index % 4 in of_four]


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
