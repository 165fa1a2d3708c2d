"""A site in, a problem in KernelBench's format out (and the kernel as a solution to it): real shapes and strides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Interpreter, Node

from addrfrac.substitution.graph import is_cast, value_of
from addrfrac.substitution.patterns import Match
from addrfrac.substitution.pool import Kernel


def site_graph(match: Match) -> GraphModule:
    """What the model computes at the site, as a function of the site's tensors in order."""
    inputs = list(dict.fromkeys(each for each in match.arguments if isinstance(each, Node)))
    return region_graph(inputs, match.outputs)


def region_graph(inputs: Sequence[Node], outputs: Sequence[Node]) -> GraphModule:
    """The calls between inputs and outputs as a graph of their own."""
    graph = torch.fx.Graph()
    copied: dict[Node, Node] = {}
    for number, node in enumerate(inputs):
        copied[node] = graph.placeholder(f"x{number}")
        copied[node].meta = dict(node.meta)

    def copy(node: Node) -> Node:
        if node not in copied:
            for each in node.all_input_nodes:
                copy(each)
            copied[node] = graph.node_copy(node, lambda other: copied[other])
        return copied[node]

    results = tuple(copy(each) for each in outputs)
    graph.output(results[0] if len(results) == 1 else results)
    return GraphModule(torch.nn.Module(), graph)


class Wide(Interpreter):
    """Runs a site in higher precision: casts to a float dtype give the wide one."""

    def __init__(self, graph: GraphModule, wide: torch.dtype) -> None:
        super().__init__(graph)
        self.wide = wide

    def run_node(self, node: Node) -> Any:
        if is_cast(node):
            assert isinstance(node.args[0], Node), "a cast has something to cast"
            value, known = self.env[node.args[0]], value_of(node)
            floats = known.is_floating_point() if isinstance(known, torch.Tensor) else value.is_floating_point()
            return value.to(self.wide) if floats else super().run_node(node)
        return super().run_node(node)


# --- text -------------------------------------------------------------------------------------------------------

_HEAD = '''"""{title}"""

import torch
from torch import device, inf, nan


class Model(torch.nn.Module):
    """What the model computes here."""

{forward}


{inputs}


def get_init_inputs():
    return []
'''


def problem_text(graph: GraphModule, values: Sequence[torch.Tensor], title: str, *, blind: bool = False) -> str:
    """The problem; without `get_inputs` where it is to be solved blind."""
    drawn = ",\n        ".join(_drawn(each) for each in values)
    inputs = f"def get_inputs():\n    return [\n        {drawn},\n    ]"
    if blind:
        shapes = "; ".join(f"{each.dtype}{list(each.shape)} strides {list(each.stride())}" for each in values)
        inputs = f"# Inputs: {shapes}.\n# Their values are kept from this text."
    return _HEAD.format(title=title, forward=_forward(graph), inputs=inputs)


def _forward(graph: GraphModule) -> str:
    lines = graph.graph.python_code("self").src.strip("\n").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("def forward"))
    body = [re.sub(r";\s+\w+( = \w+)* = None", "", line) for line in lines[begin:]]
    body = [re.sub(r"\s+# .*$", "", line) for line in body if line.strip()]
    return "\n".join(f"    {line}" for line in body)


def _drawn(value: torch.Tensor) -> str:
    """An expression for a tensor of the same shape, strides, dtype, and range of values."""
    shape = list(value.shape)
    kind = f"dtype={value.dtype}"
    if value.dtype is torch.bool:
        made = f"torch.rand({shape}) < {float(value.float().mean()):.3g}"
    elif value.is_floating_point() and value.numel():
        wide = value.detach().float()
        low, mean, spread = float(wide.min()), float(wide.mean()), float(wide.std(correction=0))
        made = f"(torch.randn({shape}) * {spread:.4g} + {mean:.4g})"
        made = f"{made}.abs()" if low > 0 else made
        made = f"{made}.to({value.dtype})"
    elif value.numel():
        low, high = int(value.min()), int(value.max())
        flat = value.flatten()
        if value.dim() == 1 and value.numel() > 2 and bool((flat[1:] >= flat[:-1]).all()) and high > low:
            made = f"torch.linspace({low}, {high}, {value.numel()}).to({value.dtype})"
        else:
            made = f"torch.randint({low}, {high + 1}, {shape}, {kind})"
    else:
        made = f"torch.empty({shape}, {kind})"
    if not value.is_contiguous():
        made = f"torch.empty_strided({shape}, {list(value.stride())}, {kind}).copy_({made})"
    return made


def solution_text(kernel: Kernel, arguments: Sequence[Any]) -> str:
    """The kernel's module with a ModelNew that calls its launcher as the site would."""
    if kernel.problem:
        return kernel.text
    names = iter(f"x{number}" for number in range(len(arguments)))
    given = [next(names) if isinstance(each, Node | torch.Tensor) else repr(each) for each in arguments]
    taken = [each for each in given if each.startswith("x")]
    return (
        f"{kernel.text}\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(taken)}):\n"
        f"        return {kernel.launcher.__name__}({', '.join(given)})\n"
    )
