"""A workload, or a user's own loop, in; a trace file and unprofiled step times out.

`addrfrac.capture` is this module and can be called, as `with addrfrac.capture("run/") as run:` (see the last lines).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from addrfrac import __version__, clock, environment, store
from addrfrac.errors import AddrfracError, OutOfDeviceMemory
from addrfrac.records import Capture, Configuration, DeviceState, Times, Wall, Workload
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

SCHEMA = 1
TRACE, EAGER_TRACE, FACTS, SUMMARY = "trace.json.gz", "capture.json.gz", "capture.json", "summary.json"
PHASE_PREFIX = "addrfrac.phase:"
PROFILER_WARMUP = 2
"""Steps in which the profiler already runs and nothing is kept."""
LEAD_IN = 1
"""Recorded steps before those that count: they fix where the device's timeline begins."""
EAGER_STEPS = 2
RECOMPILE_LIMIT = 64
FEWEST_WARMUP, MOST_WARMUP = 2, 500
RANKS_WAIT_S = 60.0

Progress = Callable[[str], None]


def measure(workload: Workload, configuration: Configuration, directory: Path, *, progress: Progress) -> Capture:
    """Run a workload on its device: warm-up, unprofiled steps, profiled steps, and the step as a CUDA graph.

    Leaves `trace.json.gz` (and for replayed graphs `capture.json.gz`) in `directory`, whole or not at all. Raises
    OutOfDeviceMemory where the workload does not fit, AddrfracError for what else a user can mend.
    """
    device = _device(configuration.device)
    try:
        with numeric_settings(configuration), TemporaryDirectory(prefix="addrfrac-") as scratch:
            return _measure(workload, configuration, device, directory, Path(scratch), progress)
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        line = _out_of_memory_line(str(error), configuration, device)
    # Raised out here, where the frames that hold the memory are gone.
    _release_memory(device)
    raise OutOfDeviceMemory(line)


def _measure(
    workload: Workload,
    configuration: Configuration,
    device: torch.device,
    directory: Path,
    scratch: Path,
    progress: Progress,
) -> Capture:
    progress("building the model")
    step = _prepared(_built(workload, configuration, device), configuration)
    progress("warming up")
    estimate_s = _warm_up(step.run, configuration.warmup, device)
    compile_facts = _compile_facts(configuration)
    count = clock.step_count(configuration.steps, estimate_s)
    before = environment.device_state("before", device)
    run, what, graph = step.run, "steps", None
    if configuration.execution == "graph":
        graph = _required_graph(step, device)
        run, what = graph.replay, "replays of the step as a CUDA graph"
    progress(f"timing {count} steps unprofiled")
    _reset_peak(device)
    watch = clock.time_steps(run, count, device)
    peak_bytes = _peak(device)
    progress(f"profiling {configuration.steps} steps")
    recorded = record(run, configuration.steps, device, scratch / "steps.json")
    eager = None
    if graph is not None:
        progress("profiling eager steps, by which the replayed kernels are named")
        eager = record(step.run, EAGER_STEPS, device, scratch / "eager.json")
    graph_times, graph_note = _graph_times(graph, watch, step, count, device, progress)
    states = (before, environment.device_state("after", device))
    wall = clock.wall(watch, what, graph_times, graph_note)
    facts = Capture(
        schema=SCHEMA,
        created=_now(),
        version=__version__,
        title=title(configuration),
        trace=TRACE,
        eager_trace=EAGER_TRACE if eager else None,
        lead_in=True,
        profiled_steps=configuration.steps,
        configuration=configuration,
        environment=environment.describe(device, states),
        wall=wall,
        samples_per_step=step.samples,
        sample_unit=workload.sample,
        parameters=step.parameters or None,
        peak_memory_bytes=peak_bytes,
        rank=None,
        world_size=None,
        extra=dict(step.extra) | compile_facts,
        notes=(*step.notes, *_notes(configuration, count, states, device)),
    )
    progress("writing the trace")
    if eager is not None:
        save_trace(eager, directory / EAGER_TRACE, facts)
    save_trace(recorded, directory / TRACE, facts)
    return facts


