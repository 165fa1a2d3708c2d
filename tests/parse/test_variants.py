"""Layouts found in the wild, each as a small trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from addrfrac.errors import UnreadableTrace
from addrfrac.parse import read_trace
from addrfrac.records import Trace


def total_ns(trace: Trace) -> int:
    return int((trace.kernels.end_ns - trace.kernels.start_ns).sum())


@pytest.fixture
def small(kineto: Any) -> Any:
    """Two kernels under an op, 12.5 us of device time."""
    kineto.top |= {"traceName": "x.json"}
    kineto.op("aten::mm", 0, 40, **{"Input Dims": [[2, 2]], "Input type": ["float"]})
    kineto.launched("gemm", 1, 20.25, 5, 1)
    kineto.launched("gemm", 2, 30.5, 7.5, 2)
    return kineto


def assert_is_small(trace: Trace) -> None:
    assert total_ns(trace) == 12_500
    assert trace.kernels.start_ns.tolist() == [20250, 30500]
    assert [trace.op_stacks[stack] for stack in trace.kernels.op_stack.tolist()] == [("aten::mm",)] * 2
    assert {trace.op_inputs[inputs].dims for inputs in trace.kernels.inputs.tolist()} == {"[[2, 2]]"}


LAYOUTS: dict[str, dict[str, Any]] = {
    "on one line": {},
    "without spaces": {"separators": (",", ":")},
    "indented": {"indent": 2},
    "with tabs": {"indent": "\t"},
    "with sorted keys": {"sort_keys": True},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_any_layout_of_the_same_json_reads_the_same(small: Any, tmp_path: Path, layout: str, suffix: str) -> None:
    trace = read_trace(small.write(tmp_path / f"trace.{suffix}", **LAYOUTS[layout]))
    assert_is_small(trace)
    assert trace.source.losses == ()
    assert trace.source.metadata == small.top


def test_top_level_fields_may_follow_the_events(small: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": small.events, "distributedInfo": {"rank": 1, "world_size": 2}}))
    trace = read_trace(path)
    assert_is_small(trace)
    assert (trace.source.rank, trace.source.world_size) == (1, 2)


def test_the_file_may_be_the_bare_list_of_events(small: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(small.events))
    trace = read_trace(path)
    assert_is_small(trace)
    assert trace.source.losses == ()


def test_a_bare_list_may_lack_its_closing_bracket(small: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(small.events)[:-1])
    assert_is_small(read_trace(path))


def test_old_category_names_are_understood(small: Any, tmp_path: Path) -> None:
    old = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    for event in small.events:
        event["cat"] = old[event["cat"]]
    assert_is_small(read_trace(small.write(tmp_path / "trace.json")))


def test_numbers_may_stand_in_quotes(small: Any, tmp_path: Path) -> None:
    for event in small.events:
        event["ts"], event["dur"] = str(event["ts"]), str(event["dur"])
        if "correlation" in event["args"]:
            event["args"]["correlation"] = str(event["args"]["correlation"])
    assert_is_small(read_trace(small.write(tmp_path / "trace.json")))


def test_processes_and_threads_may_be_names(small: Any, tmp_path: Path) -> None:
    for event in small.events:
        if event["cat"] != "kernel":
            event["pid"], event["tid"] = "python 7", "main"
    assert_is_small(read_trace(small.write(tmp_path / "trace.json")))


def test_device_and_stream_may_stand_only_in_pid_and_tid(small: Any, tmp_path: Path) -> None:
    for event in small.events:
        if event["cat"] == "kernel":
            event["pid"], event["tid"] = 3, "stream 9"
            del event["args"]["device"], event["args"]["stream"]
    kernels = read_trace(small.write(tmp_path / "trace.json")).kernels
    assert kernels.device.tolist() == [3, 3]
    assert len(set(kernels.stream.tolist())) == 1


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "nan", "inf", "-nan"])
def test_numbers_that_json_does_not_know_cost_no_event(small: Any, tmp_path: Path, literal: str) -> None:
    small.events[2]["args"]["est. achieved occupancy %"] = "PLACE"
    path = tmp_path / "trace.json"
    path.write_text(small.text().replace('"PLACE"', literal))
    trace = read_trace(path)
    assert_is_small(trace)
    assert trace.source.losses == ()


@pytest.mark.parametrize("raw", [r"bad \x escape", r"C:\users", "tab\tinside", "bell\x07", "\\u12"])
def test_bad_escapes_and_control_characters_cost_no_event(small: Any, tmp_path: Path, raw: str) -> None:
    small.events[2]["args"]["comment"] = "PLACE"
    path = tmp_path / "trace.json"
    path.write_text(small.text().replace("PLACE", raw))
    trace = read_trace(path)
    assert_is_small(trace)
    assert trace.source.losses == ()


def test_bytes_that_are_no_utf8_cost_no_event(small: Any, tmp_path: Path) -> None:
    small.events[2]["args"]["comment"] = "PLACE"
    path = tmp_path / "trace.json"
    path.write_bytes(small.text().encode().replace(b"PLACE", b"\xff\xfe"))
    assert_is_small(read_trace(path))


def test_long_stamps_keep_their_nanoseconds(kineto: Any, tmp_path: Path) -> None:
    kineto.launched("a", 1, 20, 5, 1)
    text = (
        kineto.text().replace('"ts": 20', '"ts": 1712195495505582.988').replace('"ts": 1,', '"ts": 1712195495505580.1,')
    )
    path = tmp_path / "trace.json"
    path.write_text(text)
    trace = read_trace(path)
    assert trace.kernels.start_ns.tolist() == [1712195495505582988]
    assert trace.launches.start_ns.tolist() == [1712195495505580100]


def test_a_lone_long_stamp_that_float64_rounds_to_a_whole_number_keeps_its_nanoseconds(
    kineto: Any, tmp_path: Path
) -> None:
    for number in range(200):
        kineto.launched("early", 1712195495500000 + number, 1712195495505000 + number, 0.5, number + 1)
    kineto.kernel("late", "PLACE", 5, 0)
    path = tmp_path / "trace.json"
    path.write_text(kineto.text().replace('"PLACE"', "1712195495505582.988"))
    assert read_trace(path).kernels.start_ns.tolist()[-1] == 1712195495505582988


def test_rocm_traces_are_called_hip(small: Any, tmp_path: Path) -> None:
    for event in small.events:
        event["name"] = event["name"].replace("cudaLaunchKernel", "hipLaunchKernel")
    assert read_trace(small.write(tmp_path / "trace.json")).source.device_kind == "hip"


def test_hip_graph_launches_and_waits_are_known(kineto: Any, tmp_path: Path) -> None:
    kineto.call("hipGraphLaunch", 5, 9)
    kineto.kernel("node", 10, 1, 9)
    kineto.call("hipEventSynchronize", 12, 10)
    launches = read_trace(kineto.write(tmp_path / "trace.json")).launches
    assert launches.is_graph.tolist() == [True, False]
    assert launches.is_sync.tolist() == [False, True]


def test_events_of_other_accelerators_are_named_and_left_out(small: Any, tmp_path: Path) -> None:
    small.event("mtia_ccp_events", "something", 1, 2, 0, 0)
    trace = read_trace(small.write(tmp_path / "trace.json"))
    assert_is_small(trace)
    assert [(loss.what.split()[0], loss.count) for loss in trace.source.losses] == [("mtia_ccp_events", 1)]


def test_a_gpu_only_trace_can_be_read(kineto: Any, tmp_path: Path) -> None:
    kineto.kernel("a", 10, 5, 1)
    trace = read_trace(kineto.write(tmp_path / "trace.json"))
    assert trace.kernels.launch.tolist() == [-1]
    assert trace.op_stacks == ((),)


REFUSED: dict[str, tuple[str, str]] = {
    "empty": ("", "is empty"),
    "blank": ("  \n", "is empty"),
    "text": ("hello", "is not JSON"),
    "other JSON": ('{"a": 1}', "no traceEvents"),
    "no events": ('{"traceEvents": []}', "no whole event"),
    "cut before the first event ends": ('{"traceEvents": [{"ph": "X", "cat": "ker', "no whole event"),
    "only ops": ('{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}', "CUDA"),
    "JAX": (
        '{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},'
        '{"ph":"X","pid":1,"tid":2,"ts":1.0,"dur":2.0,"name":"fusion.3","args":{"hlo_op":"fusion.3"}}]}',
        "not a torch.profiler trace",
    ),
    "XPU": (
        '{"traceEvents": [{"ph":"X","cat":"xpu_runtime","name":"urEnqueueKernelLaunch","pid":1,"tid":1,"ts":1,"dur":1},'
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":1,"ts":1,"dur":1}]}',
        "xpu_runtime",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_usable_trace_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, expected = REFUSED[case]
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(UnreadableTrace, match=expected) as refusal:
        read_trace(path)
    assert "\n" not in str(refusal.value)
    assert "trace.json" in str(refusal.value)


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match="cannot be read"):
        read_trace(tmp_path / "nothing.json")


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_truncated_file_is_used_as_far_as_it_is_whole(small: Any, tmp_path: Path, suffix: str) -> None:
    text = small.text().encode()
    whole = text.rindex(b"}, {")
    for end in (whole + 1, whole + 30, len(text) - 60):
        path = tmp_path / f"trace.{suffix}"
        path.write_bytes(text[:end] if suffix == "json" else gzip.compress(text[:end]))
        trace = read_trace(path)
        assert total_ns(trace) == 5_000
        assert [loss.what.split(";")[0] for loss in trace.source.losses] == ["the file breaks off"]


def test_a_truncated_gzip_file_is_used_as_far_as_it_is_whole(kineto: Any, tmp_path: Path) -> None:
    for number in range(3000):
        kineto.launched(f"kernel {number * 7919 % 3001}", number * 10, number * 10 + 5, 1, number + 1)
    packed = gzip.compress(kineto.text().encode())
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    trace = read_trace(path)
    assert 0 < len(trace.kernels) < 3000
    assert any("breaks off" in loss.what for loss in trace.source.losses)


def test_several_gzip_members_in_a_row_are_one_file(small: Any, tmp_path: Path) -> None:
    text = small.text().encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text[:300]) + gzip.compress(text[300:]))
    assert_is_small(read_trace(path))


def test_timings_name_the_stages(small: Any, tmp_path: Path) -> None:
    timings: dict[str, float] = {}
    read_trace(small.write(tmp_path / "trace.json"), timings=timings)
    assert set(timings) == {"decode", "join"}
    assert all(seconds >= 0 for seconds in timings.values())
