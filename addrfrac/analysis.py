"""A trace file in, a Run out: parse, classify, choose the window, attribute, project."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from addrfrac import __version__, stats
from addrfrac.attribute import attribute
from addrfrac.classify import BUILT_IN, POLICIES, RuleSet, classify
from addrfrac.errors import AddrfracError
from addrfrac.parse import grade, read_ranks, read_trace
from addrfrac.project import project
from addrfrac.records import Configuration, Environment, Extrapolation, Policy, Run, Times, Trace, Wall
from addrfrac.store import SCHEMA
from addrfrac.window import find_window

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to look at a trace."""

    policy: str = "paper"
    policies: Mapping[str, Policy] = field(default_factory=lambda: POLICIES)
    rules: RuleSet = BUILT_IN
    steps: str | None = None
    annotation: str | None = None
    wall_ms: float | None = None
    """The user's own unprofiled step time, where the trace has none."""
    capture: Path | None = None
    """An eager or capture trace by whose node order the kernels of a graph replay are labelled."""
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a live measurement knows beyond its trace."""

    title: str
    configuration: Configuration
    environment: Environment
    wall: Wall
    samples_per_step: float | None
    sample_unit: str
    parameters: int | None
    peak_memory_bytes: int | None
    extra: dict[str, Any]
    notes: tuple[str, ...] = ()
    extrapolation: Extrapolation | None = None


def analyze(path: Path, options: Options, timings: dict[str, float] | None = None) -> tuple[Run, ...]:
    """One run for a trace file, one a rank for a folder of them.

    Raises AddrfracError where the trace cannot be read or the options do not fit it.
    """
    clock = {} if timings is None else timings
    if not path.exists():
        raise AddrfracError(f"no such trace: {path}; give a .json or .json.gz file, or a folder of ranks")
    traces = read_ranks(path, timings=clock) if path.is_dir() else (read_trace(path, timings=clock),)
    return tuple(build_run(trace, options, kind="analyze", timings=clock) for trace in traces)


def build_run(
    trace: Trace,
    options: Options,
    *,
    kind: str,
    measured: Measured | None = None,
    timings: dict[str, float] | None = None,
) -> Run:
    """The record of everything that a trace and its measurement say."""
    clock = {} if timings is None else timings
    capture = read_trace(options.capture) if options.capture is not None else None
    labels = _timed(clock, "classify", lambda: classify(trace, options.rules, capture=capture))
    window = _timed(clock, "window", lambda: find_window(trace, steps=options.steps, annotation=options.annotation))
    wall = measured.wall if measured is not None else _wall(trace, options.wall_ms)
    found = _timed(clock, "attribute", lambda: attribute(trace, labels, window, options.policies, options.policy, wall))
    return Run(
        schema=SCHEMA,
        kind=kind,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        command=options.command,
        title=measured.title if measured is not None else trace.source.path,
        configuration=measured.configuration if measured is not None else None,
        environment=measured.environment if measured is not None else None,
        source=trace.source,
        grade=grade(trace),
        window=window.how,
        wall=wall,
        samples_per_step=measured.samples_per_step if measured is not None else None,
        sample_unit=measured.sample_unit if measured is not None else "",
        accounts=found.accounts,
        addressable=found.addressable,
        kernels=found.kernels,
        projection=_timed(clock, "project", lambda: project(found.accounts, found.kernels)),
        parameters=measured.parameters if measured is not None else None,
        peak_memory_bytes=measured.peak_memory_bytes if measured is not None else None,
        extrapolation=measured.extrapolation if measured is not None else None,
        extra=dict(measured.extra) if measured is not None else {},
        notes=(*(measured.notes if measured is not None else ()), *found.notes),
    )


def _timed(clock: dict[str, float], name: str, stage: Callable[[], T]) -> T:
    began = time.perf_counter()
    result = stage()
    clock[name] = clock.get(name, 0.0) + time.perf_counter() - began
    return result


def _wall(trace: Trace, wall_ms: float | None) -> Wall | None:
    """The wall that the user gave, else the one that our own capture wrote into the trace."""
    if wall_ms is not None:
        if wall_ms <= 0:
            raise AddrfracError(f"--wall-ms {wall_ms:g} is not positive; give the unprofiled step time in milliseconds")
        us = wall_ms * 1e3
        host = Times(samples_us=(), median_us=us, low_us=us, high_us=us, method="given by the user with --wall-ms")
        return Wall(device=None, host=host, graph=None, graph_note="not measured")
    ours = trace.source.metadata.get("addrfrac")
    saved = ours.get("wall") if isinstance(ours, dict) else None
    if not isinstance(saved, dict) or not saved.get("host_us"):
        return None
    return Wall(
        device=_saved_times(saved.get("device_us"), "device events, saved in the trace"),
        host=stats.times(saved["host_us"], "host clock, saved in the trace"),
        graph=_saved_times(saved.get("graph_us"), "CUDA graph replays, saved in the trace"),
        graph_note=str(saved.get("graph_note", "")),
    )


def _saved_times(samples_us: Sequence[float] | None, method: str) -> Times | None:
    return stats.times(samples_us, method) if samples_us else None