def title(configuration: Configuration) -> str:
    """What a run is called, e.g. 'resnet50 infer b64 bf16 channels-last'."""
    parts = [configuration.workload, configuration.mode, f"b{configuration.batch}"]
    parts += [f"s{configuration.seq_len}"] if configuration.seq_len else []
    parts += [f"cache {configuration.cache_len}"] if configuration.cache_len else []
    parts += [f"{configuration.layers} layers"] if configuration.layers else []
    parts.append(configuration.dtype)
    optional = (configuration.layout, configuration.embedding, configuration.indices, configuration.routing)
    parts += [part for part in optional if part]
    parts += [configuration.execution] if configuration.execution != "eager" else []
    parts += ["on the CPU"] if configuration.device == "cpu" else []
    return " ".join(parts)


# --- building -----------------------------------------------------------------------------------------------


def _device(name: str) -> torch.device:
    """The torch device of that name, with its index. Raises AddrfracError where torch or the device is missing."""
    try:
        import torch
    except ImportError as error:
        raise AddrfracError("torch is not installed; install it with: pip install 'addrfrac[models]'") from error
    if name == "cpu":
        return torch.device("cpu")
    if not environment.has_cuda():
        raise AddrfracError("no CUDA device here; use --device cpu, or analyze a trace recorded elsewhere")
    index = torch.device(name).index
    device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
    torch.cuda.set_device(device)
    return device


def _built(workload: Workload, configuration: Configuration, device: torch.device) -> Step:
    """The workload's step; a bare callable from a user's file is made one."""
    try:
        built = workload.build(configuration, device)
    except ModuleNotFoundError as error:
        raise AddrfracError(
            f"{workload.name} needs {error.name}, which is not installed; "
            f"install it with: pip install 'addrfrac[{workload.extra}]'"
        ) from error
    if isinstance(built, Step):
        return built
    if callable(built):
        return Step(run=built, samples=configuration.batch, parameters=0)
    raise AddrfracError(
        f"build of {workload.name} returned a {type(built).__name__}; return a Step or a callable without arguments"
    )


@contextmanager
def numeric_settings(configuration: Configuration) -> Iterator[None]:
    """TF32 allowed for --dtype tf32 and for nothing else; as it was afterwards."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = configuration.dtype == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _prepared(step: Step, configuration: Configuration) -> Step:
    """The step as the execution asks for it: for 'compiled' with torch.compile around its model, or all of it."""
    if configuration.execution != "compiled":
        return step
    import dataclasses

    import torch
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT  # 8 by default, then a frame silently runs eager
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.utils.counters.clear()
    if isinstance(step.model, torch.nn.Module):
        step.model.compile(dynamic=False)
        return step
    return dataclasses.replace(step, run=torch.compile(step.run, dynamic=False))


def _compile_facts(configuration: Configuration) -> dict[str, Any]:
    """How much of the step the compiler took. Raises AddrfracError where that is nothing."""
    if configuration.execution != "compiled":
        return {}
    import torch._dynamo

    counters = torch._dynamo.utils.counters
    graphs = int(counters["stats"]["unique_graphs"])
    if not graphs:
        raise AddrfracError("torch.compile compiled nothing of this step; use --execution eager")
    return {"compiled_graphs": graphs, "graph_breaks": sum(counters["graph_break"].values())}


def _warm_up(run: Callable[[], object], steps: int, device: torch.device) -> float:
    """Run the first steps, on a GPU for half a second so that its clocks rise; seconds that the last one took."""
    least_s = 0.5 if device.type == "cuda" else 0.0
    began, done, seconds = time.perf_counter(), 0, 0.0
    while done < max(FEWEST_WARMUP, steps) or (time.perf_counter() - began < least_s and done < MOST_WARMUP):
        step_began = time.perf_counter()
        run()
        clock.synchronise(device)
        seconds = time.perf_counter() - step_began
        done += 1
    return seconds


def _required_graph(step: Step, device: torch.device) -> clock.Graph:
    graph = _try_graph(step, device)
    if isinstance(graph, str):
        raise AddrfracError(f"--execution graph: {graph}; use --execution eager")
    return graph


def _try_graph(step: Step, device: torch.device) -> clock.Graph | str:
    if device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if not step.capturable:
        return f"not captured: {step.why_not}"
    return clock.capture_graph(step.graph_run or step.run, step.advance, device)


def _graph_times(
    graph: clock.Graph | None,
    watch: clock.Stopwatch,
    step: Step,
    count: int,
    device: torch.device,
    progress: Progress,
) -> tuple[Times | None, str]:
    """The step's time as a graph, or why there is none. Last of all, because a failed capture leaves disorder."""
    if graph is not None:
        return watch.device_times("replays of the step as a CUDA graph"), ""
    if device.type == "cuda" and step.capturable:
        progress("timing the step as a CUDA graph")
    captured = _try_graph(step, device)
    if isinstance(captured, str):
        return None, captured
    return clock.graph_times(captured, count, device), ""


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(device))


