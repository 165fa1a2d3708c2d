"""Pages opened in headless Chromium: figures are drawn, the table works, the console is clean, nothing is requested."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from addrfrac import report
from addrfrac.records import Run

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
Make = Callable[[str], tuple[Run, ...]]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-extensions",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=10000",
    "--window-size=1200,900",
)


WHEN_READY = """
const whenReady = () => {
  if (!document.documentElement.dataset.ready) { setTimeout(whenReady, 5); return; }
  %s
};
whenReady();
"""


class Opened:
    """A page as the browser left it."""

    def __init__(self, dom: str, log: str) -> None:
        self.dom = dom
        self.console = [line for line in log.splitlines() if ":CONSOLE" in line]
        root = re.search(r"<html[^>]*>", dom)
        assert root is not None
        self.root = html.unescape(root.group())

    @property
    def figures(self) -> list[str]:
        """The markup of each drawn figure."""
        return re.split(r'<div class="plot js-plotly-plot"', self.dom)[1:]

    @property
    def kernel_rows(self) -> list[str]:
        """The cells of each row of the kernel table."""
        return re.findall(r'<tr class="row">(.*?)</tr>', self.dom, re.DOTALL)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Opened]:
    """page, as text or as a file -> what the browser made of it; `script` runs after the page's own."""

    def written(text: str) -> Path:
        file = tmp_path / "runs" / "report.html"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        for name, text in {"plotly.min.js": report.plotly_source(), **report.shared_files()}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return file

    def open_page(page: str | Path, *, dark: bool = False, script: str = "") -> Opened:
        file = (
            page
            if isinstance(page, Path)
            else written(page.replace("</body>", f"<script>{WHEN_READY % script}</script></body>"))
        )
        assert CHROMIUM is not None
        done = subprocess.run(
            [
                CHROMIUM,
                *FLAGS,
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--dump-dom",
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return Opened(done.stdout, done.stderr)

    return open_page


def shared(runs: tuple[Run, ...]) -> str:
    return report.render(runs, "html", shared_plotly="../plotly.min.js")


def assert_clean(page: Opened, figures: int) -> None:
    assert 'data-ready="true"' in page.root
    assert "data-errors" not in page.root
    assert page.console == []
    assert len(page.figures) == figures == page.dom.count("data-figure=")


def test_a_self_contained_page_draws_every_figure_and_the_console_stays_clean(
    make: Make, opened: Callable[..., Opened]
) -> None:
    page = opened(report.render(make("training"), "html"))
    assert_clean(page, figures=5)
    step, phases, amdahl, samples, steps = page.figures
    # Bars by bound (library, system, unknown, replaceable), by class, overlap and gaps twice, wall and graph.
    assert step.count('<g class="point">') >= 4 + 9 + 2 * 3 + 2
    assert phases.count('<g class="point">') >= 4
    assert amdahl.count('class="js-line"') >= 4 + 2
    assert samples.count('class="point') >= 3 * 30
    assert steps.count('<g class="point">') == 6
    assert len(page.kernel_rows) == len(make("training")[0].kernels)


def test_a_page_beside_a_shared_plotly_draws_its_figures(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(shared(make("sweep")))
    assert_clean(page, figures=4)
    assert "batch 16" in page.dom


def test_a_page_that_shares_everything_looks_and_works_as_one_of_its_own(
    make: Make, opened: Callable[..., Opened]
) -> None:
    style = "document.documentElement.dataset.ink = getComputedStyle(document.querySelector('section')).borderRadius;"
    small = report.render(make("ladder"), "html", shared_folder="..")
    page = opened(small, script=style)
    assert_clean(page, figures=10)
    assert 'data-ink="10px"' in page.root
    assert len(page.kernel_rows) == len(make("ladder")[0].kernels)
    assert len(small) < len(shared(make("ladder"))) - 20_000


def test_a_page_whose_plotly_is_gone_says_so(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(report.render(make("full"), "html", shared_plotly="../moved/plotly.min.js"))
    assert "the figures are missing" in page.root


def test_hostile_text_runs_nothing_and_draws_everything(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(shared((*make("hostile"), *make("full"))))
    assert_clean(page, figures=2)
    assert "<img" not in page.dom
    assert "&lt;script&gt;alert" in "".join(page.kernel_rows)


@pytest.mark.parametrize(("name", "figures"), [("empty", 0), ("foreign", 3), ("grid", 4)])
def test_runs_with_parts_missing_open_clean(make: Make, opened: Callable[..., Opened], name: str, figures: int) -> None:
    assert_clean(opened(shared(make(name))), figures)


def test_ladder_ceilings_and_floors_are_drawn(make: Make, opened: Callable[..., Opened]) -> None:
    # Step, ladder, three ceilings, headroom, roofline, Amdahl, samples, steps.
    page = opened(shared(make("ladder")))
    assert_clean(page, figures=10)
    ladder, *ceilings, headroom, roofline = page.figures[1:7]
    assert ladder.count('<g class="point">') == 9
    assert all(drawn.count('class="point') >= 8 + 9 + 9 for drawn in ceilings)
    assert headroom.count('<g class="point">') >= 3 * 9
    assert roofline.count('class="point') >= 10


@pytest.mark.parametrize(("name", "figures"), [("training_ladder", 9), ("ceiling", 5), ("ladders", 2)])
def test_ladders_with_parts_missing_open_clean(
    make: Make, opened: Callable[..., Opened], name: str, figures: int
) -> None:
    assert_clean(opened(shared(make(name))), figures)


def test_hostile_text_in_a_ladder_runs_nothing(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(shared(make("hostile_ladder")))
    assert_clean(page, figures=10)
    assert "<img" not in page.dom


PUBLISHED = Path(__file__).parents[2] / "reports"


def test_a_published_page_and_the_index_open_clean_where_they_lie(opened: Callable[..., Opened]) -> None:
    pages = sorted(PUBLISHED.glob("*/report.html"))
    if not pages:
        pytest.skip("nothing is published under reports/")
    page = opened(pages[0])
    assert_clean(page, figures=page.dom.count("data-figure="))
    assert page.figures
    assert_clean(opened(PUBLISHED / "index.html"), figures=0)


PRESS_THE_TOGGLE = """
const ink = () => getComputedStyle(document.querySelector(".ytick text")).fill;
const root = document.documentElement;
root.dataset.before = `${root.dataset.theme} ${ink()}`;
document.getElementById("theme").click();
root.dataset.after = `${root.dataset.theme} ${ink()}`;
"""


def test_figures_follow_the_dark_theme_and_the_toggle(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(shared(make("full")), dark=True, script=PRESS_THE_TOGGLE)
    assert_clean(page, figures=4)
    assert 'data-before="dark rgb(230, 233, 239)"' in page.root
    assert 'data-after="light rgb(28, 35, 48)"' in page.root


USE_THE_TABLE = """
const header = (text) => [...document.querySelectorAll("table.kernels th button")].find((b) => b.textContent === text);
const names = () => [...document.querySelectorAll("table.kernels td.name button")].map((b) => b.textContent);
const say = (key, value) => { document.documentElement.dataset[key] = value; };
say("byTime", names()[0]);
header("launches").click();
say("byLaunches", names()[0]);
say("sorted", header("launches").closest("th").getAttribute("aria-sort"));
document.querySelector("table.kernels td.name button").click();
say("detail", document.querySelector("tr.detail").textContent);
say("expanded", document.querySelector("table.kernels td.name button").getAttribute("aria-expanded"));
const search = document.querySelector("#kernel-table input");
search.value = "max_pool2d";
search.dispatchEvent(new Event("input"));
say("found", names().join());
search.value = "";
const selects = [...document.querySelectorAll("#kernel-table select")];
const policy = selects.at(-1);
policy.value = "vendor";
policy.dispatchEvent(new Event("change"));
const bound = selects.find((select) => select.parentElement.textContent.startsWith("bound"));
bound.value = "library";
bound.dispatchEvent(new Event("change"));
say("library", names().length);
"""


def test_the_kernel_table_sorts_filters_expands_and_changes_policy(make: Make, opened: Callable[..., Opened]) -> None:
    page = opened(shared(make("full")), script=USE_THE_TABLE)
    assert_clean(page, figures=4)
    said = dict(re.findall(r'data-([a-z-]+)="([^"]*)"', page.root))
    assert said["by-time"].startswith("sm90_xmma_fprop")
    assert said["by-launches"].startswith("vectorized_elementwise_kernel<8, launch_clamp")
    assert said["sorted"] == "descending"
    for evidence in (
        "elementwise-by-name",
        "aten-prefix",
        "aten::clamp_min_",
        "nn.Module: ResNet_0",
        "vendor: replaceable",
    ):
        assert evidence in said["detail"]
    assert said["expanded"] == "true"
    assert said["found"] == "max_pool_forward_nhwc<BFloat16, int>"
    # Under `vendor` cuDNN's batch norm is a library kernel too: two convolutions, one GEMM and it.
    assert said["library"] == "4"
