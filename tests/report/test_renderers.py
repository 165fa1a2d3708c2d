"""Every renderer on every kind of run."""

from __future__ import annotations

import base64
import csv
import html
import html.parser
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import markdown_it
import msgspec
import pytest

from addrfrac import compare, report
from addrfrac.errors import AddrfracError
from addrfrac.records import Range, Run
from addrfrac.report import application_figures, applications, facts, ladders, tables
from addrfrac.report.picture import BAR_WIDTH

CASES = (
    "full",
    "training",
    "empty",
    "cpu",
    "recorded",
    "sweep",
    "multi_policy",
    "foreign",
    "unknown_time",
    "long_names",
    "hostile",
    "extrapolated",
    "mixed",
    "grid",
    "serving",
    "ranks",
    "ladder",
    "training_ladder",
    "ceiling",
    "hostile_ladder",
    "ladders",
    "applied",
)
Make = Callable[[str], tuple[Run, ...]]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, make: Make) -> tuple[Run, ...]:
    return make(request.param)


@pytest.mark.parametrize("format", report.FORMATS)
def test_every_renderer_says_what_ran(case: tuple[Run, ...], format: str) -> None:
    text = report.render(case, format)
    assert text.endswith("\n")
    if format == "csv":
        return
    for run in case:
        assert facts.name(run).split()[0] in html.unescape(re.sub(r"\\([<>])", r"\1", text))


def test_an_unknown_format_is_refused_with_the_known_ones(make: Make) -> None:
    with pytest.raises(AddrfracError, match="terminal, json, markdown, html, csv"):
        report.render(make("full"), "pdf")


def test_no_run_at_all_is_a_wrong_argument() -> None:
    with pytest.raises(ValueError, match="no run"):
        report.render((), "terminal")


# --- what must be said --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_recorded_run_says_so_with_date_device_and_versions(make: Make, format: str) -> None:
    text = _words(report.render(make("recorded"), format))
    before_answer = text[: text.index("58.8–61.4 %")]
    for word in ("RECORDED", "2026-09-30", "NVIDIA H200", "torch 2.11.0+cu130"):
        assert word in before_answer
    assert "RECORDED" not in report.render(make("full"), format)


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_cpu_run_says_that_operators_stand_for_kernels(make: Make, format: str) -> None:
    text = _words(report.render(make("cpu"), format))
    assert "CPU RUN" in text
    assert "The self-times of CPU operators" in text
    assert "stand for kernels" in text
    assert "busy GPU time" not in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_number_that_was_not_measured_is_called_so(make: Make, format: str) -> None:
    text = report.render(make("empty"), format)
    assert "not measured" in text
    assert "nan" not in text.lower().replace("nanosecond", "").split()
    assert "None" not in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_the_three_policies_stand_side_by_side(make: Make, format: str) -> None:
    text = report.render(make("full"), format)
    for words in ("paper", "vendor", "strict", "58.8–61.4 %", "48.1–50.6 %", "2.43–2.59x"):
        assert words in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_losses_name_the_setting_that_mends_them(make: Make, format: str) -> None:
    text = _words(report.render(make("foreign"), format)).replace("\\_", "_")
    assert "3,120" in text
    assert "record_shapes=True" in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_ceiling_that_nothing_bounds_is_called_open(make: Make, format: str) -> None:
    assert "over 2.00x" in report.render(make("multi_policy"), format)
    nothing, everything = Range(low=None, high=None), Range(low=1.0, high=1.0)
    assert facts.ceiling(nothing, everything) == "unbounded"
    assert facts.ceiling(nothing, nothing) == "not measured"


