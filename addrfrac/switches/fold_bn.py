"""Batch norms of an inference model folded into the convolutions before them (torch.nn.utils.fusion)."""

from __future__ import annotations

from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import UNTRACEABLE, no_inference, replace_modules, traced
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    if no_inference(step):
        return no_inference(step)
    if not any(_is_norm(module) for module in step.model.modules()):
        return "the model has no batch norm with running statistics"
    try:
        pairs = _pairs(step.model)
    except UNTRACEABLE as error:
        return f"torch.fx cannot follow the model, so nothing proves what runs before its batch norms: {error}"
    return "" if pairs else "no batch norm of the model comes right after a convolution that it alone uses"


def _is_norm(module: Any) -> bool:
    from torch import nn

    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return type(module) in norms and module.running_mean is not None and not module.training


def _is_convolution(module: Any) -> bool:
    from torch import nn

    return type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _pairs(model: Any) -> list[tuple[Any, Any]]:
    """(convolution, batch norm) where the norm takes that convolution's output and nothing else does."""
    graph_module = traced(model)
    modules = dict(graph_module.named_modules())
    calls = [node.target for node in graph_module.graph.nodes if node.op == "call_module"]
    pairs = []
    for node in graph_module.graph.nodes:
        if node.op != "call_module" or not _is_norm(modules[node.target]):
            continue
        source = node.args[0]
        alone = source.op == "call_module" and len(source.users) == 1
        if not alone or not _is_convolution(modules[source.target]):
            continue
        if calls.count(source.target) == calls.count(node.target) == 1:
            pairs.append((modules[source.target], modules[node.target]))
    return pairs


def _fold(convolution: Any, norm: Any) -> None:
    """In fp64, so that only the folded weight is rounded; the weight keeps its strides, and so its layout."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    def wide(tensor: Any) -> Any:
        return None if tensor is None else tensor.detach().double()

    weight, bias = fuse_conv_bn_weights(
        wide(convolution.weight),
        wide(convolution.bias),
        wide(norm.running_mean),
        wide(norm.running_var),
        norm.eps,
        wide(norm.weight),
        wide(norm.bias),
    )
    dtype = convolution.weight.dtype
    with torch.no_grad():
        convolution.weight.copy_(weight)
        convolution.bias = torch.nn.Parameter(bias.detach().to(dtype), requires_grad=convolution.weight.requires_grad)


def _apply(step: Step, configuration: Configuration) -> Step:
    import torch

    pairs = _pairs(step.model)
    if not pairs:
        raise AddrfracError("no batch norm follows a convolution here; leave fold-bn out")
    for convolution, norm in pairs:
        _fold(convolution, norm)
    replace_modules(step.model, {norm: torch.nn.Identity() for _, norm in pairs})
    return step


FOLD_BN = Switch(
    name="fold-bn",
    about="batch norms folded into the convolutions before them (torch.nn.utils.fusion), for inference",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
