"""Backward of summed bags and row-wise Adagrad in one step, in place, without a sort.

Ids are counted row by row first. A row that one id alone names is updated straight from its bag's gradient; those that
several name are given a place in a list, their gradients are added up there, and each is updated once. Moves ids and
offsets twice, gradients once, each distinct row and its state in and out once. Sums in fp32, in no fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

COUNT_BLOCK, COUNT_WARPS = 128, 4
ROWS = 8
"""Rows of a bag that are updated at once by a warp."""
PROGRAMS = 1_056
"""Of the shared rows' update: eight for each of an H200's processors."""


@triton.jit
def _count_kernel(ids, counts, places, held, named, sums, total, columns, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The second id of a row takes the next place of the list for it, and clears the sums there."""
    position = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    inside = position < total
    row = tl.load(ids + position, mask=inside, other=0).to(tl.int64)
    second = inside & (tl.atomic_add(counts + row, 1, mask=inside, sem="relaxed") == 1)
    if tl.max(second.to(tl.int32), 0) > 0:
        place = tl.atomic_add(held + tl.zeros((N,), tl.int32), 1, mask=second, sem="relaxed")
        tl.store(places + row, place, mask=second)
        tl.store(named + place, row, mask=second)
        column = tl.arange(0, BLOCK)
        at = sums + place.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(at, tl.zeros((N, BLOCK), tl.float32), mask=second[:, None] & (column < columns)[None, :])


@triton.jit
def _bag_kernel(  # type: ignore[no-untyped-def]
    ids, offsets, gradient, weight, momentum, counts, places, sums, columns, rate, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A bag's own rows are updated; to the sums of shared ones its gradient is added."""
    bag = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    wanted = column < columns
    given = tl.load(gradient + bag * columns + column, mask=wanted, other=0.0).to(tl.float32)
    square = tl.sum(given * given, 0) / columns
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    for first in range(begin, end, ROWS):
        position = first + tl.arange(0, ROWS)
        here = position < end
        row = tl.load(ids + position, mask=here, other=0).to(tl.int64)
        named = tl.load(counts + row, mask=here, other=0)
        alone, shared = here & (named == 1), here & (named > 1)
        mine = alone[:, None] & wanted[None, :]
        at = weight + row[:, None] * columns + column[None, :]
        before = tl.load(at, mask=mine, other=0.0)
        state = tl.load(momentum + row, mask=alone, other=0.0) + square
        step = rate / (tl.sqrt(state) + eps)
        tl.store(at, before - step[:, None] * given[None, :], mask=mine)
        tl.store(momentum + row, state, mask=alone)
        tl.store(counts + row, tl.zeros((ROWS,), tl.int32), mask=alone)
        if tl.max(shared.to(tl.int32), 0) > 0:
            place = tl.load(places + row, mask=shared, other=0).to(tl.int64)
            into = sums + place[:, None] * columns + column[None, :]
            part = tl.zeros((ROWS, BLOCK), tl.float32) + given[None, :]
            tl.atomic_add(into, part, mask=shared[:, None] & wanted[None, :], sem="relaxed")


@triton.jit
def _shared_kernel(weight, momentum, counts, held, named, sums, columns, rate, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.arange(0, BLOCK)
    wanted = column < columns
    for place in range(tl.program_id(0), tl.load(held), tl.num_programs(0)):
        row = tl.load(named + place)
        at = sums + (place + tl.zeros((), tl.int64)) * columns + column
        total = tl.load(at, mask=wanted, other=0.0)
        state = tl.load(momentum + row) + tl.sum(total * total, 0) / columns
        at = weight + row * columns + column
        before = tl.load(at, mask=wanted, other=0.0)
        tl.store(at, before - rate * total / (tl.sqrt(state) + eps), mask=wanted)
        tl.store(momentum + row, state)
        tl.store(counts + row, 0)


def update_rows(
    weight: torch.Tensor,
    momentum: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    gradient: torch.Tensor,
    counts: torch.Tensor,
    rate: float,
    eps: float,
) -> None:
    """One step of row-wise Adagrad on weight (rows, size) and momentum (rows,), both fp32, in place.

    Bag b, ids[offsets[b] : offsets[b + 1]], was summed and has gradient[b]. `counts` (rows,) int32 holds zeros, and
    zeros again afterwards. Everything contiguous.
    """
    tensors = (weight, momentum, ids, offsets, gradient, counts)
    if not all(each.is_contiguous() for each in tensors):
        raise ValueError("contiguous inputs")
    if weight.ndim != 2 or weight.dtype != torch.float32 or momentum.dtype != torch.float32:
        raise ValueError("a table and its state in fp32")
    if gradient.shape != (offsets.numel() - 1, weight.shape[1]):
        raise ValueError("a gradient for each bag, as wide as a row")
    if counts.shape != (weight.shape[0],) or counts.dtype != torch.int32:
        raise ValueError("an int32 count for each row")
    total, columns, device = ids.numel(), weight.shape[1], weight.device
    if not total or not columns:
        return
    held = torch.zeros(1, dtype=torch.int32, device=device)
    places = torch.empty_like(counts)
    named = torch.empty(total // 2 + 1, dtype=torch.int64, device=device)
    sums = torch.empty(total // 2 + 1, columns, dtype=torch.float32, device=device)
    block = triton.next_power_of_2(columns)
    warps = max(1, min(8, block // 256))
    _count_kernel[(triton.cdiv(total, COUNT_BLOCK),)](
        ids, counts, places, held, named, sums, total, columns, N=COUNT_BLOCK, BLOCK=block, num_warps=COUNT_WARPS
    )
    _bag_kernel[(gradient.shape[0],)](
        ids, offsets, gradient, weight, momentum, counts, places, sums, columns, rate, eps,
        ROWS=ROWS, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    _shared_kernel[(min(PROGRAMS, total // 2 + 1),)](
        weight, momentum, counts, held, named, sums, columns, rate, eps, BLOCK=block, num_warps=warps
    )
