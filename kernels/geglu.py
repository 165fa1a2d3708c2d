"""GEGLU: y = gelu(gate) * up, element by element, gelu by its tanh form.

With u = sqrt(2 / pi) * (g + 0.044715 g^3): gelu(g) = g / 2 * (1 + tanh(u)) = g * sigmoid(2 u). Moves gate, up and y
once: 3 n elements; fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

BLOCK = 1024


@triton.jit
def _geglu_kernel(gate, up, y, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    g = tl.load(gate + offsets, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + offsets, mask=inside, other=0.0).to(tl.float32)
    twice = 1.5957691216057308 * (g + 0.044715 * g * g * g)
    tl.store(y + offsets, (g / (1.0 + tl.exp(-twice)) * u).to(y.dtype.element_ty), mask=inside)


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The gated product; contiguous inputs of one shape and dtype."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up of one shape and dtype")
    if not (gate.is_contiguous() and up.is_contiguous()):
        raise ValueError("contiguous inputs")
    y = torch.empty_like(gate)
    if gate.numel():
        _geglu_kernel[(triton.cdiv(gate.numel(), BLOCK),)](gate, up, y, gate.numel(), BLOCK=BLOCK, num_warps=4)
    return y


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """As Gemma and T5 have it."""
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def bytes_moved(gate: torch.Tensor, up: torch.Tensor) -> int:
    """Both inputs once, the output once."""
    return 3 * gate.numel() * gate.element_size()


CASES = (
    Case(name="8x512", arguments=(TensorCase(shape=(8, 512)), TensorCase(shape=(8, 512)))),
    Case(name="3x7x41", arguments=(TensorCase(shape=(3, 7, 41)), TensorCase(shape=(3, 7, 41)))),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="GEGLU (tanh form) of contiguous tensors in Triton, fp32 arithmetic",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=geglu, reference=reference, op="elementwise", bytes_moved=bytes_moved)
