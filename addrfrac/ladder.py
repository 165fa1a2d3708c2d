"""A workload in, the free switches that help it out: tried one after the other, then measured on fresh samples.

The climb: eager and as a graph; then each switch of the configuration and of the model on top of those kept, in one
process with the best so far; then the compilers, each in a process of its own, on the rewrites, on the plain model and
on the rewrites less one. What was chosen is measured again, with the base and compile + graph, in processes that had
no part in the choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from addrfrac import arms, capture, measure, parity, recorder, registry, stats, store, units
from addrfrac.analysis import Options, build_run
from addrfrac.arms import EAGER, GRAPH, Arm, Job
from addrfrac.errors import AddrfracError
from addrfrac.measure import Lost, Order, Tried, Worker
from addrfrac.parse import read_trace
from addrfrac.records import ArmTimes, Ceiling, Configuration, Gain, Ladder, Parity, Range, Run, Rung
from addrfrac.switches.switch import Stage, Switch

BASE, BASE_GRAPH, COMPILE_GRAPH = "eager", "eager + graph", "compile + graph"
BEST, AGAIN = "best-library", "best-library again"
BEST_SO_FAR = "best so far"
COMPILE = "compile"
"""The switch that the arm `compile + graph` has on."""
RUNG_STEPS, LONG_STEP_US = 3, 20_000.0
"""Profiled steps of a rung; of a step that takes longer, one."""
MOST_LEFT_OUT = 3
"""Of the kept rewrites so many are left out, one at a time, under the compiler."""
MOST_ALIVE = 24
BASE_TIMEOUT_S = 900.0
"""For the base and the truth; without the base there is no climb."""
CPU_NOTE = "measured on the CPU: the times say what the switches do to this machine, not to a GPU's kernels"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to climb."""

    only: tuple[str, ...] = ()
    """Try these switches alone; (): all."""
    skip: tuple[str, ...] = ()
    processes: int = measure.PROCESSES
    """Of each arm, in the final comparison."""
    max_autotune: bool = False
    switch_timeout_s: float = measure.SET_UP_TIMEOUT_S
    at_once: int | None = None
    """Processes alive at a time; None: as many as fit."""
    rounds: int = measure.BLOCKS
    block_us: float = measure.BLOCK_US
    profiled: bool = True
    """Profile each rung for what remains addressable."""
    ceilings: bool = True
    judged: bool = True
    """Judge parity; without it nothing of this climb may be published."""
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a climb found, and the traces of its base and of its best."""

    ladder: Ladder
    base_trace: Path | None
    best_trace: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac ladder` as typed."""

    workload: str
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    fields: Mapping[str, Any]
    """Configuration fields; None where the user left them alone."""
    device: str | None
    plan: Plan
    warm_caches: bool
    directory: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request."""

    runs: tuple[Run, ...]
    files: tuple[str, ...]
    """Lines for the user: what was saved and how to render it again."""


# --- the climb ------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Climb:
    """Where a climb stands."""

    job: Job
    plan: Plan
    folder: Path
    """For outputs and traces that are read and thrown away."""
    progress: Progress
    accountant: ThreadPoolExecutor
    switches: tuple[Switch, ...]
    began: float = field(default_factory=time.monotonic)
    stage: str = ""
    stage_began: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """What each stage took."""
    bench: Worker | None = None
    best: tuple[str, ...] = ()
    best_launch: str = EAGER
    why_no_graph: str = ""
    trains: bool = False
    live: int = 1
    """Processes that may live at once."""
    noise_floor: float | None = None
    base_outputs: Path | None = None
    truth: Path | None = None
    why_no_truth: str = ""
    rungs: list[Rung] = field(default_factory=list)
    accounts: list[Future[_Share] | None] = field(default_factory=list)
    """Of each rung."""
    notes: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.progress(f"[{time.monotonic() - self.began:5.1f} s] {line}")

    def enter(self, stage: str) -> None:
        """A new stage; the clock of the one before stops."""
        now = time.monotonic()
        if self.stage:
            self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self.stage_began
        self.stage, self.stage_began = stage, now
        if stage:
            self.say(stage)

    @property
    def asked(self) -> Worker:
        assert self.bench is not None, "the climb has begun"
        return self.bench

    @property
    def on_cpu(self) -> bool:
        return self.job.device == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What remains addressable on a rung."""

    share_of_busy: dict[str, Range]
    share_of_wall: dict[str, Range]
    busy_us: float


def ladder(
    workload: str,
    configuration: Configuration,
    *,
    plan: Plan | None = None,
    directory: Path | None = None,
    progress: Progress,
) -> Found:
    """Climb: every switch that applies, kept where it helps and the step still computes the same.

    `workload` is a name or path/to/file.py:NAME; the traces of base and best stay in `directory` where one is given.
    Raises AddrfracError where the base itself cannot be run.
    """
    plan = plan or Plan()
    job = Job(workload=workload, configuration=replace(configuration, execution=EAGER), device=configuration.device)
    with TemporaryDirectory(prefix="addrfrac-ladder-") as scratch, ThreadPoolExecutor(2) as accountant:
        climb = _Climb(
            job=job,
            plan=plan,
            folder=Path(scratch),
            progress=progress,
            accountant=accountant,
            switches=_chosen(plan),
        )
        try:
            return _climb(climb, directory)
        finally:
            if climb.bench is not None:
                climb.bench.end()


