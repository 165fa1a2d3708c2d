"""What differs between the devices inside a worker: where inputs live, how free memory is poisoned, how bytes leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from addrfrac.verification.channel import GUARD_BYTES, distinct, span_of

_M_PERTURB = -6
_copies: list[torch.Tensor] = []


_equal = torch.equal


class Inputs:
    """One set of inputs as the model sees it: the shared bytes themselves on a CPU, guarded copies on a device."""

    def __init__(self, shared: list[torch.Tensor], device: torch.device, tree: Any) -> None:
        self.shared, self.device, self.tree = shared, device, tree
        self.buffers: list[torch.Tensor] = []
        if device.type == "cpu":
            self.tensors = shared
        else:
            self.tensors = [self._guarded(tensor) for tensor in shared]

    def _guarded(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view in the middle of a larger device buffer whose ends hold NaN."""
        span = span_of(tensor)
        start = GUARD_BYTES + tensor.data_ptr() % 64  # as misaligned as its shared bytes are
        buffer = torch.full((start + span + GUARD_BYTES,), 255, dtype=torch.uint8, device=self.device)
        self.buffers.append(buffer)
        if not span:
            return tensor.to(self.device)
        middle = buffer[start : start + span].view(tensor.dtype)
        return middle.as_strided(tensor.shape, tensor.stride(), middle.storage_offset())

    def refresh(self) -> None:
        """Content of the shared bytes into the same device storage, without moving a version counter."""
        if self.device.type == "cpu":
            return
        for mine, theirs in zip(self.tensors, self.shared, strict=True):
            distinct(mine.data).copy_(distinct(theirs))
        self.before = [buffer.clone() for buffer in self.buffers]

    def changed_on_device(self) -> list[int]:
        """Inputs (with their guards) whose device bytes differ from what `refresh` wrote; on a CPU the parent looks.

        Their values go into the shared bytes, where the parent looks for what a call may change in place.
        """
        if self.device.type == "cpu":
            return []
        changed = [i for i, (a, b) in enumerate(zip(self.before, self.buffers, strict=True)) if not _equal(a, b)]
        for index in changed:
            distinct(self.shared[index]).copy_(distinct(self.tensors[index].data))
        return changed


def poison(device: torch.device, byte: int, sizes: list[int], mallopt: Callable[[int, int], int]) -> None:
    """Fill memory that the next allocations will get: by the C allocator on a CPU, by freed blocks on a device."""
    if device.type == "cpu":
        mallopt(_M_PERTURB, byte ^ 0xFF)  # glibc fills new blocks with the complement
        return
    for size in sizes:
        blocks = [torch.full((max(1, int(size)),), byte, dtype=torch.uint8, device=device) for _ in range(4)]
        del blocks
    torch.cuda.synchronize()


def litter(device: torch.device, sizes: list[int]) -> None:
    """Leave random bytes in free memory, as a process that has been at work for a while does."""
    blocks = []
    for size in (1 << 10, 1 << 12, 1 << 14, 20_000, 1 << 16, 1 << 18, *sizes):
        blocks += [torch.randint(256, (max(1, min(int(size), 1 << 28)),), dtype=torch.uint8, device=device)]
    del blocks


def to_host(tensor: torch.Tensor, span: int) -> int:
    """Address of a host copy of a device tensor's bytes, alive until the next 64 copies."""
    flat = torch.as_strided(tensor.detach(), (span // tensor.element_size(),), (1,), tensor.storage_offset())
    copy = flat.cpu()
    _copies.append(copy)
    del _copies[:-64]
    return copy.data_ptr()


def profiler() -> Any:
    """A context in which torch reports that a profiler is on."""
    return _LegacyProfiler()


class _LegacyProfiler(contextlib.AbstractContextManager[None]):
    """torch's old CPU profiler: 1 ms to start instead of 1.5 s."""

    def __enter__(self) -> None:
        config = torch._C._profiler.ProfilerConfig(
            torch._C._profiler.ProfilerState.CPU,
            False,
            False,
            False,
            False,
            False,
            torch._C._profiler._ExperimentalConfig(),
        )
        torch._C._autograd._enable_profiler_legacy(config)

    def __exit__(self, *_: object) -> None:
        torch._C._autograd._disable_profiler_legacy()
