"""A candidate and an exam in, findings out: every check by name, each with its figure.

The order is cheap first. What fails is noted and the rest goes on while the process lives, so that a reader sees all
that is wrong; a check that could not run is noted as such and is no pass.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from addrfrac.verification.candidate import ORDER, SENTINELS, Candidate, Findings, Result, WorkerFailure, same_bytes
from addrfrac.verification.closeness import RELATIVE_CAP, judge
from addrfrac.verification.exam import Exam, Gradients, Trial
from addrfrac.verification.invariants import broken, words
from addrfrac.verification.parameters import Entry, mapped_entries
from addrfrac.verification.processes import Server
from addrfrac.verification.records import PrecisionClass, Status
from addrfrac.verification.reference import Output, ReferenceRaised
from addrfrac.verification.sources import Source
from addrfrac.verification.verdict import allowed_classes

CHECKS = (
    "distributions",
    "probes",
    "writes",
    "state",
    "stability",
    "repeats",
    "gradients",
    "endurance",
    "shapes",
    "evidence",
    "tripwires",
    "processes",
)
_DETAILS = (
    "probes",
    "coarse",
    "invariants",
    "sequence",
    "repeats",
    "gradients",
    "endurance",
    "special",
    "shapes",
    "sealed",
)
"""Checks that tell nothing more of a candidate that is wrong on every distribution."""
_FEWEST_FAILURES = 3
_LATE_CPU_S = 0.004
"""Processor time after return that no honest call spends while nobody asks it anything."""
_LATE_REPEATS = 2
"""Times that this is measured again where it was spent: a machine under load charges a process for what is not its."""


def examine(
    server: Server,
    source: Source,
    exam: Exam,
    *,
    case: int = 0,
    quick: bool = False,
    timeout_s: float = 60.0,
    rng: random.Random | None = None,
) -> Findings:
    """All checks of one candidate."""
    findings = Findings()
    rng = rng or random.SystemRandom()
    try:
        candidate = Candidate(server, source, exam, case=case, timeout_s=timeout_s)
    except ReferenceRaised as error:
        findings.add("load", Status.NOT_LOADED, str(error))
        return findings
    except WorkerFailure as error:
        findings.add("load", error.status, error.reason)
        return findings
    findings.layers = candidate.handle.worker.layers
    steps: dict[str, Callable[[Candidate, Findings, bool, random.Random], None]] = {
        "build": _build,
        "distributions": _distributions,
        "tripwires at first": _tripwires_at_first,
        "probes": _probes,
        "coarse": _coarse,
        "invariants": _invariants,
        "writes": _writes,
        "state": _state,
        "sequence": _sequence,
        "stability": _stability,
        "repeats": _repeats,
        "gradients": _gradients,
        "endurance": _endurance,
        "special": _special,
        "evidence": _evidence,
        "tripwires": _tripwires,
        "sealed": _sealed,
        "shapes": _shapes,
        "processes": _processes,
    }
    name = "build"
    try:
        for name, step in steps.items():
            if name in _DETAILS and hopeless(findings):
                findings.facts["stopped_early"] = True
                continue
            try:
                step(candidate, findings, quick, rng)
            except ReferenceRaised as error:
                findings.add(name, Status.RAISED, str(error))
                if name == "build":
                    _tripwires(candidate, findings, quick, rng)  # it may have raised because of what was replaced
                    break
    except WorkerFailure as error:
        findings.add(name, error.status, error.reason)
    except Dead:
        findings.facts["stopped_early"] = True
    finally:
        ended = candidate.handle.worker.end()
        findings.facts["left"] = ended.get("left", 0)
        findings.facts["printed"] = getattr(candidate.handle.worker, "printed", "")
        candidate.close()
    return findings


def hopeless(findings: Findings) -> bool:
    """Whether every distribution at the initial parameters failed."""
    first = [result for result in findings.results if result.trial.state == 0 and result.trial.kind == "distribution"]
    return len(first) >= min(_FEWEST_FAILURES, len(first) or 1) and all(r.status is not Status.PASSED for r in first)


def _build(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    candidate.build()
    findings.mapping = candidate.mapping.how
    findings.facts["setup_s"] = candidate.setup_s
    findings.facts["parameters"] = sum(e.value.numel() for e in candidate.handle.entries() if e.kind == "parameter")
    findings.facts["state_bytes"] = sum(e.value.numel() * e.value.element_size() for e in candidate.handle.entries())
    candidate.current = (0, 0)
    made = candidate.exam.constructs[0]
    if made.entries and candidate.mapping.how == "none" and not candidate.exam.reseeded:
        raise NeedsReseeding


class Dead(Exception):
    """The candidate's process died of a check that said why; nothing more can be asked of it."""


