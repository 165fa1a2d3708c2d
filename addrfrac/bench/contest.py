"""One contestant of one problem, ready to be called in a worker: reference, compiled reference, library or solution.

A step is several calls on inputs taken in turn, so that no call finds its ids or rows in cache because the last one
left them there, and so that a call far shorter than an event can still be timed. As a graph, all of them are in it.
Times are told a call.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac import arms, capture, clock, dlrm_bench, environment
from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.verification.foreign import Raised, attempt, load_source
from addrfrac.workloads.step import SEED

if TYPE_CHECKING:
    import torch

SETS = 4
"""Inputs in rotation."""
CALLS = 8
LONG_CALL_US = 4_000.0
"""Calls that take longer come SETS at a time; on a CPU one at a time."""
LARGE_BYTES = 8 << 30
"""Parameters above this are not held twice: the solution is built without memory and takes the reference's."""
WIDE_BYTES = 8 << 30
"""Up to this the truth is the reference in fp64; above it the reference in strict fp32."""
EAGER, GRAPH = arms.EAGER, arms.GRAPH
FORWARD, FORWARD_GRAPH = "forward", "forward graph"
AS_GRAPH = {EAGER: GRAPH, FORWARD: FORWARD_GRAPH}
WARM_UPS = 3
LEAD_US = 10_000.0
"""Of steps at the start of a block that do not count: the device comes from another process's work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Who computes, on what; nothing in it that cannot be sent to another process."""

    problem: str
    size: str
    indices: str
    """'uniform' or 'zipf'."""
    kind: str
    """'reference', 'compile', 'library:NAME' or 'solution'."""
    text: str = ""
    """Of a solution."""
    graph: bool = True
    """Also as a CUDA graph, where there is a device and nothing in it waits for the device."""
    judged: bool = True
    """Its outputs are compared with the truth before it is timed."""
    folder: str = ""
    """Where a solution's text may be kept while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """What a worker says of a contestant that is ready."""

    step_us: dict[str, float]
    """Launch -> microseconds a step, roughly; 'forward' and its graph only where a problem trains."""
    calls: dict[str, int]
    """Launch -> calls a step."""
    no_graph: str
    """Why there is no graph; '' where there is one or none was wanted."""
    spoilt: bool
    """A capture failed on the way: this process is of no more use."""
    agreement: Agreement | None
    bytes: int
    flops: int
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far outputs are from the truth at the timed size, and how far they may be."""

    error: float
    limit: float
    agrees: bool
    reason: str
    """In words where they do not agree."""


@dataclass(slots=True, kw_only=True)
class Seat:
    """A contestant, warm."""

    runs: dict[str, Callable[[], object]] = field(default_factory=dict)
    """Launch -> one step."""
    calls: dict[str, int] = field(default_factory=dict)
    """Launch -> calls a step."""
    step_us: dict[str, float] = field(default_factory=dict)
    graphs: list[clock.Graph] = field(default_factory=list)
    spoilt: bool = False
    """A capture failed on the way."""
    holds: list[Any] = field(default_factory=list)
    """What must live as long: model and inputs."""


@dataclass(slots=True, kw_only=True, eq=False)
class Chair:
    """What a worker holds: its device and whoever sits in it."""

    device: torch.device
    settings: ExitStack
    seat: Seat | None = None
    taken_by: Contestant | None = None
    said: Seated | None = None
    """Of whoever sits here."""

    def first_answer(self) -> int:
        """Its process."""
        return os.getpid()


def take_chair(device_name: str) -> Chair:
    """A worker's set-up: the device started, TF32 allowed to everybody; nobody sits yet."""
    if device_name == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    device = environment.torch_device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    else:
        torch.set_num_threads(1)
    configuration = Configuration(
        workload="contest", mode="infer", batch=1, dtype="tf32", layout="", execution=EAGER, device=device_name
    )
    settings = ExitStack()
    settings.enter_context(arms.settings(configuration))
    return Chair(device=device, settings=settings)


def stand_up(chair: Chair) -> None:
    """Give back what the last contestant held."""
    chair.seat = chair.taken_by = chair.said = None
    capture.release_memory(chair.device)


