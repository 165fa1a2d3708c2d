"""A kernel's reference in, the graphs to look for; a captured graph in, the places where they are.

A reference is traced as the model is, so both are in the same calls. It is first found whatever its shapes and dtypes
(casts passed over, either order of commutative calls), then traced again with the arguments of the place and compared
in full: constants, shapes and dtypes of every output.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from addrfrac.substitution.graph import (
    COMMUTATIVE,
    UNTRACEABLE,
    full_arguments,
    is_cast,
    is_no_work,
    make_functional,
    through,
    value_of,
)
from addrfrac.substitution.pool import Kernel

MARK = 0.00123457
"""Plain floats of a case are replaced by multiples of it, by which they are known again in the graph."""
BAGS = {torch.ops.aten.embedding_bag.default, torch.ops.aten.embedding_bag.padding_idx}
SPLITS = {torch.ops.aten.split_with_sizes.default, torch.ops.aten.split.Tensor}
VIEWS = {
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.transpose.int,
    torch.ops.aten.view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.permute.default,
    torch.ops.aten.expand.default,
    torch.ops.aten.select.int,
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.alias.default,
    torch.ops.aten.contiguous.default,
    operator.getitem,
}
"""Calls that cost no device time: they may stay behind where something else reads them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """A kernel's reference as a graph."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    """Of the traced call: a placeholder Node for a tensor, else the plain value (floats: the mark)."""
    outputs: tuple[Node, ...]
    marks: dict[float, int]
    """Mark -> position of the argument that it stands for."""
    work: int
    """Calls in it that cost something: the more, the earlier it is looked for."""
    shape: str
    """Its calls and wiring in words; equal patterns are looked for once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Match:
    """A place in a captured graph that computes what a kernel computes."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    """Of the launcher: Nodes of the captured graph and plain values."""
    outputs: tuple[Node, ...]
    """Nodes that the kernel's outputs take the place of."""
    covered: frozenset[Node]
    """Nodes that compute nothing else."""
    after: Node
    """The last node that must stand before the kernel's call."""


# --- tracing references -----------------------------------------------------------------------------------------


def patterns_of(kernels: Iterable[Kernel]) -> tuple[list[Pattern], list[str]]:
    """The graphs of all kernels' references, the largest first; and which have none, with the reason."""
    found: dict[str, Pattern] = {}
    lacking: list[str] = []
    for kernel in kernels:
        reasons = []
        for example in kernel.examples:
            made = _pattern(kernel, _with_defaults(kernel.reference, example()))
            if isinstance(made, str):
                reasons.append(made)
            else:
                found.setdefault(f"{kernel.name} {kernel.sha256} {made.shape}", made)
        if len(reasons) == len(kernel.examples):
            lacking.append(f"{kernel.name}: no pattern ({reasons[0] if reasons else 'it has no CASES'})")
    return sorted(found.values(), key=lambda each: -each.work), lacking


def _with_defaults(reference: Any, given: Sequence[Any]) -> list[Any]:
    """The arguments, with the defaults of those left out."""
    function = reference.forward if isinstance(reference, torch.nn.Module) else reference
    parameters = list(inspect.signature(function).parameters.values())
    return [*given, *(each.default for each in parameters[len(given) :] if each.default is not each.empty)]


def _pattern(kernel: Kernel, arguments: Sequence[Any]) -> Pattern | str:
    """The pattern of one call of the reference, or why there is none."""
    marks: dict[float, int] = {}
    marked = list(arguments)
    for position, value in enumerate(marked):
        if type(value) is float and value != 0.0:
            marked[position] = MARK * (position + 1)
            marks[marked[position]] = position
    traced = trace(kernel.reference, marked)
    if isinstance(traced, str):
        return traced
    placeholders = iter(node for node in traced.graph.nodes if node.op == "placeholder")
    wired = tuple(next(placeholders) if isinstance(value, torch.Tensor) else value for value in marked)
    outputs = _outputs(traced.graph)
    if outputs is None:
        return "its reference returns something else than tensors"
    inside = [node for node in traced.graph.nodes if node.op == "call_function"]
    work = sum(not (is_cast(node) or is_no_work(node) or node.target in VIEWS) for node in inside)
    if not work:
        return "its reference computes nothing"
    return Pattern(kernel=kernel, arguments=wired, outputs=outputs, marks=marks, work=work, shape=_shape(outputs))


