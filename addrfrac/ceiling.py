"""A prepared step in, its measured ceiling out: its CUDA graph with kernels deleted, in turns with the whole of it.

A kernel that reads what a deleted one would have written finds what the last whole replay left there, so the whole
graph runs first, and again after each block of a reduced one. What a reduced graph computes is used by nobody. It may
still read where it must not (memory within a graph is used again by later kernels): such a fault takes the process
along, so `ceiling_process` measures in a process of its own, and this module tells as it goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from addrfrac import __version__, analysis, capture, ceiling_rows, clock, driver_graph, environment, recorder, stats
from addrfrac.analysis import Options
from addrfrac.ceiling_rows import Blocks, Held, Profiled, Wanted
from addrfrac.classify import bound
from addrfrac.driver_graph import CapturedGraph, DriverCallFailed, Executable
from addrfrac.errors import UnreadableTrace
from addrfrac.graph_labels import Match, NodeLabel, label_nodes
from addrfrac.graph_surgery import CHILD_GRAPH, KERNEL, remove
from addrfrac.parse import read_trace
from addrfrac.records import Capture, Ceiling, CeilingRow, Configuration
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

BLOCKS = 8
"""Of each graph; even, so that turns A B B A end with the whole graph."""
BLOCK_MS = 40.0
FEWEST_STEPS, MOST_STEPS = 3, 50
"""Of a block."""
REPLAYS_PROFILED = 3
"""Of a reduced graph, to see how long the kernels that remain take."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a measurement says while it goes on."""

    kind: str
    """'ceiling': all but its rows; 'begin': a row will be tried; 'row': it was; 'fault': it was, and this process can
    use the device no more; 'uncaptured': the capture failed, and with it the measurement."""
    ceiling: Ceiling | None = None
    row: CeilingRow | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure, besides the step."""

    arm: str = "eager"
    switches: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    wanted: Wanted = field(default_factory=Wanted)
    sample_unit: str = ""
    why_not: str = ""
    """Why no capture is to be tried (one failed already); '' to try."""
    ends_uncaptured: bool = False
    """A failed capture ends the measurement, because it leaves torch in disorder; else Amdahl's figures follow it."""
    hold_indices: bool = False
    """Keep integer tensors out of the reuse of memory within the graph."""
    records_dataflow: bool = False
    """What ops hand to each other in one eager step, for floors; a compiled step hides it."""
    skip: frozenset[str] = frozenset()
    """Rows that need not be measured again."""


def measure_ceiling(
    step: Step,
    configuration: Configuration,
    device: torch.device,
    asked: Asked,
    *,
    directory: Path | None = None,
    progress: Progress,
) -> Ceiling:
    """The ceiling of a prepared step, in this process; traces stay in `directory` where one is given.

    A reduced graph that faults ends the measurement: its row and those after it say so, and this process can use the
    device no more. `ceiling_process.isolated` loses that row alone.
    """
    ceiling: Ceiling | None = None
    rows: list[CeilingRow] = []
    for told in measuring(step, configuration, device, asked, directory=directory, progress=progress):
        ceiling = told.ceiling or ceiling
        if told.row is not None and told.kind != "begin":
            rows.append(told.row)
    assert ceiling is not None, "a measurement tells of its ceiling before any row"
    return replace(ceiling, rows=tuple(rows))


def measuring(
    step: Step,
    configuration: Configuration,
    device: torch.device,
    asked: Asked,
    *,
    directory: Path | None,
    progress: Progress,
) -> Iterator[Told]:
    """Measure, and tell of the ceiling and of each row as it goes."""
    with TemporaryDirectory(prefix="addrfrac-") as scratch:
        raw = Path(scratch)
        progress("warming up")
        estimate_s = capture.warm_up(step.run, configuration.warmup, device)
        progress(asked.why_not or "capturing the step as a CUDA graph")
        kept = asked.why_not or _captured(step, device, hold_indices=asked.hold_indices)
        if isinstance(kept, str) and step.capturable and asked.ends_uncaptured and not asked.why_not:
            yield Told(kind="uncaptured", why_not=kept)
            return
        graph = None if isinstance(kept, str) else kept.graph
        profiled, step_us = _profile(
            step, graph, configuration, device, asked, raw, directory or raw, estimate_s, progress
        )
        if isinstance(kept, str):
            yield from _amdahl_alone(kept, profiled, step_us, asked)
        else:
            yield from _measured(step, kept, profiled, configuration, device, asked, progress)


# --- the step, captured and profiled ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A captured step whose graph can be read."""

    graph: clock.Graph
    captured: CapturedGraph
    run: Any
    """What was captured; with `hold_indices` it holds the integer tensors."""


