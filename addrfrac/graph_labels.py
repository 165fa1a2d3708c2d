"""A captured graph and the profiled replays of it in, what is known of each of its kernel nodes out.

A replay's trace does not say which node a kernel came from: only from CUDA 13.1 on does the driver give the id that
CUPTI writes (cuGraphNodeGetToolsId), and torch 2.11 writes none. So the n-th kernel of a name is taken for the n-th
node of it: surely right where the graph runs those nodes one after the other and the counts agree. Elsewhere a node
gets what all kernels of its name have in common, and stays unlabelled where that leaves a doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np

from addrfrac.classify.labelling import label_kernel
from addrfrac.classify.rules import RuleSet
from addrfrac.graph_surgery import KERNEL, Graph, descendants, topological_order
from addrfrac.records import Ints, Label, Labels, Trace, Window


class Match(StrEnum):
    """How a node came by its label."""

    ORDER = "order"
    """It is the n-th node of its name as the kernel is the n-th of that name in every replay."""
    NAME = "name"
    """Which of the kernels of its name it is, is not certain; they all have one label, or the name alone tells."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabel:
    """What is known of one kernel node."""

    name: str
    """As the trace spells it, or demangled where the trace has no kernel of that name."""
    label: Label | None
    """None: not certain, the node counts as unknown."""
    us: float | None
    """Its time in a replay (median over replays; the mean of its name's where the match is by name)."""
    match: Match


def label_nodes(graph: Graph, trace: Trace, labels: Labels, window: Window, rules: RuleSet) -> dict[int, NodeLabel]:
    """Kernel nodes by position -> their labels, from the replays that the window of the trace holds."""
    replays = replayed_rows(trace, window)
    by_name = _occurrences(trace, replays)
    after = descendants(graph)
    found: dict[int, NodeLabel] = {}
    for spelled, nodes in _nodes_by_name(graph, set(by_name)).items():
        occurrences = by_name.get(spelled)
        if occurrences is None or occurrences.shape[1] == 0:
            found |= dict.fromkeys(nodes, _by_name_alone(spelled, rules))
        elif occurrences.shape[1] == len(nodes) and _one_after_another(nodes, after):
            for node, rows in zip(nodes, occurrences.T, strict=True):
                found[node] = _in_order(spelled, rows, trace, labels)
        else:
            same_count = occurrences.shape[1] == len(nodes)
            found |= dict.fromkeys(nodes, _in_common(spelled, occurrences.ravel(), trace, labels, same_count))
    return found


def replayed_rows(trace: Trace, window: Window) -> list[Ints]:
    """Kernel rows of each graph launch within the window, in order of start."""
    kernels = trace.kernels
    if not len(trace.launches):
        return []
    rows = np.flatnonzero((window.step >= 0) & (kernels.launch >= 0))
    rows = rows[trace.launches.is_graph[kernels.launch[rows]]]
    return [rows[kernels.launch[rows] == launch] for launch in np.unique(kernels.launch[rows])]


def _occurrences(trace: Trace, replays: Sequence[Ints]) -> dict[str, Ints]:
    """Name -> (replays, n) rows, the n-th of that name in each replay; (0, 0) where replays disagree on how many."""
    found: dict[str, Ints] = {}
    if not replays:
        return found
    for name in sorted({int(name) for rows in replays for name in trace.kernels.name[rows]}):
        of_name = [rows[trace.kernels.name[rows] == name] for rows in replays]
        usual = Counter(len(rows) for rows in of_name).most_common(1)[0][0]
        kept = [rows for rows in of_name if len(rows) == usual]
        agree = 2 * len(kept) > len(replays) or len(replays) == 1
        found[trace.names[name]] = np.stack(kept) if agree else np.empty((0, 0), dtype=np.int64)
    return found


def _nodes_by_name(graph: Graph, spelled: set[str]) -> dict[str, list[int]]:
    """Kernel nodes of each name in topological order, under the spelling that the trace has."""
    found: dict[str, list[int]] = {}
    for node in topological_order(graph):
        names = graph.nodes[node].names
        if graph.nodes[node].kind == KERNEL and names:
            name = next((name for name in reversed(names) if name in spelled), names[-1])
            found.setdefault(name, []).append(node)
    return found


def _one_after_another(nodes: Sequence[int], after: Sequence[int]) -> bool:
    return all(after[left] >> right & 1 for left, right in pairwise(nodes))


def _in_order(name: str, rows: Ints, trace: Trace, labels: Labels) -> NodeLabel:
    label = _common_label(rows, labels)
    return NodeLabel(
        name=name, label=label, us=_median_us(rows, trace), match=Match.NONE if label is None else Match.ORDER
    )


def _in_common(name: str, rows: Ints, trace: Trace, labels: Labels, same_count: bool) -> NodeLabel:
    """The time is known only where the kernels can be shared out among the nodes, each its mean."""
    label = _common_label(rows, labels)
    us = float((trace.kernels.end_ns - trace.kernels.start_ns)[rows].mean()) / 1e3 if same_count else None
    return NodeLabel(name=name, label=label, us=us, match=Match.NONE if label is None else Match.NAME)


def _by_name_alone(name: str, rules: RuleSet) -> NodeLabel:
    label = label_kernel(name, rules=rules, is_graph_replay=True)
    certain = not label.is_catch_all
    return NodeLabel(name=name, label=label if certain else None, us=None, match=Match.NAME if certain else Match.NONE)


def _common_label(rows: Ints, labels: Labels) -> Label | None:
    """The label of all these kernels, without op stack where only that differs; None where more does."""
    table: list[Label] = [labels.table[index] for index in sorted(set(labels.of_kernel[rows].tolist()))]
    first = table[0]
    if len(table) == 1:
        return first
    if any(_meaning(label) != _meaning(first) for label in table):
        return None
    common: Label = replace(first, op_stack=(), launching_op=None, evidence=())
    return common


def _meaning(label: Label) -> tuple[object, ...]:
    """All of a label that a policy or a class asks for."""
    return label.op, label.provider, label.role, label.phase, label.incumbent, label.is_catch_all


def _median_us(rows: Ints, trace: Trace) -> float:
    return float(np.median((trace.kernels.end_ns - trace.kernels.start_ns)[rows])) / 1e3