def test_the_parts_shown_sum_to_the_span(case: tuple[Run, ...]) -> None:
    for run in case:
        assert tables.accounts(run)["us"].sum() == pytest.approx(run.accounts.span_us)


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_the_steps_of_a_serving_trace_are_listed_by_kind(make: Make, format: str) -> None:
    text = _words(report.render(make("serving"), format))
    assert "cut at graph launches" in text
    assert "weighted by the trace's own busy time" in html.unescape(text)
    for words in ("decode batch 17-32", "411", "93.0 %", "14.0–15.3 %", "14.1–15.2 %", "3 steps at the edge"):
        assert words in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_folder_of_ranks_shows_its_table_among_the_compared_runs(make: Make, format: str) -> None:
    both = [*make("ranks"), *make("full")]
    assert "Ranks side by side" in _words(report.render(both, format))
    assert "Ranks side by side" not in _words(report.render(make("mixed"), format))


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_ranks_stand_side_by_side_with_what_they_waited_for(make: Make, format: str) -> None:
    text = _words(report.render(make("ranks"), format))
    for words in ("640 µs", "rank 1 caused most waiting", "3.4 %", "allreduce", "gemm · cublas", "host-starved"):
        assert words in text


# --- ladder, ceilings, floors -------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_the_ladder_shows_what_it_reached_and_what_it_leaves(make: Make, format: str) -> None:
    text = _words(html.unescape(report.render(make("ladder"), format)))
    assert "takes this step from 4.76 ms to 1.97 ms, 2.40–2.43x" in text
    assert "compile and a CUDA graph alone reach 2.58 ms, which best-library beats by 1.30–1.32x" in text
    # Each arm with its step, its share, the step if replaceable kernels were free, the ceiling.
    for words in ("4.74–4.78 ms", "58.8–61.4 %", "41.4–41.8 %", "10.8–11.8 %", "1.46 ms", "2.88–2.92x", "1.14–1.15x"):
        assert words in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_switches_that_were_not_kept_or_have_no_meaning_say_why(make: Make, format: str) -> None:
    text = _words(html.unescape(report.render(make("ladder"), format)))
    for words in ("the error is 7.3 times the base's", "no experts in this model", "mutated constant"):
        assert words in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_ceiling_stands_beside_both_of_amdahls_with_its_reason(make: Make, format: str) -> None:
    text = _words(html.unescape(report.render(make("ceiling"), format)))
    assert "would take 1.44 ms instead of 4.10 ms. No kernel can pay more than 2.87x here" in text
    for words in ("2.57–2.61x", "2.35–2.42x", "2.84–2.87x", "122 gaps of 1.2 µs went with the nodes"):
        assert words in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_step_that_could_not_be_captured_says_why_and_falls_back_to_amdahl(make: Make, format: str) -> None:
    text = _words(html.unescape(report.render(make("training_ladder"), format)))
    assert "Not measured: the optimizer reads a loss scale on the host" in text
    assert "Amdahl's bound stands in its place: 2.57–2.61x of busy" in text
    assert "No free switch helped" in text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_floors_rank_headroom_whoever_owns_the_kernel(make: Make, format: str) -> None:
    text = _words(html.unescape(report.render(make("ladder"), format)))
    for words in ("1.98–2.11 ms", "1.43–1.46 ms", "37.0–41.0 % of the card's copy bandwidth", "16.4 %"):
        assert words in text
    listed = text[text.index("Headroom above the floor" if format != "markdown" else "standalone") :]
    first, second = ("382–445 µs", "346–371 µs")  # a convolution of cuDNN before an elementwise kernel
    assert listed.index(first) < listed.index(second)


def test_the_headroom_list_of_the_terminal_holds_the_ten_largest(make: Make) -> None:
    text = report.render(make("ladder"), "terminal")
    rows = text[text.index("kernel                      owner") :].split("\n")[1:11]
    assert all(re.search(r"µs$", row) for row in rows)
    assert "1 more kernel with less headroom" in text


@pytest.mark.parametrize(
    ("heading", "rows"),
    [("Where free switches lead", 4), ("Ceiling above best-library", 10), ("Headroom above the floor", 10)],
)
def test_each_row_of_a_wide_table_stays_on_one_line(make: Make, heading: str, rows: int) -> None:
    text = report.render(make("ladder"), "terminal")
    block = text[text.index(heading) :].split("\n\n")[0].split("\n")
    assert all(re.search(r"(µs|ms|x|–)$", line) for line in block[2 : 2 + rows])


