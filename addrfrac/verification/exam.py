"""A problem in, an exam out: inputs, states and shapes with the truth of each and what it may be missed by.

The exam is made by the trusted side with the reference's process alone, before any candidate exists; one exam serves
many candidates (each starts from a process that knows nothing of it).
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from addrfrac.verification import inputs as distributions
from addrfrac.verification.closeness import Print, Yardstick, class_epsilon, norm, print_of, widened, yardstick
from addrfrac.verification.invariants import Invariant, find_invariants
from addrfrac.verification.parameters import Entry, coarse_values, randomised
from addrfrac.verification.precision import EPSILON
from addrfrac.verification.processes import Server
from addrfrac.verification.records import PrecisionClass, Protocol
from addrfrac.verification.reference import Arguments, Output, Reference, ReferenceRaised
from addrfrac.verification.sources import ProblemText, Source, read_problem

USABLE_ERROR = 1e-2
"""A reference further from fp64 than this (relative Frobenius) is rounding noise and gives no truth."""
WELL_CONDITIONED = 5e-4
"""On inputs of our own making an fp32 reference must stay this close, or milder ones are taken."""
FEWEST_DISTRIBUTIONS = 4
_HALVES = ("bfloat16", "float16")


class Unverifiable(Exception):
    """The problem gives no truth to compare with; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """Parameters and buffers that trials are taken at."""

    name: str
    how: str
    """'initial', 'load', 'in place' or 'reseed'."""
    values: list[torch.Tensor]
    """In the order of the reference's entries; empty for 'initial' and 'reseed'."""
    reseed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Construct:
    """One way to build the model."""

    name: str
    init: Arguments
    entries: list[Entry]
    states: list[ModelState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a probe must change: positions and size of the change against the trial it started from."""

    mask: list[torch.Tensor]
    size: float
    """Norm of the true change over the mask."""
    noise: dict[PrecisionClass, float]
    """What an honest output of a class may miss it by, over `size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One call of the exam."""

    name: str
    kind: str
    """'distribution', 'probe', 'swap', 'coarse', 'shape', 'layout' or 'construct'."""
    construct: int
    state: int
    arguments: Arguments
    seed: int
    sticks: list[Yardstick]
    native: Output
    after: list[torch.Tensor]
    """Inputs as the reference leaves them."""
    change: Change | None = None


@dataclass(slots=True, kw_only=True)
class Exam:
    """All that a candidate is asked, with the answers."""

    problem: Source
    text: ProblemText
    dtype: str
    build_seed: int
    constructs: list[Construct]
    trials: list[Trial]
    planned: int
    replaced: list[str]
    reduction_length: float
    matmul: bool
    operations: dict[str, Any]
    trains: bool
    published: list[Arguments]
    gradients: list[Gradients] = field(default_factory=list)
    effects: Effects | None = None
    sequence: Sequence | None = None
    specials: list[Special] = field(default_factory=list)
    invariants: list[Invariant] = field(default_factory=list)
    random: bool = False
    """Its output depends on the random state."""
    weak: str = ""
    """Name of a decoy that passes everything; '' where none does."""
    unverifiable: str = ""
    refused_shapes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reseeded: bool = False
    device: str = "cpu"

    @property
    def distributions(self) -> list[Trial]:
        """Trials at the published shape."""
        return [trial for trial in self.trials if trial.kind == "distribution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """What gradients must be at one set of inputs, where the reference has any."""

    arguments: Arguments
    seed: int
    cotangents: list[int]
    names: list[str]
    state: int
    sticks: list[Yardstick | None]
    """None where the reference's own gradient is rounding noise (of a sum of what sums to nothing)."""
    own: list[float]
    """Relative Frobenius error of the reference's own gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """What the reference makes of unusual numbers; told, not part of the pass rule."""

    name: str
    arguments: Arguments
    seed: int
    state: int
    native: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What one call leaves in parameters and buffers."""

    trial: Trial
    after: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """What several calls in a row leave in parameters and buffers."""

    trials: list[Trial]
    after: list[Entry]


class Maker:
    """Makes the trials of one exam with a reference's process."""

    def __init__(self, reference: Reference, exam: Exam, secret: int) -> None:
        self.reference, self.exam = reference, exam
        self.generator = torch.Generator().manual_seed(secret)
        self.current: tuple[int, int] | None = None
        # few seeds for many contents: neither tells the other
        self.call_seeds = [self.seed() | 1, self.seed() & ~1, self.seed() >> 20, self.seed()]
        self.made = 0

    def seed(self) -> int:
        """A fresh secret seed."""
        return int(torch.randint(1 << 31, (1,), generator=self.generator))

    def stand(self, construct: int, state: int) -> None:
        """Put the reference into a construct and state."""
        if self.current == (construct, state):
            return
        made = self.exam.constructs[construct]
        wanted = made.states[state]
        if self.current is None or self.current[0] != construct or wanted.how in ("initial", "reseed"):
            self.reference.build(made.init, seed=self.exam.build_seed, dtype=self.exam.dtype, reseed=wanted.reseed)
        if wanted.values:
            self.reference.set_values([entry.name for entry in made.entries], wanted.values, how="in place")
        self.current = (construct, state)

    def restore(self) -> None:
        """The state's values again, after a call that may have updated buffers."""
        if self.current is not None:
            construct, state = self.current
            made = self.exam.constructs[construct]
            values = made.states[state].values or [entry.value for entry in made.entries]
            if values and any(entry.kind == "buffer" for entry in made.entries) and not made.states[state].reseed:
                self.reference.set_values([entry.name for entry in made.entries], values, how="in place")

    def trial(
        self,
        name: str,
        kind: str,
        arguments: Arguments,
        construct: int,
        state: int,
        *,
        length: float | None = None,
        coarse: bool = False,
    ) -> Trial:
        """Call the reference in every way that the limits need; `Unverifiable` where it gives no truth.

        `length` is the length of its reductions where that is not the exam's. With `coarse` it gives none unless
        rounding the inputs to TF32 changes nothing; then no coarser class is an excuse.
        """
        self.stand(construct, state)
        seed = self.call_seeds[self.made % len(self.call_seeds)]
        self.made += 1
        dtype = self.exam.dtype
        coarser = self._coarser()
        printed = kind == "distribution" and dtype == "float32"
        hows = ["exact", "nudged", *sorted({*coarser.values(), *(["tf32"] if printed or coarse else [])})]
        answers = dict(zip(hows, self.reference.truths(arguments, hows=hows, seed=seed, dtype=dtype), strict=True))
        truth, nudged = answers["exact"], answers["nudged"]
        native = self.reference.call(arguments, seed=seed)
        after = [t.clone() for t in native.inputs_after]
        self.restore()
        if len(native.tensors) != len(truth):
            raise Unverifiable("the reference returns something else in fp64")
        if not all(bool(torch.isfinite(t).all()) for t in (*truth, *native.tensors) if t.is_floating_point()):
            raise Unverifiable("the reference overflows")
        if name != "published" and self._revives(truth):
            raise Unverifiable("its products leave the dtype's range and come back")
        honest = {PrecisionClass.HALF if dtype in _HALVES else PrecisionClass.FP32: native.tensors}
        if not coarse:
            honest |= {precision: answers[how] for precision, how in coarser.items()}
        elif not all(torch.equal(a, b) for a, b in zip(truth, answers["tf32"], strict=True)):
            raise Unverifiable("rounding its inputs changes the answer")
        rms = [_rms(t) for t in arguments.tensors if t.is_floating_point()]
        sticks = [
            yardstick(
                t,
                {precision: [outputs[i]] for precision, outputs in honest.items()},
                dtype=dtype,
                reduction_length=length or self.exam.reduction_length,
                input_rms=min(rms, default=0.0),
                nudged=nudged[i],
                inputs=arguments.tensors,
            )
            for i, t in enumerate(truth)
        ]
        if printed:
            sticks = [
                stick
                if stick.sizes is None
                else replace(stick, prints=_prints(t, answers["tf32"][i], answers["half"][i]))
                for i, (stick, t) in enumerate(zip(sticks, truth, strict=True))
            ]
        for stick, output in zip(sticks, native.tensors, strict=True):
            if stick.ambiguous is not None:
                if stick.truth.numel() and float(stick.ambiguous.double().mean()) > 0.5:
                    raise Unverifiable("most of its integers are near ties")
            elif _off_by(output, stick) > self._usable(name):
                raise Unverifiable("the reference is rounding noise")
        return Trial(
            name=name,
            kind=kind,
            construct=construct,
            state=state,
            arguments=arguments,
            seed=seed,
            sticks=sticks,
            native=native,
            after=after,
        )

    def _revives(self, truth: list[torch.Tensor]) -> bool:
        """Whether a running product passes below the dtype's range and grows again: in that dtype it stays at zero."""
        if not any("cumprod" in str(name) for name in self.exam.operations.get("operations", [])):
            return False
        tiny = 1e-36

        def along(tensor: torch.Tensor, dim: int) -> bool:
            lowest = tensor.abs().cummin(dim).values
            return bool(((lowest < tiny) & (tensor.abs() > 1e6 * tiny)).any())

        # along the running dimension and therefore along all: other dimensions alone only hold unlike rows
        return any(
            t.ndim and all(along(t, dim) for dim in range(t.ndim) if t.shape[dim] > 1)
            for t in truth
            if t.is_floating_point() and t.numel()
        )

    def _usable(self, name: str) -> float:
        """How far the reference may be from fp64 itself; inputs of our own making must leave it well conditioned."""
        if self.exam.dtype in _HALVES:
            return 2 * USABLE_ERROR
        return USABLE_ERROR if name == "published" else WELL_CONDITIONED

    def _coarser(self) -> dict[PrecisionClass, str]:
        """Classes coarser than the dtype's own, finest first, with the rounding of each."""
        if self.exam.dtype in _HALVES:
            return {}
        half = {PrecisionClass.HALF: "half"}
        return {PrecisionClass.TF32: "tf32", **half} if self.exam.matmul else half


def _prints(truth: torch.Tensor, tf32: torch.Tensor, half: torch.Tensor) -> tuple[Print, ...]:
    """Errors of inputs and of answers rounded to fewer bits, coarsest first."""
    if not truth.is_floating_point():
        return ()
    found = (
        print_of(PrecisionClass.HALF, "inputs rounded to bfloat16", half, truth),
        print_of(PrecisionClass.HALF, "answers rounded to bfloat16", truth.bfloat16(), truth),
        print_of(PrecisionClass.HALF, "answers rounded to float16", truth.half(), truth),
        print_of(PrecisionClass.TF32, "inputs rounded to ten bits", tf32, truth),
    )
    return tuple(p for p in found if p is not None)


def _off_by(output: torch.Tensor, stick: Yardstick) -> float:
    """Relative Frobenius error of the reference itself."""
    assert stick.sizes is not None
    least = stick.floor * math.sqrt(stick.sizes.numel) + 1e-300
    return norm(widened(output) - stick.truth) / max(stick.sizes.norm, least)


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0


def prepare(
    server: Server,
    problem: Source,
    protocol: Protocol,
    *,
    case: int = 0,
    dtype: str = "",
    quick: bool = False,
    reseeded: bool = False,
    secret: int | None = None,
    timeout_s: float = 120.0,
) -> Exam:
    """The exam of a problem; with `reseeded`, states are builds whose constants drew random values."""
    from addrfrac.verification.decoys import find_decoy
    from addrfrac.verification.probes import make_probes
    from addrfrac.verification.shapes import make_shapes

    secret = secrets.randbits(62) if secret is None else secret
    text = read_problem(problem)
    with Reference(server, problem, case=case, timeout_s=timeout_s) as reference:
        exam = _begin(reference, problem, text, dtype, secret, reseeded)
        exam.device = server.device
        maker = Maker(reference, exam, secret ^ 0x5EED)
        _distribution_trials(maker, protocol, quick)
        if not exam.unverifiable:
            make_probes(maker, count=6 if quick else 16)
            _coarse_trial(maker)
            make_shapes(maker, quick=quick)
            _gradient_truth(maker)
            _effects(maker)
            _special_values(maker)
            exam.weak = find_decoy(maker)
            taken = exam.distributions
            exam.invariants = find_invariants(
                [[stick.truth for stick in trial.sticks] for trial in taken], [t.arguments.tensors for t in taken]
            )
    return exam


def _begin(reference: Reference, problem: Source, text: ProblemText, dtype: str, secret: int, reseeded: bool) -> Exam:
    build_seed = 1 + secret % 1_000_003
    init = reference.init_inputs()
    first = reference.inputs(secret % (1 << 31) + 11, dtype)
    floats = [t.dtype for t in first.tensors if t.is_floating_point()]
    dtype = dtype or (str(floats[0]).removeprefix("torch.") if floats else "float32")
    reference.build(init, seed=build_seed, dtype=dtype)
    entries = reference.entries()
    generator = torch.Generator().manual_seed(secret ^ 0xABCDEF)
    traced = _traced(reference, first)
    states = [ModelState(name="initial", how="initial", values=[])]
    if entries and reseeded:
        for index in (1, 2):
            states.append(ModelState(name=f"reseeded {index}", how="reseed", values=[], reseed=secret % 99_991 + index))
    elif entries:
        drawn = randomised(entries, generator)
        states.append(ModelState(name="random, loaded", how="load", values=drawn))
        again = randomised(
            [Entry(name=e.name, kind=e.kind, value=v) for e, v in zip(entries, drawn, strict=True)], generator
        )
        states.append(ModelState(name="random, in place", how="in place", values=again))
    return Exam(
        problem=problem,
        text=text,
        dtype=dtype,
        build_seed=build_seed,
        constructs=[Construct(name="published", init=init, entries=entries, states=states)],
        trials=[],
        planned=0,
        replaced=[],
        reduction_length=1.0,
        matmul=bool(traced.get("matmul", True)),
        operations=traced,
        trains=bool(reference.loaded.get("trains")),
        published=[first],
        reseeded=reseeded,
    )


def _traced(reference: Reference, arguments: Arguments) -> dict[str, Any]:
    try:
        return reference.traced(arguments, 1)
    except ReferenceRaised:
        return {}


def _distribution_trials(maker: Maker, protocol: Protocol, quick: bool) -> None:
    """One trial for each distribution, its hardest strength that the reference survives, each at another state."""
    exam = maker.exam
    names = protocol.distributions[:8] if quick else protocol.distributions
    exam.planned = len(names)
    states = len(exam.constructs[0].states)
    exam.reduction_length = reduction_length(maker, exam.published[0], states - 1)
    for index, name in enumerate(names):
        state = 0 if index < 2 or states == 1 else 1 + index % (states - 1)
        trial, note = _distribution_trial(maker, name, state)
        if note:
            exam.replaced.append(note)
        if trial is not None:
            exam.trials.append(trial)
    exam.trials.sort(key=lambda trial: trial.state)
    distinct = {trial.name for trial in exam.trials}
    if not any(name.startswith("published") for name in distinct):
        exam.unverifiable = next((n for n in exam.replaced if n.startswith("published")), "no truth as published")
    elif len(distinct) < FEWEST_DISTRIBUTIONS:
        exam.unverifiable = f"only {len(distinct)} distributions have a truth, fewest {FEWEST_DISTRIBUTIONS}"
    elif _constant(exam.trials):
        exam.unverifiable = "its output is the same constant whatever the input"


def _distribution_trial(maker: Maker, name: str, state: int) -> tuple[Trial | None, str]:
    reasons = []
    for stand_in in (name, *distributions.RESERVE) if name != "published" else (name,):
        distribution = distributions.DISTRIBUTIONS[stand_in]
        for only in (None, *_float_positions(maker)):
            for strength in distribution.strengths:
                base = maker.reference.inputs(maker.seed(), maker.exam.dtype)
                maker.exam.published.append(base)
                arguments = _varied(maker, base, distribution, strength, only)
                label = stand_in if stand_in == name else f"{stand_in} for {name}"
                try:
                    trial = maker.trial(label, "distribution", arguments, 0, state)
                except (ReferenceRaised, Unverifiable) as error:
                    reasons.append(str(error))
                    continue
                return trial, "" if stand_in == name else f"{name} ({reasons[0]}): {stand_in} instead"
            if stand_in == name and name == "published":
                break
    return None, f"{name}: {reasons[0] if reasons else 'no truth'}"


def _float_positions(maker: Maker) -> list[int]:
    """Floating inputs, for varying one at a time; empty where there is only one."""
    positions = [i for i, t in enumerate(maker.exam.published[0].tensors) if t.is_floating_point()]
    return positions if 1 < len(positions) <= 4 else []


def _varied(
    maker: Maker, base: Arguments, distribution: distributions.Distribution, strength: float, only: int | None
) -> Arguments:
    patterns = _patterns(maker) if distribution.name not in ("published", "x3", "x0.01", "negated") else ()
    tensors = distributions.vary(
        base.tensors,
        distribution,
        strength,
        maker.generator,
        distributions.breakpoints_of(maker.exam.text.constants),
        only,
        patterns,
    )
    if distribution.name in ("redrawn-ids", "ragged"):
        how = "ragged" if distribution.name == "ragged" else "spread"
        redrawn = distributions.redraw_integers(tensors, maker.generator, how)
        tensors = [r if not t.is_floating_point() else t for r, t in zip(redrawn, tensors, strict=True)]
    return Arguments(tree=base.tree, tensors=tensors)


def _patterns(maker: Maker) -> tuple[torch.Tensor | None, ...]:
    """Zero patterns that every draw has and the problem's text promises."""
    if not maker.exam.text.promises or len(maker.exam.published) < 2:
        return ()
    draws = maker.exam.published[:3]
    return tuple(distributions.zero_pattern([draw.tensors[i] for draw in draws]) for i in range(len(draws[0].tensors)))


def reduction_length(maker: Maker, base: Arguments, state: int) -> float:
    """How many inputs an output element depends on, from single changes in fp64: changed outputs x inputs / outputs."""
    longest = 1.0
    maker.stand(0, state)
    try:
        before = maker.reference.truth(base, how="exact", seed=5, dtype=maker.exam.dtype)
        for index, tensor in enumerate(base.tensors):
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            changed = [t.clone() for t in base.tensors]
            flat = distributions.elements(changed[index])
            position = int(torch.randint(flat.numel(), (1,), generator=maker.generator))
            flat[position] = flat[position] * 1.5 + 0.5 * (_rms(tensor) or 1.0)
            after = maker.reference.truth(
                Arguments(tree=base.tree, tensors=changed), how="exact", seed=5, dtype="float64"
            )
            for a, b in zip(after, before, strict=True):
                if a.shape == b.shape and a.is_floating_point() and a.numel():
                    touched = int((a != b).sum())
                    longest = max(longest, touched * tensor.numel() / a.numel())
    except (ReferenceRaised, ValueError, RuntimeError):
        return max(t.numel() for t in base.tensors) ** 0.5 if base.tensors else 1.0
    parameters = [entry.value.numel() for entry in maker.exam.constructs[0].entries]
    return min(longest, float(max([t.numel() for t in base.tensors] + parameters, default=1)))


def _constant(trials: list[Trial]) -> bool:
    """Whether every output of every trial is one and the same number."""
    values = set()
    for trial in trials:
        for stick in trial.sticks:
            if stick.truth.numel() == 0:
                continue
            flat = stick.truth.flatten()
            if flat.numel() > 1 and not bool((flat == flat[0]).all()):
                return False
            values.add(float(flat[0].real if flat.is_complex() else flat[0]))
    return len(values) <= 1


_ONE_PRODUCT = frozenset({"mm", "bmm", "addmm", "baddbmm", "convolution", "mv", "addmv", "linear", "mkldnn_linear"})
_BESIDE_IT = frozenset(
    {"relu", "gelu", "sigmoid", "tanh", "silu", "mul", "add", "sub", "div", "neg", "leaky_relu", "hardtanh", "clamp"}
    | {"hardswish", "hardsigmoid", "mish", "softplus", "elu", "exp", "where", "clone", "expand", "abs", "square"}
    | {"clamp_min", "clamp_max", "rsub", "threshold", "contiguous", "_to_copy", "copy_", "selu", "celu", "log_sigmoid"}
)


def _coarse_trial(maker: Maker) -> None:
    """Numbers of few bits, where one product and what goes with it element by element is all there is.

    Operands rounded to TF32 are then what they were, so an answer that is off by more than fp32 is off for another
    reason: an approximate function, a term left out.
    """
    exam = maker.exam
    counts = [str(entry).partition(" x") for entry in exam.operations.get("operations", [])]
    products = sum(int(times or 1) for name, _, times in counts if name in _ONE_PRODUCT)
    others = {name for name, _, _ in counts if name not in _ONE_PRODUCT}
    if exam.dtype != "float32" or exam.reseeded or products != 1 or others - _BESIDE_IT:
        return
    made = exam.constructs[0]
    state = exam.distributions[-1].state
    if made.entries:
        values = coarse_values(made.entries, made.states[state].values, maker.generator)
        made.states.append(ModelState(name="coarse", how="in place", values=values))
        state = len(made.states) - 1
    base = maker.reference.inputs(maker.seed(), exam.dtype)
    arguments = _varied(maker, base, distributions.COARSE, 1.0, None)
    try:
        exam.trials.append(maker.trial("numbers of few bits", "coarse", arguments, 0, state, coarse=True))
    except (ReferenceRaised, Unverifiable) as error:
        exam.notes.append(f"no trial with numbers of few bits: {error}")
        maker.current = None


def _special_values(maker: Maker) -> None:
    """The reference's answers to NaN, to infinities, and to zeros of both signs among subnormal numbers."""
    exam = maker.exam
    trial = exam.distributions[-1]
    for name in ("NaN", "infinity", "zeros and subnormal numbers"):
        tensors = [_with_specials(t, name, maker) for t in trial.arguments.tensors]
        arguments = Arguments(tree=trial.arguments.tree, tensors=tensors)
        seed = maker.seed()
        maker.stand(0, trial.state)
        try:
            native = maker.reference.call(arguments, seed=seed)
        except ReferenceRaised:
            continue
        finally:
            maker.restore()
        exam.specials.append(Special(name=name, arguments=arguments, seed=seed, state=trial.state, native=native))


def _with_specials(tensor: torch.Tensor, name: str, maker: Maker) -> torch.Tensor:
    tensor = tensor.clone()
    if not tensor.is_floating_point() or tensor.numel() < 16:
        return tensor
    flat = distributions.elements(tensor)
    if name == "NaN":
        flat[maker.seed() % flat.numel()] = math.nan
    elif name == "infinity":
        for value in (math.inf, -math.inf):
            flat[maker.seed() % flat.numel()] = value
    else:
        tiny = torch.finfo(tensor.dtype).smallest_normal / 8
        drawn = torch.randint(8, flat.shape, generator=maker.generator)
        for index, value in enumerate((0.0, -0.0, tiny, -tiny)):
            flat[drawn == index] = value
    return tensor


def _effects(maker: Maker) -> None:
    """Parameters and buffers after one call of the reference."""
    exam = maker.exam
    if not exam.constructs[0].entries:
        return
    trial = exam.distributions[-1]
    maker.current = None
    maker.stand(0, trial.state)
    maker.reference.call(trial.arguments, seed=trial.seed)
    exam.effects = Effects(trial=trial, after=maker.reference.entries())
    maker.restore()
    if not any(entry.kind == "buffer" for entry in exam.constructs[0].entries):
        return
    trials = [t for t in exam.distributions if t.state == trial.state][-3:]
    for each in trials:
        maker.reference.call(each.arguments, seed=each.seed)
    exam.sequence = Sequence(trials=trials, after=maker.reference.entries())
    maker.restore()


def _gradient_truth(maker: Maker) -> None:
    """Gradients of the reference in fp64 and natively, where it has any: at ordinary inputs and far out."""
    exam = maker.exam
    ordinary = next((t for t in exam.distributions if t.name.startswith("signs")), exam.distributions[0])
    far = next((t for t in exam.distributions if t.name.startswith("normal8")), None)
    for trial in (ordinary, far):
        found = _gradients_at(maker, trial) if trial is not None else None
        if found is not None:
            exam.gradients.append(found)


def _gradients_at(maker: Maker, trial: Trial) -> Gradients | None:
    exam = maker.exam
    names = [entry.name for entry in exam.constructs[0].entries if entry.kind == "parameter"]
    cotangents = [maker.seed(), maker.seed(), -1 - maker.seed()]
    maker.stand(0, trial.state)
    try:
        exact = maker.reference.gradients(
            trial.arguments, seed=trial.seed, cotangents=cotangents, names=names, double=True
        )
        native = maker.reference.gradients(
            trial.arguments, seed=trial.seed, cotangents=cotangents, names=names, double=False
        )
    except ReferenceRaised:
        return None
    finally:
        maker.restore()
    if not exact["tensors"] or len(exact["tensors"]) != len(native["tensors"]):
        return None
    if not all(bool(torch.isfinite(t).all()) for t in (*exact["tensors"], *native["tensors"])):
        return None
    pairs = list(zip(exact["tensors"], native["tensors"], strict=True))
    sticks = [_gradient_stick(maker, truth, own) for truth, own in pairs]
    own = [norm(widened(n) - widened(t)) / max(norm(widened(t)), 1e-300) for t, n in pairs]
    return Gradients(
        arguments=trial.arguments,
        seed=trial.seed,
        cotangents=cotangents,
        names=names,
        state=trial.state,
        sticks=sticks,
        own=own,
    )


def _gradient_stick(maker: Maker, truth: torch.Tensor, native: torch.Tensor) -> Yardstick | None:
    exam = maker.exam
    stick = yardstick(
        truth,
        _gradient_classes(truth, native, exam, maker.generator),
        dtype=exam.dtype,
        reduction_length=exam.reduction_length,
        input_rms=max(_rms(truth), 1e-30),
    )
    return stick if stick.sizes is None or _off_by(native, stick) <= 2 * USABLE_ERROR else None


def _gradient_classes(
    truth: torch.Tensor, native: torch.Tensor, exam: Exam, generator: torch.Generator
) -> dict[PrecisionClass, list[torch.Tensor]]:
    """The reference's own gradient, and the truth with noise of the size of each coarser class's rounding."""
    if exam.dtype in _HALVES:
        return {PrecisionClass.HALF: [native]}
    classes = {PrecisionClass.FP32: [native]}
    for precision in (PrecisionClass.TF32, PrecisionClass.HALF):
        noise = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
        classes[precision] = [truth.double() + 0.5 * class_epsilon(precision, exam.dtype) * _rms(truth) * noise]
    return classes


def change_between(before: Trial, after: Trial, exam: Exam) -> Change | None:
    """What a probe changed; None where the change is too small to be seen above honest noise."""
    masks, squares, noise_squares, size_of_truth = [], 0.0, 0.0, 0.0
    for old, new, native in zip(before.sticks, after.sticks, after.native.tensors, strict=True):
        if new.ambiguous is not None or old.truth.shape != new.truth.shape:
            masks.append(torch.zeros(new.truth.shape, dtype=torch.bool))
            continue
        delta = (new.truth - old.truth).abs()
        mask = delta > 1e-3 * float(delta.max()) if delta.numel() and float(delta.max()) > 0 else delta > 0
        masks.append(mask)
        squares += norm(delta[mask]) ** 2
        noise_squares += norm((widened(native) - new.truth)[mask]) ** 2
        size_of_truth += norm(new.truth[mask]) ** 2
    size = math.sqrt(squares)
    if size == 0:
        return None
    noise = {}
    own = 8 * math.sqrt(noise_squares)
    for precision in (PrecisionClass.FP32, PrecisionClass.TF32, PrecisionClass.HALF):
        floor = 64 * EPSILON["float32"] * math.sqrt(max(1.0, exam.reduction_length))
        if precision is not PrecisionClass.FP32:
            floor += 8 * class_epsilon(precision, exam.dtype)
        # a change to exactly zero leaves no truth to be relative to: rounding is of the size of what was there before
        noise[precision] = max(own, floor * max(math.sqrt(size_of_truth), size)) / size
    if noise[PrecisionClass.HALF if exam.dtype in _HALVES else PrecisionClass.FP32] > 0.2:
        return None
    return Change(mask=masks, size=size, noise=noise)
