"""Pooled embeddings of every table in one launch: out[b, t] = sum (or mean) over bag (t, b) of rows of table t.

Tables (tables, rows, size) stacked; bag (t, b) is ids[offsets[t * batch + b] : offsets[t * batch + b + 1]], of any
length, with a weight for each id where there are weights. Moves each *distinct* row once, ids (and weights) and offsets
once, the output once. A warp takes a few bags and a few rows of each at once, so that many loads are under way whether
bags are long or hold one id; sums in fp32 whatever the dtype. Rows of 8 or 4 bits are read as words of four bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

WIDEST_BLOCK = 256
SINGLE_BAGS, SHORT_BAGS, LONG_BAGS = (8, 1), (4, 4), (1, 16)
"""(Bags, rows of each at once) of a program, where bags hold an id or two, few ids, and many."""
QUANTISED_BAGS = (4, 4)
SINGLE_IDS, FEW_IDS = 2, 12
"""Bags of fewer ids than these, on the average."""
WARPS = 1
MOST_ROWS = 2**31 - 1
"""Of a table: ids are kept in 32 bits."""
COLUMNS_AT_ONCE = 128
"""Columns of a table that all bags read before any bag reads the next ones."""


@triton.jit
def _bounds(offsets, sample, table, batch, BAGS: tl.constexpr):  # type: ignore[no-untyped-def]
    inside = sample < batch
    at = offsets + table * batch + sample
    begin = tl.load(at, mask=inside, other=0)
    return inside, begin, tl.load(at + 1, mask=inside, other=0)


@triton.jit
def _embedding_bag_kernel(  # type: ignore[no-untyped-def]
    tables, ids, offsets, weights, out, batch, rows, size, count,
    MEAN: tl.constexpr, WEIGHTED: tl.constexpr, BAGS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    table = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wanted = columns < size
    inside, begin, end = _bounds(offsets, sample, table, batch, BAGS)
    total = tl.zeros((BAGS, BLOCK), dtype=tl.float32)
    of_table = tables + table * rows * size
    position = begin[:, None] + tl.arange(0, ROWS)[None, :]
    here = position < end[:, None]
    row = tl.load(ids + position, mask=here, other=0).to(tl.int32)
    for _ in range(0, tl.max(end - begin, 0), ROWS):
        at = of_table + row.to(tl.int64)[:, :, None] * size + columns[None, None, :]
        values = tl.load(at, mask=here[:, :, None] & wanted[None, None, :], other=0.0).to(tl.float32)
        if WEIGHTED:
            values *= tl.load(weights + position, mask=here, other=0.0).to(tl.float32)[:, :, None]
        position += ROWS
        here = position < end[:, None]
        row = tl.load(ids + position, mask=here, other=0).to(tl.int32)  # on their way while rows arrive
        total += tl.sum(values, 1)
    if MEAN:
        total = total / tl.maximum(end - begin, 1).to(tl.float32)[:, None]
    at = (sample[:, None] * count + table) * size + columns[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside[:, None] & wanted[None, :])


def embedding_bag(
    tables: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None = None,
    mean: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Pooled rows (batch, tables, size) in `dtype`, or the tables' own.

    Contiguous stacked tables, ids in them, tables x batch + 1 rising offsets.
    """
    if tables.ndim != 3 or ids.ndim != 1 or offsets.ndim != 1 or (mean and weights is not None):
        raise ValueError("tables (tables, rows, size), flat ids and offsets, and weights only for sums")
    count, rows, size = tables.shape
    if count == 0 or (offsets.numel() - 1) % count or offsets.numel() < 1 + count or size == 0:
        raise ValueError("tables x batch + 1 offsets")
    if rows > MOST_ROWS:
        raise ValueError(f"tables of at most {MOST_ROWS} rows")
    if weights is not None and (weights.shape != ids.shape or not weights.is_contiguous()):
        raise ValueError("a contiguous weight for each id")
    if not (tables.is_contiguous() and ids.is_contiguous() and offsets.is_contiguous()):
        raise ValueError("contiguous inputs")
    batch = (offsets.numel() - 1) // count
    out = torch.empty(batch, count, size, dtype=dtype or tables.dtype, device=tables.device)
    block = min(COLUMNS_AT_ONCE, WIDEST_BLOCK, triton.next_power_of_2(size))
    bags, at_once = tile(ids.numel(), count * batch)
    _embedding_bag_kernel[(triton.cdiv(batch, bags), triton.cdiv(size, block), count)](
        tables, ids, offsets, tables if weights is None else weights, out, batch, rows, size, count,
        MEAN=mean, WEIGHTED=weights is not None, BAGS=bags, ROWS=at_once, BLOCK=block, num_warps=WARPS,
    )  # fmt: skip
    return out


def tile(ids: int, bags: int) -> tuple[int, int]:
    """Bags of a program and rows of each that are under way at once, by how many ids a bag holds."""
    if ids < SINGLE_IDS * bags:
        return SINGLE_BAGS
    return SHORT_BAGS if ids < FEW_IDS * bags else LONG_BAGS


