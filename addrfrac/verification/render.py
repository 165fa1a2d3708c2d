"""Verdicts and self-tests for a terminal of 80 columns or more."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import FixtureOutcome, PrecisionClass, Rate, SelfTestResult, Status, Verdict
from addrfrac.verification.side_by_side import CaseVerdicts, by_case, differences, protocols_of
from addrfrac.verification.store import Saved

_INDENT = 10
_NOTES = 4


def render_terminal(result: Saved, *, width: int = 80, verbose: bool = False, colour: bool = False) -> str:
    """A table, and in words what a table cannot say."""
    from io import StringIO

    from rich.console import Console

    target = StringIO()
    width = max(width, 60)
    console = Console(file=target, width=width, force_terminal=colour, highlight=False, soft_wrap=True)
    parts = _selftest_parts(result, width) if isinstance(result, SelfTestResult) else _verdict_parts(result, verbose)
    for part in parts:
        if isinstance(part, tuple):
            console.print(_line(*part, width=width))
        else:
            console.print(part, soft_wrap=False)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def _line(term: str, text: str, style: str = "", *, width: int) -> Any:
    """A term, and its text beside it, wrapped under itself."""
    from rich.text import Text

    lines = textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=f"  {term}".ljust(_INDENT),
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
    )
    return Text("\n".join(lines), style=style)


def _verdict_parts(verdicts: tuple[Verdict, ...], verbose: bool) -> Iterable[Any]:
    from rich.text import Text

    if not verdicts:
        yield "nothing was verified"
        return
    cases, protocols = by_case(verdicts), protocols_of(verdicts)
    yield _table_of_one(cases) if len(protocols) == 1 else _table_of_many(cases, protocols)
    for case in cases:
        yield ""
        yield from _case_parts(case, verbose)
    yield ""
    yield from _summary_parts(cases, protocols)
    decisive = cases[0].decisive
    for layer in decisive.isolation:
        if not layer.active:
            yield Text(f"isolation: no {layer.name}: {layer.detail}", style="yellow")


def _table_of_one(cases: Sequence[CaseVerdicts]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("case", "verdict", "class", "speed", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for case in cases:
        verdict = case.decisive
        table.add_row(
            verdict.name,
            Text(verdict.status.value, style=_style(verdict)),
            class_words(verdict),
            speed_words(verdict),
            f"{verdict.seconds:.1f}",
        )
    return table


def _table_of_many(cases: Sequence[CaseVerdicts], protocols: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("case", overflow="fold")
    for protocol in protocols:
        table.add_column(protocol.replace("kernelbench-verified", "kb-verified"), overflow="fold")
    for case in cases:
        found = {verdict.protocol: verdict for verdict in case.verdicts}
        cells = (Text(found[p].status.value, style=_style(found[p])) if p in found else "" for p in protocols)
        table.add_row(case.name, *cells)
    return table


def _style(verdict: Verdict) -> str:
    return "green" if verdict.passed else "red"


def _case_parts(case: CaseVerdicts, verbose: bool) -> Iterable[Any]:
    from rich.text import Text

    verdict = case.decisive
    yield Text(f"{case.name}: {verdict.status.value}", style="bold")
    yield ("why", verdict.reason)
    for line in differences(case):
        yield ("differs", line)
    if verdict.speed.speedup is not None:
        yield ("speed", speed_words(verdict))
        yield ("times", times_words(verdict), "dim")
    if verdict.labels:
        yield ("labels", ", ".join(label.value for label in verdict.labels), "dim")
    yield ("credit", verdict.credit.line, "dim")
    notes = (*(f"stood in: {entry}" for entry in verdict.replaced), *verdict.notes)
    for note in notes if verbose else notes[:_NOTES]:
        yield ("note", note, "dim")
    if len(notes) > _NOTES and not verbose:
        yield ("", f"and {len(notes) - _NOTES} more notes in the saved file", "dim")
    for check in verdict.checks:
        if verbose or not (check.passed or f"{check.name}: {check.detail}" == verdict.reason):
            yield ("ok" if check.passed else "failed", f"{check.name}: {check.detail}", "" if check.passed else "red")


def _summary_parts(cases: Sequence[CaseVerdicts], protocols: Sequence[str]) -> Iterable[Any]:
    from rich.text import Text

    device = cases[0].decisive.device
    for protocol in protocols:
        found = [v for case in cases for v in case.verdicts if v.protocol == protocol]
        yield Text(f"{sum(v.passed for v in found)} of {len(found)} passed under {protocol} on {device}")
    weak = [c.name for c in cases if c.decisive.status in (Status.WEAK_PROBLEM, Status.UNVERIFIABLE)]
    if weak:
        yield Text(f"outside any headline (the problem tells nothing): {', '.join(weak)}")
    if device == "cpu":
        yield Text("values only: a CPU times nothing; on a GPU the same command adds the clock", style="dim")


def class_words(verdict: Verdict) -> str:
    """The precision class reached; '' where the values are wrong or were not looked at."""
    reached = verdict.passed or verdict.status in (Status.LOWER_PRECISION, Status.SHAPE_SPECIALISED)
    return verdict.precision.value if reached and verdict.precision is not PrecisionClass.NONE else ""


def speed_words(verdict: Verdict) -> str:
    """The speed in a few words."""
    speed = verdict.speed
    if speed.speedup is None:
        return speed.verdict
    low, high = speed.low, speed.high
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{speed.verdict} {speed.speedup:.3f}x{interval} vs {speed.best_baseline}"


def times_words(verdict: Verdict) -> str:
    """The candidate's time and that of each baseline, medians of their samples."""
    speed = verdict.speed
    told = []
    if speed.candidate is not None:
        told.append(f"candidate {statistics.median(us for p in speed.candidate.block_us for us in p):.1f} us")
    for baseline in speed.baselines:
        if baseline.name != "candidate":
            time = f"{statistics.median(baseline.samples_us):.1f} us" if baseline.samples_us else "not timed"
            told.append(f"{baseline.name} {time}" + (f" ({baseline.note})" if baseline.note else ""))
    return ", ".join(told)


