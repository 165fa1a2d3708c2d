"""Outputs that select: indices of a largest, smallest or sorted element, where equal elements may come in any order.

An index is right if it picks what the truth picks, not if it is the same number; which of two equal elements comes
first is not part of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What an index output picks from."""

    source: torch.Tensor
    """The input that it points into."""
    dim: int
    reduced: bool
    """Whether the dimension is gone from the output (argmax), or holds several picks (topk, argsort)."""
    picked: torch.Tensor
    """The elements that the truth picks, with the dimension in place."""


def selection_of(truth: torch.Tensor, inputs: list[torch.Tensor]) -> Selection | None:
    """How an output selects from one of the inputs; None where it does not."""
    index = whole_numbers(truth)
    if index is None or index.numel() == 0:
        return None
    for source in inputs:
        if source.numel() == 0 or source.dtype == torch.bool or source.is_complex():
            continue
        for dim in range(source.ndim):
            for reduced, candidate in _placements(index, source, dim):
                if int(candidate.min()) < 0 or int(candidate.max()) >= source.shape[dim]:
                    continue
                if not reduced and _any_twice(candidate, dim):  # counts that happen to point at extremes
                    continue
                picked = source.gather(dim, candidate)
                if _is_extreme(picked, source, dim, reduced):
                    return Selection(source=source, dim=dim, reduced=reduced, picked=picked)
    return None


def whole_numbers(values: torch.Tensor) -> torch.Tensor | None:
    """Integers, or floating numbers that all are, as int64."""
    if values.dtype == torch.bool or values.is_complex():
        return None
    if not values.is_floating_point():
        return values.long()
    if not bool(torch.isfinite(values).all()) or not bool((values == values.round()).all()):
        return None
    return values.long()


def _placements(index: torch.Tensor, source: torch.Tensor, dim: int) -> list[tuple[bool, torch.Tensor]]:
    shape = list(source.shape)
    found = []
    if list(index.shape) == [*shape[:dim], *shape[dim + 1 :]]:
        found.append((True, index.unsqueeze(dim)))
    elif index.ndim == source.ndim and all(
        a == b or (d == dim and a <= b) for d, (a, b) in enumerate(zip(index.shape, shape, strict=True))
    ):
        found.append((False, index))
    return found


def _is_extreme(picked: torch.Tensor, source: torch.Tensor, dim: int, reduced: bool) -> bool:
    """Whether the picks are the largest or smallest elements in order."""
    if source.shape[dim] < 2:
        return False
    if reduced or picked.shape[dim] == 1:
        return any(bool(torch.equal(picked, f(dim, keepdim=True))) for f in (source.amax, source.amin))
    ranked = source.sort(dim).values
    count = picked.shape[dim]
    return bool(
        torch.equal(picked, ranked.narrow(dim, 0, count)) or torch.equal(picked, ranked.flip(dim).narrow(dim, 0, count))
    )


def wrong_picks(output: torch.Tensor, selection: Selection) -> torch.Tensor:
    """Where an output of the truth's shape picks something else, or one element twice."""
    index = whole_numbers(output)
    if index is None:
        return torch.ones(output.shape, dtype=torch.bool)
    placed = index.unsqueeze(selection.dim) if selection.reduced else index
    size = selection.source.shape[selection.dim]
    outside = (placed < 0) | (placed >= size)
    picked = selection.source.gather(selection.dim, placed.clamp(0, size - 1))
    wrong = outside | (picked != selection.picked)
    if not selection.reduced and placed.shape[selection.dim] > 1:
        wrong = wrong | _twice(placed, selection.dim).expand_as(wrong)
    return wrong.squeeze(selection.dim) if selection.reduced else wrong


def _twice(index: torch.Tensor, dim: int) -> torch.Tensor:
    """Which lines along the dimension name one element more than once."""
    return (index.sort(dim).values.diff(dim=dim) == 0).any(dim, keepdim=True)


def _any_twice(index: torch.Tensor, dim: int) -> bool:
    return index.shape[dim] > 1 and bool(_twice(index, dim).any())
