"""Nested host frames in, for each frame its interned op stack, inputs, collective and forward op out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from addrfrac.parse.columns import Columns, distinct
from addrfrac.parse.nesting import Forest
from addrfrac.records import Ints

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stacks:
    """What a launch inherits from the frames around it, per frame; row -1 (the last) stands for no frame."""

    stack: Ints
    """Index into `texts`."""
    inputs: Ints
    """Of the innermost frame that recorded its inputs; -1 where none did."""
    collective: Ints
    """Of the innermost frame that describes one; -1 where none does."""
    forward_stack: Ints
    """Stack of the forward op that the innermost backward frame belongs to; 0 where there is none."""
    texts: tuple[tuple[str, ...], ...]


def inherit(forest: Forest, frames: Columns, needed: Ints, names: Sequence[str], hidden: Flags) -> Stacks:
    """Stacks of the needed frames (rows of the forest); `hidden` names leave no trace in a stack."""
    count = len(forest.start)
    wanted = np.zeros(count + 1, np.bool_)
    wanted[_with_ancestors(forest, needed)] = True
    wanted[-1] = False
    backward = _inherited(
        forest, np.where((frames["forward"] > 0) & (frames["sequence"] >= 0), np.arange(count), -1), wanted
    )
    forward_of = _forward_rows(forest, frames, backward)
    wanted[_with_ancestors(forest, forward_of[forward_of >= 0])] = True
    wanted[-1] = False
    stack, texts = _interned(forest, frames["name"], wanted, names, hidden)
    return Stacks(
        stack=stack,
        inputs=_inherited(forest, frames["inputs"], wanted),
        collective=_inherited(forest, frames["collective"], wanted),
        forward_stack=stack[forward_of],
        texts=texts,
    )


def _with_ancestors(forest: Forest, rows: Ints) -> Ints:
    """The rows and all that enclose them, each once."""
    seen = np.zeros(len(forest.parent) + 1, np.bool_)
    rows = distinct(rows[rows >= 0])[0]
    while len(rows):
        seen[rows] = True
        rows = forest.parent[rows]
        rows = distinct(rows[(rows >= 0) & ~seen[rows]])[0]
    return np.flatnonzero(seen[:-1])


def _inherited(forest: Forest, own: Ints, wanted: Flags) -> Ints:
    """Each frame's own value, or where that is -1 the value of the closest frame around it that has one."""
    values = np.append(own, -1)
    for rows in forest.levels[1:]:
        rows = rows[wanted[rows]]
        values[rows] = np.where(values[rows] >= 0, values[rows], values[forest.parent[rows]])
    return values


def _forward_rows(forest: Forest, frames: Columns, backward: Ints) -> Ints:
    """For each frame the row of the forward op of its backward node; -1 where there is none.

    Ops share a sequence number with the next one that makes an autograd node, so the latest start is the maker
    (as in libkineto's generateForwardBackwardLinks). Numbers are counted per thread: of several threads the latest
    op before the backward node is taken.
    """
    found = np.full(len(backward), -1, np.int64)
    forward = np.flatnonzero((frames["forward"] == 0) & (frames["sequence"] >= 0))
    asking = np.flatnonzero(backward >= 0)
    if not len(forward) or not len(asking):
        return found
    process, sequence = frames["process"], frames["sequence"]
    ranked = forward[np.lexsort((forest.start[forward], sequence[forward], process[forward]))]
    nodes, node_of = distinct(backward[asking])
    _, processes = distinct(np.r_[process[ranked], process[nodes]])
    numbers, sequences = distinct(np.r_[sequence[ranked], sequence[nodes]])
    keys = processes * len(numbers) + sequences
    has, asks = keys[: len(ranked)], keys[len(ranked) :]
    # Ranks among the starts, for stamps would not fit beside the key into one sortable integer.
    starts = np.sort(forest.start[ranked])
    width = len(starts) + 1
    begun = np.searchsorted(starts, forest.start[ranked], side="left")
    before = np.searchsorted(starts, forest.start[nodes], side="right")
    place = np.searchsorted(has * width + begun, asks * width + before, side="left") - 1
    candidate = ranked[np.maximum(place, 0)]
    matches = (place >= 0) & (has[np.maximum(place, 0)] == asks)
    found[asking] = np.where(matches, candidate, -1)[node_of]
    return found


def _interned(
    forest: Forest, name: Ints, wanted: Flags, names: Sequence[str], hidden: Flags
) -> tuple[Ints, tuple[tuple[str, ...], ...]]:
    """A number for each distinct stack of names, and the stacks; number 0 is the empty stack."""
    stack = np.zeros(len(name) + 1, np.int64)
    ids: dict[tuple[str, ...], int] = {(): 0}
    texts = list(ids)
    for level, rows in enumerate(forest.levels):
        rows = rows[wanted[rows]]
        outer = stack[forest.parent[rows]] if level else np.zeros(len(rows), np.int64)
        skip = hidden[name[rows]]
        stack[rows[skip]] = outer[skip]
        rows, outer = rows[~skip], outer[~skip]
        keys, numbers = distinct(outer * len(names) + name[rows])
        made = [ids.setdefault((*texts[key // len(names)], names[key % len(names)]), len(ids)) for key in keys.tolist()]
        texts.extend(list(ids)[len(texts) :])
        stack[rows] = np.array(made, np.int64)[numbers] if made else 0
    return stack, tuple(texts)