def _notes(
    configuration: Configuration, count: int, states: tuple[DeviceState, ...], device: torch.device
) -> Iterator[str]:
    if count < max(20, 3 * configuration.steps):
        yield f"only {count} unprofiled steps were timed, because more would have taken over a minute"
    if configuration.warmup < FEWEST_WARMUP:
        yield f"{FEWEST_WARMUP} warm-up steps were run although {configuration.warmup} were asked for"
    if device.type == "cpu":
        yield "measured on the CPU: operators of this machine stand for kernels"
    elif all(state.sm_clock_mhz is None for state in states):
        yield "clocks, temperature and throttling were not read: nvidia-ml-py is missing or the driver refused"
    throttled = sorted({reason for state in states for reason in state.throttle_reasons} - {"idle"})
    if throttled:
        yield f"the GPU reported limits on its clocks: {', '.join(throttled)}"


# --- memory -------------------------------------------------------------------------------------------------


def _release_memory(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()


def _is_out_of_memory(error: RuntimeError) -> bool:
    import torch

    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in said or "CUDA out of memory" in said


def _out_of_memory_line(said: str, configuration: Configuration, device: torch.device) -> str:
    asked = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", said)
    free = re.search(r"of which ([\d.]+ \w+) is free", said)
    wanted = f"{asked[1]} more" if asked else "more memory"
    left = f"with {free[1]} free" if free else f"than {device.type} has"
    levers = ["a smaller --batch" if configuration.batch > 1 else ""]
    levers += [
        "a shorter --seq-len" if configuration.seq_len else "",
        "fewer --rows" if configuration.embedding else "",
    ]
    levers += ["--layers N or --extrapolate" if configuration.layers is None and not configuration.embedding else ""]
    levers = [lever for lever in levers if lever] or ["--dtype bf16"]
    return f"out of memory on {device}: {title(configuration)} asked for {wanted} {left}; try {' or '.join(levers)}"


# --- profiling ----------------------------------------------------------------------------------------------


def _profiler(steps: int, device: torch.device, on_ready: Callable[[Any], None]) -> Any:
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    return profile(
        activities=activities,
        record_shapes=True,
        acc_events=True,  # one cycle is all there is; without this torch warns that cycles are not added up
        schedule=schedule(wait=0, warmup=PROFILER_WARMUP, active=LEAD_IN + steps, repeat=1),
        on_trace_ready=on_ready,
    )


def record(run: Callable[[], object], steps: int, device: torch.device, raw: Path) -> Path:
    """Profile a lead-in and `steps` steps into the file `raw`; returns it."""
    clock.synchronise(device)
    with _profiler(steps, device, lambda profiler: profiler.export_chrome_trace(str(raw))) as profiler:
        for _ in range(PROFILER_WARMUP + LEAD_IN + steps):
            run()
            profiler.step()
    return raw


def save_trace(raw: Path, path: Path, facts: Capture) -> None:
    """Put the facts into the profiler's JSON under 'addrfrac', compress it and rename it into place.

    At the front, so that a trace cut short still says what it is of. By text, because the profiler's own
    add_metadata_json takes nothing that becomes known after the last profiled step.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with raw.open("rb") as source, gzip.open(temporary, "wb", compresslevel=4) as target:
            head = source.read(64)
            opening = head.find(b"{")
            assert opening >= 0, "the profiler's trace does not open as a JSON object"
            target.write(b'{"addrfrac": ' + json.dumps(metadata(facts)).encode() + b"," + head[opening + 1 :])
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(path)
    except OSError as error:
        raise AddrfracError(f"cannot write {path}: {error.strerror}; choose another place with -o") from error
    finally:
        temporary.unlink(missing_ok=True)


def drop_step(raw: Path, name: str) -> None:
    """Take the range `name` out of a raw trace: a step that had begun and did not end."""
    content = json.loads(raw.read_text())
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("name") != name]
    raw.write_text(json.dumps(content))


def metadata(facts: Capture) -> dict[str, Any]:
    """The facts as they stand in a trace, with the raw samples of each clock in a list of its own."""
    wall = None if facts.wall is None else _wall_samples(facts.wall)
    return asdict(facts) | {"device": facts.environment.device_kind, "wall": wall}


def _wall_samples(wall: Wall) -> dict[str, Any]:
    clocks = {"device": wall.device, "host": wall.host, "graph": wall.graph}
    samples = {f"{name}_us": list(times.samples_us) for name, times in clocks.items() if times is not None}
    methods = {f"{name}_method": times.method for name, times in clocks.items() if times is not None}
    return samples | methods | {"graph_note": wall.graph_note}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- a user's own loop --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """What `with addrfrac.capture(...) as run:` hands to the loop."""

    _directory: Path
    _device: torch.device
    _steps: int
    _warmup: int
    _unprofiled: int
    _title: str
    _samples: float | None
    _sample_unit: str
    _extra: dict[str, Any]
    _rank: int | None
    _world_size: int | None
    _done: int = 0
    _watch: clock.Stopwatch | None = None
    _peak_bytes: int | None = None
    _before: DeviceState | None = None
    _profiler: Any = None
    _scratch: Any = None

    @property
    def total(self) -> int:
        """How many steps the loop must take for everything to be recorded."""
        return self._warmup + self._unprofiled + PROFILER_WARMUP + LEAD_IN + self._steps

    @property
    def done(self) -> bool:
        """Whether everything is recorded; the loop may stop, and further steps cost nothing."""
        return self._done >= self.total

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        if self.done:
            return
        self._done += 1
        timed = self._done - self._warmup
        if timed >= 0 and self._profiler is None:
            self._mark(timed)
        elif self._profiler is not None:
            self._profiler.step()
            if self.done:
                self._profiler.stop()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """A part of the step to tell apart in the reports: `with run.phase("prefill"): ...`."""
        from torch.profiler import record_function

        return record_function(f"{PHASE_PREFIX}{name}")

    def _begin(self) -> None:
        if self._warmup == 0:
            self._mark(0)

    def _mark(self, timed: int) -> None:
        """One boundary of the unprofiled part; its first one waits for the device, its last one starts the profiler."""
        if self._watch is None:
            clock.synchronise(self._device)
            _reset_peak(self._device)
            self._before = environment.device_state("before", self._device)
            self._watch = clock.Stopwatch(device=self._device)
        self._watch.mark()
        if timed == self._unprofiled:
            self._watch.stop()
            self._peak_bytes = _peak(self._device)
            self._start_profiler()

    def _start_profiler(self) -> None:
        self._scratch = TemporaryDirectory(prefix="addrfrac-")
        raw = str(self._raw)
        self._profiler = _profiler(self._steps, self._device, lambda profiler: profiler.export_chrome_trace(raw))
        self._profiler.start()

    @property
    def _raw(self) -> Path:
        return Path(self._scratch.name) / "steps.json"

    def _abandon(self) -> None:
        """Stop the profiler and leave nothing behind."""
        if self._profiler is not None and not self.done:
            self._profiler.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _finish(self) -> None:
        """Save what is whole. Raises AddrfracError where that is not one profiled step."""
        recorded = self._done - self._warmup - self._unprofiled - PROFILER_WARMUP - LEAD_IN
        if recorded < 1:
            self._abandon()
            raise AddrfracError(
                f"the loop ended after {self._done} steps and the capture needs {self.total} "
                f"({self._warmup} warm-up, {self._unprofiled} unprofiled, {PROFILER_WARMUP + LEAD_IN} to start the "
                f"profiler, {self._steps} profiled); run more steps, or pass smaller warmup=, unprofiled= or steps="
            )
        if not self.done:
            self._profiler.stop()  # exports what was recorded, with the step that had just begun
            drop_step(self._raw, f"ProfilerStep#{self._profiler.step_num}")
        facts = self._facts(recorded)
        save_trace(self._raw, self._directory / TRACE, facts)
        self._scratch.cleanup()
        store.write_whole(self._directory / FACTS, json.dumps(metadata(facts), indent=1).encode())

    def _facts(self, recorded: int) -> Capture:
        assert self._watch is not None
        assert self._before is not None
        states = (self._before, environment.device_state("after", self._device))
        notes = [] if self.done else [f"the loop ended early: {recorded} of {self._steps} profiled steps were recorded"]
        if self._device.type == "cpu":
            notes.append("measured on the CPU: operators of this machine stand for kernels")
        return Capture(
            schema=SCHEMA,
            created=_now(),
            version=__version__,
            title=self._title,
            trace=TRACE,
            eager_trace=None,
            lead_in=True,
            profiled_steps=recorded,
            configuration=None,
            environment=environment.describe(self._device, states),
            wall=clock.wall(self._watch, "steps of the user's loop", None, "a user's own loop is not captured"),
            samples_per_step=self._samples,
            sample_unit=self._sample_unit,
            parameters=None,
            peak_memory_bytes=self._peak_bytes,
            rank=self._rank,
            world_size=self._world_size,
            extra=self._extra,
            notes=tuple(notes),
        )


class capture:
    """Record a loop of your own: `with addrfrac.capture("run/", steps=5) as run:`, and `run.step()` after each step.

    The first `warmup` steps are left alone, `unprofiled` ones are timed (default: three times `steps`, at least 20),
    the rest is profiled. `samples` is what one step works through, for throughput; `configuration` is any dict worth
    keeping with the figures. Under torchrun each rank writes `rank<r>/`, and rank 0 a summary of all.

    Raises AddrfracError on leaving where the loop was too short for one profiled step; an exception of the loop passes
    through with nothing written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        steps: int = 5,
        warmup: int = 3,
        unprofiled: int | None = None,
        device: str | None = None,
        title: str | None = None,
        samples: float | None = None,
        sample_unit: str = "samples",
        configuration: dict[str, Any] | None = None,
    ) -> None:
        unprofiled = clock.step_count(steps, 0.0) if unprofiled is None else unprofiled
        for name, value, least in (("steps", steps, 1), ("warmup", warmup, 0), ("unprofiled", unprofiled, 1)):
            if value < least:
                raise ValueError(f"{name}={value}: at least {least} is needed")
        self._root = Path(directory)
        self._rank, self._world_size = _rank()
        self._arguments = (steps, warmup, unprofiled)
        self._device_name = device
        self._title = title or Path(sys.argv[0]).name or "a user's loop"
        self._samples, self._sample_unit = samples, sample_unit
        self._extra = {"configuration": configuration or {}, "steps": steps, "warmup": warmup, "unprofiled": unprofiled}

    def __enter__(self) -> Run:
        directory = self._root if self._rank is None else self._root / f"rank{self._rank}"
        (directory / FACTS).unlink(missing_ok=True)  # an older run's must not pass for this one's
        name = self._device_name or ("cuda" if environment.has_cuda() else "cpu")
        self._run = Run(
            directory,
            _device(name),
            *self._arguments,
            self._title,
            self._samples,
            self._sample_unit,
            self._extra,
            self._rank,
            self._world_size,
        )
        self._run._begin()
        return self._run

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self._run._abandon()
            return
        self._run._finish()
        if self._rank == 0 and self._world_size is not None:
            summary = summarise(self._root, self._world_size, RANKS_WAIT_S)
            store.write_whole(self._root / SUMMARY, json.dumps(summary, indent=1).encode())


