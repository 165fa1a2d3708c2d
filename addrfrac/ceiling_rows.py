"""A profiled replay, its labels and times of whole and reduced graphs in, the rows of a measured ceiling out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from addrfrac import stats, units
from addrfrac.classify import bound
from addrfrac.graph_labels import NodeLabel
from addrfrac.records import (
    Bound,
    CeilingRow,
    Gain,
    Ids,
    KernelRow,
    Label,
    Labels,
    Op,
    Policy,
    Range,
    Trace,
    Window,
)
from addrfrac.shares import DeviceTimeline, amdahl
from addrfrac.timeline import occupancy

TOP_KERNELS = 10
NOTED_SHARE = 0.005
"""Overlap is worth a word above this share of the deleted kernels' time."""
Blocks = Sequence[Sequence[float]]
"""[block][step] times in microseconds, in the order taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which kernels of a step a row sets free."""

    what: str
    kind: str
    """'all', 'class', 'kernel', 'site' or 'complement'."""
    chosen: Callable[[str, Label | None, Bound], bool]
    """Of (name, label, bound); the label is None and the bound unknown where a node's label is not certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows were asked for; nothing said: everything replaceable, its classes, the top kernels, the complement."""

    classes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    all_classes: bool = False
    """Classes of the library and the unknown too."""
    headline: bool = False
    """Everything replaceable together and nothing else: what a ladder shows above each arm."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiled:
    """A trace of the step with all that was found on its timeline."""

    trace: Trace
    labels: Labels
    window: Window
    timeline: DeviceTimeline
    kernels: tuple[KernelRow, ...]
    bounds: tuple[Bound, ...]
    """Of each label, under the run's policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What some kernels held of a profiled step (means a step)."""

    device_us: float
    """Sum of their durations."""
    alone_us: float
    """Time in which only they ran."""
    touched_us: float
    """Time in which at least one of them ran."""
    gaps_us: float
    """Idle time that one of them ended."""
    busy_us: float
    """Time in which anything ran."""
    all_us: float
    """Sum of the durations of everything that ran."""


# --- which kernels ------------------------------------------------------------------------------------------


def selections(kernels: Sequence[KernelRow], wanted: Wanted) -> Iterator[Selection]:
    """The rows to measure, in the order of the report; a class or site that names nothing gives a row of no nodes."""
    yield Selection(what="all replaceable", kind="all", chosen=lambda name, label, of: of is Bound.REPLACEABLE)
    if wanted.headline:
        return
    if wanted.classes or wanted.sites:
        yield from (_class(Op(name), None) for name in wanted.classes)
        yield from (_site(site) for site in wanted.sites)
        return
    yield Selection(what="library removed", kind="complement", chosen=lambda name, label, of: of is Bound.LIBRARY)
    yield from (_class(op, Bound.REPLACEABLE) for op in _ops(kernels, {Bound.REPLACEABLE}))
    if wanted.all_classes:
        yield from (_class(op, Bound.LIBRARY) for op in _ops(kernels, {Bound.LIBRARY}))
        yield from (_class(op, Bound.UNKNOWN) for op in _ops(kernels, {Bound.UNKNOWN}))
    yield from (_kernel(name) for name in top_kernels(kernels))


def top_kernels(kernels: Sequence[KernelRow]) -> list[str]:
    """Names of the kernels that take most device time, whoever owns them; the driver's own work left out."""
    time: dict[str, float] = {}
    for row in kernels:
        if row.bound is not Bound.SYSTEM:
            time[row.name] = time.get(row.name, 0.0) + row.device_us
    return sorted(time, key=lambda name: -time[name])[:TOP_KERNELS]


def _ops(kernels: Sequence[KernelRow], bounds: set[Bound]) -> list[Op]:
    time: dict[Op, float] = {}
    for row in kernels:
        if row.bound in bounds:
            time[row.op] = time.get(row.op, 0.0) + row.device_us
    return sorted(time, key=lambda op: -time[op])


def _class(op: Op, only: Bound | None) -> Selection:
    """All kernels of a class, or of them those of one bound."""
    owner = f" ({only})" if only in (Bound.LIBRARY, Bound.UNKNOWN) else ""
    return Selection(
        what=f"class {op}{owner}",
        kind="class",
        chosen=lambda name, label, of: label is not None and label.op is op and (only is None or of is only),
    )


def _kernel(wanted: str) -> Selection:
    return Selection(what=f"kernel {wanted}", kind="kernel", chosen=lambda name, label, of: name == wanted)


def _site(site: str) -> Selection:
    """Kernels whose name, operators or module hold a text; case and underscores do not matter."""
    flat = site.lower().replace("_", "")

    def chosen(name: str, label: Label | None, of: Bound) -> bool:
        texts = (name,) if label is None else (name, *label.op_stack, *label.fused_ops, *label.evidence)
        return any(flat in text.lower().replace("_", "") for text in texts)

    return Selection(what=f"site {site}", kind="site", chosen=chosen)


def chosen_nodes(selection: Selection, nodes: Mapping[int, NodeLabel], policy: Policy) -> frozenset[int]:
    """Positions of the kernel nodes to delete. Copies, sets and host calls stay, also those that only served these."""
    return frozenset(
        node
        for node, known in nodes.items()
        if selection.chosen(
            known.name, known.label, Bound.UNKNOWN if known.label is None else bound(policy, known.label)
        )
    )


def chosen_rows(selection: Selection, profiled: Profiled) -> NDArray[np.bool_]:
    """For each kernel of the timeline whether the selection sets it free. Only kernels: copies and sets stay."""
    trace, row = profiled.trace, profiled.timeline.row
    pair = np.stack([trace.kernels.name[row], profiled.timeline.label, trace.kernels.kind[row]], axis=1)
    pairs, of_row = np.unique(pair, axis=0, return_inverse=True)
    chosen = [
        kind == 0 and selection.chosen(trace.names[name], profiled.labels.table[label], profiled.bounds[label])
        for name, label, kind in pairs.tolist()
    ]
    return np.array(chosen, dtype=np.bool_)[of_row.reshape(-1)]


