"""A trace file in, a Run out: parse, classify, choose the window, attribute, project."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from addrfrac import __version__, stats, units
from addrfrac.attribute import Attribution, attribute
from addrfrac.classify import BUILT_IN, POLICIES, RuleSet, bound, certainty_shares, classify, with_capture
from addrfrac.collectives import RankPart
from addrfrac.dataflow import from_facts
from addrfrac.errors import AddrfracError
from addrfrac.floors import Known, floors
from addrfrac.parse import grade, read_ranks, read_trace
from addrfrac.parse.captured import read_capture
from addrfrac.project import project
from addrfrac.ranks import rank_table
from addrfrac.records import (
    Bound,
    Capture,
    Certainty,
    DeviceModel,
    Floors,
    Labels,
    Policy,
    Run,
    Serving,
    Times,
    Trace,
    TraceSource,
    Wall,
    Window,
)
from addrfrac.serving import Cut, cut, serve
from addrfrac.store import SCHEMA
from addrfrac.weights import load_weights
from addrfrac.window import find_window

T = TypeVar("T")

DATAFLOW = "dataflow"
"""Key of the step's data flow among a capture's extra facts; it goes into the floors and not into the run."""

MOST_UNKNOWN_UNSAID = 0.005
"""Share of busy time; above it the report says what is unknown and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to look at a trace."""

    policy: str = "paper"
    policies: Mapping[str, Policy] = field(default_factory=lambda: POLICIES)
    rules: RuleSet = BUILT_IN
    steps: str | None = None
    annotation: str | None = None
    steps_by: str | None = None
    """Cut a serving trace at 'graph-launch' or 'annotation:REGEX'."""
    weights: Path | None = None
    """How often each kind of serving step occurs."""
    wall_ms: float | None = None
    """The user's own unprofiled step time, where the trace has none."""
    capture: Path | None = None
    """An eager or capture trace by whose node order the kernels of a graph replay are labelled."""
    command: str = ""
    device_model: DeviceModel | None = None
    """The device as `addrfrac device` measured it; floors need it."""


