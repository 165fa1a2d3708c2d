"""`reports/build.py` on recorded runs: what is published, where, and that a second time changes nothing."""

from __future__ import annotations

import base64
import importlib.util
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from addrfrac import store
from addrfrac.records import Run

ROOT = Path(__file__).parents[2]
Build = Callable[..., None]


SCRIPT = "globalThis.Plotly = 'drawn';\n" * 1000


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing published yet."""
    for folder in ("reports", "addrfrac/recorded"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "reports" / "build.py", tmp_path / "reports")
    (tmp_path / "reports" / "plotly.min.js").write_text("/* a licence */\n" + SCRIPT)
    marks = "".join(f"<!-- {mark} -->\nold\n<!-- /{mark} -->\n" for mark in ("demo", "runs", "study"))
    (tmp_path / "README.md").write_text(f"# top\n{marks}")
    (tmp_path / "reports" / "README.md").write_text("# runs\n<!-- runs -->\nold\n<!-- /runs -->\n")
    return tmp_path


@pytest.fixture
def build(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Runs the script of that checkout as the command line would."""
    specification = importlib.util.spec_from_file_location("published_build", checkout / "reports" / "build.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["build.py", *arguments])
        module.main()

    return run


@pytest.fixture
def recorded(tmp_path: Path, runs: ModuleType) -> Path:
    """A sweep of two, and a ladder with its best-library, as `record.sh` leaves them."""
    out = tmp_path / "recorded"
    for batch in (1, 64):
        folder = f"resnet50-infer-bf16/resnet50-infer-b{batch}-bf16-channels-last"
        store.save(runs.full(batch=batch), out / folder / "run.json")
    ladder: Run = runs.ladder()
    assert ladder.configuration is not None
    ladder = replace(ladder, configuration=replace(ladder.configuration, dtype="fp16"))
    store.save(ladder, out / "ladder" / "resnet50-b64-fp16" / "run.json")
    best = replace(ladder, kind="profile", title=f"{ladder.title} best-library", ladder=None)
    store.save(best, out / "ladder" / "resnet50-b64-fp16" / "best-library" / "run.json")
    (out / "device.json").write_text("{}")
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_ladders_lead_the_readme_and_other_runs_have_their_table_beside_them(
    checkout: Path, build: Build, recorded: Path
) -> None:
    build(str(recorded))
    readme = (checkout / "README.md").read_text()
    row = next(line for line in readme.split("\n") if "ladder/resnet50-b64-fp16/report.html" in line)
    assert row.startswith("| [resnet50 · infer · batch 64 · fp16](reports/ladder/resnet50-b64-fp16/report.html) |")
    for cell in (
        "4.76 ms, 58.8–61.4 %",
        "2.58 ms, 41.4–41.8 %",
        "[1.97 ms, 10.8–11.8 %](reports/ladder/resnet50-b64-fp16/best-library/run.json.gz)",
        "1.14–1.15x",
        "1.98–2.11 ms",
        "37.0–41.0 % bytes",
    ):
        assert f"| {cell} |" in row
    assert "batch 1 ·" not in readme[readme.index("<!-- runs -->") : readme.index("<!-- /runs -->")]
    beside = (checkout / "reports" / "README.md").read_text()
    assert "batch 1 · bf16" in beside
    assert "fp16" not in beside


def test_every_run_has_a_page_and_several_have_one_together(checkout: Path, build: Build, recorded: Path) -> None:
    build(str(recorded))
    reports = checkout / "reports"
    for folder in (
        "resnet50-infer-bf16",
        "resnet50-infer-bf16/resnet50-infer-b1-bf16-channels-last",
        "ladder/resnet50-b64-fp16",
    ):
        page = (reports / folder / "report.html").read_text()
        assert f'href="{"../" * len(Path(folder).parts)}page.css"' in page
    assert (reports / "page.js").exists()
    index = (reports / "index.html").read_text()
    assert index.count('report.html">') == 3 + 1 + 1  # every run, the ladder again with its trio, the sweep
    assert index.count('best-library/run.json.gz">') == 1  # its record alone
    assert not (reports / "ladder/resnet50-b64-fp16/best-library/report.html").exists()
    assert '<td class="number">4.76 ms, 58.8–61.4 %</td>' in index
    assert "best-library</a>" in index
    assert not list(reports.rglob("run.json"))


def test_the_script_of_the_figures_is_published_packed_with_its_licence(
    checkout: Path, build: Build, recorded: Path
) -> None:
    build(str(recorded))
    published = (checkout / "reports" / "plotly.min.js").read_text()
    assert published.startswith("/* a licence */")
    assert len(published) < len(SCRIPT) / 10
    (data,) = re.findall(r'atob\("([^"]+)"\)', published)
    assert zlib.decompress(base64.b64decode(data)).decode().endswith(SCRIPT)


def test_a_second_build_from_what_lies_there_changes_nothing(checkout: Path, build: Build, recorded: Path) -> None:
    build(str(recorded))
    first = contents(checkout)
    build()
    assert contents(checkout) == first


def test_raw_step_times_of_a_ladder_are_kept_to_the_nanosecond(checkout: Path, build: Build, recorded: Path) -> None:
    build(str(recorded))
    before = store.load(recorded / "ladder" / "resnet50-b64-fp16").ladder
    after = store.load(checkout / "reports" / "ladder" / "resnet50-b64-fp16").ladder
    assert before is not None
    assert after is not None
    flat = [
        [us for times in ladder.arms for process in times.blocks_us for block in process for us in block]
        for ladder in (before, after)
    ]
    assert len(flat[0]) == len(flat[1]) == 4 * 36
    assert max(abs(one - other) for one, other in zip(*flat, strict=True)) <= 0.0005
    assert [times.median_us for times in before.arms] == [times.median_us for times in after.arms]


def test_best_library_is_not_shipped_as_the_answer_for_its_configuration(
    checkout: Path, build: Build, recorded: Path
) -> None:
    build(str(recorded))
    shipped = sorted(file.name for file in (checkout / "addrfrac" / "recorded").glob("*.json.gz"))
    assert shipped == [
        "resnet50-infer-1-bf16-channels-last-eager.json.gz",
        "resnet50-infer-64-bf16-channels-last-eager.json.gz",
    ]