class NeedsReseeding(Exception):
    """The candidate's parameters match the reference's neither by name nor by order; sit the reseeded exam."""


def _noted(findings: Findings, results: list[Result], name: str) -> None:
    """One check from many trials: the worst of them decides."""
    if not results:
        return
    findings.results += results
    for result in results:
        if result.status is Status.PASSED:
            findings.precision = max(findings.precision, result.precision, key=ORDER.index)
    bad = [result for result in results if result.status is not Status.PASSED]
    if bad:
        first = bad[0]
        detail = f"{first.trial.name}: {first.detail}" + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
        findings.add(name, first.status, detail, first.figure, 1.0)
        return
    worst = max(results, key=lambda r: (ORDER.index(r.precision), r.figure))
    detail = f"{len(results)} trials; closest to its limit: {worst.trial.name}, {worst.detail}"
    findings.add(name, Status.PASSED, detail, worst.figure, 1.0)


def _distributions(candidate: Candidate, findings: Findings, _quick: bool, rng: random.Random) -> None:
    """Every distribution; wrong only after the parameters changed has a status of its own."""
    by_state: dict[int, list[Result]] = {}
    for index, trial in enumerate(candidate.exam.distributions):
        by_state.setdefault(trial.state, []).append(candidate.sit(trial))
        first = by_state[candidate.exam.distributions[0].state]
        if index + 1 == _FEWEST_FAILURES == sum(result.status is Status.RAISED for result in first):
            break  # it may take its time to raise, and would again
    findings.facts["distributions"] = sum(len(results) for results in by_state.values())
    _noted(findings, by_state.get(0, []), "distributions at initial parameters")
    right_at_first = all(result.status is Status.PASSED for result in by_state.get(0, []))
    for state, results in by_state.items():
        if not state:
            continue
        name = f"distributions at {candidate.exam.constructs[0].states[state].name} parameters"
        _noted(findings, results, name)
        last = findings.checks[-1]
        if (
            right_at_first
            and last.status is Status.WRONG_VALUES
            and all(r.status is not Status.PASSED for r in results)
        ):
            findings.checks.pop()
            findings.add(name, Status.IGNORES_PARAMETERS, last.detail, last.figure, last.limit)


def _probes(candidate: Candidate, findings: Findings, _quick: bool, rng: random.Random) -> None:
    trials = [t for t in candidate.exam.trials if t.kind in ("probe", "swap")]
    rng.shuffle(trials)
    _noted(findings, [candidate.sit(trial) for trial in trials], "probes")


