"""A workload, or a user's own loop, in; a trace file and unprofiled step times out.

`addrfrac.capture` is this module and can be called, as `with addrfrac.capture("run/") as run:` (see the last lines).
"""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from addrfrac import __version__, clock, dataflow_recording, environment, recorder
from addrfrac.errors import AddrfracError, OutOfDeviceMemory
from addrfrac.loop import capture as capture
from addrfrac.records import Capture, Configuration, DeviceState, Times, Workload
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

EAGER_STEPS = 2
RECOMPILE_LIMIT = 64
FEWEST_WARMUP, MOST_WARMUP = 2, 500

Progress = Callable[[str], None]


def measure(workload: Workload, configuration: Configuration, directory: Path, *, progress: Progress) -> Capture:
    """Run a workload on its device: warm-up, unprofiled steps, profiled steps, and the step as a CUDA graph.

    Leaves `trace.json.gz` (and for replayed graphs `capture.json.gz`) in `directory`, whole or not at all. Raises
    OutOfDeviceMemory where the workload does not fit, AddrfracError for what else a user can mend.
    """
    device = environment.torch_device(configuration.device)
    if device.type == "cuda":
        _use(device)
    try:
        with numeric_settings(configuration), TemporaryDirectory(prefix="addrfrac-") as scratch:
            facts = _measure(workload, configuration, device, directory, Path(scratch), progress)
        release_memory(device)
        return facts
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        line = _out_of_memory_line(str(error), configuration, device)
    # Raised out here, where the frames that hold the memory are gone.
    release_memory(device)
    raise OutOfDeviceMemory(line)


def _use(device: torch.device) -> None:
    """Make it torch's current device: libraries below the workloads take that one without asking."""
    import torch

    torch.cuda.set_device(device)


def _measure(
    workload: Workload,
    configuration: Configuration,
    device: torch.device,
    directory: Path,
    scratch: Path,
    progress: Progress,
) -> Capture:
    progress("building the model")
    step = _prepared(built(workload, configuration, device), configuration)
    progress("warming up")
    estimate_s = warm_up(step.run, configuration.warmup, device)
    compiled = _compile_facts(configuration)
    count = clock.step_count(configuration.steps, estimate_s)
    before = environment.device_state("before", device)
    run, what, graph = step.run, "steps", None
    if configuration.execution == "graph":
        graph = _required_graph(step, device)
        run, what = graph.replay, "replays of the step as a CUDA graph"
    progress(f"timing {count} steps unprofiled")
    clock.reset_peak(device)
    watch = clock.time_steps(run, count, device)
    states = (before, environment.device_state("after", device))
    peak_bytes = clock.peak_bytes(device)
    progress(f"profiling {configuration.steps} steps")
    recorded = recorder.record(run, configuration.steps, device, scratch / "steps.json")
    eager = None
    if graph is not None:
        progress("profiling eager steps, by which the replayed kernels are named")
        eager = recorder.record(step.run, EAGER_STEPS, device, scratch / "eager.json")
    flow, flow_note = _dataflow(step, configuration, device, progress)
    graph_times, graph_note = _graph_times(graph, watch, step, count, device, progress)
    wall = clock.wall(watch, what, graph_times, graph_note)
    facts = Capture(
        schema=recorder.SCHEMA,
        created=recorder.now(),
        version=__version__,
        title=title(configuration),
        trace=recorder.TRACE,
        eager_trace=recorder.EAGER_TRACE if eager else None,
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
        extra=dict(step.extra) | compiled | flow,
        notes=(*step.notes, *_notes(configuration, count, states, device), *flow_note),
    )
    progress("writing the trace")
    if eager is not None:
        recorder.save_trace(eager, directory / recorder.EAGER_TRACE, facts)
    recorder.save_trace(recorded, directory / recorder.TRACE, facts)
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


def built(workload: Workload, configuration: Configuration, device: torch.device) -> Step:
    """The workload's step; a bare callable from a user's file is made one."""
    try:
        made = workload.build(configuration, device)
    except ModuleNotFoundError as error:
        raise AddrfracError(
            f"{workload.name} needs {error.name}, which is not installed; "
            f"install it with: pip install 'addrfrac[{workload.extra}]'"
        ) from error
    if isinstance(made, Step):
        return made
    if callable(made):
        return Step(run=made, samples=configuration.batch, parameters=0)
    raise AddrfracError(
        f"build of {workload.name} returned a {type(made).__name__}; return a Step or a callable without arguments"
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
    import torch

    fresh_compiler()
    # Dynamo passes over the frames of torch's own modules, so a bare nn.Sequential compiles only from outside.
    if isinstance(step.model, torch.nn.Module) and not type(step.model).__module__.startswith("torch."):
        step.model.compile(dynamic=False)
        return step
    return dataclasses.replace(step, run=torch.compile(step.run, dynamic=False))


def fresh_compiler() -> None:
    """Dynamo as if nothing had been compiled in this process, and told to fail where it would silently run eager.

    Its limit is eight compilations for each piece of code, over all backends and models; the ninth runs eager.
    """
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.utils.counters.clear()


def _compile_facts(configuration: Configuration) -> dict[str, Any]:
    """How much of the step the compiler took. Raises AddrfracError where that is nothing."""
    if configuration.execution != "compiled":
        return {}
    return compile_facts()


def compile_facts() -> dict[str, Any]:
    """How much the compiler took since it was fresh. Raises AddrfracError where that is nothing."""
    import torch._dynamo

    counters = torch._dynamo.utils.counters
    graphs = int(counters["stats"]["unique_graphs"])
    if not graphs:
        raise AddrfracError("torch.compile compiled nothing of this step; use --execution eager")
    return {"compiled_graphs": graphs, "graph_breaks": sum(counters["graph_break"].values())}


def warm_up(run: Callable[[], object], steps: int, device: torch.device) -> float:
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
    graph = try_graph(step, device)
    if isinstance(graph, str):
        raise AddrfracError(f"--execution graph: {graph}; use --execution eager")
    return graph


def try_graph(step: Step, device: torch.device) -> clock.Graph | str:
    if device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if not step.capturable:
        return f"not captured: {step.why_not}"
    return clock.capture_graph(step.graph_run or step.run, step.advance, device)


def _dataflow(
    step: Step, configuration: Configuration, device: torch.device, progress: Progress
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What one more eager step moves between its ops, for the floors of a device; a compiled step hides it."""
    if device.type != "cuda" or configuration.execution == "compiled":
        return {}, ()
    progress("recording the data flow of one step")
    facts, why_not = dataflow_recording.dataflow_facts(step.run, device_type=device.type, extra=step.extra)
    return facts, (why_not,) if why_not else ()


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
    captured = try_graph(step, device)
    if isinstance(captured, str):
        return None, captured
    return clock.graph_times(captured, count, device), ""


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


def release_memory(device: torch.device) -> None:
    """Give back what a measurement held, so that the next one in this process starts with all of the memory."""
    gc.collect()  # models hold themselves in cycles
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()


def is_out_of_memory(error: RuntimeError) -> bool:
    import torch

    said = str(error)
    signs = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(sign in said for sign in signs)


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


class _CallableModule(types.ModuleType):
    """`addrfrac.capture` must be this module for imports and the context manager for users, whichever comes first.

    A function of that name set on the package would be replaced by the module at the first `import addrfrac.capture`.
    Python lets a module change its class for this (Language Reference, "Customizing module attribute access").
    """

    def __call__(self, *arguments: Any, **named: Any) -> capture:
        return capture(*arguments, **named)


sys.modules[__name__].__class__ = _CallableModule
