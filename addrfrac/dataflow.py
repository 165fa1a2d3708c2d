"""What each op of a step read and wrote in, the bytes that must cross between library calls out.

*Fused*: replaceable ops without a library call between them are one kernel, which reads what comes from outside once
and writes what others need once. *Absorbed*: elementwise work on a library call's output runs inside
that call, and such work on its input too; it moves only what the call does not move anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A view of a piece of memory that an op read or wrote."""

    storage: int
    """The piece of memory; a number of its own for each allocation, also where an address is used again."""
    view: int
    """Equal for accesses of the same places of a storage."""
    low_bytes: float
    high_bytes: float
    """More than `low_bytes` where shapes do not tell: rows of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFlow:
    """One op that did work; views do none."""

    op: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    is_library: bool
    is_elementwise: bool
    """Could run on the values of another kernel as they come or go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataflow:
    """The ops of a step in order."""

    ops: tuple[OpFlow, ...]
    kept: frozenset[int]
    """Storages that outlive the step."""
    sizes: Mapping[int, float]
    """Bytes of each storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Replaceable ops that one kernel could do."""

    ops: int
    low_bytes: float
    high_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Bytes that must cross between library calls."""

    ops: int
    library_ops: int
    fused: tuple[Group, ...]
    """One kernel each."""
    absorbed_low_bytes: float
    """Moved by work inside library calls, beyond what the calls move."""
    absorbed_high_bytes: float
    rest: tuple[Group, ...]
    """What no library call can take in, one kernel each."""


def crossing(flow: Dataflow) -> Crossing:
    """The groups of a step's replaceable ops with the bytes that they move fused and absorbed."""
    links = _links(flow)
    fused, rest, inside = [], [], [0.0, 0.0]
    for members in _groups(flow, links):
        whole = _bytes(flow, links, members)
        fused.append(Group(ops=len(members), low_bytes=whole[0], high_bytes=whole[1]))
        taken, left = _absorbed(flow, links, members)
        remaining = _bytes(flow, links, left)
        if taken[0] + remaining[0] > whole[0]:  # splitting off would move more than it saves
            taken, left, remaining = (0.0, 0.0), members, whole
        if left:
            rest.append(Group(ops=len(left), low_bytes=remaining[0], high_bytes=remaining[1]))
        inside = [inside[0] + taken[0], inside[1] + taken[1]]
    return Crossing(
        ops=len(flow.ops),
        library_ops=sum(op.is_library for op in flow.ops),
        fused=tuple(fused),
        absorbed_low_bytes=inside[0],
        absorbed_high_bytes=inside[1],
        rest=tuple(rest),
    )


# --- who needs whom -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """For each op: by storage the op that wrote what it reads, and the ops that read what it wrote."""

    writer: tuple[dict[int, int], ...]
    readers: tuple[dict[int, set[int]], ...]
    is_last: tuple[frozenset[int], ...]
    """Storages of which it is the last writer of the step."""


def _links(flow: Dataflow) -> _Links:
    last: dict[int, int] = {}
    writer: list[dict[int, int]] = []
    readers: list[dict[int, set[int]]] = [defaultdict(set) for _ in flow.ops]
    for i, op in enumerate(flow.ops):
        mine = {access.storage: last[access.storage] for access in op.reads if access.storage in last}
        for storage, source in mine.items():
            readers[source][storage].add(i)
        writer.append(mine)
        last.update({access.storage: i for access in op.writes})
    finals: list[set[int]] = [set() for _ in flow.ops]
    for storage, i in last.items():
        finals[i].add(storage)
    return _Links(
        writer=tuple(writer), readers=tuple(dict(each) for each in readers), is_last=tuple(map(frozenset, finals))
    )


def _groups(flow: Dataflow, links: _Links) -> list[list[int]]:
    """Replaceable ops that have equally many library calls behind them on their longest path.

    Between two such ops no path leads through a library call, so fusing them makes no circle; those that no data
    connects may share a kernel too, as a foreach optimizer's do.
    """
    depth: list[int] = []
    for sources in links.writer:
        depth.append(max((depth[source] + flow.ops[source].is_library for source in sources.values()), default=0))
    by_depth: dict[int, list[int]] = defaultdict(list)
    for i, op in enumerate(flow.ops):
        if not op.is_library:
            by_depth[depth[i]].append(i)
    return list(by_depth.values())


def _components(links: _Links, members: Sequence[int]) -> list[list[int]]:
    """Parts of `members` that data connects."""
    inside, parent = set(members), {i: i for i in members}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in members:
        for source in links.writer[i].values():
            if source in inside:
                parent[root(i)] = root(source)
    parts: dict[int, list[int]] = defaultdict(list)
    for i in members:
        parts[root(i)].append(i)
    return list(parts.values())


# --- bytes --------------------------------------------------------------------------------------------------

Bytes = tuple[float, float]


def _bytes(flow: Dataflow, links: _Links, members: Sequence[int]) -> Bytes:
    """What one kernel for these ops reads from outside and writes for others."""
    read, written = _read(flow, links, members), _written(flow, links, members)
    total = [_union(flow, each) for each in (*read.values(), *written.values())]
    return sum(each[0] for each in total), sum(each[1] for each in total)


def _read(flow: Dataflow, links: _Links, members: Sequence[int]) -> dict[int, list[Access]]:
    """Accesses to what these ops read and none of them wrote, by storage."""
    inside = set(members)
    found: dict[int, list[Access]] = defaultdict(list)
    for i in members:
        for access in flow.ops[i].reads:
            if links.writer[i].get(access.storage) not in inside:
                found[access.storage].append(access)
    return found


