"""A place and its live values in, whether the kernel is right there and what it saves there out.

Each place is judged on the values that it really gets and on variants with outliers, against the same computation in
higher precision; timed as it runs in the model: caches evicted, the real producer run, then the site.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Interpreter, Node

from addrfrac.records import Range
from addrfrac.substitution import operators
from addrfrac.substitution.graph import mutates
from addrfrac.substitution.pairs import Wide, site_graph
from addrfrac.substitution.patterns import VIEWS, Match
from addrfrac.substitution.session import Place, Watcher

MOST_RATIO = 1.5
EPSILONS = 4.0
"""An error of so many units of the dtype's rounding is none, however exact what is there may be."""
OUTLIER = 50.0
SAMPLES = 24
MOST_TIMED = 2
"""Places of one group that are timed; the others take their mean."""
SLEEP_US, SLEEP_FACTOR, MOST_SLEEP_US = 300.0, 1.5, 20_000.0
"""The device waits before each sample, so that the host has enqueued all of it: at least so long, so many times what
the host needed for the samples before, and no longer than this (a first call compiles)."""
CYCLES_PER_US = 2_000
"""Of the device's clock; no card in sight runs faster, and waiting longer costs only time."""
LEAST_SAVED_SHARE = 0.02


@dataclass(slots=True, kw_only=True)
class Trial:
    """What was found of one place."""

    error_ratio: float | None = None
    wrong: str = ""
    """Why the kernel must not stand there; '' where it may."""
    before_us: list[float] = field(default_factory=list)
    after_us: list[float] = field(default_factory=list)


def judged(place: Place, values: Sequence[Any]) -> Trial:
    """Whether the kernel gives what is there, on these values and on variants of them with outliers."""
    graph = site_graph(place.match)
    trial = Trial()
    for name, variant in _variants(values):
        wrong, ratio = _compared(place.match, graph, variant)
        if ratio is not None:
            trial.error_ratio = max(trial.error_ratio or 0.0, ratio)
        if wrong:
            trial.wrong = f"{name}: {wrong}"
            break
    return trial


def _variants(values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The values as captured, a channel far out, everything small, everything negated; one held at a time."""

    def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
        floats = [
            isinstance(each, torch.Tensor) and each.is_floating_point() and each.dim() > 1 and each.numel() > 0
            for each in values
        ]
        return [_like(each, change) if may else each for each, may in zip(values, floats, strict=True)]

    def one_channel(tensor: torch.Tensor) -> torch.Tensor:
        tensor[..., 0] *= OUTLIER
        return tensor

    yield "captured inputs", list(values)
    yield "an outlier channel", changed(one_channel)
    yield "a hundredth of the inputs", changed(lambda tensor: tensor.mul_(0.01))
    yield "negated inputs", changed(lambda tensor: tensor.neg_())


def _like(value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A changed copy that lies in memory as the original does."""
    if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True)):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return change(copy.copy_(value.detach()))


def _compared(match: Match, graph: GraphModule, values: Sequence[Any]) -> tuple[str, float | None]:
    from addrfrac.verification.foreign import Raised, attempt

    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    with torch.no_grad():
        there = _listed(graph(*tensors))
        made = attempt(match.kernel.launcher, *values)
        if isinstance(made, Raised):
            return f"it raised {made.type}: {made.text.splitlines()[0][:120] if made.text else ''}", None
        wide = torch.float64 if any(each.dtype is torch.float32 for each in there) else torch.float32
        widened = [each.to(wide) if each.is_floating_point() else each for each in tensors]
        truth = _listed(Wide(graph, wide).run(*widened))
    worst: float | None = None
    listed = _listed(made)
    if len(listed) != len(there):
        return f"it gives {len(listed)} outputs, not {len(there)}", None
    for mine, other, true in zip(listed, there, truth, strict=True):
        if (mine.shape, mine.dtype) != (other.shape, other.dtype):
            return f"it gives {mine.dtype}{list(mine.shape)}, not {other.dtype}{list(other.shape)}", None
        if strides(mine) != strides(other):
            return f"its output lies in memory as {list(mine.stride())}, not {list(other.stride())}", None
        wrong, ratio = _errors(mine, other, true)
        if ratio is not None:
            worst = max(worst or 0.0, ratio)
        if wrong:
            return wrong, worst
    return "", worst


