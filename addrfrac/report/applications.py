"""Kernels put into a model in, their tables and sentences as plain text out; every format draws the same ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from addrfrac import units
from addrfrac.records import Applied, Gain, Run, SiteDecision
from addrfrac.report import ladders
from addrfrac.report.breakdowns import Listing
from addrfrac.report.names import clipped, one_line

ARMS = ("arm", "as", ">step", ">95 %", ">substituted is faster by", ">peak memory")
SITES = (">sites", "kernel", "first at", ">there", ">kernel", ">saved, all", ">calls", "decision")
NARROW_SITES = (">sites", "kernel", ">there", ">kernel", "decision", ">saved, all")
GAINS = ("run", ">control", ">with kernels", ">gain", "verdict", ">projected", ">measured", ">reach", "engaged, parity")
CREDITS = ("part", "from", "to", ">saved a step")
DIFFERENCES = ("part", ">without", ">with kernels", ">saved", ">projected", ">apart")
NARROW_DIFFERENCES = ("part", ">saved", ">projected", ">apart")


def words(applied: Applied) -> list[str]:
    """What the kernels won, in sentences; the first says it all."""
    found = [one_line(applied.conclusion)]
    if applied.projected_us.low is not None:
        verdict = {True: "agree", False: "do not agree", None: "cannot be compared"}[applied.agrees]
        found.append(one_line(f"Projected and measured savings {verdict}: {applied.agreement}."))
    if applied.engaged is not None:
        found.append(one_line(f"{'Engaged' if applied.engaged else 'Not engaged'}: {applied.engagement}."))
    if applied.parity is not None:
        found.append(one_line(f"Parity: {ladders.parity_in_full(applied.parity)}, {applied.parity.method}."))
    reach = units.percent(applied.reach) if applied.reach is not None else "not defined"
    if any(each.substituted for each in applied.decisions):
        found.append(one_line(f"Reach: {reach} ({applied.reach_note})."))
    return found


def arms(applied: Applied) -> Listing:
    """Step time of each arm and how the substituted one compares."""
    gains = {gain.before: gain for gain in applied.gains}
    rows = tuple(
        (
            one_line(times.arm) + (" (control)" if times.arm == applied.control and applied.gains else ""),
            times.launch,
            units.microseconds(times.median_us),
            units.microseconds_range(times.low_us, times.high_us),
            _against(gains.get(times.arm)),
            units.bytes_(times.peak_memory_bytes),
        )
        for times in applied.arms
    )
    noise = "" if applied.noise_floor is None else f"two equal arms differ by {units.percent(applied.noise_floor)}"
    return Listing(title="Arms", columns=ARMS, rows=rows, notes=(noise,) if noise else ())


def _against(gain: Gain | None) -> str:
    if gain is None:
        return units.DASH
    return f"{units.speedup_range(gain.low, gain.high)} {gain.verdict}"


def sites(applied: Applied, *, narrow: bool = False) -> Listing:
    """Sites of one kernel, signature and reason in a row, those that save most first."""
    groups: defaultdict[tuple[str, str, bool, str], list[SiteDecision]] = defaultdict(list)
    for each in applied.decisions:
        groups[each.site.kernel, each.site.group, each.substituted, each.reason].append(each)
    ordered = sorted(groups.values(), key=lambda group: (not group[0].substituted, -_saved(group)))
    rows = [_site_row(group) for group in ordered]
    if not narrow:
        return Listing(title="Sites", columns=SITES, rows=tuple(rows))
    kept = [SITES.index(name) for name in (">sites", "kernel", ">there", ">kernel", ">saved, all")]
    short = [
        (*(clipped(row[number], 16) for number in kept[:-1]), _kept_or_not(group), _middle_saved(group))
        for row, group in zip(rows, ordered, strict=True)
    ]
    reasons = tuple(
        dict.fromkeys(
            one_line(f"{group[0].site.kernel}: {group[0].reason}") for group in ordered if not group[0].substituted
        )
    )
    return Listing(title="Sites", columns=NARROW_SITES, rows=tuple(short), notes=reasons)


def _kept_or_not(group: Sequence[SiteDecision]) -> str:
    return "substituted" if group[0].substituted else "left as it is"


def _middle_saved(group: Sequence[SiteDecision]) -> str:
    timed = any(each.saved_us.low is not None for each in group)
    return units.signed_microseconds(_saved(group)) if timed else units.DASH


def _saved(group: Sequence[SiteDecision]) -> float:
    return sum(((each.saved_us.low or 0.0) + (each.saved_us.high or 0.0)) / 2 for each in group)


def _site_row(group: Sequence[SiteDecision]) -> tuple[str, ...]:
    first = group[0]
    calls = [each.engaged for each in group if each.engaged is not None]
    low, high = (
        [end for each in group if (end := getattr(each.saved_us, name)) is not None] for name in ("low", "high")
    )
    return (
        str(len(group)),
        one_line(first.site.kernel + (" (a library call)" if first.site.library else "")),
        one_line(f"{first.site.where} {', '.join(first.site.inputs)}"),
        units.microseconds(first.before_us, units.DASH),
        units.microseconds(first.after_us, units.DASH),
        units.signed_microseconds_range(sum(low), sum(high)) if low else units.DASH,
        f"{sum(calls):g}" if calls else units.DASH,
        one_line(("substituted; " if first.substituted else "") + first.reason),
    )


def credits(applied: Applied) -> Listing:
    """The gain from the eager base to the substituted model, part by part."""
    rows = tuple(
        (
            each.part,
            one_line(each.before),
            one_line(each.after),
            units.signed_microseconds_range(each.saved_us.low, each.saved_us.high)
            if each.saved_us.low is not None
            else units.DASH,
        )
        for each in applied.credits
    )
    return Listing(title="Credit", columns=CREDITS, rows=rows)


def differences(applied: Applied, *, narrow: bool = False) -> Listing:
    """Where the savings, and what lies between projected and measured, went; the last row is the sum of the others."""
    timed = any(each.projected_us is not None for each in applied.differences)
    rows: list[tuple[str, ...]] = [
        (
            one_line(each.part),
            units.microseconds(each.before_us, units.DASH),
            units.microseconds(each.after_us, units.DASH),
            units.signed_microseconds(each.saved_us),
            units.signed_microseconds(each.projected_us) if each.projected_us is not None else units.DASH,
            units.signed_microseconds(each.saved_us - (each.projected_us or 0.0)) if timed else units.DASH,
        )
        for each in applied.differences
    ]
    if rows:
        saved = sum(each.saved_us for each in applied.differences)
        projected = sum(each.projected_us or 0.0 for each in applied.differences)
        whole = [units.signed_microseconds(us) for us in (saved, projected, saved - projected)]
        if not timed:
            whole[1:] = [units.DASH, units.DASH]  # no site was timed
        rows.append(("measured, all of it", units.DASH, units.DASH, *whole))
    kept = [DIFFERENCES.index(name) for name in NARROW_DIFFERENCES] if narrow else range(len(DIFFERENCES))
    steps = "a step without kernels and with them, each profiled; a site's saving stands in the class of its kernel"
    return Listing(
        title="Projected and measured, and where the difference went",
        columns=NARROW_DIFFERENCES if narrow else DIFFERENCES,
        rows=tuple(tuple(row[number] for number in kept) for row in rows),
        notes=(steps,),
    )


def savings(applied: Applied) -> list[tuple[str, int, float]]:
    """(kernel and first place, sites, microseconds saved) of the substituted groups, those that save most first."""
    groups: defaultdict[str, list[SiteDecision]] = defaultdict(list)
    for each in applied.decisions:
        if each.substituted and each.saved_us.low is not None:
            groups[each.site.group].append(each)
    found = [
        (f"{group[0].site.kernel}, {group[0].site.where or 'a site'}", len(group), _saved(group))
        for group in groups.values()
    ]
    return sorted(found, key=lambda each: -each[2])


def listings(run: Run, *, narrow: bool = False) -> list[Listing]:
    """All tables of a run's kernels; none where it has none. `narrow` fits 80 characters."""
    if run.applied is None:
        return []
    found = [
        arms(run.applied),
        sites(run.applied, narrow=narrow),
        credits(run.applied),
        differences(run.applied, narrow=narrow),
    ]
    return [each for each in found if each.rows]


