"""Calls of the driver API, against a driver that keeps graphs as plain Python objects and fails by the same rules."""

from __future__ import annotations

import itertools
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from addrfrac import driver_graph
from addrfrac.driver_graph import DriverCallFailed
from addrfrac.graph_surgery import KERNEL, MEMSET, Edge, Node, reduced, remove


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_SUPPORTED = 801


class NodeType(IntEnum):
    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMSET = 2
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10


class EdgeData:
    def __init__(self, from_port: int = 0, of_type: int = 0) -> None:
        self.from_port, self.type = from_port, of_type


class Handle:
    """The bindings wrap every pointer in an object of its own that has only its number in common with others."""

    def __init__(self, init_value: int = 0) -> None:
        self.value = int(init_value)

    def __int__(self) -> int:
        return self.value


class FakeDriver:
    """Graphs as {node: attributes} and {(node, node): edge data}; fails where the driver's documentation says so."""

    CUgraph = CUgraphNode = CUstream = Handle
    CUgraphNodeType = NodeType
    CUgraphEdgeData = EdgeData
    CUgraphInstantiate_flags = SimpleNamespace(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY=8)

    def __init__(self) -> None:
        self.numbers = itertools.count(1000)
        self.graphs: dict[int, dict[str, Any]] = {}
        self.launched: list[tuple[int, int]] = []

    def add(self, kinds: list[Any], edges: dict[tuple[int, int], EdgeData]) -> int:
        """A graph of nodes with these (type, function name, kernel name)."""
        graph = next(self.numbers)
        nodes = {next(self.numbers): kind for kind in kinds}
        order = list(nodes)
        self.graphs[graph] = {
            "nodes": nodes,
            "edges": {(order[a], order[b]): data for (a, b), data in edges.items()},
            "from": {},
        }
        return graph

    def _holding(self, node: Any) -> dict[str, Any]:
        return next(graph for graph in self.graphs.values() if int(node) in graph["nodes"])

    def cuGraphGetNodes(self, graph: Any, count: int = 0) -> tuple[Any, ...]:
        nodes = list(self.graphs[int(graph)]["nodes"])
        return Result.CUDA_SUCCESS, [Handle(node) for node in nodes][:count], len(nodes)

    def cuGraphNodeGetType(self, node: Any) -> tuple[Any, ...]:
        return Result.CUDA_SUCCESS, self._holding(node)["nodes"][int(node)][0]

    def cuGraphKernelNodeGetParams(self, node: Any) -> tuple[Any, ...]:
        _, function, kernel = self._holding(node)["nodes"][int(node)]
        return Result.CUDA_SUCCESS, SimpleNamespace(
            func=Handle(int(node) if function else 0), kern=Handle(int(node) if kernel else 0)
        )

    def cuFuncGetName(self, function: Any) -> tuple[Any, ...]:
        return Result.CUDA_SUCCESS, self._holding(function)["nodes"][int(function)][1].encode()

    def cuKernelGetName(self, kernel: Any) -> tuple[Any, ...]:
        return Result.CUDA_SUCCESS, self._holding(kernel)["nodes"][int(kernel)][2].encode()

    def cuGraphGetEdges(self, graph: Any, count: int = 0) -> tuple[Any, ...]:
        edges = self.graphs[int(graph)]["edges"]
        before, after = [Handle(a) for a, _ in edges], [Handle(b) for _, b in edges]
        return Result.CUDA_SUCCESS, before[:count], after[:count], list(edges.values())[:count], len(edges)

    def cuGraphClone(self, graph: Any) -> tuple[Any, ...]:
        whole = self.graphs[int(graph)]
        if any(kind[0] is NodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC for kind in whole["nodes"].values()):
            return Result.CUDA_ERROR_NOT_SUPPORTED, None
        number = next(self.numbers)
        image = {node: next(self.numbers) for node in whole["nodes"]}
        self.graphs[number] = {
            "nodes": {image[node]: kind for node, kind in whole["nodes"].items()},
            "edges": {(image[a], image[b]): data for (a, b), data in whole["edges"].items()},
            "from": image,
        }
        return Result.CUDA_SUCCESS, Handle(number)

    def cuGraphNodeFindInClone(self, node: Any, clone: Any) -> tuple[Any, ...]:
        image = self.graphs[int(clone)]["from"].get(int(node))
        if image not in self.graphs[int(clone)]["nodes"]:
            return Result.CUDA_ERROR_INVALID_VALUE, None
        return Result.CUDA_SUCCESS, Handle(image)

    def cuGraphDestroyNode(self, node: Any) -> tuple[Any, ...]:
        graph = self._holding(node)
        del graph["nodes"][int(node)]
        graph["edges"] = {pair: data for pair, data in graph["edges"].items() if int(node) not in pair}
        return (Result.CUDA_SUCCESS,)

    def cuGraphAddDependencies(self, graph: Any, before: Any, after: Any, data: Any, count: int) -> tuple[Any, ...]:
        edges = self.graphs[int(graph)]["edges"]
        for a, b, of in zip(before[:count], after[:count], data, strict=True):
            if (int(a), int(b)) in edges:
                return (Result.CUDA_ERROR_INVALID_VALUE,)
            edges[int(a), int(b)] = of
        return (Result.CUDA_SUCCESS,)

    def cuGraphRemoveDependencies(self, graph: Any, before: Any, after: Any, data: Any, count: int) -> tuple[Any, ...]:
        edges = self.graphs[int(graph)]["edges"]
        for a, b, of in zip(before[:count], after[:count], data, strict=True):
            there = edges.pop((int(a), int(b)), None)
            if there is None or (there.type, there.from_port) != (of.type, of.from_port):
                return (Result.CUDA_ERROR_INVALID_VALUE,)
        return (Result.CUDA_SUCCESS,)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
        assert flags == 8
        return Result.CUDA_SUCCESS, Handle(int(graph) + 1_000_000)

    def cuGraphLaunch(self, executable: Any, stream: Any) -> tuple[Any, ...]:
        self.launched.append((int(executable), int(stream)))
        return (Result.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, executable: Any) -> tuple[Any, ...]:
        return (Result.CUDA_SUCCESS,)

    def cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
        del self.graphs[int(graph)]
        return (Result.CUDA_SUCCESS,)