def test_csv_holds_the_ladder_under_the_kernels(make: Make) -> None:
    (run,) = make("ladder")
    assert run.ladder is not None
    assert run.floors is not None
    rows = list(csv.DictReader(io.StringIO(report.render([run], "csv"))))
    by_part = {part: [row for row in rows if row["part"] == part] for part in ("rung", "arm", "ceiling", "floor")}
    assert [row["name"] for row in by_part["rung"]] == [rung.name for rung in run.ladder.rungs]
    assert [float(row["step_us"]) for row in by_part["arm"]] == [4760.0, 4243.0, 2585.0, 1967.0]
    assert [row["above"] for row in by_part["ceiling"] if row["kind"] == "all"] == ["eager", "compile", "best-library"]
    assert len(by_part["floor"]) == len(run.floors.rows)
    assert by_part["rung"][0]["kept"] == "False"
    several = list(csv.DictReader(io.StringIO(report.render(make("ladders"), "csv"))))
    assert {row["part"] for row in several if row["run"] == "batch 256"} == {"kernel"}


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_runs_side_by_side_show_best_library_and_its_ceiling_where_known(make: Make, format: str) -> None:
    text = _words(report.render(make("ladders"), format))
    assert "best-library" in text
    for words in ("1.97 ms", "1.14–1.15x", "2.84–2.87x"):
        assert words in text
    assert "best-library" not in _words(report.render(make("sweep"), format))


def test_the_shares_of_the_arms_come_from_where_they_were_profiled(make: Make) -> None:
    (run,) = make("ladder")
    assert run.ladder is not None
    eager, graph, compiled, best = (ladders.share_of_arm(run, times) for times in run.ladder.arms)
    assert eager == run.addressable.share_of_busy
    assert (graph.low, graph.high) == pytest.approx((0.607, 0.617))
    # compile + graph alone was no rung: its ceiling's share, with 1 / (1 - f) turned round.
    assert (compiled.low, compiled.high) == pytest.approx((0.418 * 0.99, 0.418))
    assert (best.low, best.high) == pytest.approx((0.108, 0.118))


def test_a_diff_of_two_ladders_compares_the_accounts_of_their_bases(make: Make) -> None:
    (run,) = make("ladder")
    found = compare.diff(run, run)
    for format in report.FORMATS:
        assert "same" in report.render_diff(found, format)


# --- one format after the other -----------------------------------------------------------------------------


def test_json_is_the_record_and_nothing_else(case: tuple[Run, ...]) -> None:
    text = report.render(case, "json")
    if len(case) == 1:
        assert msgspec.json.decode(text, type=Run).title == case[0].title
        assert isinstance(json.loads(text), dict)
    else:
        assert [run.title for run in msgspec.json.decode(text, type=list[Run])] == [run.title for run in case]


def test_the_terminal_fits_80_columns_and_holds_no_control_characters(case: tuple[Run, ...]) -> None:
    text = report.render(case, "terminal")
    assert max(len(line) for line in text.split("\n")) <= 80
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e]", text)


def test_the_terminal_cuts_no_figure_short(case: tuple[Run, ...]) -> None:
    text = report.render(case, "terminal")
    # A name is cut in its middle; a cell that does not fit would be cut at its end.
    assert not re.search(r"[\d–.]…(\s|$)", text.split("Top ")[0])


def test_the_terminal_answers_before_it_explains(make: Make) -> None:
    lines = report.render(make("full"), "terminal").split("\n")
    position = {word: next(n for n, line in enumerate(lines) if word in line) for word in ("paper ◂", "Host", "Top ")}
    assert position["paper ◂"] < 8
    assert position["paper ◂"] < position["Host"] < position["Top "]
    assert len(lines) < 66


def test_the_terminal_honours_no_color(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    def printed() -> str:
        page = io.StringIO()
        report.print_terminal(make("full"), Console(file=page, force_terminal=True, width=80))
        return page.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m", printed())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", printed())


