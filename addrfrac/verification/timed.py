"""In the worker: blocks of timed calls on the same path as the checks.

Every call gets content that nobody has seen before its start event (drawn for that call alone), the cache is flushed
by *reading*, and which outputs are kept for judgement is told by the parent. Device events are recorded here, where
the work is launched; the parent times the whole block on its own clock and compares. Calls too short for that are
unrolled into one graph over buffers of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from addrfrac.verification import channel

_clock = time.perf_counter_ns
_flush: dict[str, torch.Tensor] = {}
_generators: dict[str, torch.Generator] = {}
_CYCLES_PER_US = 2_000
"""At about 2 GHz; a hold that is a little longer or shorter is as good."""
HOLD_US = 200.0
"""The device is kept busy this long before a call, so that the call is queued before the device comes to it."""
_WARM_UP_NS = 30_000_000
_COPY_BYTES = 1 << 29
_CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6
_SPREAD = 0.25
"""Each element of a varied input is multiplied by 1 - SPREAD to 1: what lies in an interval around zero stays there."""

Held = list[list[torch.Tensor]]


@dataclass(slots=True)
class Block:
    """What is laid out before a variant's blocks run, so that the parent's clock covers calls and nothing else."""

    name: str
    function: Callable[..., Any]
    tree: Any
    live: list[list[torch.Tensor]]
    """Storages that the calls see, in turn."""
    staged: list[list[torch.Tensor]]
    """Contents that are written into them."""
    vary: list[bool]
    """Inputs whose elements are varied for each call."""
    buffers: list[tuple[torch.Tensor, torch.Tensor]]
    """Buffers of the model with the values that every call starts from."""
    held: Held = field(default_factory=list)
    stamps: dict[str, _Stamps] = field(default_factory=dict)
    graph: Any = None
    outputs: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Inputs that are in no arena."""

    tensors: list[torch.Tensor]
    tree: Any


@dataclass(slots=True)
class Session:
    """Blocks of one model, by variant."""

    model: Any
    blocks: dict[str, Block] = field(default_factory=dict)


def session(state: Any) -> Session:
    """The state's session; a rebuilt model begins a new one."""
    if not isinstance(state.block, Session) or state.block.model is not state.model:
        state.block = Session(model=state.model)
        state.variants = {}
    found: Session = state.block
    return found


# --- single calls -------------------------------------------------------------------------------------------


