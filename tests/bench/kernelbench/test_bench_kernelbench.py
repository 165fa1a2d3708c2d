"""`addrfrac bench kernelbench` as typed, on a CPU: side by side, resumed, carried elsewhere, and told what is amiss."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from addrfrac.bench.kernelbench.evaluate import Task
from addrfrac.bench.kernelbench.records import Study
from addrfrac.bench.kernelbench.run import load, statuses
from addrfrac.errors import AddrfracError

Bench = Callable[..., subprocess.CompletedProcess[str]]
Ran = tuple[Path, Path, Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str], bench: Bench) -> Ran:
    """Two problems, three samples of the first, none of the second."""
    home = tmp_path_factory.mktemp("kernelbench")
    problems, solutions = home / "checkout", home / "llm"
    for place, text in {"level1/1_swish.py": texts["swish"], "level2/7_linear_scale.py": texts["linear"]}.items():
        path = problems / "KernelBench" / place
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (solutions / "level1" / "1").mkdir(parents=True)
    for number, text in enumerate(("right", "only as published", "dies")):
        (solutions / "level1" / "1" / f"sample_{number}.py").write_text(texts[text])
    folder = home / "out"
    done = bench(*command(problems, solutions, folder))
    return problems, solutions, folder, done


def command(problems: Path, solutions: Path, folder: Path) -> list[str]:
    given = ["--problems", str(problems), "--solutions", str(solutions), "-o", str(folder)]
    return [*given, "--jobs", "1", "--timeout", "30", "--quick"]


def study_of(ran: Ran) -> Study:
    assert ran[3].returncode == 0, ran[3].stderr
    return load(ran[2])


def test_every_sample_has_a_verdict_under_every_protocol(ran: Ran) -> None:
    study = study_of(ran)
    found = {one.sample: {verdict.protocol: verdict.passed for verdict in one.verdicts} for one in study.evaluations}
    assert found == {
        0: {"addrfrac": True, "study": True, "kernelbench": True, "kernelbench-verified": True},
        1: {"addrfrac": False, "study": True, "kernelbench": True, "kernelbench-verified": False},
        2: {"addrfrac": False, "study": False, "kernelbench": False, "kernelbench-verified": False},
    }
    assert sum(statuses(study)["addrfrac"].values()) == 3


def test_a_problem_without_a_solution_stays_in_the_denominator(ran: Ran) -> None:
    study = study_of(ran)
    assert study.planned == ((1, 1), (2, 7))
    assert study.without_solution == {"llm": ((2, 7),)}


def test_a_resumed_run_carried_to_another_folder_evaluates_nothing_again(
    ran: Ran, tmp_path: Path, bench: Bench
) -> None:
    problems, solutions, folder, _ = ran
    before = study_of(ran)
    shutil.copytree(folder, tmp_path / "carried")
    again = bench(*command(problems, solutions, tmp_path / "carried"), "--resume")
    assert "3 of 3 kept from the last run" in again.stderr
    assert load(tmp_path / "carried").evaluations == before.evaluations


def test_what_is_amiss_is_one_line_and_nothing_is_written(ran: Ran, tmp_path: Path, bench: Bench) -> None:
    problems, solutions, _, _ = ran
    folder = tmp_path / "out"
    done = bench(*command(problems, tmp_path / "nowhere", folder))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no solutions at" in done.stderr
    assert not folder.exists()
    assert bench("--problems", str(problems)).returncode == 2
    assert bench(*command(problems, solutions, folder), "--precision", "fp8").returncode == 2


def test_a_file_that_is_no_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(AddrfracError, match="cannot read"):
        load(tmp_path)
    (tmp_path / "kernelbench.json").write_text("{}")
    with pytest.raises(AddrfracError, match="is no saved KernelBench study"):
        load(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_a_cluster_is_one_clear_line(ran: Ran, tmp_path: Path, bench: Bench) -> None:
    problems, solutions, _, _ = ran
    done = bench(*command(problems, solutions, tmp_path / "out"), "--cluster", "local")
    assert done.returncode == 1
    assert "pip install 'addrfrac[cluster]'" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray (the cluster extra) is not installed")
def test_ray_s_workers_find_what_the_processes_of_one_machine_find(ran: Ran, tmp_path: Path, bench: Bench) -> None:
    problems, solutions, _, _ = ran
    done = bench(*command(problems, solutions, tmp_path / "out"), "--cluster", "local")
    assert done.returncode == 0, done.stderr
    mine, theirs = study_of(ran), load(tmp_path / "out")
    assert statuses(theirs) == statuses(mine)
    assert [one.key for one in theirs.evaluations] == [one.key for one in mine.evaluations]


def test_a_task_can_be_sent_to_another_machine(texts: dict[str, str]) -> None:
    import pickle

    from addrfrac.bench.kernelbench.records import Problem, Solution

    one = Task(
        key="k", problem=Problem(level=1, number=1, title="", text=texts["swish"]),
        solution=Solution(level=1, number=1, name="llm", sample=0, path="", text=texts["right"], kind="pytorch"),
        protocols=("study",), precision="tf32", device="cpu", quick=True, timeout_s=1.0, device_name="", versions={},
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(one)) == one
