"""Cross entropy, the mean over rows of log(sum(exp(logits))) - logits[target], with its gradient.

Forward reads the logits once in chunks with a running maximum and sum; backward reads them again and writes
(softmax - one-hot) x gradient / rows: n elements forward, 2 n backward, and one fp32 pair a row kept between. Rows of
any length: nothing of a row's width stays in registers. fp32 whatever the dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

CHUNK = 4096
TRAINS = True
"""The reference trains: gradients are part of what must be right."""


@triton.jit
def _forward_kernel(logits, targets, losses, norms, columns, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, CHUNK)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for begin in range(0, columns, CHUNK):
        inside = begin + lanes < columns
        values = tl.load(logits + row * columns + begin + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        found = tl.maximum(largest, tl.max(values, 0))
        total = total * tl.exp(largest - found) + tl.sum(tl.exp(values - found), 0)
        largest = found
    norm = largest + tl.log(total)
    wanted = tl.load(logits + row * columns + tl.load(targets + row)).to(tl.float32)
    tl.store(norms + row, norm)
    tl.store(losses + row, norm - wanted)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    logits, targets, norms, gradient, out, rows, columns, CHUNK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    inside = lanes < columns
    values = tl.load(logits + row * columns + lanes, mask=inside, other=0.0).to(tl.float32)
    share = tl.exp(values - tl.load(norms + row))
    share = tl.where(lanes == tl.load(targets + row), share - 1.0, share)
    scale = tl.load(gradient).to(tl.float32) / rows
    tl.store(out + row * columns + lanes, (share * scale).to(out.dtype.element_ty), mask=inside)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        rows, columns = logits.shape
        losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
        norms = torch.empty_like(losses)
        chunk = min(CHUNK, triton.next_power_of_2(columns))
        _forward_kernel[(rows,)](logits, targets, losses, norms, columns, CHUNK=chunk, num_warps=8)
        ctx.save_for_backward(logits, targets, norms)
        return losses.mean().to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, targets, norms = ctx.saved_tensors
        rows, columns = logits.shape
        out = torch.empty_like(logits)
        chunk = min(CHUNK, triton.next_power_of_2(columns))
        _backward_kernel[(rows, triton.cdiv(columns, chunk))](
            logits, targets, norms, gradients[0], out, rows, columns, CHUNK=chunk, num_warps=8
        )
        return out, None


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean loss; contiguous logits (rows, classes), at least one of each, a class id for each row."""
    if logits.ndim != 2 or targets.shape != logits.shape[:1] or logits.numel() == 0 or targets.is_floating_point():
        raise ValueError("logits (rows, classes), at least one of each, and a class id for each row")
    if not (logits.is_contiguous() and targets.is_contiguous()):
        raise ValueError("contiguous inputs")
    loss: torch.Tensor = _CrossEntropy.apply(logits, targets)
    return loss


def reference(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.nn.functional.cross_entropy(logits, targets)


def bytes_moved(logits: torch.Tensor, targets: torch.Tensor) -> int:
    """The logits and targets once, forward."""
    return logits.numel() * logits.element_size() + targets.numel() * targets.element_size()


CASES = (
    Case(
        name="24x512",
        arguments=(TensorCase(shape=(24, 512)), TensorCase(shape=(24,), kind="ids", high=512, dtype="int64")),
    ),
    Case(
        name="7x4999",
        arguments=(TensorCase(shape=(7, 4999)), TensorCase(shape=(7,), kind="ids", high=4999, dtype="int64")),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="cross entropy in Triton, forward in chunks with a running maximum, backward from the kept norms",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=cross_entropy, reference=reference, op="loss", bytes_moved=bytes_moved)
