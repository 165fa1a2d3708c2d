"""Pooled embeddings of tables that lie apart, in one launch: out[b, t] = sum (or mean) over bag (t, b).

Tables (rows of their own, size) stay where the model has them: a table of distances from the first, made once and
found again by the addresses themselves, says where. `ids` of all tables one after another, `begins` saying where each
table's begin; bag (t, b) is ids[begins[t] + offsets[t, b] : begins[t] + offsets[t, b + 1]]. Moves each *distinct* row
once, ids and offsets once, the output once. A program takes a few bags and a few rows of each at once, as the kernel of
stacked tables does; sums in fp32 whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.kernels.embedding_bag import MOST_ROWS, tile
from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

WIDEST = 1024

_placed: dict[tuple[Any, ...], torch.Tensor] = {}
"""Addresses and begins -> the same on the device: a table that moved has another address, so nothing goes stale.
Nothing is forgotten (a few hundred bytes each): a captured CUDA graph reads it for as long as it lives."""


@triton.jit
def _all_bags_kernel(  # type: ignore[no-untyped-def]
    first, places, ids, offsets, out, batch, size, count,
    MEAN: tl.constexpr, ALIGNED: tl.constexpr, BAGS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    table = tl.program_id(1).to(tl.int64)
    away = tl.load(places + table)
    if ALIGNED:
        away = tl.multiple_of(away, 16)
    of_table = first + away
    mine = ids + tl.load(places + count + table)
    inside = sample < batch
    at = offsets + table * (batch + 1) + sample
    begin, end = tl.load(at, mask=inside, other=0), tl.load(at + 1, mask=inside, other=0)
    columns = tl.arange(0, BLOCK)
    wanted = columns < size
    total = tl.zeros((BAGS, BLOCK), dtype=tl.float32)
    position = begin[:, None] + tl.arange(0, ROWS)[None, :]
    here = position < end[:, None]
    row = tl.load(mine + position, mask=here, other=0).to(tl.int32)
    for _ in range(0, tl.max(end - begin, 0), ROWS):
        where = of_table + row.to(tl.int64)[:, :, None] * size + columns[None, None, :]
        values = tl.load(where, mask=here[:, :, None] & wanted[None, None, :], other=0.0)
        position += ROWS
        here = position < end[:, None]
        row = tl.load(mine + position, mask=here, other=0).to(tl.int32)  # on their way while rows arrive
        total += tl.sum(values.to(tl.float32), 1)
    if MEAN:
        total = total / tl.maximum(end - begin, 1).to(tl.float32)[:, None]
    to = out + (sample[:, None] * count + table) * size + columns[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=inside[:, None] & wanted[None, :])


def all_bags(ids: torch.Tensor, offsets: torch.Tensor, mean: bool, sparse: bool, *rest: Any) -> torch.Tensor:
    """Pooled rows (batch, tables * size); `rest` is the tables, then as many numbers: where the ids of each begin.

    Contiguous tables of one dtype and size up to 1024, flat ids in them, offsets (tables, batch + 1) rising from 0.
    `sparse`: gradients of the tables hold the rows that were read alone.
    """
    tables, begins = _told_apart(rest)
    size = tables[0].shape[1]
    if any(each.ndim != 2 or each.shape[1] != size or each.dtype != tables[0].dtype for each in tables):
        raise ValueError("tables (rows, size) of one size and dtype")
    if max(each.shape[0] for each in tables) > MOST_ROWS:
        raise ValueError(f"tables of at most {MOST_ROWS} rows")
    if ids.ndim != 1 or offsets.ndim != 2 or offsets.shape[0] != len(tables) or offsets.shape[1] < 1:
        raise ValueError("flat ids and offsets (tables, batch + 1)")
    if not 0 < size <= WIDEST:
        raise ValueError(f"1 to {WIDEST} columns")
    if not all(each.is_contiguous() for each in (ids, offsets, *tables)):
        raise ValueError("contiguous inputs")
    batch = offsets.shape[1] - 1
    out = ids.new_empty(batch, len(tables) * size, dtype=tables[0].dtype)
    if not batch:
        return out
    places, aligned = _places(tables, begins)
    bags, rows = tile(ids.numel(), batch * len(tables))
    block = triton.next_power_of_2(size)
    _all_bags_kernel[(triton.cdiv(batch, bags), len(tables))](
        tables[0], places, ids, offsets, out, batch, size, len(tables),
        MEAN=mean, ALIGNED=aligned, BAGS=bags, ROWS=rows, BLOCK=block, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip
    return out


def _told_apart(rest: Sequence[Any]) -> tuple[list[torch.Tensor], tuple[int, ...]]:
    count = len(rest) // 2
    tables, begins = rest[:count], rest[count:]
    if not count or len(begins) != count or not all(isinstance(each, int) for each in begins):
        raise ValueError("tables, then where the ids of each begin")
    return list(tables), tuple(begins)


def _places(tables: Sequence[torch.Tensor], begins: tuple[int, ...]) -> tuple[torch.Tensor, bool]:
    """Distances from the first table in elements and the begins, on the device; and whether all are multiples of 16."""
    addresses = [each.data_ptr() for each in tables]
    width = tables[0].element_size()
    if any((each - addresses[0]) % width for each in addresses):
        raise ValueError("tables a whole number of elements apart")
    away = [(each - addresses[0]) // width for each in addresses]
    key = (tables[0].device, *away, *begins)
    if key not in _placed:
        _placed[key] = torch.tensor([*away, *begins], dtype=torch.int64, device=tables[0].device)
    return _placed[key], all(each % 16 == 0 for each in away)


def reference(ids: torch.Tensor, offsets: torch.Tensor, mean: bool, sparse: bool, *rest: Any) -> torch.Tensor:
    """One torch call a table."""
    tables, begins = _told_apart(rest)
    ends = [*begins[1:], ids.shape[0]]
    pooled = [
        torch.nn.functional.embedding_bag(
            ids[begin:end], table, bags, mode="mean" if mean else "sum", sparse=sparse, include_last_offset=True
        )
        for table, begin, end, bags in zip(tables, begins, ends, offsets, strict=True)
    ]
    return torch.cat(pooled, dim=1)


def backward(
    gradients: Sequence[torch.Tensor],
    ids: torch.Tensor,
    offsets: torch.Tensor,
    mean: bool,
    sparse: bool,
    *rest: Any,
) -> list[torch.Tensor | None]:
    """Gradients of the tables: the rows of all ids gathered at once, then each table's own."""
    tables, begins = _told_apart(rest)
    count, size = len(tables), tables[0].shape[1]
    lengths = offsets[:, 1:] - offsets[:, :-1]
    pooled = gradients[0].reshape(-1, count, size)
    if mean:
        pooled = pooled / lengths.t().clamp(min=1).unsqueeze(2).to(pooled.dtype)
    numbers = torch.arange(lengths.numel(), device=ids.device).reshape(lengths.shape)
    bags = torch.repeat_interleave(numbers.flatten(), lengths.flatten(), output_size=ids.shape[0])
    rows = pooled.transpose(0, 1).reshape(-1, size)[bags]
    found: list[torch.Tensor | None] = []
    for table, begin, end in zip(tables, begins, [*begins[1:], ids.shape[0]], strict=True):
        if sparse:
            found.append(torch.sparse_coo_tensor(ids[begin:end].unsqueeze(0), rows[begin:end], table.shape))
        else:
            found.append(torch.zeros_like(table).index_add_(0, ids[begin:end], rows[begin:end]))
    return [None, None, None, None, *found, *(None for _ in begins)]


