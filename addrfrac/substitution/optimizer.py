"""An optimizer in, the same optimizer whose step is the kernel out, judged and timed against torch's fused step.

The step never reaches a model's backend, so it is wrapped here. All state stays in the optimizer's own tensors:
state_dict() says the same, and a step without the kernel goes on where one with it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch

from addrfrac import units
from addrfrac.substitution.trial import EPSILONS, LEAST_SAVED_SHARE

STEPS_TIMED = 10
MOST_TABLES = 256
"""Where gradients lie elsewhere at every step, the steps after so many are torch's."""
MOST_ERROR = 4 * EPSILONS
"""Roundings of the dtype, of the largest value of a tensor: one order of operations is as good as another."""
Tensors = list[torch.Tensor]


@dataclass(slots=True, kw_only=True)
class OptimizerSwap:
    """What is known of an optimizer's step."""

    substituted: bool = False
    reason: str = ""
    calls: int = 0
    """Steps that the kernel took."""
    fallbacks: int = 0
    """Steps that torch took, because something was not as judged (a closure, a gradient scaler, other gradients)."""
    before_us: float | None = None
    """Median of torch's own step, fused where torch has it so."""
    after_us: float | None = None
    tables: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)
    """Addresses -> where tensors lie, on the device; all are kept, for a captured graph reads its own."""


@contextmanager
def optimizer_substituted(
    optimizer: torch.optim.Optimizer, *, largest_norm: float | None = None, need_gain: bool | None = None
) -> Iterator[OptimizerSwap]:
    """The optimizer steps by the kernel while the block lasts, if it does so rightly and, on a GPU, faster.

    Gradients must be there (one backward pass done); parameters and state are put back after the trial. With
    `largest_norm` gradients are clipped within the step, as clip_grad_norm_ before it would, but are left as they are.
    """
    swap = OptimizerSwap()
    before = vars(optimizer).get("step")
    try:
        swap.reason = _why_not(optimizer)
        if not swap.reason:
            gain = _device(optimizer).type == "cuda" if need_gain is None else need_gain
            _try(optimizer, swap, largest_norm, need_gain=gain)
        if swap.substituted:
            optimizer.step = MethodType(_step_of(swap, largest_norm), optimizer)  # type: ignore[method-assign]
        yield swap
    finally:
        if before is not None:
            optimizer.step = before  # type: ignore[method-assign]
        else:
            vars(optimizer).pop("step", None)


def _device(optimizer: torch.optim.Optimizer) -> torch.device:
    found: torch.device = optimizer.param_groups[0]["params"][0].device
    return found


def _why_not(optimizer: torch.optim.Optimizer) -> str:
    """Why the kernel cannot take this optimizer's steps; '' where it can."""
    if type(optimizer) is not torch.optim.AdamW:
        return f"no kernel has the step of {type(optimizer).__name__}"
    for group in optimizer.param_groups:
        if group["amsgrad"] or group["maximize"] or isinstance(group["lr"], torch.Tensor):
            return "amsgrad, maximize and a learning rate in a tensor are torch's alone"
    if not any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
        return "there are no gradients to try it with; run backward first"
    return ""


# --- one step -----------------------------------------------------------------------------------------------------


def _step_of(swap: OptimizerSwap, largest_norm: float | None) -> Callable[..., Any]:
    def step(optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        scaled = getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None
        hooked = bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
        if closure is None and not scaled and not hooked and _take(optimizer, swap, largest_norm):
            swap.calls += 1
            return None
        swap.fallbacks += 1
        if largest_norm is not None:
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, largest_norm)
        return type(optimizer).step(optimizer, closure)

    return step


