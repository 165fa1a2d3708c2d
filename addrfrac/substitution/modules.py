"""A model in, the same model with whole modules' forwards by kernels out: for lookups that Dynamo cannot look into.

FBGEMM's table-batched lookup, in inference, as our bag over all tables. Each module is judged, and on a GPU timed, at
its first call; from then on it runs what won. Everything is as it was when the block ends, after an error too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from addrfrac import units
from addrfrac.substitution.trial import EPSILONS, LEAST_SAVED_SHARE

LOOKUP = "SplitTableBatchedEmbeddingBagsCodegen"
SUM = 0
"""FBGEMM's number for pooling by sums; its number for fp32 is 0 too."""
SAMPLES = 10
MOST_ERROR = 4 * EPSILONS
"""Roundings of the dtype, of the largest value: sums of rows are taken in another order."""
Forward = Callable[..., Any]


@dataclass(slots=True, kw_only=True)
class ModuleSwap:
    """What became of one module."""

    where: str
    judged: bool = False
    substituted: bool = False
    reason: str = "it was never called"
    calls: int = 0
    """Of the kernel; none of those that judge and time it."""
    fallbacks: int = 0
    """Calls that ran the module's own forward after the kernel was taken: in training, or with other arguments."""
    before_us: float | None = None
    after_us: float | None = None


@contextmanager
def modules_substituted(model: torch.nn.Module, *, need_gain: bool | None = None) -> Iterator[tuple[ModuleSwap, ...]]:
    """The model with kernels in the place of its lookups, while the block lasts; what became of each lookup."""
    found = [(name, module) for name, module in model.named_modules() if type(module).__name__ == LOOKUP]
    swaps = tuple(ModuleSwap(where=name) for name, _ in found)
    before = [vars(module).get("forward") for _, module in found]
    try:
        for (_, module), swap in zip(found, swaps, strict=True):
            module.forward = torch.compiler.disable(_forward(module, swap, need_gain))  # type: ignore[no-untyped-call]
        yield swaps
    finally:
        for (_, module), own in zip(found, before, strict=True):
            vars(module).pop("forward", None)
            if own is not None:
                module.forward = own


def _forward(module: Any, swap: ModuleSwap, need_gain: bool | None) -> Forward:
    own: Forward = module.forward

    def forward(indices: torch.Tensor, offsets: torch.Tensor, *rest: Any, **named: Any) -> Any:
        plain = not rest and not any(each is not None for each in named.values())
        if torch.is_grad_enabled() or not plain or (swap.judged and not swap.substituted):
            swap.fallbacks += swap.substituted
            return own(indices, offsets, *rest, **named)
        if not swap.judged:
            return _judge(module, swap, own, indices, offsets, need_gain)
        swap.calls += 1
        return _looked_up(module, indices, offsets)

    return forward


def _judge(
    module: Any, swap: ModuleSwap, own: Forward, indices: torch.Tensor, offsets: torch.Tensor, need_gain: bool | None
) -> Any:
    """What the module itself gives; whether the kernel gives the same, and sooner, is noted."""
    swap.judged = True
    theirs = own(indices, offsets)
    try:
        mine = _looked_up(module, indices, offsets)
    except ValueError as why:
        swap.reason = f"the kernel cannot do it: {why}"
        return theirs
    most = MOST_ERROR * torch.finfo(theirs.dtype).eps * float(theirs.abs().max()) if theirs.numel() else 0.0
    same = (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    error = float((mine - theirs).abs().max()) if same and theirs.numel() else 0.0
    if not same or not error <= most:
        swap.reason = f"refused: {error:.3g} away from what is there, {most:.3g} is rounding" if same else "other shape"
        return theirs
    if (indices.is_cuda if need_gain is None else need_gain) and indices.is_cuda:
        sides = (lambda: own(indices, offsets), lambda: _looked_up(module, indices, offsets))
        taken = [[_on_device(side) for side in sides] for _ in range(SAMPLES + 2)][2:]
        swap.before_us, swap.after_us = (median(each) for each in zip(*taken, strict=True))
        told = f"{units.microseconds(swap.before_us)} there, {units.microseconds(swap.after_us)} with the kernel"
        swap.substituted = swap.before_us - swap.after_us > LEAST_SAVED_SHARE * swap.before_us
        swap.reason = f"right and faster: {told}" if swap.substituted else f"right, but no faster: {told}"
    else:
        swap.substituted, swap.reason = True, "right; not asked to be faster"
    return theirs


def _on_device(run: Callable[[], Any]) -> float:
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def _looked_up(module: Any, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Pooled rows of all tables, side by side. Raises ValueError for a lookup that the kernel has not."""
    from addrfrac.kernels.embedding_bag import embedding_bag

    tables = module.split_embedding_weights()  # as they are now: a module that moved has others
    first = tables[0]
    count, (rows, size) = len(tables), first.shape
    step = rows * size * first.element_size()
    if any(
        each.shape != first.shape or each.dtype != first.dtype or each.data_ptr() != first.data_ptr() + number * step
        for number, each in enumerate(tables)
    ):
        raise ValueError("its tables are not of one height, one after the other in memory")
    if module.feature_table_map != list(range(count)) or int(module.pooling_mode) != SUM:
        raise ValueError("its features share tables, or it does not sum")
    if module.output_dtype != 0 or first.dtype is not torch.float32:
        raise ValueError("its tables or results are not fp32")
    stacked = first.as_strided((count, rows, size), (rows * size, size, 1))
    return embedding_bag(stacked, indices.contiguous(), offsets.contiguous()).flatten(1)
