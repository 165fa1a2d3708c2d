"""A ladder of free switches in, its tables and sentences as plain text out; every format draws the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import ArmTimes, Ceiling, Gain, Ladder, Parity, Range, Run, Rung, Verdict
from addrfrac.report import ceilings, facts
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped, one_line

BEST, EAGER = facts.BEST, "eager"

NARROW_ARMS = ("arm", ">step", ">95 %", ">best is", ">addressable", ">if free", ">ceiling")
WIDE_ARMS = (
    "arm",
    ">step",
    ">95 %",
    ">best-library is faster by",
    ">addressable of busy",
    ">step if replaceable were free",
    ">measured ceiling",
    ">peak memory",
    "switches",
)
NARROW_RUNGS = ("rung", "as", ">step", ">95 %", ">gain", ">left", ">peak")
WIDE_RUNGS = (
    "rung",
    "kept",
    "as",
    ">step",
    ">95 %",
    ">against the best so far",
    ">addressable of busy",
    ">peak memory",
    "parity",
    "why",
)


# --- the arms -----------------------------------------------------------------------------------------------


def arm(ladder: Ladder | None, name: str) -> ArmTimes | None:
    """The arm of that name; None where it was not measured."""
    arms = () if ladder is None else ladder.arms
    return next((times for times in arms if times.arm == name), None)


def compiled(ladder: Ladder) -> ArmTimes | None:
    """torch.compile alone: as a graph, or eagerly launched where the step cannot be captured."""
    return arm(ladder, "compile + graph") or arm(ladder, "compile")


def arm_step(ladder: Ladder | None, name: str, missing: str = units.DASH) -> str:
    times = arm(ladder, name)
    return missing if times is None else units.microseconds(times.median_us)


def gain_over(ladder: Ladder, name: str) -> Gain | None:
    """best-library against an arm."""
    return next((gain for gain in ladder.gains if gain.before == name), None)


def ceiling_above(ladder: Ladder, name: str) -> Ceiling | None:
    """The ceiling of an arm. A graph was captured for it, so it stands beside the arm that replays that graph."""
    replayed = f"{name} + graph"
    if any(times.arm == replayed for times in ladder.arms):
        return None
    wanted = {name, name.removesuffix(" + graph")}
    return next((ceiling for ceiling in ladder.ceilings if ceiling.arm in wanted), None)


def share_of_arm(run: Run, times: ArmTimes) -> Range:
    """Addressable share of busy time of an arm: of the rung that was profiled as it, else as its ceiling found it."""
    assert run.ladder is not None
    if not times.switches and times.launch == "eager":
        return run.addressable.share_of_busy
    same = [rung for rung in run.ladder.rungs if rung.switches == times.switches and rung.share_of_busy]
    same.sort(key=lambda rung: rung.launch != times.launch)
    for rung in same:
        if run.addressable.policy in rung.share_of_busy:
            return rung.share_of_busy[run.addressable.policy]
    if not times.switches:
        return run.addressable.share_of_busy
    wanted = {times.arm, times.arm.removesuffix(" + graph")}
    rows = (ceilings.row_of_all(each) for each in run.ladder.ceilings if each.arm in wanted)
    return next((ceilings.share_of_busy(row) for row in rows if row is not None), facts.NONE)


def arms(run: Run, *, narrow: bool) -> Listing:
    """Eager, eager + graph, compile + graph, best-library side by side, each with what it leaves."""
    assert run.ladder is not None
    return Listing(
        title="Where free switches lead",
        columns=NARROW_ARMS if narrow else WIDE_ARMS,
        rows=tuple(_arm(run, run.ladder, times, narrow) for times in run.ladder.arms),
    )


def _arm(run: Run, ladder: Ladder, times: ArmTimes, narrow: bool) -> tuple[str, ...]:
    gain = gain_over(ladder, times.arm)
    ceiling = ceiling_above(ladder, times.arm)
    free = ceilings.row_of_all(ceiling)
    step = units.microseconds(times.median_us)
    interval = units.microseconds_range(times.low_us, times.high_us)
    best_is = units.DASH if gain is None else units.speedup_range(gain.low, gain.high)
    share = facts.range_percent(share_of_arm(run, times), units.DASH)
    if_free = units.DASH if free is None else units.microseconds(free.reduced_us, units.DASH)
    bound = ceilings.speedup(ceiling)
    name = one_line(times.arm)
    if narrow:
        return (name, step, interval, best_is, share, if_free, bound)
    return (
        name,
        step,
        interval,
        best_is,
        share,
        if_free,
        bound,
        units.bytes_(times.peak_memory_bytes, units.DASH),
        switches(times.switches),
    )


def switches(names: tuple[str, ...]) -> str:
    return ", ".join(map(one_line, names)) or "none"


# --- the rungs ----------------------------------------------------------------------------------------------


def climbed(run: Run) -> Listing:
    """The rungs that were kept, for 80 columns."""
    assert run.ladder is not None
    kept = tuple(_rung(run, rung)[:-1] for rung in run.ladder.rungs if rung.kept)
    return Listing(
        title=f"The ladder, from {one_line(run.ladder.base)}: rungs kept",
        columns=NARROW_RUNGS,
        rows=kept,
        notes=_parity_notes(run.ladder),
    )


def _parity_notes(ladder: Ladder) -> tuple[str, ...]:
    """Whether the kept rungs still compute the same; each that could not be judged is named."""
    kept = [rung for rung in ladder.rungs if rung.kept and rung.switches]
    if not kept:
        return ()
    ratios = [rung.parity.error_ratio for rung in kept if rung.parity is not None and rung.parity.passed]
    known = [ratio for ratio in ratios if ratio is not None]
    worst = f", error at most {units.significant(max(known))} of the base's" if known else ""
    notes = [f"{units.plural(len(ratios), 'rung')} compute{'s' if len(ratios) == 1 else ''} the same{worst}"]
    unjudged = [rung for rung in kept if parity(rung.parity) != "ok"]
    notes += [f"not shown to compute the same: {switches(tuple(rung.name for rung in unjudged))}"] if unjudged else []
    return tuple(notes)


def _rung(run: Run, rung: Rung) -> tuple[str, ...]:
    times, gain = rung.times, rung.gain
    return (
        one_line(rung.name),
        one_line(rung.launch),
        units.DASH if times is None else units.microseconds(times.median_us),
        units.DASH if times is None else units.microseconds_range(times.low_us, times.high_us),
        units.DASH if gain is None else units.speedup_range(gain.low, gain.high),
        facts.range_percent(_share(run, rung.share_of_busy), units.DASH),
        units.DASH if times is None else units.bytes_(times.peak_memory_bytes, units.DASH),
        parity(rung.parity),
    )


def _share(run: Run, shares: dict[str, Range]) -> Range:
    return shares.get(run.addressable.policy, facts.NONE)


def tried(run: Run) -> Listing:
    """Every rung that was measured, kept or not, in the order tried."""
    assert run.ladder is not None
    rows = []
    for rung in measured(run.ladder):
        name, launch, step, interval, gain_interval, share, memory, _ = _rung(run, rung)
        rows.append(
            (
                name,
                "kept" if rung.kept else "no",
                launch,
                step,
                interval,
                gain_interval,
                share,
                memory,
                parity_in_full(rung.parity),
                one_line(rung.reason),
            )
        )
    return Listing(
        title=f"The ladder, from {one_line(run.ladder.base)}: every rung that was measured, in the order tried",
        columns=WIDE_RUNGS,
        rows=tuple(rows),
    )


def measured(ladder: Ladder) -> list[Rung]:
    return [rung for rung in ladder.rungs if rung.times is not None]


def rejected(ladder: Ladder) -> list[tuple[str, str]]:
    """Measured and not kept: name and reason."""
    return [(one_line(rung.name), one_line(rung.reason)) for rung in measured(ladder) if not rung.kept]


def inapplicable(ladder: Ladder) -> list[tuple[str, str]]:
    """Not measured: name and reason."""
    return [(one_line(rung.name), one_line(rung.reason)) for rung in ladder.rungs if rung.times is None]


def folded(pairs: list[tuple[str, str]], width: int = 60) -> str:
    """'grouped_mm (no experts), FBGEMM (no embedding bags)', reasons cut short."""
    return ", ".join(f"{name} ({clipped(reason, width)})" if reason else name for name, reason in pairs)


def parity(record: Parity | None) -> str:
    if record is None or record.passed is None:
        return units.DASH
    return "ok" if record.passed else "fails"


def parity_in_full(record: Parity | None) -> str:
    """Whether the arm still computes the same, and its error over the base's."""
    if record is None or record.passed is None:
        return "not judged"
    return (
        parity(record) if record.error_ratio is None else f"{parity(record)} ({units.significant(record.error_ratio)})"
    )


