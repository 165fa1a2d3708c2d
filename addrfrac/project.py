"""Accounts in, bounds on the gain out: break-even, ranked targets, what-if. Nothing here is measured end to end."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from addrfrac.errors import AddrfracError
from addrfrac.records import (
    Accounts,
    Bound,
    BreakEven,
    ClassTime,
    KernelRow,
    Op,
    Projection,
    Range,
    Run,
    Target,
    WhatIf,
    WhatIfRow,
)

GAINS = (0.01, 0.05, 0.10)
"""End-to-end gains that break-even is given for."""
MOST_TARGETS = 20


def project(accounts: Accounts, kernels: Sequence[KernelRow]) -> Projection:
    """Break-even of every op that computes, and the replaceable kernels ranked by the microseconds they hold."""
    return Projection(break_even=_break_evens(accounts), targets=_targets(accounts, kernels))


def _break_evens(accounts: Accounts) -> tuple[BreakEven, ...]:
    if not accounts.busy_us:
        return ()
    by_op: dict[Op, list[ClassTime]] = defaultdict(list)
    for each in accounts.classes:
        if each.bound != Bound.SYSTEM:
            by_op[each.op].append(each)
    rows = []
    for op, classes in by_op.items():
        exclusive = sum(c.exclusive_us for c in classes)
        union = min(sum(c.union_us for c in classes), accounts.busy_us)
        for gain in GAINS:
            rows.append(
                BreakEven(
                    op=op,
                    device_us=sum(c.device_us for c in classes),
                    share_of_busy=Range(low=exclusive / accounts.busy_us, high=union / accounts.busy_us),
                    for_gain=gain,
                    class_speedup=class_speedup(exclusive / accounts.busy_us, gain),
                )
            )
    return tuple(sorted(rows, key=lambda row: (-row.device_us, row.for_gain)))


def class_speedup(share: float, gain: float) -> float | None:
    """How much faster a class of this share must be for `1 + gain` end to end; None where no speed is enough.

    Amdahl solved for the class: 1 - share (1 - 1/s) = 1 / (1 + gain).
    """
    needed = gain / (1.0 + gain)
    return share / (share - needed) if share > needed else None


def _targets(accounts: Accounts, kernels: Sequence[KernelRow]) -> tuple[Target, ...]:
    replaceable = [row for row in kernels if row.bound == Bound.REPLACEABLE and accounts.busy_us]
    return tuple(
        Target(
            name=row.name,
            op=row.op,
            provider=row.provider,
            device_us=row.device_us,
            share_of_busy=row.share_of_busy,
            speedup_if_free=accounts.busy_us / max(accounts.busy_us - row.device_us, 1e-9),
            launches=row.launches,
        )
        for row in replaceable[:MOST_TARGETS]
    )


def what_if(run: Run, speedups: Mapping[str, float]) -> WhatIf:
    """What a step of `run` would cost if the kernels that each key names were that much faster.

    A key names an op ('normalization'), an op of one provider ('gemm/cublas'), or part of a kernel's or launching op's
    name ('rmsnorm'). A kernel that several keys name counts for the first. Raises AddrfracError for a key that names
    nothing and for a speed-up that is not positive.
    """
    taken: set[int] = set()
    rows = []
    for key, speedup in speedups.items():
        if speedup <= 0:
            raise AddrfracError(f"--speedup {key}={speedup:g} is not positive; give how many times as fast, e.g. 1.5")
        named = [i for i, row in enumerate(run.kernels) if i not in taken and _names(key, row)]
        if not named:
            raise AddrfracError(f"--speedup {key}: no kernel of the run is called so; {_suggestion(key, run.kernels)}")
        taken.update(named)
        rows.append(_what_if_row(key, speedup, [run.kernels[i] for i in named], run.accounts))
    return _assess(run, tuple(rows))


def _names(key: str, row: KernelRow) -> bool:
    wanted = key.lower()
    if wanted in tuple(Op):
        return row.op == wanted
    op, _, provider = wanted.partition("/")
    if provider and op in tuple(Op):
        return row.op == op and row.provider == provider
    flat = wanted.replace("_", "")
    return any(
        flat in text.lower().replace("_", "") for text in (row.name, *row.op_stack, *row.fused_ops, *row.evidence)
    )


def _suggestion(key: str, kernels: Iterable[KernelRow]) -> str:
    known = sorted({str(row.op) for row in kernels})
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else f"its ops are {', '.join(known)}"


def _what_if_row(key: str, speedup: float, named: Sequence[KernelRow], accounts: Accounts) -> WhatIfRow:
    alone = {(c.op, c.provider, c.bound, c.phase): _alone_share(c) for c in accounts.classes}
    faster = 1.0 - 1.0 / speedup
    device = sum(row.device_us for row in named)
    exclusive = sum(row.device_us * alone[row.op, row.provider, row.bound, row.phase] for row in named)
    ends = sorted((exclusive * faster, device * faster))
    return WhatIfRow(
        what=key,
        speedup=speedup,
        kernels=len({row.name for row in named}),
        device_us=device,
        saved_us=Range(low=ends[0], high=ends[1]),
    )


def _alone_share(one: ClassTime) -> float:
    """Share of a class's device time in which nothing else ran."""
    return min(one.exclusive_us / one.device_us, 1.0) if one.device_us else 0.0


def _assess(run: Run, rows: tuple[WhatIfRow, ...]) -> WhatIf:
    accounts = run.accounts
    low = sum(row.saved_us.low or 0.0 for row in rows)
    high = min(sum(row.saved_us.high or 0.0 for row in rows), accounts.busy_us)
    wall = run.wall.step_us if run.wall is not None else None
    notes = ["projected from the accounts, not measured"]
    wall_low_saving = low
    if accounts.host_bound:
        wall_low_saving = min(low, 0.0)
        notes.append("the step is host-bound: faster kernels alone may leave its wall as it is")
    return WhatIf(
        title=run.title,
        rows=rows,
        busy_us=accounts.busy_us,
        busy_after_us=Range(low=accounts.busy_us - high, high=accounts.busy_us - low),
        speedup_of_busy=_speedups(accounts.busy_us, low, high),
        wall_us=wall,
        wall_after_us=Range(low=None, high=None)
        if wall is None
        else Range(low=max(wall - high, 0.0), high=wall - wall_low_saving),
        speedup_of_wall=Range(low=None, high=None) if wall is None else _speedups(wall, wall_low_saving, high),
        notes=tuple(notes),
    )


def _speedups(before_us: float, saved_low_us: float, saved_high_us: float) -> Range:
    return Range(
        low=before_us / (before_us - saved_low_us) if before_us > saved_low_us else None,
        high=before_us / (before_us - saved_high_us) if before_us > saved_high_us else None,
    )
