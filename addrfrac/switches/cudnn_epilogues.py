"""Convolution, residual addition and ReLU of an inference model as one cuDNN call, found in the model's fx graph."""

from __future__ import annotations

import operator
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.fold_bn import FOLD_BN
from addrfrac.switches.structure import (
    UNTRACEABLE,
    must_run,
    no_half_precision_weights,
    no_inference,
    run_forward_of,
    traced,
)
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    """Of the base, whose batch norms may still stand between convolution and ReLU."""
    import torch

    for reason in (no_inference(step), no_half_precision_weights(configuration)):
        if reason:
            return reason
    if not any(type(module) is torch.nn.Conv2d for module in step.model.modules()):
        return "the model has no two-dimensional convolution"
    try:
        graph_module = traced(step.model)
    except UNTRACEABLE as error:
        return f"torch.fx cannot follow the model: {error}"
    modules = dict(graph_module.named_modules())
    _drop(graph_module, modules, (torch.nn.Identity, torch.nn.BatchNorm2d))
    return "" if _sites(graph_module, modules) else "no ReLU of the model takes what a convolution gives"


def _drop(graph_module: Any, modules: dict[str, Any], types: tuple[type, ...]) -> None:
    """Take calls of these modules out of the graph, as if they gave what they take."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_module" and type(modules[node.target]) in types:
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)


def _is_relu(node: Any, modules: dict[str, Any]) -> bool:
    import torch

    if node.op == "call_module":
        return type(modules[node.target]) is torch.nn.ReLU
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    functions = (torch.relu, torch.relu_, torch.nn.functional.relu, torch.nn.functional.relu_)
    return node.op == "call_function" and node.target in functions


def _is_addition(node: Any) -> bool:
    import torch
    import torch.fx

    calls = node.op == "call_function" and node.target in (operator.add, operator.iadd, torch.add)
    calls = calls or (node.op == "call_method" and node.target in ("add", "add_"))
    return calls and not node.kwargs and all(isinstance(argument, torch.fx.Node) for argument in node.args)


def _is_convolution(node: Any, modules: dict[str, Any]) -> bool:
    """A two-dimensional convolution that cuDNN's call can say: zeros around, padding in numbers, used here alone."""
    import torch

    if node.op != "call_module" or len(node.users) != 1:
        return False
    module = modules[node.target]
    plain = type(module) is torch.nn.Conv2d and module.padding_mode == "zeros"
    return plain and not isinstance(module.padding, str)


def _sites(graph_module: Any, modules: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(ReLU, convolution before it), with nothing in between or one addition to the convolution's output."""
    sites = []
    for node in graph_module.graph.nodes:
        if not _is_relu(node, modules):
            continue
        source = node.args[0]
        if _is_convolution(source, modules):
            sites.append((node, source))
        elif _is_addition(source) and len(source.users) == 1:
            left, right = source.args
            if left is not right and _is_convolution(left, modules):
                sites.append((node, left))
            elif left is not right and _is_convolution(right, modules):
                sites.append((node, right))
    return sites


def _give_bias(convolution: Any) -> None:
    """cuDNN's call fills a bias of zeros at each call where it is given none."""
    import torch

    if convolution.bias is None:
        zeros = torch.zeros(convolution.out_channels, dtype=convolution.weight.dtype, device=convolution.weight.device)
        convolution.bias = torch.nn.Parameter(zeros, requires_grad=False)


def _take_bias(convolution: Any, addend: Any) -> None:
    """The bias of a convolution whose output is only added to another's is added by the other: one kernel less."""
    import torch

    if addend.bias is None or convolution.bias.shape != addend.bias.shape:
        return
    with torch.no_grad():
        convolution.bias.add_(addend.bias)
    addend.bias = None


def _fuse(graph_module: Any, modules: dict[str, Any], site: tuple[Any, Any]) -> None:
    from addrfrac.switches.convolution_calls import convolution_add_relu, convolution_relu

    relu, source = site
    added = relu.args[0]
    # Looked up now, not when the site was found: it may be the ReLU of an earlier site, replaced since.
    addend = None if added is source else next(argument for argument in added.args if argument is not source)
    convolution = modules[source.target]
    _give_bias(convolution)
    if addend is not None and _is_convolution(addend, modules):
        _take_bias(convolution, modules[addend.target])
    graph = graph_module.graph
    with graph.inserting_before(relu):
        weight = graph.get_attr(f"{source.target}.weight")
        bias = graph.get_attr(f"{source.target}.bias")
        geometry = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
        if addend is None:
            fused = graph.call_function(convolution_relu, (source.args[0], weight, bias, *geometry))
        else:
            fused = graph.call_function(convolution_add_relu, (source.args[0], weight, addend, bias, *geometry))
    relu.replace_all_uses_with(fused)
    graph.erase_node(relu)
    for node in dict.fromkeys((added, source)):
        if not node.users:
            graph.erase_node(node)


def _apply(step: Step, configuration: Configuration) -> Step:
    import torch

    if not FOLD_BN.why_not(step, configuration):
        step = FOLD_BN.apply(step, configuration)  # nothing to do where it was switched on before
    graph_module = traced(step.model)
    modules = dict(graph_module.named_modules())
    _drop(graph_module, modules, (torch.nn.Identity,))
    sites = _sites(graph_module, modules)
    if not sites:
        raise AddrfracError("no ReLU comes right after a convolution here; leave cudnn-epilogues out")
    calls = [node.target for node in graph_module.graph.nodes if node.op == "call_module"]
    for site in sites:
        if calls.count(site[1].target) == 1:
            _fuse(graph_module, modules, site)
    run_forward_of(step.model, graph_module)
    return must_run(step, "cuDNN's fused convolution")


CUDNN_EPILOGUES = Switch(
    name="cudnn-epilogues",
    about="torch.cudnn_convolution_relu and _add_relu: bias, residual and ReLU within the convolution (norms folded)",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
