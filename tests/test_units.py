"""Rescaling and rounding for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addrfrac import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (4100.2, "4.10 ms"),
        (812.0, "812 µs"),
        (0.5, "500 ns"),
        (0.0, "0 µs"),
        (999.6, "1.00 ms"),
        (76_400_000.0, "76.4 s"),
        (4.0, "4.00 µs"),
        (None, "not measured"),
    ],
)
def test_a_duration_has_three_digits_in_the_unit_that_suits_it(us: float | None, text: str) -> None:
    assert units.microseconds(us) == text


@given(st.floats(min_value=1e-2, max_value=1e9))
def test_a_printed_duration_reads_back_within_half_a_percent(us: float) -> None:
    number, unit = units.microseconds(us).split()
    scale = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(us, rel=0.0051)


def test_an_absent_number_is_never_printed_as_zero() -> None:
    absent = [
        units.microseconds(None),
        units.microseconds_range(None, 1.0),
        units.percent(None),
        units.percent_range(0.1, None),
        units.speedup(None),
        units.speedup_range(None, None),
        units.bytes_(None),
        units.count(None),
        units.quantity(None),
        units.rate(None, "images"),
        units.signed_percent(None),
    ]
    assert set(absent) == {"not measured"}


def test_a_share_too_small_to_show_is_not_printed_as_zero() -> None:
    assert units.percent(0.0) == "0 %"
    assert units.percent(0.0001) == "<0.1 %"
    assert units.percent(-0.0001) == ">−0.1 %"
    assert units.percent(1.0) == "100 %"


def test_an_interval_whose_ends_read_the_same_is_one_number() -> None:
    assert units.percent_range(0.6231, 0.6229) == "62.3 %"
    assert units.percent_range(0.623, 0.651) == "62.3–65.1 %"
    assert units.microseconds_range(4081.0, 4123.0) == "4.08–4.12 ms"
    assert units.microseconds_range(950.0, 1050.0) == "0.95–1.05 ms"


def test_a_ceiling_without_an_upper_end_is_said_to_be_open() -> None:
    assert units.speedup_range(2.651, 2.87) == "2.65–2.87x"
    assert units.speedup_range(2.651, None) == "over 2.65x"
    assert units.speedup_range(2.651, math.inf) == "over 2.65x"
    assert units.speedup(math.inf) == "unbounded"
    assert units.speedup_range(math.inf, math.inf) == "unbounded"


def test_changes_show_their_sign() -> None:
    assert units.signed_microseconds(312.0) == "+312 µs"
    assert units.signed_percent_range(-0.042, 0.003) == "−4.2 % to +0.3 %"
    assert units.signed_points(-0.003) == "−0.3 points"
    assert units.signed_points(-0.0001) == "<0.1 points"


def test_sizes_and_counts_are_scaled() -> None:
    assert units.bytes_(150_754_820_096) == "140 GiB"
    assert units.bytes_(12) == "12 B"
    assert units.count(1204.0) == "1,204"
    assert units.count(12.5) == "12.5"
    assert units.quantity(25_557_032, "parameters") == "25.6 M parameters"
    assert units.rate(15_612.4, "images") == "15.6 k images/s"
    assert units.rate(0.2191, "images") == "0.219 images/s"
    assert units.count_range(17.0, 32.0) == "17–32"
    assert units.plural(1, "step") == "1 step"
    assert units.plural(2, "class", "classes") == "2 classes"
