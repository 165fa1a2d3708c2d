"""A trace with graph replays and a trace of their capture in, for each replayed kernel its row in the capture out.

A graph replays its nodes in the order in which they were captured, so each replay is aligned with the launch order
of the capture by kernel names. Small differences (another tile size, an extra copy) leave gaps, not shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from addrfrac.classify.normalise import normalise
from addrfrac.records import Ids, Labels, Trace

_GRAM = 3
_CHUNK = 2000
_MOST_SLACK = 500
_LEAST_MATCHED = 0.5
_MATCH = 100_000
"""Worth of one match; far above what skipping may cost, so that skips only decide between equals."""


def with_capture(trace: Trace, capture: Trace) -> Trace:
    """The trace with what its graph replays lack taken from the capture: op stacks, shapes, modules."""
    return recover(trace, capture)[0]


def recover(trace: Trace, capture: Trace) -> tuple[Trace, NDArray[np.bool_]]:
    """`with_capture`, and which kernels were found there."""
    row = replayed_rows(trace, capture)
    found = row >= 0
    kernels, captured = trace.kernels, capture.kernels

    def taken(own: Ids, other: Ids, size: int) -> Ids:
        """Own column, with the capture's numbers behind the own table's end; its -1 stays one."""
        from_capture = other[row[found]]
        mixed = own.copy()
        mixed[found] = np.where(from_capture >= 0, from_capture + size, -1)
        return mixed

    return replace(
        trace,
        op_stacks=(*trace.op_stacks, *capture.op_stacks),
        op_inputs=(*trace.op_inputs, *capture.op_inputs),
        modules=(*trace.modules, *capture.modules),
        kernels=replace(
            kernels,
            op_stack=taken(kernels.op_stack, captured.op_stack, len(trace.op_stacks)),
            forward_stack=taken(kernels.forward_stack, captured.forward_stack, len(trace.op_stacks)),
            op_call=taken(kernels.op_call, captured.op_call, int(kernels.op_call.max(initial=-1)) + 1),
            inputs=taken(kernels.inputs, captured.inputs, len(trace.op_inputs)),
            module=taken(kernels.module, captured.module, len(trace.modules)),
        ),
    ), found


def replayed_rows(trace: Trace, capture: Trace) -> Ids:
    """For each kernel of `trace` the row of `capture.kernels` that it replays; -1 where none was found."""
    source = np.full(len(trace.kernels), -1, dtype=np.int32)
    order = _capture_order(capture)
    if not len(order):
        return source
    captured = [capture.names[i] for i in capture.kernels.name[order].tolist()]
    sessions = _sessions(capture, order)
    aligned: dict[tuple[str, ...], NDArray[np.int64]] = {}
    for rows in _replays(trace):
        names = tuple(trace.names[i] for i in trace.kernels.name[rows].tolist())
        if names not in aligned:
            found = align(names, captured)
            aligned[names] = np.where(found >= 0, order[found], -1)
            if (found < 0).all():
                aligned[names] = _nameless(trace.kernels.kind[rows], capture, sessions)
        source[rows] = aligned[names]
    return source


def _sessions(capture: Trace, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows of the launches of each captured graph, in order."""
    node = capture.kernels.graph_node[order]
    begins = np.flatnonzero(node == 0)
    if not len(begins):
        return []
    parts = np.split(np.arange(len(order)), begins)[1:]
    return [order[part[node[part] >= 0]] for part in parts]