# --- many runs ----------------------------------------------------------------------------------------------------


def gains(runs: Sequence[tuple[str, Run]]) -> Listing:
    """A row for each (title, run) with kernels in it: the control, what they won, and whether it can be relied on.

    Projected and measured are of the same change, the sites into the captured model; the gain is against the control.
    """
    rows = tuple(_gain_row(title, run.applied) for title, run in runs if run.applied is not None)
    return Listing(title="Gains", columns=GAINS, rows=rows, notes=())


def _gain_row(title: str, applied: Applied) -> tuple[str, ...]:
    times = {each.arm: each for each in applied.arms}
    gain, control = applied.gain, times.get(applied.control)
    ours = times.get(gain.after) if gain is not None else None
    projected, measured = applied.projected_us, _whole(applied)
    return (
        title,
        f"{one_line(applied.control)} {units.microseconds(control.median_us)}" if control is not None else units.DASH,
        units.microseconds(ours.median_us) if ours is not None else units.DASH,
        units.speedup_range(gain.low, gain.high) if gain is not None else units.DASH,
        str(gain.verdict) if gain is not None else "no kernel pays",
        units.DASH if projected.low is None else units.signed_microseconds_range(projected.low, projected.high),
        units.DASH if measured is None else f"{units.signed_microseconds(measured)}, {_agreed(applied.agrees)}",
        units.DASH if applied.reach is None else units.percent(applied.reach),
        f"{_yes(applied.engaged)}, {_yes(applied.parity.passed if applied.parity is not None else None)}",
    )


def _whole(applied: Applied) -> float | None:
    """What the sites saved together, kernels and library calls: the parts of the credit after the capture."""
    after = [each.part for each in applied.credits].index("capture") + 1 if applied.credits else 0
    found = [each.saved_us for each in applied.credits[after:]]
    middles = [(each.low + each.high) / 2 for each in found if each.low is not None and each.high is not None]
    return sum(middles) if middles else None


def _agreed(agrees: bool | None) -> str:
    return {True: "agree", False: "apart", None: "not compared"}[agrees]


def _yes(found: bool | None) -> str:
    return {True: "yes", False: "no", None: "not judged"}[found]