def _written(flow: Dataflow, links: _Links, members: Sequence[int]) -> dict[int, list[Access]]:
    """Accesses to what these ops wrote and others read, or what outlives the step, by storage."""
    inside = set(members)
    found: dict[int, list[Access]] = defaultdict(list)
    for i in members:
        for access in flow.ops[i].writes:
            outside = links.readers[i].get(access.storage, set()) - inside
            if outside or (access.storage in flow.kept and access.storage in links.is_last[i]):
                found[access.storage].append(access)
    return found


def _union(flow: Dataflow, accesses: Sequence[Access]) -> Bytes:
    """Bytes of several accesses to one storage: each view once, no more than there are."""
    views = {access.view: access for access in accesses}.values()
    most = flow.sizes.get(accesses[0].storage, float("inf"))
    low, high = max(each.low_bytes for each in views), sum(each.high_bytes for each in views)
    return min(low, most), min(high, most)


# --- absorbed -----------------------------------------------------------------------------------------------


def _absorbed(flow: Dataflow, links: _Links, members: Sequence[int]) -> tuple[Bytes, list[int]]:
    """(bytes moved inside library calls beyond their own, ops that are left).

    Epilogues first: elementwise ops on one library call's output, and elementwise ops on those. Then prologues:
    elementwise ops whose results go to library calls only.
    """
    epilogues = _epilogues(flow, links, members)
    rest = [i for i in members if i not in epilogues]
    prologues = _prologues(flow, links, rest)
    rest = [i for i in rest if i not in prologues]
    low = high = 0.0
    for call in set(epilogues.values()):
        part = [i for i, its_call in epilogues.items() if its_call == call]
        moved = _beyond_output(flow, links, part, call)
        low, high = low + moved[0], high + moved[1]
    for part in _components(links, sorted(prologues)):
        moved = _beyond_input(flow, links, part)
        low, high = low + moved[0], high + moved[1]
    return (low, high), rest


def _epilogues(flow: Dataflow, links: _Links, members: Sequence[int]) -> dict[int, int]:
    """Elementwise op -> the library call that takes it in; what it reads from inside the group is taken in too."""
    taken: dict[int, int] = {}
    inside = set(members)
    for i in members:
        if not flow.ops[i].is_elementwise:
            continue
        sources = set(links.writer[i].values())
        calls = {source for source in sources if flow.ops[source].is_library and _only_read_in(links, source, inside)}
        calls |= {taken[source] for source in sources if source in taken}
        waits = any(source in inside and source not in taken for source in sources)
        if calls and not waits:
            taken[i] = max(calls)  # the last of several calls: the others' results are operands by then
    return taken


def _only_read_in(links: _Links, call: int, inside: set[int]) -> bool:
    """Whether nobody else reads what a call wrote: else it must be written for them anyway."""
    return all(readers <= inside for readers in links.readers[call].values())


def _prologues(flow: Dataflow, links: _Links, members: Sequence[int]) -> set[int]:
    """Elementwise ops whose results are read by library calls, or by such ops, and by nobody else."""
    taken: set[int] = set()
    for i in sorted(members, reverse=True):
        op = flow.ops[i]
        readers = {reader for each in links.readers[i].values() for reader in each}
        kept = any(access.storage in flow.kept and access.storage in links.is_last[i] for access in op.writes)
        into_calls = all(flow.ops[reader].is_library or reader in taken for reader in readers)
        if op.is_elementwise and readers and into_calls and not kept:
            taken.add(i)
    return taken


def _beyond_output(flow: Dataflow, links: _Links, part: Sequence[int], call: int) -> Bytes:
    """Operands that the call does not have, and results beyond the one that takes its output's place."""
    own = {access.storage for access in flow.ops[call].writes}
    operands = [_union(flow, each) for storage, each in _read(flow, links, part).items() if storage not in own]
    results = [_union(flow, each) for each in _written(flow, links, part).values()]
    output = sum(access.low_bytes for access in flow.ops[call].writes)
    low = sum(each[0] for each in operands) + max(sum(each[0] for each in results) - output, 0.0)
    return low, sum(each[1] for each in operands) + max(sum(each[1] for each in results) - output, 0.0)


def _beyond_input(flow: Dataflow, links: _Links, part: Sequence[int]) -> Bytes:
    """Operands in place of the results that the calls would read."""
    operands = [_union(flow, each) for each in _read(flow, links, part).values()]
    results = sum(_union(flow, each)[0] for each in _written(flow, links, part).values())
    return (
        max(sum(each[0] for each in operands) - results, 0.0),
        max(sum(each[1] for each in operands) - results, 0.0),
    )


# --- as facts of a capture ----------------------------------------------------------------------------------


def as_facts(found: Crossing) -> dict[str, Any]:
    """Plain values, for a capture's `extra`."""
    return {
        "ops": found.ops,
        "library_ops": found.library_ops,
        "fused": [[group.ops, group.low_bytes, group.high_bytes] for group in found.fused],
        "absorbed_bytes": [found.absorbed_low_bytes, found.absorbed_high_bytes],
        "rest": [[group.ops, group.low_bytes, group.high_bytes] for group in found.rest],
    }


def from_facts(facts: Any) -> Crossing | None:
    """The crossing that a capture holds; None where there is none or it is of another form."""
    if not isinstance(facts, dict):
        return None
    try:
        low, high = facts["absorbed_bytes"]
        return Crossing(
            ops=int(facts["ops"]),
            library_ops=int(facts["library_ops"]),
            fused=_groups_from(facts["fused"]),
            absorbed_low_bytes=float(low),
            absorbed_high_bytes=float(high),
            rest=_groups_from(facts["rest"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _groups_from(rows: Any) -> tuple[Group, ...]:
    return tuple(Group(ops=int(n), low_bytes=float(low), high_bytes=float(high)) for n, low, high in rows)