def sit(chair: Chair, contestant: Contestant) -> Seated:
    """Build the contestant, compare it with the truth, warm it up, capture it. Raises what its code raises.

    Whoever sits here already, as the baselines of a problem's next solution do, stays as it is.
    """
    who = replace(contestant, judged=False)
    if chair.seat is not None and chair.said is not None and chair.taken_by == who:
        return chair.said
    stand_up(chair)
    device = chair.device
    if contestant.kind == "compile":
        capture.fresh_compiler()
    module = dlrm_bench.find_problem(contestant.problem).load()
    model = _reference(module, contestant, device)
    pool = _inputs(module, contestant, device)
    moved, flops = module.work(model, *pool[0])
    call = contestant_call(model, module, contestant)
    judged = contestant.judged and contestant.kind != "reference"
    agreement = _agreement(call, model, module, pool[0]) if judged else None
    capture.release_memory(device)

    seat = Seat()
    peaks: list[int] = []
    no_graph, spoilt = "", False
    # Where a problem trains, its forward pass alone is timed too; the graphs come last, as they may spoil the process.
    ways = {EAGER: module.TRAINS} | ({FORWARD: False} if module.TRAINS else {})
    for launch, trains in ways.items():
        _add_run(seat, launch, call, model, pool, trains, device, peaks)
    if contestant.graph and device.type == "cuda":
        for launch in ways:
            no_graph, spoilt = no_graph or _add_graph(seat, launch, device), spoilt or seat.spoilt
    capture.release_memory(device)
    seat.holds = [model, pool, call]
    chair.seat, chair.taken_by = None if spoilt else seat, who
    chair.said = Seated(
        step_us={} if spoilt else seat.step_us,
        calls=seat.calls,
        no_graph=no_graph,
        spoilt=spoilt,
        agreement=agreement,
        bytes=int(moved),
        flops=int(flops),
        peak_bytes=max(peaks, default=None),
    )
    return chair.said


def block(chair: Chair, steps: int, *, launch: str = EAGER) -> list[float]:
    """Microseconds a call, step by step, back to back: between device events, on a CPU by the host's clock."""
    seat = chair.seat
    if seat is None:
        raise AddrfracError("nobody sits here")
    run = seat.runs[launch]
    for _ in range(lead_steps(seat.step_us[launch])):
        run()
    watch = clock.time_steps(run, steps, chair.device)
    return [round(us / seat.calls[launch], 4) for us in (watch.device_us() or watch.host_us())]


def lead_steps(step_us: float) -> int:
    """At most two steps and at most LEAD_US; none of a long one."""
    return min(2, int(LEAD_US / max(step_us, 1.0)))


def _add_run(
    seat: Seat,
    launch: str,
    call: Callable[..., Any],
    model: Any,
    pool: list[list[Any]],
    trains: bool,
    device: torch.device,
    peaks: list[int],
) -> None:
    """Warm up one way to run and put it in the seat.

    On a CPU a solution runs in an interpreter, where a call takes a second: one is enough there.
    """
    on_gpu = device.type == "cuda"
    one = _work(call, model, pool, 1, trains)
    for _ in pool if on_gpu else ():
        one()  # compiles for each set's shapes
    call_us = min(_seconds(one, device) for _ in (pool if on_gpu else pool[:1])) * 1e6
    seat.calls[launch] = _calls(call_us, device)
    work = _work(call, model, pool, seat.calls[launch], trains)
    peak_bytes = _warmed(work, device)
    if peak_bytes is not None:
        peaks.append(peak_bytes)
    seat.runs[launch] = work
    seat.step_us[launch] = min(_seconds(work, device) for _ in range(WARM_UPS)) * 1e6 if on_gpu else call_us


def _add_graph(seat: Seat, launch: str, device: torch.device) -> str:
    """Capture one way to run; '' or why it could not be."""
    if seat.spoilt:
        return ""
    no_graph, seat.spoilt, graph = _captured(seat.runs[launch], device)
    if graph is not None:
        seat.graphs.append(graph)
        name = AS_GRAPH[launch]
        seat.runs[name], seat.calls[name] = graph.replay, seat.calls[launch]
        seat.step_us[name] = min(_seconds(graph.replay, device) for _ in range(WARM_UPS)) * 1e6
    return no_graph


def _warmed(work: Callable[[], object], device: torch.device) -> int | None:
    """Most bytes that a warm step holds; None on a CPU, where nothing need be warm."""
    if device.type != "cuda":
        return None
    for _ in range(WARM_UPS):
        work()
    clock.synchronise(device)
    clock.reset_peak(device)
    work()
    clock.synchronise(device)
    return clock.peak_bytes(device)


