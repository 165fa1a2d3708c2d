"""A graph captured by torch in, its nodes and edges out, and executable copies of it with nodes deleted.

Everything goes through the driver API of cuda-bindings, which torch's CUDA builds bring along.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from addrfrac.graph_surgery import CHILD_GRAPH, KERNEL, MEMCPY, MEMSET, Edge, Graph, Node, Surgery

LONGEST_DEMANGLED = 1024
"""Kineto leaves longer names mangled (libkineto, Demangle.cpp)."""
_KINDS = {"KERNEL": KERNEL, "MEMCPY": MEMCPY, "MEMSET": MEMSET, "GRAPH": CHILD_GRAPH}
_UNCLONABLE = frozenset({"mem alloc", "mem free", "conditional"})
"""cuGraphClone refuses graphs that hold one of these."""


class DriverCallFailed(RuntimeError):
    """A call of the driver API returned an error; the text is the call and the driver's name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """A captured graph, read; it stays whole, and its owner keeps it."""

    graph: Graph
    handle: Any
    nodes: tuple[Any, ...]
    """The driver's handle of each node of `graph`."""
    edge_data: dict[tuple[int, int], Any]
    """Of programmatic edges."""

    @property
    def why_not(self) -> str:
        """Why nodes of it cannot be deleted; '' where they can."""
        for node in self.graph.nodes:
            if node.kind in _UNCLONABLE:
                return (
                    f"the graph holds a {node.kind} node, and the driver neither copies such graphs nor deletes in them"
                )
        return ""


@dataclass(slots=True, kw_only=True)
class Executable:
    """An instantiated copy of a captured graph."""

    graph: Any
    executable: Any

    def launch(self, stream: int) -> None:
        """Launch it on a stream, given as `torch.cuda.Stream.cuda_stream`."""
        driver = _driver()
        _call(driver.cuGraphLaunch, self.executable, driver.CUstream(init_value=stream))

    def close(self) -> None:
        """Free it; the device must have finished with it."""
        driver = _driver()
        _call(driver.cuGraphExecDestroy, self.executable)
        _call(driver.cuGraphDestroy, self.graph)


def read(raw_graph: int) -> CapturedGraph:
    """Nodes, names and edges of a graph, from `torch.cuda.CUDAGraph(keep_graph=True).raw_cuda_graph()`."""
    driver = _driver()
    handle = driver.CUgraph(init_value=raw_graph)
    _, count = _call(driver.cuGraphGetNodes, handle, 0)
    handles = tuple(_call(driver.cuGraphGetNodes, handle, count)[0][:count]) if count else ()
    position = {int(node): index for index, node in enumerate(handles)}
    edges: list[Edge] = []
    edge_data = {}
    get_edges = _with_edge_data("cuGraphGetEdges")
    *_, edge_count = _call(get_edges, handle, 0)
    if edge_count:
        before, after, data, edge_count = _call(get_edges, handle, edge_count)
        for index in range(edge_count):
            pair = position[int(before[index])], position[int(after[index])]
            full = not int(data[index].type) and not int(data[index].from_port)
            edges.append(Edge(before=pair[0], after=pair[1], full=full))
            if not full:
                edge_data[pair] = data[index]
    nodes = tuple(_node(driver, node) for node in handles)
    return CapturedGraph(
        graph=Graph(nodes=nodes, edges=tuple(edges)), handle=handle, nodes=handles, edge_data=edge_data
    )


def instantiate(captured: CapturedGraph, surgery: Surgery | None = None) -> Executable:
    """An executable copy of the graph, after the surgery if one is given. The captured graph is not touched."""
    driver = _driver()
    clone = _call(driver.cuGraphClone, captured.handle)
    try:
        if surgery is not None:
            _operate(captured, clone, surgery)
        flags = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
        executable = _call(driver.cuGraphInstantiate, clone, flags)
    except DriverCallFailed:
        _call(driver.cuGraphDestroy, clone)
        raise
    return Executable(graph=clone, executable=executable)


def _operate(captured: CapturedGraph, clone: Any, surgery: Surgery) -> None:
    driver = _driver()

    def cloned(node: int) -> Any:
        return _call(driver.cuGraphNodeFindInClone, captured.nodes[node], clone)

    deleted = [cloned(node) for node in surgery.deleted]
    remove_edges, add_edges = _with_edge_data("cuGraphRemoveDependencies"), _with_edge_data("cuGraphAddDependencies")
    for before, after in surgery.upgraded:
        data = [captured.edge_data[before, after]]
        _call(remove_edges, clone, [cloned(before)], [cloned(after)], data, 1)
    new = (*surgery.added, *surgery.upgraded)
    if new:
        before_nodes, after_nodes = [cloned(before) for before, _ in new], [cloned(after) for _, after in new]
        plain = [driver.CUgraphEdgeData() for _ in new]  # all zero: wait for all of it
        _call(add_edges, clone, before_nodes, after_nodes, plain, len(new))
    for node in deleted:  # takes the node's own edges along
        _call(driver.cuGraphDestroyNode, node)


def _node(driver: Any, handle: Any) -> Node:
    of_type = driver.CUgraphNodeType(_call(driver.cuGraphNodeGetType, handle))
    word = of_type.name.removeprefix("CU_GRAPH_NODE_TYPE_")
    kind = _KINDS.get(word, word.replace("_", " ").lower())
    return Node(kind=kind, names=_kernel_names(driver, handle) if kind == KERNEL else ())


def _kernel_names(driver: Any, handle: Any) -> tuple[str, ...]:
    """The name as the driver has it and demangled as Kineto does it; () where the driver has none."""
    parameters = _call(driver.cuGraphKernelNodeGetParams, handle)
    if int(parameters.func):
        name = _call(driver.cuFuncGetName, parameters.func)
    elif int(parameters.kern):
        name = _call(driver.cuKernelGetName, parameters.kern)
    else:
        return ()
    mangled = name.decode() if isinstance(name, bytes) else str(name)
    plain = demangled(mangled)
    return (mangled,) if plain == mangled else (mangled, plain)


def demangled(name: str) -> str:
    """The name as the C++ runtime that torch is linked against demangles it; the name itself where that cannot."""
    if not name.startswith("_Z") or len(name) > LONGEST_DEMANGLED:
        return name
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    demangle = runtime.__cxa_demangle
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    status = ctypes.c_int(-1)
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    plain = ctypes.string_at(text).decode(errors="replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return plain


def _with_edge_data(name: str) -> Callable[..., Any]:
    """The call that hands edge data over: `..._v2` in cuda-bindings 12, the plain name from 13 on."""
    driver = _driver()
    call: Callable[..., Any] = getattr(driver, f"{name}_v2", None) or getattr(driver, name)
    return call


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returned besides its status: nothing, one value, or a tuple. Raises DriverCallFailed."""
    status, *values = function(*arguments)
    if int(status):
        raise DriverCallFailed(f"{function.__name__}: {getattr(status, 'name', status)}")
    return values[0] if len(values) == 1 else tuple(values) or None


def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")
