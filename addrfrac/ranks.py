"""Several ranks' accounts in, one table out: who waited for whom, and what the awaited rank did meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from addrfrac.collectives import Matched, Matches, RankPart, match
from addrfrac.gaps import KINDS
from addrfrac.records import (
    CollectiveRow,
    Ids,
    Ints,
    Op,
    RankRow,
    RankTable,
    Run,
    WaitingCause,
)
from addrfrac.timeline import merge, occupancy

OUTSIDE = "outside the chosen steps"


def rank_table(parts: Sequence[RankPart], runs: Sequence[Run]) -> RankTable:
    """All ranks side by side; `parts` and `runs` are of the same ranks in the same order."""
    matches = match(parts)
    rows = tuple(
        _rank_row(i, part, run, matches, len(parts)) for i, (part, run) in enumerate(zip(parts, runs, strict=True))
    )
    work = [row.work_us for row in rows]
    most = max(rows, key=lambda row: row.caused_us)
    return RankTable(
        ranks=rows,
        collectives=_collective_rows(matches.matched, parts),
        causes=_causes(matches.matched, parts),
        straggler=most.rank if most.caused_us > 0 else None,
        work_spread=(max(work) - min(work)) / float(np.median(work)) if np.median(work) else None,
        notes=(*_notes(parts), *matches.notes),
    )


def _notes(parts: Sequence[RankPart]) -> list[str]:
    notes = []
    world = max((part.trace.source.world_size or 0) for part in parts)
    if world > len(parts):
        notes.append(f"{len(parts)} of {world} ranks are at hand")
    steps = sorted({part.window.steps for part in parts})
    if len(steps) > 1:
        notes.append(
            f"the ranks hold different numbers of steps ({', '.join(map(str, steps))}): each is a mean of its own"
        )
    return notes


def _rank_row(i: int, part: RankPart, run: Run, matches: Matches, ranks: int) -> RankRow:
    steps = part.window.steps
    mine = [(one, entry) for one in matches.matched for entry in one.entries if entry.part == i]
    last = [one for one, entry in mine if one.last is entry and any(map(one.waiting_ns, one.entries))]
    caused = sum(one.waiting_ns(entry) for one in last for entry in one.entries)
    exposed_us = _exposed_ns(part, [(entry.start_ns, one.waiting_ns(entry)) for one, entry in mine]) / steps / 1e3
    return RankRow(
        rank=part.rank,
        span_us=run.accounts.span_us,
        busy_us=run.accounts.busy_us,
        share_of_busy=run.addressable.share_of_busy,
        transfer_us=sum(one.transfer_ns for one, _ in mine) / steps / 1e3,
        waiting_us=sum(one.waiting_ns(entry) for one, entry in mine) / steps / 1e3,
        exposed_waiting_us=exposed_us,
        work_us=run.accounts.busy_us - exposed_us,
        came_last=len(last) / steps,
        caused_us=caused / max(ranks - 1, 1) / steps / 1e3,
        unmatched_us=sum(entry.duration_ns for entry in matches.unmatched if entry.part == i) / steps / 1e3,
    )


def _exposed_ns(part: RankPart, waits: Sequence[tuple[int, int]]) -> int:
    """How long a rank ran nothing but communication while it waited; waits are (start, length)."""
    start = np.array([start for start, _ in waits], dtype=np.int64)
    low, high = merge(start, start + np.array([length for _, length in waits], dtype=np.int64))
    timeline = part.timeline
    computes = np.array([label.op != Op.COMMUNICATION for label in part.labels.table], dtype=np.bool_)
    mine = computes[timeline.label]
    together = np.zeros(int(mine.sum()), dtype=np.int32)
    hidden = occupancy(timeline.start_ns[mine], timeline.end_ns[mine], together, 1, low, high).busy_ns
    return int((high - low).sum() - hidden.sum())


def _collective_rows(matched: Sequence[Matched], parts: Sequence[RankPart]) -> tuple[CollectiveRow, ...]:
    kinds: dict[tuple[str, str, int, str, int], list[Matched]] = defaultdict(list)
    for one in matched:
        first = one.entries[0]
        elements = first.elements if len({entry.elements for entry in one.entries}) == 1 else -1
        kinds[first.name, first.group, first.group_size, first.dtype, elements].append(one)
    steps = parts[0].window.steps
    rows = [
        CollectiveRow(
            name=name,
            group=group,
            group_size=size,
            ranks=max(len(one.entries) for one in of),
            dtype=dtype,
            elements=elements,
            count=len(of) / steps,
            transfer_us=sum(one.transfer_ns for one in of) / steps / 1e3,
            waiting_us=sum(_mean_waiting_ns(one) for one in of) / steps / 1e3,
        )
        for (name, group, size, dtype, elements), of in kinds.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.waiting_us, -row.transfer_us)))


def _mean_waiting_ns(one: Matched) -> float:
    return sum(map(one.waiting_ns, one.entries)) / len(one.entries)


# --- what the last rank did meanwhile -----------------------------------------------------------------------


def _causes(matched: Sequence[Matched], parts: Sequence[RankPart]) -> tuple[WaitingCause, ...]:
    """The waiting of all ranks, charged to what the rank they waited for did just before it joined.

    A rank that waited w for another did so while the other was in the w before its own start of the collective: that
    stretch is looked up on the other's timeline, by the other's clock.
    """
    charged: dict[str, float] = defaultdict(float)
    for i, part in enumerate(parts):
        waits = [
            (one.last.start_ns, one.waiting_ns(entry))
            for one in matched
            if one.last.part == i
            for entry in one.entries
            if one.waiting_ns(entry)
        ]
        for what, ns in _meanwhile(part, waits).items():
            charged[what] += ns / part.window.steps
    rows = [WaitingCause(what=what, us=ns / len(parts) / 1e3) for what, ns in charged.items() if ns > 0]
    return tuple(sorted(rows, key=lambda row: -row.us))


def _meanwhile(part: RankPart, waits: Sequence[tuple[int, int]]) -> dict[str, float]:
    """What a rank did, in ns, during stretches given as (end, length); overlap is divided evenly."""
    if not waits:
        return {}
    end = np.array([end for end, _ in waits], dtype=np.int64)
    begin = end - np.array([length for _, length in waits], dtype=np.int64)
    start_ns, end_ns, group, names = _doings(part)
    edges = np.unique(np.concatenate([begin, end]))
    pieces = occupancy(start_ns, end_ns, group, len(names), edges[:-1], edges[1:])
    until = np.vstack([np.zeros(len(names)), np.cumsum(pieces.even_ns, axis=0)])
    done: NDArray[np.float64] = (until[np.searchsorted(edges, end)] - until[np.searchsorted(edges, begin)]).sum(axis=0)
    found = dict(zip(names, done.tolist(), strict=True))
    found[OUTSIDE] = max(float((end - begin).sum()) - float(done.sum()), 0.0)
    return found


def _doings(part: RankPart) -> tuple[Ints, Ints, Ids, list[str]]:
    """Kernels by class and gaps by kind, as intervals with a group each and the groups' names."""
    timeline, gaps = part.timeline, part.timeline.gaps
    names = list(dict.fromkeys(f"{label.op} · {label.provider}" for label in part.labels.table))
    of_label = np.array([names.index(f"{label.op} · {label.provider}") for label in part.labels.table], dtype=np.int32)
    window_end = part.window.end_ns[gaps.step]
    follows = np.append(timeline.start_ns, np.iinfo(np.int64).max)[gaps.follower]
    gap_end = np.minimum(follows, window_end)
    return (
        np.concatenate([timeline.start_ns, gap_end - gaps.length_ns]),
        np.concatenate([timeline.end_ns, gap_end]),
        np.concatenate([of_label[timeline.label], len(names) + gaps.kind]).astype(np.int32),
        [*names, *(f"idle: {kind}" for kind in KINDS)],
    )