@torch.no_grad()
def _take(optimizer: torch.optim.Optimizer, swap: OptimizerSwap, largest_norm: float | None) -> bool:
    """One step by the kernel, of each group; False, with nothing changed, where it cannot."""
    from addrfrac.kernels import adamw

    groups = [(group, _tensors(optimizer, group)) for group in optimizer.param_groups]
    groups = [(group, tensors) for group, tensors in groups if tensors]
    if not groups or (largest_norm is not None and len(groups) > 1):
        return False  # a norm is over the parameters of all groups
    try:
        tables = [_table(swap, tensors) for _, tensors in groups]
    except ValueError:
        return False
    counts = [[optimizer.state[each]["step"] for each in tensors[: len(tensors) // 4]] for _, tensors in groups]
    for steps in counts:
        torch._foreach_add_(steps, 1.0)
    for (group, tensors), table, steps in zip(groups, tables, counts, strict=True):
        adamw.update(
            group["lr"],
            group["betas"],
            group["eps"],
            group["weight_decay"],
            largest_norm,
            torch.stack(steps).to(tensors[0].device, torch.float32, non_blocking=True),
            tensors,
            table,
        )
    return True


def _tensors(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> Tensors:
    """Parameters with a gradient, their gradients and moments; none where a parameter has taken no step yet."""
    parameters = [each for each in group["params"] if each.grad is not None]
    states = [optimizer.state.get(each, {}) for each in parameters]
    if any("exp_avg" not in state for state in states):
        return []
    gradients = [each.grad for each in parameters]
    moments, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
    return [*parameters, *gradients, *moments, *squares]


def _table(swap: OptimizerSwap, tensors: Tensors) -> torch.Tensor:
    """Where the tensors lie, on the device. Raises ValueError for what the kernel cannot do."""
    from addrfrac.kernels import adamw

    key = tuple(each.data_ptr() for each in tensors)
    if key not in swap.tables:
        if len(swap.tables) == MOST_TABLES:
            raise ValueError("gradients lie elsewhere at every step")
        found = torch.tensor(adamw.places(tensors), dtype=torch.int64)
        if tensors[0].device.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                raise ValueError("a table cannot be made while a graph is captured")
            found = found.to(tensors[0].device)
        swap.tables[key] = found
    return swap.tables[key]


# --- judging ------------------------------------------------------------------------------------------------------


def _try(optimizer: torch.optim.Optimizer, swap: OptimizerSwap, largest_norm: float | None, *, need_gain: bool) -> None:
    """Judge the step on the live gradients, and time it beside torch's; parameters and state as before afterwards."""
    kept = _kept(optimizer)
    gradients = [each.grad for each in _parameters(optimizer)]
    given = [None if each is None else each.clone() for each in gradients]
    try:
        type(optimizer).step(optimizer)  # state exists after torch's own first step
        began = _kept(optimizer)
        _torch_step(optimizer, largest_norm)
        theirs = _values(optimizer)
        _put_back(optimizer, began, given)
        if not _take(optimizer, swap, largest_norm):
            swap.reason = (
                "the kernel cannot take these tensors: one dtype and layout for parameters, gradients, moments"
            )
            return
        swap.reason = _wrong(_values(optimizer), theirs)
        if swap.reason:
            return
        if need_gain:
            swap.before_us, swap.after_us = _timed(optimizer, swap, largest_norm)
            told = f"{units.microseconds(swap.before_us)} by torch, {units.microseconds(swap.after_us)} by the kernel"
            swap.substituted = swap.before_us - swap.after_us > LEAST_SAVED_SHARE * swap.before_us
            swap.reason = f"right and faster: {told}" if swap.substituted else f"right, but no faster: {told}"
        else:
            swap.substituted, swap.reason = True, "right; not asked to be faster"
    finally:
        _put_back(optimizer, kept, given)


def _torch_step(optimizer: torch.optim.Optimizer, largest_norm: float | None) -> None:
    if largest_norm is not None:
        torch.nn.utils.clip_grad_norm_(_parameters(optimizer), largest_norm)
    type(optimizer).step(optimizer)


def _parameters(optimizer: torch.optim.Optimizer) -> Tensors:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _values(optimizer: torch.optim.Optimizer) -> Tensors:
    """Copies of parameters and moments."""
    found = []
    for each in _parameters(optimizer):
        state = optimizer.state.get(each, {})
        found += [each.detach().clone(), *(value.clone() for value in state.values())]
    return found


def _wrong(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> str:
    for one, two in zip(mine, theirs, strict=True):
        if not one.numel():
            continue
        error = float((one.double() - two.double()).abs().max())
        most = MOST_ERROR * torch.finfo(two.dtype).eps * float(two.double().abs().max())
        if not error <= most:
            return f"refused: its step is {error:.3g} away from torch's, {most:.3g} is rounding"
    return ""


def _kept(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    return [
        (
            each.detach().clone(),
            {name: value.clone() for name, value in optimizer.state[each].items()} if each in optimizer.state else {},
        )
        for each in _parameters(optimizer)
    ]


@torch.no_grad()
def _put_back(
    optimizer: torch.optim.Optimizer,
    kept: Sequence[tuple[torch.Tensor, dict[str, torch.Tensor]]],
    gradients: Sequence[torch.Tensor | None],
) -> None:
    """Parameters, gradients and state in the tensors that they were in; state that was not there is gone again."""
    for each, (value, state), gradient in zip(_parameters(optimizer), kept, gradients, strict=True):
        each.copy_(value)
        if each.grad is not None and gradient is not None:
            each.grad.copy_(gradient)
        if not state:
            optimizer.state.pop(each, None)
        for name, before in state.items():
            optimizer.state[each][name].copy_(before)


def _timed(optimizer: torch.optim.Optimizer, swap: OptimizerSwap, largest_norm: float | None) -> tuple[float, float]:
    """Medians of torch's step and the kernel's, in turns; torch's is fused where torch can."""
    device = _device(optimizer)
    taken: tuple[list[float], list[float]] = ([], [])
    sides: tuple[Callable[[], Any], ...] = (
        lambda: _torch_step(optimizer, largest_norm),
        lambda: _take(optimizer, swap, largest_norm),
    )
    for number in range(STEPS_TIMED + 2):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            us = _clocked(sides[side], device)
            if number >= 2:
                taken[side].append(us)
    before, after = (sorted(each)[len(each) // 2] for each in taken)
    return before, after


def _clocked(run: Callable[[], Any], device: torch.device) -> float:
    """Wall time of one step with the device idle before and after: host and device both count."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) * 1e6