@triton.jit
def _quantised_bag_kernel(  # type: ignore[no-untyped-def]
    words, ids, offsets, out, batch, rows, size, count, stride,
    BITS: tl.constexpr, BAGS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK words hold a row's values; the word in front holds its scale (low half) and bias, both fp16."""
    EACH: tl.constexpr = 32 // BITS
    sample = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    table = tl.program_id(1).to(tl.int64)
    word = tl.arange(0, BLOCK)
    wanted = word * EACH < size
    inside, begin, end = _bounds(offsets, sample, table, batch, BAGS)
    base = tl.zeros((BAGS,), dtype=tl.float32)
    t0 = tl.zeros((BAGS, BLOCK), dtype=tl.float32)
    t1, t2, t3, t4, t5, t6, t7 = t0, t0, t0, t0, t0, t0, t0
    of_table = words + table * rows * stride
    position = begin[:, None] + tl.arange(0, ROWS)[None, :]
    here = position < end[:, None]
    row = tl.load(ids + position, mask=here, other=0).to(tl.int32)
    for _ in range(0, tl.max(end - begin, 0), ROWS):
        at = of_table + row.to(tl.int64) * stride
        mine = here[:, :, None] & wanted[None, None, :]
        packed = tl.load(at[:, :, None] + 1 + word[None, None, :], mask=mine, other=0)
        head = tl.load(at, mask=here, other=0)
        position += ROWS
        here = position < end[:, None]
        row = tl.load(ids + position, mask=here, other=0).to(tl.int32)  # on their way while rows arrive
        scale = (head & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)[:, :, None]
        base += tl.sum((head >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32), 1)
        MASK: tl.constexpr = (1 << BITS) - 1
        t0 += tl.sum((packed & MASK).to(tl.float32) * scale, 1)
        t1 += tl.sum(((packed >> BITS) & MASK).to(tl.float32) * scale, 1)
        t2 += tl.sum(((packed >> (2 * BITS)) & MASK).to(tl.float32) * scale, 1)
        t3 += tl.sum(((packed >> (3 * BITS)) & MASK).to(tl.float32) * scale, 1)
        if BITS == 4:
            t4 += tl.sum(((packed >> 16) & MASK).to(tl.float32) * scale, 1)
            t5 += tl.sum(((packed >> 20) & MASK).to(tl.float32) * scale, 1)
            t6 += tl.sum(((packed >> 24) & MASK).to(tl.float32) * scale, 1)
            t7 += tl.sum(((packed >> 28) & MASK).to(tl.float32) * scale, 1)
    if BITS == 8:
        # The last axis of a join varies fastest: column 4 w + 2 i + j is joined[w, i, j].
        total = tl.join(tl.join(t0, t2), tl.join(t1, t3))
    else:
        evens = tl.join(tl.join(t0, t4), tl.join(t2, t6))
        odds = tl.join(tl.join(t1, t5), tl.join(t3, t7))
        total = tl.join(evens, odds)
    total = tl.reshape(total, (BAGS, BLOCK * EACH)) + base[:, None]
    columns = tl.arange(0, BLOCK * EACH)
    at = (sample[:, None] * count + table) * size + columns[None, :]
    tl.store(out + at, total, mask=inside[:, None] & (columns < size)[None, :])


def quantised_embedding_bag(
    table: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, count: int, bits: int
) -> torch.Tensor:
    """Sums (batch, tables, size) in fp32 of dequantised rows of `count` stacked tables of 8 or 4 bits a value.

    `table` (count x rows, bytes) uint8, contiguous: a row is its scale and bias in fp16, then its values, of two in a
    byte the even column in the low half; a whole number of words of four bytes.
    """
    if table.dtype != torch.uint8 or table.ndim != 2 or table.shape[1] % 4 or table.shape[1] < 8 or bits not in (4, 8):
        raise ValueError("rows of bytes, whole words with values of 4 or 8 bits")
    if count < 1 or table.shape[0] % count or offsets.numel() < 1 + count or (offsets.numel() - 1) % count:
        raise ValueError("stacked tables of as many rows and tables x batch + 1 offsets")
    if table.shape[0] // count > MOST_ROWS:
        raise ValueError(f"tables of at most {MOST_ROWS} rows")
    if not (table.is_contiguous() and ids.is_contiguous() and offsets.is_contiguous()):
        raise ValueError("contiguous inputs")
    stride = table.shape[1] // 4
    size = (stride - 1) * (32 // bits)
    batch = (offsets.numel() - 1) // count
    out = torch.empty(batch, count, size, dtype=torch.float32, device=table.device)
    bags, at_once = QUANTISED_BAGS
    _quantised_bag_kernel[(triton.cdiv(batch, bags), count)](
        table.view(torch.int32), ids, offsets, out, batch, table.shape[0] // count, size, count, stride,
        BITS=bits, BAGS=bags, ROWS=at_once, BLOCK=triton.next_power_of_2(stride - 1), num_warps=WARPS,
    )  # fmt: skip
    return out


def reference(
    tables: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None = None,
    mean: bool = False,
    dtype: torch.dtype | None = None,
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
                tables[table].to(dtype or tables.dtype),
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
    dtype: torch.dtype | None = None,
) -> int:
    """Distinct rows once, ids, weights and offsets once, the output once."""
    count, _, size = tables.shape
    batch = (offsets.numel() - 1) // count
    used = [len(set(ids[int(offsets[t * batch]) : int(offsets[(t + 1) * batch])].tolist())) for t in range(count)]
    rows = (sum(used) * tables.element_size() + batch * count * (dtype or tables.dtype).itemsize) * size
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
    attempts=2,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=embedding_bag, reference=reference, op="embedding", bytes_moved=bytes_moved)