def _chosen(plan: Plan) -> tuple[Switch, ...]:
    """The switches to try. Raises AddrfracError for a name that is none."""
    from addrfrac.switches import SWITCHES

    for name in (*plan.only, *plan.skip):
        arms.find(name)
    wanted = [switch for switch in SWITCHES if not plan.only or switch.name in plan.only]
    return tuple(switch for switch in wanted if switch.name not in plan.skip)


def _climb(climb: _Climb, directory: Path | None) -> Found:
    climb.enter("building the base")
    _open(climb)
    climb.enter("eager, and as a graph")
    _first_rungs(climb)
    climb.enter("trying switches")
    for switch in climb.switches:
        if switch.stage is not Stage.COMPILE:
            _try_switch(climb, switch)
    climb.enter("compiling")
    _try_compilers(climb)
    climb.asked.end()
    climb.bench = None
    climb.enter("the final comparison")
    final = _final(climb, directory)
    climb.enter("accounting")
    rungs = tuple(_with_share(rung, future) for rung, future in zip(climb.rungs, climb.accounts, strict=True))
    climb.enter("")
    seconds = ", ".join(f"{stage} {taken:.1f}" for stage, taken in climb.seconds.items())
    found = Ladder(
        base=BASE,
        rungs=rungs,
        best=climb.best,
        best_launch=climb.best_launch,
        arms=final.arms,
        gains=final.gains,
        noise_floor=final.noise_floor,
        ceilings=final.ceilings,
        notes=(*_notes(climb), *final.notes, f"seconds: {seconds}"),
    )
    return Found(ladder=found, base_trace=final.base_trace, best_trace=final.best_trace)


def _notes(climb: _Climb) -> list[str]:
    notes = [CPU_NOTE] if climb.on_cpu else []
    if climb.why_no_graph:
        notes.append(f"no graph of the base: {climb.why_no_graph}")
    if climb.why_no_truth:
        notes.append(f"parity was not judged against higher precision: {climb.why_no_truth}")
    notes.append(
        f"rungs are chosen in one process, {climb.plan.rounds} blocks of each side in turns; the arms at the end are "
        "measured in processes that had no part in the choice"
    )
    return [*notes, *climb.notes]


# --- base -----------------------------------------------------------------------------------------------------


def _open(climb: _Climb) -> None:
    """Start the bench with the eager base on it, and the truth beside it. Raises AddrfracError without a base."""
    truth = climb.folder / "truth"
    orders = [_bench_order(climb, "base", ())]
    if climb.plan.judged:
        orders.append(
            Order(
                name="truth",
                prepare=measure.record_truth,
                arguments=(climb.job, truth),
                timeout=BASE_TIMEOUT_S,
            )
        )
    workers, lost = measure.start_all(orders, len(orders))
    if "bench" in lost and _cannot_use_forked(lost["bench"]):
        measure.use_spawn()
        climb.notes.append("worker processes were started afresh: forked ones could not use the device")
        measure.end_all(workers.values())
        workers, lost = measure.start_all(orders, len(orders))
    if "bench" not in workers:
        measure.end_all(workers.values())
        raise AddrfracError(f"{capture.title(climb.job.configuration)} does not run: {lost['bench']}")
    climb.bench = workers["bench"]
    if "truth" in workers:
        climb.why_no_truth = str(workers["truth"].said)
        workers["truth"].end()
    climb.why_no_truth = lost.get("truth", climb.why_no_truth)
    climb.truth = truth if truth.exists() and not climb.why_no_truth else None
    climb.base_outputs = climb.folder / "outputs-base" if climb.plan.judged else None
    first = climb.bench.said
    climb.trains = first.trains
    climb.live = climb.plan.at_once or _room(climb)


def _room(climb: _Climb) -> int:
    """How many processes may live at once, the bench among them; asked when nothing else holds memory."""
    try:
        said = climb.asked.ask(measure.facts_of_best)
    except Lost:
        said = climb.asked.said
    return measure.room(said, MOST_ALIVE - 1) + 1


def _cannot_use_forked(reason: str) -> bool:
    return "no CUDA device" in reason or ("CUDA" in reason and ("initializ" in reason or "fork" in reason))


def _bench_order(climb: _Climb, what: str, switches: tuple[str, ...], launch: str = EAGER) -> Order:
    outputs = climb.folder / f"outputs-{what}" if climb.plan.judged else None
    return Order(
        name="bench",
        prepare=measure.hold_bench,
        arguments=(climb.job, Arm(name=what, switches=switches, launch=launch), outputs),
        timeout=max(BASE_TIMEOUT_S, climb.plan.switch_timeout_s),
    )


