"""Whole verifications: targets, protocols, saving, rendering."""

from __future__ import annotations

from pathlib import Path

import pytest

import addrfrac.verification as verification
from addrfrac.errors import AddrfracError
from addrfrac.verification.fixtures.fixture import PREAMBLE
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.records import Label, Status

ZEROS = PREAMBLE + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.zeros_like(x)\n"
RIGHT = PREAMBLE + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"


@pytest.fixture
def pair(tmp_path):
    """Writes a pair and gives its paths."""

    def write(solution: str, problem: str = "softmax_wide") -> tuple[Path, Path]:
        (tmp_path / "problem.py").write_text(PROBLEMS[problem])
        (tmp_path / "solution.py").write_text(solution)
        return tmp_path / "problem.py", tmp_path / "solution.py"

    return write


def test_zeros_pass_the_published_tolerance_and_not_ours(pair):
    paths = pair(ZEROS)
    (published,) = verification.check_kernel(*paths, protocol="kernelbench")
    (ours,) = verification.check_kernel(*paths, quick=True)
    assert published.status is Status.PASSED
    assert ours.status is Status.WRONG_VALUES


def test_a_right_kernel_passes_and_says_that_the_library_did_the_work(pair, tmp_path):
    target = verification.pair(*pair(RIGHT, "softmax"))
    verdicts = verification.verify([target], quick=True, directory=tmp_path / "out")
    assert verdicts[0].status is Status.PASSED, verdicts[0].reason
    assert Label.LIBRARY in verdicts[0].labels
    assert verdicts[0].speed.speedup is None
    assert verdicts[0].speed.verdict == "not measured on a CPU"
    assert verification.load(tmp_path / "out" / "verdicts.json") == verdicts
    text = verification.render_terminal(verdicts, width=80)
    assert "passed" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "softmax" in (tmp_path / "out" / "verdicts.html").read_text()


ROW_MAJOR = (
    PREAMBLE
    + """
class ModelNew(nn.Module):
    def forward(self, x, w):
        return (x @ w).unflatten(-1, (4, -1)).transpose(1, 2).contiguous()
"""
)


def test_a_row_major_answer_where_the_library_chose_another_layout_passes_and_is_said(pair):
    (verdict,) = verification.check_kernel(*pair(ROW_MAJOR, "heads_apart"), quick=True)
    assert verdict.status is Status.PASSED, verdict.reason
    assert Label.OTHER_LAYOUT in verdict.labels


def test_a_source_that_cannot_be_imported_is_not_loaded(pair):
    (verdict,) = verification.check_kernel(*pair("import no_such_module\n", "softmax"), quick=True)
    assert verdict.status is Status.NOT_LOADED
    assert "no_such_module" in verdict.reason


def test_a_source_without_a_candidate_is_not_loaded(pair):
    (verdict,) = verification.check_kernel(*pair("x = 1\n", "softmax"), quick=True)
    assert verdict.status is Status.NOT_LOADED


def test_a_folder_of_pairs_gives_a_verdict_each(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(PROBLEMS["softmax"])
        (tmp_path / f"{name}_solution.py").write_text(RIGHT)
    verdicts = verification.verify([str(tmp_path)], "study")
    assert [v.name for v in verdicts] == ["one", "two"]
    assert all(v.passed for v in verdicts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": ["no.such.kernel"]}, "no kernel"),
        ({"targets": ["x"], "protocol": "mine"}, "no protocol"),
        ({"targets": ["x"], "dtype": "int3"}, "no dtype"),
        ({"targets": ["x"], "device": "tpu"}, "no device"),
        ({"targets": ["x"], "timeout": 0}, "timeout"),
        ({"targets": []}, "nothing to verify"),
    ],
)
def test_a_mistake_of_the_user_is_told_in_one_line(arguments, message):
    with pytest.raises(AddrfracError, match=message) as caught:
        verification.verify(**arguments)
    assert "\n" not in str(caught.value)


def test_an_empty_list_of_verdicts_renders():
    assert "nothing" in verification.render_terminal(())
    assert "Nothing" in verification.section(())


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    code = "import sys, addrfrac.verification; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
