"""LayerNorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, over the last dimension.

Moves x once and y once, weight and bias: (2 n + 2 h) elements for n elements of rows of h. One program a row, the row
in registers; the variance from the distances to the mean, in fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

LARGEST_ROW = 32_768


@triton.jit
def _layernorm_kernel(x, weight, bias, y, columns, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    distance = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(distance * distance, 0) / columns + eps)
    gain = tl.load(weight + offsets, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + offsets, (distance * scale * gain + shift).to(y.dtype.element_ty), mask=inside)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Normalised rows; contiguous rows of up to 32,768 elements, weight and bias of the rows' length and dtype."""
    columns = x.shape[-1] if x.ndim else 0
    if not 0 < columns <= LARGEST_ROW or weight.shape != (columns,) or bias.shape != (columns,):
        raise ValueError(f"rows of 1 to {LARGEST_ROW} elements, weight and bias of that length, not {tuple(x.shape)}")
    if not (x.is_contiguous() and weight.is_contiguous() and bias.is_contiguous()):
        raise ValueError("contiguous inputs")
    if not x.dtype == weight.dtype == bias.dtype:
        raise ValueError("inputs of one dtype")
    y = torch.empty_like(x)
    rows = x.numel() // columns
    if rows:
        block = triton.next_power_of_2(columns)
        warps = 8 if block > 2048 else 4
        _layernorm_kernel[(rows,)](x, weight, bias, y, columns, eps, BLOCK=block, num_warps=warps)
    return y


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """torch's own."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> int:
    """x once, y once, weight and bias once."""
    return (2 * x.numel() + weight.numel() + bias.numel()) * x.element_size()


CASES = (
    Case(
        name="16x256", arguments=(TensorCase(shape=(16, 256)), TensorCase(shape=(256,)), TensorCase(shape=(256,)), 1e-5)
    ),
    Case(
        name="3x5x97", arguments=(TensorCase(shape=(3, 5, 97)), TensorCase(shape=(97,)), TensorCase(shape=(97,)), 1e-5)
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="LayerNorm of contiguous rows in Triton, one program a row, two-pass variance in fp32",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=layernorm, reference=reference, op="normalization", bytes_moved=bytes_moved)
