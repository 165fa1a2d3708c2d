"""What Dynamo captured in, an ATen graph before autograd out, and what is known of its nodes.

Nothing is decomposed and in-place updates stay: the graph runs in the place of what was captured, in training too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Interpreter, Node
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
UNTRACEABLE = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, NotImplementedError, AssertionError)
"""What tracing raises for a graph that it cannot follow."""
CASTS = {aten.to.dtype, aten.to.device, aten.to.other, aten.to.dtype_layout, aten._to_copy.default}
CASTS |= {aten.float.default} if hasattr(aten, "float") else set()
NO_WORK = {aten.alias.default, aten.detach.default, aten.lift_fresh.default}
COMMUTATIVE = {aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default}
RESHAPES = {aten.view.default, aten.reshape.default, aten.expand.default}
IN_PLACE = {
    aten.relu_.default: aten.relu.default,
    aten.add_.Tensor: aten.add.Tensor,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.silu_.default: aten.silu.default,
    aten.gelu_.default: aten.gelu.default,
    aten.sigmoid_.default: aten.sigmoid.default,
}
"""In-place calls that models make on a tensor of their own, and what computes the same into a new one."""


class Untraceable(Exception):
    """A captured graph cannot be looked into; the text says why in one line."""


def lowered(captured: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The captured graph in ATen calls, modules' names kept in the nodes. Raises Untraceable."""
    symbolic = sum(isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool) for each in inputs)
    if symbolic or any(_has_symbols(each) for each in inputs):
        raise Untraceable(f"its shapes are dynamic ({symbolic} symbolic sizes)")

    def call(*given: Any) -> Any:
        return Interpreter(captured).run(*given)

    try:
        with fx_traceback.preserve_node_meta():
            traced = make_fx(call, pre_dispatch=True, tracing_mode="fake")(*_fake(inputs))
    except UNTRACEABLE as error:
        first = str(error).strip().splitlines()
        raise Untraceable(f"{type(error).__name__}: {first[0][:160] if first else ''}") from error
    _must_be_real(traced)
    return traced


def _fake(inputs: Sequence[Any]) -> list[Any]:
    """Fake tensors like the inputs, which may be real: on those tracing would carry out what the graph does in place.

    Not of Dynamo's own fake mode, whose guards would learn of symbols that no input has.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return [
            torch.empty_strided(
                each.shape, each.stride(), dtype=each.dtype, device=each.device, requires_grad=each.requires_grad
            )
            if isinstance(each, torch.Tensor)
            else each
            for each in inputs
        ]


@contextmanager
def outside_dynamo() -> Iterator[None]:
    """Tracing of our own within a backend: Dynamo's fake mode and its context put aside."""
    from torch._guards import tracing
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with tracing(None), unset_fake_temporarily():
        yield


