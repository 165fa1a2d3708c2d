"""Plain numbers in, text for people out; the only place that rescales or rounds."""

from __future__ import annotations

import math

NOT_MEASURED = "not measured"
DASH = "–"
"""Stands for an absent number inside a table."""

_TIME = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_DECIMAL = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def microseconds(us: float | None, missing: str = NOT_MEASURED) -> str:
    """A duration with three significant digits in the unit that suits it: 4100.2 -> '4.10 ms'."""
    if us is None:
        return missing
    if not math.isfinite(us):
        return str(us)
    if us == 0:
        return "0 µs"
    scale, unit = _time_unit(us)
    return f"{significant(us / scale)} {unit}"


def microseconds_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of durations, both ends in the unit of the upper: '4.08–4.12 ms'."""
    if low is None or high is None:
        return missing
    scale, unit = _time_unit(max(abs(low), abs(high)))
    decimals = _decimals(max(abs(low), abs(high)) / scale)
    return f"{_joined(f'{low / scale:.{decimals}f}', f'{high / scale:.{decimals}f}')} {unit}"


def milliseconds(us: float | None, missing: str = NOT_MEASURED) -> str:
    """A duration always in ms, for columns and axes that must share a unit: 812 -> '0.812'."""
    return missing if us is None else significant(us / 1e3)


def percent(share: float | None, missing: str = NOT_MEASURED) -> str:
    """A share of 0..1 with one decimal: 0.6234 -> '62.3 %'."""
    return missing if share is None else f"{_percent_number(share)} %"


def percent_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of shares: '62.3–65.1 %', or one number where both ends read the same."""
    if low is None or high is None:
        return missing
    return f"{_joined(_percent_number(low), _percent_number(high))} %"


def speedup(factor: float | None, missing: str = NOT_MEASURED) -> str:
    """Before / after: 2.6512 -> '2.65x'."""
    if factor is None:
        return missing
    return "unbounded" if math.isinf(factor) else f"{_factor(factor)}x"


def speedup_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of speed-ups: '2.65–2.87x'; a missing upper end means that nothing bounds it: 'over 2.65x'."""
    if low is None:
        return missing
    if math.isinf(low):
        return speedup(low)
    if high is None or math.isinf(high):
        return f"over {speedup(low)}"
    return f"{_joined(_factor(low), _factor(high))}x"


def bytes_(size: float | None, missing: str = NOT_MEASURED) -> str:
    """A size in binary units: 150_754_820_096 -> '140 GiB'."""
    if size is None:
        return missing
    scale, unit = next((pair for pair in _BINARY if abs(size) >= pair[0]), _BINARY[-1])
    return f"{size:.0f} B" if scale == 1 else f"{significant(size / scale)} {unit}"


def count(number: float | None, missing: str = NOT_MEASURED) -> str:
    """How many, with thousands separated; a mean that is not whole keeps one decimal: '1,204', '12.5'."""
    if number is None:
        return missing
    if abs(number - round(number)) < 0.05:
        return f"{round(number):,}"
    return f"{number:,.1f}"


def count_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of counts: '17–32'."""
    if low is None or high is None:
        return missing
    return _joined(count(low), count(high))


def plural(number: float, singular: str, plural: str = "") -> str:
    """A count with its noun: '1 step', '6 steps', '2 more classes'."""
    return f"{count(number)} {singular if number == 1 else plural or f'{singular}s'}"


def quantity(number: float | None, unit: str = "", missing: str = NOT_MEASURED) -> str:
    """A large number in decimal multiples: (25_557_032, 'parameters') -> '25.6 M parameters'."""
    if number is None:
        return missing
    scale, prefix = next(((s, p) for s, p in _DECIMAL if abs(number) >= s), (1.0, ""))
    digits = count(number) if scale == 1.0 and number == round(number) else significant(number / scale)
    return f"{digits}{prefix} {unit}".rstrip()


def rate(per_second: float | None, unit: str, missing: str = NOT_MEASURED) -> str:
    """Units a second: (15612.4, 'images') -> '15.6 k images/s'."""
    return missing if per_second is None else f"{quantity(per_second)} {unit}/s"


def signed_microseconds(us: float | None, missing: str = NOT_MEASURED) -> str:
    """A change of a duration, its sign always shown: '+312 µs'."""
    return missing if us is None else _signed(us, microseconds(abs(us)))


def signed_microseconds_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of changes of a duration: '−12.0 µs to +312 µs'."""
    if low is None or high is None:
        return missing
    return f"{signed_microseconds(low)} to {signed_microseconds(high)}"


def signed_percent(share: float | None, missing: str = NOT_MEASURED) -> str:
    """A change as a share of what it was before: '−4.2 %'."""
    return missing if share is None else _signed(share, percent(abs(share)))


def signed_percent_range(low: float | None, high: float | None, missing: str = NOT_MEASURED) -> str:
    """An interval of changes: '−4.2 % to +0.3 %'."""
    if low is None or high is None:
        return missing
    return f"{signed_percent(low)} to {signed_percent(high)}"


def signed_points(share: float | None, missing: str = NOT_MEASURED) -> str:
    """A difference of two shares in percentage points: '−0.3 points'."""
    return missing if share is None else _signed(share, f"{_percent_number(abs(share))} points")


def significant(number: float, digits: int = 3) -> str:
    """Fixed-point text with `digits` significant digits: 4.1002 -> '4.10', 1204.2 -> '1,204'."""
    return f"{number:,.{_decimals(number, digits)}f}"


def _decimals(number: float, digits: int = 3) -> int:
    if number == 0 or not math.isfinite(number):
        return 0
    # Rounded first, so that 9.996 reads "10.0" and not "10.00".
    magnitude = math.floor(math.log10(abs(float(f"{number:.{digits - 1}e}"))))
    return max(0, digits - 1 - magnitude)


def _time_unit(us: float) -> tuple[float, str]:
    rounded = abs(float(f"{us:.2e}"))
    return next((pair for pair in _TIME if rounded >= pair[0]), _TIME[-1])


def _percent_number(share: float) -> str:
    points = share * 100
    if points != 0 and abs(points) < 0.05:
        return "<0.1" if points > 0 else ">−0.1"
    text = f"{points:.1f}".replace("-", "−")
    return {"100.0": "100", "0.0": "0"}.get(text, text)


def _factor(factor: float) -> str:
    return f"{factor:.2f}" if factor < 100 else significant(factor)


def _joined(low: str, high: str) -> str:
    return low if low == high else f"{low}–{high}"


def _signed(number: float, magnitude: str) -> str:
    if number == 0 or magnitude.startswith("<"):
        return magnitude  # too small to show has no sign worth showing
    return f"{'+' if number > 0 else '−'}{magnitude}"
