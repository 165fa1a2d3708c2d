from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from addrfrac.parse import stamps

MISSING = stamps.MISSING_NS


def test_floats_below_the_limit_give_exact_nanoseconds() -> None:
    nanoseconds, exact = stamps.from_floats([1419116105412.087, 0.001, 4.0, 5223118679684.955])
    assert nanoseconds.tolist() == [1419116105412087, 1, 4000, 5223118679684955]
    assert exact


def test_numbers_beyond_the_limit_are_not_called_exact() -> None:
    assert not stamps.from_floats([1712195495505582.988])[1]


def test_whole_microseconds_beyond_the_limit_are_right_all_the_same() -> None:
    assert stamps.from_floats([1683564902133367.0])[0].tolist() == [1683564902133367000]


def test_what_is_no_number_is_missing() -> None:
    assert stamps.from_floats([float("nan"), float("inf"), 1e300])[0].tolist() == [MISSING] * 3
    assert stamps.from_texts([b"", b"null", b"true", b'"abc"', b"NaN", b"1e99999999"]).tolist() == [MISSING] * 6
    assert stamps.from_texts([b"1e-99999999"]).tolist() == [0]


def test_texts_are_read_digit_by_digit() -> None:
    texts = [b"1712195495505582.988", b"1.0006", b"12", b'"34.5"', b"-7.25", b"1.5e3", b"1712195495505582.9885"]
    expected = [1712195495505582988, 1001, 12000, 34500, -7250, 1500000, 1712195495505582989]
    assert stamps.from_texts(texts).tolist() == expected


def test_no_text_gives_no_stamp() -> None:
    assert len(stamps.from_texts([])) == 0


@given(st.lists(st.decimals(min_value=0, max_value=9_000_000_000_000_000, places=3), min_size=1))
def test_texts_agree_with_decimal_arithmetic(values: list[Decimal]) -> None:
    found = stamps.from_texts([f"{value:f}".encode() for value in values])
    assert found.tolist() == [int(value * 1000) for value in values]


@given(st.lists(st.decimals(min_value=0, max_value=8_000_000_000_000, places=3), min_size=1))
def test_floats_agree_with_decimal_arithmetic(values: list[Decimal]) -> None:
    found, exact = stamps.from_floats([float(value) for value in values])
    assert exact
    assert found.tolist() == [int(value * 1000) for value in values]
    assert found.dtype == np.int64
