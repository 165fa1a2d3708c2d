"""A layer of a low-rank cross network: y = x * (low up' + bias) + crossed, with its gradients.

x, crossed (rows, width), low (rows, rank), up (width, rank), bias (width). The product's tiles end in the cross while
they are in registers: moves x, crossed and y once where product, sum, product and sum apart move them nine times.
Backward likewise, with P = low up' made again: dx = g * (P + bias) and g * x, whose sums down the columns are the
bias's gradient; two products of a library give the rest. 2 rows width rank operations each way in this kernel. Sums in
fp32 whatever the dtype; products of fp32 in TF32 where torch allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

TILE = {"M": 128, "N": 128, "K": 32, "num_warps": 8, "num_stages": 3}
STRICT_TILE = {"M": 32, "N": 64, "K": 32, "num_warps": 4, "num_stages": 2}
"""Without TF32 the product of fp32 is of ordinary multiply-adds."""
GROUP = 8
"""Rows of tiles that are worked through together, so that the weights stay in the L2 cache."""
TRAINS = True
"""The reference trains: gradients are part of what must be right."""


def tile(dtype: torch.dtype) -> dict[str, Any]:
    """Tile and precision of a product of this dtype."""
    if dtype is not torch.float32 or torch.backends.cuda.matmul.allow_tf32:
        return {**TILE, "GROUP": GROUP, "PRECISION": "tf32"}
    return {**STRICT_TILE, "GROUP": GROUP, "PRECISION": "ieee"}


@triton.jit
def product_tile(  # type: ignore[no-untyped-def]
    low, weight, rows, width, rank,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """This program's tile of low weight', with its rows, its columns and the number of its row of tiles."""
    down, across = tl.cdiv(rows, M), tl.cdiv(width, N)
    group = tl.program_id(0) // (GROUP * across)
    high = tl.minimum(down - group * GROUP, GROUP)
    inner = tl.program_id(0) % (GROUP * across)
    block_row, block_column = group * GROUP + inner % high, inner // high
    row = block_row * M + tl.arange(0, M)
    column = block_column * N + tl.arange(0, N)
    place = tl.arange(0, K)
    left = low + (row % rows).to(tl.int64)[:, None] * rank + place[None, :]
    right = weight + (column % width)[None, :] * rank + place[:, None]
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, rank, K):
        there = place < rank - first
        a = tl.load(left + first, mask=there[None, :], other=0.0)
        b = tl.load(right + first, mask=there[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total, row, column, block_row


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    low, up, bias, x, crossed, out, rows, width, rank,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    total, row, column, _ = product_tile(low, up, rows, width, rank, GROUP, M, N, K, PRECISION)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    shift = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    multiplier = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    before = tl.load(crossed + at, mask=mask, other=0.0).to(tl.float32)
    total = multiplier * (total + shift[None, :]) + before
    tl.store(out + at, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    low, up, bias, x, gradient, into_x, lifted, parts, rows, width, rank,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    total, row, column, block_row = product_tile(low, up, rows, width, rank, GROUP, M, N, K, PRECISION)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    shift = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    arriving = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(into_x + at, (arriving * (total + shift[None, :])).to(into_x.dtype.element_ty), mask=mask)
    product = arriving * tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(lifted + at, product.to(lifted.dtype.element_ty), mask=mask)
    tl.store(parts + block_row.to(tl.int64) * width + column, tl.sum(product, 0), mask=column < width)


class _LowRankCross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*inputs)
        x, low, up, bias, crossed = inputs
        out, how = torch.empty_like(x), tile(x.dtype)
        (rows, width), rank = x.shape, low.shape[1]
        if x.numel():
            grid = (triton.cdiv(rows, how["M"]) * triton.cdiv(width, how["N"]),)
            _forward_kernel[grid](low, up, bias, x, crossed, out, rows, width, rank, **how)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(backward(gradients, *ctx.saved_tensors))


def low_rank_cross(
    x: torch.Tensor, low: torch.Tensor, up: torch.Tensor, bias: torch.Tensor, crossed: torch.Tensor
) -> torch.Tensor:
    """The layer's output; contiguous inputs of one float dtype, a rank of at least one."""
    if x.ndim != 2 or low.ndim != 2 or crossed.shape != x.shape or low.shape[0] != x.shape[0] or not low.shape[1]:
        raise ValueError("x and crossed (rows, width), low (rows, rank)")
    if up.shape != (x.shape[1], low.shape[1]) or bias.shape != x.shape[1:]:
        raise ValueError("up (width, rank) and bias (width)")
    if not all(t.is_contiguous() and t.dtype == x.dtype for t in (x, low, up, bias, crossed)):
        raise ValueError("contiguous inputs of one dtype")
    out: torch.Tensor = _LowRankCross.apply(x, low, up, bias, crossed)
    return out


def reference(
    x: torch.Tensor, low: torch.Tensor, up: torch.Tensor, bias: torch.Tensor, crossed: torch.Tensor
) -> torch.Tensor:
    """As torchrec's LowRankCrossNet has it."""
    return x * (torch.nn.functional.linear(low, up) + bias) + crossed


def backward(
    gradients: Sequence[torch.Tensor],
    x: torch.Tensor,
    low: torch.Tensor,
    up: torch.Tensor,
    bias: torch.Tensor,
    crossed: torch.Tensor,
) -> list[torch.Tensor]:
    """Gradients of all five."""
    gradient, how = gradients[0].contiguous(), tile(x.dtype)
    (rows, width), rank = x.shape, low.shape[1]
    into_x, lifted = torch.empty_like(x), torch.empty_like(x)
    blocks = triton.cdiv(rows, how["M"])
    parts = torch.empty(blocks, width, dtype=torch.float32, device=x.device)
    if x.numel():
        _backward_kernel[(blocks * triton.cdiv(width, how["N"]),)](
            low, up, bias, x, gradient, into_x, lifted, parts, rows, width, rank, **how
        )
    return [into_x, lifted @ up, lifted.t() @ low, parts.sum(0).to(bias.dtype), gradient]


def bytes_moved(x: torch.Tensor, low: torch.Tensor, up: torch.Tensor, bias: torch.Tensor, crossed: torch.Tensor) -> int:
    """All inputs and the output once, forward."""
    return (3 * x.numel() + low.numel() + up.numel() + bias.numel()) * x.element_size()


def _arguments(rows: int, width: int, rank: int) -> tuple[TensorCase, ...]:
    shapes = ((rows, width), (rows, rank), (width, rank), (width,), (rows, width))
    return tuple(TensorCase(shape=shape) for shape in shapes)


CASES = (
    Case(name="40x96x16", arguments=_arguments(40, 96, 16)),
    Case(name="33x131x5", arguments=_arguments(33, 131, 5)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="DCNv2's low-rank cross in Triton: the second product ends in the cross, forward and backward",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=low_rank_cross, reference=reference, op="gemm", bytes_moved=bytes_moved)
