"""A target and a protocol in, a verdict out."""

from __future__ import annotations

import secrets
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac.verification.candidate import Findings
from addrfrac.verification.exam import Exam, prepare
from addrfrac.verification.examine import NeedsReseeding, examine
from addrfrac.verification.processes import Server, WorkerFailure
from addrfrac.verification.protocols import ADDRFRAC
from addrfrac.verification.records import Hint, PrecisionClass, Protocol, Speed, Status, Verdict
from addrfrac.verification.reference import ReferenceRaised
from addrfrac.verification.screen import screen
from addrfrac.verification.sources import Source, Target
from addrfrac.verification.verdict import NOT_ON_A_CPU, credit_of, decide, failure, labels_of, unmeasured

if TYPE_CHECKING:
    from addrfrac.verification.preparation import Preparation

_OUR_OWN = (RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError, OSError)
"""A fault of the verifier on one target: that target is incomplete, the others go on."""


@dataclass(slots=True)
class Exams:
    """Exams of one problem, made when first asked for and shared by its candidates."""

    server: Server
    problem: Source
    case: int = 0
    dtype: str = ""
    quick: bool = False
    made: dict[bool, Exam] = field(default_factory=dict)
    secrets: dict[bool, int] = field(default_factory=dict)

    def get(self, *, reseeded: bool) -> Exam:
        """The exam with set or with reseeded parameters."""
        if reseeded not in self.made:
            self.secrets[reseeded] = secrets.randbits(62)
            self.made[reseeded] = prepare(
                self.server,
                self.problem,
                ADDRFRAC,
                case=self.case,
                dtype=self.dtype,
                quick=self.quick,
                reseeded=reseeded,
                secret=self.secrets[reseeded],
            )
        return self.made[reseeded]


def check_target(
    server: Server,
    target: Target,
    protocol: Protocol = ADDRFRAC,
    *,
    exams: Exams | None = None,
    quick: bool = False,
    timeout_s: float = 60.0,
    timing: bool = True,
    briefly: bool = False,
    alone: AbstractContextManager[Any] | None = None,
) -> Verdict:
    """One verdict; `briefly` checks values in full and times one process of each side without the compiler.

    `alone` is entered around the trace and the clock: for whoever shares the device with other verifications.
    """
    started = time.monotonic()
    hints = tuple(screen(target.solution.text))
    if protocol.in_process:
        from addrfrac.verification.inprocess import published_verdict

        return published_verdict(server, target, protocol, hints=hints, timeout_s=timeout_s, started=started)
    exams = exams or Exams(server, target.problem, target.case, target.dtype, quick)
    findings = Findings()
    exam: Exam | None = None
    reseeded = False
    prepared = _prepared(server, target, quick=quick or briefly, timing=timing)
    try:
        exam = exams.get(reseeded=False)
        if exam.unverifiable and not exam.trials:
            findings.checks.append(failure(Status.UNVERIFIABLE, "problem", exam.unverifiable))
        else:
            try:
                if prepared is not None:
                    prepared.begin_candidate(target.solution, exam)
                findings = examine(server, target.solution, exam, case=target.case, quick=quick, timeout_s=timeout_s)
            except NeedsReseeding:
                reseeded = True
                exam = exams.get(reseeded=True)
                if prepared is not None:
                    prepared.begin_candidate(target.solution, exam)
                findings = examine(server, target.solution, exam, case=target.case, quick=quick, timeout_s=timeout_s)
                _reseeded_status(findings, exam)
    except ReferenceRaised as error:
        findings.checks.append(failure(Status.UNVERIFIABLE, "problem", f"the reference raised {error}"))
    except WorkerFailure as error:
        findings.checks.append(failure(Status.UNVERIFIABLE, "problem", f"the reference: {error.reason}"))
    except _OUR_OWN as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"the verifier failed at {Path(where.filename).name}:{where.lineno}: {type(error).__name__}: {error}"
        findings.checks.append(failure(Status.INCOMPLETE, "verifier", detail[:300]))
    speed = None
    if prepared is not None:
        try:
            if exam is not None and decide(findings, exam)[0] is Status.PASSED:
                with alone or nullcontext():
                    speed = _timed(server, target, findings, exam, prepared, quick=quick or briefly, timing=timing)
        finally:
            prepared.close()
    return _assemble(target, protocol, findings, exam, hints, server, started, exams.secrets.get(reseeded, 0), speed)