def held(profiled: Profiled, chosen: NDArray[np.bool_]) -> Held:
    """What the chosen kernels held of the profiled steps, alone and with others."""
    timeline, window = profiled.timeline, profiled.window
    group: Ids = chosen.astype(np.int32)
    found = occupancy(timeline.start_ns, timeline.end_ns, group, 2, window.start_ns, window.end_ns)
    follower = timeline.gaps.follower
    mine = (follower >= 0) & chosen[np.maximum(follower, 0)] if len(chosen) else np.zeros(len(follower), dtype=np.bool_)
    scale = 1e-3 / window.steps
    return Held(
        device_us=float(timeline.device_ns[chosen].sum()) * scale,
        alone_us=float(found.exclusive_ns[:, 1].sum()) * scale,
        touched_us=float(found.union_ns[:, 1].sum()) * scale,
        gaps_us=float(timeline.gaps.length_ns[mine].sum()) * scale,
        busy_us=float(found.busy_ns.sum()) * scale,
        all_us=float(timeline.device_ns.sum()) * scale,
    )


# --- rows ---------------------------------------------------------------------------------------------------


def unmeasured(
    selection: Selection, nodes: int, deleted_us: float | None, found: Held, step_us: float | None, note: str
) -> CeilingRow:
    """A row that holds Amdahl's interval alone, with the reason."""
    return CeilingRow(
        what=selection.what,
        kind=selection.kind,
        nodes=nodes,
        deleted_us=deleted_us,
        full_us=None,
        reduced_us=None,
        gain=None,
        amdahl_of_busy=_amdahl(found.alone_us, found.touched_us, found.busy_us),
        amdahl_of_wall=_amdahl(found.alone_us, found.touched_us, step_us),
        explanation="",
        note=note,
    )


def measured(
    row: CeilingRow,
    found: Held,
    full: Blocks,
    reduced: Blocks,
    noise_floor: float | None,
    *,
    kept_us: float | None = None,
    unmatched: int = 0,
) -> CeilingRow:
    """The row with its measurement: blocks of the whole and the reduced graph that took turns.

    `kept_us`: device time a step of all that remains, from a profiled replay of the reduced graph. `unmatched`: deleted
    nodes that were not found in the profiled replay, so that `row.deleted_us` lacks them.
    """
    full_us, reduced_us = stats.arm_median([full]), stats.arm_median([reduced])
    return replace(
        row,
        full_us=full_us,
        reduced_us=reduced_us,
        gain=gain(full, reduced, "whole graph", f"without {row.what}", noise_floor),
        explanation=explain(row.nodes, full_us - reduced_us, row.deleted_us, found, kept_us, unmatched),
        note="",
    )


def _amdahl(low_us: float, high_us: float, whole_us: float | None) -> Range:
    if not whole_us:
        return Range(low=None, high=None)
    return Range(low=amdahl(min(low_us / whole_us, 1.0)), high=amdahl(min(high_us / whole_us, 1.0)))


def gain(full: Blocks, reduced: Blocks, before: str, after: str, noise_floor: float | None) -> Gain:
    """Whole against reduced graph, from blocks that took turns in one process."""
    found = stats.compare_arms([full], [reduced], noise_floor)
    return Gain(
        before=before,
        after=after,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        saved_us=found.saved,
        verdict=found.verdict,
        noise_floor=noise_floor,
        least_detectable=found.least_detectable,
        processes=1,
    )


def explain(
    nodes: int, saved_us: float, deleted_us: float | None, found: Held, kept_us: float | None = None, unmatched: int = 0
) -> str:
    """Why the step got shorter by more or less than the deleted kernels ran, in words and figures."""
    count, saved = units.plural(nodes, "node"), units.microseconds(saved_us)
    if not nodes:
        return "no node of the graph is among them"
    if deleted_us is None:
        return f"saved {saved}; what its {count} ran in the profiled replay is not known"
    more = saved_us - deleted_us
    how = "more" if more >= 0 else "less"
    ran = units.microseconds(deleted_us)
    text = f"saved {saved}, {units.microseconds(abs(more))} {how} than its {count} ran ({ran})"
    lacking = (
        [f"{units.plural(unmatched, 'node')} of them not found there, so their time is not in it"] if unmatched else []
    )
    return "; ".join([text, *lacking, *_gap_reasons(nodes, more, found), *_other_reasons(found, deleted_us, kept_us)])


def _gap_reasons(nodes: int, more_us: float, found: Held) -> Iterator[str]:
    gaps, each = units.microseconds(found.gaps_us), units.microseconds(found.gaps_us / nodes)
    if found.gaps_us > 0:
        yield f"the gaps before them went too: {gaps} in the profiled replay, {each} a node"
    elif more_us > 0:
        yield "the profiled replay shows no gaps before them"


def _other_reasons(found: Held, deleted_us: float, kept_us: float | None) -> Iterator[str]:
    shared = found.touched_us - found.alone_us
    if shared > NOTED_SHARE * deleted_us:
        yield f"for {units.microseconds(shared)} of their time other kernels ran as well, and still do"
    if kept_us is None:
        return
    before = found.all_us - found.device_us
    change, how = units.microseconds(abs(kept_us - before)), "slower" if kept_us > before else "faster"
    yield (
        f"the kernels that remain ran {units.microseconds(kept_us)} instead of {units.microseconds(before)}, "
        f"{change} {how}: other clocks, other contents of the caches"
    )