def _reopen(climb: _Climb) -> None:
    """A fresh bench with the best so far on it, after one was lost."""
    climb.asked.end("given up")
    workers, lost = measure.start_all([_bench_order(climb, "reopened", climb.best, climb.best_launch)], 1)
    if "bench" not in workers:
        raise AddrfracError(f"the best arm so far could not be built again: {lost['bench']}")
    climb.bench = workers["bench"]


def _first_rungs(climb: _Climb) -> None:
    """The eager base beside its graph; then a second instance of the better one, for the noise floor."""
    outputs = _outputs(climb, "graph")
    tried = _tried(climb, Arm(name=BASE_GRAPH, launch=GRAPH), outputs) if not climb.on_cpu else None
    graph = tried if isinstance(tried, Tried) and tried.launch == GRAPH else None
    if graph is None:
        declared = climb.asked.said.why_not or "the step says that it cannot be captured"
        climb.why_no_graph = tried if isinstance(tried, str) else declared
    if isinstance(tried, str):
        _reopen(climb)
    again = None
    if graph is None:
        again = tried if isinstance(tried, Tried) else _tried(climb, Arm(name=BASE), None)
        if isinstance(again, str):
            raise AddrfracError(f"a second instance of the base could not be measured: {again}")
        eager = _times(climb, Arm(name=BASE), again.best_us, climb.asked.said.peak_bytes, None)
    else:
        eager = _times(climb, Arm(name=BASE), graph.best_us, climb.asked.said.peak_bytes, None)
    _note_rung(
        climb,
        replace(_base_rung(eager), parity=_parity(climb, climb.base_outputs, True)),
        _profiled(climb, "base", eager.median_us, beside=again is not None),
    )
    if graph is not None:
        _graph_rung(climb, eager, graph, outputs)
        again = _tried(climb, Arm(name="again", launch=climb.best_launch), None)
    if isinstance(again, Tried):
        climb.noise_floor = stats.noise_between([again.best_us], [again.tried_us])
        climb.say(f"noise floor {units.percent(climb.noise_floor)}")


def _base_rung(eager: ArmTimes) -> Rung:
    return Rung(
        name=BASE,
        about="the step as its framework runs it",
        switches=(),
        launch=EAGER,
        kept=True,
        reason="the base",
        times=eager,
        gain=None,
        parity=None,
        share_of_busy={},
        share_of_wall={},
        busy_us=None,
    )


def _graph_rung(climb: _Climb, eager: ArmTimes, graph: Tried, outputs: Path | None) -> None:
    times = _times(climb, Arm(name=BASE_GRAPH, launch=GRAPH), graph.tried_us, graph.peak_bytes, graph.host_us)
    gain = measure.gain(eager, times)
    kept = times.median_us < eager.median_us
    rung = Rung(
        name="cuda-graph",
        about="the step captured as a CUDA graph and replayed",
        switches=(),
        launch=GRAPH,
        kept=kept,
        reason=_in_words(gain),
        times=times,
        gain=gain,
        parity=_parity(climb, outputs, True),
        share_of_busy={},
        share_of_wall={},
        busy_us=None,
    )
    _note_rung(climb, rung, _profiled(climb, "graph", times.median_us))
    if kept:
        _keep(climb, (), GRAPH)


# --- one switch after the other ---------------------------------------------------------------------------------


def _try_switch(climb: _Climb, switch: Switch) -> None:
    """Try a switch, with those that it needs, on top of the best so far."""
    missing = tuple(name for name in switch.needs if name not in climb.best)
    if missing:
        climb.say(f"{switch.name} together with {', '.join(missing)}")
    else:
        why_not = _why_not(climb, switch)
        if why_not:
            _note_rung(climb, _untried(climb, switch, f"does not apply: {why_not}"), None)
            return
    switches = _named((*climb.best, *missing, switch.name))
    launch = GRAPH if not climb.on_cpu else EAGER
    arm = Arm(name=switch.name, switches=switches, launch=launch)
    outputs = _outputs(climb, switch.name)
    tried = _tried(climb, arm, outputs)
    if isinstance(tried, str):
        _note_rung(climb, _untried(climb, switch, tried, switches), None)
        if climb.asked.lost or "capture failed" in tried or "CUDA" in tried:
            _reopen(climb)
        return
    _judge_rung(climb, switch, switches, tried, outputs)


def _why_not(climb: _Climb, switch: Switch) -> str:
    try:
        return str(climb.asked.ask(measure.why_not, switch.name))
    except Lost as lost:
        if climb.asked.lost:
            _reopen(climb)
        return str(lost)


