"""A workload and kernels in, what they are worth in it out: decided site by site, proved, measured beside all arms."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from addrfrac import arms, capture, environment, measure, parity, recorder, registry, stats, store
from addrfrac.analysis import Options, build_run
from addrfrac.arms import EAGER, GRAPH, Arm, Job
from addrfrac.errors import AddrfracError
from addrfrac.measure import Held, Lost, Order, Worker
from addrfrac.parse import read_trace
from addrfrac.records import (
    Applied,
    ArmTimes,
    Configuration,
    Difference,
    Floors,
    Parity,
    Run,
    SiteDecision,
    Workload,
)
from addrfrac.substitution import accounts
from addrfrac.substitution.accounts import (
    BEST,
    CAPTURED,
    COMPILE,
    EAGER_ARM,
    KERNELS,
    LIBRARY_SITES,
    RE_ROUTED,
    SUBSTITUTED,
)
from addrfrac.switches.switch import Stage
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

    from addrfrac.substitution.decide import Engagement, Findings
    from addrfrac.substitution.session import Session
    from addrfrac.substitution.verdicts import Answer, Question

AGAIN = " again"
DECIDER_TIMEOUT_S = 900.0
PROFILE_TIMEOUT_S = 300.0
PROFILED_STEPS = 3
"""Of arms whose launches are counted and whose difference is explained."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How kernels are applied and measured."""

    kernels: tuple[str, ...] = ("auto",)
    """'auto', names, files and folders."""
    base: str = EAGER_ARM
    """'eager', 'compiled' or 'best-library': what the kernels are put into."""
    ladder: Path | None = None
    """A saved ladder that says what best-library is."""
    processes: int = measure.PROCESSES
    rounds: int = measure.BLOCKS
    block_us: float = measure.BLOCK_US
    at_once: int | None = None
    need_gain: bool | None = None
    """None: on a GPU a kernel must be faster at its site; on a CPU, where the interpreter runs it, it need not."""
    use_cache: bool = True
    timeout_s: float = 300.0
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an arm's process does to its model; can be sent to it."""

    kernels: tuple[str, ...] = ()
    worth: Mapping[str, float] = field(default_factory=dict)
    """Key of a site -> microseconds; sites that are not in it stay as they are."""
    base: str = EAGER
    aligned: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    """Key of a site -> which of its tensors lay aligned when it was judged; other calls fall back and are counted."""
    binaries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kernel -> digests of the binaries that were judged; where it runs another, its sites fall back."""


# --- in a worker ------------------------------------------------------------------------------------------------

_session: list[Session] = []
"""Of the arm that this process holds."""
_unlisted: dict[str, int] = {}
"""Kernel -> sites of that arm that stay as they were, because it made a binary that was not judged."""


def prepared(recipe: Recipe, arm: Arm, workload: Workload, configuration: Configuration, device: torch.device) -> Step:
    """The step with its model captured and the recipe's kernels in it; `Arm.source` takes it with a recipe bound."""
    step = arms.prepare(workload, configuration, arm.switches, device, arm.launch)
    session = _install(recipe, step)
    if recipe.worth:
        step.run()  # graphs and sites fill
        _unlisted.clear()
        _unlisted.update(hold_to_what_was_judged(session, recipe))
    return step


def hold_to_what_was_judged(session: Session, recipe: Recipe) -> dict[str, int]:
    """Let calls in other memory fall back, and take out kernels that made another binary: kernel -> its sites."""
    from addrfrac.substitution import binaries, operators

    for place in session.chosen:
        if place.site.key in recipe.aligned:
            operators.frozen[place.number] = recipe.aligned[place.site.key]
    chosen = {place.site.kernel: place.match.kernel for place in session.chosen}
    other = {
        name
        for name, kernel in chosen.items()
        if recipe.binaries.get(name) and not set(binaries.of_kernel(kernel)) <= set(recipe.binaries[name])
    }
    if not other:
        return {}
    lost = {name: sum(place.site.kernel == name for place in session.chosen) for name in other}
    session.rebuild(lambda site: None if site.kernel in other else recipe.worth.get(site.key))
    return lost