def test_csv_holds_every_kernel(case: tuple[Run, ...]) -> None:
    rows = list(csv.DictReader(io.StringIO(report.render(case, "csv"))))
    rows = [row for row in rows if row.get("part", "kernel") == "kernel"]
    assert [row["name"] for row in rows] == [kernel.name for run in case for kernel in run.kernels]
    assert [float(row["device_us"]) for row in rows] == [kernel.device_us for run in case for kernel in run.kernels]
    if len(case) > 1:
        assert len({row["run"] for row in rows}) == sum(1 for run in case if run.kernels)


def test_markdown_tables_keep_their_columns(case: tuple[Run, ...]) -> None:
    text = report.render(case, "markdown")
    for block in re.split(r"\n\n", text):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) <= 1, block


def test_markdown_shows_ten_kernels_folded_away(make: Make) -> None:
    text = report.render(make("full"), "markdown")
    folded = text[text.index("<details>") :]
    assert "Top 10 of 11 kernels" in folded
    assert "conv-by-name" in folded


def test_markdown_lets_no_outside_text_become_markup(make: Make) -> None:
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    tokens = [
        token
        for block in parser.parse(report.render(make("hostile"), "markdown"))
        for token in (block, *(block.children or ()))
    ]
    html_pieces = {
        line for token in tokens if token.type.startswith("html") for line in token.content.split("\n") if line
    }
    assert {re.sub(r"(?<=<summary>).*(?=</summary>)", "", piece) for piece in html_pieces} == {
        "<details>",
        "</details>",
        "<summary></summary>",
    }
    assert not [token for token in tokens if token.type in ("link_open", "image", "em_open")]


# --- html ---------------------------------------------------------------------------------------------------


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and the text of scripts of data."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _elements(page: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page)
    yield from parser.found


def test_the_page_has_no_address_outside_itself(case: tuple[Run, ...]) -> None:
    page = report.render(case, "html", shared_plotly="../plotly.min.js")
    addresses = [
        (tag, value)
        for tag, attributes in _elements(page)
        for key, value in attributes.items()
        if key in ("src", "href", "srcset", "action", "data", "poster") and value is not None
    ]
    assert all(value.startswith("#") or value == "../plotly.min.js" for _, value in addresses), addresses
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in page


def test_outside_text_never_becomes_an_element(make: Make) -> None:
    page = report.render(make("hostile"), "html", shared_plotly="plotly.min.js")
    elements = list(_elements(page))
    assert not [tag for tag, _ in elements if tag == "img"]
    assert not [attributes for _, attributes in elements if any(key.startswith("on") for key in attributes)]
    plain, hostile = (
        [attributes.get("type") for tag, attributes in _elements(text) if tag == "script"]
        for text in (report.render(make("full"), "html", shared_plotly="plotly.min.js"), page)
    )
    assert hostile == plain
    assert "<script>alert" not in page


def test_every_figure_names_device_dtype_mode_and_policy(make: Make) -> None:
    page = report.render(make("full"), "html", shared_plotly="plotly.min.js")
    captions = re.findall(r"<figcaption>.*?</figcaption>", page)
    assert len(captions) == page.count("data-figure=")
    for caption in captions:
        for word in ("NVIDIA H200", "bf16", "infer", "policy paper"):
            assert word in caption


def test_every_column_and_row_of_a_table_has_a_header(make: Make) -> None:
    page = report.render(make("training"), "html", shared_plotly="plotly.min.js")
    listed = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(listed) > 5
    for table in listed:
        assert "<caption>" in table
        headers = table.count('scope="col"')
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table[table.index("<tbody>") :], re.DOTALL):
            assert row.startswith('<th scope="row"')
            assert row.count("<td") + 1 == headers


def test_a_page_of_its_own_carries_plotly_and_a_shared_one_does_not(make: Make) -> None:
    own = report.render(make("full"), "html")
    shared = report.render(make("full"), "html", shared_plotly="../plotly.min.js")
    # Less plotly and what packing the data saves.
    assert 0 < len(own) - len(shared) - len(report.plotly_source()) < 100_000
    assert '<script src="../plotly.min.js"></script>' in shared
    assert len(shared) < 200_000


