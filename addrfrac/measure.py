"""Arms in, their step times and gains out: each arm in processes of its own, the device passed between them in turns.

A worker process prepares an arm and then idles; only the one that was asked last has work on the device. Questions are
functions of a module, called in the worker with what it holds, so that other stages can ask for what they need.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from addrfrac import (
    __version__,
    arms,
    capture,
    clock,
    dataflow_recording,
    environment,
    parity,
    recorder,
    registry,
    stats,
)
from addrfrac.arms import Arm, Job
from addrfrac.errors import brief
from addrfrac.records import ArmTimes, Capture, Configuration, DeviceState, Gain, Times, Verdict, Wall, Workload
from addrfrac.switches.switch import Stage
from addrfrac.verification.foreign import Raised, attempt
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

PRELOAD = (
    "torch",
    "torch._dynamo",
    "torchvision",
    "transformers",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "addrfrac.measure",
)
"""Imported once, by the server that workers are forked from; none of them touches a device."""
BLOCK_US = 40_000.0
FEWEST_STEPS, MOST_STEPS = 5, 200
FEWEST_SCREENED = 2
"""Steps of a block that only screens: what is kept is measured again."""
LEAD_STEPS, LEAD_US = 2, 20_000.0
"""At the start of a block so many steps, or one that takes so long, do not count: the device comes from another
process's work."""
WARM_UP_STEPS = 3
BLOCKS = 6
PROCESSES = 3
SET_UP_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 120.0
CONTEXT_BYTES = 1 << 30
"""A process's context, libraries and workspaces, beyond what torch's allocator holds."""
MEMORY_SHARE = 0.85

Progress = Callable[[str], None]


# --- in a worker ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Held:
    """An arm, prepared and warm, in the process that holds it."""

    job: Job
    arm: Arm
    workload: Workload
    configuration: Configuration
    """As built: with the switches of the configuration on."""
    device: torch.device
    step: Step
    run: Callable[[], object]
    """One step as the arm launches it."""
    estimate_us: float
    peak_bytes: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a worker says of the arm that it holds."""

    estimate_us: float
    peak_bytes: int | None
    held_bytes: int
    """That this process reserves on the device."""
    free_bytes: int | None
    """On the device, as seen from this process; None on a CPU."""
    capturable: bool
    why_not: str
    trains: bool
    notes: tuple[str, ...]


def hold(job: Job, arm: Arm, outputs: Path | None = None) -> Held:
    """Prepare an arm, judge nothing, time nothing: build, record its outputs where asked, warm up, capture.

    Outputs come first: they are of the first steps from the same weights, whatever the warm-up takes.
    """
    workload = registry.find_workload(job.workload)
    device = environment.torch_device(job.device)
    if device.type == "cuda":
        import torch

        torch.cuda.set_device(device)
    built_from = arms.configured(job.configuration, arm.switches, arm.launch)
    found: list[parity.Inputs] = []

    def note_inputs(step: Step) -> None:
        found.append(parity.find_inputs(step))

    with arms.settings(built_from):
        if arm.source is not None:
            step = arm.source(arm, workload, built_from, device)
        else:
            hook = note_inputs if outputs is not None else None
            step = arms.prepare(workload, job.configuration, arm.switches, device, arm.launch, before_compiling=hook)
        if outputs is not None:
            inputs = found[0] if found else parity.find_inputs(step)
            parity.record(step, inputs, training=step.optimizer is not None, extra_runs=0, path=outputs)
            capture.release_memory(device)  # what the outputs took is nothing that the step holds
        return _warmed(job, arm, workload, built_from, device, step)


def _warmed(
    job: Job, arm: Arm, workload: Workload, built_from: Configuration, device: torch.device, step: Step
) -> Held:
    for _ in range(WARM_UP_STEPS):
        step.run()
    if _compiles(arm):
        capture.compile_facts()
    clock.synchronise(device)
    clock.reset_peak(device)
    run = arms.launchable(step, arm.launch, device)
    estimate_us = min(_seconds(run, device) for _ in range(WARM_UP_STEPS)) * 1e6
    return Held(
        job=job,
        arm=arm,
        workload=workload,
        configuration=built_from,
        device=device,
        step=step,
        run=run,
        estimate_us=estimate_us,
        peak_bytes=clock.peak_bytes(device),
        notes=step.notes,
    )


def _compiles(arm: Arm) -> bool:
    return any(arms.find(name).stage is Stage.COMPILE for name in arm.switches)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    clock.synchronise(device)
    began = time.perf_counter()
    run()
    clock.synchronise(device)
    return time.perf_counter() - began


def facts(held: Held) -> Facts:
    """What the parent must know before it plans."""
    held_bytes, free = 0, None
    if held.device.type == "cuda":
        import torch

        held_bytes = int(torch.cuda.max_memory_reserved(held.device))
        free = int(torch.cuda.mem_get_info(held.device)[0])
    return Facts(
        estimate_us=held.estimate_us,
        peak_bytes=held.peak_bytes,
        held_bytes=held_bytes,
        free_bytes=free,
        capturable=held.step.capturable and held.device.type == "cuda",
        why_not=held.step.why_not if held.device.type == "cuda" else "CUDA graphs need a CUDA device",
        trains=held.step.optimizer is not None,
        notes=held.notes,
    )


def block(held: Held, steps: int) -> list[float]:
    """Microseconds of each of so many steps back to back: between device events, on a CPU by the host's clock."""
    with arms.settings(held.configuration):
        for _ in range(LEAD_STEPS if held.estimate_us < LEAD_US else 1):
            held.run()
        watch = clock.time_steps(held.run, steps, held.device)
    return [round(us, 3) for us in (watch.device_us() or watch.host_us())]


