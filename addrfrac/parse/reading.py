"""A Kineto file in, a Trace out: reads its pieces, joins them and says what was lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from addrfrac.errors import UnreadableTrace
from addrfrac.parse import cpu, inflate, join, kineto, scan, workers
from addrfrac.parse.columns import RawTables, merged
from addrfrac.records import Loss, Trace, TraceSource

Timings = dict[str, float]


@dataclass(slots=True, kw_only=True)
class Content:
    """All that a file held, not yet joined."""

    tables: RawTables
    metadata: dict[str, Any]
    whole: bool
    """False where the file ends before its events do."""
    losses: list[Loss] = field(default_factory=list)


@contextmanager
def timed(timings: Timings | None, stage: str) -> Iterator[None]:
    """Adds the seconds spent inside to a stage."""
    start = time.perf_counter()
    yield
    if timings is not None:
        timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - start


def read_kineto(path: Path, timings: Timings | None = None) -> Trace:
    """The trace of one .json or .json.gz file."""
    with timed(timings, "decode"):
        content = _content(path)
    tables, metadata = content.tables, content.metadata
    own = own_metadata(metadata)
    on_cpu = own.get("device") == "cpu"
    _require_something(path.name, content, on_cpu)
    with timed(timings, "join"):
        joined = cpu.join(tables) if on_cpu else join.join(tables)
    if not len(joined.kernels):
        raise UnreadableTrace(f"{path.name} holds no usable device event; record the trace again")
    if own:
        metadata["addrfrac"] = own
    rank, world_size = _ranks(metadata)
    kind = "cpu" if on_cpu else device_kind(metadata, joined)
    source = TraceSource(
        path=path.name,
        format="kineto",
        size_bytes=path.stat().st_size,
        events=tables.events + tables.unreadable,
        device_kind=kind,
        device_names=() if on_cpu else device_names(metadata, set(joined.kernels.device.tolist())),
        rank=rank,
        world_size=world_size,
        metadata=metadata,
        losses=(*_losses(content, path), *joined.losses),
    )
    return Trace(
        source=source,
        names=joined.names,
        op_stacks=joined.op_stacks,
        op_inputs=joined.op_inputs,
        modules=joined.modules,
        collectives=joined.collectives,
        kernels=joined.kernels,
        launches=joined.launches,
        ranges=joined.ranges,
    )


def _content(path: Path) -> Content:
    """Every piece of the file decoded into tables."""
    with path.open("rb") as file:
        if inflate.is_gzip(file):
            streamed = workers.read_stream(path)
            fields = {**streamed.events.head, **streamed.ending.fields}
            return Content(tables=streamed.tables, metadata=fields, whole=streamed.ending.closed)
        size = path.stat().st_size
        events, _ = scan.located(path.name, iter(lambda: file.read(scan.BLOCK_BYTES), b""))
        cuts = scan.cut_offsets(file, events, size)
        tables = workers.read_pieces(path, cuts)
        ending = scan.split_ending(scan.read_between(file, cuts[-2], cuts[-1]), events.bare)
    last = kineto.Reader()
    last.add(b"[" + ending.events + b"]", scan.LAST_PIECE)
    fields = {**events.head, **ending.fields}
    return Content(tables=merged([tables, last.tables]), metadata=fields, whole=ending.closed)


def _losses(content: Content, path: Path) -> list[Loss]:
    """What the file could not give, before the join."""
    tables, losses = content.tables, content.losses
    if not content.whole:
        read = f"the file breaks off; what follows its first {tables.events} whole events is missing"
        losses.append(Loss(what=read, count=1, remedy="copy or export the trace again"))
    broken = tables.unreadable - (not content.whole and tables.unreadable > 0)
    if broken:
        losses.append(Loss(what="events that are not JSON", count=broken, remedy="export the trace again"))
    if tables.undated:
        losses.append(Loss(what="events without a usable time stamp or duration", count=tables.undated, remedy=""))
    for category, count in sorted(tables.left_out.items()):
        losses.append(Loss(what=f"{category} events (an accelerator that is not read)", count=count, remedy=""))
    return losses


def _require_something(name: str, content: Content, on_cpu: bool) -> None:
    """One clear line where there is nothing to work on."""
    tables = content.tables
    foreign = bool(tables.left_out) and not tables.has("calls")
    if (tables.has("device") and not foreign) or (on_cpu and tables.has("frames")):
        return
    if not tables.events:
        raise UnreadableTrace(f"{name} holds no whole event; record or copy the trace again")
    if tables.left_out:
        kinds = ", ".join(sorted(tables.left_out))
        raise UnreadableTrace(
            f"{name} holds only events of accelerators that are not read ({kinds}); record on CUDA or ROCm"
        )
    if tables.has("frames") or tables.has("calls"):
        raise UnreadableTrace(
            f"{name} holds host events but no device events; record with ProfilerActivity.CUDA in the activities"
        )
    raise UnreadableTrace(
        f"{name} is not a torch.profiler trace (another tool's Chrome trace, JAX's for one); record with torch.profiler"
    )


def own_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """What addrfrac's own recorder wrote into the trace; empty for all other traces."""
    own = metadata.get("addrfrac")
    if isinstance(own, str):
        try:
            own = json.loads(own)
        except ValueError:
            return {}
    return own if isinstance(own, dict) else {}


def _ranks(metadata: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size of a distributed run."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    rank, world_size = info.get("rank"), info.get("world_size")
    return (rank if isinstance(rank, int) else None), (world_size if isinstance(world_size, int) else None)


def device_kind(metadata: dict[str, Any], joined: join.Joined) -> str:
    """'hip' where the recorder or the runtime calls say so, else 'cuda'."""
    if any(key in metadata for key in ("hip_runtime_version", "roctracer_version", "hip_driver_version")):
        return "hip"
    calls = [joined.names[name] for name in set(joined.launches.name.tolist())]
    return "hip" if calls and all(call.startswith("hip") for call in calls) else "cuda"


def device_names(metadata: dict[str, Any], used: set[int]) -> tuple[str, ...]:
    """Names of the devices that ran something, each once; of all devices where the numbers do not match."""
    properties = metadata.get("deviceProperties")
    if not isinstance(properties, list):
        return ()
    devices = [device for device in properties if isinstance(device, dict) and device.get("name")]
    mine = [device for device in devices if device.get("id") in used]
    return tuple(dict.fromkeys(str(device["name"]) for device in mine or devices))
