from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addrfrac.parse import read_trace
from addrfrac.records import RANGE_STEP, RANGE_USER, Trace


@pytest.fixture
def read(kineto: Any, tmp_path: Path) -> Any:
    """Writes what was built and reads it back."""
    return lambda: read_trace(kineto.write(tmp_path / "trace.json"))


def kernel_names(trace: Trace) -> list[str]:
    return [trace.names[name] for name in trace.kernels.name.tolist()]


def stack_of(trace: Trace, kernel: str) -> tuple[str, ...]:
    return trace.op_stacks[trace.kernels.op_stack[kernel_names(trace).index(kernel)]]


def losses(trace: Trace) -> dict[str, int]:
    return {loss.what: loss.count for loss in trace.source.losses}


def test_a_kernel_gets_the_stack_of_ops_open_when_it_was_launched(kineto: Any, read: Any) -> None:
    kineto.annotation("ProfilerStep#3", 0, 100)
    kineto.annotation("my phase", 1, 90)
    kineto.op("aten::linear", 2, 40)
    kineto.op("aten::addmm", 4, 30)
    kineto.op("aten::relu", 50, 10)
    kineto.launched("gemm", 10, 60, 5, 1)
    kineto.launched("relu", 52, 70, 5, 2)
    trace = read()
    assert stack_of(trace, "gemm") == ("my phase", "aten::linear", "aten::addmm")
    assert stack_of(trace, "relu") == ("my phase", "aten::relu")


def test_external_ids_are_not_used_to_find_the_op(kineto: Any, read: Any) -> None:
    kineto.op("aten::mm", 2, 40, **{"External id": 5})
    kineto.op("aten::as_strided", 60, 10, **{"External id": 1})
    kineto.launched("gemm", 10, 60, 5, 1, **{"External id": 1})
    assert stack_of(read(), "gemm") == ("aten::mm",)


def test_an_op_of_another_thread_or_process_does_not_own_a_launch(kineto: Any, read: Any) -> None:
    kineto.op("aten::mm", 0, 40, tid=999)
    kineto.op("aten::mm", 0, 40, pid=888)
    kineto.launched("gemm", 10, 60, 5, 1)
    assert stack_of(read(), "gemm") == ()


def test_a_kernel_without_launch_event_is_kept_and_counted(kineto: Any, read: Any) -> None:
    kineto.op("aten::mm", 0, 40)
    kineto.launched("gemm", 10, 60, 5, 1)
    kineto.kernel("orphan", 70, 5, 77)
    trace = read()
    assert trace.kernels.launch.tolist() == [0, -1]
    assert stack_of(trace, "orphan") == ()
    assert losses(trace) == {"device events without a launch event": 1}
    assert all(loss.remedy for loss in trace.source.losses)


def test_a_kernel_that_runs_before_all_launched_ones_was_enqueued_before_the_recording(kineto: Any, read: Any) -> None:
    kineto.op("aten::mm", 0, 40)
    kineto.kernel("early", 10, 5, 77)
    kineto.launched("gemm", 10, 60, 5, 1)
    assert losses(read()) == {"device events enqueued before the recording began, of no step": 1}


def test_kernels_are_sorted_by_time_and_keep_their_fields(kineto: Any, read: Any) -> None:
    kineto.op("aten::mm", 0, 40)
    kineto.launched("late", 3, 30.5, 1.25, 2, device=1, stream=9, **{"graph node id": 4})
    kineto.launched("early", 1, 20.125, 5, 1)
    kineto.call("cudaMemcpyAsync", 5, 3)
    kineto.event("gpu_memcpy", "Memcpy HtoD", 25, 2, 0, 7, device=0, stream=7, correlation=3, bytes=512)
    kineto.call("cudaMemsetAsync", 6, 4)
    kineto.event("gpu_memset", "Memset (Device)", 40, 2, 0, 7, device=0, stream=7, correlation=4, bytes=64)
    trace = read()
    kernels = trace.kernels
    assert kernel_names(trace) == ["early", "Memcpy HtoD", "late", "Memset (Device)"]
    assert kernels.start_ns.tolist() == [20125, 25000, 30500, 40000]
    assert kernels.end_ns.tolist() == [25125, 27000, 31750, 42000]
    assert kernels.kind.tolist() == [0, 1, 0, 2]
    assert kernels.device.tolist() == [0, 0, 1, 0]
    assert kernels.stream.tolist() == [7, 7, 9, 7]
    assert kernels.bytes.tolist() == [-1, 512, -1, 64]
    assert kernels.graph_node.tolist() == [-1, -1, 4, -1]
    assert kernels.collective.tolist() == [-1] * 4


