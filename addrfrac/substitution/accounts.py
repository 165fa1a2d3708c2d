"""Decisions and step times of arms in, what the kernels are worth out: projected, measured, and to whose credit.

The names of the arms and what each stands for are here; `apply` builds them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from addrfrac import measure, units
from addrfrac.records import (
    Accounts,
    Applied,
    ArmTimes,
    Credit,
    Difference,
    Floors,
    Gain,
    Parity,
    Range,
    SiteDecision,
    Verdict,
)

EAGER_ARM, COMPILE, BEST, RE_ROUTED, CAPTURED, LIBRARY_SITES, SUBSTITUTED, KERNELS = (
    "eager",
    "compile",
    "best-library",
    "re-routed",
    "captured",
    "captured + library calls",
    "substituted",
    "compile + kernels",
)
"""`re-routed` is best-library without the compiler, launched as the substituted arm; `captured` is the substituted arm
without its kernels, so the one goes through Inductor where the other does; with library calls at the sites that they
won it is an arm of its own where kernels won others."""
AT_SITES = "re-routing to library calls, at sites"
"""A part of the credit where library calls won sites from kernels."""
PARTS = ("launches removed", "re-routing to library calls", "capture", "kernels and their fusion")
OVERLAP, RESIDUAL = "overlap of classes", "residual of the accounts"
NOT_PROFILED = {
    "eager": "between profile and measurement",
    "graph": "gaps in the replay, and what the profile changes",
}
"""What closes the table. Profiles launch one by one, also what is measured as a graph: its gaps are then not theirs."""
EMPTY = Range(low=None, high=None)
AGREE_SHARE = 0.15
AGREE_STEP_SHARE = 0.005


def applied(
    *,
    kernels: tuple[str, ...],
    switches: tuple[str, ...],
    decisions: tuple[SiteDecision, ...],
    arms: Sequence[ArmTimes],
    headline: str,
    launch: str,
    compiled: bool,
    noise_floor: float | None,
    traced: Mapping[str, float],
    judged: Parity | None,
    notes: tuple[str, ...],
) -> Applied:
    """The record. The control is the fastest arm without kernels that is launched as the substituted one."""
    times = {each.arm: each for each in arms}
    ours = times.get(headline)
    suffix = " + graph" if launch == "graph" else ""
    control = _control(times, launch, suffix, compiled)
    gains: tuple[Gain, ...] = ()
    gain = None
    if ours is not None:
        gains = tuple(measure.gain(each, ours, noise_floor) for each in arms if each.arm != headline)
        gain = next((each for each in gains if each.before == control), None)
    projected = projection(decisions)
    credits = credit(times, headline, suffix, noise_floor, station_of_library_calls(decisions, headline, suffix))
    agrees, agreement = agreed(
        projected, saved_by_sites(times, headline, suffix, noise_floor), times.get(f"{CAPTURED}{suffix}")
    )
    engaged, engagement = proof(decisions, traced)
    found = Applied(
        kernels=kernels,
        base_switches=switches,
        decisions=decisions,
        arms=tuple(arms),
        gains=gains,
        noise_floor=noise_floor,
        control=control,
        gain=gain,
        projected_us=projected,
        agrees=agrees,
        agreement=agreement,
        credits=credits,
        reach=None,
        reach_note="needs the floors of a device model (--floors)",
        engagement=engagement,
        engaged=engaged,
        parity=judged,
        conclusion="",
        notes=notes,
    )
    return replace(found, conclusion=conclusion(found))


def _control(times: Mapping[str, ArmTimes], launch: str, suffix: str, compiled: bool) -> str:
    names = [f"{EAGER_ARM}{suffix}", f"{CAPTURED}{suffix}", f"{RE_ROUTED}{suffix}", BEST]
    if compiled:
        names.append(f"{COMPILE}{suffix}")
    there = [times[name] for name in names if name in times and times[name].launch == launch]
    return min(there, key=lambda each: each.median_us).arm if there else EAGER_ARM


def projection(decisions: Sequence[SiteDecision]) -> Range:
    """Sum of what the substituted sites save, their intervals added end to end; empty where one was not timed."""
    chosen = [each for each in decisions if each.substituted]
    if not chosen or any(each.saved_us.low is None for each in chosen):
        return EMPTY
    return Range(
        low=sum(each.saved_us.low or 0.0 for each in chosen), high=sum(each.saved_us.high or 0.0 for each in chosen)
    )


def agreed(projected: Range, measured: Range, without: ArmTimes | None) -> tuple[bool | None, str]:
    """Whether projected and measured savings agree: within 15 %, the interval's half-width or 0.5 % of the step.

    Measured is from the captured model without kernels to the one with them: what the sites were timed against.
    """
    if projected.low is None or projected.high is None or measured.low is None or measured.high is None:
        return None, "projected or measured savings are missing"
    middle, ours = (projected.low + projected.high) / 2, (measured.low + measured.high) / 2
    step = without.median_us if without is not None else 0.0
    allowed = max(AGREE_SHARE * abs(middle), (measured.high - measured.low) / 2, AGREE_STEP_SHARE * step)
    apart = abs(middle - ours)
    words = (
        f"projected {units.microseconds(middle)}, measured {units.microseconds(ours)}: "
        f"{units.microseconds(apart)} apart, {units.microseconds(allowed)} allowed"
    )
    return apart <= allowed, words


def credit(
    times: Mapping[str, ArmTimes], headline: str, suffix: str, noise_floor: float | None, at_sites: str = ""
) -> tuple[Credit, ...]:
    """From the eager base to the substituted model, one change at a time; the parts add up to all of it.

    The compiler, where the kernels go into a compiled model, is with the capture: it re-routes nothing and is no
    kernel of ours. `at_sites`, if any, is the arm in which library calls alone have the sites that they won.
    """
    graph, captured = f"{EAGER_ARM}{suffix}", f"{CAPTURED}{suffix}"
    library = next((name for name in (f"{RE_ROUTED}{suffix}", BEST) if name in times), graph)
    parts, stations = list(PARTS), [EAGER_ARM, graph, library, captured, headline]
    if at_sites:
        parts.insert(-1, AT_SITES)
        stations.insert(-1, at_sites)
    return tuple(
        _part(part, before, after, times, noise_floor)
        for part, before, after in zip(parts, stations[:-1], stations[1:], strict=True)
    )


def station_of_library_calls(decisions: Sequence[SiteDecision], headline: str, suffix: str) -> str:
    """The arm that has the library calls of the sites and no kernel; '' where no site has one."""
    won = [each.site.library for each in decisions if each.substituted]
    if not any(won):
        return ""
    return headline if all(won) else f"{LIBRARY_SITES}{suffix}"


def saved_by_sites(times: Mapping[str, ArmTimes], headline: str, suffix: str, noise_floor: float | None) -> Range:
    """What all sites save together, kernels and library calls: measured as they were timed, into the captured model."""
    return _part("", f"{CAPTURED}{suffix}", headline, times, noise_floor).saved_us


def _part(part: str, before: str, after: str, times: Mapping[str, ArmTimes], noise_floor: float | None) -> Credit:
    if before == after or before not in times or after not in times:
        return Credit(part=part, before=before, after=after, saved_us=EMPTY, verdict=None)
    found = measure.gain(times[before], times[after], noise_floor)
    return Credit(part=part, before=before, after=after, saved_us=found.saved_us, verdict=found.verdict)


def proof(decisions: Sequence[SiteDecision], traced: Mapping[str, float]) -> tuple[bool | None, str]:
    """Whether every substituted site ran its kernel once a step, by its operator's counter and by the trace."""
    chosen = [each for each in decisions if each.substituted]
    if not chosen:
        return None, "nothing was substituted"
    if any(each.engaged is None for each in chosen):
        return None, "the kernels' calls were not counted"
    idle = [each for each in chosen if not each.engaged]
    calls: Counter[str] = Counter()
    for each in chosen:
        calls[each.site.kernel] += round(each.engaged or 0)
    told = ", ".join(f"{name} {count}" for name, count in calls.items())
    words = f"calls a step: {told}"
    if traced:
        words += "; launches a step in its trace: " + ", ".join(f"{name} {count:g}" for name, count in traced.items())
    fell = sum(each.fallbacks or 0 for each in chosen)
    if fell:
        words += f"; {fell:g} calls a step fell back to what was there"
    if idle:
        words += "; not engaged: " + ", ".join(
            f"{each.site.kernel} at {each.site.where or each.site.key}" for each in idle
        )
    return not idle, words


