"""Figures hold the numbers of the run, and their words can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from types import ModuleType

import pytest

from addrfrac.records import Op, Run
from addrfrac.report import figures, tables

Make = Callable[[str], tuple[Run, ...]]


def test_every_class_has_a_colour_of_its_own() -> None:
    assert set(figures.OP_COLOURS) == set(Op)
    assert len(set(figures.OP_COLOURS.values())) == len(Op)


@pytest.mark.parametrize("fill", [*figures.OP_COLOURS.values(), *figures.BOUND_COLOURS.values()])
def test_words_inside_a_bar_stand_out_from_it(fill: str) -> None:
    assert figures.contrast(figures.readable_on(fill), fill) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_colours_of_the_page_stand_out_from_their_grounds(theme: str) -> None:
    style = resources.files("addrfrac.report").joinpath("page.css").read_text(encoding="utf-8")
    light = re.search(r":root \{(.*?)\}", style, re.DOTALL)
    dark = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', style, re.DOTALL)
    assert light is not None
    assert dark is not None
    blocks = (light, dark) if theme == "dark" else (light,)
    colours = {name: value for block in blocks for name, value in re.findall(r"--([\w-]+): (#\w{6})", block.group(1))}
    for ink in ("ink", "muted", "accent", "good", "bad", "warn"):
        for ground in ("paper", "card", "soft"):
            assert figures.contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert figures.contrast(colours["warn"], colours["warn-soft"]) >= 4.5


@pytest.mark.parametrize("name", ["full", "training", "unknown_time"])
def test_both_bars_of_the_step_sum_to_its_span(make: Make, name: str) -> None:
    (run,) = make(name)
    sums: dict[str, float] = {}
    for bar in figures.step(run).data:
        sums[bar.y[0]] = sums.get(bar.y[0], 0.0) + bar.x[0] * 1e3
    profiled = [us for label, us in sums.items() if label.startswith(("who", "what"))]
    assert len(profiled) == 2
    for us in profiled:
        assert us == pytest.approx(run.accounts.span_us, rel=1e-6)
    assert sums["unprofiled<br>wall"] == pytest.approx(run.wall.step_us if run.wall else None)


def test_the_marks_on_the_amdahl_curve_are_the_ends_of_each_interval(make: Make) -> None:
    (run,) = make("full")
    marks = [trace for trace in figures.amdahl([run]).data if trace.mode == "lines+markers"]
    paper = run.addressable.by_policy["paper"]
    assert (marks[0].x[0], marks[0].x[-1]) == (paper.share_of_wall.low, paper.share_of_wall.high)
    assert (marks[0].y[0], marks[0].y[-1]) == pytest.approx((paper.speedup_of_wall.low, paper.speedup_of_wall.high))
    assert "policy vendor, strict" in marks[1].name  # the two agree here, so they share a mark


def test_a_ceiling_beyond_the_axis_stays_on_the_picture(runs: ModuleType) -> None:
    figure = figures.amdahl([runs.multi_policy()])
    assert figure.layout.yaxis.range[1] <= figures.LONGEST_AXIS
    for trace in figure.data:
        assert max(trace.y) <= figures.LONGEST_AXIS * 1.05


def test_a_sweep_draws_points_in_order_of_the_swept_number(runs: ModuleType) -> None:
    shuffled = tuple(runs.sweep()[number] for number in (2, 0, 1))
    assert list(figures.sweep_step(shuffled).data[0].x) == [1, 16, 64]
    assert list(figures.sweep_fraction(shuffled).data[0].x) == [1, 16, 64]


def test_runs_side_by_side_fill_the_whole_step(make: Make) -> None:
    figure = figures.steps_of_all(make("sweep"))
    for number in range(3):
        assert sum(bar.x[number] for bar in figure.data) == pytest.approx(1.0)
    assert "unprofiled wall" in figure.layout.xaxis.title.text
    assert "profiled span" in figures.steps_of_all(make("mixed")).layout.xaxis.title.text


def test_phases_come_in_the_order_they_run(make: Make) -> None:
    assert list(tables.phases(make("training")[0])["phase"].unique()) == ["forward", "backward", "optimizer"]