def host(held: Held, steps: int = 8) -> float | None:
    """Median microseconds in which the host issues a step; None on a CPU, where it is the step itself."""
    if held.device.type != "cuda":
        return None
    with arms.settings(held.configuration):
        watch = clock.time_steps(held.run, steps, held.device)
    issued = sorted(watch.host_us())
    return issued[len(issued) // 2]


def peak(held: Held) -> int | None:
    """Most bytes that torch's allocator held while steps of this arm ran, capture included."""
    return held.peak_bytes


def state(held: Held, when: str) -> DeviceState:
    """Clocks, heat and throttling now."""
    return environment.device_state(when, held.device)


def profile(
    held: Held,
    steps: int,
    path: Path,
    *,
    title: str = "",
    wall: Wall | None = None,
    states: tuple[DeviceState, ...] = (),
    notes: tuple[str, ...] = (),
    dataflow: bool = False,
) -> Path:
    """A trace of eager launches of the arm's step, which name every kernel, with all that is known of it.

    With `dataflow` one more step is run for what its ops move, which floors ask for; a compiled step hides it.
    """
    with arms.settings(held.configuration), TemporaryDirectory(prefix="addrfrac-") as scratch:
        raw = recorder.record(held.step.run, steps, held.device, Path(scratch) / "steps.json")
        flow, flow_note = _dataflow(held) if dataflow else ({}, "")
        recorder.save_trace(
            raw,
            path,
            Capture(
                schema=recorder.SCHEMA,
                created=recorder.now(),
                version=__version__,
                title=title or capture.title(held.job.configuration),
                trace=path.name,
                eager_trace=None,
                lead_in=True,
                profiled_steps=steps,
                configuration=held.job.configuration,
                environment=environment.describe(held.device, states),
                wall=wall,
                samples_per_step=held.step.samples,
                sample_unit=held.workload.sample,
                parameters=held.step.parameters or None,
                peak_memory_bytes=held.peak_bytes,
                rank=None,
                world_size=None,
                extra=dict(held.step.extra) | flow,
                notes=(*held.step.notes, *notes, *([flow_note] if flow_note else [])),
            ),
        )
    return path


def _dataflow(held: Held) -> tuple[dict[str, Any], str]:
    if held.device.type != "cuda" or _compiles(held.arm):
        return {}, ""
    return dataflow_recording.dataflow_facts(held.step.run, device_type=held.device.type, extra=held.step.extra)


def record_truth(job: Job, path: Path) -> str:
    """Record the outputs of the step in higher precision; '' or why there is none."""
    workload = registry.find_workload(job.workload)
    device = environment.torch_device(job.device)
    configuration = parity.truth_configuration(job.configuration, workload.weights_dtype)
    with arms.settings(configuration):
        step = arms.prepare(workload, configuration, (), device)
        why_not = parity.upcast(step, job.configuration)
        if why_not:
            return why_not
        inputs = parity.find_inputs(step)
        trains = step.optimizer is not None
        published = parity.as_published(job.configuration, workload.weights_dtype)
        weights = "the weights before they were rounded" if published else "the same weights"
        parity.record(step, inputs, training=trains, extra_runs=parity.OWN_BATCHES, path=path, weights=weights)
    return ""


# --- in a worker: two arms side by side -----------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Bench:
    """The best arm so far, and the one that is tried against it in the same process."""

    best: Held
    beside: Held | None = None

    def first_answer(self) -> Facts:
        return facts(self.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Blocks of two arms in turns."""

    launch: str
    best_us: list[list[float]]
    tried_us: list[list[float]]
    peak_bytes: int | None
    host_us: float | None
    seconds: tuple[float, float]
    """That preparing and timing took."""


def hold_bench(job: Job, arm: Arm, outputs: Path | None = None) -> Bench:
    """A bench with the first arm on it."""
    return Bench(best=hold(job, arm, outputs))


def why_not(bench: Bench, name: str) -> str:
    """Why a switch has no meaning on top of the best so far; '' where it can be tried."""
    held = bench.best
    with arms.settings(held.configuration):
        return arms.find(name).why_not(held.step, _uncompiled(held.configuration))


def _uncompiled(configuration: Configuration) -> Configuration:
    return replace(configuration, execution=arms.EAGER)


def try_beside(bench: Bench, job: Job, arm: Arm, outputs: Path | None, rounds: int, block_us: float) -> Tried:
    """Build another arm in this process and time it in turns with the best so far.

    Where it is to be a graph and says that it cannot be one, it is launched eagerly; a capture that fails on the way
    raises NotCapturable, and leaves a process that is of no more use.
    """
    drop(bench)
    began = time.monotonic()
    held = _held_or_none(job, arm, outputs)
    if held is None:  # out here, where the frames that hold the first build are gone
        capture.release_memory(bench.best.device)
        held = hold(job, replace(arm, launch=arms.EAGER), outputs)
    bench.beside = held
    prepared = time.monotonic()
    pair = {"best": bench.best, "tried": held}
    steps = {name: steps_of_block(each.estimate_us, block_us, FEWEST_SCREENED) for name, each in pair.items()}
    blocks: dict[str, list[list[float]]] = {"best": [], "tried": []}
    for name in turns(list(pair), rounds):
        blocks[name].append(block(pair[name], steps[name]))
    return Tried(
        launch=held.arm.launch,
        best_us=blocks["best"],
        tried_us=blocks["tried"],
        peak_bytes=held.peak_bytes,
        host_us=host(held),
        seconds=(prepared - began, time.monotonic() - prepared),
    )


def _held_or_none(job: Job, arm: Arm, outputs: Path | None) -> Held | None:
    """The arm, or None where its step says of itself that it can be no graph."""
    try:
        return hold(job, arm, outputs)
    except arms.NotCapturable as error:
        if arms.declared(error):
            return None
        raise


def drop(bench: Bench) -> None:
    """Give back what the arm beside the best holds."""
    bench.beside = None
    capture.release_memory(bench.best.device)


def keep(bench: Bench) -> Facts:
    """The arm that was tried is the best from now on."""
    assert bench.beside is not None, "nothing was tried"
    bench.best = bench.beside
    drop(bench)
    return facts(bench.best)


def facts_of_best(bench: Bench) -> Facts:
    """What holds of the best arm now, free memory above all."""
    return facts(bench.best)


def profile_beside(bench: Bench, steps: int, path: Path) -> Path:
    """A short trace of the arm that was tried."""
    assert bench.beside is not None, "nothing was tried"
    return profile(bench.beside, steps, path)


def profile_best(bench: Bench, steps: int, path: Path) -> Path:
    """A short trace of the best arm."""
    return profile(bench.best, steps, path)


def block_of_best(bench: Bench, steps: int) -> list[float]:
    """As `block`, of the best arm."""
    return block(bench.best, steps)


# --- workers --------------------------------------------------------------------------------------------------


class Lost(Exception):
    """An arm's process failed, ended or took too long; the text says which, in one line."""


class Asked(Protocol):
    """What questions can be put to: a worker, or what stands for one in a test."""

    def ask(self, question: Callable[..., Any], *arguments: Any, timeout: float = ..., **named: Any) -> Any: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A process that holds one arm."""

    name: str
    process: Any
    connection: Connection
    began: float
    timeout: float
    said: Any = None
    """What it answered to its set-up: `Facts` where it holds an arm."""
    seconds: float = 0.0
    """That its set-up took."""
    lost: str = ""

    def ask(
        self, question: Callable[..., Any], *arguments: Any, timeout: float = ANSWER_TIMEOUT_S, **named: Any
    ) -> Any:
        """The answer to a question about what the worker holds. Raises Lost where none comes."""
        if self.lost:
            raise Lost(self.lost)
        try:
            self.connection.send((question, arguments, named))
        except OSError:
            raise self._gone() from None
        return self.answer(timeout)

    def answer(self, timeout: float, allowed: float | None = None) -> Any:
        """The next answer, waited for so many seconds of those `allowed`.

        Raises Lost; a worker that was asked in vain is ended.
        """
        try:
            if not self.connection.poll(timeout):
                self.end(f"took more than {allowed or timeout:.0f} s")
                raise Lost(self.lost)
            said, value = self.connection.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if said == "failed":
            raise Lost(value)
        return value

    def _gone(self) -> Lost:
        self.process.join(5)
        code = self.process.exitcode
        self.end(f"its process ended ({f'signal {-code}' if code is not None and code < 0 else f'exit {code}'})")
        return Lost(self.lost)

    def end(self, why: str = "ended") -> None:
        """Stop the process; its memory is free afterwards."""
        if self.process.is_alive():
            if why == "ended":
                self._say_goodbye()
            if self.process.is_alive():
                self.process.kill()
            self.process.join()
        self.connection.close()
        self.lost = self.lost or why

    def _say_goodbye(self) -> None:
        try:
            self.connection.send(None)
        except OSError:
            return
        self.process.join(2)


_start_method = "forkserver"


def use_spawn() -> None:
    """Start workers afresh from now on: slower, and right where a forked one cannot use the device."""
    global _start_method
    _start_method = "spawn"


def _context() -> Any:
    """Workers are forked from a server that has imported torch and touched no device: 0.2 s each, not 5."""
    if _start_method not in multiprocessing.get_all_start_methods() or _start_method == "spawn":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    # With it torch asks NVML how many devices there are: a server that asked CUDA could fork no worker that uses it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return context


def start(
    name: str, prepare: Callable[..., Any], *arguments: Any, timeout: float = SET_UP_TIMEOUT_S, threads: int = 0
) -> Worker:
    """A worker that has begun to prepare; `ready` waits for it. `threads`: for the compiler, 0 leaves them alone."""
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, prepare, arguments, threads), name=name, daemon=True)
    began = time.monotonic()
    process.start()
    theirs.close()
    return Worker(name=name, process=process, connection=ours, began=began, timeout=timeout)


def ready(worker: Worker) -> Worker:
    """Wait until the worker holds its arm. Raises Lost, with the worker ended."""
    try:
        left = max(0.0, worker.began + worker.timeout - time.monotonic())
        worker.said = worker.answer(left, worker.timeout)
    except Lost as lost:
        worker.end(str(lost))
        raise
    worker.seconds = time.monotonic() - worker.began
    return worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A worker to be started."""

    name: str
    prepare: Callable[..., Any]
    arguments: tuple[Any, ...]
    timeout: float = SET_UP_TIMEOUT_S


def start_all(orders: Sequence[Order], at_once: int) -> tuple[dict[str, Worker], dict[str, str]]:
    """Workers set up side by side, at most `at_once` of them, and why the others were lost.

    Nothing is timed meanwhile: set-up computes on the device.
    """
    at_once = max(1, min(at_once, os.cpu_count() or 1))
    waiting, setting_up = list(orders), dict[Any, Worker]()
    found: dict[str, Worker] = {}
    lost: dict[str, str] = {}
    threads = max(1, (os.cpu_count() or 1) // max(1, min(at_once, len(orders))))
    while waiting or setting_up:
        while waiting and len(setting_up) < at_once:
            order = waiting.pop(0)
            worker = start(order.name, order.prepare, *order.arguments, timeout=order.timeout, threads=threads)
            setting_up[worker.connection] = worker
        first = min(worker.began + worker.timeout for worker in setting_up.values())
        heard = wait(list(setting_up), max(0.0, first - time.monotonic()))
        late = [each for each, worker in setting_up.items() if time.monotonic() > worker.began + worker.timeout]
        for connection in dict.fromkeys([*heard, *late]):
            worker = setting_up.pop(connection)
            try:
                found[worker.name] = ready(worker)
            except Lost as reason:
                lost[worker.name] = str(reason)
    return found, lost


def end_all(workers: Iterable[Worker]) -> None:
    """Stop them all, side by side."""
    for worker in workers:
        worker.end()


def _serve(connection: Connection, prepare: Callable[..., Any], arguments: tuple[Any, ...], threads: int) -> None:
    """The worker's life: prepare, say so, answer questions until the parent says goodbye or is gone."""
    if threads and "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)  # read when Inductor is first imported
        if "torch._inductor.config" in sys.modules:
            sys.modules["torch._inductor.config"].compile_threads = threads  # type: ignore[attr-defined]
    held = attempt(prepare, *arguments)
    if not _said(connection, held if isinstance(held, Raised) else attempt(_first_answer, held)):
        os._exit(1)
    while True:
        try:
            asked = connection.recv()
        except (EOFError, OSError):
            break
        if asked is None:
            break
        question, given, named = asked
        _said(connection, attempt(question, held, *given, **named))
    sys.stderr.flush()
    os._exit(0)  # tearing the libraries down takes seconds, and the driver frees the memory anyway


def _first_answer(held: Any) -> Any:
    """The facts of a held arm; anything else that was prepared is its own answer."""
    return facts(held) if isinstance(held, Held) else held.first_answer() if hasattr(held, "first_answer") else held


def _said(connection: Connection, answer: Any) -> bool:
    """Send an answer, or what went wrong in one line; whether there was one."""
    if not isinstance(answer, Raised):
        connection.send(("ok", answer))
        return True
    connection.send(("failed", reason(answer)))
    if answer.type not in ("AddrfracError", "NotCapturable", "OutOfMemoryError"):
        print(answer.where, file=sys.stderr, flush=True)
    return False


def reason(raised: Raised) -> str:
    """An exception as one line."""
    first = brief(raised.text)
    if raised.type in ("AddrfracError", "NotCapturable"):
        return first
    if "out of memory" in first or raised.type == "OutOfMemoryError":
        return first if first.startswith("out of memory") else f"out of memory: {first[:160]}"
    return f"{raised.type}: {first[:200]}"


def room(first: Facts, most: int) -> int:
    """How many workers like the first may live at once beside it, at least one."""
    if first.free_bytes is None:
        return most
    needed = first.held_bytes + CONTEXT_BYTES
    return max(1, min(most, int(MEMORY_SHARE * first.free_bytes / needed)))


# --- turns ----------------------------------------------------------------------------------------------------


def turns(names: Sequence[str], rounds: int) -> list[str]:
    """A B B A: none is always first on a cold or a hot device."""
    order: list[str] = []
    for index in range(rounds):
        order += list(names) if index % 2 == 0 else list(reversed(names))
    return order


def steps_of_block(estimate_us: float, block_us: float = BLOCK_US, fewest: int = FEWEST_STEPS) -> int:
    """How many steps a block holds, fixed before the first is timed."""
    return int(min(max(block_us / max(estimate_us, 1e-3), fewest), MOST_STEPS))


def take_turns(
    workers: Mapping[str, Asked],
    steps: Mapping[str, int],
    rounds: int,
    questions: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[dict[str, list[list[float]]], dict[str, str]]:
    """Blocks of each worker's steps, taken in turns; and why workers were lost, whose blocks are dropped.

    `questions` says by which question a worker gives a block where that is not `block`.
    """
    blocks: dict[str, list[list[float]]] = {name: [] for name in workers}
    lost: dict[str, str] = {}
    for name in turns(list(workers), rounds):
        if name in lost:
            continue
        try:
            blocks[name].append(workers[name].ask((questions or {}).get(name, block), steps[name]))
        except Lost as why:
            lost[name] = str(why)
    return {name: taken for name, taken in blocks.items() if name not in lost}, lost


@dataclass(slots=True, kw_only=True)
class Series:
    """What was taken of one arm so far."""

    arm: Arm
    blocks: list[list[list[float]]] = field(default_factory=list)
    """[process][block][step]."""
    peaks: list[int] = field(default_factory=list)
    host_us: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Why a process of it gave nothing."""


Visit = Callable[[Mapping[str, Worker], Mapping[str, Series]], None]


def measure_arms(
    job: Job,
    wanted: Sequence[Arm],
    *,
    processes: int = PROCESSES,
    rounds: int = BLOCKS,
    at_once: int,
    timeout: float = SET_UP_TIMEOUT_S,
    visit: Visit | None = None,
    progress: Progress = lambda line: None,
    block_us: float = BLOCK_US,
) -> dict[str, Series]:
    """Every arm in so many processes of its own, the blocks of all that live at once in turns.

    Processes are set up side by side, as many as may live at once; every group of them holds each arm where that fits.
    `visit` may ask the last process of each arm more before it ends: it gets one worker an arm, group by group where
    not all fit at once, and all samples so far. A process that is lost costs its own blocks and leaves its reason.
    """
    series = {arm.name: Series(arm=arm) for arm in wanted}
    places = [(arm, number) for number in range(processes) for arm in wanted]
    whole = max(1, at_once // len(wanted)) * len(wanted)  # whole rounds of arms, so that all take turns with all
    size = whole if at_once >= len(wanted) else max(1, at_once)
    for begin in range(0, len(places), size):
        chosen = {f"{arm.name} #{number}": arm for arm, number in places[begin : begin + size]}
        ending = {arm.name for arm, number in places[begin : begin + size] if number == processes - 1}
        progress(f"preparing {len(chosen)} processes of {len(wanted)} arms")
        orders = [Order(name=name, prepare=hold, arguments=(job, arm), timeout=timeout) for name, arm in chosen.items()]
        workers, lost = start_all(orders, at_once)
        progress(f"timing {len(workers)} processes in turns")
        ordered = {name: workers[name] for name in chosen if name in workers}
        taken, lost_later = take_turns(ordered, _steps(ordered, block_us), rounds)
        for name, why in (lost | lost_later).items():
            series[chosen[name].name].lost.append(why)
        for name, blocks in taken.items():
            _note(series[chosen[name].name], workers[name], blocks)
        if visit is not None and ending:
            first: dict[str, Worker] = {}
            for name in taken:
                if chosen[name].name in ending:
                    first.setdefault(chosen[name].name, workers[name])
            visit(first, series)
        end_all(workers.values())
    return series


def _steps(workers: Mapping[str, Worker], block_us: float) -> dict[str, int]:
    return {name: steps_of_block(worker.said.estimate_us, block_us) for name, worker in workers.items()}


def _note(series: Series, worker: Worker, blocks: list[list[float]]) -> None:
    series.blocks.append(blocks)
    if worker.said.peak_bytes is not None:
        series.peaks.append(worker.said.peak_bytes)
    try:
        issued = worker.ask(host)
    except Lost:
        return
    if issued is not None:
        series.host_us.append(issued)


# --- results --------------------------------------------------------------------------------------------------


def arm_times(series: Series, beside: Sequence[str] = (), on_cpu: bool = False) -> ArmTimes | None:
    """The record of what was taken of an arm; None where nothing was."""
    if not series.blocks:
        return None
    median, low, high = stats.arm_interval(series.blocks)
    issued = sorted(series.host_us)
    which = "host clock around steps on the CPU" if on_cpu else "device events between steps"
    others = f" in turns with {', '.join(beside)}" if beside else ""
    processes = len(series.blocks)
    return ArmTimes(
        arm=series.arm.name,
        switches=series.arm.switches,
        launch=series.arm.launch,
        blocks_us=tuple(tuple(tuple(block) for block in process) for process in series.blocks),
        median_us=median,
        low_us=low,
        high_us=high,
        peak_memory_bytes=max(series.peaks) if series.peaks else None,
        host_us=issued[len(issued) // 2] if issued else None,
        method=f"{which}, {len(series.blocks[0])} blocks of {len(series.blocks[0][0])} steps a process{others}, "
        f"{processes} {'process' if processes == 1 else 'processes'}",
    )


def gain(before: ArmTimes, after: ArmTimes, noise_floor: float | None = None) -> Gain:
    """One arm against another, by processes and blocks within them."""
    found = stats.compare_arms(before.blocks_us, after.blocks_us, noise_floor)
    return Gain(
        before=before.arm,
        after=after.arm,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        saved_us=found.saved,
        verdict=found.verdict,
        noise_floor=noise_floor,
        least_detectable=found.least_detectable,
        processes=min(len(before.blocks_us), len(after.blocks_us)),
    )


def helps(found: Gain, margin: float = stats.SAME_MARGIN) -> bool:
    """Surely faster, and by more than the noise floor and the margin."""
    return found.verdict is Verdict.FASTER and found.speedup > 1 + max(found.noise_floor or 0.0, margin)


def wall_of(device: ArmTimes | None, graph: ArmTimes | None, why_no_graph: str, on_cpu: bool) -> Wall | None:
    """The unprofiled wall of a run from the samples of its eager and its replayed arm."""
    if device is None:
        return None
    eager = _times(device)
    host_times = eager if on_cpu or device.host_us is None else _constant(device.host_us, "host clock to issue a step")
    return Wall(
        device=None if on_cpu else eager,
        host=host_times,
        graph=_times(graph) if graph is not None else None,
        graph_note="" if graph is not None else why_no_graph,
    )


def _times(times: ArmTimes) -> Times:
    samples = [us for process in times.blocks_us for block in process for us in block]
    return Times(
        samples_us=tuple(samples),
        median_us=times.median_us,
        low_us=times.low_us,
        high_us=times.high_us,
        method=times.method,
    )


def _constant(us: float, method: str) -> Times:
    return Times(samples_us=(us,), median_us=us, low_us=us, high_us=us, method=method)
