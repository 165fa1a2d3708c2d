"""Captures as serving engines record them: launch calls whose kernels run only when the graph is replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from addrfrac.classify import certainty_shares, classify
from addrfrac.errors import UnreadableTrace
from addrfrac.parse import read_trace
from addrfrac.parse.captured import kernel_names, read_capture

GEMM, NORM, COPY = (
    "Cijk_Alik_Bljk_UserArgs_MT16x16x256",
    "void layer_norm_kernel<float>(int)",
    "triton_poi_fused_clone_0",
)
STEPS = [(GEMM, "aten::addmm"), (NORM, "aten::native_layer_norm"), (COPY, "aten::clone"), (GEMM, "aten::mm")]


def complete(name: str, category: str, start_us: float, duration_us: float, **args: Any) -> dict[str, Any]:
    device = category == "kernel"
    return {
        "ph": "X", "name": name, "cat": category, "ts": start_us, "dur": duration_us,
        "pid": 0 if device else 1, "tid": 7 if device else 1, "args": args,
    }  # fmt: skip


def captured_events(*, named: bool, vendor: str = "hip") -> list[dict[str, Any]]:
    """One warm-up launch that ran, then a capture of STEPS."""
    events = [
        complete("aten::mul", "cpu_op", 0, 20),
        complete(f"{vendor}LaunchKernel", "cuda_runtime", 5, 5, correlation=1),
        complete("void warm_up<1>(int)", "kernel", 30, 5, correlation=1, device=0, stream=7),
        complete(f"{vendor}StreamBeginCapture", "cuda_runtime", 90, 1, correlation=2),
    ]
    for number, (kernel, op) in enumerate(STEPS):
        at = 100 + 100 * number
        name = {"kernel": kernel} if named else {}
        events.append(complete(op, "cpu_op", at, 50, **{"Input Dims": [[number, 8]], "Input type": ["float"]}))
        events.append(complete(f"{vendor}LaunchKernel", "cuda_runtime", at + 10, 5, correlation=10 + number, **name))
    events.append(complete(f"{vendor}StreamEndCapture", "cuda_runtime", 900, 1, correlation=3))
    return events


def replayed_events(vendor: str = "hip") -> list[dict[str, Any]]:
    """Two replays of the captured graph."""
    events = []
    for turn in range(2):
        at = 1000 * (turn + 1)
        events.append(complete(f"{vendor}GraphLaunch", "cuda_runtime", at, 10, correlation=100 + turn))
        events += [
            complete(kernel, "kernel", at + 20 + 20 * i, 10, correlation=100 + turn, device=0, stream=7)
            for i, (kernel, _) in enumerate(STEPS)
        ]
    return events


@pytest.fixture
def write(tmp_path: Path):
    """`write(events, name)`: the path of a trace file."""

    def written(events: list[dict[str, Any]], name: str) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": events}))
        return path

    return written


def test_launches_of_a_capture_stand_as_kernels_with_their_ops_and_shapes(write) -> None:
    capture = read_capture(write(captured_events(named=True), "capture.json"))
    names = [capture.names[i] for i in capture.kernels.name]
    assert names == ["void warm_up<1>(int)", *(kernel for kernel, _ in STEPS)]
    stacks = [capture.op_stacks[i] for i in capture.kernels.op_stack]
    assert stacks == [("aten::mul",), *((op,) for _, op in STEPS)]
    assert capture.kernels.graph_node.tolist() == [-1, 0, 1, 2, 3]
    assert [capture.op_inputs[i].dims for i in capture.kernels.inputs[1:]] == [f"[[{i}, 8]]" for i in range(4)]


@pytest.mark.parametrize(("named", "vendor"), [(True, "hip"), (False, "cuda")], ids=["rocm", "cuda"])
def test_a_replay_takes_its_ops_from_an_engines_capture(write, named: bool, vendor: str) -> None:
    replay = read_trace(write(replayed_events(vendor), "replay.json"))
    capture = read_capture(write(captured_events(named=named, vendor=vendor), "capture.json"))
    labels = classify(replay, capture=capture)
    assert [labels.table[i].op_stack for i in labels.of_kernel] == [(op,) for _, op in STEPS] * 2
    assert certainty_shares(replay, classify(replay)) == pytest.approx({"name only": 1.0})
    assert certainty_shares(replay, labels) == pytest.approx({"name and op agree": 1.0})


def test_a_nameless_capture_of_another_length_is_not_used(write) -> None:
    replay = read_trace(write(replayed_events("cuda"), "replay.json"))
    shorter = [event for event in captured_events(named=False, vendor="cuda") if event["args"].get("correlation") != 12]
    labels = classify(replay, capture=read_capture(write(shorter, "capture.json")))
    assert {label.op_stack for label in labels.table} == {()}


def test_a_capture_without_launches_and_a_missing_one_are_one_line(write, tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match="no launch call"):
        read_capture(write([complete("aten::mul", "cpu_op", 0, 20)], "capture.json"))
    with pytest.raises(UnreadableTrace, match="no file"):
        read_capture(tmp_path / "absent.json")


def test_a_capture_that_is_damaged_has_no_kernel_names_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_text('{"traceEvents": [{"cat": "cuda_runtime", "args": {"kernel": "k", "correlation": 1')
    assert kernel_names(path) == {}
