"""How far an output is from the fp64 truth, and how far it may be for each precision class.

Limits come from what honest computation of the same problem does: its own error in the dtype, its response to inputs
nudged by an ulp or rounded to a class, and a floor for the length of its reductions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from addrfrac.verification.precision import EPSILON
from addrfrac.verification.records import Closeness, PrecisionClass
from addrfrac.verification.ties import Selection, selection_of, wrong_picks

RELATIVE_CAP = 2e-2
MAXIMUM_CAP = 5e-2
HEADROOM = 8.0
FLOOR_EPSILONS = 64.0
NOISE_WEIGHT = 50.0
"""A slice's denominator is at least this many times the honest error of that slice."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one output may differ by to be of one class."""

    precision: PrecisionClass
    relative_frobenius: float
    normalised_max: float
    centred: float
    slices: tuple[torch.Tensor, ...]
    """For each dimension longer than 1 the largest error norm of each index slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the errors of one truth are measured against."""

    floor: float
    norm: float
    spread: float
    """Norm of the distance from its mean."""
    largest: float
    slices: tuple[torch.Tensor, ...]
    leasts: tuple[float, ...]
    """For each of `slices` the norm below which a slice counts as zero."""
    numel: int


def sizes_of(truth: torch.Tensor, floor: float) -> Sizes:
    """Norms of a truth, as a whole and by slices."""
    truth = widened(truth)
    slices = slice_norms(truth)
    count = truth.numel()
    return Sizes(
        floor=floor,
        norm=norm(truth),
        spread=norm(truth - truth.mean()) if count else 0.0,
        largest=float(truth.abs().max()) if count else 0.0,
        slices=slices,
        leasts=tuple(floor * math.sqrt(count / max(1, s.numel())) + _TINY for s in slices),
        numel=count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Print:
    """The errors that one rounding makes, at a sample of places: whoever rounds so makes just these."""

    precision: PrecisionClass
    what: str
    places: torch.Tensor
    errors: torch.Tensor


_MOST_PLACES = 16_384
_ALIKE = 0.9
"""Cosine of the angle between two patterns of errors that have one cause; independent ones are near 0."""


def print_of(precision: PrecisionClass, what: str, rounded: torch.Tensor, truth: torch.Tensor) -> Print | None:
    """The print of a rounding; None where it moves too few numbers, or all by less than fp32 does, to be told."""
    if not truth.is_floating_point() or not truth.numel():
        return None
    errors = (rounded.double() - truth.double()).flatten()
    places = torch.arange(0, errors.numel(), max(1, errors.numel() // _MOST_PLACES))
    errors = errors[places]
    squares = errors.square()
    if not bool(torch.isfinite(squares).all()) or int((errors != 0).sum()) < 64:
        return None
    if norm(errors) <= EPSILON["float32"] * norm(truth.double().flatten()[places]):
        return None
    alike = float(squares.sum()) ** 2 / max(float(squares.square().sum()), _TINY)
    return Print(precision=precision, what=what, places=places, errors=errors) if alike >= 16 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """The truth of one output with what it takes to judge another."""

    truth: torch.Tensor
    floor: float
    """Root mean square below which the truth counts as zero."""
    classes: tuple[Allowance, ...]
    """Finest first; the last is the cap ('approx')."""
    ambiguous: torch.Tensor | None
    """For integer outputs: positions that honest computation may decide either way (near ties)."""
    selection: Selection | None = None
    """For indices into an input: what they pick; equal elements may be picked in any order."""
    sizes: Sizes | None = None
    """None for integers."""
    prints: tuple[Print, ...] = ()


def class_epsilon(precision: PrecisionClass, dtype: str) -> float:
    """Spacing of numbers near 1 in a class; the half class of a half problem has that problem's dtype."""
    if precision is PrecisionClass.FP32:
        return EPSILON["float32"]
    if precision is PrecisionClass.TF32:
        return EPSILON["tf32"]
    return EPSILON[dtype if dtype in ("float16", "bfloat16") else "bfloat16"]


def norm(values: torch.Tensor) -> float:
    """Frobenius norm."""
    return float(torch.linalg.vector_norm(values)) if values.numel() else 0.0


def slice_norms(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """For each dimension longer than 1 the norms of its index slices."""
    squares = values.abs().square()
    found = []
    for dim in range(values.ndim):
        if values.shape[dim] > 1:
            others = tuple(d for d in range(values.ndim) if d != dim)
            found.append((squares.sum(dim=others) if others else squares).sqrt())
    return tuple(found)


def measure(output: torch.Tensor, truth: torch.Tensor, floor: float) -> Closeness:
    """Four errors of an output of the truth's shape; both are taken to fp64 here."""
    error = widened(output) - widened(truth)
    return _closeness(error, slice_norms(error), sizes_of(truth, floor))


def _closeness(error: torch.Tensor, errors: tuple[torch.Tensor, ...], sizes: Sizes) -> Closeness:
    """Four errors from an error and the norms of its slices; an output that is not finite has none that is."""
    if sizes.numel == 0:
        return Closeness(relative_frobenius=0.0, normalised_max=0.0, worst_slice=0.0, centred=0.0, finite=True)
    error_norm = norm(error)
    if not math.isfinite(error_norm):  # a NaN or an infinity anywhere reaches the norm
        inf = math.inf
        return Closeness(relative_frobenius=inf, normalised_max=inf, worst_slice=inf, centred=inf, finite=False)
    least = sizes.floor * math.sqrt(sizes.numel) + _TINY
    slices = [float((e / t.clamp_min(low)).max()) for e, t, low in zip(errors, sizes.slices, sizes.leasts, strict=True)]
    relative = error_norm / max(sizes.norm, least)
    # a single number, or equal ones, have no distance from their mean
    centred = error_norm / max(sizes.spread, least) if sizes.spread > 1e-9 * sizes.norm else relative
    return Closeness(
        relative_frobenius=relative,
        normalised_max=float(error.abs().max()) / max(sizes.largest, sizes.floor + _TINY),
        worst_slice=max(slices, default=0.0),
        centred=centred,
        finite=True,
    )


def widened(values: torch.Tensor) -> torch.Tensor:
    """fp64, or complex128."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def yardstick(
    truth: torch.Tensor,
    honest: dict[PrecisionClass, list[torch.Tensor]],
    *,
    dtype: str,
    reduction_length: float,
    input_rms: float,
    nudged: torch.Tensor | None = None,
    inputs: list[torch.Tensor] | None = None,
) -> Yardstick:
    """Limits for one output from honest outputs of each class (finest class first; each holds at least one).

    `nudged` is the answer to inputs moved by an ulp: an ill-conditioned truth may be missed by that, times what
    roundings add up to over a reduction. With `inputs`, an output of indices into one of them is judged by what it
    picks.
    """
    selection = selection_of(truth, inputs or [])
    if selection is not None:
        nowhere = torch.zeros(truth.shape, dtype=torch.bool)
        return Yardstick(truth=truth, floor=0.0, classes=(), ambiguous=nowhere, selection=selection)
    if not (truth.is_floating_point() or truth.is_complex()):
        ambiguous = torch.zeros(truth.shape, dtype=torch.bool)
        # a coarser class decides more elements otherwise: no excuse for one whose inputs were rounded to it
        fine = [outputs for precision, outputs in honest.items() if precision is not PrecisionClass.HALF]
        for outputs in (*(fine or honest.values()), [] if nudged is None else [nudged]):
            for output in outputs:
                ambiguous |= output.to(truth.dtype) != truth
        return Yardstick(truth=truth, floor=0.0, classes=(), ambiguous=ambiguous)
    floor = 1e-6 * input_rms
    truth = widened(truth)
    sizes = sizes_of(truth, floor)
    classes = []
    found: list[Closeness] = []
    noise = tuple(torch.zeros_like(s) for s in sizes.slices)

    def heed(error: torch.Tensor) -> None:
        nonlocal noise
        errors = slice_norms(error)
        found.append(_closeness(error, errors, sizes))
        noise = tuple(torch.maximum(n, e) for n, e in zip(noise, errors, strict=True))

    if nudged is not None and dtype not in ("float16", "bfloat16"):
        heed((widened(nudged) - truth) * max(1.0, math.sqrt(reduction_length) / 4))
    for precision, outputs in honest.items():
        for output in outputs:
            heed(widened(output) - truth)
        minimum = FLOOR_EPSILONS * EPSILON["float32"] * math.sqrt(max(1.0, reduction_length))
        if precision is not PrecisionClass.FP32:
            minimum += 2 * class_epsilon(precision, dtype)
        classes.append(_allowance(precision, sizes, found, noise, minimum))
    return Yardstick(truth=truth, floor=floor, classes=(*classes, _cap(sizes, noise)), ambiguous=None, sizes=sizes)


def _allowance(
    precision: PrecisionClass, sizes: Sizes, found: list[Closeness], noise: tuple[torch.Tensor, ...], minimum: float
) -> Allowance:
    slices = []
    for norms, errors, least in zip(sizes.slices, noise, sizes.leasts, strict=True):
        wide = torch.maximum(HEADROOM * torch.maximum(errors, errors.median()), minimum * norms.clamp_min(least))
        slices.append(torch.minimum(wide, MAXIMUM_CAP * torch.maximum(norms, NOISE_WEIGHT * errors).clamp_min(least)))
    condition = sizes.norm / sizes.spread if sizes.spread > 1e-9 * sizes.norm and sizes.spread > 0 else 1.0
    return Allowance(
        precision=precision,
        relative_frobenius=min(RELATIVE_CAP, max(HEADROOM * max(m.relative_frobenius for m in found), minimum)),
        normalised_max=min(MAXIMUM_CAP, max(HEADROOM * max(m.normalised_max for m in found), minimum)),
        centred=max(HEADROOM * max(m.centred for m in found), minimum * max(1.0, condition)),
        slices=tuple(slices),
    )


def _cap(sizes: Sizes, noise: tuple[torch.Tensor, ...]) -> Allowance:
    return Allowance(
        precision=PrecisionClass.APPROX,
        relative_frobenius=RELATIVE_CAP,
        normalised_max=MAXIMUM_CAP,
        centred=math.inf,
        slices=tuple(
            MAXIMUM_CAP * torch.maximum(norms, NOISE_WEIGHT * errors).clamp_min(least)
            for norms, errors, least in zip(sizes.slices, noise, sizes.leasts, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The class that one output reached, with the figure closest to its limit."""

    precision: PrecisionClass
    closeness: Closeness | None
    figure: float
    """Largest ratio of an error to what its class allows (1 is the limit)."""
    detail: str


def judge(output: torch.Tensor, stick: Yardstick) -> Judgement:
    """The finest class whose every limit an output keeps; NONE where it keeps none."""
    if stick.ambiguous is not None:
        return _judge_exact(output, stick)
    assert stick.sizes is not None
    error = widened(output) - stick.truth
    errors = slice_norms(error)
    found = _closeness(error, errors, stick.sizes)
    if not found.finite:
        where = int((~torch.isfinite(output)).sum())
        return Judgement(
            precision=PrecisionClass.NONE, closeness=found, figure=math.inf, detail=f"{where} elements not finite"
        )
    last = ("", math.inf)
    for allowance in stick.classes:
        last = _worst(found, errors, allowance)
        if last[1] <= 1.0:
            made = Judgement(precision=allowance.precision, closeness=found, figure=last[1], detail=last[0])
            return _coarser(made, error, stick)
    return Judgement(precision=PrecisionClass.NONE, closeness=found, figure=last[1], detail=last[0])


def _coarser(made: Judgement, error: torch.Tensor, stick: Yardstick) -> Judgement:
    """The class of a rounding whose errors these are, where it is coarser than their size alone shows."""
    order = [allowance.precision for allowance in stick.classes]
    for known in stick.prints:
        reached = order.index(made.precision)
        if known.precision in order[: reached + 1]:
            continue
        mine = error.flatten()[known.places]
        size, theirs = norm(mine), norm(known.errors)
        if not theirs / 4 < size < 4 * theirs:
            continue
        if float(mine @ known.errors) > _ALIKE * size * theirs:
            detail = f"its errors are those of {known.what}, {made.detail}"
            return Judgement(precision=known.precision, closeness=made.closeness, figure=made.figure, detail=detail)
    return made


def _worst(found: Closeness, errors: tuple[torch.Tensor, ...], allowance: Allowance) -> tuple[str, float]:
    figures = [
        ("relative Frobenius", found.relative_frobenius, allowance.relative_frobenius),
        ("normalised max", found.normalised_max, allowance.normalised_max),
        ("centred", found.centred, allowance.centred),
    ]
    worst, detail = 0.0, "equal"
    for name, figure, limit in figures:
        ratio = figure / max(limit, _TINY) if figure else 0.0
        if ratio > worst:
            worst, detail = ratio, f"{name} {figure:.2e}, limit {limit:.2e}"
    for dim, (error, allowed) in enumerate(zip(errors, allowance.slices, strict=True)):
        ratios = error / allowed.clamp_min(_TINY)
        position = int(ratios.argmax())
        if float(ratios[position]) > worst:
            worst = float(ratios[position])
            detail = f"worst slice {position} of dimension {dim}: {worst:.2g} of what it may be off"
    return detail, worst


def _judge_exact(output: torch.Tensor, stick: Yardstick) -> Judgement:
    assert stick.ambiguous is not None
    if stick.selection is not None:
        wrong = wrong_picks(output, stick.selection)
    else:
        wrong = (output.to(stick.truth.dtype) != stick.truth) & ~stick.ambiguous
    count = int(wrong.sum())
    if count:
        detail = f"{count} of {wrong.numel()} integers differ"
        return Judgement(precision=PrecisionClass.NONE, closeness=None, figure=math.inf, detail=detail)
    return Judgement(precision=PrecisionClass.EXACT, closeness=None, figure=0.0, detail="integers equal")
