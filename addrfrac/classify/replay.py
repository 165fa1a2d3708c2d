"""A trace with graph replays and a trace of their capture in, for each replayed kernel its row in the capture out.

A graph replays its nodes in the order in which they were captured, so each replay is aligned with the launch order
of the capture by kernel names. Small differences (another tile size, an extra copy) leave gaps, not shifts.
"""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from addrfrac.classify.normalise import normalise
from addrfrac.records import Ids, Labels, Trace

_GRAM = 3
_SLACK = 0.25


def recovered_stacks(trace: Trace, capture: Trace) -> Ids:
    """For each kernel of `trace` the row of `capture.kernels` that it replays; -1 where none was found."""
    source = np.full(len(trace.kernels), -1, dtype=np.int32)
    order = _capture_order(capture)
    if not len(order):
        return source
    captured = [capture.names[i] for i in capture.kernels.name[order].tolist()]
    aligned: dict[tuple[str, ...], NDArray[np.int64]] = {}
    for rows in _replays(trace):
        names = tuple(trace.names[i] for i in trace.kernels.name[rows].tolist())
        if names not in aligned:
            aligned[names] = _align(names, captured)
        at = aligned[names]
        source[rows[at >= 0]] = order[at[at >= 0]]
    return source


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


def _align(names: tuple[str, ...], captured: list[str]) -> NDArray[np.int64]:
    """For each replayed name its position in the captured sequence; -1 where there is none."""
    positions = np.full(len(names), -1, dtype=np.int64)
    low, high = _window(names, captured)
    exact = SequenceMatcher(None, names, captured[low:high], autojunk=False)
    for block in exact.get_matching_blocks():
        positions[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size) + low
    _fill_gaps(names, captured, positions)
    return positions


def _window(names: tuple[str, ...], captured: list[str]) -> tuple[int, int]:
    """The stretch of the capture that shares most short runs of names with the replay."""
    slack = int(len(names) * _SLACK) + 8
    if len(captured) <= len(names) + 2 * slack:
        return 0, len(captured)
    starts: dict[tuple[str, ...], list[int]] = {}
    for position in range(len(captured) - _GRAM + 1):
        starts.setdefault(tuple(captured[position : position + _GRAM]), []).append(position)
    votes = np.zeros(len(captured) + len(names) + 1, dtype=np.float64)
    for position in range(len(names) - _GRAM + 1):
        found = starts.get(names[position : position + _GRAM], [])
        for start in found:
            votes[start - position + len(names)] += 1.0 / len(found)
    smooth = np.convolve(votes, np.ones(2 * slack + 1), mode="same")
    offset = int(np.argmax(smooth)) - len(names)
    return max(0, offset - slack), min(len(captured), offset + len(names) + slack)


def _fill_gaps(names: tuple[str, ...], captured: list[str], positions: NDArray[np.int64]) -> None:
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
