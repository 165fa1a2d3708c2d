"""The traces of several ranks in, their collectives matched with one another out.

The clocks of ranks differ, so nothing here compares a time stamp of one rank with one of another. A collective is found
again on another rank by its group and sequence number; where the recorder wrote none, by its place among the group's
collectives of the same step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from addrfrac.records import Labels, Op, Trace, Window
from addrfrac.shares import DeviceTimeline

POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
"""Between two ranks of a group; the others know nothing of it, and the two call it by different names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankPart:
    """One rank's trace as far as it has been accounted for."""

    rank: int
    trace: Trace
    labels: Labels
    window: Window
    timeline: DeviceTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One collective on one rank."""

    part: int
    """Position of the rank among the parts."""
    start_ns: int
    """By the rank's own clock."""
    duration_ns: int
    name: str
    group: str
    group_size: int
    dtype: str
    elements: int
    key: Hashable
    """Equal on all ranks that take part."""
    by_order: bool
    """The key is a place in an order, not a recorded number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One collective on several ranks."""

    entries: tuple[Entry, ...]
    transfer_ns: int
    """The least duration: the rank that came last waited for nobody."""
    last: Entry
    """Where it ran shortest, that is, where it was entered last."""

    def waiting_ns(self, entry: Entry) -> int:
        return entry.duration_ns - self.transfer_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """All collectives of several ranks."""

    matched: tuple[Matched, ...]
    unmatched: tuple[Entry, ...]
    notes: tuple[str, ...]


def match(parts: Sequence[RankPart]) -> Matches:
    """The collectives of all ranks, each with its counterparts."""
    entries = [entry for i, part in enumerate(parts) for entry in _entries(i, part)]
    by_key: dict[Hashable, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_key[entry.key].append(entry)
    uneven = _uneven(entries)
    matched, unmatched = [], []
    for found in by_key.values():
        fits = len(found) > 1 and len({entry.name for entry in found}) == 1 and _order_of(found[0]) not in uneven
        if fits and found[0].name not in POINT_TO_POINT:
            last = min(found, key=lambda entry: entry.duration_ns)
            matched.append(Matched(entries=tuple(found), transfer_ns=last.duration_ns, last=last))
        else:
            unmatched.extend(found)
    return Matches(
        matched=tuple(matched), unmatched=tuple(unmatched), notes=tuple(_notes(parts, matched, unmatched, uneven))
    )


def _entries(i: int, part: RankPart) -> Iterator[Entry]:
    """A rank's collectives in the order of their start; those of a group of one have nobody to wait for."""
    timeline, kernels = part.timeline, part.trace.kernels
    communicates = np.array([label.op == Op.COMMUNICATION for label in part.labels.table], dtype=np.bool_)
    rows = timeline.row[communicates[timeline.label]]
    rows = rows[np.argsort(kernels.start_ns[rows], kind="stable")]
    steps = _step_names(part.window)
    seen: Counter[Hashable] = Counter()
    for row in rows:
        recorded = kernels.collective[row] >= 0
        told = part.trace.collectives[kernels.collective[row]] if recorded else None
        name = told.name if told is not None else part.trace.names[kernels.name[row]]
        group = told.group if told is not None else ""
        if told is not None and told.group_size == 1:
            continue
        numbered = told is not None and told.sequence >= 0
        place = (group, told.sequence) if told is not None and numbered else (steps[part.window.step[row]], group)
        if told is None:  # nothing but the kernel's name tells which communicator it is of
            place = (*place, name)
        seen[place] += 1
        yield Entry(
            part=i,
            start_ns=int(kernels.start_ns[row]),
            duration_ns=int(kernels.end_ns[row] - kernels.start_ns[row]),
            name=name,
            group=group,
            group_size=told.group_size if told is not None else -1,
            dtype=told.dtype if told is not None else "",
            elements=told.elements if told is not None else -1,
            key=(*place, seen[place]),
            by_order=not numbered,
        )


def _step_names(window: Window) -> list[tuple[str, int]]:
    """The name of each step, told apart where several have one name."""
    seen: Counter[str] = Counter()
    names = []
    for name in window.names:
        seen[name] += 1
        names.append((name, seen[name]))
    return names


def _order_of(entry: Entry) -> Hashable:
    """The order that an entry's place is counted in: step and group; None where its number was recorded."""
    assert isinstance(entry.key, tuple)
    return entry.key[:-1] if entry.by_order else None


def _uneven(entries: Sequence[Entry]) -> set[Hashable]:
    """Orders of which ranks hold different numbers of collectives: a place in them says nothing."""
    counts: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for entry in entries:
        if entry.by_order:
            counts[_order_of(entry)][entry.part] += 1
    return {order for order, of_part in counts.items() if len(set(of_part.values())) > 1}


def _notes(
    parts: Sequence[RankPart], matched: Sequence[Matched], unmatched: Sequence[Entry], uneven: set[Hashable]
) -> Iterator[str]:
    ranks = {part.rank for part in parts}
    if matched:
        yield (
            "the clocks of ranks differ, so durations alone are compared: a collective is taken to end at one moment on"
            " all its ranks, and to have been entered last where it ran shortest"
        )
    by_order = sum(one.entries[0].by_order for one in matched)
    if by_order:
        yield (
            f"{by_order} of {len(matched)} collectives carry no sequence number and were matched by their order within"
            " step and group; a newer PyTorch records it"
        )
    partial = sum(one.entries[0].group_size > len(one.entries) for one in matched)
    if partial:
        yield (
            f"{partial} collectives were made by more ranks than the {len(ranks)} at hand: their transfer is an upper"
            " bound, their waiting a lower one"
        )
    if unmatched:
        why = "; some steps and groups hold different numbers of them on different ranks" if uneven else ""
        yield f"{len(unmatched)} communication kernels have no counterpart on another rank{why}"
