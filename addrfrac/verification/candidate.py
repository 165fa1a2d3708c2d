"""One candidate's process, put through an exam trial by trial."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from addrfrac.verification.closeness import Judgement, judge, norm, widened
from addrfrac.verification.exam import Exam, Trial
from addrfrac.verification.parameters import Mapping, mapped_entries, match
from addrfrac.verification.processes import Group, Server, WorkerFailure
from addrfrac.verification.records import Check, PrecisionClass, Status
from addrfrac.verification.reference import Handle, Output, ReferenceRaised, raised_or
from addrfrac.verification.schema import compare_schema
from addrfrac.verification.screen import imported_packages
from addrfrac.verification.sources import Source

SENTINELS = (0x7F, 0xFE)
"""Two patterns that free memory is filled with in turn, both huge or NaN in every floating format; what follows them
was never written."""
ORDER = (
    PrecisionClass.EXACT,
    PrecisionClass.FP32,
    PrecisionClass.TF32,
    PrecisionClass.HALF,
    PrecisionClass.APPROX,
    PrecisionClass.NONE,
)


@dataclass(slots=True, kw_only=True)
class Result:
    """What one trial showed."""

    trial: Trial
    status: Status
    detail: str
    precision: PrecisionClass
    figure: float
    output: Output | None = None


@dataclass(slots=True)
class Findings:
    """Everything that an examination gathers."""

    checks: list[Check] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    precision: PrecisionClass = PrecisionClass.EXACT
    facts: dict[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    layers: tuple[Any, ...] = ()
    mapping: str = ""

    def add(self, name: str, status: Status, detail: str, figure: float | None = None, limit: float | None = None):  # type: ignore[no-untyped-def]
        """Note one check."""
        passed = status is Status.PASSED
        if figure is not None and not math.isfinite(figure):
            figure = None
        self.checks.append(Check(name=name, passed=passed, status=status, detail=detail, figure=figure, limit=limit))


class Candidate:
    """A candidate's process with the exam that it sits."""

    def __init__(self, server: Server | Group, source: Source, exam: Exam, *, case: int, timeout_s: float) -> None:
        self.exam = exam
        self.handle = Handle(server, source, role="candidate", case=case, timeout_s=timeout_s)
        self.current: tuple[int, int] | None = None
        self.mapping = Mapping(names=(), how="none needed")
        self.calls = 0
        self.setup_s = 0.0
        self.has_buffers = False
        self.imports = imported_packages(source.text)
        self.private_bytes = self.handle.private_at_start

    def close(self) -> None:
        """End the process."""
        self.handle.close()

    def build(self, construct: int = 0, reseed: int | None = None) -> None:
        """Construct the candidate and find its parameters."""
        made = self.exam.constructs[construct]
        answer = self.handle.build(made.init, seed=self.exam.build_seed, dtype=self.exam.dtype, reseed=reseed)
        self.setup_s = float(answer.get("setup_s", 0.0))
        entries = self.handle.entries()
        self.mapping = match(made.entries, entries)
        self.has_buffers = any(entry.kind == "buffer" for entry in made.entries)

    def stand(self, construct: int, state: int) -> bool:
        """Put the candidate into a construct and state; False where its parameters cannot be set."""
        if self.current == (construct, state):
            return True
        wanted = self.exam.constructs[construct].states[state]
        again = wanted.how == "initial" and not self.mapping.found  # its own values are nowhere but in a new build
        if self.current is None or self.current[0] != construct or wanted.how == "reseed" or again:
            self.build(construct, wanted.reseed)
        elif wanted.how == "initial":
            self._set(construct, state, "in place")
        if wanted.values:
            if not self.mapping.found:
                return False
            self._set(construct, state, "load" if wanted.how == "load" else "in place")
        self.current = (construct, state)
        return True

    def _set(self, construct: int, state: int, how: str) -> None:
        made = self.exam.constructs[construct]
        wanted = made.states[state].values or [entry.value for entry in made.entries]
        values = dict(zip([entry.name for entry in made.entries], wanted, strict=True))
        ordered = [values[entry.name] for entry in mapped_entries(made.entries, self.mapping)]
        self.handle.set_values(list(self.mapping.names), ordered, how=how)

    def restore(self) -> None:
        """Buffers as the trial wants them, where calls may move them."""
        if self.has_buffers and self.mapping.found and self.current is not None and not self.exam.reseeded:
            self._set(*self.current, "in place")

    def call(self, trial: Trial, **options: Any) -> Output:
        """One call of a trial under the next sentinel."""
        options.setdefault("poison", SENTINELS[self.calls % 2])
        options.setdefault("poison_sizes", [t.numel() * t.element_size() for t in trial.native.tensors])
        self.calls += 1
        return self.handle.call(trial.arguments, seed=trial.seed, **options)

    def burst(self, trials: list[Trial], count: int, seconds: float) -> list[Result]:
        """Many calls in a row, one or two contents in turn; what bounds the outputs of each is judged."""
        arenas = [self.handle.place(trial.arguments, spare=index > 0) for index, trial in enumerate(trials)]
        judged = not self.has_buffers and all(t.native.tensors for t in trials)
        request = {"op": "burst", "keys": [a.key for a in arenas], "seeds": [t.seed for t in trials], "count": count}
        answer = raised_or(self.handle.worker.ask(request | {"seconds": seconds, "judged": judged}))
        tensors = list(answer["tensors"])
        if [int(n) for n in answer["counts"]] != [2 * len(t.sticks) if judged else 0 for t in trials]:
            if int(answer["done"]) >= len(trials):
                return [self._result(trials[0], Status.WRONG_SCHEMA, "other outputs when many calls follow each other")]
            return []
        found = []
        for trial in trials if judged else []:
            bounds, tensors = tensors[: 2 * len(trial.sticks)], tensors[2 * len(trial.sticks) :]
            found.append(self._bounded(trial, bounds, int(answer["done"])))
        return found

    def _bounded(self, trial: Trial, bounds: list[torch.Tensor], count: int) -> Result:
        """The largest and the smallest values of many outputs, each judged as an output."""
        worst: Judgement | None = None
        for index, bound in enumerate(bounds):
            stick = trial.sticks[index // 2]
            tensor = torch.view_as_complex(bound) if stick.truth.is_complex() else bound
            if tensor.shape != stick.truth.shape:
                return self._result(trial, Status.WRONG_SCHEMA, "another shape when many calls follow each other")
            found = judge(tensor, stick)
            if worst is None or (ORDER.index(found.precision), found.figure) > (
                ORDER.index(worst.precision),
                worst.figure,
            ):
                worst = found
        assert worst is not None
        status = Status.WRONG_VALUES if worst.precision is PrecisionClass.NONE else Status.PASSED
        detail = f"{worst.detail} at the edge of {count} calls in a row"
        return Result(trial=trial, status=status, detail=detail, precision=worst.precision, figure=worst.figure)

    def changes_inputs(self, trial: Trial) -> bool:
        """Whether the reference itself writes to its inputs, or hands them out."""
        kept = all(same_bytes(a, g) for a, g in zip(trial.after, trial.arguments.tensors, strict=True))
        return not kept or any(info.get("overlaps") for info in trial.native.infos)

    def sit(self, trial: Trial, **options: Any) -> Result:
        """One trial, judged; an exception of the candidate's is `RAISED`."""
        try:
            if not self.stand(trial.construct, trial.state):
                return self._result(trial, Status.PARAMETERS_NOT_VARIED, "its parameters could not be set")
            self.restore()
            output = self.call(trial, **options)
        except ReferenceRaised as error:
            return self._result(trial, Status.RAISED, str(error))
        return self.judge(trial, output)

    def judge(self, trial: Trial, output: Output) -> Result:
        """Schema, inputs, random state, values and change of one output."""
        # for an input of an unusual layout either layout of the output is right
        held = [entry.value for entry in self.exam.constructs[trial.construct].entries]
        given = None if trial.kind == "layout" else [*trial.arguments.tensors, *held]
        differs = compare_schema(output, trial.native, given=given)
        if differs:
            return self._result(trial, *differs, output)
        touched = self._inputs_differ(trial, output)
        if touched:
            return self._result(trial, Status.CHANGED_STATE, touched, output)
        if output.rng != trial.native.rng:
            return self._result(
                trial, Status.CHANGED_STATE, "the random state is not as the reference leaves it", output
            )
        found = [judge(tensor, stick) for tensor, stick in zip(output.tensors, trial.sticks, strict=True)]
        worst = max(found, key=lambda j: (ORDER.index(j.precision), j.figure), default=None)
        if worst is None:
            return self._result(trial, Status.PASSED, "no output", output)
        precision = worst.precision
        detail = worst.detail
        if precision is not PrecisionClass.NONE and trial.change is not None:
            precision, detail = self._change(trial, output, worst)
        status = Status.WRONG_VALUES if precision is PrecisionClass.NONE else Status.PASSED
        return Result(
            trial=trial, status=status, detail=detail, precision=precision, figure=worst.figure, output=output
        )

    def _result(self, trial: Trial, status: Status, detail: str, output: Output | None = None) -> Result:
        precision = PrecisionClass.NONE if status is not Status.PASSED else PrecisionClass.EXACT
        return Result(trial=trial, status=status, detail=detail, precision=precision, figure=math.inf, output=output)

    def _inputs_differ(self, trial: Trial, output: Output) -> str:
        """What happened to the inputs, read from memory that the trusted side owns."""
        for index, (mine, theirs, given) in enumerate(
            zip(output.inputs_after, trial.after, trial.arguments.tensors, strict=True)
        ):
            if same_bytes(mine, theirs):
                continue
            if same_bytes(theirs, given):
                return f"input {index} was changed"
            if mine.is_floating_point() and norm(widened(mine) - widened(theirs)) > 1e-2 * norm(widened(theirs)):
                return f"input {index} was changed otherwise than by the reference"
        for index in output.facts.get("changed_on_device") or ():
            if same_bytes(trial.after[index], trial.arguments.tensors[index]):
                return f"input {index} or memory beside it was changed"
        arena = self.handle.place_of(trial.arguments)
        if arena is not None and arena.guards_changed():
            return "memory beside an input was written"
        return ""

    def _change(self, trial: Trial, output: Output, worst: Judgement) -> tuple[PrecisionClass, str]:
        """The class that a probe's change reaches, no finer than the whole output's."""
        assert trial.change is not None
        squares = 0.0
        for tensor, stick, mask in zip(output.tensors, trial.sticks, trial.change.mask, strict=True):
            if stick.ambiguous is None:
                squares += norm((widened(tensor) - stick.truth)[mask]) ** 2
        share = math.sqrt(squares) / trial.change.size
        for precision, noise in trial.change.noise.items():
            if ORDER.index(precision) >= ORDER.index(worst.precision) and share <= min(noise, 0.5):
                return precision, worst.detail
        return PrecisionClass.NONE, f"one element changed: the answer to it is off by {share:.2g} of the change"


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.numel() == 0:
        return True
    mine, theirs = one.contiguous(), other.contiguous()
    return bool(torch.equal(mine.flatten().view(torch.uint8), theirs.flatten().view(torch.uint8)))


__all__ = ["Candidate", "Findings", "Result", "WorkerFailure", "same_bytes"]
