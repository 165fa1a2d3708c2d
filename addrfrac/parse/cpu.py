"""Operators of a run on a CPU in, the joined Trace columns out: each moment belongs to the innermost op."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from addrfrac.parse import join as device_join
from addrfrac.parse import nesting, stacks
from addrfrac.parse.columns import FRAME_OP, RawTables, distinct
from addrfrac.parse.nesting import Forest
from addrfrac.records import KIND_KERNEL, Ints, Kernels, Launches, Loss


def join(tables: RawTables) -> device_join.Joined:
    """Self-time segments of operators as kernels; each op that has one stands as its own launch."""
    names = tuple(str(name) for name in tables.names.ids)
    losses: list[Loss] = []
    frames = device_join.sound(tables.table("frames"), "operator and annotation events", losses)
    (thread,) = nesting.thread_numbers((frames["process"], frames["thread"]))
    forest = nesting.nest(thread, frames["start"], frames["end"])
    frames = {name: column[forest.order] for name, column in frames.items()}
    owner, start, end = self_times(forest, frames["kind"] == FRAME_OP)

    inherited = stacks.inherit(forest, frames, owner, names, device_join.name_flags(names, device_join.STEP))
    ops, launch = distinct(owner)
    by_start = np.argsort(forest.start[ops], kind="stable")
    rank = np.empty(len(ops), np.int64)
    rank[by_start] = np.arange(len(ops))
    ops = ops[by_start]
    used = device_join.Used(names)
    inputs, op_inputs = device_join.compact_inputs(inherited.inputs[owner], tables)
    none = np.full(len(owner), -1, np.int64)
    kernels = Kernels(
        name=used.compact(frames["name"][owner]),
        kind=np.full(len(owner), KIND_KERNEL, np.uint8),
        start_ns=start,
        end_ns=end,
        device=np.zeros(len(owner), np.int32),
        stream=frames["thread"][owner],
        launch=rank[launch].astype(np.int32),
        op_stack=inherited.stack[owner].astype(np.int32),
        forward_stack=inherited.forward_stack[owner].astype(np.int32),
        op_call=owner.astype(np.int32),
        inputs=inputs.astype(np.int32),
        module=none.astype(np.int32),
        collective=none.astype(np.int32),
        bytes=none,
        graph_node=none,
    )
    launches = Launches(
        name=used.compact(frames["name"][ops]),
        start_ns=forest.start[ops],
        end_ns=forest.end[ops],
        process=frames["process"][ops],
        thread=frames["thread"][ops],
        correlation=np.full(len(ops), -1, np.int64),
        is_graph=np.zeros(len(ops), np.bool_),
        is_sync=np.zeros(len(ops), np.bool_),
    )
    return device_join.Joined(
        kernels=kernels,
        launches=launches,
        ranges=device_join.range_table(frames, names, used),
        names=used.texts(),
        op_stacks=inherited.texts,
        op_inputs=op_inputs,
        modules=(),
        collectives=(),
        losses=tuple(losses),
    )


def self_times(forest: Forest, counts: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Rows of the innermost op with its start and end, for every stretch inside ops, sorted by (start, end).

    Only rows that `counts` count own time; annotations around them do not.
    """
    thread = np.concatenate([forest.thread, forest.thread])
    moment = np.concatenate([forest.start, forest.end])
    order = np.lexsort((moment, thread))
    thread, moment = thread[order], moment[order]
    owner = nesting.innermost(forest, thread, moment)
    idle = ~counts | (forest.end == forest.start)
    while len(rows := np.flatnonzero((owner >= 0) & np.append(idle, False)[owner])):
        owner[rows] = forest.parent[owner[rows]]
    same = np.r_[thread[1:] == thread[:-1], False]
    until = np.r_[moment[1:], 0]
    kept = np.flatnonzero(same & (owner >= 0) & (until > moment))
    owner, start, end = owner[kept], moment[kept], until[kept]
    if not len(kept):
        return owner, start, end
    # A child of no length cuts its parent's time at a point: one stretch, not two.
    fresh = np.r_[True, (owner[1:] != owner[:-1]) | (start[1:] != end[:-1])]
    first = np.flatnonzero(fresh)
    last = np.r_[first[1:] - 1, len(start) - 1]
    owner, start, end = owner[first], start[first], end[last]
    by_time = np.lexsort((end, start))
    return owner[by_time], start[by_time], end[by_time]
