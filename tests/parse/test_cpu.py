from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addrfrac.parse import read_trace
from addrfrac.records import Trace


@pytest.fixture
def read(kineto: Any, tmp_path: Path) -> Any:
    kineto.top["addrfrac"] = {"device": "cpu"}
    return lambda: read_trace(kineto.write(tmp_path / "trace.json"))


def segments(trace: Trace) -> list[tuple[str, float, float]]:
    kernels = trace.kernels
    return [
        (trace.names[name], start / 1000, end / 1000)
        for name, start, end in zip(
            kernels.name.tolist(), kernels.start_ns.tolist(), kernels.end_ns.tolist(), strict=True
        )
    ]


def test_every_moment_belongs_to_the_innermost_op(kineto: Any, read: Any) -> None:
    kineto.annotation("ProfilerStep#0", 0, 100)
    kineto.op("outer", 10, 40)
    kineto.op("inner", 20, 10)
    kineto.op("next", 60, 5)
    trace = read()
    assert segments(trace) == [("outer", 10, 20), ("inner", 20, 30), ("outer", 30, 50), ("next", 60, 65)]
    assert trace.source.device_kind == "cpu"
    assert [trace.op_stacks[stack] for stack in trace.kernels.op_stack.tolist()] == [
        ("outer",),
        ("outer", "inner"),
        ("outer",),
        ("next",),
    ]


def test_an_op_is_its_own_launch(kineto: Any, read: Any) -> None:
    kineto.op("outer", 10, 40)
    kineto.op("inner", 20, 10)
    trace = read()
    assert trace.kernels.launch.tolist() == [0, 1, 0]
    assert trace.launches.start_ns.tolist() == [10_000, 20_000]
    assert trace.launches.end_ns.tolist() == [50_000, 30_000]


def test_annotations_own_no_time_but_stand_in_the_stack(kineto: Any, read: Any) -> None:
    kineto.annotation("Optimizer.step#SGD.step", 0, 100)
    kineto.op("aten::add_", 10, 5)
    trace = read()
    assert segments(trace) == [("aten::add_", 10, 15)]
    assert trace.op_stacks[trace.kernels.op_stack[0]] == ("Optimizer.step#SGD.step", "aten::add_")


def test_an_annotation_inside_an_op_leaves_the_time_with_the_op(kineto: Any, read: Any) -> None:
    kineto.op("outer", 0, 30)
    kineto.annotation("marked", 10, 10)
    assert sum(end - start for _, start, end in segments(read())) == 30


def test_threads_run_beside_each_other(kineto: Any, read: Any) -> None:
    kineto.op("a", 0, 30, tid=1)
    kineto.op("b", 10, 30, tid=2)
    trace = read()
    assert segments(trace) == [("a", 0, 30), ("b", 10, 40)]
    assert trace.kernels.stream.tolist() == [1, 2]


def test_a_child_without_length_does_not_cut_its_parent(kineto: Any, read: Any) -> None:
    kineto.op("outer", 0, 30)
    kineto.op("instant", 10, 0)
    assert segments(read()) == [("outer", 0, 30)]


def test_self_times_of_properly_nested_ops_add_up_to_the_time_inside_ops(kineto: Any, read: Any) -> None:
    for start in range(0, 1000, 100):
        for depth in range(6):
            kineto.op(f"op{depth}", start + depth, 90 - 3 * depth)
    assert sum(end - start for _, start, end in segments(read())) == 900