def parity_methods(ladder: Ladder) -> str:
    """How parity was judged, each way once; '' where it was not."""
    methods = dict.fromkeys(one_line(rung.parity.method) for rung in ladder.rungs if rung.parity is not None)
    texts = "; ".join(text for text in methods if text)
    return f"Parity, in brackets the error over the base's, at most: {texts}." if texts else ""


# --- several runs -------------------------------------------------------------------------------------------


def end_columns(runs: Sequence[Run]) -> list[str]:
    """Titles of `end_cells`; none where no run has a ladder or a ceiling."""
    if not any(map(has_ends, runs)):
        return []
    return [">best-library", ">if replaceable were free", ">measured ceiling"]


TRIO = (">eager", ">compile + graph", ">best-library", ">if replaceable were free", ">measured ceiling")


def trio_cells(run: Run) -> list[str]:
    """Step and addressable share of eager, compile + graph and best-library, then what is above the last of them."""
    ladder = run.ladder
    times = [None] * 3 if ladder is None else [arm(ladder, EAGER), compiled(ladder), arm(ladder, BEST)]
    return [*(step_and_share(run, each) for each in times), *end_cells(run)[1:]]


def step_and_share(run: Run, times: ArmTimes | None) -> str:
    """'4.76 ms, 61.6 %'; says so where a compiled step could not be captured."""
    if times is None:
        return units.DASH
    alone = " (no graph)" if times.arm == "compile" else ""
    share = facts.range_percent(share_of_arm(run, times), units.DASH)
    return f"{units.microseconds(times.median_us)}{alone}, {share}"