def bytes_moved(ids: torch.Tensor, offsets: torch.Tensor, mean: bool, sparse: bool, *rest: Any) -> int:
    """Distinct rows once, ids and offsets once, the output once."""
    tables, begins = _told_apart(rest)
    ends = [*begins[1:], ids.shape[0]]
    size, width = tables[0].shape[1], tables[0].element_size()
    used = sum(len(set(ids[begin:end].tolist())) for begin, end in zip(begins, ends, strict=True))
    written = (offsets.shape[1] - 1) * len(tables) * size * width
    return used * size * width + written + sum(each.numel() * each.element_size() for each in (ids, offsets))


def _case(name: str, heights: Sequence[int], size: int, batch: int, each: int, mean: bool) -> Case:
    """Tables of these heights with `each` ids a table."""
    return Case(
        name=name,
        arguments=(
            TensorCase(shape=(each * len(heights),), kind="ids", high=min(heights), dtype="int64"),
            TensorCase(shape=(len(heights), batch + 1), kind="rows of offsets", high=each, dtype="int64"),
            mean,
            False,
            *(TensorCase(shape=(height, size)) for height in heights),
            *(each * number for number in range(len(heights))),
        ),
    )


CASES = (
    _case("sum-3x40x32", (40, 40, 40), 32, 8, 50, False),
    _case("mean-2x19", (37, 53), 19, 5, 31, True),
    _case("sum-4x130", (23, 11, 64, 7), 130, 7, 90, False),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="pooled embeddings of tables that lie apart in one Triton launch, as the bags of a recommender's forward",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=all_bags, reference=reference, op="embedding", bytes_moved=bytes_moved)
