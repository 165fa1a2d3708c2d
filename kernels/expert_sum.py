"""Each token's rows of its experts, weighted and added: out[t] = sum of weights[p] * rows[p] over p = places[t k + j].

rows (tokens k, size) and weights in the order of the experts, `places` the way back. Moves rows once and out once:
(1 + 1 / k) n elements, where the weighted copy in fp32, the gather and the sum apart move the copy five times. One
program a token and block of columns; fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

COLUMNS = 2048
MOST_CHOICES = 16


@triton.jit
def _expert_sum_kernel(  # type: ignore[no-untyped-def]
    rows, weights, places, out, columns, CHOICES: tl.constexpr, COLUMNS: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    total = tl.zeros([COLUMNS], tl.float32)
    for choice in tl.static_range(CHOICES):
        place = tl.load(places + token * CHOICES + choice)
        row = tl.load(rows + place * columns + column, mask=inside, other=0.0).to(tl.float32)
        total += row * tl.load(weights + place).to(tl.float32)
    tl.store(out + token * columns + column, total.to(out.dtype.element_ty), mask=inside)


def expert_sum(rows: torch.Tensor, weights: torch.Tensor, places: torch.Tensor, choices: int) -> torch.Tensor:
    """Sums (tokens, size) in the rows' dtype; contiguous rows (tokens choices, size), fp32 weights, int64 places."""
    if rows.ndim != 2 or weights.shape != rows.shape[:1] or places.shape != rows.shape[:1]:
        raise ValueError("rows (tokens choices, size), and a weight and a place for each")
    if not 0 < choices <= MOST_CHOICES or rows.shape[0] % choices or not rows.shape[1]:
        raise ValueError(f"1 to {MOST_CHOICES} rows a token, of at least one element")
    if weights.dtype is not torch.float32 or places.dtype is not torch.int64:
        raise ValueError("weights in fp32 and places in int64")
    if not (rows.is_contiguous() and weights.is_contiguous() and places.is_contiguous()):
        raise ValueError("contiguous inputs")
    tokens, size = rows.shape[0] // choices, rows.shape[1]
    out = rows.new_empty(tokens, size)
    if tokens:
        block = min(COLUMNS, triton.next_power_of_2(size))
        _expert_sum_kernel[(tokens, triton.cdiv(size, block))](
            rows, weights, places, out, size, CHOICES=choices, COLUMNS=block, num_warps=4
        )
    return out


def reference(rows: torch.Tensor, weights: torch.Tensor, places: torch.Tensor, choices: int) -> torch.Tensor:
    """As transformers has it after its grouped products."""
    weighted = (rows * weights.unsqueeze(-1))[places]
    return weighted.view(rows.shape[0] // choices, choices, rows.shape[1]).sum(dim=1).to(rows.dtype)


def bytes_moved(rows: torch.Tensor, weights: torch.Tensor, places: torch.Tensor, choices: int) -> int:
    """Rows, weights and places once, the sums once."""
    elements = rows.numel() + rows.numel() // choices
    return elements * rows.element_size() + weights.numel() * (weights.element_size() + places.element_size())


def _arguments(tokens: int, size: int, choices: int) -> tuple[TensorCase | int, ...]:
    entries = tokens * choices
    return (
        TensorCase(shape=(entries, size)),
        TensorCase(shape=(entries,), dtype="float32"),
        TensorCase(shape=(entries,), kind="ids", high=entries, dtype="int64"),
        choices,
    )


CASES = (
    Case(name="20x256-2", arguments=_arguments(20, 256, 2)),
    Case(name="7x97-3", arguments=_arguments(7, 97, 3)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="weighted sum of each token's experts in Triton, rows gathered from the order of the experts",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=expert_sum, reference=reference, op="moe_routing", bytes_moved=bytes_moved)
