"""An RMSNorm written out in elementwise calls and a reduction as torch's one call, torch.nn.functional.rms_norm."""

from __future__ import annotations

from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import UNTRACEABLE, no_model, replace_modules
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

TOLERANCE = 1e-4
"""Relative, on the module's own weights: their dtype rounds once more or once less."""


def _epsilon(module: Any) -> float | None:
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    return None


def _is_written_out(module: Any) -> bool:
    """A module of one vector of weights that gives what rms_norm gives, on an input of its own."""
    import torch

    if type(module).__module__.startswith("torch.") or next(module.children(), None) is not None:
        return False
    parameters = dict(module.named_parameters())
    if set(parameters) != {"weight"} or module.weight.dim() != 1 or _epsilon(module) is None:
        return False
    weight = module.weight
    # Of small and large entries, so that the epsilon shows too.
    source = torch.linspace(-3, 3, 4 * weight.numel(), device=weight.device).view(4, -1)
    source = (source * torch.tensor([[1e-3], [1e-1], [1.0], [30.0]], device=weight.device)).to(weight.dtype)
    try:
        with torch.no_grad():
            result = module(source)
    except UNTRACEABLE:
        return False
    if not isinstance(result, torch.Tensor) or result.shape != source.shape:
        return False
    expected = torch.nn.functional.rms_norm(source, (weight.numel(),), weight.detach(), _epsilon(module))
    rounding = 4 * torch.finfo(weight.dtype).eps
    error = (result.float() - expected.float()).norm() / expected.float().norm()
    return bool(error <= max(TOLERANCE, rounding))


def _why_not(step: Step, configuration: Configuration) -> str:
    if no_model(step):
        return no_model(step)
    if any(_is_written_out(module) for module in step.model.modules()):
        return ""
    return "the model has no RMSNorm written out in several calls"


def _apply(step: Step, configuration: Configuration) -> Step:
    import torch

    new = {}
    for module in list(step.model.modules()):
        if _is_written_out(module):
            norm = torch.nn.RMSNorm(module.weight.numel(), eps=_epsilon(module), device="meta")
            norm.weight = module.weight  # the same Parameter, which an optimizer may hold
            new[module] = norm.train(module.training)
    if not new:
        raise AddrfracError("no RMSNorm is written out in several calls here; leave fused-rmsnorm out")
    replace_modules(step.model, new)
    return step


FUSED_RMSNORM = Switch(
    name="fused-rmsnorm",
    about="torch.nn.functional.rms_norm, one kernel, in place of an RMSNorm written out (rounds once, not twice)",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
