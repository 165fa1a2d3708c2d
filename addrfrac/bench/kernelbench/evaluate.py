"""One problem and one solution in, its evaluation under every protocol asked for out."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from addrfrac.bench.kernelbench.records import (
    NAIVE,
    SCHEMA,
    TRUSTED,
    Comparison,
    Evaluation,
    Memory,
    Problem,
    Solution,
    Times,
)
from addrfrac.verification.records import Check, Label, PrecisionClass, Protocol, Status, Verdict

if TYPE_CHECKING:
    from addrfrac.bench.kernelbench.device_turn import DeviceTurn
    from addrfrac.verification.processes import Server
    from addrfrac.verification.sources import Target

DTYPES = {"fp32": "", "tf32": "", "bf16": "bfloat16"}
TRIALS = {"cuda": 100, "cpu": 5}
"""Calls that the naive clock takes; the published harness takes a hundred."""
_DEFAULT_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One evaluation to be made; nothing in it that cannot be sent to another machine."""

    key: str
    problem: Problem
    solution: Solution
    protocols: tuple[str, ...]
    precision: str
    device: str
    """'cuda' or 'cpu'."""
    quick: bool
    timeout_s: float
    device_name: str
    versions: dict[str, str]

    @property
    def label(self) -> str:
        """For whoever watches."""
        one = self.solution
        many = f" sample {one.sample}" if one.sample else ""
        return f"level {one.level} {one.number:3d} {self.problem.title[:40]} · {one.name}{many}"


def blank(task: Task, failure: str = "") -> Evaluation:
    """The evaluation of a task before anything was found, or where nothing could be."""
    one = task.solution
    return Evaluation(
        schema=SCHEMA, key=task.key, level=one.level, number=one.number, title=task.problem.title,
        problem_sha256=sha256(task.problem.text), solution=one.name, sample=one.sample, kind=one.kind, path=one.path,
        solution_sha256=sha256(one.text), published_speedup=one.published_speedup, precision=task.precision,
        quick=task.quick, verdicts=(), comparisons=(), times=(), best_baseline="", memory=Memory(), class_reached="",
        launched_by="", own_share=None, stage_seconds={}, device=task.device_name, versions=task.versions,
        failure=failure, seconds=0.0,
    )  # fmt: skip