def test_launches_hold_calls_that_started_work_or_waited_for_it_and_no_others(kineto: Any, read: Any) -> None:
    kineto.call("cudaStreamIsCapturing", 0, 1)
    kineto.launched("k", 2, 20, 5, 2)
    kineto.call("cudaDeviceSynchronize", 10, 3, dur=20)
    kineto.call("cudaMemcpy", 31, 4)
    kineto.event("gpu_memcpy", "Memcpy DtoH", 32, 2, 0, 7, device=0, stream=7, correlation=4)
    trace = read()
    names = [trace.names[name] for name in trace.launches.name.tolist()]
    assert names == ["cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpy"]
    assert trace.launches.is_sync.tolist() == [False, True, True]
    assert trace.launches.start_ns.tolist() == [2000, 10000, 31000]
    assert trace.launches.end_ns.tolist() == [3000, 30000, 32000]
    assert trace.kernels.launch.tolist() == [0, 2]


def test_kernels_of_a_graph_share_one_launch(kineto: Any, read: Any) -> None:
    kineto.call("cudaGraphLaunch", 5, 9)
    for number in range(3):
        kineto.kernel(f"node{number}", 10 + number, 1, 9, **{"graph node id": number})
    trace = read()
    assert trace.kernels.launch.tolist() == [0, 0, 0]
    assert trace.launches.is_graph.tolist() == [True]
    assert trace.kernels.graph_node.tolist() == [0, 1, 2]


def test_inputs_come_from_the_innermost_op_that_recorded_them(kineto: Any, read: Any) -> None:
    shapes = {"Input Dims": [[4, 2], []], "Input type": ["float", "Scalar"], "Input Strides": [[2, 1], []]}
    kineto.op("aten::mm", 0, 40, **{"External id": 1, **shapes, "Concrete Inputs": ["", "1"], "Ev Idx": 0})
    kineto.op("helper without shapes", 1, 38, **{"External id": 2, "Ev Idx": 1})
    kineto.op("aten::mm", 50, 40, **{"External id": 3, **shapes, "Concrete Inputs": ["", "1"], "Ev Idx": 2})
    kineto.launched("a", 10, 60, 5, 1)
    kineto.launched("b", 51, 70, 5, 2)
    kineto.launched("c", 99, 110, 5, 3)
    trace = read()
    assert trace.kernels.inputs.tolist() == [0, 0, -1]
    (inputs,) = trace.op_inputs
    assert inputs.dims == "[[4, 2], []]"
    assert inputs.types == '["float", "Scalar"]'
    assert inputs.strides == "[[2, 1], []]"
    assert inputs.concrete == '["", "1"]'


def test_a_backward_kernel_points_to_its_forward_op(kineto: Any, read: Any) -> None:
    forward = {"Sequence number": 11, "Fwd thread id": 0}
    backward = {"Sequence number": 11, "Fwd thread id": 1}
    kineto.op("aten::linear", 0, 40, **forward)
    kineto.op("aten::addmm", 5, 30, **forward)
    kineto.launched("gemm", 10, 15, 5, 1)
    kineto.op("autograd::engine::evaluate_function: AddmmBackward0", 100, 40, tid=102, **backward)
    kineto.op("AddmmBackward0", 101, 38, tid=102, **backward)
    kineto.op("aten::mm", 102, 20, tid=102)
    kineto.call("cudaLaunchKernel", 105, 2, tid=102)
    kineto.kernel("gemm backward", 130, 5, 2)
    trace = read()
    forward_stacks = [trace.op_stacks[stack] for stack in trace.kernels.forward_stack.tolist()]
    assert forward_stacks == [(), ("aten::linear", "aten::addmm")]
    assert stack_of(trace, "gemm backward")[-1] == "aten::mm"


def test_the_innermost_module_open_at_a_launch_is_kept(kineto: Any, read: Any) -> None:
    kineto.event("python_function", "nn.Module: Model_0", 0, 90, 100, 101, **{"Python id": 1})
    kineto.event("python_function", "model.py(3): forward", 1, 88, 100, 101, **{"Python id": 2})
    kineto.event("python_function", "nn.Module: Linear_1", 2, 40, 100, 101, **{"Python id": 3})
    kineto.launched("inner", 10, 60, 5, 1)
    kineto.launched("outer", 50, 70, 5, 2)
    kineto.launched("outside", 95, 100, 5, 3)
    trace = read()
    modules = [trace.modules[module] if module >= 0 else None for module in trace.kernels.module.tolist()]
    assert modules == ["Linear_1", "Model_0", None]