def _nameless(kinds: NDArray[np.uint8], capture: Trace, sessions: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The launches of the captured graph that has as many nodes of the same kinds in the same order; CUDA's captures
    do not name the kernels. All -1 where no graph is like that."""
    for rows in sessions:
        names = {capture.names[i] for i in capture.kernels.name[rows].tolist()}
        if len(rows) == len(kinds) and names == {""} and (capture.kernels.kind[rows] == kinds).all():
            return rows
    return np.full(len(kinds), -1, dtype=np.int64)


def _capture_order(capture: Trace) -> NDArray[np.int64]:
    """Rows of the capture's own launched kernels, in launch order."""
    launch = capture.kernels.launch
    rows = np.flatnonzero(launch >= 0)
    if len(capture.launches):
        rows = rows[~capture.launches.is_graph[launch[rows]]]
    return rows[np.argsort(launch[rows], kind="stable")]


def _replays(trace: Trace) -> list[NDArray[np.int64]]:
    """Kernel rows of each graph launch, in node order where recorded, else in order of start."""
    launch = trace.kernels.launch
    if not len(trace.launches):
        return []
    rows = np.flatnonzero((launch >= 0) & trace.launches.is_graph[launch])
    if not len(rows):
        return []
    node = trace.kernels.graph_node[rows]
    rows = rows[np.lexsort((rows, node, launch[rows]))]
    cuts = np.flatnonzero(np.diff(launch[rows])) + 1
    return list(np.split(rows, cuts))


def align(names: tuple[str, ...], captured: Sequence[str]) -> NDArray[np.int64]:
    """For each replayed name its position in the captured sequence; all -1 where less than half would match."""
    positions = np.full(len(names), -1, dtype=np.int64)
    numbers: dict[str, int] = {}
    replayed_ids = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    captured_ids = np.array([numbers.setdefault(name, len(numbers)) for name in captured], dtype=np.int64)
    slack = min(_MOST_SLACK, len(names) // 4 + 8)
    expected = _best_offset(names, captured, slack)
    for first in range(0, len(names), _CHUNK):
        part = replayed_ids[first : first + _CHUNK]
        low = max(0, expected - slack)
        high = min(len(captured), expected + len(part) + slack)
        matched = common_subsequence(part, captured_ids[low:high], expected - low)
        positions[first : first + len(part)] = np.where(matched >= 0, matched + low, -1)
        ends = matched[matched >= 0]
        expected = low + int(ends[-1]) + 1 if len(ends) else expected + len(part)
    if (positions >= 0).mean() < _LEAST_MATCHED:
        return np.full(len(names), -1, dtype=np.int64)
    _fill_gaps(names, captured, positions)
    return positions


def common_subsequence(left: NDArray[np.int64], right: NDArray[np.int64], offset: int = 0) -> NDArray[np.int64]:
    """For each element of `left` its place in `right` under a longest common subsequence; -1 where it has none.

    Layers repeat, so many are equally long: the one taken begins nearest to `offset` and skips fewest of `right`.
    """
    place = np.full(len(left), -1, dtype=np.int64)
    columns = np.arange(len(right) + 1, dtype=np.int32)
    best = np.empty((len(left) + 1, len(right) + 1), dtype=np.int32)
    best[0] = -np.abs(columns - offset)
    for i, value in enumerate(left.tolist()):
        here = best[i].copy()
        np.maximum(here[1:], best[i, :-1] + np.where(right == value, _MATCH, -_MATCH), out=here[1:])
        best[i + 1] = np.maximum.accumulate(here + columns) - columns  # a skipped element of `right` costs 1
    i, j = len(left), int(np.argmax(best[-1]))
    while i and j:
        if left[i - 1] == right[j - 1] and best[i, j] == best[i - 1, j - 1] + _MATCH:
            i, j = i - 1, j - 1
            place[i] = j
        elif best[i, j] == best[i - 1, j]:
            i -= 1
        else:
            j -= 1
    return place


def _best_offset(names: tuple[str, ...], captured: Sequence[str], slack: int) -> int:
    """Where in the capture the replay begins: the offset around which most of its short runs of names are found."""
    starts: dict[tuple[str, ...], list[int]] = {}
    for position in range(len(captured) - _GRAM + 1):
        starts.setdefault(tuple(captured[position : position + _GRAM]), []).append(position)
    votes = np.zeros(len(captured) + len(names) + 1)
    for position in range(len(names) - _GRAM + 1):
        found = np.array(starts.get(names[position : position + _GRAM], []), dtype=np.int64)
        votes[found - position + len(names)] += 1.0 / max(1, len(found))
    if not votes.any():
        return 0
    before = np.concatenate([np.zeros(slack + 1), np.cumsum(votes), np.full(slack, votes.sum())])
    nearby = before[2 * slack + 1 :] - before[: -2 * slack - 1]
    exact = np.where(nearby >= nearby.max() * (1 - 1e-9), votes, -1.0)
    return int(np.argmax(exact)) - len(names)


def _fill_gaps(names: tuple[str, ...], captured: Sequence[str], positions: NDArray[np.int64]) -> None:
    """Between aligned neighbours, equally many unaligned kernels pair up where their names are of one family."""
    matched = np.flatnonzero(positions >= 0)
    for left, right in zip(matched[:-1].tolist(), matched[1:].tolist(), strict=True):
        missing = right - left - 1
        if missing and positions[right] - positions[left] - 1 == missing:
            for step in range(1, missing + 1):
                at = int(positions[left]) + step
                if _family(names[left + step]) == _family(captured[at]):
                    positions[left + step] = at


def _family(name: str) -> str:
    """What of a name survives another tile size or data type."""
    return normalise(name).text.partition("<")[0].partition("_")[0]


def certainty_shares(trace: Trace, labels: Labels) -> dict[str, float]:
    """Share of summed kernel time by certainty ('unknown' for catch-alls); {} for a trace without time."""
    duration = (trace.kernels.end_ns - trace.kernels.start_ns).astype(np.float64)
    total = float(duration.sum())
    if total <= 0:
        return {}
    by_label = np.bincount(labels.of_kernel, weights=duration, minlength=len(labels.table))
    shares: dict[str, float] = {}
    for label, time in zip(labels.table, by_label.tolist(), strict=True):
        key = "unknown" if label.is_catch_all else str(label.certainty)
        shares[key] = shares.get(key, 0.0) + time / total
    return shares
