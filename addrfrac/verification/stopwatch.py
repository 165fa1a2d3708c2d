"""Times a candidate that passed its checks beside its baselines; the parent's side of the clock."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from addrfrac.verification.candidate import Candidate
from addrfrac.verification.clock import Claim, distinct_bytes, judge_claim, net, too_small
from addrfrac.verification.closeness import judge
from addrfrac.verification.exam import Exam, Trial
from addrfrac.verification.processes import Server, WorkerFailure
from addrfrac.verification.records import Baseline, Check, PrecisionClass, Samples, Speed, Status
from addrfrac.verification.reference import Handle, Reference, ReferenceRaised
from addrfrac.verification.sources import Source
from addrfrac.verification.speed import choose_best, compare, noise_between, order_of_turns
from addrfrac.verification.verdict import unmeasured

BASELINES = ("eager-strict", "eager-tf32", "eager-graph", "compile")
FLUSH_BYTES = 256 << 20


@dataclass(slots=True)
class Side:
    """Blocks of one side: [process][block]."""

    name: str
    blocks: list[list[float]] = field(default_factory=list)
    raw: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""


def measure(
    server: Server,
    source: Source,
    exam: Exam,
    *,
    case: int = 0,
    quick: bool = False,
    processes: int = 3,
    calls: int = 24,
    baselines: Sequence[str] = BASELINES,
    reseeded: bool = False,
) -> tuple[Speed, list[Check]]:
    """Speed against the best baseline, and the checks of the clock; every failure is told, none is a speed."""
    processes, rounds = (1, 2) if quick else (processes, 2)
    trials = _timing_trials(exam)
    sides = {name: Side(name) for name in ("candidate", *baselines)}
    checks: list[Check] = []
    try:
        for _ in range(processes):
            _one_process(server, source, exam, trials, sides, checks, case=case, rounds=rounds, calls=calls)
    except (WorkerFailure, ReferenceRaised) as error:
        why = f"could not be timed: {error}"
        return unmeasured(why), [*checks, _check("clock", Status.INCOMPLETE, why)]
    return _speed(sides, checks), checks


def _timing_trials(exam: Exam) -> list[Trial]:
    """Trials of one state and layout whose contents are rotated through the timed calls."""
    state = exam.distributions[-1].state
    shapes = [tuple(t.shape) for t in exam.distributions[-1].arguments.tensors]
    same = [
        t for t in exam.distributions if t.state == state and [tuple(x.shape) for x in t.arguments.tensors] == shapes
    ]
    return same[:6]


def _one_process(
    server: Server,
    source: Source,
    exam: Exam,
    trials: list[Trial],
    sides: dict[str, Side],
    checks: list[Check],
    *,
    case: int,
    rounds: int,
    calls: int,
) -> None:
    candidate = Candidate(server, source, exam, case=case, timeout_s=120.0)
    reference = Reference(server, exam.problem, case=case, timeout_s=300.0)
    try:
        candidate.build()
        candidate.current = (0, 0)
        candidate.stand(0, trials[0].state)
        reference.build(exam.constructs[0].init, seed=exam.build_seed, dtype=exam.dtype)
        keys = {name: _placed(handle, trials) for name, handle in (("candidate", candidate.handle), ("b", reference))}
        for side in sides.values():
            side.blocks.append([])
        for name in order_of_turns(list(sides), rounds):
            handle = candidate.handle if name == "candidate" else reference
            side = sides[name]
            if side.note:
                continue
            try:
                _block(handle, side, keys["candidate" if name == "candidate" else "b"], trials, calls, checks)
            except ReferenceRaised as error:
                if name == "candidate":
                    raise
                side.note = f"could not run: {str(error)[:120]}"
    finally:
        candidate.close()
        reference.close()


def _placed(handle: Handle, trials: list[Trial]) -> list[str]:
    """An arena for each content; layouts are alike, so each gets one of its own."""
    keys = []
    for trial in trials:
        handle.arenas.clear()
        keys.append(handle.place(trial.arguments).key)
    return keys


def _block(handle: Handle, side: Side, keys: list[str], trials: list[Trial], calls: int, checks: list[Check]) -> None:
    rng = random.SystemRandom()
    order = [rng.randrange(len(keys)) for _ in range(calls)]
    keep = sorted(rng.sample(range(calls), 2))
    cuda = handle.worker.server.device == "cuda"
    request = {
        "op": "time",
        "keys": keys,
        "order": order,
        "warmup": 3,
        "cold": cuda,
        "flush_bytes": FLUSH_BYTES,
        "variant": "plain" if side.name == "candidate" else side.name,
    }
    empty, empty_batch_us = _run(handle, request | {"empty": True, "keep": []})
    answer, batch_us = _run(handle, request | {"empty": False, "keep": keep})
    events = [float(us) for us in answer["event_us"]]
    if len(events) != calls:
        raise WorkerFailure(Status.TAMPERED, f"{len(events)} times for {calls} calls")
    empty_us = statistics.median(empty["event_us"]) if cuda else 0.0
    memory = {key: answer[key] for key in ("persistent_bytes", "peak_bytes")}
    side.raw.append({"events": events, "empty_us": empty_us, **memory})
    side.blocks[-1].append(max(net(events, empty_us), 1e-3))
    if side.name != "candidate":
        return
    claim = Claim(
        call_us=tuple(events),
        batch_us=batch_us,
        empty_batch_us=empty_batch_us,
        span_us=_span(handle, keys[0]) if cuda else None,
        empty_call_us=empty_us,
        bytes_moved=_bytes(trials[0]),
        peak_gb_per_s=None,
    )
    status, detail = judge_claim(claim)
    checks.append(_check("clock", status, detail))
    checks.append(_timed_outputs(answer["tensors"], order, keep, trials))


def _run(handle: Handle, request: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """One block and its length by this side's clock; nothing but the calls lies between the two readings."""
    handle.ask(request | {"phase": "prepare"})
    batch_us = 1e6 * float(handle.ask(request | {"phase": "run"})["elapsed_s"])
    return handle.ask(request | {"phase": "finish"}), batch_us