def _coarse(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Numbers that no rounding of operands changes: what is off then is off for another reason."""
    trials = [t for t in candidate.exam.trials if t.kind == "coarse"]
    _noted(findings, [candidate.sit(trial) for trial in trials], "numbers of few bits")


def _invariants(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """What every truth of the problem keeps; breaking it is a veto, keeping it no proof."""
    exam = candidate.exam
    checked = 0
    for result in findings.results:
        if result.trial.kind != "distribution" or result.status is not Status.PASSED or result.output is None:
            continue
        for invariant in exam.invariants:
            found = broken(
                invariant,
                result.output.tensors[invariant.output],
                result.trial.native.tensors[invariant.output],
                result.trial.arguments.tensors,
                precision=result.precision,
                dtype=exam.dtype,
                reduction_length=exam.reduction_length,
            )
            checked += 1
            if found is not None:
                detail = (
                    f"{result.trial.name}: every right answer {words(invariant)}, this one misses it by {found[0]:.2g}"
                )
                findings.add("invariants", Status.WRONG_VALUES, detail, *found)
                return
    if checked:
        kept = ", ".join(words(invariant) for invariant in exam.invariants[:4])
        findings.add("invariants", Status.PASSED, f"every answer {kept}")


def _writes(candidate: Candidate, findings: Findings, _quick: bool, rng: random.Random) -> None:
    """One trial under both sentinels: bytes that follow the sentinel were never written."""
    trial = candidate.exam.distributions[-1]
    if not candidate.stand(trial.construct, trial.state):
        return
    outputs = []
    for sentinel in SENTINELS * 2:
        candidate.restore()
        outputs.append(candidate.call(trial, poison=sentinel))
    unwritten, total = 0, 0
    for tensors in zip(*(output.tensors for output in outputs), strict=False):
        if len({tensor.shape for tensor in tensors}) > 1 or not tensors[0].numel():
            continue
        one, other, again, fourth = (t.contiguous().flatten().view(torch.uint8) for t in tensors)
        total += one.numel()
        if bool(torch.equal(one, again)) and bool(torch.equal(other, fourth)):
            unwritten += int((one != other).sum())
        else:  # sums in a changing order differ in their last bits anyway: only the pattern itself tells
            first, second = SENTINELS
            mine, theirs = (one == first) & (again == first), (other == second) & (fourth == second)
            unwritten += int((mine & theirs).sum())
    if unwritten:
        findings.add(
            "writes", Status.NOT_WRITTEN, f"{unwritten} of {total} output bytes follow free memory", unwritten, 0
        )
    else:
        findings.add("writes", Status.PASSED, f"{total} output bytes do not depend on what memory held", 0, 0)


def _state(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Parameters and buffers after one call, compared with the reference's."""
    effects = candidate.exam.effects
    if effects is None or not candidate.mapping.found:
        return
    trial = effects.trial
    if not candidate.stand(trial.construct, trial.state):
        return
    candidate.restore()
    candidate.call(trial)
    found = _state_differs(candidate, effects.after)
    if found:
        findings.add("state", Status.CHANGED_STATE, found)
    else:
        findings.add(
            "state", Status.PASSED, f"{len(effects.after)} parameters and buffers as the reference leaves them"
        )


def _state_differs(candidate: Candidate, wanted: list[Entry]) -> str:
    """The first parameter or buffer that is not as the reference leaves it; '' where there is none."""
    made = candidate.exam.constructs[0]
    mine = {entry.name: entry.value for entry in candidate.handle.entries()}
    after = {entry.name: entry for entry in wanted}
    for name, entry in zip(candidate.mapping.names, mapped_entries(made.entries, candidate.mapping), strict=True):
        expected, found = after[entry.name].value, mine[name]
        if same_bytes(expected, found):
            continue
        scale = float(expected.double().abs().max()) if expected.numel() else 0.0
        if expected.is_floating_point() and entry.kind == "buffer":
            off = float((expected.double() - found.double()).abs().max())
            if off <= 1e-3 * max(scale, 1e-6):
                continue
        return f"{entry.kind} {entry.name} is not as the reference leaves it"
    return ""


def _stability(candidate: Candidate, findings: Findings, _quick: bool, rng: random.Random) -> None:
    """An output as it was at return, 100 ms later, and after the next call."""
    first, second = candidate.exam.distributions[-1], candidate.exam.distributions[-2]
    if not (first.state == second.state and candidate.stand(first.construct, first.state)):
        second = first
    candidate.stand(first.construct, first.state)
    candidate.restore()
    before = candidate.call(first)
    candidate.handle.ask({"op": "keep"})
    spent = _spent_while_idle_s(candidate, rng)
    candidate.restore()
    in_place = any(str(name).startswith("input") for info in first.native.infos for name in info.get("overlaps", []))
    if in_place:  # the next inputs are written where this output lies, as the reference has it too
        again = candidate.handle.ask({"op": "again"})["tensors"]
        following = candidate.call(second)
    else:
        following = candidate.call(second)
        again = candidate.handle.ask({"op": "again"})["tensors"]
    for index, tensor in enumerate(before.tensors):
        if index >= len(again) or not same_bytes(tensor, again[index]):
            findings.add("stability", Status.UNSTABLE, f"output {index} changed after it was returned")
            return
    # a device's driver has threads of its own that are never quite still
    watched = candidate.exam.device == "cpu"
    for _ in range(_LATE_REPEATS):  # who works on does so after every call, who met with a page fault does not
        if watched and spent > _LATE_CPU_S:
            candidate.restore()
            candidate.call(first)
            spent = min(spent, _spent_while_idle_s(candidate, rng))
    if watched and spent > _LATE_CPU_S:
        detail = f"the process worked on for {spent * 1e3:.1f} ms after it had returned"
        findings.add("stability", Status.UNSTABLE, detail, spent, _LATE_CPU_S)
        return
    aliases = [i for info in following.infos for i in info.get("overlaps", []) if str(i).startswith("earlier output")]
    if aliases:
        findings.add("stability", Status.ALIASED, f"an output shares memory with {aliases[0]}")
        return
    findings.add("stability", Status.PASSED, "unchanged after 100 ms and after the next call", spent, _LATE_CPU_S)


def _spent_while_idle_s(candidate: Candidate, rng: random.Random) -> float:
    """Processor time of all threads of the process in a tenth of a second in which it is asked nothing."""
    before = candidate.handle.ask({"op": "cpu"})
    time.sleep(0.1 + 0.02 * rng.random())
    return float(candidate.handle.ask({"op": "cpu"})["cpu_s"]) - float(before["cpu_s"])


def _repeats(candidate: Candidate, findings: Findings, quick: bool, _rng: random.Random) -> None:
    """The same call again and again: races show as outputs outside their class."""
    trial = candidate.exam.distributions[len(candidate.exam.distributions) // 2]
    _noted(findings, [candidate.sit(trial) for _ in range(5 if quick else 20)], "repeats")


def _gradients(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Gradients for random cotangents, where the reference has any."""
    count = 0
    for index, wanted in enumerate(candidate.exam.gradients):
        if not candidate.stand(0, wanted.state):
            return
        candidate.restore()
        found = _gradients_as(candidate, findings, wanted, classed=index == 0)
        if found is None:
            return
        count += found
    if count:
        findings.add(
            "gradients", Status.PASSED, f"{count} gradients, at {len(candidate.exam.gradients)} sets of inputs"
        )


def _gradients_as(candidate: Candidate, findings: Findings, wanted: Gradients, *, classed: bool) -> int | None:
    """How many gradients are right; None once it is told that one is not. With `classed` their class counts too."""
    names: list[str] = []
    if candidate.mapping.found:
        made = candidate.exam.constructs[0]
        entries = mapped_entries(made.entries, candidate.mapping)
        back = {entry.name: name for name, entry in zip(candidate.mapping.names, entries, strict=True)}
        names = [back[name] for name in wanted.names]
    try:
        answer = candidate.handle.gradients(
            wanted.arguments, seed=wanted.seed, cotangents=wanted.cotangents, names=names, double=False
        )
    except ReferenceRaised as error:
        answer = {"tensors": [], "attached": [False], "error": str(error)}
    tensors = answer["tensors"]
    if answer.get("changed"):
        where = f"input {answer['changed'][0]} is written over when gradients are asked for"
        findings.add("gradients", Status.CHANGED_STATE, where)
        return None
    if not tensors:
        findings.facts["inference_only"] = True
        status = Status.WRONG_GRADIENTS if candidate.exam.trains else Status.PASSED
        findings.add("gradients", status, "the outputs cannot be differentiated, the reference's can")
        return None
    per = len(wanted.sticks) // len(wanted.cotangents)
    mine = len(tensors) // len(wanted.cotangents)
    for index, tensor in enumerate(tensors):
        if index % mine >= per:
            continue
        position = (index // mine) * per + index % mine
        stick = wanted.sticks[position]
        spread = wanted.cotangents[index // mine] < 0
        which = f"gradient {index % mine}" + (" of a sum" if spread else "")
        if stick is None:
            continue
        if tensor.shape != stick.truth.shape:
            findings.add("gradients", Status.WRONG_GRADIENTS, f"{which} has shape {tuple(tensor.shape)}")
            return None
        found = judge(tensor, stick)
        wrong = found.precision in (PrecisionClass.NONE, PrecisionClass.APPROX)
        if not (classed and not spread) and found.closeness is not None and stick.sizes is not None:
            # far out a few numbers make the whole of a slice, and a sum's gradient may be what terms leave that cancel
            usual = wanted.sticks[position % per]
            whole = usual.sizes.norm if spread and usual is not None and usual.sizes is not None else 0.0
            share = min(1.0, stick.sizes.norm / whole) if whole else 1.0
            wrong = not found.closeness.relative_frobenius * share <= max(
                RELATIVE_CAP, 8 * wanted.own[position] * share
            )
        if wrong:
            findings.add("gradients", Status.WRONG_GRADIENTS, f"{which}: {found.detail}", found.figure, 1.0)
            return None
        if classed and not spread:
            findings.precision = max(findings.precision, found.precision, key=ORDER.index)
    return len(tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What surrounds one call of many."""

    context: str = "no_grad"
    own: bool = False
    """Inputs in ordinary memory instead of the shared one."""
    poison: int | str | None = None
    pause: bool = False
    burst: int = 0
    """Calls in a row beforehand that nobody looks at."""
    judged: bool = True
    keep: bool = False
    """Its outputs are looked at again at the end."""
    scribble: bool = False
    """Its outputs are written over by whoever called."""


def _turns(rng: random.Random, count: int, *, plain: bool) -> list[Turn]:
    """Turns in random order: each surrounding at least once, the rest drawn; `plain` leaves outputs alone."""
    fixed = [Turn(context="inference"), Turn(context="grad"), Turn(own=True, poison="random"), Turn(poison="random")]
    fixed += [Turn(context="profile"), Turn(context="profile", own=True), Turn(own=True, pause=True)]
    fixed += [Turn(poison=SENTINELS[0], pause=True), Turn(own=True, poison="random", context="inference")]
    fixed += [Turn(burst=400), Turn(burst=900, poison="random", own=True)]
    if not plain:
        fixed += [Turn(keep=True), Turn(keep=True, poison="random"), *[Turn(scribble=True)] * 3]
    while len(fixed) < count:
        poison = rng.choice((*SENTINELS, "random", None))
        fixed.append(Turn(own=rng.random() < 0.3, poison=poison, judged=rng.random() < 0.35))
    rng.shuffle(fixed)
    return fixed


def _endurance(candidate: Candidate, findings: Findings, quick: bool, rng: random.Random) -> None:
    """Many calls in changing surroundings with content that changes each time, a hidden part of them judged."""
    trials = [t for t in candidate.exam.distributions if t.state == candidate.exam.distributions[-1].state]
    plain = any(info.get("overlaps") for info in trials[0].native.infos)
    turns = _turns(rng, rng.randint(30, 40) if quick else rng.randint(70, 110), plain=plain)
    work_s, enough_s = 0.0, 0.5 if quick else 2.0
    results: list[Result] = []
    kept: list[Output] = []
    late = False
    for turn in turns:
        trial = rng.choice(trials)
        if not candidate.stand(trial.construct, trial.state):
            return
        if late and turn.judged and turn == Turn(own=turn.own, poison=turn.poison):
            continue  # of slow candidates the surroundings are tried, not the number
        if turn.burst and not candidate.changes_inputs(trial):
            results += _burst(candidate, trials, turn, rng, late=late)
        output = _one_turn(candidate, findings, trial, turn, rng)
        if output is None:
            continue
        work_s += float(output.facts.get("cpu_s", 0.0))
        late = late or work_s > enough_s
        if turn.judged:
            results.append(candidate.judge(trial, output))
        if turn.keep:
            kept.append(output)
            candidate.handle.ask({"op": "keep"})
        if turn.scribble:
            candidate.handle.ask({"op": "scribble"})
            candidate.restore()
            results.append(candidate.judge(trial, candidate.call(trial)))
    trial = rng.choice(trials)
    candidate.restore()
    results.append(candidate.judge(trial, candidate.call(trial)))
    _noted(findings, results, "endurance")
    _kept_outputs(candidate, findings, kept)


def _burst(candidate: Candidate, trials: list[Trial], turn: Turn, rng: random.Random, *, late: bool) -> list[Result]:
    """As many calls in a row as the turn says, two contents of one layout in turn."""
    first = rng.choice(trials)
    alike = [
        t
        for t in trials
        if t is not first
        and t.arguments.tree == first.arguments.tree
        and [(a.shape, a.stride()) for a in t.arguments.tensors]
        == [(a.shape, a.stride()) for a in first.arguments.tensors]
    ]
    candidate.restore()
    found = candidate.burst(
        [first, *rng.sample(alike, min(1, len(alike)))], rng.randint(turn.burst // 2, turn.burst), 0.02 if late else 0.2
    )
    candidate.restore()
    return found


def _one_turn(candidate: Candidate, findings: Findings, trial: Trial, turn: Turn, rng: random.Random) -> Output | None:
    """One call as its turn says; None where the candidate refuses its surroundings."""
    if turn.pause:
        time.sleep(0.06 + 0.04 * rng.random())
    candidate.restore()
    options = {"context": turn.context, "own": turn.own, "poison": turn.poison}
    try:
        return candidate.call(trial, **options)
    except ReferenceRaised as error:
        if turn.context not in ("grad", "inference"):
            raise
        findings.facts["inference_only"] = findings.facts.get("inference_only") or turn.context == "grad"
        findings.refused.append(f"{turn.context} mode: {str(error)[:80]}")
        return None


def _kept_outputs(candidate: Candidate, findings: Findings, kept: list[Output]) -> None:
    """Outputs from amid many calls, as they are after all of them."""
    if not kept:
        return
    again = candidate.handle.ask({"op": "again"})["tensors"]
    wanted = [tensor for output in kept for tensor in output.tensors]
    changed = sum(not same_bytes(one, other) for one, other in zip(wanted, again, strict=False))
    if changed or len(wanted) != len(again):
        findings.add("kept outputs", Status.UNSTABLE, f"{changed} of {len(wanted)} outputs changed in later calls")
    else:
        findings.add("kept outputs", Status.PASSED, f"{len(wanted)} outputs as they were many calls ago")


def _sequence(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Several calls without a restored state between them: what they leave in parameters and buffers."""
    wanted = candidate.exam.sequence
    if wanted is None or not candidate.mapping.found:
        return
    first = wanted.trials[0]
    if not candidate.stand(first.construct, first.state):
        return
    candidate.restore()
    for trial in wanted.trials:
        candidate.call(trial)
    found = _state_differs(candidate, wanted.after)
    candidate.restore()
    if found:
        findings.add("sequence", Status.CHANGED_STATE, f"after {len(wanted.trials)} calls {found}")
    else:
        findings.add("sequence", Status.PASSED, f"state as the reference leaves it after {len(wanted.trials)} calls")


def _sealed(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """One call on inputs that cannot be written: whoever uses them as scratch and puts them back dies of it."""
    trial = candidate.exam.distributions[-1]
    # Triton's interpreter copies every argument back, changed or not
    if candidate.exam.device != "cpu" or candidate.changes_inputs(trial) or "triton" in candidate.imports:
        return
    if not candidate.stand(trial.construct, trial.state):
        return
    candidate.restore()
    try:
        candidate.call(trial, sealed=True)
    except WorkerFailure as failure:
        if "signal" not in failure.reason:
            raise
        detail = "it writes to its inputs or parameters, whether it puts them back or not"
        findings.add("sealed", Status.CHANGED_STATE, detail)
        raise Dead from failure
    findings.add("sealed", Status.PASSED, "inputs and parameters are only read")


def _shapes(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Other shapes, constructor arguments and layouts: a refusal is noted, a wrong result has its own status."""
    allowed = allowed_classes(candidate.exam)
    coarse_anyway = findings.precision not in allowed
    for kind in ("shape", "layout", "construct"):
        good, bad = 0, []
        for trial in [t for t in candidate.exam.trials if t.kind == kind]:
            result = candidate.sit(trial)
            if result.status is Status.RAISED:
                findings.refused.append(f"{trial.name}: {result.detail[:80]}")
                candidate.current = None if kind == "construct" else candidate.current
            elif result.status is Status.PARAMETERS_NOT_VARIED:
                continue
            elif result.status is Status.PASSED and (coarse_anyway or result.precision in allowed):
                good += 1
                findings.precision = max(findings.precision, result.precision, key=ORDER.index)
                findings.results.append(result)
            else:
                bad.append(result)
        if bad:
            first = bad[0]
            findings.add(f"{kind}s", Status.SHAPE_SPECIALISED, _at_other(first))
        elif good:
            findings.add(f"{kind}s", Status.PASSED, f"{good} right, {len(findings.refused)} refused so far")
    again = candidate.sit(candidate.exam.distributions[-1])
    name = "published shape after the others"
    if again.status is Status.PASSED:
        _noted(findings, [again], name)
    else:
        findings.add(name, Status.UNSTABLE, f"right at first, then {again.status}: {again.detail}", again.figure, 1.0)


def _at_other(result: Result) -> str:
    """What went wrong at another shape."""
    status = f"class {result.precision}" if result.status is Status.PASSED else str(result.status)
    return f"{result.trial.name}: {status}: {result.detail}"


def _special(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """NaN, infinities, zeros and subnormals as the reference has them; told in a label: honest kernels often differ."""
    for special in candidate.exam.specials:
        if not candidate.stand(0, special.state):
            return
        candidate.restore()
        try:
            output = candidate.handle.call(special.arguments, seed=special.seed)
        except ReferenceRaised as error:
            findings.facts["special"] = f"{special.name}: {error}"
            return
        for mine, theirs in zip(output.tensors, special.native.tensors, strict=False):
            if mine.shape == theirs.shape and mine.is_floating_point() and theirs.is_floating_point():
                differs = _specials_differ(mine, theirs, small=special.name.startswith("zeros"))
                if differs:
                    findings.facts["special"] = f"{special.name}: {differs}"
                    return


def _specials_differ(mine: torch.Tensor, theirs: torch.Tensor, *, small: bool) -> str:
    """How an answer to unusual numbers differs in kind from the reference's; '' where it does not."""
    kinds = (("NaN", torch.isnan), ("infinity", torch.isposinf), ("negative infinity", torch.isneginf))
    for word, test in kinds:
        if not bool(torch.equal(test(mine), test(theirs))):
            return f"{word} at other places"
    if small and bool(((mine == 0) & (theirs != 0)).any()):
        return "zero where the reference has small numbers"
    if small and bool(((mine == 0) & (theirs == 0) & (torch.signbit(mine) != torch.signbit(theirs))).any()):
        return "zeros of the other sign"
    return ""


def _evidence(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Operations, device kernels and swallowed exceptions of one call."""
    trial = candidate.exam.distributions[0]
    candidate.stand(trial.construct, trial.state)
    candidate.restore()
    arena = candidate.handle.place(trial.arguments)
    try:
        traced = candidate.handle.ask({"op": "traced", "key": arena.key, "seed": trial.seed})
    except ReferenceRaised as error:
        findings.facts["traced"] = {"note": str(error)}
        return
    findings.facts["traced"] = {key: traced[key] for key in traced if key not in ("tensors", "nonce", "elapsed_s")}
    findings.facts["live_bytes"] = int(candidate.handle.ask({"op": "memory"})["live_bytes"])
    findings.facts["private_bytes"] = candidate.handle.worker.private_bytes() - candidate.private_bytes
    findings.facts["wide_storage"] = _wide_storage(findings.results)
    findings.facts["imports"] = candidate.imports


def _wide_storage(results: list[Result]) -> bool:
    """Whether outputs keep far more memory alive than they fill, and the reference's do not."""

    def wide(output: Output) -> bool:
        return any(
            info.get("storage_bytes", 0) > 4 * tensor.numel() * tensor.element_size() + 65_536
            for info, tensor in zip(output.infos, output.tensors, strict=False)
        )

    return any(r.output is not None and wide(r.output) and not wide(r.trial.native) for r in results)


def _tripwires_at_first(candidate: Candidate, findings: Findings, quick: bool, rng: random.Random) -> None:
    """What the first calls replaced, while the process lives to tell it; nothing is noted where nothing was."""
    seen = Findings()
    _tripwires(candidate, seen, quick, rng)
    findings.checks += [replace(check, name="tripwires at first") for check in seen.checks if not check.passed]


def _tripwires(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Functions of the host process that were replaced, settings that moved."""
    try:
        wires = candidate.handle.ask({"op": "wires"})
    except ReferenceRaised as error:  # they could be read when the process began
        findings.add("tripwires", Status.TAMPERED, f"the functions of the process cannot be read any more: {error}")
        return
    findings.facts["settings"] = wires.get("settings", [])
    replaced = wires.get("replaced", [])
    if replaced:
        findings.add(
            "tripwires", Status.TAMPERED, f"replaced or put in place: {', '.join(replaced[:3])}", len(replaced), 0
        )
    else:
        findings.add("tripwires", Status.PASSED, "no function of the process was replaced", 0, 0)


def _processes(candidate: Candidate, findings: Findings, _quick: bool, _rng: random.Random) -> None:
    """Processes that the candidate started and left running."""
    count = candidate.handle.worker.companions()
    if count:
        findings.add("processes", Status.TAMPERED, f"{count} processes of its own still run", count, 0)
    else:
        findings.add("processes", Status.PASSED, "nothing left running", 0, 0)


__all__ = ["CHECKS", "NeedsReseeding", "examine"]
