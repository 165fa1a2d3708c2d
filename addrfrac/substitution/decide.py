"""A session whose graphs are captured in, a decision for each site out; every one with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from addrfrac import units
from addrfrac.records import Range, Site, SiteDecision
from addrfrac.substitution import operators, trial, verdicts
from addrfrac.substitution.pairs import problem_text, site_graph, solution_text
from addrfrac.substitution.session import Captured, Place, Session, Watcher
from addrfrac.substitution.trial import Trial
from addrfrac.substitution.verdicts import Answer, Question

Run = Callable[[], object]
Progress = Callable[[str], None]


@dataclass(slots=True, kw_only=True, eq=False)
class Findings:
    """What is known of a session's places so far."""

    examples: dict[str, list[Any]] = field(default_factory=dict)
    """Group -> arguments that its first place got."""
    answers: dict[str, Answer] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    """By key."""


def capture(session: Session, run: Run) -> Findings:
    """Run the model twice: graphs and sites fill at the first call, values of each group at the second."""
    run()
    findings = Findings()

    def note(watcher: Watcher, place: Place) -> None:
        if place.site.group not in findings.examples:
            values = watcher.values(place.match.arguments)
            findings.examples[place.site.group] = [
                each.detach().clone(memory_format=torch.preserve_format) if isinstance(each, torch.Tensor) else each
                for each in values
            ]

    _watched(session, run, note)
    return findings


def _watched(session: Session, run: Run, show: Callable[[Watcher, Place], None], keys: set[str] | None = None) -> None:
    """One run in which each place is shown with its live values."""

    def watch(graph: Captured, arguments: Sequence[Any]) -> Any:
        places = [place for place in graph.places if keys is None or place.site.key in keys]
        return Watcher(graph, places, show).run(*arguments)

    session.watch = watch
    try:
        run()
    finally:
        session.watch = None


def questions(session: Session, findings: Findings) -> list[Question]:
    """What the verifier is to judge: each group once. Values of the problem follow what the group really got."""
    found: dict[str, Question] = {}
    for place in session.places:
        site, match = place.site, place.match
        if site.group in found or site.group not in findings.examples or match.kernel.is_stock:
            continue
        tensors = [each for each in findings.examples[site.group] if isinstance(each, torch.Tensor)]
        title = f"{site.op} at {site.where or 'a site'}: {', '.join(site.inputs)} -> {', '.join(site.outputs)}"
        found[site.group] = Question(
            group=site.group,
            problem=problem_text(site_graph(match), tensors, title),
            solution=solution_text(match.kernel, match.arguments),
        )
    return list(found.values())


def try_places(
    session: Session,
    run: Run,
    findings: Findings,
    device: torch.device,
    *,
    clock: bool = True,
    compiled: bool = False,
) -> None:
    """Judge every place of a verified group on its own live values, and time some places of each group.

    With `compiled` what is there is timed as Inductor compiles it: the kernels go into a compiled model. What was not
    verified is not run in this process.
    """
    good = {place.site.key for place in session.places if place.site.library or _passed(place.site, findings)}
    timed: defaultdict[str, int] = defaultdict(int)

    def try_place(watcher: Watcher, place: Place) -> None:
        values = watcher.values(place.match.arguments)
        with torch.no_grad():
            found = trial.judged(place, values)
        findings.trials[place.site.key] = found
        operators.frozen[place.number] = operators.aligned(values)
        if clock and not found.wrong and timed[place.site.group] < trial.MOST_TIMED:
            timed[place.site.group] += 1
            trial.timed(place, watcher, found, device, compiled=compiled)

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        _watched(session, run, try_place, good)


def _passed(site: Site, findings: Findings) -> bool:
    answer = findings.answers.get(site.group)
    return answer is not None and answer.status == verdicts.PASSED


# --- deciding -------------------------------------------------------------------------------------------------------


def decided(session: Session, findings: Findings, *, need_gain: bool = True) -> tuple[SiteDecision, ...]:
    """A decision for every place; with `need_gain` a kernel must also be faster there than what it takes the place of.

    Of places that share a call only one gets its kernel: the one that saves most by the samples that choose, for the
    best of several is flattered by what it was chosen by.
    """
    savings = _savings(session, findings)
    found = [_decision(place.site, findings, savings.get(place.site.group), need_gain) for place in session.places]
    worth = {
        each.site.key: saving.chosen_by_us if (saving := savings.get(each.site.group)) is not None else 0.0
        for each in found
        if each.substituted
    }
    session.rebuild(lambda site: worth.get(site.key))
    chosen = {place.site.key for place in session.chosen}
    return tuple(
        replace(each, substituted=False, reason=f"{_winner(each, session)} takes calls of it and is worth more")
        if each.substituted and each.site.key not in chosen
        else each
        for each in found
    )


