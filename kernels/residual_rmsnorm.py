"""Residual add and RMSNorm: s = x + residual, y = s / sqrt(mean(s^2) + eps) * weight; both returned.

Moves x, the residual, s and y once, and the weight: (4 n + h) elements for n elements of rows of h, where add and norm
apart move 5 n. One program a row; the sum is rounded to the dtype before it is normalised, as the two calls do.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

LARGEST_ROW = 32_768


@triton.jit
def _residual_rmsnorm_kernel(  # type: ignore[no-untyped-def]
    x, residual, weight, total, y, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    mine = tl.load(x + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(residual + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    rounded = (mine + other).to(total.dtype.element_ty)
    tl.store(total + row * columns + offsets, rounded, mask=inside)
    values = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / columns + eps)
    gain = tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + offsets, (values * scale * gain).to(y.dtype.element_ty), mask=inside)


def residual_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows and their sum; contiguous inputs of one dtype, rows of up to 32,768 elements."""
    columns = x.shape[-1] if x.ndim else 0
    if not 0 < columns <= LARGEST_ROW or weight.shape != (columns,):
        raise ValueError(f"rows of 1 to {LARGEST_ROW} elements and a weight of that length, not {tuple(x.shape)}")
    inputs = (x, residual, weight)
    if residual.shape != x.shape or not all(t.is_contiguous() and t.dtype == x.dtype for t in inputs):
        raise ValueError("contiguous inputs of one dtype, the residual of x's shape")
    total, y = torch.empty_like(x), torch.empty_like(x)
    rows = x.numel() // columns
    if rows:
        block = triton.next_power_of_2(columns)
        warps = 8 if block > 2048 else 4
        _residual_rmsnorm_kernel[(rows,)](x, residual, weight, total, y, columns, eps, BLOCK=block, num_warps=warps)
    return y, total


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """As Llama has it: the sum in the input's dtype, the mean in fp32, the product in the input's dtype."""
    total = x + residual
    wide = total.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype), total


def bytes_moved(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> int:
    """Both inputs and both outputs once, the weight once."""
    return (4 * x.numel() + weight.numel()) * x.element_size()


CASES = (
    Case(
        name="16x256",
        arguments=(TensorCase(shape=(16, 256)), TensorCase(shape=(16, 256)), TensorCase(shape=(256,)), 1e-6),
    ),
    Case(
        name="3x5x97",
        arguments=(TensorCase(shape=(3, 5, 97)), TensorCase(shape=(3, 5, 97)), TensorCase(shape=(97,)), 1e-5),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="residual add and RMSNorm of contiguous rows in one Triton kernel that returns both",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=residual_rmsnorm, reference=reference, op="normalization", bytes_moved=bytes_moved)
