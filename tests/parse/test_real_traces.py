"""Real traces against a slow reader of a dozen lines, and facts about them that were known beforehand."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from addrfrac.parse import grade, read_trace
from addrfrac.records import Trace

SMALL = [
    "b200_vllm_eager",
    "h100_qwen15_generate",
    "h200_dlrm_dcnv2_fbgemm_train",
    "h200_qwen3_compiled_cudagraphs",
    "h200_resnet50_two_streams",
    "mi210_gpu_only",
    "mi300_vllm_decode_graph",
    "v100_cnn_ddp_ns",
]
FACTS: dict[str, dict[str, Any]] = {
    "a100_recommender_rank0of16": {"kernels": 7747, "unlaunched": 872, "steps": 5, "rank": (0, 16), "grade": "C"},
    "a100_sam_compile_flash": {"kernels": 25259, "unlaunched": 0, "steps": 0, "rank": (None, None), "grade": "B"},
    "b200_vllm_eager": {"kernels": 929, "unlaunched": 0, "steps": 0, "rank": (0, 8), "grade": "B"},
    "h100_owlv2": {"kernels": 5165, "unlaunched": 0, "steps": 1, "rank": (None, None), "grade": "A"},
    "h100_qwen15_generate": {"kernels": 1707, "unlaunched": 509, "steps": 1, "rank": (None, None), "grade": "A"},
    "h200_dlrm_dcnv2_fbgemm_train": {"kernels": 402, "unlaunched": 0, "steps": 2, "rank": (None, None), "grade": "A"},
    "h200_qwen3_compiled_cudagraphs": {
        "kernels": 186,
        "unlaunched": 0,
        "steps": 2,
        "rank": (None, None),
        "grade": "D",
    },
    "h200_resnet50_two_streams": {"kernels": 632, "unlaunched": 0, "steps": 2, "rank": (None, None), "grade": "A"},
    "mi210_gpu_only": {"kernels": 562, "unlaunched": 0, "steps": 0, "rank": (None, None), "grade": "D"},
    "mi300_resnet_checkpointing_ddp": {"kernels": 3653, "unlaunched": 968, "steps": 3, "rank": (0, 8), "grade": "A"},
    "mi300_vllm_decode_graph": {"kernels": 434, "unlaunched": 0, "steps": 0, "rank": (0, 1), "grade": "D"},
    "rtx2080ti_resnet_bad_external_ids": {
        "kernels": 10113,
        "unlaunched": 0,
        "steps": 0,
        "rank": (None, None),
        "grade": "B",
    },
    "v100_cnn_ddp_ns": {"kernels": 6095, "unlaunched": 0, "steps": 5, "rank": (0, 1), "grade": "B"},
    "v100_dlrm_old_inductor_graphs": {"kernels": 15632, "unlaunched": 614, "steps": 6, "rank": (1, 2), "grade": "C"},
}


def nanoseconds(text: str) -> int:
    return round(Decimal(text) * 1000)


def slowly(path: Path) -> Counter[tuple[Any, ...]]:
    """(name, start, end, device, stream, correlation, stack) of each device event, by plain loops."""
    with gzip.open(path) as file:
        events = json.load(file, parse_float=str, parse_int=str)["traceEvents"]
    calls: dict[str, Any] = {}
    threads: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for number, event in enumerate(events):
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[event["args"]["correlation"]] = event
            threads[event["pid"], event["tid"]].append((nanoseconds(event["ts"]), 1, number, event))
        if event.get("cat") in ("cpu_op", "user_annotation"):
            start = nanoseconds(event["ts"])
            end = start + nanoseconds(event["dur"])
            threads[event["pid"], event["tid"]].append((start, 0, -end, number, event["name"]))
    stacks: dict[str, tuple[str, ...]] = {}
    for rows in threads.values():
        is_open: list[tuple[int, str]] = []
        for row in sorted(rows, key=lambda row: row[:3]):
            is_open = [(end, name) for end, name in is_open if end > row[0]]
            if row[1]:
                names = (name for _, name in is_open if not name.startswith("ProfilerStep#"))
                stacks[row[3]["args"]["correlation"]] = tuple(names)
            else:
                is_open.append((-row[2], row[4]))
    found: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            start, args = nanoseconds(event["ts"]), event["args"]
            call = calls.get(args["correlation"])
            found[
                event["name"],
                start,
                start + nanoseconds(event["dur"]),
                int(args["device"]),
                int(args["stream"]),
                int(args["correlation"]) if call else None,
                stacks[args["correlation"]] if call else (),
            ] += 1
    return found


def quickly(trace: Trace) -> Counter[tuple[Any, ...]]:
    kernels, launches = trace.kernels, trace.launches
    return Counter(
        (
            trace.names[kernels.name[row]],
            int(kernels.start_ns[row]),
            int(kernels.end_ns[row]),
            int(kernels.device[row]),
            int(kernels.stream[row]),
            int(launches.correlation[kernels.launch[row]]) if kernels.launch[row] >= 0 else None,
            trace.op_stacks[kernels.op_stack[row]],
        )
        for row in range(len(kernels))
    )


@pytest.mark.parametrize("name", SMALL)
def test_every_kernel_agrees_with_the_slow_reader(real_traces: Path, name: str) -> None:
    path = real_traces / f"{name}.json.gz"
    assert quickly(read_trace(path)) == slowly(path)


@pytest.fixture(scope="module")
def read(real_traces: Path) -> Any:
    kept: dict[str, Trace] = {}

    def read_once(name: str) -> Trace:
        if name not in kept:
            kept[name] = read_trace(real_traces / f"{name}.json.gz")
        return kept[name]

    return read_once


@pytest.mark.parametrize("name", FACTS)
def test_known_facts(read: Any, name: str) -> None:
    trace = read(name)
    found = {
        "kernels": len(trace.kernels),
        "unlaunched": int((trace.kernels.launch < 0).sum()),
        "steps": int((trace.ranges.kind == 0).sum()),
        "rank": (trace.source.rank, trace.source.world_size),
        "grade": grade(trace).letter,
    }
    assert found == FACTS[name]


def test_columns_are_sound_in_every_trace(read: Any) -> None:
    for name in FACTS:
        trace = read(name)
        kernels, launches = trace.kernels, trace.launches
        assert np.all(kernels.end_ns >= kernels.start_ns)
        assert np.all(np.diff(kernels.start_ns) >= 0)
        assert np.all(np.diff(launches.start_ns) >= 0)
        assert np.all(np.diff(trace.ranges.start_ns) >= 0)
        for column, size in (
            (kernels.name, len(trace.names)),
            (kernels.op_stack, len(trace.op_stacks)),
            (kernels.forward_stack, len(trace.op_stacks)),
            (kernels.inputs, len(trace.op_inputs)),
            (kernels.module, len(trace.modules)),
            (kernels.collective, len(trace.collectives)),
            (kernels.launch, len(launches)),
            (launches.name, len(trace.names)),
            (trace.ranges.name, len(trace.names)),
        ):
            assert len(column) == 0 or (column.min() >= -1 and column.max() < size)
        assert all(json.loads(inputs.dims) is not None for inputs in trace.op_inputs)


def test_graph_replays_share_one_launch(read: Any) -> None:
    trace = read("v100_dlrm_old_inductor_graphs")
    in_graph = np.append(trace.launches.is_graph, False)[trace.kernels.launch]
    assert int(in_graph.sum()) == 5046
    assert int(trace.launches.is_graph.sum()) == 12


def test_backward_kernels_know_their_forward_op(read: Any) -> None:
    trace = read("h200_dlrm_dcnv2_fbgemm_train")
    pairs = {
        (trace.op_stacks[stack][-1], trace.op_stacks[forward][-1])
        for stack, forward in zip(trace.kernels.op_stack.tolist(), trace.kernels.forward_stack.tolist(), strict=True)
        if forward
    }
    assert ("aten::binary_cross_entropy_with_logits", "aten::binary_cross_entropy_with_logits") not in pairs
    assert any(backward == "aten::threshold_backward" and "relu" in forward for backward, forward in pairs)
    assert any(backward == "aten::mm" and forward in ("aten::addmm", "aten::mm") for backward, forward in pairs)


def test_modules_and_shapes_are_recovered(read: Any) -> None:
    trace = read("h100_owlv2")
    assert float((trace.kernels.module >= 0).mean()) > 0.98
    assert any(module.startswith("Owlv2") for module in trace.modules)
    assert bool((trace.kernels.inputs >= 0).all())


def test_serving_annotations_are_ranges(read: Any) -> None:
    trace = read("b200_vllm_eager")
    names = {trace.names[name] for name in trace.ranges.name.tolist()}
    assert "execute_context_1(8_788544)_generation_0(0)" in names or any(name.startswith("execute_") for name in names)
    (collective,) = trace.collectives
    assert collective.group_size == 8


def test_devices_and_makers_are_named(read: Any) -> None:
    assert read("h200_resnet50_two_streams").source.device_names == ("NVIDIA H200",)
    assert read("mi210_gpu_only").source.device_kind == "hip"
    assert read("v100_cnn_ddp_ns").source.device_kind == "cuda"
