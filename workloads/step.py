"""A model, its inputs and an optimizer in, one measurable step out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from addrfrac.errors import AddrfracError

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration

SEED = 20260928


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a workload, ready to run on its device."""

    run: Callable[[], object]
    """Runs one whole step: in training from zero_grad to the optimizer; with fresh indices where they matter."""
    samples: float
    """Units of `Workload.sample` that one step works through."""
    parameters: int
    model: Any = None
    """The torch.nn.Module inside, for compiling and for substitution; None where there is none."""
    optimizer: Any = None
    """The torch.optim.Optimizer of a training step; None where there is none."""
    capturable: bool = True
    """Whether the step can be a CUDA graph."""
    why_not: str = ""
    """Why it cannot."""
    graph_run: Callable[[], object] | None = None
    """What to capture instead of `run` where `run` changes its inputs from step to step."""
    advance: Callable[[], None] | None = None
    """Puts the next inputs where `graph_run` reads them; called, and timed, before each replay."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Facts for the report: tokens per expert, table bytes, distinct rows, ..."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures must know."""


def weight_dtype(configuration: Configuration) -> torch.dtype:
    """The dtype that parameters are kept in; under autocast that is fp32."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(configuration.dtype, torch.float32)


def autocast(configuration: Configuration, device: torch.device) -> AbstractContextManager[Any]:
    """The autocast context that the dtype asks for; for plain dtypes one that does nothing."""
    import torch

    dtype = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(configuration.dtype)
    return torch.autocast(device.type, dtype=dtype) if dtype is not None else nullcontext()


def generator(device: torch.device, offset: int = 0) -> torch.Generator:
    """A seeded source of random numbers on the device."""
    import torch

    return torch.Generator(device).manual_seed(SEED + offset)


def parameter_count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def inference(
    model: torch.nn.Module,
    inputs: Mapping[str, Any] | tuple[Any, ...],
    configuration: Configuration,
    device: torch.device,
    *,
    samples: float,
    **rest: Any,
) -> Step:
    """A forward pass without gradients. `rest` goes to `Step`."""
    import torch

    model.eval()
    positional, named = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)

    def run() -> object:
        with torch.no_grad(), autocast(configuration, device):
            return model(*positional, **named)

    return Step(run=run, samples=samples, parameters=parameter_count(model), model=model, **rest)


def training(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    configuration: Configuration,
    device: torch.device,
    *,
    samples: float,
    **rest: Any,
) -> Step:
    """zero_grad, forward with `loss`, backward and the optimizer; loss scaling where the dtype needs it.

    `loss` runs the model under autocast and returns a scalar. `rest` goes to `Step`.
    Raises AddrfracError for fp16 weights, which no optimizer here can train.
    """
    import torch

    if configuration.dtype == "fp16":
        raise AddrfracError("fp16 weights underflow in training; use --dtype amp-fp16, amp-bf16 or bf16")
    model.train()
    scaler = torch.amp.GradScaler(device.type) if configuration.dtype == "amp-fp16" else None

    def run() -> object:
        optimizer.zero_grad(set_to_none=True)
        with autocast(configuration, device):
            value = loss()
        if scaler is None:
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        else:
            scaler.scale(value).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
        return value.detach()

    if scaler is not None:
        rest |= {"capturable": False, "why_not": "GradScaler reads the overflow flag on the host in each step"}
    return Step(run=run, samples=samples, parameters=parameter_count(model), model=model, optimizer=optimizer, **rest)
