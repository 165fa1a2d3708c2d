"""One contestant of one problem, as a step that `measure` can time: the reference, a library operator or a solution.

A step is CALLS calls on inputs taken in turn, so that no call finds its ids or rows in cache because the last one left
them there, and so that a call far shorter than an event can still be timed. Launched as a graph, all of them are in it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from addrfrac import dlrm_bench
from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration, Workload
from addrfrac.verification.foreign import load_source
from addrfrac.workloads.step import SEED, Step

if TYPE_CHECKING:
    import torch

    from addrfrac.arms import Arm
    from addrfrac.measure import Held

SETS = 4
"""Inputs in rotation."""
CALLS = 8
LARGE_BYTES = 24 << 30
"""Parameters above this are not held twice: the solution is built without memory and takes the reference's."""
WIDE_BYTES = 8 << 30
"""Up to this the truth is the reference in fp64; above it the reference in strict fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Who computes, on what."""

    problem: str
    size: str
    indices: str
    kind: str
    """'reference', 'compile', 'library:NAME' or 'solution'."""
    text: str = ""
    """Of a solution."""
    graph: bool = False
    calls: int = CALLS


def not_built(configuration: Configuration, device: torch.device) -> Step:
    """A contest is prepared by `prepare`, not built by name."""
    raise AddrfracError("a benchmark's problem is no workload; run it with: addrfrac bench dlrm")


CONTEST = Workload(
    name="contest", about="a problem of a benchmark", build=not_built, defaults={"batch": 1}, modes=("infer",)
)


def prepare(
    arm: Arm, workload: Workload, configuration: Configuration, device: torch.device, *, contestant: Contestant
) -> Step:
    """The contestant's calls as one step. Raises what its code raises."""

    module = dlrm_bench.find_problem(contestant.problem).load()
    model = _reference(module, contestant, device)
    pool = _inputs(module, contestant, device)
    call = contestant_call(model, module, contestant)
    facts = _agreement(call, model, module, contestant, pool[0]) if contestant.kind != "reference" else {}
    moved, flops = module.work(model, *pool[0])

    work = _training(call, model, pool, contestant) if module.TRAINS else _inference(call, pool, contestant)
    run = _captured(work, device) if contestant.graph and device.type == "cuda" else work
    extra = facts | {"bytes": int(moved), "flops": int(flops), "calls": contestant.calls}
    return Step(run=run, samples=contestant.calls, parameters=0, capturable=False, why_not="a contest", extra=extra)


def _inference(call: Callable[..., Any], pool: list[list[Any]], contestant: Contestant) -> Callable[[], object]:
    import torch

    @torch.no_grad()
    def work() -> object:
        result: object = None
        for index in range(contestant.calls):
            result = call(*pool[index % len(pool)])
        return result

    return work


def _training(
    call: Callable[..., Any], model: Any, pool: list[list[Any]], contestant: Contestant
) -> Callable[[], object]:
    """Forward and the gradients of all parameters, for one random cotangent."""
    import torch

    parameters = list(model.parameters())
    cotangent = torch.randn_like(call(*pool[0]))

    def work() -> object:
        result: object = None
        for index in range(contestant.calls):
            result = torch.autograd.grad(call(*pool[index % len(pool)]), parameters, cotangent)
        return result

    return work


def facts_of(held: Held) -> dict[str, Any]:
    """A question for a worker: error, bytes and flops as its set-up found them."""
    return dict(held.step.extra)


def contestant_call(model: Any, module: Any, contestant: Contestant) -> Callable[..., Any]:
    """The callable that is timed; it computes with the parameters of `model`."""
    import torch

    if contestant.kind == "reference":
        return model  # type: ignore[no-any-return]
    if contestant.kind == "compile":
        return torch.compile(model, dynamic=False)
    if contestant.kind.startswith("library:"):
        from addrfrac.dlrm_bench.baselines import makers

        return makers(contestant.problem)[contestant.kind.removeprefix("library:")](model)
    return _solution(model, module, contestant)


def _solution(model: Any, module: Any, contestant: Contestant) -> Callable[..., Any]:
    """`ModelNew` with the reference's own parameter memory."""
    import torch

    digest = hashlib.sha256(contestant.text.encode()).hexdigest()[:12]
    loaded = load_source(contestant.text, Path(mkdtemp(prefix="addrfrac-")), f"solution_{digest}")
    device = next((t.device for t in (*model.parameters(), *model.buffers())), None)
    large = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())) > LARGE_BYTES
    with torch.device("meta" if large else device or "cpu"):
        candidate = loaded.ModelNew(*module.get_init_inputs(contestant.size))
    mine, theirs = _named(candidate), _named(model)
    if list(mine) != list(theirs):
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


def _captured(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """All calls of a step as one CUDA graph. Raises what a failed capture raises."""
    import torch

    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


# --- agreement at the timed size ------------------------------------------------------------------------------


def _agreement(
    call: Callable[..., Any], model: Any, module: Any, contestant: Contestant, inputs: Sequence[Any]
) -> dict[str, Any]:
    """Worst relative error of the contestant's outputs, and what it may be.

    The truth is the reference in fp64, or in strict fp32 where its tables are too large to be held twice as wide. The
    limit is eight times the error of the reference as the baseline runs it, at least 1e-5, at most 2e-2. A problem that
    updates its tables starts from the same state in each.
    """
    import torch

    state = {name: tensor.clone() for name, tensor in model.named_buffers()} if _updates(module) else {}

    def again(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, ...]:
        for name, tensor in model.named_buffers():
            if name in state:
                tensor.copy_(state[name])
        with torch.no_grad():
            result = function(*given)
        return tuple(t.clone() for t in (result if isinstance(result, (tuple, list)) else (result,)))

    found = again(call, inputs)
    own = again(model, inputs)
    truth = again(*_truth(model, inputs))
    for name, tensor in model.named_buffers():
        if name in state:
            tensor.copy_(state[name])
    if [t.shape for t in found] != [t.shape for t in truth]:
        shapes = f"{[tuple(t.shape) for t in found]} in place of {[tuple(t.shape) for t in truth]}"
        raise AddrfracError(f"its outputs have the shapes {shapes}")
    limit = min(max(8 * _worst(own, truth), 1e-5), 2e-2)
    return {"error": _worst(found, truth), "error_limit": limit}


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


def _worst(found: Sequence[Any], truth: Sequence[Any]) -> float:
    """Largest relative Frobenius error over the outputs, whole and by row; integers must be equal (else infinite)."""
    import torch

    worst = 0.0
    for a, b in zip(found, truth, strict=True):
        if not b.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(a, b.to(a.dtype)) else float("inf"))
            continue
        if not bool(torch.isfinite(a).all()):
            return float("inf")
        error, size = (a.double() - b.double()), b.double()
        whole = float(error.norm() / size.norm().clamp_min(1e-30))
        worst = max(worst, whole)
        if error.ndim > 1 and error.shape[0] > 1:
            rows = error.flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1).clamp_min(float(size.abs().mean()))
            worst = max(worst, float(rows.max()) / 4)  # a row holds fewer terms to average over
    return worst


def name_of(path: Path) -> str:
    """The address by which a worker finds this module's CONTEST."""
    return f"{path}:CONTEST"


HERE = name_of(Path(sys.modules[__name__].__file__ or ""))
