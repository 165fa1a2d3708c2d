"""An Nsight Systems .sqlite export in, a Trace out; written by the documented schema, for want of real exports."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from addrfrac.errors import UnreadableTrace
from addrfrac.parse import join
from addrfrac.parse.columns import FIELDS, FRAME_ANNOTATION, FRAME_OP, RawTables
from addrfrac.records import KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET, Loss, Trace, TraceSource

KERNELS, COPIES, SETS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS, RANGES, STRINGS, GPUS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds", "TARGET_INFO_GPU"
EXPORT = "profile with nsys profile --trace=cuda,nvtx and export with nsys export --type sqlite"
RANGE_TYPES = (59, 60)
"""NvtxPushPopRange and NvtxStartEndRange."""
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
"""CUpti_ActivityMemcpyKind."""
VERSION_SUFFIX = re.compile(r"_v\d+$")
NVTX_OP = re.compile(
    r"^(?P<name>.+?)(?:, op_id = \d+)?(?:, seq = \d+)?(?:, op_id = \d+)?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
"""What torch.autograd.profiler.emit_nvtx writes into a range's name."""
ID_BITS, ID_MASK = 24, (1 << 24) - 1
"""globalTid = ... | process << 24 | thread; globalPid has the thread's part empty."""


def read_nsys(path: Path) -> Trace:
    """The trace of one export."""
    try:
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise UnreadableTrace(f"{path.name} cannot be opened as SQLite ({error}); {EXPORT}") from error
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    try:
        return _trace(path, database)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from within sqlite3's own messages
        reason = str(error).replace("\n", " ")
        raise UnreadableTrace(f"{path.name} is a damaged or unknown SQLite export ({reason}); {EXPORT}") from error
    finally:
        database.close()


def _trace(path: Path, database: sqlite3.Connection) -> Trace:
    columns = _schema(database)
    missing = [table for table in (KERNELS, STRINGS) if table not in columns]
    if missing:
        raise UnreadableTrace(f"{path.name} has no table {' and no '.join(missing)}; {EXPORT}")
    strings = {number: str(text) for number, text in database.execute(f"SELECT id, value FROM {STRINGS}")}
    tables = RawTables()
    _add_device(tables, database, columns, strings)
    losses = [
        Loss(
            what="Nsight Systems support is schema-tested: tried on files made by the documented schema",
            count=1,
            remedy="",
        )
    ]
    for table, add, remedy in (
        (CALLS, _add_calls, "add cuda to nsys profile --trace"),
        (RANGES, _add_ranges, "add nvtx to nsys profile --trace and run under torch.autograd.profiler.emit_nvtx"),
    ):
        if table in columns:
            add(tables, database, columns[table], strings)
        else:
            losses.append(Loss(what=f"no table {table}", count=1, remedy=remedy))
    joined = join.join(tables)
    if not len(joined.kernels):
        raise UnreadableTrace(f"{path.name} holds no device event; {EXPORT}")
    return Trace(
        source=TraceSource(
            path=path.name,
            format="nsys",
            size_bytes=path.stat().st_size,
            events=tables.events,
            device_kind="cuda",
            device_names=_device_names(database, columns, set(joined.kernels.device.tolist())),
            rank=None,
            world_size=None,
            metadata={},
            losses=(*losses, *joined.losses),
        ),
        names=joined.names,
        op_stacks=joined.op_stacks,
        op_inputs=joined.op_inputs,
        modules=joined.modules,
        collectives=joined.collectives,
        kernels=joined.kernels,
        launches=joined.launches,
        ranges=joined.ranges,
    )


def _schema(database: sqlite3.Connection) -> dict[str, set[str]]:
    """Table -> its columns."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')} for table in tables}


def _rows(database: sqlite3.Connection, table: str, present: set[str], wanted: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows with the wanted columns in order, None for a column that this version of the schema lacks."""
    selected = ", ".join(f'"{column}"' if column in present else "NULL" for column in wanted)
    return database.execute(f"SELECT {selected} FROM {table}").fetchall()


