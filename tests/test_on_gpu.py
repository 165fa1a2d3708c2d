"""What only a CUDA device can show; skipped elsewhere. When it was last run is said in reports/README.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from addrfrac.environment import has_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="no CUDA device here")]


def profile(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "addrfrac", "profile", *arguments, "-o", str(directory), "--quiet"]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def record(directory: Path, *arguments: str) -> dict[str, Any]:
    done = profile(directory, *arguments)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads((directory / "run.json").read_text())
    return loaded


def test_the_device_is_never_busier_than_the_unprofiled_step_lasts(tmp_path: Path) -> None:
    run = record(tmp_path, "resnet50", "--batch", "16", "--steps", "5")
    accounts = run["accounts"]
    assert accounts["residual_us"] == 0
    assert 0.3 < accounts["busy_us"] / run["wall"]["device"]["median_us"] < 1.03
    assert run["wall"]["graph"]["median_us"] <= run["wall"]["device"]["median_us"] * 1.05
    assert run["addressable"]["by_policy"]["paper"]["unknown_us"] <= 0.005 * accounts["busy_us"]
    assert {file.name for file in tmp_path.iterdir()} == {"run.json", "trace.json.gz", "report.html"}


def test_replayed_kernels_get_their_ops_from_the_eager_trace(tmp_path: Path) -> None:
    run = record(tmp_path, "resnet50", "--batch", "4", "--steps", "5", "--execution", "graph")
    named = [row for row in run["kernels"] if row["launching_op"] is not None and row["op"] != "memset"]
    assert sum(row["device_us"] for row in named) > 0.95 * run["accounts"]["busy_us"]
    assert run["accounts"]["host_calls"] <= 2


def test_what_does_not_fit_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = profile(out, "resnet50", "--batch", "400000")
    assert done.returncode == 1
    assert "out of memory" in done.stderr
    assert "--batch" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not out.exists()


def test_in_a_sweep_what_fits_is_kept(tmp_path: Path) -> None:
    done = profile(tmp_path, "resnet50", "--batch", "2,400000", "--steps", "3")
    assert done.returncode == 1
    assert "out of memory" in done.stderr
    assert len(list(tmp_path.rglob("run.json"))) == 1


def test_training_tells_its_three_phases_apart(tmp_path: Path) -> None:
    run = record(tmp_path, "resnet50", "--mode", "train", "--batch", "8", "--steps", "5")
    time_of = dict.fromkeys(("forward", "backward", "optimizer", "unknown"), 0.0)
    for row in run["kernels"]:
        time_of[row["phase"]] += row["device_us"]
    assert time_of["backward"] > time_of["forward"] > time_of["optimizer"] > 0
    assert time_of["unknown"] < 0.01 * run["accounts"]["busy_us"]
