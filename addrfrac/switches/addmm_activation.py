"""A linear layer and the ReLU or tanh-GELU after it as one call, torch._addmm_activation (cuBLASLt's epilogue)."""

from __future__ import annotations

import inspect
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.native_gelu import gelu_of
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


def _weight_is_features_first(module: Any) -> bool | None:
    """Whether a linear layer with a bias keeps (out, in) or (in, out); None for what is no such layer."""
    import torch

    from addrfrac.switches.linear_calls import AlignedLinear

    if getattr(module, "bias", None) is None:
        return None
    if type(module) is torch.nn.Linear:
        return True
    if type(module) is AlignedLinear:
        return True if module.out_features == module.weight.shape[0] else None
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf") and module.weight.shape[-1] == module.nf:
        return False
    return None


def _activation(node: Any, modules: dict[str, Any]) -> str:
    """'relu', 'gelu' (of tanh) or ''."""
    import torch

    functional = torch.nn.functional
    if node.op == "call_module":
        module = modules[node.target]
        if type(module) is torch.nn.ReLU:
            return "relu"
        return "gelu" if gelu_of(module)[0] == "tanh" else ""
    if node.op == "call_method":
        return "relu" if node.target in ("relu", "relu_") else ""
    if node.op == "call_function" and node.target in (torch.relu, torch.relu_, functional.relu, functional.relu_):
        return "relu"
    tanh = node.op == "call_function" and node.target is functional.gelu and node.kwargs.get("approximate") == "tanh"
    return "gelu" if tanh else ""


def _takes_one_tensor(module: Any) -> bool:
    try:
        arguments = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return False
    return len(arguments) == 1 and arguments[0].kind in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    )


def _sites(parent: Any) -> tuple[Any, list[tuple[Any, Any, str]]]:
    """The graph of one module over its children, with (activation, linear before it, which activation) in it."""
    if not any(_weight_is_features_first(child) is not None for child in parent.children()):
        return None, []
    if not _takes_one_tensor(parent):
        return None, []
    try:
        graph_module = traced(parent, children_are_leaves=True)
    except UNTRACEABLE:
        return None, []
    modules = dict(graph_module.named_modules())
    sites = []
    for node in graph_module.graph.nodes:
        kind = _activation(node, modules)
        source = node.args[0] if kind else None
        if source is None or source.op != "call_module" or len(source.users) != 1:
            continue
        if _weight_is_features_first(modules[source.target]) is not None:
            sites.append((node, source, kind))
    return graph_module, sites


def _why_not(step: Step, configuration: Configuration) -> str:
    for reason in (no_inference(step), no_half_precision_weights(configuration)):
        if reason:
            return reason
    if any(_sites(module)[1] for module in step.model.modules()):
        return ""
    return "no linear layer with a bias is followed by ReLU or the tanh GELU alone (an exact GELU has no such call)"


def _fuse(graph_module: Any, site: tuple[Any, Any, str]) -> None:
    from addrfrac.switches.linear_calls import linear_activation

    activation, source, kind = site
    linear = graph_module.get_submodule(source.target)
    graph = graph_module.graph
    with graph.inserting_before(activation):
        weight = graph.get_attr(f"{source.target}.weight")
        bias = graph.get_attr(f"{source.target}.bias")
        features_first = bool(_weight_is_features_first(linear))
        fused = graph.call_function(linear_activation, (source.args[0], weight, bias, features_first, kind == "gelu"))
    activation.replace_all_uses_with(fused)
    graph.erase_node(activation)
    graph.erase_node(source)


def _apply(step: Step, configuration: Configuration) -> Step:
    found = 0
    for module in list(step.model.modules()):
        graph_module, sites = _sites(module)
        for site in sites:
            _fuse(graph_module, site)
        if sites:
            run_forward_of(module, graph_module)
        found += len(sites)
    if not found:
        raise AddrfracError("no linear layer is followed by ReLU or the tanh GELU here; leave addmm-activation out")
    return must_run(step, "torch._addmm_activation")


ADDMM_ACTIVATION = Switch(
    name="addmm-activation",
    about="torch._addmm_activation: bias and ReLU (or tanh GELU) within the matrix product",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