def _captured(step: Step, device: torch.device, *, hold_indices: bool) -> Kept | str:
    """The step as a graph that can be read and copied, or why there is none."""
    if device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if not step.capturable:
        return f"not captured: {step.why_not}"
    run = step.graph_run or step.run
    run = holding_indices(run) if hold_indices else run
    graph = clock.capture_graph(run, step.advance, device, keep=True)
    if isinstance(graph, str):
        return graph
    try:
        captured = driver_graph.read(graph.owner.raw_cuda_graph())
        if not captured.why_not:
            driver_graph.instantiate(captured).close()
    except ModuleNotFoundError:
        return "the graph cannot be read without cuda-bindings; install it with: pip install cuda-bindings"
    except DriverCallFailed as error:
        return f"the graph cannot be read and copied: {error}"
    return captured.why_not or Kept(graph=graph, captured=captured, run=run)


def holding_indices(run: Callable[[], object]) -> Callable[[], object]:
    """`run`, with each integer tensor that an operator returns in it kept until its next call.

    While a graph is captured, memory that is kept is given to nothing else: indices that a whole replay wrote are
    still there when a reduced one reads them. Does nothing for buffers that compiled code takes for itself.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    held: list[Any] = []

    class Holding(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            returned = func(*args, **(kwargs or {}))
            held.extend(
                leaf
                for leaf in tree_leaves(returned)
                if isinstance(leaf, torch.Tensor) and not leaf.is_floating_point() and not leaf.is_complex()
            )
            return returned

    def holding() -> object:
        held.clear()
        with Holding():  # type: ignore[no-untyped-call, unused-ignore]
            return run()

    return holding


def _profile(
    step: Step,
    graph: clock.Graph | None,
    configuration: Configuration,
    device: torch.device,
    asked: Asked,
    raw: Path,
    folder: Path,
    estimate_s: float,
    progress: Progress,
) -> tuple[Profiled, float]:
    """The step as it is launched (a replay, or eagerly where there is no graph) profiled, and its unprofiled time."""
    run, what = (step.run, "steps") if graph is None else (graph.replay, "replays of the step as a CUDA graph")
    count = clock.step_count(configuration.steps, estimate_s)
    before = environment.device_state("before", device)
    progress(f"timing {count} {what} unprofiled")
    clock.reset_peak(device)
    watch = clock.time_steps(run, count, device)
    states = (before, environment.device_state("after", device))
    peak_bytes = clock.peak_bytes(device)
    progress(f"profiling {configuration.steps} {what}")
    recorded = recorder.record(run, configuration.steps, device, raw / "steps.json")
    eager = None
    if graph is not None:
        progress("profiling eager steps, by which the replayed kernels are named")
        eager = recorder.record(step.run, capture.EAGER_STEPS, device, raw / "eager.json")
    flow: dict[str, Any] = {}
    flow_notes: tuple[str, ...] = ()
    if asked.records_dataflow:
        flow, flow_notes = capture._dataflow(step, configuration, device, progress)
    graph_times = None if graph is None else watch.device_times(what)
    wall = clock.wall(watch, what, graph_times, "" if graph is not None else "not captured")
    launched = configuration if graph is None else replace(configuration, execution="graph")
    facts = Capture(
        schema=recorder.SCHEMA,
        created=recorder.now(),
        version=__version__,
        title=title(configuration, asked.arm),
        trace=recorder.TRACE,
        eager_trace=recorder.EAGER_TRACE if eager else None,
        lead_in=True,
        profiled_steps=configuration.steps,
        configuration=launched,
        environment=environment.describe(device, states),
        wall=wall,
        samples_per_step=step.samples,
        sample_unit=asked.sample_unit,
        parameters=step.parameters or None,
        peak_memory_bytes=peak_bytes,
        rank=None,
        world_size=None,
        extra=dict(step.extra) | flow,
        notes=(*step.notes, *capture._notes(configuration, count, states, device), *flow_notes),
    )
    if eager is not None:
        recorder.save_trace(eager, folder / recorder.EAGER_TRACE, facts)
    recorder.save_trace(recorded, folder / recorder.TRACE, facts)
    progress("accounting")
    return _account(folder, eager is not None, asked.options), wall.step_us


def title(configuration: Configuration, arm: str) -> str:
    """'ceiling of resnet50 infer b64 fp16 channels-last, best-library'."""
    of = capture.title(replace(configuration, execution="eager"))
    return f"ceiling of {of}" if arm == "eager" else f"ceiling of {of}, {arm}"


def account_options(options: Options, folder: Path, has_eager: bool) -> Options:
    """The options by which a recorded folder is accounted for."""
    return replace(options, capture=folder / recorder.EAGER_TRACE) if has_eager else options


def _account(folder: Path, has_eager: bool, options: Options) -> Profiled:
    trace = read_trace(folder / recorder.TRACE)
    account = analysis._account(trace, account_options(options, folder, has_eager), {})
    policy = options.policies[options.policy]
    return Profiled(
        trace=account.trace,
        labels=account.labels,
        window=account.window,
        timeline=account.found.timeline,
        kernels=account.found.kernels,
        bounds=tuple(bound(policy, label) for label in account.labels.table),
    )


# --- rows ---------------------------------------------------------------------------------------------------


def _amdahl_alone(why_not: str, profiled: Profiled, step_us: float, asked: Asked) -> Iterator[Told]:
    """A ceiling of Amdahl's intervals, each labelled as not measured."""
    ceiling = Ceiling(
        arm=asked.arm,
        switches=asked.switches,
        measured=False,
        why_not=why_not,
        nodes=0,
        kernel_nodes=0,
        labelled_nodes=0,
        edges=0,
        branches=False,
        step_us=step_us,
        noise_floor=None,
        policy=asked.options.policy,
        rows=(),
        notes=("nothing was deleted: the figures are Amdahl's, from the profiled eager step",),
    )
    yield Told(kind="ceiling", ceiling=ceiling)
    for selection in ceiling_rows.selections(profiled.kernels, asked.wanted):
        found = ceiling_rows.held(profiled, ceiling_rows.chosen_rows(selection, profiled))
        row = ceiling_rows.unmeasured(selection, 0, found.device_us, found, step_us, f"Amdahl only: {why_not}")
        yield Told(kind="row", row=row)