def analyze(path: Path, options: Options, timings: dict[str, float] | None = None) -> tuple[Run, ...]:
    """One run for a trace file, one a rank for a folder of them.

    Raises AddrfracError where the trace cannot be read or the options do not fit it.
    """
    clock = {} if timings is None else timings
    if not path.exists():
        raise AddrfracError(f"no such trace: {path}; give a .json or .json.gz file, or a folder of ranks")
    if not path.is_dir():
        return (build_run(read_trace(path, timings=clock), options, kind="analyze", timings=clock),)
    accounts = [_account(trace, options, clock) for trace in read_ranks(path, timings=clock)]
    runs = [_record(one, options, "analyze", clock) for one in accounts]
    if len(runs) > 1:
        table = _timed(clock, "ranks", lambda: rank_table([_part(one) for one in accounts], runs))
        runs[0] = replace(runs[0], ranks=table)
    return tuple(runs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Account:
    """A trace with everything that was found on its timeline."""

    trace: Trace
    labels: Labels
    window: Window
    cut: Cut | None
    """Where the window's steps are a serving engine's."""
    ours: Capture | None
    wall: Wall | None
    found: Attribution
    notes: tuple[str, ...]


def build_run(
    trace: Trace,
    options: Options,
    *,
    kind: str,
    timings: dict[str, float] | None = None,
) -> Run:
    """The record of everything that a trace says, and the capture that our own recorder wrote into it."""
    clock = {} if timings is None else timings
    return _record(_account(trace, options, clock), options, kind, clock)


def _account(trace: Trace, options: Options, clock: dict[str, float]) -> _Account:
    capture = read_capture(options.capture) if options.capture is not None else None
    labels = _timed(clock, "classify", lambda: classify(trace, options.rules, capture=capture))
    notes: tuple[str, ...] = ()
    if capture is not None:
        notes = (_capture_gain(trace, labels, options),)
        trace = with_capture(trace, capture)  # for the shapes; the labels have their ops already
    steps = _timed(clock, "window", lambda: _steps(trace, labels, options))
    window = steps.window if isinstance(steps, Cut) else steps
    ours = saved_capture(trace)
    wall = _given_wall(options.wall_ms) if options.wall_ms is not None else ours.wall if ours is not None else None
    found = _timed(clock, "attribute", lambda: attribute(trace, labels, window, options.policies, options.policy, wall))
    return _Account(
        trace=trace,
        labels=labels,
        window=window,
        cut=steps if isinstance(steps, Cut) else None,
        ours=ours,
        wall=wall,
        found=found,
        notes=notes,
    )


def _record(account: _Account, options: Options, kind: str, clock: dict[str, float]) -> Run:
    trace, ours, found = account.trace, account.ours, account.found
    return Run(
        schema=SCHEMA,
        kind=kind,
        created=ours.created if ours is not None else datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        command=options.command,
        title=ours.title if ours is not None else trace.source.path,
        configuration=ours.configuration if ours is not None else None,
        environment=ours.environment if ours is not None else None,
        source=_without_capture(trace.source),
        grade=grade(trace, _named(account.labels) if options.capture is not None else None),
        window=account.window.how,
        wall=account.wall,
        samples_per_step=ours.samples_per_step if ours is not None else None,
        sample_unit=ours.sample_unit if ours is not None else "",
        accounts=found.accounts,
        addressable=found.addressable,
        kernels=found.kernels,
        projection=_timed(clock, "project", lambda: project(found.accounts, found.kernels)),
        parameters=ours.parameters if ours is not None else None,
        peak_memory_bytes=ours.peak_memory_bytes if ours is not None else None,
        serving=_serving(account.cut, found, options) if account.cut is not None else None,
        floors=_timed(clock, "floors", lambda: _floors(account, options)),
        extra={name: value for name, value in ours.extra.items() if name != DATAFLOW} if ours is not None else {},
        notes=(
            *(ours.notes if ours is not None else ()),
            *account.notes,
            *found.notes,
            *_unknown(found, options.policy),
        ),
    )


def _floors(account: _Account, options: Options) -> Floors | None:
    """Floors of the step where the device was measured and kernels are a device's."""
    if options.device_model is None or account.trace.source.device_kind == "cpu":
        return None
    ours, policy = account.ours, options.policies[options.policy]
    known = Known(
        step_us=account.wall.step_us if account.wall is not None else account.found.accounts.span_us,
        extra=ours.extra if ours is not None else {},
        parameters=ours.parameters if ours is not None else None,
        settings=ours.environment.settings if ours is not None else {},
        crossing=from_facts(ours.extra.get(DATAFLOW)) if ours is not None and policy.name == "paper" else None,
    )
    bounds = [bound(policy, label) for label in account.labels.table]
    timeline, steps = account.found.timeline, account.window.steps
    return floors(account.trace, timeline, account.labels, bounds, steps, options.device_model, known)


def _part(account: _Account) -> RankPart:
    """What the table of ranks needs of one; `read_ranks` lets no trace without a rank through."""
    assert account.trace.source.rank is not None
    return RankPart(
        rank=account.trace.source.rank,
        trace=account.trace,
        labels=account.labels,
        window=account.window,
        timeline=account.found.timeline,
    )


def _steps(trace: Trace, labels: Labels, options: Options) -> Window | Cut:
    """The steps that the options ask for; a Cut where they are a serving engine's."""
    if options.steps_by is None:
        if options.weights is not None:
            raise AddrfracError("--weights weighs the buckets of a serving trace; say how to cut it with --steps-by")
        return find_window(trace, steps=options.steps, annotation=options.annotation)
    if options.annotation is not None:
        raise AddrfracError("--annotation and --steps-by both choose the steps; give one of them")
    return cut(trace, labels, options.steps_by, steps=options.steps)


def _serving(steps: Cut, found: Attribution, options: Options) -> Serving:
    weights = load_weights(options.weights) if options.weights is not None else None
    return serve(steps, found.held, [step.launches for step in found.accounts.steps], weights)


def _unknown(found: Attribution, policy: str) -> tuple[str, ...]:
    """What is unknown and why, where that is more than a reader may pass over."""
    unknown = [row for row in found.kernels if row.bound is Bound.UNKNOWN]
    share = found.addressable.by_policy[policy].unknown_us / found.accounts.busy_us if found.accounts.busy_us else 0.0
    if share <= MOST_UNKNOWN_UNSAID:
        return ()
    names = list(dict.fromkeys(row.name for row in unknown))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    why = next((fact for row in unknown for fact in row.evidence), "no rule knows the name and no operator tells")
    return (f"unknown: {units.percent(share)} of busy time, {names[0][:60]}{more}: {why}",)


def _named(labels: Labels) -> NDArray[np.bool_]:
    """For each kernel whether its operator is known."""
    return np.array([label.launching_op is not None for label in labels.table], dtype=np.bool_)[labels.of_kernel]


def _capture_gain(trace: Trace, labels: Labels, options: Options) -> str:
    """What a capture trace did for the certainty of the labels, in words."""
    before = certainty_shares(trace, classify(trace, options.rules)).get(Certainty.AGREE, 0.0)
    after = certainty_shares(trace, labels).get(Certainty.AGREE, 0.0)
    agree = f"{units.percent(before)} to {units.percent(after)}"
    return f"the capture trace raised the kernel time whose name and op agree from {agree}"


def saved_capture(trace: Trace) -> Capture | None:
    """What our own recorder wrote into the trace; None for anybody else's."""
    saved = trace.source.metadata.get("addrfrac")
    if not isinstance(saved, dict):
        return None
    try:
        return replace(msgspec.convert({**saved, "wall": None}, Capture), wall=_saved_wall(saved.get("wall")))
    except msgspec.ValidationError:
        return None


def _saved_wall(saved: Any) -> Wall | None:
    """The trace holds each clock's raw samples; their intervals are taken anew."""
    if not isinstance(saved, dict) or not saved.get("host_us"):
        return None
    taken = {
        clock: stats.times(saved[f"{clock}_us"], str(saved.get(f"{clock}_method", "")))
        for clock in ("device", "host", "graph")
        if saved.get(f"{clock}_us")
    }
    return Wall(
        device=taken.get("device"),
        host=taken["host"],
        graph=taken.get("graph"),
        graph_note=str(saved.get("graph_note", "")),
    )


def _without_capture(source: TraceSource) -> TraceSource:
    """The run holds the capture in fields of its own; where the recorder's scratch file lay is nobody's business."""
    kept = {name: value for name, value in source.metadata.items() if name not in ("addrfrac", "traceName")}
    return replace(source, metadata=kept)


def _timed(clock: dict[str, float], name: str, stage: Callable[[], T]) -> T:
    began = time.perf_counter()
    result = stage()
    clock[name] = clock.get(name, 0.0) + time.perf_counter() - began
    return result


def _given_wall(wall_ms: float) -> Wall:
    if wall_ms <= 0:
        raise AddrfracError(f"--wall-ms {wall_ms:g} is not positive; give the unprofiled step time in milliseconds")
    us = wall_ms * 1e3
    host = Times(samples_us=(), median_us=us, low_us=us, high_us=us, method="given by the user with --wall-ms")
    return Wall(device=None, host=host, graph=None, graph_note="not measured")
