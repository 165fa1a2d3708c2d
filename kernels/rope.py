"""Rotary positions of queries and keys in one pass: out = t * cos + rotate_half(t) * sin for t in (q, k).

rotate_half(t) is (-second half, first half) of the last dimension. Moves q, k and both outputs once, cos and sin once:
2 (q + k) + 2 s d elements. One program a position and block of heads of q and k together; fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase


@triton.jit
def _rope_kernel(  # type: ignore[no-untyped-def]
    q, k, cos, sin, q_out, k_out, positions, q_heads, k_heads, half,
    q_batch, q_head, q_position, k_batch, k_head, k_position, angle_batch,
    HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    batch = (tl.program_id(0) // positions).to(tl.int64)
    position = tl.program_id(0) % positions
    lanes = tl.arange(0, HALF)
    inside = lanes < half
    angle = batch * angle_batch + position * 2 * half + lanes
    cos_first = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    cos_second = tl.load(cos + angle + half, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin_first = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin_second = tl.load(sin + angle + half, mask=inside, other=0.0).to(tl.float32)[None, :]
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)

    mask = (heads < q_heads)[:, None] & inside[None, :]
    at = batch * q_batch + heads[:, None] * q_head + position * q_position + lanes[None, :]
    first = tl.load(q + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(q + at + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(q_out + at, (first * cos_first - second * sin_first).to(q_out.dtype.element_ty), mask=mask)
    tl.store(q_out + at + half, (second * cos_second + first * sin_second).to(q_out.dtype.element_ty), mask=mask)

    mask = (heads < k_heads)[:, None] & inside[None, :]
    at = batch * k_batch + heads[:, None] * k_head + position * k_position + lanes[None, :]
    first = tl.load(k + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(k + at + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(k_out + at, (first * cos_first - second * sin_first).to(k_out.dtype.element_ty), mask=mask)
    tl.store(k_out + at + half, (second * cos_second + first * sin_second).to(k_out.dtype.element_ty), mask=mask)


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both turned; q and k (batch, heads, positions, size) dense with the size innermost, all of one dtype.

    cos and sin are (batch or 1, positions, size) and contiguous; outputs lie in memory as their inputs do.
    """
    batch, q_heads, positions, size = q.shape
    if k.ndim != 4 or (k.shape[0], k.shape[2], k.shape[3]) != (batch, positions, size) or size % 2:
        raise ValueError("q and k that differ in heads only, of an even size")
    if cos.shape != sin.shape or cos.ndim != 3 or cos.shape[1:] != (positions, size) or cos.shape[0] not in (1, batch):
        raise ValueError("cos and sin of (batch or 1, positions, size)")
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    if any(t.stride(3) != 1 or out.stride() != t.stride() for t, out in ((q, q_out), (k, k_out))):
        raise ValueError("dense q and k whose last dimension is innermost")
    if not (cos.is_contiguous() and sin.is_contiguous() and q.dtype == k.dtype == cos.dtype == sin.dtype):
        raise ValueError("contiguous cos and sin, all of one dtype")
    k_heads, half = k.shape[1], size // 2
    if q.numel() and k.numel():
        block = min(16, triton.next_power_of_2(max(q_heads, k_heads)))
        grid = (batch * positions, triton.cdiv(max(q_heads, k_heads), block))
        _rope_kernel[grid](
            q, k, cos, sin, q_out, k_out, positions, q_heads, k_heads, half,
            q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
            0 if cos.shape[0] == 1 else positions * size,
            HEADS=block, HALF=triton.next_power_of_2(half), num_warps=4,
        )  # fmt: skip
    return q_out, k_out


def reference(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As Llama has it in transformers."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos.unsqueeze(1) + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin.unsqueeze(1)

    return turned(q), turned(k)


def bytes_moved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> int:
    """q, k and their outputs once, cos and sin once."""
    return (2 * (q.numel() + k.numel()) + cos.numel() + sin.numel()) * q.element_size()


CASES = (
    Case(
        name="2x4x24x32",
        arguments=(
            TensorCase(shape=(2, 4, 24, 32)),
            TensorCase(shape=(2, 2, 24, 32)),
            TensorCase(shape=(1, 24, 32)),
            TensorCase(shape=(1, 24, 32)),
        ),
    ),
    Case(
        name="3x5x7x20",
        arguments=(
            TensorCase(shape=(3, 5, 7, 20)),
            TensorCase(shape=(3, 1, 7, 20)),
            TensorCase(shape=(3, 7, 20)),
            TensorCase(shape=(3, 7, 20)),
        ),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="rotary positions of queries and keys in one Triton kernel, any dense layout with the size innermost",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=rope, reference=reference, op="rope", bytes_moved=bytes_moved)
