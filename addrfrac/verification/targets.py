"""A module of any accepted kind, seen as one problem or one candidate.

KernelBench format: `Model` or `ModelNew`, `get_inputs`, `get_init_inputs`. A kernel module of ours: a launcher named
in `SUBSTITUTE` or `LAUNCHER` (or like the module), `reference`, `CASES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCase:
    """One tensor argument of a case."""

    shape: tuple[int, ...]
    kind: str = "normal"
    """'normal', 'uniform', 'ids' (0 <= id < high), 'offsets' (rising, 0..high), 'rows of offsets' (each row rises from
    0 to high) or 'positive'."""
    high: int = 0
    dtype: str = ""
    """'' takes the case's dtype."""
    layout: str = ""
    """'channels-last', or '' for contiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call that a kernel module must get right: tensors and plain arguments in order."""

    name: str
    arguments: tuple[TensorCase | int | float | bool | None, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who wrote a kernel, and how."""

    author: str
    """The model, or the person."""
    task: str
    """What was asked for."""
    attempts: int
    human_edits: str
    """'' where there were none."""
    tuned_on: tuple[str, ...] = ()
    """Shapes and devices that its constants were chosen on; empty where they were not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """What a kernel stands in for."""

    launcher: Callable[..., Any]
    reference: Callable[..., Any]
    """The pattern to find and the truth to verify against."""
    op: str
    """An `Op` of the taxonomy."""
    bytes_moved: Callable[..., int]
    """Least bytes that a call with these arguments must move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a worker needs of a module."""

    build: Callable[..., Any]
    get_inputs: Callable[[], Sequence[Any]]
    get_init_inputs: Callable[[], Sequence[Any]]
    names: list[str]
    cases: list[str]
    trains: bool


def adapt(module: ModuleType, *, role: str, case: int) -> Loaded:
    """The module's reference or candidate; `ValueError` where it holds none."""
    names = [name for name in vars(module) if not name.startswith("_")][:200]
    as_site = role != "reference" and hasattr(module, "ModelNew")  # says with which plain arguments it is called there
    if hasattr(module, "CASES") and hasattr(module, "reference") and not as_site:
        cases = module.CASES
        function = module.reference if role == "reference" else launcher(module)
        return Loaded(
            build=lambda *_: Functional(function),
            get_inputs=lambda: make_inputs(cases[case]),
            get_init_inputs=lambda: [],
            names=names,
            cases=[c.name for c in cases],
            trains=bool(getattr(module, "TRAINS", False)),
        )
    wanted = "Model" if role == "reference" else "ModelNew"
    if not hasattr(module, wanted):
        raise ValueError(f"it defines no {wanted} (and is no kernel module: that has CASES and reference)")
    return Loaded(
        build=getattr(module, wanted),
        get_inputs=getattr(module, "get_inputs", list),
        get_init_inputs=getattr(module, "get_init_inputs", list),
        names=names,
        cases=[],
        trains=bool(getattr(module, "TRAINS", False)),
    )


def launcher(module: ModuleType) -> Callable[..., Any]:
    """The function that a kernel module offers in the reference's place."""
    substitute = getattr(module, "SUBSTITUTE", None)
    named = getattr(substitute, "launcher", None) or getattr(module, "LAUNCHER", None)
    function = named if callable(named) else getattr(module, module.__name__.rpartition(".")[2], None)
    if not callable(function):
        raise ValueError("no launcher: name one in SUBSTITUTE or LAUNCHER, or call it like the module")
    return function  # type: ignore[no-any-return]


class Functional(torch.nn.Module):
    """A function as a model without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        """Call it."""
        return self.function(*arguments)


def make_inputs(case: Case) -> list[Any]:
    """Inputs of a case from the current random state."""
    return [
        _make(argument, case.dtype) if isinstance(argument, TensorCase) else argument for argument in case.arguments
    ]


def _make(tensor: TensorCase, dtype: str) -> torch.Tensor:
    made = _contiguous(tensor, dtype)
    return made.to(memory_format=torch.channels_last) if tensor.layout == "channels-last" else made


def _contiguous(tensor: TensorCase, dtype: str) -> torch.Tensor:
    wanted: torch.dtype = getattr(torch, tensor.dtype or dtype)
    if tensor.kind == "ids":
        return torch.randint(
            0, tensor.high, tensor.shape, dtype=wanted if not wanted.is_floating_point else torch.int64
        )
    if tensor.kind == "offsets":
        points = torch.randint(0, tensor.high + 1, tensor.shape)
        points[0] = 0
        return points.sort().values
    if tensor.kind == "rows of offsets":
        points = torch.randint(0, tensor.high + 1, tensor.shape)
        points[..., 0], points[..., -1] = 0, tensor.high
        return points.sort().values
    if tensor.kind == "uniform":
        return torch.rand(tensor.shape).to(wanted)
    if tensor.kind == "positive":
        return torch.rand(tensor.shape).add(0.5).to(wanted)
    return torch.randn(tensor.shape).to(wanted)
