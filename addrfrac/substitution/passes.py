"""What no fixed pattern can say: all bags of a model into one launch. Each pass gives matches, as patterns do.

A pass is a row of `PASSES`: the name of the kernel that it needs and a function from a graph to matches and reasons.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from addrfrac.substitution.graph import full_arguments, is_cast, is_no_work, through, value_of
from addrfrac.substitution.patterns import BAGS, SPLITS, VIEWS, Match
from addrfrac.substitution.pool import Kernel

aten = torch.ops.aten
Find = Callable[[torch.fx.Graph, Kernel], tuple[list[Match], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way of finding places for a kernel."""

    kernel: str
    """Name of the kernel that the places are for."""
    find: Find


# --- all bags in one launch ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bag:
    """One embedding_bag call: a table, a part of the flat ids, a row of the offsets."""

    table: Node
    ids: Node
    """The flat ids of all tables."""
    part: int
    begin: int
    offsets: Node
    """(tables, batch + 1)."""
    row: int
    mean: bool
    sparse: bool
    """Its gradient holds the rows that were read alone."""


def all_bags(graph: torch.fx.Graph, kernel: Kernel) -> tuple[list[Match], list[str]]:
    """Every concatenation of pooled tables, as one call of the kernel; and bags that stay, with the reason."""
    found: list[Match] = []
    refused: list[str] = []
    order = {node: number for number, node in enumerate(graph.nodes)}
    bags = [node for node in graph.nodes if node.op == "call_function" and node.target in BAGS]
    joined: set[Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is not aten.cat.default:
            continue
        calls = [_bag_call(each) for each in node.args[0]]
        if len(calls) < 2 or None in calls or full_arguments(node)[1] not in (1, -1):
            continue
        joined |= set(calls)
        match = _one_launch(node, calls, kernel, order)
        if isinstance(match, str):
            refused.append(f"{kernel.name} at {node.name} ({len(calls)} bags): {match}")
        else:
            found.append(match)
    left = [node for node in bags if node not in joined]
    if left:
        refused.append(f"{kernel.name}: {len(left)} bags are not concatenated with others, {left[0].name} the first")
    return found, refused


def _bag_call(node: Any) -> Any:
    """The embedding_bag whose pooled rows this is, casts passed over; None where it is none."""
    source = through(node) if isinstance(node, Node) else None
    if source is None or source.op != "call_function" or source.target is not operator.getitem or source.args[1] != 0:
        return None
    call = source.args[0]
    return call if isinstance(call, Node) and call.target in BAGS else None


def _one_launch(joined: Node, calls: Sequence[Node], kernel: Kernel, order: dict[Node, int]) -> Match | str:
    if len(set(calls)) < len(calls):
        return "a bag is used twice"
    bags: list[_Bag] = []
    for call in calls:
        bag = _bag(call)
        if isinstance(bag, str):
            return f"{call.name}: {bag}"
        bags.append(bag)
    first = bags[0]
    if [bag.part for bag in bags] != list(range(len(bags))) or len({bag.ids for bag in bags}) > 1:
        return "their ids do not follow one another in one tensor"
    if [bag.row for bag in bags] != list(range(len(bags))) or len({bag.offsets for bag in bags}) > 1:
        return "their offsets are not the rows of one tensor"
    if value_of(first.offsets).shape[0] != len(bags) or len({(bag.mean, bag.sparse) for bag in bags}) > 1:
        return "some are sums and some means, some gradients are sparse and some not, or offsets are left over"
    kinds = {(value_of(bag.table).dtype, value_of(bag.table).shape[1]) for bag in bags}
    if len(kinds) > 1:
        return "their tables differ in dtype or columns"
    last = _end_of_copies(joined)
    made, held = value_of(last).dtype, value_of(first.table).dtype
    if made != held:
        return f"the pooled rows of {held} tables would have to be {made}"
    tables, begins = [bag.table for bag in bags], [bag.begin for bag in bags]
    arguments = (first.ids, first.offsets, first.mean, first.sparse, *tables, *begins)
    inputs = [each for each in arguments if isinstance(each, Node)]
    covered = _covered(last, set(inputs))
    if isinstance(covered, str):
        return covered
    after = max(inputs, key=lambda node: order[node])
    if any(order[user] <= order[after] for user in last.users):
        return "a result is read before all arguments exist"
    return Match(kernel=kernel, arguments=arguments, outputs=(last,), covered=frozenset(covered), after=after)


def _bag(call: Node) -> _Bag | str:
    """The call as a bag of many; or why the kernel cannot do it."""
    given = dict(zip((each.name for each in call.target._schema.arguments), full_arguments(call), strict=True))  # type: ignore[union-attr]
    mode, last = given["mode"], given["include_last_offset"]
    if mode not in (0, 1) or given["per_sample_weights"] is not None or given["scale_grad_by_freq"]:
        return "it takes a maximum, has weights or scales its gradient"
    if not last or given.get("padding_idx") not in (None, -1):
        return "its offsets do not end with the number of ids, or it pads"
    table, offsets = given["weight"], given["offsets"]
    if any(user.args[1] != 0 and user.users for user in call.users):
        return "more than its pooled rows is read"
    part = _part(given["indices"])
    row = _row(offsets)
    if part is None or row is None:
        return "its ids or offsets are tensors of their own"
    return _Bag(
        table=table,
        ids=part[0],
        part=part[1],
        begin=part[2],
        offsets=row[0],
        row=row[1],
        mean=mode == 1,
        sparse=bool(given["sparse"]),
    )


def _part(node: Any) -> tuple[Node, int, int] | None:
    """(flat ids, number, begin) of a part of a split of one-dimensional ids."""
    if not isinstance(node, Node) or node.target is not operator.getitem:
        return None
    split, number = node.args
    if not isinstance(split, Node) or split.target not in SPLITS or not isinstance(number, int):
        return None
    flat, sizes = split.args[0], [value.shape[0] for value in value_of(split)]
    if not isinstance(flat, Node) or value_of(flat).dim() != 1:
        return None
    return flat, number, sum(sizes[:number])


def _row(node: Any) -> tuple[Node, int] | None:
    """(offsets of all tables, number) of a row of two-dimensional offsets."""
    if not isinstance(node, Node):
        return None
    if node.target is aten.select.int:
        of, dimension, number = node.args
    elif node.target is operator.getitem and isinstance(node.args[0], Node) and node.args[0].target is aten.unbind.int:
        of, dimension, number = node.args[0].args[0], (*node.args[0].args[1:], 0)[0], node.args[1]
    else:
        return None
    if dimension != 0 or not isinstance(number, int) or not isinstance(of, Node) or value_of(of).dim() != 2:
        return None
    return of, number


def _end_of_copies(joined: Node) -> Node:
    """The last tensor of the same values: as it is, or taken apart and put together again in the same order."""
    node = joined
    while True:
        users = list(node.users)
        if len(users) != 1:
            return node
        after = users[0]
        if is_cast(after) or is_no_work(after):
            if value_of(after).dtype != value_of(node).dtype:
                return node
            node = after
        elif _again(after) is not None:
            node = _again(after)  # type: ignore[assignment]
        else:
            return node


def _again(split: Node) -> Node | None:
    """The concatenation of all parts of a split of columns, in order, where nothing else reads them."""
    if split.target not in SPLITS or full_arguments(split)[2] != 1:
        return None
    parts = sorted(split.users, key=_number)
    users = {user for part in parts for user in part.users}
    if len(users) != 1:
        return None
    (cat,) = users
    if cat.target is not aten.cat.default or full_arguments(cat)[1] not in (1, -1):
        return None
    return cat if list(cat.args[0]) == parts and len(parts) == len(value_of(split)) else None  # type: ignore[arg-type]


def _number(part: Node) -> int:
    assert isinstance(part.args[1], int), "a part of a split is taken by its number"
    return part.args[1]


def _covered(last: Node, inputs: set[Node]) -> set[Node] | str:
    """The calls between the inputs and the result that compute nothing else; or what keeps one of them."""
    inside: set[Node] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node not in inside and node not in inputs:
            inside.add(node)
            waiting += node.all_input_nodes
            if node.target in BAGS:
                inside |= set(node.users)
    for node in list(inside):
        if node is last or all(user in inside for user in node.users):
            continue
        if not _is_view(node):
            return f"{node.name} inside it is read outside too"
        inside -= set(_upwards(node, inputs))
    return inside


def _is_view(node: Node) -> bool:
    return is_cast(node) or is_no_work(node) or node.target in VIEWS or node.target in SPLITS | {aten.unbind.int}


def _upwards(node: Node, inputs: set[Node]) -> Iterator[Node]:
    """A node and what it is made of, up to the inputs."""
    if node not in inputs:
        yield node
        for each in node.all_input_nodes:
            yield from _upwards(each, inputs)


PASSES: tuple[Pass, ...] = (Pass(kernel="all_bags", find=all_bags),)
