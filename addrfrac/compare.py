"""Two runs in, what moved between them out; every change with its interval over per-step samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from addrfrac import stats
from addrfrac.records import Diff, DiffRow, KernelRow, Range, Run


def diff(before: Run, after: Run) -> Diff:
    """What moved from `before` to `after`: the step, classes, gaps, kernels, shares."""
    first, second, basis = _step_samples(before, after)
    step = _row("step", first, second, "median")
    notes = ["each run is one process: spread between processes is not in these intervals"]
    notes.append("the verdicts of a table's rows hold together at 95 %: each row needs more than its own interval")
    if min(len(first), len(second)) < stats.MINIMUM_STEPS:
        counts = f"{len(first)} and {len(second)} step samples"
        notes.append(f"inconclusive: {counts}, at least {stats.MINIMUM_STEPS} a side are needed")
    if _device(before) != _device(after):
        notes.append(f"different devices: {_device(before)} and {_device(after)}")
    base = step.before_us or 0.0
    change = step.interval_us
    return Diff(
        before=before.title,
        after=after.title,
        step=step,
        slowdown=Range(
            low=change.low / base if change.low is not None and base else None,
            high=change.high / base if change.high is not None and base else None,
        ),
        basis=basis,
        classes=_rows(before.kernels, after.kernels, lambda row: f"{row.op} · {row.provider} · {row.phase}"),
        gaps=_gap_rows(before, after),
        kernels=_rows(before.kernels, after.kernels, lambda row: row.name),
        shares={
            name: (share.share_of_busy, after.addressable.by_policy[name].share_of_busy)
            for name, share in before.addressable.by_policy.items()
            if name in after.addressable.by_policy
        },
        notes=tuple(notes),
    )


def _device(run: Run) -> str:
    return run.environment.device if run.environment is not None else ", ".join(run.source.device_names) or "unknown"


def _step_samples(before: Run, after: Run) -> tuple[Sequence[float], Sequence[float], str]:
    if before.wall is not None and after.wall is not None:
        if before.wall.device is not None and after.wall.device is not None:
            return before.wall.device.samples_us, after.wall.device.samples_us, "unprofiled step times, device events"
        first, second = before.wall.host.samples_us, after.wall.host.samples_us
        if first and second:
            return first, second, "unprofiled step times, host clock"
    return _spans(before), _spans(after), "profiled spans: at least one run has no unprofiled step times"


def _spans(run: Run) -> list[float]:
    return [step.span_us for step in run.accounts.steps]


def _row(name: str, before: Sequence[float], after: Sequence[float], statistic: str = "mean", rows: int = 1) -> DiffRow:
    """One row of a table of `rows`."""
    change, interval, verdict = stats.change(before, after, statistic, comparisons=rows)
    of = stats.centre(statistic)
    return DiffRow(
        name=name,
        before_us=of(before) if len(before) else None,
        after_us=of(after) if len(after) else None,
        change_us=change,
        interval_us=interval,
        verdict=verdict,
    )


def _rows(
    before: Sequence[KernelRow], after: Sequence[KernelRow], key: Callable[[KernelRow], str]
) -> tuple[DiffRow, ...]:
    first, second = _samples(before, key), _samples(after, key)
    names = {**first, **second}
    rows = [_class_row(name, first.get(name), second.get(name), before, after, len(names)) for name in names]
    return tuple(sorted(rows, key=lambda row: -abs(row.change_us)))


def _samples(rows: Sequence[KernelRow], key: Callable[[KernelRow], str]) -> dict[str, list[float]]:
    """Per-step device time of each key; one figure, the mean, where a run is too long to keep them."""
    total: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        samples = list(row.device_us_by_step) or [row.device_us]
        name = key(row)
        total[name] = [a + b for a, b in zip(total[name], samples, strict=True)] if total[name] else samples
    return dict(total)


def _class_row(
    name: str,
    first: list[float] | None,
    second: list[float] | None,
    before: Sequence[KernelRow],
    after: Sequence[KernelRow],
    rows: int,
) -> DiffRow:
    """A class that is missing on one side ran for no time there, in each of that side's steps."""
    zeros_before = [0.0] * len(before[0].device_us_by_step) if before else []
    zeros_after = [0.0] * len(after[0].device_us_by_step) if after else []
    row = _row(name, first or zeros_before, second or zeros_after, rows=rows)
    change = (row.after_us or 0.0) - (row.before_us or 0.0)
    return DiffRow(
        name=name,
        before_us=row.before_us if first else None,
        after_us=row.after_us if second else None,
        change_us=change,
        interval_us=row.interval_us,
        verdict=row.verdict,
    )


def _gap_rows(before: Run, after: Run) -> tuple[DiffRow, ...]:
    kinds = {gap.kind: None for run in (before, after) for gap in run.accounts.gaps}
    rows = []
    for kind in kinds:
        first = [step.gaps_us.get(kind, 0.0) for step in before.accounts.steps]
        second = [step.gaps_us.get(kind, 0.0) for step in after.accounts.steps]
        rows.append(_row(kind.value, first, second, rows=len(kinds)))
    return tuple(sorted(rows, key=lambda row: -abs(row.change_us)))
