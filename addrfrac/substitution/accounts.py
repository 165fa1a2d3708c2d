"""Decisions and step times of arms in, what the kernels are worth out: projected, measured, and to whose credit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from addrfrac import measure, units
from addrfrac.records import Applied, ArmTimes, Credit, Floors, Gain, Parity, Range, SiteDecision, Verdict

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
    agrees, agreement = agreed(projected, gain, times.get(control))
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
        credits=credit(times, headline, suffix, noise_floor),
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
    names = [f"eager{suffix}", f"captured{suffix}", "best-library"]
    if compiled:
        names.append(f"compile{suffix}")
    there = [times[name] for name in names if name in times and times[name].launch == launch]
    return min(there, key=lambda each: each.median_us).arm if there else "eager"


def projection(decisions: Sequence[SiteDecision]) -> Range:
    """Sum of what the substituted sites save, their intervals added end to end; empty where one was not timed."""
    chosen = [each for each in decisions if each.substituted]
    if not chosen or any(each.saved_us.low is None for each in chosen):
        return EMPTY
    return Range(
        low=sum(each.saved_us.low or 0.0 for each in chosen), high=sum(each.saved_us.high or 0.0 for each in chosen)
    )


def agreed(projected: Range, gain: Gain | None, control: ArmTimes | None) -> tuple[bool | None, str]:
    """Whether projected and measured savings agree: within 15 %, the interval's half-width or 0.5 % of the step."""
    measured = gain.saved_us if gain is not None else EMPTY
    if projected.low is None or projected.high is None or measured.low is None or measured.high is None:
        return None, "projected or measured savings are missing"
    middle, ours = (projected.low + projected.high) / 2, (measured.low + measured.high) / 2
    step = control.median_us if control is not None else 0.0
    allowed = max(AGREE_SHARE * abs(middle), (measured.high - measured.low) / 2, AGREE_STEP_SHARE * step)
    apart = abs(middle - ours)
    words = (
        f"projected {units.microseconds(middle)}, measured {units.microseconds(ours)}: "
        f"{units.microseconds(apart)} apart, {units.microseconds(allowed)} allowed"
    )
    return apart <= allowed, words


def credit(times: Mapping[str, ArmTimes], headline: str, suffix: str, noise_floor: float | None) -> tuple[Credit, ...]:
    """From the eager base to the substituted model, one change at a time; the four parts add up to all of it."""
    graph = f"eager{suffix}"
    library = "best-library" if "best-library" in times else graph
    captured = f"captured{suffix}"
    return (
        _part("launches removed", "eager", graph, times, noise_floor),
        _part("re-routing to library calls", graph, library, times, noise_floor),
        _part("capture", library, captured, times, noise_floor),
        _part("kernels and their fusion", captured, headline, times, noise_floor),
    )


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
    """The record with the share of what can be reached: saved by kernels / (control - fused floor)."""
    control = next((each for each in found.arms if each.arm == found.control), None)
    if floors is None or control is None or found.gain is None:
        return found
    if floors.fused_us.low is None or floors.fused_us.high is None:
        return replace(found, reach_note="the fused floor is not known")
    # Floors are of replaceable ops; library calls keep the time that they take.
    floor = (floors.fused_us.low + floors.fused_us.high) / 2
    reachable = control.median_us - floor
    if reachable <= found.gain.least_detectable * control.median_us:
        return replace(found, reach_note="what lies above the fused floor is less than could be detected")
    saved = found.gain.saved_us
    if saved.low is None or saved.high is None:
        return found
    return replace(
        found,
        reach=(saved.low + saved.high) / 2 / reachable,
        reach_note=f"of {units.microseconds(reachable)} above the fused floor",
    )