def sha256(text: str) -> str:
    """Digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def evaluate(server: Server, task: Task, turn: DeviceTurn) -> Evaluation:
    """All that the task asks. A candidate that fails is a result; only a fault of ours raises."""
    from addrfrac.verification.protocols import find_protocol
    from addrfrac.verification.sources import Source, Target

    began = time.monotonic()
    seconds: dict[str, float] = {}
    target = Target(
        name=f"level{task.problem.level} {task.problem.number}",
        problem=Source(text=task.problem.text),
        solution=Source(text=task.solution.text),
        dtype=DTYPES[task.precision],
    )
    protocols = [find_protocol(name) for name in task.protocols]
    evaluation = blank(task)
    published = [protocol for protocol in protocols if protocol.in_process]
    with turn.shared():
        if published:
            evaluation = _published(evaluation, server, task, target, published, turn, seconds)
        for protocol in protocols:
            if not protocol.in_process:
                evaluation = _by_our_own(evaluation, server, task, target, protocol, turn, seconds)
    order = {name: index for index, name in enumerate(task.protocols)}
    return replace(
        evaluation,
        verdicts=tuple(sorted(evaluation.verdicts, key=lambda verdict: order[verdict.protocol])),
        stage_seconds={stage: round(spent, 3) for stage, spent in seconds.items()},
        seconds=round(time.monotonic() - began, 3),
    )


@contextmanager
def _spent(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - began


@contextmanager
def _alone(turn: DeviceTurn, seconds: dict[str, float], stage: str) -> Iterator[None]:
    """The device to oneself, the wait for it told apart from the stage."""
    with _spent(seconds, "waiting for the device"):
        taken = turn.alone()
        taken.__enter__()
    try:
        with _spent(seconds, stage):
            yield
    finally:
        taken.__exit__(None, None, None)


# --- the published harnesses ----------------------------------------------------------------------------------


def calls_of(protocols: Sequence[Protocol]) -> list[tuple[int, str]]:
    """(seed, distribution) that any of these looks at, each once, seed by seed."""
    wanted = dict.fromkeys((seed, name) for one in protocols for seed in one.seeds for name in one.distributions)
    seeds = list(dict.fromkeys(seed for seed, _ in wanted))
    return sorted(wanted, key=lambda call: seeds.index(call[0]))


def _published(
    evaluation: Evaluation,
    server: Server,
    task: Task,
    target: Target,
    protocols: Sequence[Protocol],
    turn: DeviceTurn,
    seconds: dict[str, float],
) -> Evaluation:
    """One process for all of them; where it ends without an answer each is asked by itself, as its harness has it."""
    from addrfrac.verification import harness
    from addrfrac.verification.check import check_target
    from addrfrac.verification.processes import Worker, WorkerFailure

    worker = Worker(server, timeout_s=task.timeout_s)
    try:
        try:
            with _spent(seconds, "published harnesses"):
                rows = harness.ask_to_compare(worker, target, calls_of(protocols))
                comparisons = msgspec.convert(rows, tuple[Comparison, ...])
        except (WorkerFailure, msgspec.ValidationError):
            with _spent(seconds, "published harnesses, one by one"):
                apart = [check_target(server, target, each, timeout_s=task.timeout_s) for each in protocols]
            return replace(evaluation, verdicts=(*evaluation.verdicts, *apart))
        verdicts = tuple(published_verdict(target, task, each, comparisons, worker.layers) for each in protocols)
        evaluation = replace(evaluation, comparisons=comparisons, verdicts=(*evaluation.verdicts, *verdicts))
        try:
            with _alone(turn, seconds, "naive clock"):
                said = harness.ask_for_times(worker, TRIALS[task.device])
            return _with_naive_times(evaluation, said)
        except (WorkerFailure, msgspec.ValidationError) as error:
            note = getattr(error, "reason", "") or f"malformed times: {error}"
            return _with_naive_times(evaluation, {"notes": {"candidate": note}})
    finally:
        worker.end()


def _with_naive_times(evaluation: Evaluation, said: Mapping[str, Any]) -> Evaluation:
    times: dict[str, tuple[float, ...]] = msgspec.convert(said.get("times", {}), dict[str, tuple[float, ...]])
    notes: dict[str, str] = msgspec.convert(said.get("notes", {}), dict[str, str])
    peaks: dict[str, int] = msgspec.convert(said.get("peaks", {}), dict[str, int])
    rows = [
        Times(name=name, clock=NAIVE, samples_us=times.get(name, ()), note=notes.get(name, ""))
        for name in dict.fromkeys((*times, *notes))
    ]
    memory = replace(
        evaluation.memory,
        naive_candidate_bytes=peaks.get("candidate"),
        naive_baseline_bytes=peaks.get("eager-strict"),
    )
    return replace(evaluation, times=(*evaluation.times, *rows), memory=memory)


def published_verdict(
    target: Target, task: Task, protocol: Protocol, comparisons: Sequence[Comparison], layers: tuple[Any, ...] = ()
) -> Verdict:
    """What a published protocol makes of the comparisons: the first that it refuses decides, the others are told."""
    from addrfrac.verification.records import Credit
    from addrfrac.verification.verdict import unmeasured

    mine = [one for one in comparisons if one.seed in protocol.seeds and one.distribution in protocol.distributions]
    checks = tuple(check for one in mine for check in checks_of(protocol, one))
    failed = next((check for check in checks if not check.passed), None)
    complete = len(mine) == len(calls_of([protocol]))
    status = Status.PASSED if failed is None and complete else failed.status if failed else Status.INCOMPLETE
    last = checks[-1].detail if checks else "nothing compared"
    return Verdict(
        name=target.name,
        protocol=protocol.name,
        status=status,
        reason=f"{failed.name}: {failed.detail}" if failed else last,
        labels=(),
        precision=PrecisionClass.NONE,
        checks=checks,
        distributions_checked=len({one.distribution for one in mine}),
        distributions_planned=len(protocol.distributions),
        replaced=(),
        speed=unmeasured("measured by the naive clock, beside this verdict"),
        credit=Credit(own_share=None, kernels=(), operations=(), line="not looked at by this protocol"),
        hints=(),
        isolation=layers,
        device=task.device,
        dtype=target.dtype,
        seconds=0.0,
        seed="known: " + ", ".join(str(seed) for seed in protocol.seeds),
        source_sha256=target.solution.sha256,
        notes=("judged in the candidate's own process, in one pass with the other published protocols",),
    )


def checks_of(protocol: Protocol, one: Comparison) -> list[Check]:
    """The checks that a protocol makes of one comparison, each whatever became of the others."""
    name = f"{one.distribution}, seed {one.seed}"
    if one.raised:
        return [_check(name, Status.RAISED, one.raised)]
    if one.skipped:
        return [_check(name, Status.PASSED, f"skipped: {one.skipped}")]
    if protocol.metric == "allclose":
        return [_allclose(name, one, tolerance_of(protocol, one.dtype))]
    return _relative(name, one, protocol)


def tolerance_of(protocol: Protocol, dtype: str) -> float:
    """Absolute and relative tolerance of a protocol for a dtype."""
    return protocol.tolerance.get(dtype, _DEFAULT_TOLERANCE)


def _allclose(name: str, one: Comparison, tolerance: float) -> Check:
    needed = one.tolerance_needed
    if needed is None:
        return _check(name, Status.WRONG_VALUES, "not finite where the reference is", None, tolerance)
    status = Status.PASSED if needed <= tolerance else Status.WRONG_VALUES
    return _check(name, status, f"allclose needs a tolerance of {needed:.2e}, allowed {tolerance:g}", needed, tolerance)


def _relative(name: str, one: Comparison, protocol: Protocol) -> list[Check]:
    if one.overflows:
        return [_check(name, Status.PASSED, "skipped: the reference overflows")]
    figures = (
        ("relative Frobenius", one.relative_frobenius, protocol.relative_frobenius),
        ("normalised max", one.normalised_max, protocol.normalised_max),
    )
    checks = []
    for what, figure, limit in figures:
        assert limit is not None
        right = figure is not None and figure < limit
        said = f"{what} {figure:.2e}" if figure is not None else f"{what} is no number"
        checks.append(_check(f"{name}: {what}", Status.PASSED if right else Status.WRONG_VALUES, said, figure, limit))
    if protocol.written_fraction and one.written_share is not None and one.reference_written_share is not None:
        least = 0.95 * one.reference_written_share
        status = Status.PASSED if one.written_share >= least else Status.NOT_WRITTEN
        said = f"written share {one.written_share:.3f}, the reference's {one.reference_written_share:.3f}"
        checks.append(_check(f"{name}: written share", status, said, one.written_share, least))
    if protocol.invariants and one.rows_sum_to_one is not None:
        status = Status.PASSED if one.rows_sum_to_one else Status.WRONG_VALUES
        checks.append(_check(f"{name}: invariants", status, "rows sum to one" + _not(one.rows_sum_to_one)))
    return checks


def _not(right: bool) -> str:
    return "" if right else " in the reference, here they do not"


def _check(name: str, status: Status, detail: str, figure: float | None = None, limit: float | None = None) -> Check:
    return Check(name=name, passed=status is Status.PASSED, status=status, detail=detail, figure=figure, limit=limit)


# --- our own protocol -----------------------------------------------------------------------------------------


def _by_our_own(
    evaluation: Evaluation,
    server: Server,
    task: Task,
    target: Target,
    protocol: Protocol,
    turn: DeviceTurn,
    seconds: dict[str, float],
) -> Evaluation:
    from addrfrac.verification.check import check_target

    inside = seconds.get("trusted clock", 0.0) + seconds.get("waiting for the device", 0.0)
    with _spent(seconds, "value checks"):
        verdict = check_target(
            server,
            target,
            protocol,
            quick=task.quick,
            timeout_s=task.timeout_s,
            alone=_alone(turn, seconds, "trusted clock"),
        )
    apart = seconds.get("trusted clock", 0.0) + seconds.get("waiting for the device", 0.0) - inside
    seconds["value checks"] -= apart
    verdict = without_tf32(verdict) if task.precision == "fp32" else verdict
    speed = verdict.speed
    rows = [Times(name=one.name, clock=TRUSTED, samples_us=one.samples_us, note=one.note) for one in speed.baselines]
    if speed.candidate is not None:
        samples = tuple(us for process in speed.candidate.block_us for us in process)
        rows.append(Times(name="candidate", clock=TRUSTED, samples_us=samples, note=speed.launch))
    memory = replace(
        evaluation.memory,
        candidate_persistent_bytes=speed.peak_persistent_bytes,
        candidate_transient_bytes=speed.peak_transient_bytes,
        baseline_persistent_bytes=speed.baseline_persistent_bytes,
        baseline_transient_bytes=speed.baseline_transient_bytes,
    )
    return replace(
        evaluation,
        verdicts=(*evaluation.verdicts, verdict),
        times=(*evaluation.times, *rows),
        best_baseline=speed.best_baseline,
        memory=memory,
        class_reached=verdict.precision.value,
        launched_by=launched_by(verdict),
        own_share=verdict.credit.own_share,
    )


def without_tf32(verdict: Verdict) -> Verdict:
    """The verdict where TF32 is no excuse: right only to that class is not right."""
    if not verdict.passed or verdict.precision is not PrecisionClass.TF32:
        return verdict
    reason = "class tf32 where fp32 was asked for (--precision fp32)"
    check = _check("precision", Status.LOWER_PRECISION, reason)
    return replace(verdict, status=Status.LOWER_PRECISION, reason=reason, checks=(*verdict.checks, check))


def launched_by(verdict: Verdict) -> str:
    """Who put work on the device; '' where nobody could look."""
    if Label.GRAPH in verdict.labels:
        return "graph"
    if Label.NO_CHANGE in verdict.labels:
        return "same operations"
    if Label.LIBRARY in verdict.labels:
        return "library"
    share = verdict.credit.own_share
    if share is None:
        return ""
    return "own kernels" if share >= 0.5 else "library"


def median_us(evaluation: Evaluation, name: str, clock: str) -> float | None:
    """Middle of one side's times by one clock; None where it was not timed."""
    found = next((t for t in evaluation.times if t.name == name and t.clock == clock and t.samples_us), None)
    return statistics.median(found.samples_us) if found is not None else None


def speedup(evaluation: Evaluation, baseline: str, clock: str) -> float | None:
    """Baseline / candidate by one clock; None where either was not timed."""
    before, after = median_us(evaluation, baseline, clock), median_us(evaluation, "candidate", clock)
    return before / after if before and after else None