def _install(recipe: Recipe, step: Step) -> Session:
    import torch

    from addrfrac.substitution.pool import find_kernels
    from addrfrac.substitution.session import Session
    from addrfrac.substitution.swap import install

    if not isinstance(step.model, torch.nn.Module):
        raise AddrfracError("this step does not say which torch module it runs (Step.model), so nothing can be put in")
    capture.fresh_compiler()
    session = Session(kernels=find_kernels(recipe.kernels) if recipe.kernels else (), base=recipe.base)
    session.value = lambda site: recipe.worth.get(site.key)
    install(step.model, session)
    _session[:] = [session]
    return session


@dataclass(slots=True, kw_only=True)
class Decider:
    """A captured step, its sites, and what is known of them."""

    job: Job
    step: Step
    configuration: Configuration
    device: torch.device
    session: Session
    findings: Findings
    asked: list[Question]

    def first_answer(self) -> Captured:
        """What the parent must know to have the sites verified."""
        from addrfrac.substitution.verdicts import machine

        held, free = 0, None
        if self.device.type == "cuda":
            import torch

            held = int(torch.cuda.max_memory_reserved(self.device))
            free = int(torch.cuda.mem_get_info(self.device)[0])
        return Captured(
            questions=tuple(self.asked),
            sites=len(self.session.places),
            graphs=len(self.session.graphs),
            where=machine(self.device.type),
            held_bytes=held,
            free_bytes=free,
            capturable=self.step.capturable and self.device.type == "cuda",
            why_not=self.step.why_not if self.device.type == "cuda" else "CUDA graphs need a CUDA device",
            trains=self.step.optimizer is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a decider found before anything was verified."""

    questions: tuple[Question, ...]
    sites: int
    graphs: int
    where: str
    """The device and versions that verdicts hold for."""
    held_bytes: int
    free_bytes: int | None
    capturable: bool
    why_not: str
    trains: bool


def capture_sites(job: Job, arm: Arm, kernels: tuple[str, ...]) -> Decider:
    """Build the step, capture it, find its sites and the values that each group gets."""
    from addrfrac.substitution import decide

    workload = registry.find_workload(job.workload)
    device = environment.torch_device(job.device)
    if device.type == "cuda":
        import torch

        torch.cuda.set_device(device)
    configuration = arms.configured(job.configuration, arm.switches, arm.launch)
    with arms.settings(configuration):
        step = arms.prepare(workload, job.configuration, arm.switches, device, arm.launch)
        session = _install(Recipe(kernels=kernels), step)
        findings = decide.capture(session, step.run)
        asked = decide.questions(session, findings)
    return Decider(
        job=job,
        step=step,
        configuration=configuration,
        device=device,
        session=session,
        findings=findings,
        asked=asked,
    )


def decide_sites(decider: Decider, answers: Mapping[str, Answer], need_gain: bool, compiled: bool) -> Decided:
    """Judge and time the sites on the step's own values, against Inductor's code where the model is compiled."""
    from addrfrac.substitution import binaries, decide, operators

    decider.findings.answers = dict(answers)
    with arms.settings(decider.configuration):
        timed = need_gain or decider.device.type == "cuda"  # the interpreter's times say nothing
        decide.try_places(
            decider.session, decider.step.run, decider.findings, decider.device, clock=timed, compiled=compiled
        )
    decisions = decide.decided(decider.session, decider.findings, need_gain=need_gain)
    places = decider.session.chosen
    made = {place.site.kernel: binaries.of_kernel(place.match.kernel) for place in places}
    return Decided(
        decisions=decisions,
        notes=tuple(decider.session.notes),
        aligned={
            place.site.key: operators.frozen[place.number] for place in places if place.number in operators.frozen
        },
        binaries={name: found for name, found in made.items() if found},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a decider decided, and what an arm is held to."""

    decisions: tuple[SiteDecision, ...]
    notes: tuple[str, ...]
    """What could not be captured."""
    aligned: Mapping[str, tuple[bool, ...]]
    """By key of the site."""
    binaries: Mapping[str, tuple[str, ...]]
    """By kernel; none where the interpreter runs."""


def count_engagement(held: Held, steps: int = 2) -> Engagement:
    """Calls of the arm's kernels, site by site, in steps launched one by one."""
    from addrfrac.substitution import decide

    with arms.settings(held.configuration):
        return decide.engagement(_session[0], held.step.run, steps)


def what_is_left_alone(held: Held) -> tuple[int, dict[str, int]]:
    """Graphs of the arm that were captured, and kernels whose sites fell back for another binary."""
    return len(_session[0].graphs), dict(_unlisted)


def record_outputs(job: Job, arm: Arm, recipe: Recipe | None, path: Path) -> str:
    """Leave the outputs of the step's first runs in a file, with the recipe's kernels in it or without."""
    workload = registry.find_workload(job.workload)
    device = environment.torch_device(job.device)
    configuration = arms.configured(job.configuration, arm.switches, arm.launch)
    found: list[parity.Inputs] = []

    def note_inputs(step: Step) -> None:
        found.append(parity.find_inputs(step))

    with arms.settings(configuration):
        step = arms.prepare(workload, job.configuration, arm.switches, device, arm.launch, before_compiling=note_inputs)
        if recipe is not None:
            _install(recipe, step)
        parity.record(step, found[0], training=step.optimizer is not None, extra_runs=0, path=path)
    return ""


# --- the parent -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Work:
    """Where an application stands."""

    job: Job
    plan: Plan
    folder: Path
    progress: Progress
    switches: tuple[str, ...]
    """Of best-library, the compiler included; () for other bases."""
    launch: str = EAGER
    began: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    captured: Captured | None = None
    decided: Decided | None = None
    judged: Parity | None = None
    base_trace: Path | None = None
    library_trace: Path | None = None
    """Of the step with the control's library calls, where these are not the base's: floors are taken of it."""
    profiles: dict[str, Path] = field(default_factory=dict)
    """Arm -> trace, of those whose difference is explained."""
    counted: Engagement | None = None
    unlisted: dict[str, int] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds."""
    traced: dict[str, float] = field(default_factory=dict)
    """Name of a Triton kernel -> launches a step in the trace of the substituted model."""

    def say(self, line: str) -> None:
        self.progress(f"[{time.monotonic() - self.began:5.1f} s] {line}")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say that a stage begins and, however it ends, what it took: a run that is cut off tells where it was."""
        self.say(name)
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.stages[name] = self.stages.get(name, 0.0) + took
            self.say(f"{name}: {took:.1f} s")

    @property
    def decisions(self) -> tuple[SiteDecision, ...]:
        return self.decided.decisions if self.decided is not None else ()

    @property
    def on_cpu(self) -> bool:
        return self.job.device == "cpu"

    @property
    def rewrites(self) -> tuple[str, ...]:
        """The switches without the compiler, which would hide what it compiles."""
        return tuple(name for name in self.switches if arms.find(name).stage is not Stage.COMPILE)

    @property
    def recipe(self) -> Recipe:
        from addrfrac.substitution.decide import values_of

        assert self.decided is not None, "there is no recipe before"
        return Recipe(
            kernels=self.plan.kernels,
            worth=values_of(self.decisions),
            aligned=self.decided.aligned,
            binaries=self.decided.binaries,
        )


def apply(
    workload: str,
    configuration: Configuration,
    *,
    plan: Plan | None = None,
    directory: Path | None = None,
    progress: Progress,
) -> tuple[Applied, Path | None]:
    """Put kernels into the workload's model and measure what they are worth; and the trace of the base, if any.

    Raises AddrfracError where the base itself cannot be run or captured.
    """
    from addrfrac.substitution.pool import find_kernels

    plan = plan or Plan()
    if configuration.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before any process that will import triton is started
    find_kernels(plan.kernels)
    job = Job(workload=workload, configuration=replace(configuration, execution=EAGER), device=configuration.device)
    with TemporaryDirectory(prefix="addrfrac-apply-") as scratch:
        work = _Work(job=job, plan=plan, folder=Path(scratch), progress=progress, switches=_switches_of_base(plan))
        work.launch = EAGER if work.on_cpu else GRAPH
        _decide(work)
        _judge(work)
        series = _measure(work, directory)
        return _conclude(work, series), work.base_trace


def _switches_of_base(plan: Plan) -> tuple[str, ...]:
    if plan.base != BEST:
        return ()
    if plan.ladder is None:
        raise AddrfracError("--base best-library: say which ladder found it, as --ladder RUN.json (addrfrac ladder)")
    from addrfrac.ladder import best_library

    return best_library(plan.ladder)[0]


def _decide(work: _Work) -> None:
    from addrfrac.substitution import verdicts

    arm = Arm(name="decider", switches=work.rewrites, launch=work.launch)
    order = Order(
        name="decider",
        prepare=capture_sites,
        arguments=(work.job, arm, work.plan.kernels),
        timeout=DECIDER_TIMEOUT_S,
    )
    with work.stage("capturing the model"):
        workers, lost = measure.start_all([order], 1)
    if lost:
        raise AddrfracError(f"{capture.title(work.job.configuration)} cannot be captured: {lost['decider']}")
    decider = workers["decider"]
    try:
        said: Captured = decider.said
        work.captured = said
        if not said.capturable:
            work.launch = EAGER
            if not work.on_cpu:
                work.notes.append(f"no CUDA graphs: {said.why_not}")
        work.say(f"{said.sites} sites in {said.graphs} graphs, {len(said.questions)} groups of them to verify")
        with work.stage("verifying groups of sites"):
            answers = verdicts.asked(
                said.questions,
                work.job.device,
                use_cache=work.plan.use_cache,
                where=said.where,
                progress=work.say,
            )
        gain = not work.on_cpu if work.plan.need_gain is None else work.plan.need_gain
        with work.stage("judging and timing each site on its own values"):
            work.decided = decider.ask(decide_sites, answers, gain, _compiled(work), timeout=DECIDER_TIMEOUT_S)
        assert work.decided is not None, "it was just answered"
        work.notes += work.decided.notes
    except Lost as why:
        raise AddrfracError(f"the sites could not be decided on: {why}") from None
    finally:
        decider.end()
    work.say(f"{sum(each.substituted for each in work.decisions)} sites get a kernel")


def _judge(work: _Work) -> None:
    """Parity of the substituted model against the eager base, both against a run in higher precision."""
    if not any(each.substituted for each in work.decisions):
        return
    base, ours, truth = (work.folder / name for name in ("base", "substituted", "truth"))
    eager = Arm(name="base", launch=EAGER)
    arm = Arm(name=SUBSTITUTED, switches=work.rewrites, launch=work.launch)
    orders = [
        Order(name="base", prepare=record_outputs, arguments=(work.job, eager, None, base), timeout=DECIDER_TIMEOUT_S),
        Order(
            name="substituted",
            prepare=record_outputs,
            arguments=(work.job, arm, work.recipe, ours),
            timeout=DECIDER_TIMEOUT_S,
        ),
        Order(name="truth", prepare=measure.record_truth, arguments=(work.job, truth), timeout=DECIDER_TIMEOUT_S),
    ]
    with work.stage("comparing outputs"):
        workers, lost = measure.start_all(orders, _runs_at_once(work))
    why_no_truth = lost.get("truth", str(workers["truth"].said) if "truth" in workers else "")
    measure.end_all(workers.values())
    if "base" in lost or "substituted" in lost:
        work.notes.append(f"parity was not judged: {lost.get('substituted', lost.get('base'))}")
        return
    work.judged = parity.judge(
        base,
        ours,
        truth if truth.exists() and not why_no_truth else None,
        work.job.configuration,
        why_no_truth=why_no_truth,
        exact=True,
        language_model=registry.find_workload(work.job.workload).sample == "tokens"
        and not (work.captured is not None and work.captured.trains),
    )


def _runs_at_once(work: _Work) -> int:
    """All three side by side where the model fits that often: the truth may hold it in four times the bytes."""
    said = work.captured
    assert said is not None, "decided before"
    if said.free_bytes is None:
        return 1
    room = 6 * said.held_bytes + 3 * measure.CONTEXT_BYTES
    return 3 if room < measure.MEMORY_SHARE * (said.free_bytes + said.held_bytes) else 1


def _arms(work: _Work) -> list[Arm]:
    """All arms, by what was asked and what the device can do."""
    launch, rewrites = work.launch, work.rewrites
    suffix = " + graph" if launch == GRAPH else ""
    wanted = [Arm(name=EAGER_ARM)]
    if launch == GRAPH:
        wanted.append(Arm(name=EAGER_ARM + suffix, launch=launch))
    wanted.append(Arm(name=COMPILE + suffix, switches=("compile",), launch=launch))
    if work.switches:
        wanted.append(Arm(name=BEST, switches=work.switches, launch=_launch_of_best(work)))
    nothing = Recipe(base="compiled" if _compiled(work) else EAGER)
    if work.rewrites and (_compiled(work) or _launch_of_best(work) != launch):
        wanted.append(Arm(name=RE_ROUTED + suffix, switches=rewrites, launch=launch))
    wanted.append(Arm(name=CAPTURED + suffix, switches=rewrites, launch=launch, source=partial(prepared, nothing)))
    if any(each.substituted for each in work.decisions):
        recipe = work.recipe
        inside = Arm(name=SUBSTITUTED + suffix, switches=rewrites, launch=launch, source=partial(prepared, recipe))
        compiled = Arm(
            name=KERNELS + suffix,
            switches=rewrites,
            launch=launch,
            source=partial(prepared, replace(recipe, base="compiled")),
        )
        wanted += [inside, compiled]
        library = {each.site.key for each in work.decisions if each.site.library}
        if accounts.station_of_library_calls(work.decisions, "", suffix) == LIBRARY_SITES + suffix:
            calls = replace(
                recipe, base=nothing.base, worth={key: us for key, us in recipe.worth.items() if key in library}
            )
            wanted.append(replace(inside, name=LIBRARY_SITES + suffix, source=partial(prepared, calls)))
        chosen = compiled if _compiled(work) else inside
        wanted.append(replace(chosen, name=chosen.name + AGAIN))
    return wanted


def _compiled(work: _Work) -> bool:
    """The kernels are put into a compiled model: asked for, or because best-library is compiled."""
    return work.plan.base == "compiled" or len(work.rewrites) != len(work.switches)


def _launch_of_best(work: _Work) -> str:
    from addrfrac.ladder import best_library

    assert work.plan.ladder is not None, "the switches came from it"
    return work.launch if work.on_cpu else best_library(work.plan.ladder)[1]


def headline(work: _Work) -> str:
    """The arm that the report is about."""
    return (KERNELS if _compiled(work) else SUBSTITUTED) + (" + graph" if work.launch == GRAPH else "")


def _measure(work: _Work, directory: Path | None) -> Mapping[str, measure.Series]:
    assert work.captured is not None, "decided before"
    wanted = _arms(work)
    said = work.captured
    room = measure.CONTEXT_BYTES + said.held_bytes
    fits = 2 if said.free_bytes is None else int(measure.MEMORY_SHARE * (said.free_bytes + said.held_bytes) / room)
    at_once = work.plan.at_once or max(1, min(24, fits))

    def visit(workers: Mapping[str, Worker], series: Mapping[str, measure.Series]) -> None:
        with work.stage("counting calls and profiling"):
            _look(work, workers, series, directory)

    if at_once < len(wanted):
        work.notes.append(f"only {at_once} processes fit at once, so not all arms took turns with all others")
    with work.stage(f"measuring {len(wanted)} arms, at most {at_once} processes at once"):
        series = measure.measure_arms(
            work.job,
            wanted,
            processes=work.plan.processes,
            rounds=work.plan.rounds,
            at_once=at_once,
            timeout=work.plan.timeout_s,
            visit=visit,
            progress=work.say,
            block_us=work.plan.block_us,
        )
    with work.stage("profiling arms that were not alive at the end"):
        _catch_up(work, wanted, series, directory)
    return series


def _look(
    work: _Work, workers: Mapping[str, Worker], series: Mapping[str, measure.Series], directory: Path | None
) -> None:
    """All that is asked of arms beside their times, of those that are alive and were not asked yet."""
    if work.counted is None:
        _prove(work, workers)
    for name in _explained(work):
        if name in workers and name not in work.profiles:
            _profile(work, workers[name], name)
    if directory is not None and work.base_trace is None:
        _record(work, workers, series, directory)
    library = _library_arm(work)
    if library in workers and work.library_trace is None and work.plan.options.device_model is not None:
        work.library_trace = _profile(work, workers[library], library, dataflow=True)


def _explained(work: _Work) -> tuple[str, ...]:
    """The two arms whose difference is explained; none on a CPU, where the interpreter's time is not a kernel's."""
    ours = headline(work)
    return (ours.replace(SUBSTITUTED, CAPTURED).replace(KERNELS, CAPTURED), ours) if _substitutes(work) else ()


def _substitutes(work: _Work) -> bool:
    return any(each.substituted for each in work.decisions)


def _library_arm(work: _Work) -> str:
    """The arm with the control's library calls and no compiler; '' where the base has the same calls."""
    if not work.rewrites:
        return ""
    apart = _compiled(work) or _launch_of_best(work) != work.launch
    return RE_ROUTED + (" + graph" if work.launch == GRAPH else "") if apart else BEST


def _profile(work: _Work, worker: Worker, name: str, *, dataflow: bool = False) -> Path | None:
    """A trace of an arm, launched one by one; None where that failed, with a note."""
    path = work.folder / f"trace-{len(work.profiles)}-{'floors' if dataflow else 'steps'}.json.gz"
    try:
        worker.ask(measure.profile, PROFILED_STEPS, path, dataflow=dataflow, timeout=PROFILE_TIMEOUT_S)
    except Lost as lost:
        work.notes.append(f"{name} was not profiled: {lost}")
        return None
    if not dataflow:
        work.profiles[name] = path
    return path


def _catch_up(work: _Work, wanted: Sequence[Arm], series: Mapping[str, measure.Series], directory: Path | None) -> None:
    """Prove and profile in processes of their own where not all arms lived at once at the end."""
    for arm in wanted:
        proves = arm.name == headline(work) and work.counted is None
        explains = arm.name in _explained(work) and arm.name not in work.profiles
        profiles = arm.name == EAGER_ARM and work.base_trace is None and directory is not None
        floors = work.plan.options.device_model is not None and work.library_trace is None
        if not (proves or explains or profiles or (floors and arm.name == _library_arm(work))):
            continue
        if not series[arm.name].blocks:
            continue
        order = Order(name=arm.name, prepare=measure.hold, arguments=(work.job, arm), timeout=work.plan.timeout_s)
        workers, lost = measure.start_all([order], 1)
        work.notes += [f"{name} was lost before it could be profiled: {why}" for name, why in lost.items()]
        _look(work, workers, series, directory)
        measure.end_all(workers.values())


def _prove(work: _Work, workers: Mapping[str, Worker]) -> None:
    """Count the kernels' calls; on a GPU their launches in a trace of the substituted model too."""
    name = headline(work)
    if name not in workers:
        return
    try:
        work.counted = workers[name].ask(count_engagement)
        graphs, work.unlisted = workers[name].ask(what_is_left_alone)
    except Lost as lost:
        work.notes.append(f"{name}: the kernels' calls were not counted: {lost}")
        return
    if not graphs:
        work.notes.append(f"{name}: nothing of the model was captured")
    for kernel, sites in work.unlisted.items():
        work.notes.append(f"{kernel} fell back at {sites} sites: it made a device binary there that was not judged")
    if not work.on_cpu and _profile(work, workers[name], name) is not None:
        work.traced = _launches(work.profiles[name], work.plan.kernels, PROFILED_STEPS)


def _launches(path: Path, kernels: Sequence[str], steps: int) -> dict[str, float]:
    """Launches a step of each Triton kernel of the pool in a trace; its first step is only the lead-in."""
    from collections import Counter

    from addrfrac.substitution.pool import find_kernels

    trace = read_trace(path)
    names = Counter(trace.names[index] for index in trace.kernels.name.tolist())
    wanted = {name for kernel in find_kernels(kernels) for name in kernel.device_functions}
    return {name: count / (steps + 1) for name, count in names.items() if name in wanted}


def _record(work: _Work, workers: Mapping[str, Worker], series: Mapping[str, measure.Series], directory: Path) -> None:
    """The trace of the base, with the walls that were just taken."""
    if EAGER_ARM not in workers:
        return
    eager = measure.arm_times(series[EAGER_ARM], on_cpu=work.on_cpu)
    replayed = series.get(f"{EAGER_ARM} + graph")
    graph = measure.arm_times(replayed, on_cpu=work.on_cpu) if replayed is not None else None
    assert work.captured is not None, "decided before"
    try:
        states = (workers[EAGER_ARM].ask(measure.state, "after"),)
        workers[EAGER_ARM].ask(
            measure.profile,
            work.job.configuration.steps,
            directory / recorder.TRACE,
            title=capture.title(work.job.configuration),
            wall=measure.wall_of(eager, graph, work.captured.why_not or "it was not launched so", work.on_cpu),
            states=states,
            dataflow=work.plan.options.device_model is not None,
            timeout=PROFILE_TIMEOUT_S,
        )
    except Lost as lost:
        work.notes.append(f"the base was not profiled: {lost}")
        return
    work.base_trace = directory / recorder.TRACE


def _conclude(work: _Work, series: Mapping[str, measure.Series]) -> Applied:
    from addrfrac.substitution import decide

    times: dict[str, ArmTimes] = {}
    for name, each in series.items():
        taken = measure.arm_times(each, [other for other in series if other != name], work.on_cpu)
        if taken is not None:
            times[name] = taken
        work.notes += [f"a process of {name} was lost: {why}" for why in dict.fromkeys(each.lost)]
    if EAGER_ARM not in times:
        raise AddrfracError(f"the base could not be measured: {'; '.join(series[EAGER_ARM].lost)}")
    name = headline(work)
    noise = None
    if name in times and name + AGAIN in times:
        noise = stats.noise_between(times[name].blocks_us, times[name + AGAIN].blocks_us)
    decisions = decide.with_engagement(work.decisions, work.counted)
    applied = accounts.applied(
        kernels=work.plan.kernels,
        switches=work.switches,
        decisions=decisions,
        arms=[each for key, each in times.items() if not key.endswith(AGAIN)],
        headline=name,
        launch=work.launch,
        compiled=_compiled(work),
        noise_floor=noise,
        traced=work.traced,
        judged=work.judged,
        notes=(*dict.fromkeys(work.notes), _seconds(work)),
    )
    applied = replace(
        applied,
        binaries=dict(work.decided.binaries) if work.decided is not None else {},
        unlisted={name: float(sites) for name, sites in work.unlisted.items()},
    )
    applied = accounts.with_reach(applied, _floors_of(work))
    return replace(applied, differences=_differences(work, applied))


def _seconds(work: _Work) -> str:
    told = "; ".join(f"{name} {seconds:.0f}" for name, seconds in work.stages.items())
    return f"seconds of {time.monotonic() - work.began:.0f}: {told}"


def _floors_of(work: _Work) -> Floors | None:
    """Of the step with the control's library calls; those of the base where it has the same."""
    trace = work.library_trace or (None if _library_arm(work) else work.base_trace)
    if trace is None or work.plan.options.device_model is None:
        return None
    return build_run(read_trace(trace), work.plan.options, kind="apply").floors


def _differences(work: _Work, applied: Applied) -> tuple[Difference, ...]:
    names = _explained(work)
    if not names or any(name not in work.profiles for name in names):
        return ()
    looked = [build_run(read_trace(work.profiles[name]), work.plan.options, kind="apply").accounts for name in names]
    suffix = " + graph" if work.launch == GRAPH else ""
    times = {each.arm: each for each in applied.arms}
    measured = accounts.saved_by_sites(times, headline(work), suffix, applied.noise_floor)
    return accounts.differences(looked[0], looked[1], measured, applied.decisions, work.launch)


# --- the command ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac apply` as typed."""

    workload: str
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    fields: Mapping[str, Any]
    device: str | None
    plan: Plan
    directory: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request."""

    runs: tuple[Run, ...]
    files: tuple[str, ...]


def configurations(request: Request | Any, what: str) -> list[Configuration]:
    """Those that a request asks for. Raises AddrfracError without the device that it needs."""
    from addrfrac.environment import has_cuda

    workload = registry.find_workload(request.workload)
    device = request.device or ("cuda" if has_cuda() else "")
    if device not in ("cuda", "cpu") or (device == "cuda" and not has_cuda()):
        raise AddrfracError(f"no CUDA device here, and {what}; use --device cpu to see how it goes")
    asked = {**request.fields, "device": device}
    return registry.configurations(workload, request.batches, request.seq_lens, **asked)


def run_request(request: Request, progress: Progress) -> Outcome:
    """Apply for every configuration asked for, save the runs and say where. Raises AddrfracError."""
    from addrfrac.profiling import slug
    from addrfrac.report import render

    runs: list[Run] = []
    files: list[str] = []
    found = configurations(request, "kernels are measured")
    for configuration in found:
        folder = request.directory or Path("runs") / f"apply-{slug(configuration)}"
        if request.directory is not None and len(found) > 1:
            folder = request.directory / slug(configuration)
        folder.mkdir(parents=True, exist_ok=True)
        applied, trace = apply(request.workload, configuration, plan=request.plan, directory=folder, progress=progress)
        if trace is None:
            raise AddrfracError("the base could not be profiled: " + "; ".join(applied.notes))
        options = request.plan.options
        run = build_run(read_trace(trace), options, kind="apply")
        run = replace(run, applied=applied)
        store.save(run, folder / "run.json")
        store.write_whole(folder / "report.html", render([run], "html").encode())
        runs.append(run)
        files += [
            f"saved     {folder / 'run.json'}, {folder / 'report.html'}",
            f"again     addrfrac report {folder / 'run.json'}",
        ]
    return Outcome(runs=tuple(runs), files=tuple(files))
