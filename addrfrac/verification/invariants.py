"""What every right answer of a problem keeps, found in its truths: a candidate that breaks it is wrong, one that keeps
it is not therefore right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from addrfrac.verification.closeness import class_epsilon, widened
from addrfrac.verification.precision import EPSILON
from addrfrac.verification.records import PrecisionClass

Deviation = Callable[[torch.Tensor, list[torch.Tensor], int], float]
"""How far an output, given the inputs and a dimension, is from keeping it; relative, 0 where it is kept."""
_HOLDS = 1e-9
"""A truth in fp64 that deviates by less keeps it."""
_FLOOR_EPSILONS = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One property of one output."""

    name: str
    output: int
    dim: int


def _sums_to_one(output: torch.Tensor, _inputs: list[torch.Tensor], dim: int) -> float:
    return float((output.sum(dim) - 1).abs().max())


def _squares_sum_to_one(output: torch.Tensor, _inputs: list[torch.Tensor], dim: int) -> float:
    return float((output.square().sum(dim) - 1).abs().max())


def _sums_to_zero(output: torch.Tensor, _inputs: list[torch.Tensor], dim: int) -> float:
    size = output.abs().sum(dim).clamp_min(1e-300)
    return float((output.sum(dim).abs() / size).max()) if bool((size > 1e-30).any()) else math.inf


def _rises(output: torch.Tensor, _inputs: list[torch.Tensor], dim: int) -> float:
    steps = output.diff(dim=dim)
    return float((-steps).clamp_min(0).max()) / max(float(output.abs().max()), 1e-300)


def _never_negative(output: torch.Tensor, _inputs: list[torch.Tensor], _dim: int) -> float:
    return float((-output).clamp_min(0).max()) / max(float(output.abs().max()), 1e-300)


def _at_most_one(output: torch.Tensor, _inputs: list[torch.Tensor], _dim: int) -> float:
    return float((output - 1).clamp_min(0).max())


def _holds_an_input(output: torch.Tensor, inputs: list[torch.Tensor], _dim: int) -> float:
    """0 if the output is one of the inputs in another order, bit for bit."""
    mine = output.flatten().sort().values
    alike = [t for t in inputs if t.is_floating_point() and t.numel() == mine.numel()]
    return 0.0 if any(bool(torch.equal(mine, t.double().flatten().sort().values)) for t in alike) else math.inf


KINDS: dict[str, tuple[Deviation, bool]] = {
    "sums to one": (_sums_to_one, True),
    "has squares that sum to one": (_squares_sum_to_one, True),
    "sums to zero": (_sums_to_zero, True),
    "rises": (_rises, True),
    "is never negative": (_never_negative, False),
    "is at most one": (_at_most_one, False),
    "holds an input's numbers": (_holds_an_input, False),
}
"""Name -> (deviation, whether it is along a dimension)."""


def find_invariants(truths: list[list[torch.Tensor]], inputs: list[list[torch.Tensor]]) -> list[Invariant]:
    """Those that all truths keep: [trial][output] and the inputs of each trial."""
    found = []
    for index, first in enumerate(truths[0] if truths else []):
        if not first.is_floating_point() or first.numel() < 2:
            continue
        for name, (deviation, along) in KINDS.items():
            dims = [d for d in range(first.ndim) if first.shape[d] > 1] if along else [0]
            found += [
                Invariant(name=name, output=index, dim=dim)
                for dim in dims
                if all(
                    t[index].ndim == first.ndim and deviation(t[index].double(), given, dim) <= _HOLDS
                    for t, given in zip(truths, inputs, strict=True)
                )
            ]
    return found


def broken(
    invariant: Invariant,
    output: torch.Tensor,
    native: torch.Tensor,
    inputs: list[torch.Tensor],
    *,
    precision: PrecisionClass,
    dtype: str,
    reduction_length: float,
) -> tuple[float, float] | None:
    """Deviation and limit where an output of a class breaks it; honest outputs of that class may miss it by so much."""
    deviation, _ = KINDS[invariant.name]
    own = deviation(widened(native).real, inputs, invariant.dim)
    if invariant.name == "holds an input's numbers" and own > 0:
        return None
    limit = _FLOOR_EPSILONS * EPSILON["float32"] * math.sqrt(max(1.0, reduction_length))
    if precision not in (PrecisionClass.FP32, PrecisionClass.EXACT):
        limit += 8 * class_epsilon(precision, dtype)
    limit = max(8 * own, limit)
    figure = deviation(widened(output).real, inputs, invariant.dim)
    return (figure, limit) if not figure <= limit else None


def words(invariant: Invariant) -> str:
    """'sums to one along dimension 1'."""
    return invariant.name + (f" along dimension {invariant.dim}" if KINDS[invariant.name][1] else "")
