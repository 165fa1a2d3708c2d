"""What verifications look like: terminal of 80 columns, pages, several protocols side by side, the published page."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import addrfrac.verification as verification
from addrfrac.errors import AddrfracError
from addrfrac.verification.fixtures.fixture import PREAMBLE
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.records import Baseline, Samples, Status, Verdict
from addrfrac.verification.self_test import selftest, summarised
from addrfrac.verification.self_test_page import CaseCost, Cost, self_test_page
from addrfrac.verification.side_by_side import by_case, differences, own_baseline, speedups
from addrfrac.verification.sources import find_targets, pairs

ROOT = Path(__file__).parents[2]
ZEROS = PREAMBLE + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.zeros_like(x)\n"
ALL_PROTOCOLS = ("addrfrac", "kernelbench", "study", "kernelbench-verified")


@pytest.fixture(scope="module")
def zeros(tmp_path_factory) -> tuple[tuple[Verdict, ...], Path]:
    """Zeros for a softmax under every protocol, saved."""
    folder = tmp_path_factory.mktemp("zeros")
    (folder / "p.py").write_text(PROBLEMS["softmax_wide"])
    (folder / "s.py").write_text(ZEROS)
    target = verification.pair(folder / "p.py", folder / "s.py")
    return verification.verify([target], ALL_PROTOCOLS, quick=True, directory=folder), folder


@pytest.fixture(scope="module")
def result():
    """A real self-test of a few fixtures."""
    return selftest("cpu", jobs=1, only=("A03", "honest-copy"), mutants=False)


def timed(verdict: Verdict) -> Verdict:
    """The same verdict with times: eager 200 us, eager under TF32 150, compiled 120, the candidate 100."""

    def baseline(name: str, us: float) -> Baseline:
        return Baseline(name=name, samples_us=(us, us), before_us=us, after_us=us, settings={})

    speed = replace(
        verdict.speed,
        verdict="faster",
        speedup=1.2,
        low=1.15,
        high=1.25,
        best_baseline="compile",
        baselines=(baseline("eager-strict", 200.0), baseline("eager-tf32", 150.0), baseline("compile", 120.0)),
        candidate=Samples(name="candidate", block_us=((100.0, 100.0),)),
    )
    return replace(verdict, speed=speed)


def test_protocols_stand_side_by_side_and_the_check_that_sets_them_apart_is_named(zeros):
    (case,) = by_case(zeros[0])
    statuses = {verdict.protocol: verdict.status for verdict in case.verdicts}
    assert statuses["kernelbench"] is Status.PASSED
    assert statuses["addrfrac"] is statuses["study"] is Status.WRONG_VALUES
    told = differences(case)
    assert told[0].startswith("addrfrac refuses what kernelbench and kernelbench-verified accept")
    assert "distributions at initial parameters" in told[0]
    assert any(line.startswith("study refuses") and "'relative'" in line for line in told)


def test_the_same_times_are_told_by_each_protocol_s_own_baseline(zeros):
    verdicts = tuple(timed(v) if v.protocol == "addrfrac" else v for v in zeros[0])
    (case,) = by_case(verdicts)
    found = speedups(case)
    assert found["addrfrac"] == ("compile", 1.2)
    assert found["kernelbench"] == ("eager-strict", 2.0)
    assert found["kernelbench-verified"] == ("eager-tf32", 1.5)
    assert own_baseline("study") == "eager-tf32"
    text = verification.render_terminal(verdicts, width=80)
    assert "kernelbench 2.00x against eager-strict" in " ".join(text.split())
    assert "eager-strict 200.0 us" in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(zeros, result, width):
    for saved in (zeros[0], result):
        text = verification.render_terminal(saved, width=width, verbose=True)
        assert max(map(len, text.splitlines())) <= width


def test_a_class_is_told_only_of_a_kernel_whose_values_are_right(zeros):
    text = verification.render_terminal(zeros[0][:1])
    assert "exact" not in text


def test_a_page_holds_every_check_and_escapes_what_a_candidate_says(zeros):
    hostile = replace(zeros[0][0], reason="<script>alert(1)</script>", name="<b>")
    page = verification.page_of((hostile, *zeros[0][1:]))
    assert "<script>alert(1)" not in page
    assert "&lt;b&gt;" in page
    assert all(check.name in page for check in zeros[0][0].checks)


def test_saved_verdicts_are_rendered_again_by_the_report_command(zeros):
    from typer.testing import CliRunner

    from addrfrac.cli import app

    file = zeros[1] / "verdicts.json"
    for arguments, wanted in (((), "wrong values"), (("--format", "html"), "<html"), (("--format", "json"), '"kind"')):
        found = CliRunner().invoke(app, ["report", str(file), *arguments])
        assert found.exit_code == 0
        assert wanted in found.output


def test_a_self_test_of_nothing_renders():
    empty = summarised([], device="cpu", layers=(), seconds=0.0)
    assert "0 cases" in verification.render_terminal(empty)
    assert "No honest kernel" in verification.page_of(empty)
    assert "No self-test was run" in self_test_page([])


def test_a_self_test_s_page_tells_every_case_and_what_each_protocol_accepts(result):
    page = self_test_page([result], [cost()])
    assert all(outcome.id in page for outcome in result.outcomes)
    assert "Faults that a protocol would have accepted, on cpu" in page
    assert "4.5" in page
    assert "12.3" in page


def cost() -> Cost:
    case = CaseCost(name="rmsnorm 16x256", seconds=4.5, status="passed", speed="faster")
    return Cost(name="rmsnorm", device="cuda", quick=True, wall_s=12.3, cases=(case,))


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs a headless chromium")
def test_a_protocol_that_was_not_asked_has_no_column(result):
    ours = tuple(
        replace(outcome, accepted_by={name: said for name, said in outcome.accepted_by.items() if name == "addrfrac"})
        for outcome in result.outcomes
    )
    alone = replace(result, outcomes=ours)
    assert "study" in verification.render_terminal(result, width=100)
    assert "study" not in verification.render_terminal(alone, width=100)
    assert '<th scope="col" class="number">study' in self_test_page([result], [])
    assert '<th scope="col" class="number">study' not in self_test_page([alone], [])


def test_the_filter_of_the_cases_works_in_a_browser(result, tmp_path):
    probe = (
        "<script>const s=document.getElementById('case-search');s.value='honest';s.dispatchEvent(new Event('input'));"
    )
    page = self_test_page([result]).replace("</body>", f"{probe}</script></body>")
    (tmp_path / "page.html").write_text(page)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", str(tmp_path / "page.html")]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    honest = sum(outcome.kind == "honest" for outcome in result.outcomes)
    assert f"{honest} of {len(result.outcomes)} cases" in dom


def test_the_published_page_is_built_from_recorded_files_and_again_from_its_own(result, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("build_verifier", ROOT / "reports" / "build_verifier.py")
    builder = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "build_verifier", builder)
    spec.loader.exec_module(builder)
    monkeypatch.setattr(builder, "HERE", tmp_path / "verifier")
    verification.save(result, tmp_path / "cpu.json")
    (tmp_path / "costs.json").write_bytes(msgspec.json.encode([cost()]))
    honest = next(outcome for outcome in result.outcomes if outcome.kind == "honest")
    corpora = {"outcomes": [replace(honest, id="honest-other")], "missing": {"Liger-Kernel": "no"}, "device": "cpu"}
    (tmp_path / "corpora.json").write_bytes(msgspec.json.encode(corpora))
    arguments = ["x", str(tmp_path / "cpu.json"), "-", str(tmp_path / "costs.json"), str(tmp_path / "corpora.json")]
    monkeypatch.setattr("sys.argv", arguments)
    builder.main()
    first = (tmp_path / "verifier" / "report.html").read_text()
    monkeypatch.setattr("sys.argv", ["x"])
    builder.main()
    assert (tmp_path / "verifier" / "report.html").read_text() == first
    assert "honest-other" in first
    assert 'href="../page.css"' in first
    assert "<style>" not in first
    assert "Liger-Kernel" in first
    assert sum(file.stat().st_size for file in (tmp_path / "verifier").iterdir()) < builder.MOST_BYTES


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_files_of_one_name_or_one_number_are_paired(tmp_path):
    for number, name in ((7, "softmax"), (12, "relu")):
        write(tmp_path, f"level1/{number}_{name}.py", PROBLEMS[name])
    write(tmp_path, "mine/7_fast.py", ZEROS)
    write(tmp_path, "mine/level_1_problem_12_sample_0_kernel.py", ZEROS)
    found = pairs(tmp_path / "level1", tmp_path / "mine")
    assert [
        (target.name, target.problem.text == PROBLEMS[name])
        for target, name in zip(found, ("softmax", "relu"), strict=True)
    ] == [
        ("7_fast", True),
        ("level_1_problem_12_sample_0_kernel", True),
    ]


def test_a_folder_may_hold_kernel_modules_and_pairs(tmp_path):
    write(tmp_path, "problems/1_relu.py", PROBLEMS["relu"])
    write(tmp_path, "solutions/1_relu.py", ZEROS)
    write(tmp_path, "own.py", "CASES = (Case(name='small'), Case(name='odd'))\ndef reference(x): return x\n")
    assert [target.name for target in find_targets([str(tmp_path)])] == ["1_relu", "own small", "own odd"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: [str(d)], "holds no kernel module and no pair"),
        (lambda d: [str(d / "nothing.py")], "no file or folder"),
        (lambda d: ["rmsnrm"], "did you mean rmsnorm"),
        (lambda d: ["json"], "is no kernel module"),
        (lambda d: write(d, "bad.py", "def f(:\n") or [str(d / "bad.py")], "is not Python"),
        (
            lambda d: write(d, "solutions/3_x.py", ZEROS) or write(d, "problems/4_y.py", ZEROS) or [str(d)],
            "no problem for 3_x.py",
        ),
    ],
)
def test_a_wrong_target_is_one_line_that_says_what_to_do(tmp_path, make, message):
    with pytest.raises(AddrfracError, match=message) as caught:
        find_targets(make(tmp_path))
    assert "\n" not in str(caught.value)


def test_cases_of_one_name_are_told_apart(tmp_path):
    from addrfrac.verification.sources import distinct

    write(tmp_path, "one.py", "CASES = (Case(name='a'), Case(name='a'))\ndef reference(x): return x\n")
    assert [target.name for target in distinct(find_targets([str(tmp_path / "one.py")]))] == ["one a", "one a (2)"]


def test_check_kernel_does_what_its_docstring_says():
    import doctest

    from addrfrac.verification import api

    found = doctest.testmod(api)
    assert found.attempted >= 3
    assert found.failed == 0


def test_verdicts_that_are_saved_are_those_that_are_loaded(zeros):
    assert verification.load(zeros[1] / "verdicts.json") == zeros[0]
    assert json.loads((zeros[1] / "verdicts.json").read_text())["kind"] == "verdicts"