def prepare_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Lay out contents, build the variant, warm it up; `keep` outputs will be asked for."""
    name = str(message["variant"])
    blocks = session(state).blocks
    if name not in blocks:
        blocks[name] = _laid_out(state, message, copies=2)
    block = blocks[name]
    block.stamps = {}
    with torch.no_grad(), flags(name):
        output = _warm_up(state, block)
        kept = _tensors_of(output)
        block.held = [[torch.empty_like(t) for t in kept] for _ in range(int(message["keep"]) + 1)]
        settle(state.device, cold=True, flush_bytes=int(message["flush_bytes"]), hold_us=1.0)
    _wait(state.device)
    return {}


def _laid_out(state: Any, message: dict[str, Any], copies: int) -> Block:
    from addrfrac.verification.worker import named_state

    if state.device.type == "cuda":
        forbid_persisting()
    sets = [state.arenas[key] for key in message["keys"]]
    for one in sets:
        one.refresh()
    staged = [[t.clone() for t in one.tensors] for one in sets]
    return Block(
        name=str(message["variant"]),
        function=variant(state, str(message["variant"])),
        tree=sets[0].tree,
        live=[[t.clone() for t in staged[i % len(staged)]] for i in range(copies)],
        staged=staged,
        vary=[bool(v) for v in message["vary"]],
        buffers=[(t, t.detach().clone()) for _, kind, t in named_state(state.model) if kind == "buffer"],
    )


def _warm_up(state: Any, block: Block) -> Any:
    """Calls until the clocks have settled, at least three and one on every storage that timed calls will see."""
    from addrfrac.verification.worker import seed_everything, unflatten

    seed_everything(1, fast=True)
    began, output = _clock(), None
    least = max(3, len(block.live))
    for index in range(max(50, least)):
        output = block.function(*unflatten(block.tree, block.live[index % len(block.live)]))
        _wait(state.device)
        if index + 1 >= least and _clock() - began > _WARM_UP_NS:
            break
    return output


def run_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """The calls themselves: new content, flush, hold, start, call, end, wait for every stream of the device.

    Each call begins on an idle device and is queued while the device is held, so that what a block takes beyond an
    empty one is what the calls took on the device in whatever stream, not what launching them cost the host.
    """
    from addrfrac.verification.worker import seed_everything, unflatten

    block = session(state).blocks[str(message["variant"])]
    keep = {call: position for position, call in enumerate(message["keep"])}
    empty, cold, flush_bytes = bool(message["empty"]), bool(message["cold"]), int(message["flush_bytes"])
    hold_us = float(message.get("hold_us", HOLD_US))
    stamps, host_us = _Stamps(state.device), []
    block.stamps["empty" if empty else "full" if cold or state.device.type == "cpu" else "warm"] = stamps
    with torch.no_grad(), flags(block.name), no_collection():
        for index, (content, seed) in enumerate(zip(message["order"], message["seeds"], strict=True)):
            target = block.live[index % len(block.live)]
            write(target, block.staged[content], block.vary, int(seed))
            _restore(block.buffers)
            seed_everything(int(seed), fast=True)
            arguments = unflatten(block.tree, target)
            output = block.held[-1]
            settle(state.device, cold=cold, flush_bytes=flush_bytes, hold_us=hold_us)
            launched = _clock()
            stamps.start()
            if not empty:
                output = block.function(*arguments)
            stamps.stop()
            host_us.append((_clock() - launched) / 1e3)
            if index in keep:
                _keep(block.held[keep[index]], output)
            _wait(state.device)
    return {"host_us": statistics.median(host_us)}


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected amid a block: some milliseconds at a time that are nobody's."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _keep(mine: list[torch.Tensor], output: Any) -> None:
    """Copy an output into memory laid out for it: making memory now would cost the block time that is no call's."""
    theirs = _tensors_of(output)
    if [t.shape for t in mine] != [t.shape for t in theirs]:
        raise ValueError("a timed call gave tensors of another count or shape than the one before")
    for one, other in zip(mine, theirs, strict=True):
        one.copy_(other)


def finish_block(state: Any, message: dict[str, Any]) -> Any:
    """What each call took by the events, and the kept outputs."""
    block = session(state).blocks[str(message["variant"])]
    answer = {f"{name}_us": stamps.microseconds() for name, stamps in block.stamps.items()}
    return answer, channel.pack([t for tensors in block.held[:-1] for t in tensors])


# --- unrolled graphs ----------------------------------------------------------------------------------------


def capture_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Unroll calls into one graph, each on inputs and outputs of its own; raises where that cannot be captured."""
    from addrfrac.verification.worker import unflatten

    name = str(message["variant"])
    block = session(state).blocks[name] = _laid_out(state, message, copies=int(message["calls"]))
    with torch.no_grad(), flags(name):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = _warm_up(state, block)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        block.held = [[torch.empty_like(t) for t in _tensors_of(output)] for _ in range(int(message["keep"]))] + [[]]
        del output
        block.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(block.graph, capture_error_mode="thread_local"):
            for target in block.live:
                block.outputs.append(block.function(*unflatten(block.tree, target)))
        block.graph.replay()
    torch.cuda.synchronize()
    return {}


def replay_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Windows of one replay each, all contents rewritten before each; the last one's outputs are kept."""
    block = session(state).blocks[str(message["variant"])]
    stamps = block.stamps["full"] = _Stamps(state.device)
    empty = block.stamps["empty"] = _Stamps(state.device)
    with torch.no_grad():
        for seeds in message["seeds"]:
            for target, content, seed in zip(block.live, message["order"], seeds, strict=True):
                write(target, block.staged[content], block.vary, int(seed))
            settle(state.device, cold=True, flush_bytes=int(message["flush_bytes"]), hold_us=HOLD_US)
            empty.start()
            empty.stop()
            stamps.start()
            block.graph.replay()
            stamps.stop()
            torch.cuda.synchronize()
        for position, call in enumerate(message["keep"]):
            _keep(block.held[position], block.outputs[call])
    torch.cuda.synchronize()
    return {}


def repeat_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Replays in a row for the parent's clock; none for an empty row."""
    block = session(state).blocks[str(message["variant"])]
    with no_collection():
        for _ in range(int(message["count"])):
            block.graph.replay()
        torch.cuda.synchronize()
    return {}