def test_a_shared_page_packs_its_data_and_loses_none(make: Make) -> None:
    own = report.render(make("full"), "html", shared_plotly="plotly.min.js")
    (packed,) = re.findall(r'<script type="application/json" id="packed">(.*?)</script>', own)
    texts = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert set(texts) == {"figure-1", "figure-2", "figure-3", "figure-4", "kernel-rows"}
    assert len(json.loads(texts["kernel-rows"])["rows"]) == len(make("full")[0].kernels)
    assert 'id="packed"' not in report.render(make("full"), "html")


def test_a_page_without_figures_carries_no_plotly(make: Make) -> None:
    assert len(report.render(make("empty"), "html")) < 100_000


# --- several runs -------------------------------------------------------------------------------------------


def test_runs_that_differ_in_one_number_form_a_sweep(make: Make, runs: ModuleType) -> None:
    sweep = facts.sweep(make("sweep"))
    assert sweep is not None
    assert (sweep.field, sweep.series) == ("batch", None)
    grid = facts.sweep(make("grid"))
    assert grid is not None
    assert {grid.field, grid.series} == {"batch", "seq_len"}
    assert facts.sweep((runs.full(), runs.training())) is None
    assert facts.sweep((runs.full(), runs.full())) is None
    assert facts.sweep((runs.foreign(), runs.foreign())) is None


def test_a_sweep_is_shown_in_the_order_of_its_number(make: Make) -> None:
    shuffled = [make("sweep")[number] for number in (2, 0, 1)]
    for format in ("terminal", "markdown", "html"):
        text = report.render(shuffled, format)
        assert (
            text.index("batch 1<" if format == "html" else "batch 1 ") < text.index("batch 16") < text.index("batch 64")
        )


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_an_extrapolated_figure_is_called_so_with_its_error(make: Make, format: str) -> None:
    text = _words(report.render(make("extrapolated"), format))
    for words in ("Extrapolated to 80 layers", "76.4 ms", "8.1–9.4 %", "+0.4 %", "−0.3 points"):
        assert words in text


def test_labels_say_where_runs_differ_and_are_distinct(make: Make, runs: ModuleType) -> None:
    assert facts.labels(make("sweep")) == ["batch 1", "batch 16", "batch 64"]
    assert facts.labels((runs.full(), runs.training())) == ["infer", "train"]
    assert len(set(facts.labels((runs.full(), runs.full(), runs.full())))) == 3


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_sweep_gives_fraction_and_step_time_for_each_point(make: Make, format: str) -> None:
    text = report.render(make("sweep"), format)
    assert "Sweep over batch size" in text
    for words in ("batch 1", "batch 16", "batch 64", "58.8–61.4 %", "390 µs", "3.85 ms"):
        assert words in text


def test_the_index_links_every_run_with_its_headline(runs: ModuleType) -> None:
    entries = [
        report.IndexEntry(run=runs.full(), page="resnet50/report.html"),
        report.IndexEntry(run=runs.empty(), page="empty/report.html"),
        report.IndexEntry(run=runs.hostile(), page="a b/report.html"),
        report.IndexEntry(run=runs.extrapolated(), page="deep/report.html"),
    ]
    page = report.render_index(entries, comparisons=[("resnet50 over batch", "resnet50/sweep.html")])
    assert '<a href="resnet50/sweep.html">resnet50 over batch</a>' in page
    assert page.count('<a href="deep/report.html">') == 2
    assert '<a href="resnet50/report.html">' in page
    assert "58.8–61.4 %" in page
    assert len(page) < 100_000
    table = report.render_index_markdown(entries)
    assert table.count("\n") == 2 + len(entries) + 1
    extrapolated = next(line for line in table.split("\n") if "extrapolated" in line)
    assert "76.4 ms" in extrapolated
    assert "8.1–9.4 %" in extrapolated
    assert "](resnet50/report.html)" in table
    assert "(a%20b/report.html)" in table