def _named(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(switch.name for switch in arms.in_order(names))


def _outputs(climb: _Climb, name: str) -> Path | None:
    return climb.folder / f"outputs-{len(climb.rungs)}-{name}" if climb.plan.judged else None


def _tried(climb: _Climb, arm: Arm, outputs: Path | None) -> Tried | str:
    """The arm in turns with the best so far, or why it was not."""
    plan = climb.plan
    try:
        tried: Tried = climb.asked.ask(
            measure.try_beside, climb.job, arm, outputs, plan.rounds, plan.block_us, timeout=plan.switch_timeout_s
        )
    except Lost as lost:
        return str(lost)
    climb.say(
        f"{arm.name}: {stats.arm_median([tried.tried_us]):.1f} us, best so far {stats.arm_median([tried.best_us]):.1f} "
        f"({tried.seconds[0]:.1f} s to prepare, {tried.seconds[1]:.1f} s to time)"
    )
    return tried


def _judge_rung(climb: _Climb, switch: Switch, switches: tuple[str, ...], tried: Tried, outputs: Path | None) -> None:
    arm = Arm(name=switch.name, switches=switches, launch=tried.launch)
    best = _times(
        climb, Arm(name=BEST_SO_FAR, switches=climb.best, launch=climb.best_launch), tried.best_us, None, None
    )
    times = _times(climb, arm, tried.tried_us, tried.peak_bytes, tried.host_us)
    gain = measure.gain(best, times, climb.noise_floor)
    judged = _parity(climb, outputs, switch.exact)
    kept = measure.helps(gain) and (judged is None or judged.passed is not False)
    rung = Rung(
        name=switch.name,
        about=switch.about,
        switches=switches,
        launch=tried.launch,
        kept=kept,
        reason=_reason(gain, judged),
        times=times,
        gain=gain,
        parity=judged,
        share_of_busy={},
        share_of_wall={},
        busy_us=None,
    )
    _note_rung(climb, rung, _profiled(climb, switch.name, times.median_us))
    if kept:
        _keep(climb, switches, tried.launch)
        if not switch.exact and outputs is not None:  # what follows is judged against the coarser arithmetic
            climb.base_outputs = outputs
            climb.notes.append(f"{switch.name} computes more coarsely on purpose; later rungs are judged against it")


def _keep(climb: _Climb, switches: tuple[str, ...], launch: str) -> None:
    """What is on the bench beside the best is the best from now on."""
    climb.best, climb.best_launch = switches, launch
    try:
        climb.asked.ask(measure.keep)
    except Lost:
        _reopen(climb)


def _parity(climb: _Climb, outputs: Path | None, exact: bool) -> Parity | None:
    if outputs is None or climb.base_outputs is None or not outputs.exists():
        return None
    return parity.judge(
        climb.base_outputs,
        outputs,
        climb.truth,
        climb.job.configuration,
        why_no_truth=climb.why_no_truth,
        exact=exact,
        language_model=registry.find_workload(climb.job.workload).sample == "tokens" and not climb.trains,
    )


def _times(
    climb: _Climb, arm: Arm, blocks: list[list[float]], peak_bytes: int | None, host_us: float | None
) -> ArmTimes:
    series = measure.Series(
        arm=arm,
        blocks=[blocks],
        peaks=[peak_bytes] if peak_bytes is not None else [],
        host_us=[host_us] if host_us is not None else [],
    )
    times = measure.arm_times(series, on_cpu=climb.on_cpu)
    assert times is not None, "blocks were taken"
    return times


def _in_words(gain: Gain) -> str:
    floor = "" if gain.noise_floor is None else f", noise floor {units.percent(gain.noise_floor)}"
    return f"{gain.verdict}: {gain.speedup:.3f}x [{gain.low:.3f}, {gain.high:.3f}] against {gain.before}{floor}"


def _reason(gain: Gain, judged: Parity | None) -> str:
    words = _in_words(gain)
    if judged is None:
        return words
    if judged.passed is False:
        ratio = "" if judged.error_ratio is None else f" (error {judged.error_ratio:.2f} times the base's)"
        return f"parity fails{ratio}: {judged.method}; {words}"
    return words if judged.passed else f"{words}; {judged.method}"


def _untried(climb: _Climb, switch: Switch, reason: str, switches: tuple[str, ...] | None = None) -> Rung:
    climb.say(f"{switch.name}: {reason}")
    return Rung(
        name=switch.name,
        about=switch.about,
        switches=switches or _named((*climb.best, switch.name)),
        launch=climb.best_launch,
        kept=False,
        reason=reason,
        times=None,
        gain=None,
        parity=None,
        share_of_busy={},
        share_of_wall={},
        busy_us=None,
    )


# --- what remains addressable on a rung -------------------------------------------------------------------------


def _note_rung(climb: _Climb, rung: Rung, account: Future[_Share] | None) -> None:
    climb.rungs.append(rung)
    climb.accounts.append(account)


def _profiled(climb: _Climb, name: str, step_us: float, *, beside: bool = True) -> Future[_Share] | None:
    """A short trace of the arm on the bench, accounted for while the climb goes on; None where there is none."""
    if not climb.plan.profiled:
        return None
    path = climb.folder / f"{len(climb.rungs)}-{name}.json.gz"
    try:
        climb.asked.ask(measure.profile_beside if beside else measure.profile_best, _rung_steps(step_us), path)
    except Lost as lost:
        climb.notes.append(f"{name} was not profiled: {lost}")
        if climb.asked.lost or "CUDA" in str(lost):
            _reopen(climb)
        return None
    return climb.accountant.submit(_share, path, climb.plan.options, step_us)


def _rung_steps(step_us: float) -> int:
    return RUNG_STEPS if step_us < LONG_STEP_US else 1


def _share(path: Path, options: Options, step_us: float) -> _Share:
    run = build_run(read_trace(path), replace(options, wall_ms=step_us / 1e3), kind="ladder")
    path.unlink()
    by_policy = run.addressable.by_policy
    return _Share(
        share_of_busy={name: share.share_of_busy for name, share in by_policy.items()},
        share_of_wall={name: share.share_of_wall for name, share in by_policy.items()},
        busy_us=run.accounts.busy_us,
    )


def _with_share(rung: Rung, future: Future[_Share] | None) -> Rung:
    if future is None:
        return rung
    share = future.result()
    return replace(rung, share_of_busy=share.share_of_busy, share_of_wall=share.share_of_wall, busy_us=share.busy_us)


# --- compilers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A compiler on top of some rewrites."""

    switch: Switch
    arm: Arm
    outputs: Path | None


@dataclass(slots=True, kw_only=True)
class _Compiled:
    """A compiled arm's rung, and what remains addressable on it."""

    rung: Rung
    account: Future[_Share] | None = None


def _try_compilers(climb: _Climb) -> None:
    """Each compiler on the rewrites, on the plain model, on the rewrites less one; the fastest is kept if it helps."""
    wanted = []
    for switch in climb.switches:
        if switch.stage is not Stage.COMPILE:
            continue
        why_not = _why_not(climb, switch)
        if not why_not and switch.slow and not (climb.plan.max_autotune or switch.name in climb.plan.only):
            why_not = "it compiles for minutes; --max-autotune tries it"
        if why_not:
            _note_rung(climb, _untried(climb, switch, why_not), None)
        else:
            wanted.append(switch)
    _drop(climb)
    candidates = _candidates(climb, wanted)
    measured: list[_Compiled] = []
    size = max(1, climb.live - 1)
    for begin in range(0, len(candidates), size):
        measured += _compiled_group(climb, candidates[begin : begin + size])
    _keep_fastest(climb, measured)


def _drop(climb: _Climb) -> None:
    """Give back the memory of what was tried last."""
    try:
        climb.asked.ask(measure.drop)
    except Lost:
        _reopen(climb)


def _candidates(climb: _Climb, switches: Sequence[Switch]) -> list[_Candidate]:
    """Which rewrites each compiler is tried on: all kept, none, and for the first compiler all but one as well."""
    kept = climb.best
    model = [name for name in kept if arms.find(name).stage is Stage.MODEL]
    configuration_only = tuple(name for name in kept if name not in model)
    sets = list(dict.fromkeys([kept, configuration_only, ()]))
    found: list[_Candidate] = []
    for place, switch in enumerate(switches):
        of_this = list(sets)
        if place == 0 and len(model) > 1:
            of_this += _less_one(kept, model)[:MOST_LEFT_OUT]
        for rewrites in dict.fromkeys(of_this):
            launch = EAGER if switch.own_graph or climb.best_launch == EAGER else GRAPH
            name = f"{switch.name} on {_of(rewrites, kept)}"
            outputs = climb.folder / f"outputs-compiled-{len(found)}-{place}" if climb.plan.judged else None
            arm = Arm(name=name, switches=_named((*rewrites, switch.name)), launch=launch)
            found.append(_Candidate(switch=switch, arm=arm, outputs=outputs))
    return found


def _less_one(kept: tuple[str, ...], model: Sequence[str]) -> list[tuple[str, ...]]:
    """The rewrites without one of the model's, where no other needs it; the last kept is left out first."""
    needed = {need for name in kept for need in arms.find(name).needs}
    return [tuple(name for name in kept if name != left) for left in reversed(model) if left not in needed]


def _of(rewrites: tuple[str, ...], kept: tuple[str, ...]) -> str:
    if not rewrites:
        return "the plain model"
    if rewrites == kept:
        return "all rewrites kept"
    left = [name for name in kept if name not in rewrites]
    return f"the rewrites without {', '.join(left)}"


def _compiled_group(climb: _Climb, candidates: Sequence[_Candidate]) -> list[_Compiled]:
    """Candidates that live at once, timed in turns with the best so far on the bench."""
    orders = [
        Order(
            name=each.arm.name,
            prepare=measure.hold,
            arguments=(climb.job, each.arm, each.outputs),
            timeout=climb.plan.switch_timeout_s * (4 if each.switch.slow else 1),
        )
        for each in candidates
    ]
    climb.say(f"compiling {len(orders)} arms side by side")
    workers, lost = measure.start_all(orders, len(orders))
    climb.say(f"timing {len(workers)} compiled arms in turns with the best so far")
    blocks, lost_later = _in_turns_with_best(climb, workers)
    lost |= lost_later
    best = Arm(name=BEST_SO_FAR, switches=climb.best, launch=climb.best_launch)
    found: list[_Compiled] = []
    for each in candidates:
        if each.arm.name in blocks and BEST_SO_FAR in blocks:
            before = _times(climb, best, blocks[BEST_SO_FAR], None, None)
            rung = _compiled_rung(climb, each, workers[each.arm.name], blocks[each.arm.name], before)
        else:
            rung = _untried(climb, each.switch, lost.get(each.arm.name, "the best so far was lost"), each.arm.switches)
            rung = replace(rung, name=each.arm.name)
        found.append(_Compiled(rung=rung))
    _profile_compiled(climb, found, workers)
    measure.end_all(workers.values())
    return found


def _in_turns_with_best(
    climb: _Climb, workers: Mapping[str, Worker]
) -> tuple[dict[str, list[list[float]]], dict[str, str]]:
    """Blocks of the workers and of the best so far on the bench; once more where the bench is lost on the way."""
    estimates = {name: worker.said.estimate_us for name, worker in workers.items()}
    estimates[BEST_SO_FAR] = _median_of_best(climb)
    steps = {
        name: measure.steps_of_block(us, climb.plan.block_us, measure.FEWEST_SCREENED) for name, us in estimates.items()
    }
    for _ in range(2):
        everyone = {BEST_SO_FAR: climb.asked, **workers}
        blocks, lost = measure.take_turns(everyone, steps, climb.plan.rounds, {BEST_SO_FAR: measure.block_of_best})
        if BEST_SO_FAR not in lost:
            break
        _reopen(climb)
    return blocks, lost


def _profile_compiled(climb: _Climb, measured: list[_Compiled], workers: Mapping[str, Worker]) -> None:
    """Profile the fastest that may be kept, and the plain model compiled; the profiler takes seconds a process."""
    if not climb.plan.profiled:
        return
    best = _fastest(measured)
    for each in measured:
        plain = each.rung.times is not None and each.rung.switches == (COMPILE,)
        if each is not best and not plain:
            continue
        assert each.rung.times is not None, "it was timed"
        path = climb.folder / f"{len(climb.rungs)}-compiled-{measured.index(each)}.json.gz"
        try:
            workers[each.rung.name].ask(measure.profile, _rung_steps(each.rung.times.median_us), path)
        except Lost as lost:
            climb.notes.append(f"{each.rung.name} was not profiled: {lost}")
            continue
        each.account = climb.accountant.submit(_share, path, climb.plan.options, each.rung.times.median_us)


def _median_of_best(climb: _Climb) -> float:
    kept = [rung for rung in climb.rungs if rung.kept and rung.times is not None]
    assert kept[-1].times is not None, "the base was timed"
    return kept[-1].times.median_us


def _compiled_rung(
    climb: _Climb, candidate: _Candidate, worker: Worker, blocks: list[list[float]], best: ArmTimes
) -> Rung:
    try:
        issued = worker.ask(measure.host)
    except Lost:
        issued = None
    times = _times(climb, candidate.arm, blocks, worker.said.peak_bytes, issued)
    gain = measure.gain(best, times, climb.noise_floor)
    judged = _parity(climb, candidate.outputs, candidate.switch.exact)
    rung = Rung(
        name=candidate.arm.name,
        about=candidate.switch.about,
        switches=candidate.arm.switches,
        launch=candidate.arm.launch,
        kept=False,
        reason=_reason(gain, judged),
        times=times,
        gain=gain,
        parity=judged,
        share_of_busy={},
        share_of_wall={},
        busy_us=None,
    )
    climb.say(f"{rung.name}: {times.median_us:.1f} us, best so far {best.median_us:.1f}")
    return rung


def _may_be_kept(rung: Rung) -> bool:
    helps = rung.gain is not None and measure.helps(rung.gain)
    return helps and (rung.parity is None or rung.parity.passed is not False)


def _fastest(measured: Sequence[_Compiled]) -> _Compiled | None:
    """The compiled arm that gains most of those that help and pass.

    Of arms that cannot be told from it the first tried, and rather one whose graph we hold: its kernels can be seen.
    """
    good = [each for each in measured if _may_be_kept(each.rung)]
    most = max((_speedup(each) for each in good), default=0.0)
    level = [each for each in good if _speedup(each) >= most / (1.0 + stats.SAME_MARGIN)]
    return min(level, key=lambda each: any(arms.find(name).own_graph for name in each.rung.switches), default=None)


def _speedup(compiled: _Compiled) -> float:
    return compiled.rung.gain.speedup if compiled.rung.gain is not None else 0.0


def _keep_fastest(climb: _Climb, measured: Sequence[_Compiled]) -> None:
    """Of the compiled arms that help and pass, the fastest against the best so far is kept (see `_fastest`)."""
    best = _fastest(measured)
    for each in measured:
        reason = each.rung.reason
        if best is not None and each is not best and _may_be_kept(each.rung):
            still = "as fast" if _speedup(each) >= _speedup(best) / (1.0 + stats.SAME_MARGIN) else "faster still"
            reason = f"{reason}; {best.rung.name} is {still}"
        _note_rung(climb, replace(each.rung, kept=each is best, reason=reason), each.account)
    if best is not None:
        climb.best, climb.best_launch = best.rung.switches, best.rung.launch


# --- the final comparison ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Final:
    """What the arms gave on samples that nothing was chosen by."""

    arms: tuple[ArmTimes, ...] = ()
    gains: tuple[Gain, ...] = ()
    noise_floor: float | None = None
    ceilings: tuple[Ceiling, ...] = ()
    notes: list[str] = field(default_factory=list)
    base_trace: Path | None = None
    best_trace: Path | None = None


def _final(climb: _Climb, directory: Path | None) -> _Final:
    """eager, eager + graph, compile + graph, best-library and a second instance of it, in processes of their own."""
    final = _Final()
    wanted = _final_arms(climb, final)

    def visit(workers: Mapping[str, Worker], series: Mapping[str, measure.Series]) -> None:
        if directory is not None:
            _record(climb, final, workers, series, directory)
        if climb.plan.ceilings and not climb.on_cpu:
            final.ceilings += _ceilings(climb, final, [arm.name for arm in wanted], workers)

    series = measure.measure_arms(
        climb.job,
        wanted,
        processes=climb.plan.processes,
        rounds=climb.plan.rounds,
        at_once=climb.live,
        timeout=climb.plan.switch_timeout_s,
        visit=visit,
        progress=climb.say,
        block_us=climb.plan.block_us,
    )
    if climb.live < len(wanted):
        final.notes.append(f"only {climb.live} processes fit at once, so not all arms took turns with all others")
    _conclude(climb, final, wanted, series)
    return final


def _final_arms(climb: _Climb, final: _Final) -> list[Arm]:
    graph = GRAPH if not climb.why_no_graph and not climb.on_cpu else EAGER
    wanted = [Arm(name=BASE)]
    if graph == GRAPH:
        wanted.append(Arm(name=BASE_GRAPH, launch=GRAPH))
    if any(switch.name == COMPILE for switch in climb.switches):
        name = COMPILE_GRAPH if graph == GRAPH else COMPILE
        wanted.append(Arm(name=name, switches=(COMPILE,), launch=graph))
    else:
        final.notes.append("torch.compile was left out by --only or --skip, so there is no arm of it")
    best = Arm(name=BEST, switches=climb.best, launch=climb.best_launch)
    return [*wanted, best, replace(best, name=AGAIN)]


def _record(
    climb: _Climb,
    final: _Final,
    workers: Mapping[str, Worker],
    series: Mapping[str, measure.Series],
    directory: Path,
) -> None:
    """The traces of base and best, with the walls that were just taken."""
    title = capture.title(climb.job.configuration)
    for name, folder, launched in (
        (BASE, directory, series.get(BASE_GRAPH)),
        (BEST, directory / BEST, series[BEST] if climb.best_launch == GRAPH else None),
    ):
        if name not in workers:
            continue
        climb.say(f"profiling {name}")
        of_arm = measure.arm_times(series[name], on_cpu=climb.on_cpu)
        graph = measure.arm_times(launched, on_cpu=climb.on_cpu) if launched is not None else None
        why_no_graph = climb.why_no_graph or "this arm is launched eagerly"
        switches = ", ".join(climb.best) or "no switch"
        notes = () if name == BASE else (f"best-library: {switches}; profiled as launched eagerly",)
        wall = measure.wall_of(of_arm, graph, why_no_graph, climb.on_cpu)
        try:
            states = (workers[name].ask(measure.state, "after"),)
            workers[name].ask(
                measure.profile,
                climb.job.configuration.steps,
                folder / recorder.TRACE,
                title=title if name == BASE else f"{title} {BEST}",
                wall=wall,
                states=states,
                notes=notes,
                dataflow=climb.plan.options.device_model is not None,
            )
        except Lost as lost:
            final.notes.append(f"{name} was not profiled: {lost}")
            continue
        if name == BASE:
            final.base_trace = folder / recorder.TRACE
        else:
            final.best_trace = folder / recorder.TRACE


def _ceilings(climb: _Climb, final: _Final, names: Sequence[str], workers: Mapping[str, Worker]) -> tuple[Ceiling, ...]:
    """What each arm would cost if its replaceable kernels were free, measured on its own graph."""
    from addrfrac import ladder_ceilings

    found: list[Ceiling] = []
    for called, either in {"eager": (BASE_GRAPH, BASE), "compile": (COMPILE_GRAPH, COMPILE), BEST: (BEST,)}.items():
        name = next((name for name in either if name in names), None)
        if name is None or name not in workers:
            continue
        climb.say(f"ceiling of {name}")
        try:
            found.append(workers[name].ask(ladder_ceilings.of_held, called, climb.plan.options))
        except Lost as lost:
            final.notes.append(f"no ceiling of {name}: {lost}")
    return tuple(found)


def _conclude(climb: _Climb, final: _Final, wanted: Sequence[Arm], series: Mapping[str, measure.Series]) -> None:
    names = [arm.name for arm in wanted]
    times = {}
    for arm in wanted:
        taken = measure.arm_times(series[arm.name], [name for name in names if name != arm.name], climb.on_cpu)
        if taken is not None:
            times[arm.name] = taken
        for why in dict.fromkeys(series[arm.name].lost):
            final.notes.append(f"a process of {arm.name} was lost: {why}")
    if BASE not in times:
        raise AddrfracError(f"the base could not be measured: {'; '.join(series[BASE].lost)}")
    if BEST in times and AGAIN in times:
        final.noise_floor = stats.noise_between(times[BEST].blocks_us, times[AGAIN].blocks_us)
    final.arms = tuple(each for name, each in times.items() if name != AGAIN)
    if BEST in times:
        others = [name for name in times if name not in (BEST, AGAIN)]
        final.gains = tuple(measure.gain(times[name], times[BEST], final.noise_floor) for name in others)
    for gain in final.gains:
        climb.say(_in_words(gain))
        if gain.speedup < 1 - stats.SAME_MARGIN:
            final.notes.append(f"the arm chosen on the way is slower than {gain.before} on fresh samples")


# --- the command ------------------------------------------------------------------------------------------------


def run_request(request: Request, progress: Progress) -> Outcome:
    """Climb for every configuration asked for, save the runs and say where. Raises AddrfracError."""
    from addrfrac.environment import has_cuda
    from addrfrac.profiling import slug

    workload = registry.find_workload(request.workload)
    device = request.device or ("cuda" if has_cuda() else "")
    if device not in ("cuda", "cpu") or (device == "cuda" and not has_cuda()):
        raise AddrfracError("no CUDA device here, and a ladder is measured; use --device cpu to see how it goes")
    asked = {**request.fields, "device": device}
    configurations = registry.configurations(workload, request.batches, request.seq_lens, **asked)
    runs: list[Run] = []
    lines: list[str] = []
    for configuration in configurations:
        folder = request.directory or Path("runs") / f"ladder-{slug(configuration)}"
        if request.directory is not None and len(configurations) > 1:
            folder = request.directory / slug(configuration)
        if request.warm_caches:
            found = ladder(request.workload, configuration, plan=_warm(request.plan), progress=progress)
            lines.append(f"warmed    {capture.title(configuration)}: {'; '.join(found.ladder.notes[-1:])}")
            continue
        found = ladder(request.workload, configuration, plan=request.plan, directory=folder, progress=progress)
        run, files = _save(request, found, folder)
        runs.append(run)
        lines += files
    return Outcome(runs=tuple(runs), files=tuple(lines))


def _warm(plan: Plan) -> Plan:
    """The same climb, which compiles the same and measures next to nothing.

    Parity is judged all the same: a training step is compiled once more for it, without dropout.
    """
    return replace(plan, processes=1, rounds=1, block_us=5_000.0, profiled=False, ceilings=False)


def _save(request: Request, found: Found, folder: Path) -> tuple[Run, list[str]]:
    """run.json and report.html of the base with its ladder, and the same of best-library beside it."""
    from addrfrac.report import render

    if found.base_trace is None:
        raise AddrfracError("the base could not be profiled: " + "; ".join(found.ladder.notes))
    options = request.plan.options
    run = replace(build_run(read_trace(found.base_trace), options, kind="ladder"), ladder=found.ladder)
    store.save(run, folder / "run.json")
    store.write_whole(folder / "report.html", render([run], "html").encode())
    lines = [f"saved     {folder / 'run.json'}, {folder / 'report.html'}"]
    if found.best_trace is not None:
        best = build_run(read_trace(found.best_trace), options, kind="profile")
        store.save(best, folder / BEST / "run.json")
        lines.append(f"best      {folder / BEST / 'run.json'}")
    return run, [*lines, f"again     addrfrac report {folder / 'run.json'}"]


# --- for later commands -----------------------------------------------------------------------------------------


def best_library(source: Path | Run) -> tuple[tuple[str, ...], str]:
    """The switches and the launch of the arm best-library, from a saved ladder. Raises AddrfracError without one."""
    run = store.load(source) if isinstance(source, Path) else source
    if run.ladder is None:
        raise AddrfracError(
            f"{source if isinstance(source, Path) else run.title} holds no ladder; run `addrfrac ladder`"
        )
    return run.ladder.best, run.ladder.best_launch
