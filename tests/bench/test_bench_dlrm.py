"""`addrfrac bench dlrm` as typed, on a CPU under Triton's interpreter: what solutions do to it costs one evaluation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from addrfrac import dlrm_bench
from addrfrac.bench import results

HEAD = "import os, time\nimport torch\nimport torch.nn.functional as F\n\n\n"
RIGHT = """class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.sigmoid(F.layer_norm(x, x.shape[-1:], self.weight, self.bias))
"""
RETURNS = "        return x *"
PLANTED = {
    0: HEAD + RIGHT,
    1: HEAD + RIGHT.replace("self.weight", "self.scale").replace("self.bias", "self.shift"),
    2: HEAD + RIGHT.replace(RETURNS, "        os.abort()\n" + RETURNS),
    3: HEAD + RIGHT.replace(RETURNS, "        time.sleep(3600)\n" + RETURNS),
    4: HEAD + RIGHT.replace(RETURNS, "        return 0.9 * x *"),
    5: HEAD
    + RIGHT.replace(RETURNS, "        time.sleep(0.02)\n" + RETURNS)
    + "\n\ntruth = time.perf_counter_ns\nbegan = truth()\n"
    + "time.perf_counter_ns = lambda: began + (truth() - began) // 50\n",
    6: HEAD + RIGHT.replace("(width))", "(width + 1))"),
    7: HEAD + "raise RuntimeError('on import')\n",
}


def bench(folder: Path, *options: str, timeout: float = 400.0) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "addrfrac",
        "bench",
        "dlrm",
        "--device",
        "cpu",
        "--size",
        "tiny",
        "-o",
        str(folder),
    ]
    return subprocess.run(
        [*command, "-o", str(folder), "--processes", "1", "--rounds", "2", *options],
        capture_output=True, text=True, timeout=timeout, env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """Eight samples for one problem, timed as they stand: nothing was verified before."""
    solutions = tmp_path_factory.mktemp("llm")
    (solutions / "19").mkdir()
    for number, text in PLANTED.items():
        (solutions / "19" / f"sample_{number}.py").write_text(text)
    folder = tmp_path_factory.mktemp("planted")
    done = bench(folder, "--problem", "19", "--solutions", str(solutions), "--no-verify", "--timeout", "25")
    return solutions, folder, done


def test_a_run_survives_whatever_its_solutions_do(planted):
    _, folder, done = planted
    assert done.returncode == 0, done.stderr[-2000:]
    assert [one.sample for one in results.load(folder).evaluations] == sorted(PLANTED)


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (2, "its process ended (signal 6)"),
        (3, "took more than 25 s"),
        (4, "wrong at this size: output 0: relative error 1.00e-01"),
        (5, "timing disagreement"),
        (6, "its parameters match the reference's neither by name nor by order and shape"),
        (7, "RuntimeError: on import"),
    ],
)
def test_each_costs_one_evaluation_with_its_reason(planted, sample, reason):
    _, folder, _ = planted
    (one,) = [one for one in results.load(folder).evaluations if one.sample == sample]
    assert reason in one.failure
    assert one.over_eager is None


@pytest.mark.parametrize("sample", [0, 1])
def test_the_right_ones_are_timed_beside_eager_whatever_their_parameters_are_called(planted, sample):
    _, folder, _ = planted
    (one,) = [one for one in results.load(folder).evaluations if one.sample == sample]
    assert one.failure == ""
    assert one.agrees
    assert {"eager", "solution", "eager forward", "solution forward"} == {arm.arm for arm in one.arms}
    assert one.over_eager is not None
    assert one.clock_ratio is not None


def test_a_run_goes_on_where_it_stopped_even_in_the_middle_of_a_line(planted):
    solutions, folder, _ = planted
    lines = (folder / results.LINES).read_bytes().splitlines(keepends=True)
    (folder / results.LINES).write_bytes(b"".join(lines[:-1]) + lines[-1][:100])
    done = bench(folder, "--problem", "19", "--solutions", str(solutions), "--no-verify", "--timeout", "25", "--resume")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("kept from the last run") == len(PLANTED) - 1
    assert len(results.read(folder)) == len(PLANTED)


def test_a_folder_of_a_run_is_reported_again_in_80_columns(planted):
    _, folder, _ = planted
    done = subprocess.run(
        [sys.executable, "-m", "addrfrac", "report", str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "timing disagreement" in done.stdout
    table = done.stdout.split("what failed")[0].splitlines()
    assert max(map(len, table)) <= 80


def test_a_damaged_line_in_the_middle_is_said_in_one_line(tmp_path):
    (tmp_path / results.LINES).write_bytes(b"{torn\n{}\n")
    done = bench(tmp_path, "--problem", "19", "--no-verify", "--resume")
    assert done.returncode == 1
    assert "line 1 is no evaluation" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--problem", "99"), "no problem '99'"),
        (("--size", "huge"), "no size 'huge'"),
        (("--indices", "normal"), "no index distribution 'normal'"),
        (("--solutions", "nobody"), "no solutions 'nobody'"),
    ],
)
def test_what_cannot_be_met_is_said_in_one_line(tmp_path, options, said):
    done = bench(tmp_path, *options)
    assert done.returncode == 1
    assert said in done.stderr


def test_the_whole_suite_runs_under_the_interpreter(tmp_path):
    """All first attempts, each compared with the reference at its size; what the verifier says is tested elsewhere."""
    done = bench(tmp_path, "--no-verify", timeout=900.0)
    assert done.returncode == 0, done.stderr[-2000:]
    suite = results.load(tmp_path)
    assert [one.number for one in suite.evaluations] == [problem.number for problem in dlrm_bench.problems()]
    assert {one.number: one.failure for one in suite.evaluations if one.failure} == {}
    assert all(one.agrees for one in suite.evaluations)
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_verified_solution_passes_and_its_verdict_is_kept(tmp_path):
    first = bench(tmp_path, "--problem", "12", "--quick", "--no-time", "--jobs", "1")
    assert first.returncode == 0, first.stderr[-2000:]
    (one,) = results.load(tmp_path).evaluations
    assert (one.judged.status, one.judged.protocol) == ("passed", "addrfrac")
    again = bench(tmp_path, "--problem", "12", "--quick", "--jobs", "1")
    assert "verifying" not in again.stderr, "the folder knows this verdict already"
    (timed,) = results.load(tmp_path).evaluations
    assert timed.judged.passed
    assert timed.over_eager is not None


def test_the_list_names_every_problem():
    done = subprocess.run(
        [sys.executable, "-m", "addrfrac", "bench", "list"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert all(problem.name in done.stdout for problem in dlrm_bench.problems())
    assert max(map(len, done.stdout.splitlines())) <= 80
