"""Shares with exact binomial intervals, without SciPy."""

from __future__ import annotations

import math

from addrfrac.verification.records import Rate


def clopper_pearson(hits: int, total: int, level: float = 0.95) -> Rate:
    """The Clopper-Pearson interval: ends where the binomial tail is (1 - level) / 2, by bisection."""
    if total == 0:
        return Rate(hits=0, total=0, low=None, high=None)
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _solve(lambda p: _upper_tail(hits, total, p) - tail)
    high = 1.0 if hits == total else _solve(lambda p: tail - _upper_tail(total - hits, total, 1 - p))
    return Rate(hits=hits, total=total, low=low, high=high)


def _upper_tail(hits: int, total: int, p: float) -> float:
    """P(X >= hits) for X ~ Binomial(total, p)."""
    if p <= 0.0:
        return 0.0 if hits else 1.0
    if p >= 1.0:
        return 1.0
    logs = [
        math.lgamma(total + 1)
        - math.lgamma(k + 1)
        - math.lgamma(total - k + 1)
        + k * math.log(p)
        + (total - k) * math.log1p(-p)
        for k in range(hits, total + 1)
    ]
    return math.fsum(math.exp(value) for value in logs)


def _solve(rising) -> float:  # type: ignore[no-untyped-def]
    """Root in 0..1 of a function that rises."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
