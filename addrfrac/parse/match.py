"""Device events and host calls in, for each device event the call that launched it out."""

from __future__ import annotations

import numpy as np

from addrfrac.parse.columns import Columns, distinct
from addrfrac.records import Ints

CORRELATION_BITS = 40
UNKNOWN_PROCESS = -1


def launching_calls(device: Columns, calls: Columns) -> tuple[Ints, int]:
    """For each device event the row of its call, -1 where the trace has none; and how many are not certain.

    Correlation ids repeat where one trace holds several processes. Where the recorder does not say which of them a
    device event belongs to, the device's other events do (`_owner`).
    """
    found = np.full(len(device["start"]), -1, np.int64)
    usable = (device["correlation"] > 0) & (device["correlation"] < 1 << CORRELATION_BITS)
    processes, process = distinct(calls["process"])
    if len(processes) < 2:
        found[usable] = _latest(device, np.flatnonzero(usable), calls, np.zeros_like(process), 0)
        return found, 0
    known = np.searchsorted(processes, device["process"]).clip(max=len(processes) - 1)
    known = np.where(processes[known] == device["process"], known, UNKNOWN_PROCESS)
    for number in range(len(processes)):
        rows = np.flatnonzero(usable & (known == number))
        found[rows] = _latest(device, rows, calls, process, number)
    unknown = np.flatnonzero(usable & (device["process"] == UNKNOWN_PROCESS))
    candidates = np.stack([_latest(device, unknown, calls, process, number) for number in range(len(processes))])
    several = (candidates >= 0).sum(axis=0) > 1
    best = candidates.max(axis=0)
    for number in distinct(device["device"][unknown])[0].tolist():
        mine = device["device"][unknown] == number
        owner = _owner(device["start"][unknown[mine]], calls["start"], candidates[:, mine])
        preferred = candidates[owner]
        best = np.where(mine & several & (preferred >= 0), preferred, best)
    found[unknown] = best
    return found, int(several.sum())


def _latest(device: Columns, rows: Ints, calls: Columns, process: Ints, number: int) -> Ints:
    """For some device events the call of one process with their correlation id; -1 where it has none.

    Of several such calls the latest that had begun when the device did.
    """
    mine = np.flatnonzero(process == number)
    mine = mine[np.lexsort((calls["start"][mine], calls["correlation"][mine]))]
    if not len(mine):
        return np.full(len(rows), -1, np.int64)
    correlation, start = calls["correlation"][mine], calls["start"][mine]
    wanted, moment = device["correlation"][rows], device["start"][rows]
    first = np.searchsorted(correlation, wanted, side="left")
    place = np.searchsorted(correlation, wanted, side="right") - 1
    while len(early := np.flatnonzero((place > first) & (start[place] > moment))):
        place[early] -= 1
    return np.where(place >= first, mine[place], -1)


def _owner(start: Ints, call_start: Ints, candidates: Ints) -> int:
    """The process whose calls explain a device's events best: most of them, then none from the future, then soonest."""
    scores: list[tuple[int, int, float]] = []
    for calls in candidates:
        has = calls >= 0
        delay = start[has] - call_start[calls[has]]
        soonest = -float(np.median(delay)) if len(delay) else 0.0
        scores.append((int(has.sum()), int((delay >= 0).sum()), soonest))
    return scores.index(max(scores))
