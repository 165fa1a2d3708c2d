"""Timed sizes of one access type in, the line t0 + bytes / bandwidth through them out, and times read off it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import AccessFit
from addrfrac.stats import SEED

Floats = NDArray[np.float64]

DRAWS = 500
ROUNDS = 20
"""Of reweighting; the line stands still after a few."""
TUNING = 1.345
"""Huber's constant: 95 % of least squares where errors are normal (Huber 1964)."""
SMALLEST_SCALE = 1e-3
"""Relative errors below this are all the same to the fit."""
BYTES_PER_US_TO_GB_PER_S = 1e-3


def fit_access(*, access: str, residency: str, samples_us: Mapping[int, Sequence[float]], what: str) -> AccessFit:
    """The robust fit over the medians at each size (bytes -> repeats), its bandwidth's interval by resampling repeats.

    Relative errors are weighed alike, so that small sizes fix t0 and large ones the bandwidth.
    Raises ValueError with fewer than three sizes or a time that is not positive.
    """
    sizes = sorted(samples_us)
    if len(sizes) < 3:
        raise ValueError(f"{access} {residency}: {len(sizes)} sizes are too few for a line")
    repeats = [np.asarray(samples_us[size], dtype=np.float64) for size in sizes]
    if any(not len(each) or each.min() <= 0 for each in repeats):
        raise ValueError(f"{access} {residency}: some times are not positive")
    moved = np.asarray(sizes, dtype=np.float64)
    medians = np.array([float(np.median(each)) for each in repeats])
    t0, per_byte = line(moved, medians)
    rng = np.random.default_rng(SEED)
    draws = [line(moved, _resampled_medians(repeats, rng))[1] for _ in range(DRAWS)]
    low, high = np.quantile([BYTES_PER_US_TO_GB_PER_S / slope for slope in draws], [0.025, 0.975])
    bandwidth = BYTES_PER_US_TO_GB_PER_S / per_byte
    fitted = t0 + moved * per_byte
    return AccessFit(
        access=access,
        residency=residency,
        t0_us=t0,
        gb_per_s=bandwidth,
        low_gb_per_s=min(float(low), bandwidth),
        high_gb_per_s=max(float(high), bandwidth),
        largest_error=float(np.max(np.abs(fitted - medians) / medians)),
        sizes_bytes=tuple(sizes),
        times_us=tuple(float(median) for median in medians),
        what=what,
    )


def line(moved: Floats, times_us: Floats) -> tuple[float, float]:
    """(t0, microseconds a byte): least squares of relative errors, reweighted after Huber; neither is negative."""
    weight = np.ones(len(moved))
    found = (0.0, 0.0)
    for _ in range(ROUNDS):
        before, found = found, _weighted(moved, times_us, weight)
        errors = np.abs(found[0] + moved * found[1] - times_us) / times_us
        scale = max(1.4826 * float(np.median(errors)), SMALLEST_SCALE)
        weight = np.minimum(1.0, TUNING * scale / np.maximum(errors, 1e-12))
        if np.allclose(before, found, rtol=1e-9, atol=0.0):
            break
    return found


def _weighted(moved: Floats, times_us: Floats, weight: Floats) -> tuple[float, float]:
    """Weighted least squares of t0 / t + bytes slope / t = 1; t0 is held at 0 where it would be negative."""
    root = np.sqrt(weight)
    columns = np.stack([root / times_us, root * moved / times_us], axis=1)
    t0, slope = np.linalg.lstsq(columns, root, rcond=None)[0]
    if t0 < 0.0:
        t0, slope = 0.0, float(columns[:, 1] @ root) / float(columns[:, 1] @ columns[:, 1])
    if slope <= 0.0:  # all sizes take as long: the largest one at least bounds the rate from below
        slope = float(times_us[-1]) / float(moved[-1])
    return float(t0), float(slope)


def _resampled_medians(repeats: Sequence[Floats], rng: np.random.Generator) -> Floats:
    return np.array([float(np.median(each[rng.integers(0, len(each), len(each))])) for each in repeats])


def time_us(fit: AccessFit, moved_bytes: float) -> float:
    """What the fitted line says a kernel takes that moves so many bytes."""
    return fit.t0_us + moved_bytes * BYTES_PER_US_TO_GB_PER_S / fit.gb_per_s