def _add_device(
    tables: RawTables, database: sqlite3.Connection, columns: dict[str, set[str]], strings: dict[int, str]
) -> None:
    """Kernels, copies and sets."""
    shared = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "bytes", "graphNodeId")
    for table, kind, own in (
        (KERNELS, KIND_KERNEL, ("demangledName", "shortName")),
        (COPIES, KIND_MEMCPY, ("copyKind", "copyKind")),
        (SETS, KIND_MEMSET, ("bytes", "bytes")),
    ):
        if table not in columns:
            continue
        rows = _rows(database, table, columns[table], (*shared, *own))
        names = [_device_name(kind, first if first is not None else second, strings) for *_, first, second in rows]
        numbers = _numbers([row[: len(shared)] for row in rows], len(shared))
        start, end, process, device, stream, correlation, size, node = numbers
        block = {
            "name": np.array(tables.names.ids_of(names), np.int64),
            "kind": np.full(len(rows), kind),
            "start": start,
            "duration": end - start,
            "process": np.where(process >= 0, (process >> ID_BITS) & ID_MASK, -1),
            "device": device,
            "stream": stream,
            "correlation": correlation,
            "bytes": size,
            "node": node,
            "collective": np.full(len(rows), -1),
        }
        tables.add("device", 0, dict(block))
        tables.events += len(rows)


def _device_name(kind: int, value: int | None, strings: dict[int, str]) -> str:
    """Names as Kineto writes them."""
    if kind == KIND_KERNEL:
        return strings.get(value, "unnamed kernel") if value is not None else "unnamed kernel"
    return f"Memcpy {COPY_KINDS.get(value or 0, 'unknown')}" if kind == KIND_MEMCPY else "Memset (Device)"


def _add_calls(tables: RawTables, database: sqlite3.Connection, present: set[str], strings: dict[int, str]) -> None:
    """Runtime and driver calls, their version suffix (cudaLaunchKernel_v7000) taken off."""
    rows = _rows(database, CALLS, present, ("start", "end", "globalTid", "correlationId", "nameId"))
    start, end, thread, correlation, _ = _numbers(rows, 5)
    names = [VERSION_SUFFIX.sub("", strings.get(row[4], "unnamed call")) for row in rows]
    block = {
        "name": np.array(tables.names.ids_of(names), np.int64),
        "start": start,
        "duration": end - start,
        "process": (thread >> ID_BITS) & ID_MASK,
        "thread": thread & ID_MASK,
        "correlation": correlation,
    }
    tables.add("calls", 0, dict(block))
    tables.events += len(rows)


def _add_ranges(tables: RawTables, database: sqlite3.Connection, present: set[str], strings: dict[int, str]) -> None:
    """NVTX ranges: those that name an operator as ops, all others as annotations."""
    rows = _rows(database, RANGES, present, ("start", "end", "globalTid", "eventType", "text", "textId"))
    rows = [row for row in rows if row[1] is not None and (row[3] is None or row[3] in RANGE_TYPES)]
    start, end, thread = _numbers([row[:3] for row in rows], 3)
    names, inputs, kinds = [], [], []
    for row in rows:
        text = str(row[4]) if row[4] is not None else strings.get(row[5], "")
        found = NVTX_OP.match(text)
        name, sizes = (found["name"], found["sizes"]) if found else (text, None)
        names.append(name)
        inputs.append(tables.inputs.id_of((sizes.encode(), b"", b"", b"")) if sizes and _is_json(sizes) else -1)
        kinds.append(FRAME_OP if "::" in name or name != text else FRAME_ANNOTATION)
    block = {
        "name": np.array(tables.names.ids_of(names), np.int64),
        "start": start,
        "duration": end - start,
        "process": (thread >> ID_BITS) & ID_MASK,
        "thread": thread & ID_MASK,
        "sequence": np.full(len(rows), -1),
        "forward": np.zeros(len(rows), np.int64),
        "inputs": np.array(inputs, np.int64),
        "collective": np.full(len(rows), -1),
        "kind": np.array(kinds, np.int64),
    }
    assert set(block) == set(FIELDS["frames"])
    tables.add("frames", 0, dict(block))
    tables.events += len(rows)


def _is_json(text: str) -> bool:
    """Whether the sizes in a range's name came through whole."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _numbers(rows: Sequence[Sequence[Any]], width: int) -> Any:
    """Columns of whole numbers, -1 where the value is missing or none."""
    clean = [[value if isinstance(value, int) and abs(value) < 1 << 62 else -1 for value in row] for row in rows]
    return np.array(clean, np.int64).reshape(len(rows), width).T


def _device_names(database: sqlite3.Connection, columns: dict[str, set[str]], used: set[int]) -> tuple[str, ...]:
    """Names of the GPUs that ran something."""
    if not {"id", "name"} <= columns.get(GPUS, set()):
        return ()
    names = {number: name for number, name in database.execute(f"SELECT id, name FROM {GPUS}") if name}
    return tuple(dict.fromkeys(name for number, name in names.items() if number in used or not used & set(names)))
