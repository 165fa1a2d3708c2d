"""How torch's optimizer runs: all parameters in few launches, in one, or so that a CUDA graph can hold its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import device_type, no_model, trains_sparsely
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _no_optimizer(step: Step, flag: str) -> str:
    if step.optimizer is None:
        return "the step trains nothing, or does not say by which optimizer (Step.optimizer)"
    if no_model(step):
        return no_model(step)
    if flag not in step.optimizer.defaults:
        return f"torch's {type(step.optimizer).__name__} has no {flag} implementation"
    if all(group[flag] for group in step.optimizer.param_groups):
        return f"the optimizer is {flag} already"
    return ""


def _refusal(optimizer: Any, flags: dict[str, Any], device: str) -> str:
    """What torch says to one step of such an optimizer with these flags on one small parameter; '' where it runs."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(4, device=device))
    try:
        probe = type(optimizer)([parameter], **flags)
        parameter.grad = torch.zeros_like(parameter)
        probe.step()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        return f"torch refuses it here: {lines[0] if lines else type(error).__name__}"
    return ""


def _why_not_foreach(step: Step, configuration: Configuration) -> str:
    reason = _no_optimizer(step, "foreach")
    if reason:
        return reason
    if any(group.get("fused") for group in step.optimizer.param_groups):
        return "the optimizer is fused, which is one launch already"
    if trains_sparsely(step):
        return "foreach takes no sparse gradients, and the model's embeddings give them"
    if device_type(step) == "cuda" and all(group["foreach"] is None for group in step.optimizer.param_groups):
        return "torch takes foreach by itself for parameters on a GPU"
    return _refusal(step.optimizer, {"foreach": True}, device_type(step))


def _why_not_fused(step: Step, configuration: Configuration) -> str:
    reason = _no_optimizer(step, "fused")
    if reason:
        return reason
    if trains_sparsely(step):
        return "fused takes no sparse gradients, and the model's embeddings give them"
    return _refusal(step.optimizer, {"fused": True}, device_type(step))


def _why_not_capturable(step: Step, configuration: Configuration) -> str:
    if step.optimizer is not None and step.capturable:
        return "the step can be a CUDA graph already"
    reason = _no_optimizer(step, "capturable")
    if reason:
        return reason
    if device_type(step) != "cuda":
        return "CUDA graphs need a CUDA device"
    if type(step.optimizer).__name__ not in step.why_not:
        return f"it is not the optimizer that keeps the step from being a CUDA graph: {step.why_not}"
    return _refusal(step.optimizer, {"capturable": True}, device_type(step))


def _set(step: Step, **flags: Any) -> Step:
    """The optimizer with these flags, as if built with them: groups, defaults, and state that is there already."""
    import torch

    optimizer = step.optimizer
    if optimizer.state and any(_counted(state) for state in optimizer.state.values()):
        raise AddrfracError("the optimizer has taken steps already; switch it on before the first")
    flags = {name: value for name, value in flags.items() if name in optimizer.defaults}
    optimizer.defaults |= flags
    on_device = bool(flags.get("fused") or flags.get("capturable"))
    for group in optimizer.param_groups:
        group |= flags
        for parameter in group["params"]:
            count = optimizer.state[parameter].get("step") if parameter in optimizer.state else None
            if on_device and isinstance(count, torch.Tensor):
                place = {"device": parameter.device, "dtype": torch.float32}
                optimizer.state[parameter]["step"] = count.to(**place)
    if flags.get("fused"):
        optimizer._step_supports_amp_scaling = True  # as torch's constructors set it; GradScaler asks for it
        optimizer._need_device_dtype_check_for_fused = True
    return step


def _counted(state: dict[str, Any]) -> bool:
    return "step" in state and float(state["step"]) > 0


def _apply(
    why_not: Callable[[Step, Configuration], str], flags: dict[str, Any], step: Step, configuration: Configuration
) -> Step:
    if why_not(step, configuration):
        raise AddrfracError(f"{why_not(step, configuration)}; leave the switch out")
    return _set(step, **flags)


def _apply_capturable(step: Step, configuration: Configuration) -> Step:
    if step.capturable:  # built so, as the workloads do where they are told that the step will be a graph
        return step
    return replace(_apply(_why_not_capturable, {"capturable": True}, step, configuration), capturable=True, why_not="")


OPTIMIZER_FOREACH = Switch(
    name="optimizer-foreach",
    about="the optimizer's foreach implementation: a few launches for all parameters",
    stage=Stage.MODEL,
    why_not=_why_not_foreach,
    apply=partial(_apply, _why_not_foreach, {"foreach": True, "fused": None}),
)
OPTIMIZER_FUSED = Switch(
    name="optimizer-fused",
    about="the optimizer's fused implementation: its whole update in one kernel",
    stage=Stage.MODEL,
    why_not=_why_not_fused,
    apply=partial(_apply, _why_not_fused, {"fused": True, "foreach": None}),
)
OPTIMIZER_CAPTURABLE = Switch(
    name="optimizer-capturable",
    about="the optimizer's step count on the device (capturable=True), so that training can be a CUDA graph",
    stage=Stage.MODEL,
    why_not=_why_not_capturable,
    apply=_apply_capturable,
)