def conclusion(found: Applied) -> str:
    """One sentence: what the kernels won, or that none pays, and why."""
    chosen = [each for each in found.decisions if each.substituted]
    if not found.decisions:
        return "No kernel pays here: no site of any kernel was found."
    if not chosen:
        reasons = Counter(_kind(each.reason) for each in found.decisions)
        told = "; ".join(f"{count} {kind}" for kind, count in reasons.most_common())
        return f"No kernel pays here: of {len(found.decisions)} sites {told}."
    if found.engaged is False:
        return f"Not engaged: {found.engagement}."
    if found.gain is None:
        return "The substituted model could not be measured."
    interval = units.speedup_range(found.gain.low, found.gain.high)
    what = f"{units.plural(len(chosen), 'site')} against {found.control}"
    if found.parity is not None and found.parity.passed is False:
        return f"The substituted model does not compute the same: {found.parity.method}."
    if measure.helps(found.gain):
        return f"Kernels win {interval} at {what}."
    if found.gain.verdict is Verdict.INCONCLUSIVE:
        return f"Whether the kernels pay cannot be told: {interval} at {what}."
    return f"No kernel pays here: the model with them is {found.gain.verdict} ({interval}) at {what}."


def _kind(reason: str) -> str:
    for begin, kind in (
        ("refused by the verifier", "refused by the verifier"),
        ("refused at this site", "refused at the site"),
        ("verified, but no faster", "verified but no faster"),
    ):
        if reason.startswith(begin):
            return kind
    return "left to another kernel" if "worth more" in reason else "not verified"


