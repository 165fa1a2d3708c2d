"""Pooled embeddings of every table in one launch: out[b, t] = sum (or mean) over bag (t, b) of rows of table t.

Tables (tables, rows, size) stacked; bag (t, b) is ids[offsets[t * batch + b] : offsets[t * batch + b + 1]], of any
length, with a weight for each id where there are weights. Moves each *distinct* row once, ids (and weights) and offsets
once, the output once. One program a bag and block of columns; sums in fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

WIDEST_BLOCK = 256


@triton.jit
def _embedding_bag_kernel(  # type: ignore[no-untyped-def]
    tables, ids, offsets, weights, out, batch, rows, size, count,
    MEAN: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    bag = tl.program_id(0).to(tl.int64)
    table, sample = bag // batch, bag % batch
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for position in range(begin, end):
        row = table * rows + tl.load(ids + position)
        values = tl.load(tables + row * size + columns, mask=inside, other=0.0).to(tl.float32)
        if WEIGHTED:
            values *= tl.load(weights + position).to(tl.float32)
        total += values
    if MEAN:
        total = total / tl.maximum(end - begin, 1).to(tl.float32)
    at = (sample * count + table) * size + columns
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def embedding_bag(
    tables: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None = None,
    mean: bool = False,
) -> torch.Tensor:
    """Pooled rows (batch, tables, size); contiguous stacked tables, ids in them, tables x batch + 1 rising offsets."""
    if tables.ndim != 3 or ids.ndim != 1 or offsets.ndim != 1 or (mean and weights is not None):
        raise ValueError("tables (tables, rows, size), flat ids and offsets, and weights only for sums")
    count, rows, size = tables.shape
    if count == 0 or (offsets.numel() - 1) % count or offsets.numel() < 1 + count or size == 0:
        raise ValueError("tables x batch + 1 offsets")
    if weights is not None and (weights.shape != ids.shape or not weights.is_contiguous()):
        raise ValueError("a contiguous weight for each id")
    if not (tables.is_contiguous() and ids.is_contiguous() and offsets.is_contiguous()):
        raise ValueError("contiguous inputs")
    batch = (offsets.numel() - 1) // count
    out = torch.empty(batch, count, size, dtype=tables.dtype, device=tables.device)
    block = min(WIDEST_BLOCK, triton.next_power_of_2(size))
    _embedding_bag_kernel[(count * batch, triton.cdiv(size, block))](
        tables, ids, offsets, tables if weights is None else weights, out, batch, rows, size, count,
        MEAN=mean, WEIGHTED=weights is not None, BLOCK=block, num_warps=1 if block <= 64 else 2,
    )  # fmt: skip
    return out


def reference(
    tables: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None = None,
    mean: bool = False,
) -> torch.Tensor:
    """One torch call a table."""
    count = tables.shape[0]
    batch = (offsets.numel() - 1) // count
    pooled = []
    for table in range(count):
        bags = offsets[table * batch : (table + 1) * batch + 1]
        first, last = int(bags[0]), int(bags[-1])
        pooled.append(
            torch.nn.functional.embedding_bag(
                ids[first:last],
                tables[table],
                bags - first,
                mode="mean" if mean else "sum",
                per_sample_weights=None if weights is None else weights[first:last],
                include_last_offset=True,
            )
        )
    return torch.stack(pooled, dim=1)


def bytes_moved(
    tables: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None = None,
    mean: bool = False,
) -> int:
    """Distinct rows once, ids, weights and offsets once, the output once."""
    count, _, size = tables.shape
    batch = (offsets.numel() - 1) // count
    used = [len(set(ids[int(offsets[t * batch]) : int(offsets[(t + 1) * batch])].tolist())) for t in range(count)]
    rows = (sum(used) + batch * count) * size * tables.element_size()
    weighted = 0 if weights is None else weights.numel() * weights.element_size()
    return rows + weighted + sum(t.numel() * t.element_size() for t in (ids, offsets))


def _bags(count: int, batch: int, ids: int, rows: int) -> tuple[TensorCase, TensorCase]:
    return (
        TensorCase(shape=(ids,), kind="ids", high=rows, dtype="int64"),
        TensorCase(shape=(count * batch + 1,), kind="offsets", high=ids, dtype="int64"),
    )


CASES = (
    Case(name="sum-3x40x32", arguments=(TensorCase(shape=(3, 40, 32)), *_bags(3, 8, 150, 40))),
    Case(name="mean-2x37x19", arguments=(TensorCase(shape=(2, 37, 19)), *_bags(2, 5, 61, 37), None, True)),
    Case(
        name="weighted-2x23x33",
        arguments=(TensorCase(shape=(2, 23, 33)), *_bags(2, 7, 90, 23), TensorCase(shape=(90,))),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="pooled embeddings of all tables in one Triton launch: sum, mean, weighted, bags of any length",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=embedding_bag, reference=reference, op="embedding", bytes_moved=bytes_moved)