def _calls(call_us: float, device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return CALLS if call_us < LONG_CALL_US else SETS


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    import time

    clock.synchronise(device)
    began = time.perf_counter()
    run()
    clock.synchronise(device)
    return time.perf_counter() - began


def _work(
    call: Callable[..., Any], model: Any, pool: list[list[Any]], calls: int, trains: bool
) -> Callable[[], object]:
    """One step: so many calls, each on the next set of inputs."""
    turn = itertools.cycle(pool)
    return _training(call, model, turn, pool[0], calls) if trains else _inference(call, turn, calls)


def _inference(call: Callable[..., Any], turn: Any, calls: int) -> Callable[[], object]:
    import torch

    def work() -> object:
        result: object = None
        with torch.no_grad():
            for _ in range(calls):
                result = call(*next(turn))
        return result

    return work


def _training(call: Callable[..., Any], model: Any, turn: Any, first: list[Any], calls: int) -> Callable[[], object]:
    """Forward and the gradients of all parameters and floating inputs, for one random cotangent."""
    import torch

    parameters = list(model.parameters())
    with torch.no_grad():
        shaped = call(*first)
    torch.manual_seed(SEED)
    cotangent = torch.randn_like(shaped)

    def work() -> object:
        result: object = None
        for _ in range(calls):
            result = torch.autograd.grad(call(*next(turn)), parameters, cotangent)
        return result

    return work


def _captured(work: Callable[[], object], device: torch.device) -> tuple[str, bool, clock.Graph | None]:
    """(why there is no graph, whether the attempt spoilt the process, the graph)."""
    waits = attempt(_without_waiting, work)
    if isinstance(waits, Raised):
        return f"it waits for the device: {_line(waits.text)}", False, None
    found = attempt(clock.capture_graph, work, None, device)
    if isinstance(found, Raised):
        return f"capture failed: {_line(found.text)}", True, None
    return (found, True, None) if isinstance(found, str) else ("", False, found)


def _without_waiting(work: Callable[[], object]) -> None:
    """One step in which torch refuses whatever waits for the device; a capture that met it would spoil the process."""
    import torch

    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:160] if lines else "it gave no reason"


# --- contestants ----------------------------------------------------------------------------------------------


def contestant_call(model: Any, module: Any, contestant: Contestant) -> Callable[..., Any]:
    """The callable that is timed; it computes with the parameters of `model`."""
    import torch

    if contestant.kind == "reference":
        return model  # type: ignore[no-any-return]
    if contestant.kind == "compile":
        return torch.compile(model)
    if contestant.kind.startswith("library:"):
        from addrfrac.dlrm_bench.baselines import makers

        return makers(contestant.problem)[contestant.kind.removeprefix("library:")](model)
    return _solution(model, module, contestant)


def _solution(model: Any, module: Any, contestant: Contestant) -> Callable[..., Any]:
    """`ModelNew` with the reference's own parameter memory."""
    import torch

    digest = hashlib.sha256(contestant.text.encode()).hexdigest()[:12]
    # A name of its own in each process: several write it at once.
    loaded = load_source(contestant.text, Path(contestant.folder), f"solution_{digest}_{os.getpid()}")
    device = next((t.device for t in (*model.parameters(), *model.buffers())), None)
    large = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())) > LARGE_BYTES
    with torch.device("meta" if large else device or "cpu"):
        candidate = loaded.ModelNew(*module.get_init_inputs(contestant.size))
    mine, theirs = _named(candidate), _named(model)
    if {name: t.shape for name, t in mine.items()} != {name: t.shape for name, t in theirs.items()}:
        theirs = _by_order(mine, theirs)
    for name, tensor in theirs.items():
        _put(candidate, name, tensor)
    return candidate.eval()  # type: ignore[no-any-return]