def test_ranges_hold_steps_and_annotations(kineto: Any, read: Any) -> None:
    kineto.annotation("ProfilerStep#1", 0, 50)
    kineto.annotation("execute_context_1(8)_generation_0(0)", 5, 40)
    kineto.op("aten::mm", 6, 10)
    kineto.event("gpu_user_annotation", "ProfilerStep#1", 20, 30, 0, 7)
    kineto.launched("k", 10, 60, 5, 1)
    trace = read()
    assert [trace.names[name] for name in trace.ranges.name.tolist()] == [
        "ProfilerStep#1",
        "execute_context_1(8)_generation_0(0)",
    ]
    assert trace.ranges.kind.tolist() == [RANGE_STEP, RANGE_USER]
    assert trace.ranges.end_ns.tolist() == [50000, 45000]
    assert len(trace.kernels) == 1, "a range on the device is no kernel"


def test_collectives_come_from_the_kernel_or_else_from_the_op_around_its_launch(kineto: Any, read: Any) -> None:
    facts = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 8, "dtype": "BFloat16"}
    kineto.launched("ncclDevKernel_AllReduce", 1, 20, 5, 1, **facts, **{"In msg nelems": 64, "Seq": 3})
    kineto.op("record_param_comms", 30, 10, **facts, **{"In msg nelems": 32})
    kineto.launched("ncclKernel_AllReduce", 31, 50, 5, 2)
    kineto.launched("copy beside it", 32, 60, 5, 3)
    trace = read()
    first, second = (trace.collectives[number] for number in trace.kernels.collective.tolist()[:2])
    assert (first.name, first.group, first.group_size, first.dtype) == ("allreduce", "0", 8, "BFloat16")
    assert (first.elements, first.sequence) == (64, 3)
    assert (second.elements, second.sequence) == (32, -1)
    assert trace.kernels.collective[2] == -1


def test_correlation_ids_that_two_processes_share_are_told_apart(kineto: Any, read: Any) -> None:
    for process, device in ((100, 0), (200, 1)):
        kineto.op(f"op of {process}", device * 5, 100, pid=process)
        for number in range(1, 5):
            kineto.call("cudaLaunchKernel", 10 * number + device, number, pid=process)
            kineto.kernel(f"kernel of {process}", 10 * number + device + 3, 2, number, device=device)
    kineto.call("cudaLaunchKernel", 60, 50, pid=100)
    kineto.kernel("kernel of 100", 62, 2, 50, device=0)
    trace = read()
    for name, stack in zip(kernel_names(trace), trace.kernels.op_stack.tolist(), strict=True):
        assert trace.op_stacks[stack] == (name.replace("kernel", "op"),)
    assert losses(trace) == {"device events whose correlation id several processes use; matched by time": 8}


def test_of_a_reused_correlation_id_the_call_before_the_kernel_is_taken(kineto: Any, read: Any) -> None:
    kineto.op("first", 0, 10)
    kineto.op("second", 100, 10)
    kineto.launched("a", 1, 20, 5, 7)
    kineto.launched("b", 101, 120, 5, 7)
    trace = read()
    assert stack_of(trace, "a") == ("first",)
    assert stack_of(trace, "b") == ("second",)


def test_an_event_recorded_twice_counts_once(kineto: Any, read: Any) -> None:
    kineto.launched("k", 1, 20, 5, 7)
    kineto.kernel("k", 20, 5, 7)
    trace = read()
    assert len(trace.kernels) == 1
    assert losses(trace) == {"device events recorded twice": 1}


@pytest.mark.parametrize("duration", [-5, 1e12, 1.8e19])
def test_impossible_durations_are_dropped_and_counted(kineto: Any, read: Any, duration: float) -> None:
    kineto.launched("good", 1, 20, 5, 7)
    kineto.launched("bad", 2, 30, duration, 8)
    trace = read()
    assert kernel_names(trace) == ["good"]
    assert sum(losses(trace).values()) == 1


def test_the_facts_of_the_run_come_with_the_trace(kineto: Any, read: Any) -> None:
    kineto.top |= {
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
        "addrfrac": '{"device": "cuda", "schema": 1}',
    }
    kineto.launched("k", 1, 20, 5, 7, device=1)
    source = read().source
    assert (source.rank, source.world_size) == (3, 8)
    assert source.device_names == ("B",)
    assert (source.path, source.format, source.device_kind) == ("trace.json", "kineto", "cuda")
    assert source.metadata["addrfrac"] == {"device": "cuda", "schema": 1}
    assert source.events == 2
