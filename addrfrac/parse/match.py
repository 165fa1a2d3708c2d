"""Device events and host calls in, for each device event the call that launched it out."""

from __future__ import annotations

import numpy as np

from addrfrac.parse.columns import Columns, distinct
from addrfrac.records import Ints


def launching_calls(device: Columns, calls: Columns) -> tuple[Ints, int]:
    """For each device event the row of its call, -1 where the trace has none; and how many stay ambiguous.

    Correlation ids repeat where one trace holds several processes: a device belongs to the process that most of
    its unambiguous events name, and of several calls left the latest one before the device event is taken.
    """
    found = np.full(len(device["start"]), -1, np.int64)
    order = np.lexsort((calls["start"], calls["correlation"]))
    correlation = calls["correlation"][order]
    first = np.searchsorted(correlation, device["correlation"], side="left")
    last = np.searchsorted(correlation, device["correlation"], side="right")
    has = (last > first) & (device["correlation"] > 0)
    single = has & (last - first == 1)
    found[single] = order[first[single]]
    several = np.flatnonzero(has & ~single)
    if not len(several):
        return found, 0
    owner = _owners(device["device"], calls["process"], found)
    ambiguous = 0
    for row in several.tolist():
        candidates = order[first[row] : last[row]]
        process = owner.get(int(device["device"][row]))
        same = candidates[calls["process"][candidates] == process] if process is not None else candidates[:0]
        candidates = same if len(same) else candidates
        earlier = candidates[calls["start"][candidates] <= device["start"][row]]
        found[row] = earlier[-1] if len(earlier) else candidates[0]
        ambiguous += len(set(calls["process"][candidates].tolist())) > 1
    return found, ambiguous


def _owners(device: Ints, process: Ints, found: Ints) -> dict[int, int]:
    """Device -> the process that launched most of its work."""
    owners: dict[int, int] = {}
    for number in distinct(device[found >= 0])[0].tolist():
        processes, places = distinct(process[found[(found >= 0) & (device == number)]])
        owners[number] = int(processes[np.bincount(places).argmax()])
    return owners