def _measured(
    step: Step,
    kept: Kept,
    profiled: Profiled,
    configuration: Configuration,
    device: torch.device,
    asked: Asked,
    progress: Progress,
) -> Iterator[Told]:
    policy = asked.options.policies[asked.options.policy]
    graph = kept.captured.graph
    labels = label_nodes(graph, profiled.trace, profiled.labels, profiled.window, asked.options.rules)
    progress("measuring the noise floor: two instances of the whole graph in turns")
    whole, again = driver_graph.instantiate(kept.captured), driver_graph.instantiate(kept.captured)
    launch = _launcher(whole, step, device)
    steps = block_steps(capture.warm_up(launch, FEWEST_STEPS, device) * 1e6)
    one, other = in_turns(launch, _launcher(again, step, device), steps, device)
    again.close()
    noise_floor = stats.noise_between([one], [other])
    ceiling = Ceiling(
        arm=asked.arm,
        switches=asked.switches,
        measured=True,
        why_not="",
        nodes=len(graph.nodes),
        kernel_nodes=sum(node.kind == KERNEL for node in graph.nodes),
        labelled_nodes=sum(known.label is not None for known in labels.values()),
        edges=len(graph.edges),
        branches=graph.branches,
        step_us=stats.arm_median([[*one, *other]]),
        noise_floor=noise_floor,
        policy=policy.name,
        rows=(),
        notes=tuple(_notes(step, kept.captured, labels, steps, asked)),
    )
    yield Told(kind="ceiling", ceiling=ceiling)
    bench = _Bench(step=step, kept=kept, whole=launch, steps=steps, device=device, noise_floor=noise_floor)
    for selection in ceiling_rows.selections(profiled.kernels, asked.wanted):
        if selection.what in asked.skip:
            continue
        progress(f"measuring the step without: {selection.what[:60]}")
        found = ceiling_rows.held(profiled, ceiling_rows.chosen_rows(selection, profiled))
        nodes = ceiling_rows.chosen_nodes(selection, labels, policy)
        times = [labels[node].us for node in nodes if labels[node].us is not None]
        deleted_us = sum(us for us in times if us is not None) if times else None
        row = ceiling_rows.unmeasured(selection, len(nodes), deleted_us, found, ceiling.step_us, "")
        yield Told(kind="begin", row=row)
        told = bench.row(row, nodes, found, unmatched=len(nodes) - len(times))
        yield told
        if told.kind == "fault":
            return
    whole.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """The whole graph, ready to take turns with reduced ones."""

    step: Step
    kept: Kept
    whole: Callable[[], None]
    steps: int
    device: Any
    noise_floor: float

    def row(self, row: CeilingRow, nodes: frozenset[int], found: Held, unmatched: int) -> Told:
        """The row, measured where that can be; where not, with the reason."""
        if not nodes:
            return Told(kind="row", row=replace(row, note="no node of the graph is among them"))
        try:
            reduced = driver_graph.instantiate(self.kept.captured, remove(self.kept.captured.graph, nodes))
        except DriverCallFailed as error:
            return Told(kind="row", row=replace(row, note=f"the reduced graph could not be made: {error}"))
        launch = _launcher(reduced, self.step, self.device)
        try:
            full_blocks, reduced_blocks = in_turns(self.whole, launch, self.steps, self.device)
            kept_us = self._kept_us(launch, nodes) if row.kind in ("all", "complement") else None
            reduced.close()
        except RuntimeError as error:  # torch.AcceleratorError and DriverCallFailed are among them
            return Told(kind="fault", row=replace(row, note=f"the reduced graph failed: {_first_line(error)}"))
        done = ceiling_rows.measured(
            row, found, full_blocks, reduced_blocks, self.noise_floor, kept_us=kept_us, unmatched=unmatched
        )
        return Told(kind="row", row=done)

    def _kept_us(self, launch: Callable[[], None], deleted: frozenset[int]) -> float | None:
        """Device time a replay of all that a reduced graph still runs; None where the profiler did not see all of it.

        The whole graph runs again after it.
        """
        with TemporaryDirectory(prefix="addrfrac-") as scratch:
            path = recorder.record(launch, REPLAYS_PROFILED, self.device, Path(scratch) / "reduced.json")
            try:
                kernels = read_trace(path).kernels
            except UnreadableTrace:
                return None
        self.whole()
        clock.synchronise(self.device)
        # No window: calls of the driver's own launch function need not be in the trace. The profiler kept the lead-in.
        replays = recorder.LEAD_IN + REPLAYS_PROFILED
        nodes = self.kept.captured.graph.nodes
        kept = sum(node.kind == KERNEL for index, node in enumerate(nodes) if index not in deleted)
        if not kept or len(kernels) < replays * kept:
            return None
        return float((kernels.end_ns - kernels.start_ns).sum()) / replays / 1e3


