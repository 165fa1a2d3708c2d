"""A site in, a problem in KernelBench's format out (and the kernel as a solution to it): real shapes and strides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Interpreter, Node

from addrfrac.substitution.graph import is_cast, value_of
from addrfrac.substitution.patterns import BAGS, SPLITS, VIEWS, Match
from addrfrac.substitution.pool import Kernel

aten = torch.ops.aten
LOOKUPS = BAGS | {aten.embedding.default}
PARTS = VIEWS | SPLITS | {aten.unbind.int, aten.chunk.default}
MOST_TABLE_ELEMENTS = 1 << 26
"""Of all tables of a problem together."""


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
    drawn = ",\n        ".join(_drawn(each) for each in _of_low_tables(graph, values))
    inputs = f"def get_inputs():\n    return [\n        {drawn},\n    ]"
    if blind:
        shapes = "; ".join(f"{each.dtype}{list(each.shape)} strides {list(each.stride())}" for each in values)
        inputs = f"# Inputs: {shapes}.\n# Their values are kept from this text."
    return _HEAD.format(title=title, forward=_forward(graph), inputs=inputs)


def _of_low_tables(graph: GraphModule, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Embedding tables cut where they are huge, with ids that fit: how high a table is decides nothing in a kernel.

    Ten gigabytes of random rows for each kind of inputs are minutes; the site's own values are judged in full height.
    """
    given = dict(zip((node for node in graph.graph.nodes if node.op == "placeholder"), values, strict=True))
    rows = max(MOST_TABLE_ELEMENTS // max(1, sum(each.shape[-1] for each in given.values() if each.dim() == 2)), 1)
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target not in LOOKUPS:
            continue
        table, ids = given.get(node.args[0]), _source(node.args[1])
        if table is not None and table.shape[0] > rows and ids in given:
            given[node.args[0]] = table[:rows]
            given[ids] = given[ids].remainder(rows)
    return list(given.values())


def _source(node: Any) -> Any:
    """The tensor that a node is a view of."""
    while isinstance(node, Node) and node.op == "call_function" and node.target in PARTS:
        node = node.args[0]
    return node


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
        rises = value.shape[-1:] > (2,) and bool((value[..., 1:] >= value[..., :-1]).all()) and high > low
        if rises and value.dim() == 1:
            made = f"torch.linspace({low}, {high}, {value.numel()}).to({value.dtype})"
        elif rises and value.dim() == 2:  # offsets of several tables
            ends = list(zip(value[:, 0].tolist(), value[:, -1].tolist(), strict=True))
            rows = f"[torch.linspace(low, high, {shape[1]}) for low, high in {ends}]"
            made = f"torch.stack({rows}).to({value.dtype})"
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