def _timed_outputs(tensors: list[torch.Tensor], order: list[int], keep: list[int], trials: list[Trial]) -> Check:
    """The hidden subset of timed outputs, judged like any other."""
    per = len(trials[0].sticks)
    if len(tensors) != per * len(keep):
        return _check("timed outputs", Status.WRONG_SCHEMA, f"{len(tensors)} tensors for {len(keep)} kept calls")
    for position, call in enumerate(keep):
        trial = trials[order[call]]
        for tensor, stick in zip(tensors[position * per : (position + 1) * per], trial.sticks, strict=True):
            if tensor.shape != stick.truth.shape:
                return _check("timed outputs", Status.WRONG_SCHEMA, f"timed call {call} has another shape")
            found = judge(tensor, stick)
            if found.precision in (PrecisionClass.NONE, PrecisionClass.APPROX):
                return _check("timed outputs", Status.WRONG_VALUES, f"timed call {call}: {found.detail}")
    return _check("timed outputs", Status.PASSED, f"{len(keep)} timed outputs are right")


def _span(handle: Handle, key: str) -> float | None:
    """Span over all streams of one isolated call."""
    try:
        traced = handle.ask({"op": "traced", "key": key, "seed": 1})
    except ReferenceRaised:
        return None
    span = traced.get("span_us")
    return float(span) if isinstance(span, (int, float)) and span > 0 else None


def _bytes(trial: Trial) -> float:
    """Output bytes and the input bytes that must be read: of a table only the distinct rows that ids can name."""
    ids = [t for t in trial.arguments.tensors if not t.is_floating_point() and t.numel()]
    rows: list[tuple[int, int, int | None]] = []
    for tensor in trial.arguments.tensors:
        used: int | None = None
        if ids and tensor.is_floating_point() and tensor.ndim >= 2:
            distinct = max(len(set(t.flatten().tolist())) for t in ids)
            used = min(distinct, tensor.shape[0]) * (tensor.numel() // max(1, tensor.shape[0]))
        rows.append((tensor.numel(), tensor.element_size(), used))
    rows += [(t.numel(), t.element_size(), None) for t in trial.native.tensors]
    return distinct_bytes(rows)


def _speed(sides: dict[str, Side], checks: list[Check]) -> Speed:
    candidate = sides.pop("candidate")
    usable = {name: side.blocks for name, side in sides.items() if not side.note and all(side.blocks)}
    if not usable or not all(candidate.blocks):
        return unmeasured("no baseline could be timed")
    best, reporting = choose_best(usable)
    floor = None
    if len(usable[best]) >= 2:
        floor = noise_between(usable[best][0::2], usable[best][1::2])
    found = compare(reporting[best], candidate.blocks, noise_floor=floor)
    call = statistics.median(us for process in candidate.blocks for us in process)
    if too_small(call, None) and any(check.name == "clock" and not check.passed for check in checks):
        checks.append(_check("clock", Status.TOO_SMALL_TO_TIME, f"{call:.1f} us a call"))
    return Speed(
        verdict=found.verdict,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        least_detectable=found.least_detectable,
        noise_floor=floor,
        best_baseline=best,
        baselines=tuple(_baseline(side) for side in sides.values()),
        candidate=Samples(name="candidate", block_us=tuple(tuple(p) for p in candidate.blocks)),
        warm_us=None,
        cold_us=call,
        peak_persistent_bytes=max((int(raw["persistent_bytes"]) for raw in candidate.raw), default=None),
        peak_transient_bytes=max(
            (int(raw["peak_bytes"]) - int(raw["persistent_bytes"]) for raw in candidate.raw), default=None
        ),
        setup_s=None,
        note="one process only: cannot decide" if len(candidate.blocks) < 2 else "",
    )


def _baseline(side: Side) -> Baseline:
    flat = [us for process in side.blocks for us in process]
    return Baseline(
        name=side.name,
        samples_us=tuple(flat),
        before_us=flat[0] if flat else 0.0,
        after_us=flat[-1] if flat else 0.0,
        settings={"tf32": str(side.name != "eager-strict")},
        note=side.note,
    )


def _check(name: str, status: Status, detail: str) -> Check:
    return Check(name=name, passed=status is Status.PASSED, status=status, detail=detail)
