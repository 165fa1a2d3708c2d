"""cuDNN's algorithm for each convolution chosen by trying them, not by its heuristic."""

from __future__ import annotations

from typing import Any

from addrfrac.records import Configuration
from addrfrac.switches.structure import device_type, no_model, setting, within
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    import torch

    if no_model(step):
        return no_model(step)
    if device_type(step) != "cuda":
        return "cuDNN runs on an NVIDIA GPU only"
    convolutions: tuple[Any, ...] = (
        torch.nn.Conv1d,
        torch.nn.Conv2d,
        torch.nn.Conv3d,
        torch.nn.ConvTranspose1d,
        torch.nn.ConvTranspose2d,
        torch.nn.ConvTranspose3d,
    )
    if not any(isinstance(module, convolutions) for module in step.model.modules()):
        return "the model has no convolution"
    return "it is on already" if torch.backends.cudnn.benchmark else ""


def _apply(step: Step, configuration: Configuration) -> Step:
    import torch

    return within(step, lambda: setting(torch.backends.cudnn, "benchmark", True))


CUDNN_BENCHMARK = Switch(
    name="cudnn-benchmark",
    about="torch.backends.cudnn.benchmark: each convolution's algorithm by trial at its first call",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