def _rank() -> tuple[int | None, int | None]:
    """Rank and world size as torchrun sets them; None outside of it."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None, None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def summarise(root: Path, world_size: int, wait_s: float) -> dict[str, Any]:
    """Every rank's median step time, in one table; ranks whose files did not appear in time are listed as missing.

    By files and not by a collective, which would hang where a rank has died.
    """
    deadline = time.monotonic() + wait_s
    files = {rank: root / f"rank{rank}" / FACTS for rank in range(world_size)}
    while not all(file.exists() for file in files.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    ranks = {rank: json.loads(file.read_text()) for rank, file in files.items() if file.exists()}
    return {
        "created": _now(),
        "world_size": world_size,
        "missing_ranks": [rank for rank in files if rank not in ranks],
        "ranks": [
            {
                "rank": rank,
                "trace": f"rank{rank}/{facts['trace']}",
                "device": facts["environment"]["device"],
                "profiled_steps": facts["profiled_steps"],
                "step_us": _median(facts["wall"]),
                "peak_memory_bytes": facts["peak_memory_bytes"],
                "notes": facts["notes"],
            }
            for rank, facts in sorted(ranks.items())
        ],
    }


def _median(wall: dict[str, Any]) -> float:
    import statistics

    return float(statistics.median(wall.get("device_us") or wall["host_us"]))


class _CallableModule(types.ModuleType):
    """`addrfrac.capture` must be this module for imports and the context manager for users, whichever comes first.

    A function of that name set on the package would be replaced by the module at the first `import addrfrac.capture`.
    Python lets a module change its class for this (Language Reference, "Customizing module attribute access").
    """

    def __call__(self, *arguments: Any, **named: Any) -> capture:
        return capture(*arguments, **named)


sys.modules[__name__].__class__ = _CallableModule