def drop_block(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Let a variant's buffers and graph go."""
    session(state).blocks.pop(str(message["variant"]), None)
    return {}


# --- contents -----------------------------------------------------------------------------------------------


def write(mine: list[torch.Tensor], contents: list[torch.Tensor], vary: list[bool], seed: int) -> None:
    """A content, its varied inputs drawn for this seed alone; no version counter moves."""
    for index, (target, content, varied) in enumerate(zip(mine, contents, vary, strict=True)):
        target.data.copy_(content)
        if varied:
            target.data.mul_(_factors(target, seed + index))


def _factors(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Factors of at most 1 for each element; the same for one seed in every process on this device."""
    key = str(like.device)
    if key not in _generators:
        _generators[key] = torch.Generator(device=like.device)
    generator = _generators[key].manual_seed(seed)
    drawn = torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)
    return drawn.mul_(-_SPREAD).add_(1.0).to(like.dtype)


def _restore(buffers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, value in buffers:
        tensor.data.copy_(value)


def fresh(state: Any, message: dict[str, Any]) -> Any:
    """In the reference's process: native and fp64 answers (for each of `hows`) to the content of one timed call."""
    from addrfrac.verification.worker import _exact_answer, seed_everything, unflatten

    inputs = state.arenas[message["key"]]
    inputs.refresh()
    tensors = [t.clone() for t in inputs.tensors]
    write(tensors, inputs.tensors, [bool(v) for v in message["vary"]], int(message["seed"]))
    given = [t.clone() for t in tensors]
    found = []
    for how in message["hows"]:
        contents: Any = Contents(tensors=[t.clone() for t in tensors], tree=inputs.tree)
        found.append(_exact_answer(state, contents, how, message))
    seed_everything(int(message["seed"]), fast=True)
    with torch.no_grad():
        found.append(_tensors_of(state.model(*unflatten(inputs.tree, tensors))))
    found.append(given if message.get("inputs") else [])
    return {"counts": [len(group) for group in found]}, channel.pack([t for group in found for t in group])


def needed(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """In the reference's process: share of sampled elements of each floating input on which an output depends."""
    from addrfrac.verification.worker import seed_everything, unflatten

    inputs = state.arenas[message["key"]]
    inputs.refresh()
    seed, samples = int(message["seed"]), int(message["samples"])
    generator = torch.Generator().manual_seed(seed)

    def answer(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        seed_everything(seed, fast=True)
        return [t.clone() for t in _tensors_of(state.model(*unflatten(inputs.tree, [t.clone() for t in tensors])))]

    shares = []
    with torch.no_grad():
        before = answer(inputs.tensors)
        for index, tensor in enumerate(inputs.tensors):
            if not tensor.is_floating_point() or not tensor.numel():
                shares.append(1.0)
                continue
            size = 8 * float(tensor.float().square().mean().sqrt()) + 1.0
            moved = 0
            for position in torch.randint(tensor.numel(), (samples,), generator=generator).tolist():
                changed = [t.clone() for t in inputs.tensors]
                flat = changed[index].reshape(-1)
                flat[position] += size
                changed[index] = flat.view(tensor.shape)
                moved += any(not torch.equal(a, b) for a, b in zip(before, answer(changed), strict=True))
            shares.append(moved / samples)
    return {"shares": shares}


# --- device and memory --------------------------------------------------------------------------------------


def device_facts(state: Any, _message: dict[str, Any]) -> dict[str, Any]:
    """Cache size and the rate of a large copy (bytes read and written), measured here and now."""
    if state.device.type != "cuda":
        return {"cache_bytes": 0, "peak_gb_per_s": None}
    properties = torch.cuda.get_device_properties(state.device)
    source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=state.device)
    target = torch.empty_like(source)
    stamps = _Stamps(state.device)
    for _ in range(8):
        stamps.start()
        target.copy_(source)
        stamps.stop()
    torch.cuda.synchronize()
    best = min(stamps.microseconds()[2:])
    del source, target
    torch.cuda.empty_cache()
    return {
        "cache_bytes": int(getattr(properties, "L2_cache_size", 0)),
        "peak_gb_per_s": 2 * _COPY_BYTES / best / 1e3,
        "name": str(properties.name),
        "persisting_reset": forbid_persisting() and reset_persisting(),
    }


def footprint(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Allocated bytes: 'before' a model is built; 'after', what it keeps and what one call needs on top."""
    from addrfrac.verification.worker import seed_everything, unflatten

    if state.device.type != "cuda":
        return {"allocated_bytes": 0, "peak_bytes": 0}
    if message["when"] == "after":
        inputs = state.arenas[message["key"]]
        inputs.refresh()
        arguments = unflatten(inputs.tree, inputs.tensors)
        seed_everything(1, fast=True)
        with torch.no_grad():
            for _ in range(2):
                state.model(*arguments)
            torch.cuda.synchronize()
            kept = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            output = state.model(*arguments)
            torch.cuda.synchronize()
        del output
        return {"allocated_bytes": int(kept), "peak_bytes": int(torch.cuda.max_memory_allocated())}
    torch.cuda.synchronize()
    return {"allocated_bytes": int(torch.cuda.memory_allocated()), "peak_bytes": 0}


def trace(state: Any, message: dict[str, Any]) -> Any:
    """Device kernels of isolated calls in every stream, and the output of the last one."""
    from addrfrac.verification.evidence import device_kernels
    from addrfrac.verification.worker import seed_everything, unflatten

    inputs = state.arenas[message["key"]]
    inputs.refresh()
    seed = int(message["seed"])

    def once() -> Any:
        seed_everything(seed, fast=True)
        return state.model(*unflatten(inputs.tree, inputs.tensors))

    def again() -> None:
        inputs.refresh()
        torch.cuda.synchronize()

    found, output = device_kernels(once, again)
    return found, channel.pack([t.detach() for t in _tensors_of(output)])


def compile_variant(state: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Make and warm a variant, so that its blocks need not."""
    from addrfrac.verification.worker import unflatten

    inputs = state.arenas[message["key"]]
    inputs.refresh()
    session(state)
    name = str(message["variant"])
    with torch.no_grad(), flags(name):
        function = variant(state, name)
        for _ in range(2):
            function(*unflatten(inputs.tree, [t.clone() for t in inputs.tensors]))
    _wait(state.device)
    return {}


PHASES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "prepare": prepare_block,
    "run": run_block,
    "finish": finish_block,
    "capture": capture_block,
    "replay": replay_block,
    "repeat": repeat_block,
    "drop": drop_block,
    "fresh": fresh,
    "needed": needed,
    "device": device_facts,
    "footprint": footprint,
    "trace": trace,
    "compile": compile_variant,
}


class _Stamps:
    """Start and end of each window, by device events or the host's clock on a CPU."""

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


def settle(device: torch.device, *, cold: bool, flush_bytes: int, hold_us: float) -> None:
    """The cache as the next call is to find it, and the device busy while that call is launched."""
    if device.type != "cuda":
        return
    if cold:
        reset_persisting()
        flush(device, flush_bytes)
    torch.cuda._sleep(int(hold_us * _CYCLES_PER_US))  # type: ignore[no-untyped-call]


def flush(device: torch.device, size_bytes: int) -> None:
    """Evict the cache by reading a large buffer: a write would be charged to the next kernel as write-back."""
    if size_bytes <= 0:
        return
    key = f"{device}/{size_bytes}"
    if key not in _flush:
        _flush[key] = torch.zeros(size_bytes // 4, dtype=torch.float32, device=device)
    _flush[key].sum()


def reset_persisting() -> bool:
    """Lines that a kernel had the cache keep become ordinary ones; whether the driver did it."""
    driver = _driver()
    return driver is not None and driver.cuCtxResetPersistingL2Cache() == 0


def forbid_persisting() -> bool:
    """No part of the cache may be set aside from now on; whether the driver did it."""
    driver = _driver()
    return driver is not None and driver.cuCtxSetLimit(_CU_LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0)) == 0


_drivers: list[Any] = []


def _driver() -> Any:
    """The CUDA driver's library; None where it is missing or too old."""
    if not _drivers:
        found: Any = None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libcuda.so.1")
            if library.cuCtxResetPersistingL2Cache and library.cuCtxSetLimit:
                found = library
        _drivers.append(found)
    return _drivers[0]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _tensors_of(output: Any) -> list[torch.Tensor]:
    from addrfrac.verification.worker import tensors_of

    return tensors_of(output)


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
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.output = self.model(*self.static)
