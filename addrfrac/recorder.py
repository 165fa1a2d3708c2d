"""Steps in, a trace file of them out, with all that is known of the measurement written into it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac import clock
from addrfrac.errors import AddrfracError
from addrfrac.records import Capture, Wall

if TYPE_CHECKING:
    import torch

SCHEMA = 1
TRACE, EAGER_TRACE = "trace.json.gz", "capture.json.gz"
PROFILER_WARMUP = 2
"""Steps in which the profiler already runs and nothing is kept."""
LEAD_IN = 1
"""Recorded steps before those that count: they fix where the device's timeline begins."""


def make_profiler(steps: int, device: torch.device, on_ready: Callable[[Any], None]) -> Any:
    """torch's profiler over a lead-in and `steps` steps; `on_ready` gets it when the last of them has ended."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    return profile(
        activities=activities,
        record_shapes=True,
        acc_events=True,  # one cycle is all there is; without this torch warns that cycles are not added up
        schedule=schedule(wait=0, warmup=PROFILER_WARMUP, active=LEAD_IN + steps, repeat=1),
        on_trace_ready=on_ready,
    )


def record(run: Callable[[], object], steps: int, device: torch.device, raw: Path) -> Path:
    """Profile a lead-in and `steps` steps into the file `raw`; returns it."""
    clock.synchronise(device)
    with make_profiler(steps, device, lambda profiler: profiler.export_chrome_trace(str(raw))) as profiler:
        for done in range(1, PROFILER_WARMUP + LEAD_IN + steps + 1):
            run()
            if done == PROFILER_WARMUP:  # work still queued here would be recorded without its launches
                clock.synchronise(device)
            profiler.step()
    return raw


def save_trace(raw: Path, path: Path, facts: Capture) -> None:
    """Put the facts into the profiler's JSON under 'addrfrac', compress it and rename it into place.

    At the front, so that a trace cut short still says what it is of. By text, because the profiler's own
    add_metadata_json takes nothing that becomes known after the last profiled step.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with raw.open("rb") as source, gzip.open(temporary, "wb", compresslevel=4) as target:
            head = source.read(64)
            opening = head.find(b"{")
            assert opening >= 0, "the profiler's trace does not open as a JSON object"
            target.write(b'{"addrfrac": ' + json.dumps(metadata(facts)).encode() + b"," + head[opening + 1 :])
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(path)
    except OSError as error:
        raise AddrfracError(f"cannot write {path}: {error.strerror}; choose another place with -o") from error
    finally:
        temporary.unlink(missing_ok=True)


def drop_step(raw: Path, name: str) -> None:
    """Take the range `name` out of a raw trace: a step that had begun and did not end."""
    content = json.loads(raw.read_text())
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("name") != name]
    raw.write_text(json.dumps(content))


def metadata(facts: Capture) -> dict[str, Any]:
    """The facts as they stand in a trace, with the raw samples of each clock in a list of its own."""
    wall = None if facts.wall is None else _wall_samples(facts.wall)
    return asdict(facts) | {"device": facts.environment.device_kind, "wall": wall}


def _wall_samples(wall: Wall) -> dict[str, Any]:
    clocks = {"device": wall.device, "host": wall.host, "graph": wall.graph}
    samples = {f"{name}_us": list(times.samples_us) for name, times in clocks.items() if times is not None}
    methods = {f"{name}_method": times.method for name, times in clocks.items() if times is not None}
    return samples | methods | {"graph_note": wall.graph_note}


def now() -> str:
    """The time as `created` has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