def _named(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _by_order(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The reference's tensors under the candidate's names, matched by order and shape."""
    if [t.shape for t in mine.values()] != [t.shape for t in theirs.values()]:
        raise AddrfracError("its parameters match the reference's neither by name nor by order and shape")
    return dict(zip(mine, theirs.values(), strict=True))


def _put(model: Any, name: str, tensor: Any) -> None:
    owner = model
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    if last in owner._parameters:
        owner._parameters[last] = tensor
    else:
        owner._buffers[last] = tensor


def _reference(module: Any, contestant: Contestant, device: torch.device) -> Any:
    import torch

    torch.manual_seed(SEED)
    with device:
        return module.Model(*module.get_init_inputs(contestant.size)).eval()


def _inputs(module: Any, contestant: Contestant, device: torch.device) -> list[list[Any]]:
    """Sets of inputs, different ids and values in each, on the device."""
    import torch

    pool = []
    for index in range(SETS):
        torch.manual_seed(SEED + 1 + index)
        with device:
            given = module.get_inputs(contestant.size, contestant.indices)
        pool.append([x.to(device) if isinstance(x, torch.Tensor) else x for x in given])
    return pool


# --- agreement at the timed size ------------------------------------------------------------------------------


def _agreement(call: Callable[..., Any], model: Any, module: Any, inputs: Sequence[Any]) -> Agreement:
    """Outputs of the contestant, and of the reference as the baseline runs it, beside the truth.

    The truth is the reference in fp64, or in strict fp32 where its tables are too large to be held twice as wide. A
    problem that updates its tables starts from the same state in each.
    """
    import torch

    state = {name: tensor.clone() for name, tensor in model.named_buffers()} if _updates(module) else {}

    def again(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            result = function(*given)
        found = tuple(t.clone() for t in (result if isinstance(result, (tuple, list)) else (result,)))
        for name, tensor in model.named_buffers():
            if name in state:
                tensor.copy_(state[name])
        return found

    found, own, truth = again(call, inputs), again(model, inputs), again(*_truth(model, inputs))
    return compared(found, own, truth)


def _updates(module: Any) -> bool:
    return hasattr(module, "LEARNING_RATE")


def _truth(model: Any, inputs: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The reference in higher precision, on inputs to match."""
    import copy

    import torch

    floating = [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    kept = any(t.dtype == torch.uint8 for t in model.buffers()) or any(t.dtype == torch.float16 for t in floating)
    if kept or sum(t.numel() * t.element_size() for t in floating) > WIDE_BYTES:
        return _strict(model), inputs
    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    return copy.deepcopy(model).double(), wide


def _strict(model: Any) -> Callable[..., Any]:
    """The reference with TF32 off."""
    import torch

    def run(*inputs: Any) -> Any:
        matmul = torch.backends.cuda.matmul
        before = matmul.allow_tf32
        matmul.allow_tf32 = False
        try:
            return model(*inputs)
        finally:
            matmul.allow_tf32 = before

    return run


def compared(found: Sequence[Any], own: Sequence[Any], truth: Sequence[Any]) -> Agreement:
    """Worst relative error of floating outputs and worst share of different integers, over what each may be.

    An error may be eight times that of the reference as the baseline runs it, at least 1e-5 and at most 2e-2; integers
    may differ eight times as often as the reference's own, which for ids and counts is never.
    """
    shapes = [tuple(t.shape) for t in found], [tuple(t.shape) for t in truth]
    if shapes[0] != shapes[1]:
        return Agreement(
            error=float("inf"), limit=0.0, agrees=False, reason=f"shapes {shapes[0]} in place of {shapes[1]}"
        )
    worst = Agreement(error=0.0, limit=1e-5, agrees=True, reason="")
    for number, (mine, baseline, true) in enumerate(zip(found, own, truth, strict=True)):
        error, floating = _distance(mine, true), true.is_floating_point()
        limit = 8 * _distance(baseline, true)
        limit = min(max(limit, 1e-5), 2e-2) if floating else min(limit, 0.5)
        what = f"relative error {error:.2e}, limit {limit:.2e}" if floating else f"{error:.1%} of integers differ"
        reason = "" if error <= limit else f"output {number}: {what}"
        if reason or (worst.agrees and error > worst.error):
            worst = Agreement(error=error, limit=limit, agrees=not reason, reason=reason)
        if reason:
            break
    return worst


def _distance(found: Any, truth: Any) -> float:
    """Relative Frobenius error, whole or of the worst row; of integers the share that differ."""
    import torch

    if not truth.is_floating_point():
        return float((found.to(truth.dtype) != truth).double().mean()) if truth.numel() else 0.0
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    if not truth.numel():
        return 0.0
    size = truth.double()
    error = found.double() - size
    worst = float(error.norm() / size.norm().clamp_min(1e-30))
    if error.ndim > 1 and error.shape[0] > 1:
        typical = float(size.norm() / error.shape[0] ** 0.5)  # of a row: one that cancels out has no error of its own
        rows = error.flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1).clamp_min(max(typical, 1e-30))
        worst = max(worst, float(rows.max()) / 4)  # a row holds fewer terms to average over
    return worst
