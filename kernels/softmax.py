"""Softmax over the last dimension: y = exp(x - max) / sum(exp(x - max)).

Moves x once and y once: 2 n elements. One program a row, the whole row in registers; fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

LARGEST_ROW = 32_768


@triton.jit
def _softmax_kernel(x, y, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    raised = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + offsets, (raised / tl.sum(raised, 0)).to(y.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Rows that sum to one; contiguous rows of up to 32,768 elements."""
    columns = x.shape[-1] if x.ndim else 0
    if not 0 < columns <= LARGEST_ROW:
        raise ValueError(f"rows of 1 to {LARGEST_ROW} elements, not {tuple(x.shape)}")
    if not x.is_contiguous():
        raise ValueError("a contiguous input")
    y = torch.empty_like(x)
    rows = x.numel() // columns
    if rows:
        block = triton.next_power_of_2(columns)
        _softmax_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.softmax(x, dim=-1)


def bytes_moved(x: torch.Tensor) -> int:
    """x once, y once."""
    return 2 * x.numel() * x.element_size()


CASES = (
    Case(name="12x200", arguments=(TensorCase(shape=(12, 200)),)),
    Case(name="2x3x64", arguments=(TensorCase(shape=(2, 3, 64)),)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="softmax of contiguous rows in Triton, one program a row",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=softmax, reference=reference, op="softmax", bytes_moved=bytes_moved)
