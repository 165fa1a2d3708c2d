"""Figures of ladder, ceilings and floors hold the numbers of the run."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from addrfrac.records import Run
from addrfrac.report import bounds_figures, ceilings, headroom

Make = Callable[[str], tuple[Run, ...]]


def test_the_ladder_is_drawn_in_the_order_tried_with_its_intervals(make: Make) -> None:
    (run,) = make("ladder")
    figure = bounds_figures.ladder(run)
    kept, not_kept = [trace for trace in figure.data if trace.type == "bar"]
    assert list(kept.x) == pytest.approx([4.760, 4.243, 3.310, 1.967, 1.967])
    assert list(not_kept.x) == pytest.approx([4.762, 4.750, 2.140, 1.890])
    assert list(kept.error_x.array) == pytest.approx([us * 0.005 for us in kept.x])
    order = list(figure.layout.yaxis.categoryarray)[::-1]
    assert order[0] == "eager, as it stands"
    assert order[-1] == "best-library, measured anew"
    assert set(order) == {*kept.y, *not_kept.y}
    (line,) = figure.layout.shapes
    assert line.x0 == pytest.approx(1.967 * 0.873)


def test_a_ladder_without_a_measured_ceiling_draws_no_line(make: Make) -> None:
    figure = bounds_figures.ladder(make("training_ladder")[0])
    assert not figure.layout.shapes


def test_measured_and_amdahl_lie_side_by_side_for_each_row_but_the_complement(make: Make) -> None:
    (run,) = make("ceiling")
    assert run.ceiling is not None
    marks = {trace.name: trace for trace in bounds_figures.ceiling(run.ceiling).data}
    rows = [row for row in run.ceiling.rows if row.kind != "complement"]
    assert len(marks["Amdahl of busy"].x) == len(marks["Amdahl of wall"].x) == len(rows)
    measured = [row for row in rows if row.gain is not None]
    assert len(marks["measured"].x) == len(measured) == len(rows) - 1
    gain = measured[0].gain
    assert gain is not None
    assert marks["measured"].x[0] - marks["measured"].error_x.array[0] == pytest.approx(gain.low)
    assert marks["measured"].x[0] + marks["measured"].error_x.array[0] == pytest.approx(gain.high)


def test_floor_and_headroom_of_a_kernel_sum_to_its_device_time(make: Make) -> None:
    (run,) = make("ladder")
    assert run.floors is not None
    sums: dict[str, float] = {}
    for bar in bounds_figures.headrooms(run.floors).data:
        for label, length in zip(bar.y, bar.x, strict=True):
            assert length >= 0
            sums[label] = sums.get(label, 0.0) + length
    assert sorted(sums.values()) == pytest.approx(sorted(row.device_us for row in run.floors.rows[: headroom.TOP]))


def test_the_roofline_holds_each_kernel_whose_flops_and_bytes_are_known(make: Make) -> None:
    (run,) = make("ladder")
    assert run.floors is not None
    figure = bounds_figures.roofline(run.floors)
    drawn = sum(len(trace.x) for trace in figure.data if trace.mode == "markers")
    assert drawn == len(run.floors.rows) - bounds_figures.undrawn(run.floors)
    assert bounds_figures.undrawn(run.floors) == 1
    stream = next(trace for trace in figure.data if trace.mode == "lines")
    assert stream.y[0] / stream.x[0] == pytest.approx(4.290)  # GB/s over flops a byte, in TFLOP/s
    assert stream.y[-1] <= 788.0 + 1e-6


def test_kernels_that_share_a_short_name_keep_bars_of_their_own(runs: ModuleType) -> None:
    (run,) = (runs.hostile_ladder(),)
    figure = bounds_figures.headrooms(run.floors)
    assert len({label for bar in figure.data for label in bar.y}) == headroom.TOP


def test_the_last_word_is_the_ceiling_above_best_library(make: Make) -> None:
    (run,) = make("ladder")
    last = ceilings.last_word(run)
    assert last is not None
    assert last.arm == "best-library"
    (only,) = make("training_ladder")
    assert ceilings.last_word(only) is not None
    assert ceilings.last_word(make("full")[0]) is None
