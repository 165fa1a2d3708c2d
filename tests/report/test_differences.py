"""Diffs and what-ifs in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from types import ModuleType

import markdown_it
import pytest

from addrfrac import report
from addrfrac.records import Diff, DiffRow, Range, Verdict, WhatIf, WhatIfRow

NOTHING = Range(low=None, high=None)


def row(
    name: str, before: float | None, after: float | None, interval: Range, verdict: Verdict = Verdict.SLOWER
) -> DiffRow:
    change = (after or 0.0) - (before or 0.0)
    return DiffRow(name=name, before_us=before, after_us=after, change_us=change, interval_us=interval, verdict=verdict)


@pytest.fixture
def moved() -> Diff:
    """The step became slower, one class vanished, one kernel is new."""
    return Diff(
        before="resnet50 before",
        after="resnet50 after",
        step=row("step", 4100.0, 4412.0, Range(low=290.0, high=330.0)),
        slowdown=Range(low=0.0707, high=0.081),
        basis="unprofiled step times, device events",
        classes=(
            row("conv · cudnn · forward", 1400.0, 1700.0, Range(low=280.0, high=320.0)),
            row("pooling · aten · forward", 58.0, None, NOTHING, Verdict.INCONCLUSIVE),
        ),
        gaps=(row("queued", 131.0, 130.0, Range(low=-3.0, high=1.0), Verdict.SAME),),
        kernels=(row("void at::native::new_kernel<float>(int)", None, 42.0, NOTHING, Verdict.INCONCLUSIVE),),
        shares={"paper": (Range(low=0.588, high=0.614), Range(low=0.541, high=0.566))},
        notes=("each run is one process",),
    )


@pytest.fixture
def nothing() -> Diff:
    """Two runs in which nothing could be compared."""
    return Diff(
        before="",
        after="",
        step=row("step", None, None, NOTHING, Verdict.INCONCLUSIVE),
        slowdown=NOTHING,
        basis="",
        classes=(),
        gaps=(),
        kernels=(),
        shares={},
    )


@pytest.fixture
def assumed() -> WhatIf:
    return WhatIf(
        title="resnet50",
        rows=(
            WhatIfRow(
                what="norm|=1.5", speedup=1.5, kernels=2, device_us=1093.1, saved_us=Range(low=360.0, high=364.4)
            ),
        ),
        busy_us=3618.0,
        busy_after_us=Range(low=3253.6, high=3258.0),
        speedup_of_busy=Range(low=1.11, high=1.112),
        wall_us=None,
        wall_after_us=NOTHING,
        speedup_of_wall=NOTHING,
        notes=("projected, not measured",),
    )


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_diff_says_verdict_change_and_interval_first(moved: Diff, format: str) -> None:
    text = report.render_diff(moved, format)
    answer = text[: text.index("conv · cudnn")]
    for words in ("slower", "4.10 ms → 4.41 ms", "+312 µs", "+7.1 % to +8.1 %", "58.8–61.4 %", "54.1–56.6 %"):
        assert words in answer
    for words in ("+300 µs", "+280 µs to +320 µs", "inconclusive", "new_kernel", "each run is one process"):
        assert words in text


@pytest.mark.parametrize("format", report.FORMATS)
def test_a_diff_of_nothing_renders_and_invents_no_number(nothing: Diff, format: str) -> None:
    text = report.render_diff(nothing, format)
    assert "inconclusive" in text
    assert "None" not in text


def test_a_diff_in_csv_and_json_keeps_every_row_and_digit(moved: Diff) -> None:
    rows = list(csv.DictReader(io.StringIO(report.render_diff(moved, "csv"))))
    assert [each["part"] for each in rows] == ["step", "class", "class", "gap", "kernel"]
    assert [each["after_us"] for each in rows] == ["4412.0", "1700.0", "", "130.0", "42.0"]
    assert json.loads(report.render_diff(moved, "json"))["step"]["change_us"] == 312.0


def test_a_diff_fits_80_columns(moved: Diff) -> None:
    assert max(map(len, report.render_diff(moved, "terminal").split("\n"))) <= 80


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_what_if_is_called_projected_and_an_absent_wall_not_measured(assumed: WhatIf, format: str) -> None:
    text = report.render_what_if(assumed, format)
    for words in ("3.62 ms", "3.25–3.26 ms", "1.11x", "projected", "not measured", "360–364 µs"):
        assert words in text
    assert re.search(r"norm\\?\|=1.5", text)


@pytest.mark.parametrize("format", report.FORMATS)
def test_a_hostile_name_stays_text_in_a_diff(runs: ModuleType, moved: Diff, format: str) -> None:
    hostile = " ".join(runs.HOSTILE)
    record = Diff(
        before=hostile,
        after=hostile,
        step=moved.step,
        slowdown=moved.slowdown,
        basis=hostile,
        classes=(row(hostile, 1.0, 2.0, NOTHING),),
        gaps=(),
        kernels=(row(hostile, 1.0, 2.0, NOTHING),),
        shares={hostile: (NOTHING, NOTHING)},
        notes=(hostile,),
    )
    text = report.render_diff(record, format)
    if format == "html":
        assert "<img" not in text
        assert "<script>alert" not in text
    if format == "terminal":
        assert "\x1b" not in text
        assert max(map(len, text.split("\n"))) <= 80
    if format == "markdown":
        tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
        found = [child for token in tokens for child in (token, *(token.children or ()))]
        assert not [token for token in found if token.type in ("html_inline", "link_open", "image")]
