"""Processes for the clock, made ready in threads while the values are checked elsewhere.

Starting a device, building a model, compiling a baseline and tracing take seconds that nobody has to wait for. Each
process index has one process for the baselines and one for the candidate; the trace has a process of its own.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from addrfrac.verification.candidate import Candidate
from addrfrac.verification.closeness import judge
from addrfrac.verification.device_memory import DeviceMemory, Peak
from addrfrac.verification.exam import Exam, Trial
from addrfrac.verification.processes import Group, Server, WorkerFailure
from addrfrac.verification.records import PrecisionClass
from addrfrac.verification.reference import Handle, Reference, ReferenceRaised
from addrfrac.verification.sources import Source

_LARGE_BYTES = 1 << 30
_MILD = ("published", "x3", "negated", "signs", "normal8")
"""Distributions whose contents are timed: ordinary numbers, so that varying them leaves them what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Device memory of one side in a process of its own, over its inputs and the device's own start."""

    persistent_bytes: int
    transient_bytes: int
    device_persistent_bytes: int | None
    """As the driver has it, whoever allocated; None where it does not say."""
    device_transient_bytes: int | None


@dataclass(slots=True, kw_only=True)
class Side:
    """A process that is ready to be timed."""

    handle: Handle
    footprint: Footprint | None
    notes: dict[str, str]
    """Variant -> why it cannot be timed."""


def timing_state(exam: Exam) -> int:
    """The state that calls are timed at."""
    return 0 if exam.reseeded else exam.distributions[-1].state


def timing_trials(exam: Exam) -> list[Trial]:
    """Trials of one state and layout from which each timed call's content is drawn."""
    state = timing_state(exam)
    at_state = [t for t in exam.distributions if t.state == state]
    shapes = [tuple(x.shape) for x in at_state[-1].arguments.tensors]
    same = [t for t in at_state if [tuple(x.shape) for x in t.arguments.tensors] == shapes]
    mild = [t for t in same if t.name in _MILD] or same
    size = sum(x.numel() * x.element_size() for x in mild[0].arguments.tensors)
    return mild[: 1 if size > _LARGE_BYTES else 3]


class Preparation:
    """Futures of processes; whoever takes one waits for it, and `close` ends them all."""

    def __init__(
        self, server: Server, problem: Source, *, case: int, dtype: str, processes: int, compiled: bool
    ) -> None:
        self.server, self.problem, self.case, self.dtype = server, problem, case, dtype
        self.processes, self.compiled = processes, compiled
        self.memory = DeviceMemory() if server.device == "cuda" else None
        self.groups: list[Group] = []
        self.pool = ThreadPoolExecutor(max_workers=2 * processes + 1, thread_name_prefix="prepare")
        self.made: list[Candidate] = []
        group = self._group()
        self.references: list[Future[Side]] = [
            self.pool.submit(self._reference, group, index) for index in range(processes)
        ]
        self.candidates: list[Future[Side]] = []
        self.tracing: Future[dict[str, Any]] | None = None

    def _group(self) -> Group:
        self.groups.append(Group(self.server))
        return self.groups[-1]

    def begin_candidate(self, source: Source, exam: Exam) -> None:
        """Processes of a candidate, for this exam; those for an earlier exam are ended."""
        for group in self.groups[1:]:
            group.end()
        group = self._group()
        self.tracing = None
        if self.processes:
            self.begin_trace(source, exam)
        self.candidates = [
            self.pool.submit(self._candidate, group, source, exam, index) for index in range(self.processes)
        ]

    def begin_trace(self, source: Source, exam: Exam) -> None:
        """Start the trace, if it has not been: ahead of need where time counts, else only for what passed."""
        if self.tracing is None and self.server.device == "cuda":
            self.tracing = self.pool.submit(self._traced, self.groups[-1], source, exam)

    def all_ready(self) -> list[tuple[Side, Side]]:
        """Baselines and candidate of each process; nothing is starting up any more once they are there."""
        sides = [(r.result(), c.result()) for r, c in zip(self.references, self.candidates, strict=True)]
        self.trace()
        self.server.spares_ready()
        return sides

    def freed_bytes(self, side: Side) -> int | None:
        """Device memory that comes free when a side's process ends: all that it held, its context among it.

        For where the library does not tell processes apart; nothing else may be starting or ending meanwhile.
        """
        before = self.memory.used() if self.memory is not None else None
        side.handle.close()
        after = self.memory.used() if self.memory is not None else None
        return None if before is None or after is None else max(0, before - after)

    def trace(self) -> dict[str, Any]:
        """Device kernels of the candidate; says why where there are none."""
        if self.tracing is None:
            return {}
        try:
            return self.tracing.result()
        except (WorkerFailure, ReferenceRaised) as error:
            return {"trace_note": f"no trace: {str(error)[:200]}"}

    def close(self) -> None:
        """End every process and wait for the threads, which then have nothing to wait for."""
        for group in self.groups:
            group.end()
        self.pool.shutdown(wait=True, cancel_futures=True)
        for future in (*self.references, *self.candidates):
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().handle.close()

    def _reference(self, group: Group, index: int) -> Side:
        reference = Reference(group, self.problem, case=self.case, timeout_s=300.0)
        init, arguments = reference.init_inputs(), reference.inputs(11, self.dtype)
        floats = [t.dtype for t in arguments.tensors if t.is_floating_point()]
        dtype = self.dtype or (str(floats[0]).removeprefix("torch.") if floats else "float32")
        key = reference.place(arguments).key
        with _Weighed(reference, key, self.memory if index == 0 else None) as weighed:
            reference.build(init, seed=1, dtype=dtype)
        notes = {}
        if self.compiled:
            try:
                reference.ask({"op": "time", "phase": "compile", "variant": "compile", "key": key})
            except ReferenceRaised as error:
                notes["compile"] = f"could not be compiled: {str(error)[:120]}"
        return Side(handle=reference, footprint=weighed.footprint, notes=notes)

    def _candidate(self, group: Group, source: Source, exam: Exam, index: int) -> Side:
        candidate = Candidate(group, source, exam, case=self.case, timeout_s=180.0)
        trial = timing_trials(exam)[0]
        key = candidate.handle.place(trial.arguments).key
        with _Weighed(candidate.handle, key, self.memory if index == 0 else None) as weighed:
            _stand(candidate, trial)
        return Side(handle=candidate.handle, footprint=weighed.footprint, notes={})

    def _traced(self, group: Group, source: Source, exam: Exam) -> dict[str, Any]:
        """Kernels of one call; an output that is wrong under the profiler says so, and its trace counts for nothing."""
        candidate = Candidate(group, source, exam, case=self.case, timeout_s=180.0)
        try:
            trial = timing_trials(exam)[0]
            _stand(candidate, trial)
            candidate.restore()
            key = candidate.handle.place(trial.arguments).key
            found = candidate.handle.ask({"op": "time", "phase": "trace", "key": key, "seed": trial.seed})
            wrong = "" if candidate.has_buffers else wrong_output(found["tensors"], trial)
            kept = {name: found[name] for name in ("kernels", "span_us", "launches", "within")}
            return kept | ({"wrong_when_traced": wrong} if wrong else {})
        finally:
            candidate.close()


