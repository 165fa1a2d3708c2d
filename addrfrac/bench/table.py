"""A suite in, lines of at most 80 columns for a terminal out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from addrfrac.bench.records import Centre, Evaluation, Score, Share, Suite
from addrfrac.bench.solutions import shipped
from addrfrac.dlrm_bench import problems
from addrfrac.records import ArmTimes, Gain, Verdict

WIDTH = 80
MARKS = {Verdict.FASTER: "+", Verdict.SLOWER: "-", Verdict.SAME: "=", Verdict.INCONCLUSIVE: "?"}


def problem_lines() -> list[str]:
    """The problems in one table."""
    from addrfrac.bench.dlrm import has_ids, libraries, trains

    lines = [f"{'no':>2} {'problem':<22} {'ids':<4} {'trains':<6} in production"]
    for problem in problems():
        library = ", ".join(libraries(problem)) or "-"
        ids, training = "yes" if has_ids(problem) else "-", "yes" if trains(problem) else "-"
        lines.append(f"{problem.number:>2} {problem.name:<22} {ids:<4} {training:<6} {library}")
        lines += [f"   {line}" for line in _wrapped(problem.about, WIDTH - 3)]
    lines.append(f"solutions  {', '.join(shipped())}")
    lines.append("run        addrfrac bench dlrm --problem N --size medium")
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def suite_lines(suite: Suite, models: Sequence[str] = ()) -> list[str]:
    """Every evaluation in a row, scores below, what failed and why."""
    from addrfrac.bench.models import model_lines

    lines: list[str] = []
    groups = dict.fromkeys((e.solution, e.size) for e in suite.evaluations)
    for solution, size in groups:
        rows = [e for e in suite.evaluations if (e.solution, e.size) == (solution, size)]
        lines += [f"{solution}, {size}, {_device(suite)}", *_head()]
        for row in sorted(rows, key=lambda e: (e.number, e.indices, e.sample)):
            lines += _row(row)
        lines.append("")
    lines += [line for found in suite.scores for line in (*score_lines(found), "")]
    lines += _failures(suite.evaluations)
    lines += model_lines(suite, models)
    lines += [f"note  {note}" for note in suite.notes]
    lines.append("+ faster, - slower, = same within 1 %, ? not to be told; intervals are 95 %")
    return lines


def _device(suite: Suite) -> str:
    return suite.environment.device if suite.environment is not None else "unknown device"


def _head() -> list[str]:
    return [
        f"{'no problem':<18} {'verdict':<8} {'eager':>7} {'best':>7} {'lib':>7} {'ours':>7} {'/eager':>7} {'/best':>6}"
        f" {'floor':>4}",
        f"{'':<18} {'':<8} {'us':>7} {'us':>7} {'us':>7} {'us':>7} {'':>7} {'':>6} {'%':>4}",
    ]


def _row(row: Evaluation) -> list[str]:
    times = {arm.arm: arm for arm in row.arms}
    mine = times.get(row.over_best.after) if row.over_best else None
    kind = {"uniform": "u", "zipf": "z"}.get(row.indices, "")
    name = f"{row.number:>2} {row.problem}"[: 17 - len(kind)] + (f" {kind}" if kind else "")
    first = (
        f"{name:<18.18} {_short(row):<8.8} {_us(times.get('eager')):>7} {_us(times.get(row.best_baseline)):>7}"
        f" {_us(times.get(row.over_library.before) if row.over_library else None):>7} {_us(mine):>7}"
        f" {_speedup(row.over_eager):>7} {_speedup(row.over_best):>6} {_of_floor(row, mine):>4}"
    )
    details = []
    if row.over_eager is not None and row.over_best is not None:
        error = f"error {row.error:.1e} of {row.error_limit:.1e}" if row.error_limit is not None else ""
        details.append(
            f"   {error:<24} {row.over_eager.low:.2f}-{row.over_eager.high:.2f} over eager, "
            f"{row.over_best.low:.2f}-{row.over_best.high:.2f} over {row.best_baseline}"[:WIDTH]
        )
    forward = row.extra.get("forward", {})
    if "over_best" in forward and "over_eager" in forward:
        words = [
            f"{value[0]:.2f}x ({value[1]:.2f}-{value[2]:.2f})"
            for value in (forward["over_eager"], forward["over_best"])
        ]
        details.append(f"   forward alone            {words[0]} over eager, {words[1]} over {forward['best']}"[:WIDTH])
    return [first.rstrip(), *details]


def _short(row: Evaluation) -> str:
    if row.judged.passed and row.agrees is False:
        return "wrong"
    return row.judged.status if len(row.judged.status) <= 8 else row.judged.status[:7] + "."


def _us(times: ArmTimes | None) -> str:
    if times is None:
        return ""
    value = times.median_us
    return f"{value:.1f}" if value < 10_000 else f"{value / 1e3:.1f}m"


def _speedup(gain: Gain | None) -> str:
    return "" if gain is None else f"{gain.speedup:.2f}{MARKS.get(gain.verdict, '')}"


def _of_floor(row: Evaluation, mine: ArmTimes | None) -> str:
    share = share_of_floor(row, mine)
    return "" if share is None else f"{100 * share:.0f}"


def share_of_floor(row: Evaluation, times: ArmTimes | None) -> float | None:
    """Floor over time: 1 is as fast as the device allows; None without a device model."""
    if times is None or row.floor_us.high is None or times.median_us <= 0:
        return None
    return row.floor_us.high / times.median_us


def score_lines(found: Score) -> list[str]:
    """What the suite says of one solution set."""
    ids = "" if found.indices == "-" else f", {found.indices} ids"
    fast = "  ".join(f">{p}x {100 * share:.0f}%" for p, share in found.fast_p.items())
    lines = [
        f"{found.solution}, {found.size}{ids}",
        f"  passed                {share_words(found.passed)}",
        f"  faster than eager     {share_words(found.wins_over_eager)}",
        f"  faster than the best  {share_words(found.wins_over_best)}",
        f"  faster than library   {share_words(found.wins_over_library)}",
        f"  over eager            {centre_words(found.median_over_eager, 'median')}, "
        f"{centre_words(found.geometric_mean_over_eager, 'geometric mean')}",
        f"  over the best         {centre_words(found.median_over_best, 'median')}, "
        f"{centre_words(found.geometric_mean_over_best, 'geometric mean')}",
        f"  failures as 1.0x      {centre_words(found.geometric_mean_fixed, 'geometric mean')} over eager",
    ]
    lines += [f"  fast_p  {line}" for line in _wrapped(fast, WIDTH - 10)]
    return lines


def share_words(share: Share) -> str:
    if share.value is None:
        return "none counted"
    low, high = 100 * (share.low or 0.0), 100 * (share.high or 0.0)
    return f"{share.hits} of {share.total}, {100 * share.value:.0f} % [{low:.0f}-{high:.0f}]"


def centre_words(centre: Centre, what: str) -> str:
    if centre.value is None:
        return f"no {what}".strip()
    around = f" [{centre.low:.2f}-{centre.high:.2f}]" if centre.low is not None and centre.high is not None else ""
    return f"{what} {centre.value:.2f}x{around}"


def reasons(row: Evaluation) -> list[str]:
    """Why an evaluation does not count, or not in full: in words."""
    said = []
    if not row.judged.passed:
        said.append(f"{row.judged.status}: {row.judged.reason}")
    if row.failure and not row.failure.endswith("--no-time"):
        said.append(row.failure)
    lost = row.extra.get("lost", {})
    said += [f"{arm}: {why}" for arm, why in lost.items() if why not in row.failure]
    said += [
        f"{name}: its outputs are wrong, so it is no baseline"
        for name in row.extra.get("wrong", ())
        if name != "solution"
    ]
    return said


def _failures(rows: Iterable[Evaluation]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        for reason in reasons(row):
            first, *more = _wrapped(f"{row.number:02d} {row.problem} {row.size} {row.solution}: {reason}", WIDTH - 2)
            lines += [first, *(f"  {line}" for line in more)]
    return ["what failed or is missing", *lines, ""] if lines else []