def has_ends(run: Run) -> bool:
    """Whether a run has a ladder or a ceiling."""
    return run.ladder is not None or bool(ceilings.ceilings(run))


def end_cells(run: Run) -> list[str]:
    """best-library's step, the step with every replaceable kernel free, and the measured ceiling between the two."""
    last = ceilings.last_word(run)
    free = ceilings.row_of_all(last)
    return [
        arm_step(run.ladder, BEST),
        units.DASH if free is None else units.microseconds(free.reduced_us, units.DASH),
        ceilings.speedup(last),
    ]


# --- in words -----------------------------------------------------------------------------------------------


def words(run: Run) -> list[str]:
    """What it means for someone who decides where kernel work pays."""
    assert run.ladder is not None
    ladder = run.ladder
    best, base = arm(ladder, BEST), arm(ladder, EAGER)
    if best is None:
        return ["The ladder has no best-library arm: nothing was measured at its end."]
    said = [_reached(ladder, best, base)]
    compiler = compiled(ladder)
    if compiler is not None:
        gain = gain_over(ladder, compiler.arm)
        against = "" if gain is None else f", {_verdict(gain)}"
        how = (
            "torch.compile and a CUDA graph alone reach"
            if compiler.launch == "graph"
            else "torch.compile alone reaches"
        )
        said.append(f"{how} {units.microseconds(compiler.median_us)}{against}.")
    left = share_of_arm(run, best)
    remains = "" if left.low is None else f"; {facts.range_percent(left)} of that step's busy time is still addressable"
    said.append(f"A kernel pays only where it beats {units.microseconds(best.median_us)}{remains}.")
    return said


def _reached(ladder: Ladder, best: ArmTimes, base: ArmTimes | None) -> str:
    how = ", ".join(
        [*map(one_line, ladder.best), *(["replayed as a CUDA graph"] if ladder.best_launch == "graph" else [])]
    )
    if not how:
        return "No free switch helped: the step as it stands is the best that library calls give."
    end = units.microseconds(best.median_us)
    if base is None:
        return f"What costs nothing reaches {end} a step, with {how}."
    gain = gain_over(ladder, EAGER)
    factor = "" if gain is None else f", {units.speedup_range(gain.low, gain.high)}"
    return f"What costs nothing takes this step from {units.microseconds(base.median_us)} to {end}{factor}, with {how}."


def _verdict(gain: Gain) -> str:
    interval = units.speedup_range(gain.low, gain.high)
    return {
        Verdict.FASTER: f"which best-library beats by {interval}",
        Verdict.SLOWER: f"which best-library does not reach ({interval})",
        Verdict.SAME: f"the same as best-library ({interval})",
        Verdict.INCONCLUSIVE: f"not told apart from best-library ({interval})",
    }[gain.verdict]


def noise_line(ladder: Ladder) -> str:
    """A/A and the number of processes; '' where neither is known."""
    parts = [] if ladder.noise_floor is None else [f"two equal arms differ by {units.percent(ladder.noise_floor)}"]
    fewest = min((len(times.blocks_us) for times in ladder.arms), default=0)
    parts += [f"{units.plural(fewest, 'process', 'processes')} an arm"] if fewest else []
    return "; ".join(parts)
