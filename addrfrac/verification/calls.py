"""In the worker: one call of the model in a given surrounding, and what happens to its outputs afterwards.

What surrounds a call is taken out of the request before the model runs, and what is done with its outputs is asked
for only after it has returned: a candidate that walks the stack learns nothing of either.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import time
from collections.abc import Iterator
from typing import Any

import torch

from addrfrac.verification import channel, gpu
from addrfrac.verification.worker import (
    State,
    captured,
    named_state,
    rng_digest,
    seed_everything,
    tensors_of,
    threads_now,
    unflatten,
)

_libc = ctypes.CDLL(None)
_M_PERTURB = -6
_clock, _process_clock = time.monotonic, time.process_time
_SCRIBBLE = 0x55
_clone = torch._C.TensorBase.clone


def call(state: State, message: dict[str, Any]) -> Any:
    """One call, its outputs captured as bytes at the moment of return."""
    inputs = state.arenas[message["key"]]
    inputs.refresh()
    state.last = []
    tensors = [_copy(t) for t in inputs.tensors] if message.pop("own", False) else inputs.tensors
    arguments = unflatten(message.get("tree") or inputs.tree, tensors)
    sealed = _own_pages(state) + inputs.shared if message.pop("sealed", False) else []
    surroundings = _surroundings(message.pop("context", "no_grad"), sealed)
    poisoned = _fill(state.device, message.pop("poison", None), message.pop("poison_sizes", []))
    seed_everything(int(message["seed"]), fast=True)
    threads, cpu = threads_now(), _process_clock()
    model = state.model
    started = _clock()
    with surroundings:
        output = model(*arguments)
    ended = _clock()
    # read in the order of the current stream: work left on another one is not waited for
    answer, capture = captured(output, tensors, state)
    if state.device.type == "cuda":
        torch.cuda.synchronize()
    if tensors is not inputs.tensors:
        for mine, theirs in zip(inputs.tensors, tensors, strict=True):
            mine.data.copy_(theirs)
    answer |= {
        "inside_s": ended - started,
        "cpu_s": _process_clock() - cpu,
        "threads": threads_now() - threads,
        "rng": rng_digest(state.device),
        "changed_on_device": inputs.changed_on_device(),
    }
    plain = [t for t in tensors_of(output) if type(t) in (torch.Tensor, torch.nn.Parameter)]
    state.last = [t for t in plain if t.device.type == state.device.type and t.layout == torch.strided]
    if poisoned:
        _libc.mallopt(_M_PERTURB, 0)
    return answer, capture


def keep(state: State) -> dict[str, Any]:
    """Hold on to the outputs of the last call."""
    state.held.extend(state.last)
    return {}


def scribble(state: State) -> dict[str, Any]:
    """Write over the outputs of the last call, as whoever owns them may."""
    for tensor in state.last:
        span = channel.span_of(tensor)
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            flat = torch.as_strided(tensor.detach(), (span // tensor.element_size(),), (1,), tensor.storage_offset())
            flat.view(torch.uint8).fill_(_SCRIBBLE)
    state.last = []
    return {}


def again(state: State) -> Any:
    """The held outputs as they are now; they are let go."""
    tensors, state.held = state.held, []
    if state.device.type == "cuda":
        torch.cuda.synchronize()
    return {"cpu_s": _process_clock(), "threads": threads_now()}, channel.pack(tensors)


def burst(state: State, message: dict[str, Any]) -> Any:
    """Many calls in a row as a timing loop makes them: the contents in turn, in one storage.

    Of the outputs the largest and the smallest value at every place are kept for each content: one wrong call among
    hundreds shows in them.
    """
    sets = [state.arenas[key] for key in message.pop("keys")]
    judged, seeds = bool(message.pop("judged")), message.pop("seeds")
    for inputs in sets:
        inputs.refresh()
    state.last = []
    live = [_copy(tensor) for tensor in sets[0].tensors]
    arguments = unflatten(sets[0].tree, live)
    # seconds of work, so that a busy machine does not make it fewer calls; of waiting ten times as many
    count, seconds = int(message.pop("count")), float(message.pop("seconds"))
    until, at_last = _process_clock() + seconds, _clock() + 10 * seconds
    envelopes: list[list[torch.Tensor]] = [[] for _ in sets]
    done = 0
    model = state.model
    with torch.no_grad():
        while done < count and _process_clock() < until and _clock() < at_last:
            turn = done % len(sets)
            for mine, theirs in zip(live, sets[turn].tensors, strict=True):
                mine.data.copy_(theirs)
            seed_everything(seeds[turn], fast=True)
            output = model(*arguments)
            if judged:
                envelopes[turn] = _widened(envelopes[turn], output)
            done += 1
    if state.device.type == "cuda":
        torch.cuda.synchronize()
    counts = [len(envelope) for envelope in envelopes]
    return {"done": done, "counts": counts}, channel.pack([t for envelope in envelopes for t in envelope])


def _widened(envelope: list[torch.Tensor], output: Any) -> list[torch.Tensor]:
    """The largest and the smallest so far, of every plain tensor of an output."""
    tensors = [t for t in tensors_of(output) if type(t) in (torch.Tensor, torch.nn.Parameter)]
    plain = [torch.view_as_real(t) if t.is_complex() else t.detach() for t in tensors]
    if not envelope:
        return [_clone(t) for t in plain for _ in range(2)]
    return [
        bound(kept, t)
        for t, pair in zip(plain, zip(envelope[::2], envelope[1::2], strict=True), strict=False)
        for bound, kept in zip((torch.maximum, torch.minimum), pair, strict=True)
    ]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and strides in ordinary memory."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    made.copy_(tensor)
    return made


def _fill(device: torch.device, poison: int | str | None, sizes: list[int]) -> bool:
    """Fill free memory with one byte, or 'random' litter; whether a pattern stays on until it is taken off."""
    if poison == "random":
        gpu.litter(device, sizes)
        return False
    if poison is None:
        return False
    gpu.poison(device, int(poison), sizes, _libc.mallopt)
    return True


@contextlib.contextmanager
def _surroundings(name: str, sealed: list[torch.Tensor]) -> Iterator[None]:
    """Gradients on or off, inference mode, a profiler; sealed tensors can be read and not written."""
    modes = {"no_grad": torch.no_grad, "grad": torch.enable_grad, "inference": torch.inference_mode}
    with contextlib.ExitStack() as stack:
        if name == "profile":
            stack.enter_context(gpu.profiler())
        stack.enter_context(modes.get(name, torch.no_grad)())
        if sealed:
            _protect(sealed, mmap.PROT_READ)
            stack.callback(_protect, sealed, mmap.PROT_READ | mmap.PROT_WRITE)
        yield


def _own_pages(state: State) -> list[torch.Tensor]:
    """The model's parameters, each moved to pages of its own."""
    found = []
    for _, kind, tensor in named_state(state.model):
        span = channel.span_of(tensor)
        if kind != "parameter" or not span:
            continue
        pages = torch.frombuffer(mmap.mmap(-1, span), dtype=torch.uint8).view(tensor.dtype)
        moved = torch.as_strided(pages, tensor.shape, tensor.stride())
        moved.copy_(tensor.detach())
        tensor.data = moved
        found.append(moved)
    return found


def _protect(tensors: list[torch.Tensor], protection: int) -> None:
    """Change what may be done with the pages that hold tensors."""
    for tensor in tensors:
        if tensor.numel():
            low = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
            high = -(-(tensor.data_ptr() + channel.span_of(tensor)) // mmap.PAGESIZE) * mmap.PAGESIZE
            _libc.mprotect(ctypes.c_void_p(low), ctypes.c_size_t(high - low), protection)