def values_of(decisions: Sequence[SiteDecision]) -> dict[str, float]:
    """Key -> what a substituted site is worth, for `Session.value`."""
    return {
        each.site.key: (each.before_us or 0.0) - (each.after_us or 0.0) if each.before_us is not None else 0.0
        for each in decisions
        if each.substituted
    }


def _savings(session: Session, findings: Findings) -> dict[str, trial.Saving]:
    before: defaultdict[str, list[float]] = defaultdict(list)
    after: defaultdict[str, list[float]] = defaultdict(list)
    for place in session.places:
        found = findings.trials.get(place.site.key)
        if found is not None and found.after_us:
            before[place.site.group] += found.before_us
            after[place.site.group] += found.after_us
    return {group: trial.saving(before[group], after[group]) for group in before}


def _decision(site: Site, findings: Findings, saved: trial.Saving | None, need_gain: bool) -> SiteDecision:
    answer, found = findings.answers.get(site.group), findings.trials.get(site.key)
    substituted, reason = False, ""
    if site.group not in findings.examples:
        reason = "the graph that holds it never ran"
    elif answer is None and not site.library:
        reason = "not verified"
    elif answer is not None and answer.status != verdicts.PASSED:
        reason = f"refused by the verifier, {answer.status.replace('_', ' ')}: {answer.reason}"
    elif found is None:
        reason = "its values were never seen"
    elif found.wrong:
        reason = f"refused at this site: {found.wrong}"
    elif not need_gain:
        substituted, reason = True, f"{_judged(site)}; not asked to be faster"
    elif saved is None:
        reason = "not timed"
    else:
        substituted, reason = _pays(saved, site)
    return SiteDecision(
        site=site,
        substituted=substituted,
        reason=reason,
        verdict=answer.status if answer is not None else "",
        error_ratio=found.error_ratio if found is not None else None,
        before_us=saved.before_us if saved is not None else None,
        after_us=saved.after_us if saved is not None else None,
        saved_us=saved.saved_us if saved is not None else Range(low=None, high=None),
        engaged=None,
        fallbacks=None,
    )


def _judged(site: Site) -> str:
    return "a library call, right at this site" if site.library else "verified"


def _pays(saved: trial.Saving, site: Site) -> tuple[bool, str]:
    """Chosen by one half of the samples; the reason tells the other half."""
    what = "the library's call" if site.library else "the kernel"
    told = f"{units.microseconds(saved.before_us)} there, {units.microseconds(saved.after_us)} with {what}"
    if saved.chosen_by_us > trial.LEAST_SAVED_SHARE * saved.before_us:
        return True, f"{_judged(site)} and faster: {told}"
    return False, f"{_judged(site)}, but no faster as it runs in the model: {told}"


def _winner(decision: SiteDecision, session: Session) -> str:
    places = {place.site.key: place for place in session.places}
    mine = places[decision.site.key]
    for place in session.chosen:
        if place.graph is mine.graph and place.match.covered & mine.match.covered:
            return place.site.kernel
    return "another kernel"


# --- engagement -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """Calls of each substituted site's kernel in a number of steps."""

    steps: int
    calls: dict[str, float]
    """Key -> calls a step."""
    fallbacks: dict[str, float]


def engagement(session: Session, run: Run, steps: int = 2) -> Engagement:
    """Count the kernels' calls, site by site, in steps of the substituted model."""
    places = session.chosen
    before = {place.number: (operators.calls[place.number], operators.fallbacks[place.number]) for place in places}
    for _ in range(steps):
        run()
    return Engagement(
        steps=steps,
        calls={each.site.key: (operators.calls[each.number] - before[each.number][0]) / steps for each in places},
        fallbacks={
            each.site.key: (operators.fallbacks[each.number] - before[each.number][1]) / steps for each in places
        },
    )


def with_engagement(decisions: Sequence[SiteDecision], counted: Engagement | None) -> tuple[SiteDecision, ...]:
    """The decisions with what was counted; a kernel that never ran says so."""
    if counted is None:
        return tuple(decisions)
    found = []
    for each in decisions:
        calls = counted.calls.get(each.site.key)
        reason = each.reason
        if each.substituted and not calls:
            reason = f"not engaged: its kernel never ran in {counted.steps} steps; {reason}"
        found.append(
            replace(each, engaged=calls, fallbacks=counted.fallbacks.get(each.site.key), reason=reason)
            if each.substituted
            else each
        )
    return tuple(found)
