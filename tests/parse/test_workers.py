from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from addrfrac.parse import read_trace, scan, workers
from addrfrac.records import Trace

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")


@pytest.fixture
def long(kineto: Any) -> Any:
    """Enough events for many pieces of a few kilobytes."""
    for number in range(1, 1500):
        ts = number * 20
        kineto.op(f"aten::op{number % 17}", ts, 12, **{"Input Dims": [[number % 5]], "Ev Idx": number})
        kineto.event("python_function", f"nn.Module: M_{number % 3}", ts, 15, 100, 101)
        kineto.launched(f"kernel {number % 23}", ts + 1, ts + 5, 3.25, number)
    return kineto


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "PIECE_BYTES", 5000)
    monkeypatch.setattr(workers, "FORK_BYTES", 0)


def facts(trace: Trace) -> list[Any]:
    """Every kernel with all that the join found, in words."""
    kernels = trace.kernels
    return [
        (
            trace.names[kernels.name[row]],
            kernels.start_ns[row],
            trace.op_stacks[kernels.op_stack[row]],
            trace.op_inputs[kernels.inputs[row]].dims,
            trace.modules[kernels.module[row]],
        )
        for row in range(len(kernels))
    ]


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_several_processes_read_what_one_reads(
    long: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None, suffix: str, processes: int
) -> None:
    path = long.write(tmp_path / f"trace.{suffix}")
    monkeypatch.setattr(workers, "process_count", lambda size_bytes: processes)
    trace = read_trace(path)
    monkeypatch.undo()
    alone = read_trace(path)
    assert len(trace.kernels) == 1499
    assert facts(trace) == facts(alone)
    assert trace.source == alone.source
    assert np.array_equal(trace.launches.start_ns, alone.launches.start_ns)


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_pieces_of_a_process_that_was_killed_are_read_again(
    long: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None, suffix: str
) -> None:
    monkeypatch.setattr(workers, "process_count", lambda size_bytes: 2)
    monkeypatch.setattr(workers, "_run_child", lambda *_: os._exit(9))
    assert len(read_trace(long.write(tmp_path / f"trace.{suffix}")).kernels) == 1499


def test_a_damaged_piece_is_mended_wherever_it_is_read(
    long: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    monkeypatch.setattr(workers, "process_count", lambda size_bytes: 2)
    path = tmp_path / "trace.json"
    path.write_text(long.text().replace('"Ev Idx": 700', '"Ev Idx": NaN'))
    trace = read_trace(path)
    assert len(trace.kernels) == 1499
    assert trace.source.losses == ()


def test_a_process_that_loaded_torch_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert workers.process_count(1 << 30) == min(len(os.sched_getaffinity(0)), workers.MOST_PROCESSES)
    assert workers.process_count(1000) == 1
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert workers.process_count(1 << 30) == 1
