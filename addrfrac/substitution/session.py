"""A Dynamo backend: captured graphs in, the same graphs with kernels at the sites that were decided on out.

One session belongs to one model. Graphs fill at the first call; what runs in them can be changed afterwards without
compiling again, because Dynamo holds a function that asks the session what to run.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Interpreter, Node

from addrfrac.records import Site
from addrfrac.substitution import operators
from addrfrac.substitution.graph import (
    Untraceable,
    back_in_place,
    describe,
    is_cast,
    is_no_work,
    lowered,
    make_functional,
    module_of,
    mutates,
    outside_dynamo,
    storage_of,
    value_of,
)
from addrfrac.substitution.passes import PASSES
from addrfrac.substitution.patterns import Match, Pattern, find_matches, patterns_of, without_overlap
from addrfrac.substitution.pool import Kernel

_numbers = itertools.count(1)
EAGER, COMPILED = "eager", "compiled"


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """A match in a graph of this process, and the site that it is in the records."""

    number: int
    site: Site
    match: Match
    graph: Captured


@dataclass(slots=True, kw_only=True, eq=False)
class Captured:
    """One graph that Dynamo captured."""

    index: int
    whole: GraphModule
    """In ATen calls, functional where `make_functional` could; never run as it is."""
    inputs: Sequence[Any]
    places: list[Place]
    trains: bool
    """Gradients flow through it."""
    chosen: list[Place] = field(default_factory=list)
    current: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        assert self.current is not None, "built before Dynamo gets it"
        return self.current(*arguments)


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """What is known of one model's graphs."""

    kernels: tuple[Kernel, ...]
    base: str = EAGER
    """'eager': calls of the graph one by one; 'compiled': Inductor on the graph with the kernels in it."""
    value: Callable[[Site], float | None] = lambda site: None
    """What a site's kernel is worth there; None leaves the site alone. Of sites that share a call the one of most
    worth gets its kernel. Asked when a graph is captured and on `rebuild`."""
    patterns: list[Pattern] = field(default_factory=list)
    graphs: list[Captured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be captured, matched or placed, with the reason."""
    watch: Callable[[Captured, Sequence[Any]], Any] | None = None
    """Runs a graph in its place, to look at its values; None lets it run."""

    def __post_init__(self) -> None:
        if self.kernels and not self.patterns:
            self.patterns, lacking = patterns_of(self.kernels)
            with_pass = {each.kernel for each in PASSES}
            self.notes += [each for each in lacking if each.partition(":")[0] not in with_pass]

    # --- Dynamo's side ------------------------------------------------------------------------------------------

    def backend(self, captured: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with each graph."""
        try:
            with outside_dynamo():
                whole = lowered(captured, inputs)
                make_functional(whole.graph)
                graph = Captured(
                    index=len(self.graphs), whole=whole, inputs=list(inputs), places=[], trains=_trains(inputs)
                )
                graph.places = self._places(graph)
        except Untraceable as error:
            self.notes.append(f"graph {len(self.graphs)} of {len(captured.graph.nodes)} nodes is left alone: {error}")
            return self._based(captured, inputs)
        self.graphs.append(graph)
        self._build(graph)

        def run(*arguments: Any) -> Any:
            return self.watch(graph, arguments) if self.watch is not None else graph(*arguments)

        return run

    def _based(self, graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.base == EAGER:
            return graph.forward
        from torch._inductor.compile_fx import compile_fx

        compiled: Any = compile_fx(graph, list(inputs))
        return compiled  # type: ignore[no-any-return]

    # --- sites --------------------------------------------------------------------------------------------------

    @property
    def places(self) -> list[Place]:
        """All places of all graphs, overlapping ones too."""
        return [place for graph in self.graphs for place in graph.places]

    @property
    def chosen(self) -> list[Place]:
        """The places that have their kernel now."""
        return [place for graph in self.graphs for place in graph.chosen]

    def rebuild(self, value: Callable[[Site], float | None]) -> None:
        """Put kernels where `value` says, in every graph; takes effect at the next call."""
        self.value = value
        for graph in self.graphs:
            self._build(graph)

    def _places(self, graph: Captured) -> list[Place]:
        matches, refused = find_matches(graph.whole.graph, self.patterns)
        for each in PASSES:
            kernels = [kernel for kernel in self.kernels if kernel.name == each.kernel]
            for kernel in kernels[:1]:
                found, why_not = each.find(graph.whole.graph, kernel)
                matches = [*found, *matches]
                refused += why_not
        self.notes += [f"graph {graph.index}: {line}" for line in refused]
        seen: Counter[str] = Counter()
        order = {node: number for number, node in enumerate(graph.whole.graph.nodes)}
        places = []
        for match in matches:
            why_not_here = _reads_twice(match) or _moved_past_write(match, graph.whole.graph, order)
            if why_not_here:
                self.notes.append(
                    f"graph {graph.index}: {match.kernel.name} at {match.outputs[0].name}: {why_not_here}"
                )
                continue
            site = _site(match, graph, seen)
            places.append(Place(number=next(_numbers), site=site, match=match, graph=graph))
        return places

    def _build(self, graph: Captured) -> None:
        worth = {place.number: self.value(place.site) for place in graph.places}
        wanted = [place for place in graph.places if worth[place.number] is not None]
        wanted.sort(key=lambda place: -(worth[place.number] or 0.0))  # stable: the larger pattern first among equals
        matches = without_overlap([place.match for place in wanted])
        graph.chosen = [place for place in wanted if place.match in matches]
        graph.current = self._based(substituted_graph(graph.whole, graph.chosen), graph.inputs)


def _trains(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


def _reads_twice(match: Match) -> str:
    """Why a kernel that gets one tensor as two of its arguments is left out: trials draw each argument by itself."""
    nodes = [each for each in match.arguments if isinstance(each, Node)]
    twice = next((node.name for node in nodes if nodes.count(node) > 1), "")
    return f"{twice} would be two of its arguments, and no trial keeps them equal" if twice else ""


def _moved_past_write(match: Match, graph: torch.fx.Graph, order: dict[Node, int]) -> str:
    """Why the kernel must not read its arguments where it would stand: something is written to them in between.

    A write that is an argument itself is none: what it wrote is what is read, there and here.
    """
    begin = min(order[node] for node in (*match.covered, match.after))
    end = max(order[node] for node in (*match.covered, match.after))
    read = [node for node in match.arguments if isinstance(node, Node) and storage_of(node) is not None]
    for node in graph.nodes:
        written = {storage_of(target) for target in mutates(node)} if begin <= order[node] <= end else set()
        if any(storage_of(each) in written and each is not node for each in read):
            return f"{node.name} writes to one of its arguments in between"
    return ""


def _site(match: Match, graph: Captured, seen: Counter[str]) -> Site:
    """The record of a match: its group is what its verdict holds for, its key tells it from its like."""
    values = [value_of(each) if isinstance(each, Node) else each for each in match.arguments]
    inputs = tuple(describe(each) for each in values)
    outputs = tuple(describe(value_of(each)) for each in match.outputs)
    calls = sorted(str(node.target) for node in match.covered if not (is_cast(node) or is_no_work(node)))
    said = "|".join((match.kernel.name, match.kernel.sha256, *inputs, *outputs, *calls, str(graph.trains)))
    group = f"{match.kernel.name}-{hashlib.sha256(said.encode()).hexdigest()[:10]}"
    number = seen[group]
    seen[group] += 1
    moved = None
    if match.kernel.bytes_moved is not None and match.kernel.op != "embedding":
        moved = match.kernel.bytes_moved(*values)
    return Site(
        key=f"{group}.{graph.index}.{number}",
        group=group,
        kernel=match.kernel.name,
        source_sha256=match.kernel.sha256,
        op=match.kernel.op,
        where=module_of(match.outputs[0]),
        inputs=inputs,
        outputs=outputs,
        calls=len(match.covered),
        bytes_moved=moved,
        trains=graph.trains,
        library=match.kernel.is_stock,
    )


# --- rewriting --------------------------------------------------------------------------------------------------


def substituted_graph(whole: GraphModule, places: Sequence[Place]) -> GraphModule:
    """A copy of the graph with the kernels' operators at these places."""
    copied: dict[Node, Node] = {}
    graph = torch.fx.Graph()
    result = graph.graph_copy(whole.graph, copied)
    graph.output(result)
    for old, new in copied.items():
        new.meta = dict(old.meta)
    graph._codegen = whole.graph._codegen
    for place in places:
        _put(graph, place, copied)
    back_in_place(graph)
    graph.lint()
    return GraphModule(whole, graph)


def _put(graph: torch.fx.Graph, place: Place, copied: dict[Node, Node]) -> None:
    match = place.match
    arguments = [copied[each] if isinstance(each, Node) else each for each in match.arguments]
    values = [value_of(each) if isinstance(each, Node) else each for each in arguments]
    target = operators.operator_of(match.kernel, values, len(match.outputs))
    given = [each for each in arguments if each is not None]
    after = copied[match.after]
    while after.op == "placeholder" and after.next.op == "placeholder":
        after = after.next
    with graph.inserting_after(after):
        call = graph.call_function(target, (*given, place.number))
    call.meta["val"] = tuple(value_of(each) for each in match.outputs)
    last = call
    old = [copied[output] for output in match.outputs]
    for number, output in enumerate(match.outputs):
        new = call
        if len(match.outputs) > 1:
            with graph.inserting_after(last):
                new = last = graph.call_function(operator.getitem, (call, number))
        new.meta["val"] = value_of(output)
        copied[output].replace_all_uses_with(new)
        copied[output] = new  # a later place may take it as its argument
    gone = {copied[node] for node in match.covered if node not in match.outputs} | set(old)
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node in sorted((each for each in gone if each in order), key=lambda node: -order[node]):
        if not node.users:
            graph.erase_node(node)


class Watcher(Interpreter):
    """Runs a captured graph as it is and shows each place's arguments as soon as its outputs exist."""

    def __init__(self, graph: Captured, places: Sequence[Place], show: Callable[[Watcher, Place], None]) -> None:
        super().__init__(graph.whole, garbage_collect_values=False)
        order = {node: number for number, node in enumerate(graph.whole.graph.nodes)}
        self.show = show
        self.at: dict[Node, list[Place]] = {}
        for place in places:
            last = max((*place.match.outputs, place.match.after), key=lambda node: order[node])
            self.at.setdefault(last, []).append(place)

    def run_node(self, node: Node) -> Any:
        result = super().run_node(node)
        self.env[node] = result
        for place in self.at.get(node, ()):
            self.show(self, place)
        return result

    def values(self, nodes: Sequence[Any]) -> list[Any]:
        """What these nodes hold now; plain values as they are."""
        return [self.env[each] if isinstance(each, Node) else each for each in nodes]
