"""A GELU written out in elementwise calls (GPT-2's NewGELU) as the one call that torch has for it."""

from __future__ import annotations

from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import UNTRACEABLE, no_model, replace_modules
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

TOLERANCE = 1e-5
"""Of fp64 results around 10: the two GELUs lie 5e-4 apart."""


def gelu_of(module: Any) -> tuple[str, int]:
    """('none' or 'tanh', ATen calls) for a module that computes a GELU of one tensor; ('', 0) for any other.

    Judged by what it gives, not by its name, on fp64 values from -6 to 6.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    if next(module.parameters(), None) is not None or next(module.children(), None) is not None:
        return "", 0
    if "gelu" not in type(module).__name__.lower():
        return "", 0
    calls = 0

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            nonlocal calls
            calls += 1
            return function(*arguments, **(named or {}))

    source = torch.linspace(-6, 6, 97, dtype=torch.float64)
    try:
        with torch.no_grad(), Count():  # type: ignore[no-untyped-call]
            result = module(source)
    except UNTRACEABLE:
        return "", 0
    for approximate in ("none", "tanh"):
        expected = torch.nn.functional.gelu(source, approximate=approximate)
        if isinstance(result, torch.Tensor) and torch.allclose(result, expected, rtol=0, atol=TOLERANCE):
            return approximate, calls
    return "", 0


def _written_out(model: Any) -> dict[Any, str]:
    """Modules that compute a GELU in several calls, with its kind."""
    found = {module: gelu_of(module) for module in model.modules()}
    return {module: kind for module, (kind, calls) in found.items() if kind and calls > 1}


def _why_not(step: Step, configuration: Configuration) -> str:
    if no_model(step):
        return no_model(step)
    return "" if _written_out(step.model) else "the model has no GELU written out in several calls"


def _apply(step: Step, configuration: Configuration) -> Step:
    import torch

    found = _written_out(step.model)
    if not found:
        raise AddrfracError("no GELU is written out in several calls here; leave native-gelu out")
    replace_modules(step.model, {module: torch.nn.GELU(approximate=kind) for module, kind in found.items()})
    return step


NATIVE_GELU = Switch(
    name="native-gelu",
    about="torch.nn.functional.gelu in place of a GELU written out in elementwise calls",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
