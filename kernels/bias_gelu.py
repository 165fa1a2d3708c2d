"""Bias and GELU: y = gelu(x + bias), the bias along the last dimension, gelu by the error function.

Moves x and y once, and the bias: (2 n + h) elements. The sum is rounded to the dtype before the gelu, as the two calls
do; the rest in fp32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

BLOCK = 1024


@triton.jit
def _bias_gelu_kernel(x, bias, y, count, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    values = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + offsets % columns, mask=inside, other=0.0).to(tl.float32)
    values = (values + shift).to(y.dtype.element_ty).to(tl.float32)
    tl.store(y + offsets, (0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))).to(y.dtype.element_ty), inside)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The activated sum; contiguous inputs of one dtype, the bias of the rows' length."""
    if x.ndim == 0 or bias.shape != x.shape[-1:] or x.dtype != bias.dtype:
        raise ValueError("a bias of the rows' length and dtype")
    if not (x.is_contiguous() and bias.is_contiguous()):
        raise ValueError("contiguous inputs")
    y = torch.empty_like(x)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        _bias_gelu_kernel[grid](x, bias, y, x.numel(), bias.numel(), BLOCK=BLOCK, num_warps=4)
    return y


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """As BERT and ViT have it."""
    return torch.nn.functional.gelu(x + bias)


def bytes_moved(x: torch.Tensor, bias: torch.Tensor) -> int:
    """x once, y once, the bias once."""
    return (2 * x.numel() + bias.numel()) * x.element_size()


CASES = (
    Case(name="8x512", arguments=(TensorCase(shape=(8, 512)), TensorCase(shape=(512,)))),
    Case(name="3x7x41", arguments=(TensorCase(shape=(3, 7, 41)), TensorCase(shape=(41,)))),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="bias add and exact GELU of contiguous tensors in one Triton kernel",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=bias_gelu, reference=reference, op="elementwise", bytes_moved=bytes_moved)
