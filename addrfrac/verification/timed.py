"""In the worker: a block of timed calls on the same path as the checks.

Every iteration gets new content in the same storages before its start event, the cache is flushed by *reading*, and
which outputs are kept for judgement is told by the parent. Device events are recorded here, where the work is
launched; the parent times the whole block on its own clock and compares.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from addrfrac.verification import channel

_clock = time.perf_counter_ns
_flush: dict[str, torch.Tensor] = {}


@dataclass(slots=True)
class Block:
    """What is laid out before a block runs, so that the parent's clock covers the calls and nothing else."""

    function: Callable[..., Any]
    tree: Any
    live: list[list[torch.Tensor]]
    """Storages that the calls see, in turn."""
    staged: list[list[torch.Tensor]]
    """Contents that are written into them."""
    stamps: _Stamps
    persistent_bytes: int = 0


def _nothing(*_: Any) -> None:
    """What an empty block calls."""


def prepare_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Lay out contents, build the variant, warm it up."""
    from addrfrac.verification.worker import seed_everything, unflatten

    sets = [state.arenas[key] for key in message["keys"]]
    for one in sets:
        one.refresh()
    staged = [[t.clone() for t in one.tensors] for one in sets]
    live = [[t.clone() for t in tensors] for tensors in staged[: max(1, len(sets) // 2)]]
    function: Callable[..., Any] = (
        (lambda *_: None) if message.get("empty") else variant(state, str(message["variant"]))
    )
    tree = sets[0].tree
    seed_everything(1, fast=True)
    with torch.no_grad(), flags(str(message["variant"])):
        for index in range(int(message["warmup"])):
            function(*unflatten(tree, live[index % len(live)]))
        if message.get("cold"):
            flush(state.device, int(message["flush_bytes"]))
    state.block = Block(function=function, tree=tree, live=live, staged=staged, stamps=_Stamps(state.device))
    state.block.persistent_bytes = _memory(state.device)
    return {}


def run_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """The calls themselves: new content, flush, start, call, end; then wait for the device."""
    from addrfrac.verification.worker import tensors_of, unflatten

    block: Block = state.block
    keep = set(message["keep"])
    state.held = []
    with torch.no_grad(), flags(str(message["variant"])):
        for index, content in enumerate(message["order"]):
            target = block.live[index % len(block.live)]
            for mine, theirs in zip(target, block.staged[content], strict=True):
                mine.data.copy_(theirs)
            if message.get("cold"):
                flush(state.device, int(message["flush_bytes"]))
            arguments = unflatten(block.tree, target)
            block.stamps.start()
            output = block.function(*arguments)
            block.stamps.stop()
            if index in keep:
                state.held += [t.detach().clone() for t in tensors_of(output)]
    if state.device.type == "cuda":
        torch.cuda.synchronize()
    return {}


def finish_block(state: Any) -> Any:
    """What each call took by the events, memory, and the kept outputs."""
    block: Block = state.block
    held, state.held, state.block = state.held, [], None
    answer = {
        "event_us": block.stamps.microseconds(),
        "persistent_bytes": block.persistent_bytes,
        "peak_bytes": _peak(state.device),
    }
    return answer, channel.pack(held)


class _Stamps:
    """Start and end of each call, by device events or the host's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.pairs: list[tuple[Any, Any]] = []
        self.begin: Any = None

    def _now(self) -> Any:
        if not self.cuda:
            return _clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self) -> None:
        """Just before a call."""
        self.begin = self._now()

    def stop(self) -> None:
        """Just after it."""
        self.pairs.append((self.begin, self._now()))

    def microseconds(self) -> list[float]:
        """Durations; the device must be idle."""
        if self.cuda:
            return [1e3 * begin.elapsed_time(end) for begin, end in self.pairs]
        return [(end - begin) / 1e3 for begin, end in self.pairs]


def flush(device: torch.device, size_bytes: int) -> None:
    """Evict the cache by reading a large buffer: a write would be charged to the next kernel as write-back."""
    if size_bytes <= 0:
        return
    key = f"{device}/{size_bytes}"
    if key not in _flush:
        _flush[key] = torch.zeros(size_bytes // 4, dtype=torch.float32, device=device)
    _flush[key].sum()


@contextlib.contextmanager
def flags(name: str) -> Iterator[None]:
    """TF32 as a baseline declares it; the candidate and the strict baseline keep torch's own setting."""
    if name == "plain":
        yield
        return
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "eager-strict"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def variant(state: Any, name: str) -> Callable[..., Any]:
    """The model as a baseline has it, made once a process: compiled, as a graph, or itself."""
    if name not in state.variants:
        made: Callable[..., Any] = state.model
        if name == "compile":
            made = torch.compile(state.model)
        elif name == "eager-graph" and state.device.type == "cuda":
            made = Graphed(state.model)
        state.variants[name] = made
    return state.variants[name]  # type: ignore[no-any-return]


class Graphed:
    """A model replayed as a CUDA graph on static inputs; the copy of the inputs is part of its time."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.graph: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Capture at the first call, then copy and replay."""
        if self.graph is None:
            self._capture(arguments)
        for mine, theirs in zip(self.static, arguments, strict=True):
            if isinstance(mine, torch.Tensor):
                mine.copy_(theirs)
        self.graph.replay()
        return self.output

    def _capture(self, arguments: tuple[Any, ...]) -> None:
        self.static = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.model(*self.static)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.model(*self.static)


def _memory(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def _peak(device: torch.device) -> int:
    return int(torch.cuda.max_memory_allocated()) if device.type == "cuda" else 0
