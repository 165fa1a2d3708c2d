"""Verdicts of one kernel under several protocols in, what sets them apart out: which check, which baseline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from addrfrac.verification.protocols import ADDRFRAC, PROTOCOLS
from addrfrac.verification.records import Check, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdicts:
    """One case under each protocol that was asked for."""

    name: str
    verdicts: tuple[Verdict, ...]

    @property
    def decisive(self) -> Verdict:
        """Ours where it was asked for, else the first."""
        return next((v for v in self.verdicts if v.protocol == ADDRFRAC.name), self.verdicts[0])


def by_case(verdicts: Sequence[Verdict]) -> tuple[CaseVerdicts, ...]:
    """Verdicts grouped by case, in the order given."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.name, []).append(verdict)
    return tuple(CaseVerdicts(name=name, verdicts=tuple(group)) for name, group in groups.items())


def protocols_of(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Names of the protocols, in the order given."""
    return tuple(dict.fromkeys(verdict.protocol for verdict in verdicts))


def decisive_check(verdict: Verdict) -> Check | None:
    """The check that its status comes from; None where it passed."""
    failed = [check for check in verdict.checks if not check.passed]
    return next((check for check in failed if check.status is verdict.status), failed[0] if failed else None)


def differences(case: CaseVerdicts) -> tuple[str, ...]:
    """In words: who accepts, who does not and by which check; what each protocol's own baseline makes of the time."""
    if len(case.verdicts) < 2:
        return ()
    accept = [v for v in case.verdicts if v.passed]
    refuse = [v for v in case.verdicts if not v.passed]
    lines = []
    if accept and refuse:
        for verdict in refuse:
            check = decisive_check(verdict)
            by = f"its check '{check.name}': {check.detail}" if check is not None else verdict.reason
            lines.append(f"{verdict.protocol} refuses what {_names(accept)} accept{_s(accept)}, by {by}")
    elif refuse:
        reasons = {v.protocol: c.name for v in refuse for c in (decisive_check(v),) if c is not None}
        lines.append("all refuse: " + "; ".join(f"{name} by '{check}'" for name, check in reasons.items()))
    else:
        lines.append("all accept")
    return (*lines, *_baseline_lines(case))


def _names(verdicts: Sequence[Verdict]) -> str:
    names = [verdict.protocol for verdict in verdicts]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _s(verdicts: Sequence[Verdict]) -> str:
    return "s" if len(verdicts) == 1 else ""


def own_baseline(protocol: str) -> str:
    """The one baseline that a published protocol compares with."""
    found = PROTOCOLS.get(protocol)
    return "eager-tf32" if found is not None and found.tf32_baseline else "eager-strict"


def speedups(case: CaseVerdicts) -> dict[str, tuple[str, float]]:
    """Protocol -> (its baseline, baseline / candidate), all of the one measurement that our protocol made."""
    speed = case.decisive.speed
    if speed.candidate is None or speed.speedup is None:
        return {}
    candidate = statistics.median(us for process in speed.candidate.block_us for us in process)
    medians = {b.name: statistics.median(b.samples_us) for b in speed.baselines if b.samples_us}
    found = {}
    for verdict in case.verdicts:
        ours = verdict.protocol == ADDRFRAC.name
        name = speed.best_baseline if ours else own_baseline(verdict.protocol)
        if ours:
            found[verdict.protocol] = (name, speed.speedup)
        elif name in medians and candidate > 0:
            found[verdict.protocol] = (name, medians[name] / candidate)
    return found


def _baseline_lines(case: CaseVerdicts) -> tuple[str, ...]:
    found = speedups(case)
    if len(found) < 2:
        return ()
    told = "; ".join(f"{name} {ratio:.2f}x against {baseline}" for name, (baseline, ratio) in found.items())
    return (f"the same times by each protocol's baseline: {told}",)