def test_the_picture_is_whole_xml_whose_bars_fill_their_width(case: tuple[Run, ...]) -> None:
    picture = ElementTree.fromstring(report.render_picture(case))
    bars: dict[str, float] = {}
    for rectangle in picture.iter("{http://www.w3.org/2000/svg}rect"):
        if rectangle.get("width") != "11":
            top = rectangle.attrib["y"]
            bars[top] = bars.get(top, 0.0) + float(rectangle.attrib["width"])
    assert len(bars) == sum(1 for run in case if run.kernels)
    for width in bars.values():
        assert width == pytest.approx(BAR_WIDTH, rel=0.001)
    assert not [element for element in picture.iter() if element.tag.endswith(("}script", "}image", "}a"))]


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_step_that_the_profiler_stretched_is_shown_with_a_warning(runs: ModuleType, format: str) -> None:
    stretched = runs.full(gap_us=4000.0, wall_factor=0.5)
    text = _words(report.render([stretched], format))
    assert "its span is 2.00 times the unprofiled wall" in text
    # 4.00 ms of gaps while profiled, 0.19 ms unprofiled (3.81 ms of wall less 3.62 ms busy).
    assert "at least 3.81 ms of the gaps are the profiler's" in html.unescape(text)
    assert "The profiler stretched" not in _words(report.render([runs.full()], format))


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_busy_time_beyond_the_wall_is_said_and_not_hidden(runs: ModuleType, format: str) -> None:
    text = _words(report.render([runs.full(wall_factor=0.5)], format))
    assert "more than the whole unprofiled step" in text
    assert "The profiler stretched" not in text


def test_parts_of_a_stretched_step_sum_to_the_wall_and_not_to_the_span(runs: ModuleType) -> None:
    stretched = runs.full(gap_us=4000.0, wall_factor=0.6)
    parts = dict(tables.parts(stretched, of_wall=True))
    assert sum(parts.values()) == pytest.approx(stretched.wall.step_us)
    assert sum(dict(tables.parts(stretched, of_wall=False)).values()) == pytest.approx(
        stretched.accounts.span_us, rel=0.001
    )


def _words(text: str) -> str:
    """Text with tags and line ends taken out, as a reader sees it."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"</?[a-z][^<>]*>|[│╭╮╰╯─]", " ", text.replace("\\", "")).split())


def test_a_run_is_not_changed_by_rendering(make: Make) -> None:
    before: Any = make("full")[0]
    report.render([before], "html", shared_plotly="x")
    assert before == make("full")[0]


def test_where_projected_and_measured_part_adds_up_to_the_whole_at_every_width(make: Make) -> None:
    (run,) = make("applied")
    for narrow in (False, True):
        listing = applications.differences(run.applied, narrow=narrow)
        assert [listing.rows[-1][listing.columns.index(name)] for name in (">saved", ">projected", ">apart")] == [
            "+750 µs",
            "+772 µs",
            "−22.0 µs",
        ]
    assert sum(each.saved_us for each in run.applied.differences) == pytest.approx(750.0)


def test_the_sites_fit_eighty_columns_and_say_why_one_was_left(make: Make) -> None:
    (run,) = make("applied")
    listing = applications.sites(run.applied, narrow=True)
    widths = [max(len(row[number]) for row in (listing.columns, *listing.rows)) for number in range(6)]
    assert sum(widths) + 2 * 5 <= 80
    assert listing.notes == ("rope: verified, but no faster as it runs in the model",)


def test_a_run_whose_kernels_were_not_measured_has_no_waterfall(make: Make) -> None:
    (run,) = make("applied")
    assert application_figures.can_draw(run.applied)
    assert not application_figures.can_draw(replace(run.applied, credits=()))


def test_nothing_is_projected_where_no_site_was_timed(make: Make) -> None:
    (run,) = make("applied")
    untimed = replace(
        run.applied, differences=tuple(replace(each, projected_us=None) for each in run.applied.differences)
    )
    assert {row[-2:] for row in applications.differences(untimed).rows} == {("–", "–")}