class DriverOfTwelve(FakeDriver):
    """cuda-bindings 12 hands edge data over only by the calls called _v2."""

    cuGraphGetEdges_v2 = FakeDriver.cuGraphGetEdges
    cuGraphAddDependencies_v2 = FakeDriver.cuGraphAddDependencies
    cuGraphRemoveDependencies_v2 = FakeDriver.cuGraphRemoveDependencies

    def cuGraphGetEdges(self, graph: Any, count: int = 0) -> tuple[Any, ...]:
        raise AssertionError("loses edge data")

    def cuGraphAddDependencies(self, *arguments: Any) -> tuple[Any, ...]:  # type: ignore[override]
        raise AssertionError("has no place for edge data")

    cuGraphRemoveDependencies = cuGraphAddDependencies


@pytest.fixture(params=[FakeDriver, DriverOfTwelve])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake: FakeDriver = request.param()
    monkeypatch.setattr(driver_graph, "_driver", lambda: fake)
    return fake


def kernel(name: str) -> tuple[NodeType, str, str]:
    return NodeType.CU_GRAPH_NODE_TYPE_KERNEL, name, ""


def diamond(driver: FakeDriver) -> int:
    """0 forks into 1 and 2, which 3 joins; 4 begins early after 3 and 5 waits for both; 6 sets memory."""
    kinds = [kernel(f"k{index}") for index in range(5)]
    kinds.append((NodeType.CU_GRAPH_NODE_TYPE_KERNEL, "", "_ZN3foo3barEv"))
    kinds.append((NodeType.CU_GRAPH_NODE_TYPE_MEMSET, "", ""))
    edges = {pair: EdgeData() for pair in [(0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (5, 6)]}
    return driver.add(kinds, {**edges, (3, 4): EdgeData(1, 1), (3, 5): EdgeData(1, 1)})


def test_nodes_edges_and_names_are_read(driver: FakeDriver) -> None:
    captured = driver_graph.read(diamond(driver))
    assert captured.graph.nodes[1] == Node(kind=KERNEL, names=("k1",))
    assert captured.graph.nodes[5] == Node(kind=KERNEL, names=("_ZN3foo3barEv", "foo::bar()"))
    assert captured.graph.nodes[6] == Node(kind=MEMSET)
    assert Edge(before=0, after=1) in captured.graph.edges
    assert Edge(before=3, after=4, full=False) in captured.graph.edges
    assert set(captured.edge_data) == {(3, 4), (3, 5)}
    assert captured.why_not == ""


def test_a_reduced_copy_has_the_edges_of_the_surgery_and_the_captured_graph_stays_whole(driver: FakeDriver) -> None:
    raw = diamond(driver)
    captured = driver_graph.read(raw)
    surgery = remove(captured.graph, frozenset({3, 4}))
    executable = driver_graph.instantiate(captured, surgery)
    copy = driver_graph.read(int(executable.graph))
    kept = [node for node in range(7) if node not in surgery.deleted]
    assert [node.names for node in copy.graph.nodes] == [captured.graph.nodes[node].names for node in kept]
    edges = {(kept[edge.before], kept[edge.after]) for edge in copy.graph.edges}
    assert edges == reduced(captured.graph, surgery) == {(0, 1), (0, 2), (1, 5), (2, 5), (5, 6)}
    assert driver_graph.read(raw).graph == captured.graph
    executable.launch(77)
    assert driver.launched == [(int(executable.executable), 77)]
    executable.close()
    assert list(driver.graphs) == [raw], "nothing is left behind"


def test_an_early_start_is_taken_away_before_the_full_wait_is_added(driver: FakeDriver) -> None:
    captured = driver_graph.read(diamond(driver))
    surgery = remove(captured.graph, frozenset({4}))
    assert surgery.upgraded == ((3, 5),)
    copy = driver_graph.read(int(driver_graph.instantiate(captured, surgery).graph))
    assert Edge(before=3, after=4, full=True) in copy.graph.edges  # 4 is what was 5


def test_everything_can_be_deleted(driver: FakeDriver) -> None:
    captured = driver_graph.read(diamond(driver))
    executable = driver_graph.instantiate(captured, remove(captured.graph, frozenset(range(7))))
    assert driver_graph.read(int(executable.graph)).graph.nodes == ()


def test_a_graph_that_cannot_be_copied_says_so_and_leaves_nothing(driver: FakeDriver) -> None:
    raw = driver.add([kernel("k"), (NodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC, "", "")], {})
    captured = driver_graph.read(raw)
    assert "mem alloc" in captured.why_not
    with pytest.raises(DriverCallFailed, match="cuGraphClone: CUDA_ERROR_NOT_SUPPORTED"):
        driver_graph.instantiate(captured)
    assert list(driver.graphs) == [raw]