def _has_symbols(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and any(not isinstance(size, int) for size in value.shape)


def _must_be_real(traced: GraphModule) -> None:
    """Constants that exist only while tracing cannot be run with."""
    from torch._subclasses.fake_tensor import FakeTensor

    for node in traced.graph.nodes:
        if node.op == "get_attr":
            value: Any = traced
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if isinstance(value, FakeTensor):
                raise Untraceable(f"it makes a constant ({node.name}) that exists only while tracing")


# --- in-place calls -------------------------------------------------------------------------------------------


def make_functional(graph: torch.fx.Graph) -> None:
    """Let in-place calls on fresh tensors compute into new ones, so that patterns see what is computed.

    Only where nobody could tell: the tensor was made by a call that returns no view, and no view of it is taken.
    `back_in_place` undoes it wherever the call is still there.
    """
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in IN_PLACE:
            continue
        target = node.args[0]
        if not isinstance(target, Node) or not _is_fresh(target) or any(_views(user) for user in target.users):
            continue
        if _value(target) is None or _value(node) is None or _value(target).dtype != _value(node).dtype:
            continue
        later = [user for user in target.users if order[user] > order[node]]
        for user in later:
            user.replace_input_with(target, node)
        node.meta["in_place"] = node.target
        node.target = IN_PLACE[node.target]


def back_in_place(graph: torch.fx.Graph) -> None:
    """The calls that `make_functional` changed write in place again where their input is not read afterwards."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        before = node.meta.pop("in_place", None)
        if before is not None and all(order[user] <= order[node] for user in node.args[0].users):
            node.target = before


def _is_fresh(node: Node) -> bool:
    """Its tensor is new memory that nothing else names."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or node.target in CASTS:
        return False
    return not _views(node) and not node.target._schema.is_mutable


def _views(node: Node) -> bool:
    """The call may hand out the memory of an argument."""
    if node.op == "output":
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is not operator.getitem
    schema = node.target._schema
    if node.target in (aten.reshape.default, aten.contiguous.default, aten.flatten.using_ints) or node.target in CASTS:
        return True
    return not schema.is_mutable and any(each.alias_info is not None for each in schema.returns)


def mutates(node: Node) -> Iterator[Node]:
    """The arguments that a call writes to."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return
    for number, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, Node))


def storage_of(node: Node) -> Any:
    """What two nodes share when one's memory is the other's; None where it is not known."""
    value = _value(node)
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return value.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return None


# --- values ---------------------------------------------------------------------------------------------------


def _value(node: Node) -> Any:
    return node.meta.get("val")


def value_of(node: Node) -> Any:
    """The fake tensor that a node stands for; None where tracing left none."""
    return _value(node)


def is_no_work(node: Node) -> bool:
    """The call gives its first argument as it is: a cast to the same dtype, dropout at inference, an alias."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    if node.target in NO_WORK:
        return True
    if node.target is aten.dropout.default:
        return len(node.args) > 2 and node.args[2] is False
    if node.target is aten.contiguous.default:
        before = _value(node.args[0])
        return isinstance(before, torch.Tensor) and before.is_contiguous() and len(node.args) == 1
    return False


def is_cast(node: Node) -> bool:
    """The call changes the dtype of its first argument, or would."""
    return node.op == "call_function" and node.target in CASTS and isinstance(node.args[0], Node)


def through(node: Node) -> Node:
    """Where a value comes from, casts and calls of no work passed over."""
    while is_cast(node) or is_no_work(node):
        assert isinstance(node.args[0], Node), "both have a first argument"
        node = node.args[0]
    return node


def full_arguments(node: Node) -> list[Any]:
    """Arguments of an ATen call in the order of its schema, defaults filled in, dimensions counted from the front.

    Sizes that a view leaves open (-1) are told: references and models write the same view either way.
    """
    assert isinstance(node.target, torch._ops.OpOverload), "an ATen call"
    found: list[Any] = []
    for number, argument in enumerate(node.target._schema.arguments):
        given = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        if node.target in RESHAPES and argument.name in ("size", "shape") and _value(node) is not None:
            given = list(_value(node).shape)
        found.append(_from_front(given, node) if argument.name in ("dim", "dims") else given)
    return found


def _from_front(dimension: Any, node: Node) -> Any:
    first = node.args[0] if node.args else None
    first = first[0] if isinstance(first, list | tuple) and first else first
    value = _value(first) if isinstance(first, Node) else None
    if not isinstance(value, torch.Tensor):
        return dimension
    rank = value.dim() + (1 if node.target in (aten.unsqueeze.default, aten.stack.default) else 0)
    if isinstance(dimension, int) and dimension < 0:
        return dimension + rank
    if isinstance(dimension, list | tuple):
        return [each + rank if isinstance(each, int) and each < 0 else each for each in dimension]
    return dimension


def describe(value: Any) -> str:
    """A tensor in words: 'bfloat16[2, 16, 64]', with its strides where it is not contiguous."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dense = "" if value.is_contiguous() else f" strides {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{dense}"


def module_of(node: Node) -> str:
    """The innermost module whose forward made the call; '' where tracing did not say."""
    stack = node.meta.get("nn_module_stack") or {}
    names = [entry[0] for entry in stack.values()]
    return _tidy(names[-1]) if names else ""


def _tidy(name: str) -> str:
    name = re.sub(r"^L\[.*?\](\[\d+\])?", "", name.replace("L['args[0]", "").replace("L['self']", ""))
    return name.replace("_modules['", "").replace("']", "").strip(".")