def _prepared(server: Server, target: Target, *, quick: bool, timing: bool) -> Preparation | None:
    """Processes for the trace and the clock, starting up while values are checked; on a device only."""
    if server.device != "cuda":
        return None
    from addrfrac.verification.preparation import Preparation

    processes = (1 if quick else 3) if timing else 0
    return Preparation(
        server, target.problem, case=target.case, dtype=target.dtype, processes=processes, compiled=not quick
    )


def _timed(
    server: Server,
    target: Target,
    findings: Findings,
    exam: Exam,
    prepared: Preparation,
    *,
    quick: bool,
    timing: bool,
) -> Speed | None:
    """The trace of what passed, and its speed; a failure of either is a check that failed."""
    from addrfrac.verification.stopwatch import measure

    prepared.begin_trace(target.solution, exam)
    traced = prepared.trace()
    findings.facts.setdefault("traced", {}).update(traced)
    if "wrong_when_traced" in traced:
        findings.checks.append(failure(Status.WRONG_VALUES, "traced output", str(traced["wrong_when_traced"])))
        return None
    if not timing:
        return None
    try:
        speed, checks = measure(
            server,
            target.solution,
            exam,
            case=target.case,
            quick=quick,
            prepared=prepared,
            span_us=traced.get("span_us"),
        )
    except _OUR_OWN as error:
        speed = unmeasured(f"could not be measured: {error}")
        checks = [failure(Status.INCOMPLETE, "clock", f"{type(error).__name__}: {error}")]
    findings.checks += checks
    findings.facts["device_bytes"] = (speed.device_persistent_bytes, speed.baseline_device_persistent_bytes)
    return speed


def _reseeded_status(findings: Findings, exam: Exam) -> None:
    """A candidate right at first and wrong once the constants drew random values: it ignores them, or hides them."""
    first = [c for c in findings.checks if c.name.startswith("distributions at initial")]
    if not first or not first[0].passed:
        return
    reference = sum(e.value.numel() for e in exam.constructs[0].entries if e.kind == "parameter")
    ignores = findings.facts.get("parameters", 0) < reference
    status = Status.IGNORES_PARAMETERS if ignores else Status.PARAMETERS_NOT_VARIED
    for index, check in enumerate(findings.checks):
        if check.status in (Status.WRONG_VALUES, Status.IGNORES_PARAMETERS, Status.SHAPE_SPECIALISED):
            findings.checks[index] = failure(status, check.name, check.detail)


def _assemble(
    target: Target,
    protocol: Protocol,
    findings: Findings,
    exam: Exam | None,
    hints: tuple[Hint, ...],
    server: Server,
    started: float,
    secret: int,
    speed: Speed | None = None,
) -> Verdict:
    status, reason = decide(findings, exam)
    if status in (Status.RAISED, Status.CRASHED, Status.TIMEOUT, Status.NOT_LOADED):
        precision = PrecisionClass.NONE
    else:
        precision = findings.precision
    notes = [*(exam.notes if exam else []), *(f"refused {entry}" for entry in findings.refused[:6])]
    notes += [f"changed {entry}" for entry in findings.facts.get("settings", [])]
    notes += [f"swallowed {entry}" for entry in findings.facts.get("traced", {}).get("swallowed", [])[:2]]
    return Verdict(
        name=target.name,
        protocol=protocol.name,
        status=status,
        reason=reason,
        labels=labels_of(findings, exam),
        precision=precision,
        checks=tuple(findings.checks),
        distributions_checked=int(findings.facts.get("distributions", 0)),
        distributions_planned=exam.planned if exam else len(protocol.distributions),
        replaced=tuple(exam.replaced) if exam else (),
        speed=speed or unmeasured(NOT_ON_A_CPU if server.device == "cpu" else "not measured"),
        credit=credit_of(findings),
        hints=hints,
        isolation=tuple(findings.layers),
        device=server.device,
        dtype=exam.dtype if exam else target.dtype,
        seconds=time.monotonic() - started,
        seed=f"{secret:x}",
        source_sha256=target.solution.sha256,
        notes=tuple(notes),
    )