def with_reach(found: Applied, floors: Floors | None) -> Applied:
    """The record with the share of what can be reached: saved by kernels and fusion / (control - fused floor).

    The fused floor is the time that library calls take plus one pass over the bytes that must cross between them: of
    a trace with the control's library calls. Between graphs only; floors know no launches of the host's.
    """
    control = next((each for each in found.arms if each.arm == found.control), None)
    kernels = next((each for each in found.credits if each.part == PARTS[-1]), None)
    if control is None or found.gain is None or kernels is None or kernels.saved_us.low is None:
        return replace(found, reach_note="the kernels' share of the gain was not measured")
    if control.launch != "graph":
        return replace(found, reach_note="defined between graphs only, and the step was none")
    if floors is None:
        return replace(found, reach_note="needs the floors of a device model (--floors)")
    if floors.fused_us.low is None or floors.fused_us.high is None:
        return replace(found, reach_note="the fused floor is not known")
    floor = (floors.fused_us.low + floors.fused_us.high) / 2
    reachable = control.median_us - floor
    least = found.gain.least_detectable * control.median_us
    if reachable <= least:
        told = f"{units.signed_microseconds(reachable)} above the fused floor, {units.microseconds(least)} detectable"
        return replace(found, reach_note=told)
    saved = _middle(kernels.saved_us)
    return replace(
        found,
        reach=saved / reachable,
        reach_note=f"{units.signed_microseconds(saved)} of {units.microseconds(reachable)} that {found.control} "
        f"({units.microseconds(control.median_us)}) takes above the fused floor of {units.microseconds(floor)}",
    )


# --- where the difference went ------------------------------------------------------------------------------------


def differences(
    before: Accounts, after: Accounts, measured: Range, decisions: Sequence[SiteDecision], launch: str
) -> tuple[Difference, ...]:
    """What moved from the captured model to the substituted one, by class and by kind of gap; it closes.

    Two profiles are subtracted part by part; the last row is what they do not show of the measured saving, so that the
    parts add up to it. Projected savings stand in the class that their kernel is of.
    """
    if measured.low is None:
        return ()
    projected = _projected_by_class(decisions)
    first, second = _exclusive(before), _exclusive(after)
    rows = [
        _difference(op, first.get(op, 0.0), second.get(op, 0.0), projected.get(op))
        for op in dict.fromkeys((*first, *second, *projected))
    ]
    rows.sort(key=lambda row: -abs(row.saved_us))
    rows.append(_difference(OVERLAP, before.overlap_us, after.overlap_us))
    if launch != "graph":
        gaps = [{str(gap.kind): gap.us for gap in each.gaps} for each in (before, after)]
        kinds = dict.fromkeys(kind for each in gaps for kind in each)
        rows += [_difference(f"{kind} gaps", gaps[0].get(kind, 0.0), gaps[1].get(kind, 0.0)) for kind in kinds]
        rows.append(_difference(RESIDUAL, before.residual_us, after.residual_us))
    left = _middle(measured) - sum(row.saved_us for row in rows)
    closing = Difference(part=NOT_PROFILED[launch], before_us=None, after_us=None, saved_us=left, projected_us=None)
    return (*rows, closing)


def _difference(part: str, before: float, after: float, projected: float | None = None) -> Difference:
    return Difference(part=part, before_us=before, after_us=after, saved_us=before - after, projected_us=projected)


def _exclusive(accounts: Accounts) -> dict[str, float]:
    """Class of op -> time a step in which nothing of another class ran."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in accounts.classes:
        found[str(each.op)] += each.exclusive_us
    return dict(found)


def _projected_by_class(decisions: Iterable[SiteDecision]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for each in decisions:
        if each.substituted and each.saved_us.low is not None:
            found[each.site.op] += _middle(each.saved_us)
    return dict(found)


def _middle(found: Range) -> float:
    assert found.low is not None, "asked only where it was measured"
    assert found.high is not None, "asked only where it was measured"
    return (found.low + found.high) / 2
