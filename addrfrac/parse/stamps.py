"""Decimal microseconds in, whole nanoseconds out; exact where float64 is not."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Ints

EXACT_FLOAT_US = float(1 << 43)
"""Below this float64 still tells three decimals of a microsecond apart; from here on they are read as text."""
LIMIT_US = 9.2e15
"""Microseconds whose nanoseconds fit in 63 bits."""
MISSING_NS = np.iinfo(np.int64).min
"""Stands for a stamp that is missing or no number."""


def from_floats(values: Sequence[float]) -> tuple[Ints, bool]:
    """Nanoseconds, MISSING_NS where there is no usable number, and whether all are small enough to be exact.

    Larger ones are exact only where they were whole microseconds, which the text must tell.
    """
    microseconds = np.array(values, np.float64)
    usable = np.abs(microseconds) < LIMIT_US
    microseconds = np.where(usable, microseconds, 0.0)
    whole = np.floor(microseconds)
    fraction = microseconds - whole
    exact = not bool(np.any(np.abs(microseconds) >= EXACT_FLOAT_US))
    # Apart, because a whole microsecond times 1000 may leave the exact range of float64.
    nanoseconds = whole.astype(np.int64) * 1000 + np.rint(fraction * 1000).astype(np.int64)
    return np.where(usable, nanoseconds, MISSING_NS), exact


def from_texts(values: Sequence[bytes]) -> Ints:
    """Nanoseconds of decimal numbers as text (quoted ones too), MISSING_NS where there is none."""
    if not values:
        return np.empty(0, np.int64)
    texts = np.array(values, np.bytes_)
    width = texts.dtype.itemsize
    characters: NDArray[np.uint8] = np.frombuffer(texts.tobytes(), np.uint8).reshape(len(values), width)
    is_digit = (characters >= 48) & (characters <= 57)
    is_dot = characters == 46
    is_end = characters == 0
    plain = (is_digit | is_dot | is_end).all(axis=1) & is_digit[:, 0] & (is_dot.sum(axis=1) <= 1) & (width <= 24)
    length = width - is_end.sum(axis=1)
    dot = np.where(is_dot.any(axis=1), is_dot.argmax(axis=1), length)
    plain &= (dot <= 16) & ~(is_end[:, :-1] & ~is_end[:, 1:]).any(axis=1)
    # Digit k before the dot weighs 10^(dot - 1 - k) us = 10^(dot + 2 - k) ns; after the dot one power less is used up.
    nanoseconds = np.zeros(len(values), np.int64)
    powers = np.power(10, np.arange(19, dtype=np.int64))
    for k in range(width):
        power = dot + 2 - k + (k > dot)
        weight = np.where((power >= 0) & (power < 19), powers[np.clip(power, 0, 18)], 0)
        digit = np.where(is_digit[:, k], characters[:, k].astype(np.int64) - 48, 0)
        nanoseconds += np.where(plain, digit * weight, 0)
        nanoseconds += np.where(plain & (power == -1) & (digit >= 5), 1, 0)
    for row in np.flatnonzero(~plain).tolist():
        nanoseconds[row] = _one(values[row])
    return nanoseconds


def _one(text: bytes) -> int:
    try:
        microseconds = Decimal(text.decode("ascii", "replace").strip().strip('"').strip())
    except InvalidOperation:
        return int(MISSING_NS)
    # The exponent first: arithmetic with an absurd one overflows or never ends.
    if not microseconds.is_finite() or microseconds.adjusted() > 16 or abs(microseconds) >= LIMIT_US:
        return int(MISSING_NS)
    return round(microseconds * 1000) if microseconds.adjusted() > -9 else 0