def rate_words(rate: Rate) -> str:
    """'12 of 12 (74-100 %)'."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "none"
    return f"{rate.hits} of {rate.total} ({100 * rate.low:.0f}-{100 * rate.high:.0f} %)"


def _selftest_parts(result: SelfTestResult, width: int) -> Iterable[Any]:
    from rich.table import Table
    from rich.text import Text

    accepted, judged = accepted_by_family(result), judged_by_family(result)
    names = [name for name in PROTOCOLS if any(judged[name].values())]
    table = Table(box=None, pad_edge=False, show_edge=False, title="faults, and how many of them a protocol accepts")
    table.add_column("family")
    table.add_column("caught (95 % interval)")
    for name in names:
        table.add_column(name.replace("kernelbench-verified", "kb-verified"), justify="right")
    for family, rate in sorted(result.caught.items(), key=lambda item: (item[0] == "all", item[0])):
        row = [f"{accepted[name].get(family, 0)}/{judged[name].get(family, 0)}" for name in names]
        table.add_row(family, rate_words(rate), *row)
    honest = [o for o in result.outcomes if o.kind == "honest"]
    passes = [
        f"{sum(bool(o.accepted_by.get(name)) for o in honest)}/{sum(name in o.accepted_by for o in honest)}"
        for name in names
    ]
    table.add_row("honest", f"{len(honest) - result.false_alarms.hits} of {len(honest)} pass", *passes)
    yield table
    yield ""
    yield Text(f"caught {rate_words(result.caught['all'])}; false alarms {rate_words(result.false_alarms)}")
    for outcome in result.outcomes:
        if not outcome.right:
            word = "FALSE ALARM" if outcome.kind == "honest" else "MISSED"
            text = f"{word} {outcome.id}: {outcome.status} (wanted {outcome.expected}): {outcome.reason}"
            yield Text("\n".join(textwrap.wrap(text, width, subsequent_indent="    ")), style="red")
    for score in result.mutation:
        yield Text(f"mutants killed by {score.protocol}: {rate_words(score.killed)}")
    untestable = [o.id for o in result.outcomes if o.kind == "not testable here"]
    if untestable:
        yield Text(f"not testable on this machine: {', '.join(untestable)}")
    reasons: dict[str, list[str]] = {}
    for row_id, reason in result.not_tested.items():
        reasons.setdefault(reason, []).append(row_id)
    for reason, rows in reasons.items():
        text = f"no fixture on this device ({reason}): {', '.join(rows)}"
        yield Text("\n".join(textwrap.wrap(text, width, subsequent_indent="    ")), style="dim")
    for layer in result.isolation:
        if not layer.active:
            yield Text(f"isolation: no {layer.name}: {layer.detail}", style="yellow")
    yield Text(f"{len(result.outcomes)} cases in {result.seconds:.0f} s on {result.device}")


def accepted_by_family(result: SelfTestResult) -> dict[str, dict[str, int]]:
    """Protocol -> family -> faults that it accepts."""
    return _by_family(result, lambda accepted: accepted is True)


def judged_by_family(result: SelfTestResult) -> dict[str, dict[str, int]]:
    """Protocol -> family -> faults that it said anything of."""
    return _by_family(result, lambda accepted: accepted is not None)


def _by_family(result: SelfTestResult, counts: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {name: {} for name in PROTOCOLS}

    def count(outcome: FixtureOutcome) -> None:
        for name, accepted in outcome.accepted_by.items():
            for family in (outcome.family, "all"):
                found[name][family] = found[name].get(family, 0) + bool(counts(accepted))

    for outcome in result.outcomes:
        if outcome.kind == "exploit":
            count(outcome)
    return found
