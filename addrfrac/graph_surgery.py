"""A recorded CUDA graph and the nodes to delete in, the edges that keep the order of the others out. No GPU needed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

KERNEL, MEMCPY, MEMSET, CHILD_GRAPH = "kernel", "memcpy", "memset", "child graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a captured graph."""

    kind: str
    """KERNEL, MEMCPY, MEMSET, CHILD_GRAPH, or another type as the driver calls it: 'host', 'empty', 'wait event'."""
    names: tuple[str, ...] = ()
    """A kernel's name as the driver spells it, and demangled; () for what is no kernel or has no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One dependency: `after` begins when `before` lets it. Both are positions in `Graph.nodes`."""

    before: int
    after: int
    full: bool = True
    """`after` waits until `before` has ended. False for programmatic dependent launch: it may begin earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in the driver's order (that of the capture) and the dependencies between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @property
    def branches(self) -> bool:
        """Some node has several predecessors or several successors: the graph is no chain."""
        before = [pair[0] for pair in _distinct(self.edges)]
        after = [pair[1] for pair in _distinct(self.edges)]
        return len(set(before)) < len(before) or len(set(after)) < len(after) or self._parts() > 1

    def _parts(self) -> int:
        """Nodes that wait for none: a chain has one."""
        return len(self.nodes) - len({edge.after for edge in self.edges})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surgery:
    """What to do to a graph so that some nodes are gone and the others run in the order they had."""

    deleted: tuple[int, ...]
    added: tuple[tuple[int, int], ...]
    """Full dependencies to add: each from what came before a deleted node to what came after it."""
    upgraded: tuple[tuple[int, int], ...]
    """Programmatic edges between kept nodes that become full: a deleted node between the two made one wait for all of
    the other."""


def remove(graph: Graph, deleted: frozenset[int]) -> Surgery:
    """Delete nodes and join each predecessor of a run of deleted nodes to each of its successors.

    Edges between kept nodes stay as they are, programmatic ones too; what leads through a deleted node becomes a full
    dependency. A new edge that others imply is left out: the order is the same, and the device has less to wait for.
    """
    successors = _successors(graph)
    order = topological_order(graph)
    through = _first_kept(order, successors, deleted)
    waits = _descendants(order, [{after for after, full in of.items() if full} for of in successors])
    added: list[tuple[int, int]] = []
    upgraded: list[tuple[int, int]] = []
    for node in order:
        if node in deleted:
            continue
        direct = {after: full for after, full in successors[node].items() if after not in deleted}
        beyond = 0
        for after in successors[node]:
            beyond |= through[after] if after in deleted else 0
        upgraded += [(node, after) for after, full in direct.items() if not full and beyond >> after & 1]
        new = [after for after in _bits(beyond) if after not in direct]
        implied = 0
        for after in (*new, *(after for after, full in direct.items() if full or beyond >> after & 1)):
            implied |= waits[after]
        added += [(node, after) for after in new if not implied >> after & 1]
    return Surgery(deleted=tuple(sorted(deleted)), added=tuple(added), upgraded=tuple(upgraded))


def reduced(graph: Graph, surgery: Surgery) -> frozenset[tuple[int, int]]:
    """The edges of the graph after the surgery, by the nodes' positions in the whole graph."""
    gone = set(surgery.deleted)
    kept = {pair for pair in _distinct(graph.edges) if not gone.intersection(pair)}
    return frozenset(kept.union(surgery.added))


def topological_order(graph: Graph) -> list[int]:
    """Every node after all that it waits for, else in the driver's order.

    Raises ValueError for edges in a circle, which no graph of the driver has.
    """
    successors = _successors(graph)
    waiting = [0] * len(graph.nodes)
    for of in successors:
        for after in of:
            waiting[after] += 1
    ready = [node for node, count in enumerate(waiting) if not count]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for after in successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, after)
    if len(order) < len(graph.nodes):
        raise ValueError("the edges of the graph go round in a circle")
    return order


def descendants(graph: Graph) -> list[int]:
    """For each node a bit mask of the nodes that come after it."""
    return _descendants(topological_order(graph), [set(of) for of in _successors(graph)])


def _descendants(order: list[int], successors: list[set[int]]) -> list[int]:
    after = [0] * len(order)
    for node in reversed(order):
        for successor in successors[node]:
            after[node] |= after[successor] | 1 << successor
    return after


def _first_kept(order: list[int], successors: list[dict[int, bool]], deleted: frozenset[int]) -> dict[int, int]:
    """For each deleted node a bit mask of the kept nodes that are reached from it through deleted ones alone."""
    through: dict[int, int] = {}
    for node in reversed(order):
        if node in deleted:
            mask = 0
            for after in successors[node]:
                mask |= through[after] if after in deleted else 1 << after
            through[node] = mask
    return through


def _successors(graph: Graph) -> list[dict[int, bool]]:
    """For each node its direct successors, and whether they wait for all of it."""
    found: list[dict[int, bool]] = [{} for _ in graph.nodes]
    for edge in graph.edges:
        found[edge.before][edge.after] = edge.full or found[edge.before].get(edge.after, False)
    return found


def _distinct(edges: tuple[Edge, ...]) -> set[tuple[int, int]]:
    return {(edge.before, edge.after) for edge in edges}


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
