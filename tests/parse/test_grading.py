from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addrfrac.parse import grade, read_trace
from addrfrac.records import Grade

SHAPES = {"Input Dims": [[2, 2]]}


@pytest.fixture
def graded(kineto: Any, tmp_path: Path) -> Any:
    def read() -> Grade:
        return grade(read_trace(kineto.write(tmp_path / "trace.json")))

    return read


def whats(found: Grade) -> str:
    return "; ".join(loss.what for loss in found.losses)


def test_a_complete_trace_gets_an_a_and_no_losses(kineto: Any, graded: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 90)
    kineto.op("aten::mm", 1, 40, **SHAPES)
    kineto.launched("k", 2, 20, 5, 1)
    assert graded() == Grade(letter="A", losses=())


def test_missing_shapes_and_steps_are_named_with_the_setting_that_mends_them(kineto: Any, graded: Any) -> None:
    kineto.op("aten::mm", 1, 40)
    kineto.launched("k", 2, 20, 5, 1)
    found = graded()
    assert found.letter == "B"
    remedies = " ".join(loss.remedy for loss in found.losses)
    assert "record_shapes=True" in remedies
    assert "prof.step()" in remedies


def test_launches_outside_every_op_cost_a_letter_by_the_time_they_hold(kineto: Any, graded: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 90)
    kineto.op("aten::mm", 1, 4, **SHAPES)
    kineto.launched("owned", 2, 20, 60, 1)
    kineto.launched("loose", 50, 90, 40, 2)
    found = graded()
    assert found.letter == "C"
    assert "outside every recorded operator" in whats(found)


def test_gpu_only_traces_get_a_d(kineto: Any, graded: Any) -> None:
    kineto.kernel("k", 20, 5, 1)
    found = graded()
    assert found.letter == "D"
    assert "without a launch event" in whats(found)
    assert all(loss.remedy for loss in found.losses)


def test_replayed_graphs_are_named(kineto: Any, graded: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 90)
    kineto.call("cudaGraphLaunch", 5, 9)
    kineto.kernel("node", 10, 50, 9)
    found = graded()
    assert found.letter == "D"
    assert "replayed from a graph" in whats(found)
    assert any("--capture" in loss.remedy for loss in found.losses)


def test_collectives_without_a_rank_are_named(kineto: Any, graded: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 90)
    kineto.op("record_param_comms", 1, 40, **SHAPES, **{"Collective name": "allreduce"})
    kineto.launched("ncclDevKernel_AllReduce", 2, 20, 5, 1)
    found = graded()
    assert found.letter == "B"
    assert "no rank" in whats(found)


def test_what_the_reader_lost_is_in_the_grade(kineto: Any, graded: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 90)
    kineto.op("aten::mm", 1, 40, **SHAPES)
    kineto.launched("k", 2, 20, 5, 1)
    kineto.launched("bad", 3, 30, -5, 2)
    found = graded()
    assert found.letter == "B"
    assert "impossible time stamps" in whats(found)
