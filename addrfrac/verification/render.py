"""Verdicts and self-tests for a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import FixtureOutcome, Rate, SelfTestResult, Status, Verdict
from addrfrac.verification.store import Saved


def render_terminal(result: Saved, *, width: int = 80, verbose: bool = False, colour: bool = False) -> str:
    """A table, and in words what a table cannot say."""
    from io import StringIO

    from rich.console import Console

    target = StringIO()
    console = Console(file=target, width=max(width, 60), force_terminal=colour, highlight=False)
    parts = _selftest_parts(result) if isinstance(result, SelfTestResult) else _verdict_parts(result, verbose)
    for part in parts:
        console.print(part)
    return target.getvalue()


def _verdict_parts(verdicts: tuple[Verdict, ...], verbose: bool) -> Iterable[Any]:
    from rich.table import Table
    from rich.text import Text

    if not verdicts:
        yield "nothing was verified"
        return
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("case", "verdict", "class", "speed", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for verdict in verdicts:
        style = "green" if verdict.passed else "red"
        table.add_row(
            verdict.name,
            Text(verdict.status.value, style=style),
            verdict.precision.value,
            speed_words(verdict),
            f"{verdict.seconds:.1f}",
        )
    yield table
    yield ""
    for verdict in verdicts:
        yield Text(f"{verdict.name}: {verdict.reason}")
        if verdict.labels:
            yield Text("  labels: " + ", ".join(label.value for label in verdict.labels), style="dim")
        yield Text(f"  credit: {verdict.credit.line}", style="dim")
        for note in (*verdict.replaced, *verdict.notes)[: None if verbose else 4]:
            yield Text(f"  {note}", style="dim")
        if verbose or not verdict.passed:
            for check in verdict.checks:
                if verbose or not check.passed:
                    yield Text(f"  {'ok ' if check.passed else 'NOT'} {check.name}: {check.detail}")
    passed = sum(verdict.passed for verdict in verdicts)
    weak = [v.name for v in verdicts if v.status in (Status.WEAK_PROBLEM, Status.UNVERIFIABLE)]
    yield ""
    yield Text(f"{passed} of {len(verdicts)} passed under {verdicts[0].protocol} on {verdicts[0].device}")
    if weak:
        yield Text(f"outside any headline (the problem tells nothing): {', '.join(weak)}")
    missing = [layer for layer in verdicts[0].isolation if not layer.active]
    for layer in missing:
        yield Text(f"isolation: no {layer.name}: {layer.detail}", style="yellow")


def speed_words(verdict: Verdict) -> str:
    """The speed in a few words."""
    speed = verdict.speed
    if speed.speedup is None:
        return speed.verdict
    low, high = speed.low, speed.high
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{speed.verdict} {speed.speedup:.3f}x{interval} vs {speed.best_baseline}"


def rate_words(rate: Rate) -> str:
    """'12 of 12 (74-100 %)'."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "none"
    return f"{rate.hits} of {rate.total} ({100 * rate.low:.0f}-{100 * rate.high:.0f} %)"


def _selftest_parts(result: SelfTestResult) -> Iterable[Any]:
    from rich.table import Table
    from rich.text import Text

    accepted = accepted_by_family(result)
    names = list(PROTOCOLS)
    table = Table(box=None, pad_edge=False, show_edge=False, title="faults, and which of them a protocol accepts")
    table.add_column("family")
    table.add_column("caught (95 % interval)")
    for name in names:
        table.add_column(name.replace("kernelbench-verified", "kb-verified"), justify="right")
    for family, rate in sorted(result.caught.items(), key=lambda item: (item[0] == "all", item[0])):
        row = [f"{accepted[name].get(family, 0)}" for name in names]
        table.add_row(family, rate_words(rate), *row)
    honest = [o for o in result.outcomes if o.kind == "honest"]
    passes = [str(sum(bool(o.accepted_by.get(name)) for o in honest)) for name in names]
    table.add_row("honest", f"{len(honest) - result.false_alarms.hits} of {len(honest)} pass", *passes)
    yield table
    yield ""
    yield Text(f"caught {rate_words(result.caught['all'])}; false alarms {rate_words(result.false_alarms)}")
    for outcome in result.outcomes:
        if not outcome.right:
            word = "FALSE ALARM" if outcome.kind == "honest" else "MISSED"
            yield Text(
                f"{word} {outcome.id}: {outcome.status} (wanted {outcome.expected}): {outcome.reason}", style="red"
            )
    for score in result.mutation:
        yield Text(f"mutants killed by {score.protocol}: {rate_words(score.killed)}")
    untestable = [o.id for o in result.outcomes if o.kind == "not testable here"]
    if untestable:
        yield Text(f"not testable on this machine: {', '.join(untestable)}")
    reasons: dict[str, list[str]] = {}
    for row_id, reason in result.not_tested.items():
        reasons.setdefault(reason, []).append(row_id)
    for reason, rows in reasons.items():
        yield Text(f"no fixture on this device ({reason}): {', '.join(rows)}", style="dim")
    for layer in result.isolation:
        if not layer.active:
            yield Text(f"isolation: no {layer.name}: {layer.detail}", style="yellow")
    yield Text(f"{len(result.outcomes)} cases in {result.seconds:.0f} s on {result.device}")


def accepted_by_family(result: SelfTestResult) -> dict[str, dict[str, int]]:
    """Protocol -> family -> faults that it accepts."""
    counts: dict[str, dict[str, int]] = {name: {} for name in PROTOCOLS}

    def count(outcome: FixtureOutcome) -> None:
        for name, accepted in outcome.accepted_by.items():
            for family in (outcome.family, "all"):
                counts[name][family] = counts[name].get(family, 0) + bool(accepted)

    for outcome in result.outcomes:
        if outcome.kind == "exploit":
            count(outcome)
    return counts
