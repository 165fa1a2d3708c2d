from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The script as a module."""
    path = Path(__file__).with_name("trace_benchmark.py")
    spec = importlib.util.spec_from_file_location("trace_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trace_benchmark"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    """Two steps' worth of every kind of event that carries an id."""
    args = {"correlation": 7, "External id": 3, "Ev Idx": 0, "Sequence number": 5, "note": "100 %d %s"}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 10.25, "dur": 4.5, "args": args},
        {"ph": "s", "id": 7, "pid": 1, "tid": 1, "ts": 11.0, "cat": "ac2g", "name": "ac2g"},
        {"name": "process_name", "ph": "M", "ts": 10.0, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {
            "ph": "X",
            "cat": "python_function",
            "name": "f",
            "pid": 1,
            "tid": 1,
            "ts": 12,
            "dur": 1,
            "args": {"Python id": 1},
        },
    ]
    path = tmp_path / "seed.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return path


def test_tiles_repeat_the_trace_with_stamps_and_ids_of_their_own(benchmark: Any, seed: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiled.json"
    benchmark.Template.of(seed).write(path, 3)
    content = json.loads(path.read_text())
    events = content["traceEvents"]
    assert content["schemaVersion"] == 1
    assert len(events) == 12
    assert [event["ts"] for event in events[:4]] == [10.25, 11.0, 10.0, 12.0]
    assert len({event["args"]["correlation"] for event in events if event.get("cat") == "cpu_op"}) == 3
    assert len({event["id"] for event in events if event["ph"] == "s"}) == 3
    assert events[4]["args"]["note"] == "100 %d %s"
    assert events[4]["dur"] == 4.5
    assert min(event["ts"] for event in events[4:8]) > max(event["ts"] for event in events[:4])


def test_a_command_costs_time_and_memory(benchmark: Any, tmp_path: Path) -> None:
    code = "import time; held = bytearray(b'x' * 60_000_000); time.sleep(0.3)"
    cost = benchmark._run([sys.executable, "-c", code], tmp_path)
    assert 0.3 < cost.seconds < 30
    assert 60 < cost.peak_mb < 400
