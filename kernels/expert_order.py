"""Rows of tokens in the order of the experts that they were routed to, with that order, its ends and its way back.

Entry i = (token i / k, its choice i mod k) of n = tokens k entries; places are dealt expert by expert, entries in their
order within each (a stable sort by expert). Out: rows[place] = hidden[token], the last place + 1 of each expert, the
entry of each place and the place of each entry. Moves hidden once and its k copies, ids in and twice out, where sort,
division, gather, histogram and inverse read each row k times in a dozen launches. Counts instead of sorting: each
program of the first kernel counts the experts of all entries and of those before its own, the second deals each token's
row to its places.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

ENTRIES = 1024
MOST_EXPERTS, MOST_ENTRIES = 64, 262_144
COLUMNS = 2048


@triton.jit
def _places_kernel(  # type: ignore[no-untyped-def]
    experts, ends, places, order, count, known, ENTRIES: tl.constexpr, EXPERTS: tl.constexpr
):
    lanes, expert = tl.arange(0, ENTRIES), tl.arange(0, EXPERTS)
    start = tl.program_id(0) * ENTRIES
    before = tl.zeros([EXPERTS], tl.int32)
    total = tl.zeros([EXPERTS], tl.int32)
    for first in range(0, count, ENTRIES):
        entry = first + lanes
        chosen = tl.load(experts + entry, mask=entry < count, other=-1).to(tl.int32)
        found = tl.sum((chosen[:, None] == expert[None, :]).to(tl.int32), 0)
        total += found
        before += tl.where(first < start, found, 0)
    end = tl.cumsum(total, 0)
    if start == 0:
        tl.store(ends + expert, end, mask=expert < known)
    entry = start + lanes
    chosen = tl.load(experts + entry, mask=entry < count, other=-1).to(tl.int32)
    mine = (chosen[:, None] == expert[None, :]).to(tl.int32)
    place = tl.sum(mine * (tl.cumsum(mine, 0) - 1 + (end - total + before)[None, :]), 1)
    tl.store(places + entry, place.to(tl.int64), mask=entry < count)
    tl.store(order + place, entry.to(tl.int64), mask=entry < count)


@triton.jit
def _deal_kernel(hidden, places, rows, columns, CHOICES: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    row = tl.load(hidden + token * columns + column, mask=inside, other=0.0)
    for choice in tl.static_range(CHOICES):
        place = tl.load(places + token * CHOICES + choice)
        tl.store(rows + place * columns + column, row, mask=inside)


def expert_order(
    hidden: torch.Tensor, experts: torch.Tensor, count: int, stable: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, ends (int32), order and places (int64) of a stable sort; hidden (tokens, size), experts (tokens, choices).

    Contiguous inputs, experts int64 of 0 to `count` - 1, up to 64 of them and 262,144 choices. `stable`: whether the
    reference asks for a stable sort; where it does not, a device that sorts otherwise gives another right order.
    """
    if hidden.ndim != 2 or experts.ndim != 2 or experts.shape[0] != hidden.shape[0] or not hidden.shape[1]:
        raise ValueError("hidden (tokens, size) and experts (tokens, choices)")
    if experts.dtype is not torch.int64 or not 0 < count <= MOST_EXPERTS or not 0 < experts.numel() <= MOST_ENTRIES:
        raise ValueError(f"int64 ids of 1 to {MOST_EXPERTS} experts, 1 to {MOST_ENTRIES} choices")
    if not (hidden.is_contiguous() and experts.is_contiguous()):
        raise ValueError("contiguous inputs")
    (tokens, size), choices, entries = hidden.shape, experts.shape[1], experts.numel()
    rows = hidden.new_empty(entries, size)
    ends = torch.empty(count, dtype=torch.int32, device=hidden.device)
    places, order = torch.empty_like(experts).reshape(-1), torch.empty_like(experts).reshape(-1)
    _places_kernel[(triton.cdiv(entries, ENTRIES),)](
        experts, ends, places, order, entries, count,
        ENTRIES=ENTRIES, EXPERTS=max(2, triton.next_power_of_2(count)), num_warps=8,
    )  # fmt: skip
    block = min(COLUMNS, triton.next_power_of_2(size))
    _deal_kernel[(tokens, triton.cdiv(size, block))](
        hidden, places, rows, size, CHOICES=choices, COLUMNS=block, num_warps=4
    )
    return rows, ends, order, places


def reference(
    hidden: torch.Tensor, experts: torch.Tensor, count: int, stable: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """As transformers has it around its grouped products."""
    flat = experts.reshape(-1)
    ordered, order = torch.sort(flat, stable=True) if stable else torch.sort(flat)
    rows = hidden[order // experts.shape[1]]
    ends = torch.cumsum(torch.histc(ordered.float(), bins=count, min=0, max=count - 1), 0, dtype=torch.int32)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.shape[0], device=order.device)
    return rows, ends, order, places


def bytes_moved(hidden: torch.Tensor, experts: torch.Tensor, count: int, stable: bool = False) -> int:
    """hidden once and its copies, ids in, order and places out, the ends."""
    rows = (1 + experts.shape[1]) * hidden.numel() * hidden.element_size()
    return rows + 3 * experts.numel() * experts.element_size() + 4 * count


def _routed(tokens: int, size: int, choices: int, count: int) -> tuple[TensorCase, TensorCase]:
    ids = TensorCase(shape=(tokens, choices), kind="ids", high=count, dtype="int64")
    return TensorCase(shape=(tokens, size)), ids


# Two entries are in order however they are sorted; all that a case without a stable sort can have on every device.
CASES = (
    Case(name="40x64-2-of-8", arguments=(*_routed(40, 64, 2, 8), 8, True)),
    Case(name="151x17-7-of-9", arguments=(*_routed(151, 17, 7, 9), 9, True)),
    Case(name="1x32-2-of-8-any-sort", arguments=(*_routed(1, 32, 2, 8), 8, False)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="tokens' rows in the order of their experts in Triton, by counting, with the order, its ends and its way back",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=expert_order, reference=reference, op="moe_routing", bytes_moved=bytes_moved)