def _launcher(executable: Executable, step: Step, device: torch.device) -> Callable[[], None]:
    """Puts the next inputs in place as a replay does, then launches on torch's current stream."""
    import torch

    stream = torch.cuda.current_stream(device).cuda_stream

    def launch() -> None:
        if step.advance is not None:
            step.advance()
        executable.launch(stream)

    return launch


def block_steps(step_us: float) -> int:
    """Steps of a block: about BLOCK_MS of them."""
    return int(min(max(BLOCK_MS * 1e3 / step_us, FEWEST_STEPS), MOST_STEPS))


def time_block(launch: Callable[[], None], steps: int, device: torch.device) -> list[float]:
    """Times of `steps` launches back to back. One more comes first: it finds an idle device and is not counted."""
    return clock.time_steps(launch, steps + 1, device).device_us()[1:]


def in_turns(
    first: Callable[[], None], second: Callable[[], None], steps: int, device: torch.device
) -> tuple[Blocks, Blocks]:
    """BLOCKS blocks of each, in turns A B B A, so that a drift of the clocks bears on both alike; A begins and ends."""
    a: list[list[float]] = []
    b: list[list[float]] = []
    for pair in range(BLOCKS):
        turns = ((a, first), (b, second))
        for blocks, launch in turns if pair % 2 == 0 else reversed(turns):
            blocks.append(time_block(launch, steps, device))
    return a, b


def _notes(
    step: Step, captured: CapturedGraph, labels: Mapping[int, NodeLabel], steps: int, asked: Asked
) -> Iterator[str]:
    graph = captured.graph
    how = Counter(known.match for known in labels.values())
    if how[Match.NAME]:
        yield f"{how[Match.NAME]} kernel nodes were labelled by name: which of its kernels is which node is not certain"
    if how[Match.NONE]:
        lost = sum(known.us or 0.0 for known in labels.values() if known.label is None)
        yield f"{how[Match.NONE]} kernel nodes ({lost:.1f} us) have no certain label; they stay, as unknown"
    nameless = sum(node.kind == KERNEL and not node.names for node in graph.nodes)
    if nameless:
        yield f"{nameless} kernel nodes have no name in the driver; they stay"
    children = sum(node.kind == CHILD_GRAPH for node in graph.nodes)
    if children:
        yield f"{children} child graphs stay whole: what runs in them is not deleted"
    if captured.edge_data:
        yield (
            f"{len(captured.edge_data)} edges are programmatic (the later kernel may begin early): between kernels "
            "that remain they stay so; what leads through a deleted one becomes a full one"
        )
    if step.advance is not None:
        yield "the next inputs are put in place before each replay, of whole and reduced graphs alike, and timed"
    if step.optimizer is not None:
        yield "replays change the weights, reduced ones by gradients of no meaning; only times are taken of them"
    if asked.hold_indices:
        yield "captured with integer tensors kept out of the reuse of memory, because a reduced graph had failed"
    yield "copies, sets and host calls stay, also those that only served deleted kernels"
    yield f"one process; {BLOCKS} blocks of {steps} replays of each graph, in turns A B B A, by device events"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