def trace(function: Any, arguments: Sequence[Any]) -> GraphModule | str:
    """A call as a graph in ATen calls whose placeholders are its tensors in order; or why it cannot be traced."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        rest = iter(given)
        return function(*[next(rest) if isinstance(each, torch.Tensor) else each for each in arguments])

    try:
        with torch.no_grad():
            traced = make_fx(call, pre_dispatch=True, tracing_mode="fake")(*tensors)
    except UNTRACEABLE as error:
        first = str(error).strip().splitlines()
        return f"{type(error).__name__}: {first[0][:120] if first else ''}"
    make_functional(traced.graph)
    return traced


def _outputs(graph: torch.fx.Graph) -> tuple[Node, ...] | None:
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    listed = tuple(result) if isinstance(result, list | tuple) else (result,)
    return listed if all(isinstance(each, Node) for each in listed) else None


def _shape(outputs: Sequence[Node]) -> str:
    def told(value: Any) -> str:
        if isinstance(value, Node):
            value = through(value)
            if value.op == "placeholder":
                return str(value.name)
            return f"{value.target}({', '.join(told(each) for each in (*value.args, *value.kwargs.values()))})"
        if isinstance(value, list | tuple):
            return f"[{', '.join(told(each) for each in value)}]"
        return "#" if type(value) in (int, float) else str(value)

    return "; ".join(told(output) for output in outputs)


# --- finding ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class _Bound:
    """What a partial match has bound so far; copied where two ways are open."""

    nodes: dict[Node, Node] = field(default_factory=dict)
    """Pattern node -> captured node, casts passed over."""
    marks: dict[float, float] = field(default_factory=dict)
    passed: set[Node] = field(default_factory=set)
    """Captured casts and calls of no work that were passed over."""

    def copy(self) -> _Bound:
        return _Bound(nodes=dict(self.nodes), marks=dict(self.marks), passed=set(self.passed))


class Finder:
    """Matches of patterns in one captured graph, on which `make_functional` was called."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        self.by_target: dict[Any, list[Node]] = {}
        self.numbers: dict[Node, Any] = {}
        for node in graph.nodes:
            if node.op == "call_function":
                self.by_target.setdefault(node.target, []).append(node)
            self.numbers[node] = self._number(node)
        self.refused: list[str] = []
        """Places that look like a kernel's and are none, with the reason."""

    def _number(self, node: Node) -> Any:
        """Equal for two nodes that must hold the same value (two `unsqueeze` of one tensor)."""
        if node.op != "call_function" or node.target not in VIEWS:
            return node

        def told(value: Any) -> Any:
            if isinstance(value, Node):
                return self.numbers.get(value, value)
            if isinstance(value, list | tuple):
                return tuple(told(each) for each in value)
            return value

        return (node.target, told(node.args), tuple((name, told(each)) for name, each in node.kwargs.items()))

    def find(self, pattern: Pattern) -> Iterator[Match]:
        """Places of one pattern, in the order of the graph."""
        first = through(pattern.outputs[0])
        for node in self.by_target.get(first.target, []):
            bound = self._match(first, node, _Bound(), pattern, strict=False)
            if bound is None:
                continue
            bound = self._others(pattern, node, bound)
            if bound is None:
                continue
            match = self._confirmed(pattern, bound)
            if isinstance(match, str):
                self.refused.append(f"{pattern.kernel.name} at {node.name}: {match}")
            else:
                yield match

    def _others(self, pattern: Pattern, first: Node, bound: _Bound) -> _Bound | None:
        """The further outputs: bound already, or the nearest node after the first that fits."""
        for output in pattern.outputs[1:]:
            wanted = through(output)
            if wanted in bound.nodes or wanted.op == "placeholder":
                continue
            nearest = sorted(
                self.by_target.get(wanted.target, []), key=lambda node: abs(self.order[node] - self.order[first])
            )
            taken = set(bound.nodes.values())
            for node in nearest:
                if node in taken:
                    continue
                found = self._match(wanted, node, bound.copy(), pattern, strict=False)
                if found is not None:
                    bound = found
                    break
            else:
                return None
        return bound

    def _match(self, wanted: Any, there: Any, bound: _Bound, pattern: Pattern, *, strict: bool) -> _Bound | None:
        """The bindings with which the captured value is the pattern's; None where it is not."""
        if isinstance(wanted, Node):
            source = through(wanted)
            if source.op == "placeholder" and isinstance(there, Node):
                return self._bind(source, _origin(there, casts=_casts(wanted)), there, bound)
            return self._match_node(source, there, bound, pattern, strict=strict)
        if isinstance(wanted, list | tuple):
            if strict is False and not any(isinstance(each, Node) for each in wanted):
                return bound if isinstance(there, list | tuple) or type(there) is type(wanted) else None
            if not isinstance(there, list | tuple) or len(there) != len(wanted):
                return None
            for mine, other in zip(wanted, there, strict=True):
                found = self._match(mine, other, bound, pattern, strict=strict)
                if found is None:
                    return None
                bound = found
            return bound
        if type(wanted) is float and wanted in pattern.marks:
            if type(there) not in (int, float) or bound.marks.setdefault(wanted, float(there)) != float(there):
                return None
            return bound
        if isinstance(there, Node):
            return None
        if not strict and type(wanted) is int and type(there) is int:
            return bound
        return bound if _same(wanted, there) else None

    def _bind(self, wanted: Node, source: Node, there: Node, bound: _Bound) -> _Bound | None:
        """A pattern's node is this captured one; None where it was another before."""
        before = bound.nodes.setdefault(wanted, source)
        if self.numbers[before] != self.numbers[source]:
            return None
        bound.passed |= set(_between(there, source))
        return bound

    def _match_node(self, wanted: Node, there: Any, bound: _Bound, pattern: Pattern, *, strict: bool) -> _Bound | None:
        if not isinstance(there, Node):
            return None
        source = through(there)
        if wanted in bound.nodes:
            return self._bind(wanted, source, there, bound)
        bound.passed |= set(_between(there, source))
        if wanted.op != "call_function" or source.op != "call_function" or wanted.target != source.target:
            return None
        if not isinstance(wanted.target, torch._ops.OpOverload):
            mine, other = list(wanted.args), list(source.args)
        else:
            mine, other = full_arguments(wanted), full_arguments(source)
        bound.nodes[wanted] = source
        orders = [other]
        if wanted.target in COMMUTATIVE:
            orders.append([other[1], other[0], *other[2:]])
        for arranged in orders:
            found: _Bound | None = bound.copy()
            for one, two in zip(mine, arranged, strict=True):
                assert found is not None, "checked in the loop"
                found = self._match(one, two, found, pattern, strict=strict)
                if found is None:
                    break
            if found is not None:
                return found
        return None

    # --- confirming ---------------------------------------------------------------------------------------------

    def _confirmed(self, pattern: Pattern, bound: _Bound) -> Match | str:
        """The match, once the reference traced with its arguments is the same in full; else why not."""
        arguments: list[Any] = []
        for value in pattern.arguments:
            if isinstance(value, Node):
                if value not in bound.nodes:
                    return "an argument of its reference is not read there"
                arguments.append(bound.nodes[value])
            elif type(value) is float and value in pattern.marks:
                arguments.append(bound.marks.get(value, value))
            else:
                arguments.append(value)
        values = [value_of(each) if isinstance(each, Node) else each for each in arguments]
        if any(isinstance(each, Node) and value_of(each) is None for each in arguments):
            return "the shape of an argument is not known"
        exact = _pattern(pattern.kernel, values)
        if isinstance(exact, str):
            return f"its reference cannot be traced with these shapes ({exact})"
        again = _Bound()
        for position, value in enumerate(exact.arguments):
            if isinstance(value, Node):
                again.nodes[value] = arguments[position]
        outputs: list[Node] = []
        for loose, wanted in zip(pattern.outputs, exact.outputs, strict=True):
            there = bound.nodes[through(loose)]
            found = self._match(through(wanted), there, again, exact, strict=True)
            if found is None:
                return "it differs there in a constant"
            again = found
            output = _of_dtype(there, wanted)
            if output is None:
                return f"its output would be {_told(wanted)}, not {_told(there)}"
            outputs.append(output)
        return self._placed(pattern.kernel, tuple(arguments), tuple(outputs), again)

    def _placed(
        self, kernel: Kernel, arguments: tuple[Any, ...], outputs: tuple[Node, ...], bound: _Bound
    ) -> Match | str:
        inputs = [each for each in arguments if isinstance(each, Node)]
        inside = {node for node in bound.nodes.values() if node not in inputs} | set(outputs)
        inside |= {node for node in bound.passed if any(user in inside for user in node.users)}
        inside -= set(inputs)
        covered = set()
        for node in inside:
            outside = [user for user in node.users if user not in inside]
            if node in outputs or not outside:
                covered.add(node)
            elif not (is_cast(node) or is_no_work(node) or node.target in VIEWS):
                return f"{node.name} inside it is read outside too"
        after = max(inputs, key=lambda node: self.order[node])
        users = [user for output in outputs for user in output.users if user not in inside]
        if any(self.order[user] <= self.order[after] for user in users):
            return "a result is read before all arguments exist"
        return Match(kernel=kernel, arguments=arguments, outputs=outputs, covered=frozenset(covered), after=after)