def _stand(candidate: Candidate, trial: Trial) -> None:
    candidate.build()
    candidate.current = (0, 0)
    candidate.stand(0, trial.state)


def wrong_output(tensors: list[torch.Tensor], trial: Trial) -> str:
    """How an output of a trial is wrong; '' where it is right."""
    if len(tensors) != len(trial.sticks):
        return f"{len(tensors)} tensors instead of {len(trial.sticks)}"
    for tensor, stick in zip(tensors, trial.sticks, strict=True):
        if tensor.shape != stick.truth.shape:
            return f"shape {tuple(tensor.shape)}"
        found = judge(tensor, stick)
        if found.precision in (PrecisionClass.NONE, PrecisionClass.APPROX):
            return found.detail
    return ""


class _Weighed:
    """Device memory before a model is built and after it has been called."""

    def __init__(self, handle: Handle, key: str, memory: DeviceMemory | None) -> None:
        self.handle, self.key, self.memory = handle, key, memory
        self.footprint: Footprint | None = None

    def _ask(self, when: str) -> dict[str, Any]:
        return self.handle.ask({"op": "time", "phase": "footprint", "when": when, "key": self.key})

    def __enter__(self) -> _Weighed:
        if self.memory is not None:
            self.before = self._ask("before")
            self.device_before = self.memory.of(self.handle.worker.pid)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.memory is None or kind is not None:
            return
        after = self._ask("after")
        pid = self.handle.worker.pid
        device_after = self.memory.of(pid)
        with Peak(self.memory, pid) as peak:
            self.handle.ask(
                {"op": "burst", "keys": [self.key], "seeds": [1], "count": 400, "seconds": 0.15, "judged": False}
            )
        known = self.device_before is not None and device_after is not None and peak.bytes is not None
        self.footprint = Footprint(
            persistent_bytes=int(after["allocated_bytes"]) - int(self.before["allocated_bytes"]),
            transient_bytes=int(after["peak_bytes"]) - int(after["allocated_bytes"]),
            device_persistent_bytes=(device_after or 0) - (self.device_before or 0) if known else None,
            device_transient_bytes=max(0, (peak.bytes or 0) - (device_after or 0)) if known else None,
        )
