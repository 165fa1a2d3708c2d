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
    t0, per_byte = (float(found[0]) for found in lines(moved, medians[None]))
    rng = np.random.default_rng(SEED)
    drawn = np.stack([_resampled_medians(each, rng) for each in repeats], axis=1)
    low, high = np.quantile(BYTES_PER_US_TO_GB_PER_S / lines(moved, drawn)[1], [0.025, 0.975])
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


def lines(moved: Floats, times_us: Floats) -> tuple[Floats, Floats]:
    """(t0, microseconds a byte) of each row of times, shape (rows, sizes): least squares of relative errors,
    reweighted after Huber; neither is negative."""
    weight = np.ones_like(times_us)
    t0, slope = _weighted(moved, times_us, weight)
    for _ in range(ROUNDS):
        errors = np.abs(t0[:, None] + moved * slope[:, None] - times_us) / times_us
        scale = np.maximum(1.4826 * np.median(errors, axis=1, keepdims=True), SMALLEST_SCALE)
        weight = np.minimum(1.0, TUNING * scale / np.maximum(errors, 1e-12))
        t0, slope = _weighted(moved, times_us, weight)
    return t0, slope


def _weighted(moved: Floats, times_us: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weighted least squares of t0 / t + bytes slope / t = 1; t0 is held at 0 where it would be negative."""
    u, v = 1.0 / times_us, moved / times_us
    uu, uv, vv = ((weight * product).sum(axis=1) for product in (u * u, u * v, v * v))
    to_u, to_v = (weight * u).sum(axis=1), (weight * v).sum(axis=1)
    determinant = uu * vv - uv * uv
    t0, slope = (vv * to_u - uv * to_v) / determinant, (uu * to_v - uv * to_u) / determinant
    slope = np.where(t0 < 0.0, to_v / vv, slope)
    # Where all sizes take as long, the largest one at least bounds the rate from below.
    slope = np.where(slope <= 0.0, times_us[:, -1] / moved[-1], slope)
    return np.maximum(t0, 0.0), slope


def _resampled_medians(samples: Floats, rng: np.random.Generator) -> Floats:
    drawn: Floats = np.median(samples[rng.integers(0, len(samples), (DRAWS, len(samples)))], axis=1)
    return drawn


def time_us(fit: AccessFit, moved_bytes: float) -> float:
    """What the fitted line says a kernel takes that moves so many bytes."""
    return fit.t0_us + moved_bytes * BYTES_PER_US_TO_GB_PER_S / fit.gb_per_s