def _casts(node: Node) -> int:
    """How many casts stand between a node and where its value comes from."""
    return sum(is_cast(each) for each in _between(node, through(node)))


def _between(node: Node, source: Node) -> Iterator[Node]:
    while node is not source:
        yield node
        node = node.args[0]  # type: ignore[assignment]


def _origin(node: Node, *, casts: int) -> Node:
    """The value handed in: calls of no work passed over, and of casts that change the dtype at most so many."""
    while is_cast(node) or is_no_work(node):
        before = node.args[0]
        assert isinstance(before, Node), "both have a first argument"
        changes = is_cast(node) and _dtype(before) != _dtype(node)
        if changes and not casts:
            break
        casts -= changes
        node = before
    return node


def _dtype(node: Node) -> Any:
    return getattr(value_of(node), "dtype", None)


def _same(wanted: Any, there: Any) -> bool:
    if type(wanted) in (int, float) and type(there) in (int, float):
        return bool(abs(float(wanted) - float(there)) <= 1e-6 * max(1e-30, abs(float(wanted))))
    return bool(wanted == there)


def _of_dtype(there: Node, wanted: Node) -> Node | None:
    """The node that has the dtype and shape of the reference's output: this one, or the only cast of it."""
    asked = value_of(wanted)
    for node in (there, *(list(there.users) if len(there.users) == 1 else [])):
        value = value_of(node)
        known = isinstance(value, torch.Tensor) and isinstance(asked, torch.Tensor)
        if known and (node is there or is_cast(node)) and (value.dtype, value.shape) == (asked.dtype, asked.shape):
            return node
    return None


def _told(node: Node) -> str:
    value = value_of(node)
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else "of unknown shape"


# --- choosing ---------------------------------------------------------------------------------------------------


def find_matches(graph: torch.fx.Graph, patterns: Sequence[Pattern]) -> tuple[list[Match], list[str]]:
    """All places of all patterns, overlapping ones too, largest pattern first; and near misses with their reasons."""
    finder = Finder(graph)
    found: list[Match] = []
    for pattern in patterns:
        seen: set[tuple[Node, ...]] = set()
        for match in finder.find(pattern):
            if match.outputs not in seen:
                seen.add(match.outputs)
                found.append(match)
    return found, list(dict.fromkeys(finder.refused))


def without_overlap(matches: Sequence[Match]) -> list[Match]:
    """The first of those that share a node; what is chosen can be put in together."""
    taken: set[Node] = set()
    chosen = []
    for match in matches:
        work = {node for node in match.covered if not (is_cast(node) or is_no_work(node) or node.target in VIEWS)}
        if not work & taken:
            taken |= work
            chosen.append(match)
    return chosen
