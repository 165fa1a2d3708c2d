"""SwiGLU of gate and up side by side: y = silu(x[..., :h]) * x[..., h:], rows of 2 h elements in, of h out.

Moves x once and y once: 3 elements for each of y's. One program a row and block of columns, so the halves need no copy;
the sigmoid in fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

COLUMNS = 1024


@triton.jit
def _packed_swiglu_kernel(x, y, half, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < half
    g = tl.load(x + row * 2 * half + column, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(x + row * 2 * half + half + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * half + column, (g / (1.0 + tl.exp(-g)) * u).to(y.dtype.element_ty), mask=inside)


def packed_swiglu(x: torch.Tensor) -> torch.Tensor:
    """The gated product; contiguous rows of an even number of elements, at least two."""
    if x.ndim < 1 or x.shape[-1] % 2 or not x.shape[-1]:
        raise ValueError("rows of an even number of elements")
    if not x.is_contiguous():
        raise ValueError("a contiguous input")
    half = x.shape[-1] // 2
    y = x.new_empty(*x.shape[:-1], half)
    rows = x.numel() // x.shape[-1]
    if rows:
        block = min(COLUMNS, triton.next_power_of_2(half))
        _packed_swiglu_kernel[(rows, triton.cdiv(half, block))](x, y, half, COLUMNS=block, num_warps=4)
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    """As transformers' experts have it."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def bytes_moved(x: torch.Tensor) -> int:
    """x once, y once."""
    return (x.numel() + x.numel() // 2) * x.element_size()


CASES = (
    Case(name="8x512", arguments=(TensorCase(shape=(8, 512)),)),
    Case(name="3x7x82", arguments=(TensorCase(shape=(3, 7, 82)),)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="SwiGLU of gate and up that stand side by side, in Triton, fp32 arithmetic",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=packed_swiglu, reference=reference, op="elementwise", bytes_moved=bytes_moved)
