"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight, over the last dimension.

Moves x once and y once, and the weight: (2 n + h) elements for n elements of rows of h. One program a row; sums in
fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

LARGEST_ROW = 32_768


@triton.jit
def _rmsnorm_kernel(x, weight, y, columns, stride, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * stride + offsets, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / columns + eps)
    gain = tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + offsets, (values * scale * gain).to(y.dtype.element_ty), mask=inside)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalised rows; contiguous rows of up to 32,768 elements, weight of the rows' length and dtype."""
    columns = x.shape[-1] if x.ndim else 0
    if not 0 < columns <= LARGEST_ROW or weight.shape != (columns,):
        raise ValueError(f"rows of 1 to {LARGEST_ROW} elements and a weight of that length, not {tuple(x.shape)}")
    if not (x.is_contiguous() and weight.is_contiguous()) or x.dtype != weight.dtype:
        raise ValueError("contiguous inputs of one dtype")
    y = torch.empty_like(x)
    rows = x.numel() // columns
    if rows:
        block = triton.next_power_of_2(columns)
        _rmsnorm_kernel[(rows,)](x, weight, y, columns, columns, eps, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return y


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """As Llama has it: the mean in fp32, the product in the input's dtype."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> int:
    """x once, y once, the weight once."""
    return (2 * x.numel() + weight.numel()) * x.element_size()


CASES = (
    Case(name="16x256", arguments=(TensorCase(shape=(16, 256)), TensorCase(shape=(256,)), 1e-6)),
    Case(name="2x5x96", arguments=(TensorCase(shape=(2, 5, 96)), TensorCase(shape=(96,)), 1e-5)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="RMSNorm of contiguous rows in Triton, one program a row, fp32 sums",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=rmsnorm, reference=reference, op="normalization", bytes_moved=bytes_moved)
