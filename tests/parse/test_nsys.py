"""Exports made by the documented schema of Nsight Systems; no real one was at hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addrfrac.errors import AddrfracError, UnreadableTrace
from addrfrac.parse import grade, read_trace

PROCESS, THREAD = 4321, 4400
GLOBAL_PID = (1 << 56) | (PROCESS << 24)
GLOBAL_TID = GLOBAL_PID | THREAD
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER, name TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        " greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
        " demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,"
        " graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        " streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,"
        " copyKind INTEGER NOT NULL, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        " streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,"
        " globalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
}
STRINGS = [(1, "void gemm<float>(int)"), (2, "gemm"), (3, "cudaLaunchKernel_v7000"), (4, "cudaMemcpyAsync_v3020")]
STRINGS += [(5, "cudaMemsetAsync_v3020"), (6, "cudaStreamSynchronize_v3020"), (7, "my phase")]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A kernel, a copy and a set with their calls, under NVTX ranges that emit_nvtx and a user wrote."""
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        for table, columns in SCHEMA.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS)
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200')")
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 2600, 0, 1, NULL, 7, 11, ?, 1, 2, NULL, 0, NULL)",
            (GLOBAL_PID,),
        )
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (2700, 2800, 0, 1, 7, 12, ?, 4096, 1, NULL)", (GLOBAL_PID,)
        )
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (2900, 2950, 0, 1, 7, 13, ?, 0, 64)", (GLOBAL_PID,)
        )
        calls = [(1100, 1110, 11, 3), (1200, 1210, 12, 4), (1300, 1310, 13, 5), (1400, 3000, 14, 6)]
        database.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, {GLOBAL_TID}, ?, ?, 0, NULL)", calls
        )
        ranges = [
            (1000, 1500, 59, None, 7),
            (1050, 1150, 59, "aten::mm, op_id = 3, seq = 12, sizes = [[4, 8], [8, 2]]", None),
            (1060, None, 34, "a mark", None),
        ]
        database.executemany(f"INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?, {GLOBAL_TID}, ?, 0)", ranges)
    return path


def change(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    return path


def test_an_export_becomes_the_same_columns_as_a_kineto_trace(export: Path) -> None:
    trace = read_trace(export)
    kernels = trace.kernels
    assert [trace.names[name] for name in kernels.name.tolist()] == [
        "void gemm<float>(int)",
        "Memcpy HtoD",
        "Memset (Device)",
    ]
    assert kernels.kind.tolist() == [0, 1, 2]
    assert (kernels.end_ns - kernels.start_ns).tolist() == [600, 100, 50]
    assert kernels.bytes.tolist() == [-1, 4096, 64]
    assert kernels.stream.tolist() == [7, 7, 7]
    assert [trace.op_stacks[stack] for stack in kernels.op_stack.tolist()] == [
        ("my phase", "aten::mm"),
        ("my phase",),
        ("my phase",),
    ]
    assert trace.op_inputs[kernels.inputs[0]].dims == "[[4, 8], [8, 2]]"
    launches = trace.launches
    assert [trace.names[name] for name in launches.name.tolist()] == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaStreamSynchronize",
    ]
    assert launches.is_sync.tolist() == [False, False, False, True]
    assert set(launches.process.tolist()) == {PROCESS}
    assert set(launches.thread.tolist()) == {THREAD}
    assert [trace.names[name] for name in trace.ranges.name.tolist()] == ["my phase"]
    assert trace.source.format == "nsys"
    assert trace.source.device_names == ("NVIDIA H200",)
    assert any("schema-tested" in loss.what for loss in trace.source.losses)


def test_calls_of_another_process_with_the_same_correlation_id_are_not_taken(export: Path) -> None:
    other = (1 << 56) | (999 << 24) | 5
    change(export, f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1500, 1510, 0, {other}, 11, 3, 0, NULL)")
    trace = read_trace(export)
    assert trace.launches.process[trace.kernels.launch[0]] == PROCESS


def test_a_version_without_some_columns_can_be_read(export: Path) -> None:
    change(
        export,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
    )
    assert len(read_trace(export).kernels) == 3


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"])
def test_a_needed_table_that_is_not_there_is_named_in_one_line(export: Path, table: str) -> None:
    change(export, f"DROP TABLE {table}")
    with pytest.raises(UnreadableTrace, match=f"no table {table}.*nsys"):
        read_trace(export)


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"])
def test_a_table_that_only_adds_detail_is_a_loss_with_its_remedy(export: Path, table: str) -> None:
    trace = read_trace(change(export, f"DROP TABLE {table}"))
    assert len(trace.kernels) == 3
    (loss,) = (loss for loss in trace.source.losses if loss.what == f"no table {table}")
    assert "nsys profile --trace" in loss.remedy
    assert grade(trace).letter in "CD"


def test_an_export_without_device_events_is_refused(export: Path) -> None:
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    change(export, *(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}" for table in tables))
    with pytest.raises(UnreadableTrace, match="no device event"):
        read_trace(export)


def test_a_damaged_database_is_refused_in_one_line(export: Path) -> None:
    export.write_bytes(export.read_bytes()[:2000])
    with pytest.raises(UnreadableTrace, match="damaged"):
        read_trace(export)


@given(damage=st.lists(st.tuples(st.integers(100, 1 << 20), st.integers(0, 255)), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_changed_anywhere_raise_nothing_but_one_line(export: Path, damage: list[tuple[int, int]]) -> None:
    content = bytearray(export.read_bytes())
    for place, value in damage:
        content[100 + place % (len(content) - 100)] = value
    damaged = export.with_name("damaged.sqlite")
    damaged.write_bytes(content)
    try:
        read_trace(damaged)
    except AddrfracError as error:
        refusal = str(error)
    else:
        return
    assert "\n" not in refusal


def test_a_report_that_was_not_exported_is_told_how(tmp_path: Path) -> None:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"QDSTRM")
    with pytest.raises(UnreadableTrace, match="nsys export"):
        read_trace(path)