def strides(tensor: torch.Tensor) -> list[int]:
    """Of the dimensions that decide where anything lies: a step along a dimension of one element is never taken."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _errors(mine: torch.Tensor, other: torch.Tensor, true: torch.Tensor) -> tuple[str, float | None]:
    """In words what is wrong with an output, and how its error compares with that of what is there."""
    if not other.is_floating_point():
        return ("" if torch.equal(mine, other) else "other integers"), None
    true = true.double()
    finite = torch.isfinite(other)
    if not torch.equal(finite, torch.isfinite(mine)):
        return "it is not finite in other places", None
    true = torch.where(finite, true, torch.zeros_like(true))
    apart = [torch.where(finite, each.double() - true, torch.zeros_like(true)) for each in (mine, other)]
    scale = float(true.norm()) or 1.0
    epsilon = torch.finfo(other.dtype).eps
    ratios = []
    # The whole, and the worst element against the largest value: a wrong row must not drown in the others.
    for measure, unit in ((torch.Tensor.norm, scale), (lambda each: each.abs().max(), float(true.abs().max()) or 1.0)):
        if not true.numel():
            continue
        error, base = (float(measure(each)) / unit for each in apart)
        ratios.append(error / max(base, EPSILONS * epsilon))
    worst = max(ratios, default=0.0)
    if worst > MOST_RATIO:
        return f"its error is {worst:.3g} times that of what is there", worst
    return "", worst


# --- time -------------------------------------------------------------------------------------------------------


def timed(
    place: Place,
    watcher: Watcher,
    trial: Trial,
    device: torch.device,
    samples: int = SAMPLES,
    *,
    compiled: bool = False,
) -> None:
    """Microseconds of what is there and of the kernel, in turns, each after the real producer of its inputs.

    With `compiled` what is there is what Inductor makes of the site's calls.
    """
    match = place.match
    arguments = list(match.arguments)
    tensors = [each for each in watcher.values(arguments) if isinstance(each, torch.Tensor)]
    graph: Callable[..., Any] = _compiled(site_graph(match), tensors) if compiled else site_graph(match)
    produce = _producer(watcher, [each for each in arguments if isinstance(each, Node)])
    target = operators.operator_of(match.kernel, watcher.values(arguments), len(match.outputs))

    def there(values: Sequence[Any]) -> Any:
        return graph(*[each for each in values if isinstance(each, torch.Tensor)])

    def kernel(values: Sequence[Any]) -> Any:
        return target(*[each for each in values if each is not None], place.number)

    def values() -> list[Any]:
        made = produce()
        return [made[each] if isinstance(each, Node) else each for each in arguments]

    clock = _on_device if device.type == "cuda" else _on_host
    for number in range(samples + 2):
        order = ((there, trial.before_us), (kernel, trial.after_us))
        for run, kept in order if number % 2 == 0 else order[::-1]:
            us = clock(values, _whole(run) if place.site.trains else run, device)
            if number >= 2:
                kept.append(us)
    operators.calls[place.number] = operators.fallbacks[place.number] = 0


def _compiled(graph: GraphModule, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """What Inductor makes of a site, called as the graph is."""
    from torch._inductor.compile_fx import compile_fx

    compiled: Any = compile_fx(graph, list(tensors))

    def call(*given: torch.Tensor) -> Any:
        made = compiled(*given)
        return made[0] if isinstance(made, list | tuple) and len(made) == 1 else made

    return call


def _whole(run: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """Forward and backward of a site."""

    def both(values: Sequence[Any]) -> None:
        with torch.enable_grad():
            leaves = [
                each.detach().requires_grad_() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
                for each in values
            ]
            results = [each for each in _listed(run(leaves)) if each.requires_grad]
            asked = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
            torch.autograd.grad(results, asked, [torch.ones_like(each) for each in results], allow_unused=True)

    return both


def _producer(watcher: Watcher, inputs: Sequence[Node]) -> Callable[[], dict[Node, Any]]:
    """Runs again the calls that made the inputs, back to the first that is no view; parameters stay as they are."""
    chain: list[Node] = []

    def add(node: Node) -> None:
        if node in chain or node.op != "call_function" or any(True for _ in mutates(node)):
            return
        if node.target in VIEWS:
            for each in node.all_input_nodes:
                add(each)
        chain.append(node)

    for node in inputs:
        add(node)

    def produce() -> dict[Node, Any]:
        made: dict[Node, Any] = {}
        with torch.no_grad():
            for node in chain:
                given = torch.fx.node.map_arg(
                    (node.args, dict(node.kwargs)), lambda each: made.get(each, watcher.env.get(each))
                )
                made[node] = Interpreter.call_function(watcher, node.target, *given)
        return {node: made.get(node, watcher.env[node]) for node in inputs}

    return produce


_evicting: dict[str, torch.Tensor] = {}


def _evict(device: torch.device) -> None:
    """Read, not write, more than the L2 cache holds: written lines would be charged to the site."""
    key = str(device)
    if key not in _evicting:
        held = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 50 << 20)
        _evicting[key] = torch.ones(2 * held // 4, device=device)
    _evicting[key].sum()


_host_us: deque[float] = deque(maxlen=2)
"""What the host needed to enqueue the last samples, one of each side."""


def _on_device(values: Callable[[], list[Any]], run: Callable[[Sequence[Any]], Any], device: torch.device) -> float:
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    _evict(device)
    torch.cuda.synchronize(device)  # or the host's time holds what the device still had to do
    cycles = int(CYCLES_PER_US * min(MOST_SLEEP_US, max(SLEEP_US, SLEEP_FACTOR * max(_host_us, default=0.0))))
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
    began = time.perf_counter()
    made = values()
    begin.record()
    run(made)
    end.record()
    _host_us.append((time.perf_counter() - began) * 1e6)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def _on_host(values: Callable[[], list[Any]], run: Callable[[Sequence[Any]], Any], device: torch.device) -> float:
    made = values()
    began = time.perf_counter()
    run(made)
    return (time.perf_counter() - began) * 1e6


# --- choosing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a kernel saves at the places of one group, chosen on one half of the samples and told from the other."""

    chosen_by_us: float
    before_us: float
    after_us: float
    saved_us: Range


def saving(before_us: Sequence[float], after_us: Sequence[float]) -> Saving:
    """Even samples choose, odd ones are reported."""
    pairs = np.array([before_us, after_us], dtype=float)
    choose, told = pairs[:, ::2], pairs[:, 1::2]
    generator = np.random.default_rng(0)
    picks = generator.integers(0, told.shape[1], size=(1000, told.shape[1]))
    drawn = np.median(told[0][picks], axis=1) - np.median(told[1][picks], axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Saving(
        chosen_by_us=float(np.median(choose[0]) - np.median(choose[1])),
        before_us=float(np.median(told[0])),
        after_us=float(np.median(told[1])),
        saved_us=Range(low=float(low), high=float(high)),
    )
