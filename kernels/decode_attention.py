"""Attention of one token a sequence over its cache, heads that share keys and values reading them once.

out = softmax(q keys' * scale + mask) values for each of the `rows` query heads of a key head (grouped queries: heads /
key heads of them). Moves keys and values once (a repeat for each query head would write and read `rows` copies), the
mask once a key head, q and out once. One program a sequence, key head and part of the cache: the group's queries are
the rows of one product on the matrix unit, with a running maximum and sum in fp32. Where sequences and key heads are
too few to fill the device the cache is split, and a second kernel joins the parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

REPEATED, GROUPED, PLAIN = 0, 1, 2
"""How the reference calls torch: keys and values repeated for each query head; enable_gqa; nothing of the kind."""
BLOCK = 64
LEAST_PART = 128
PROGRAMS = 264
"""Two a multiprocessor of an H200."""
MOST_ROWS, LARGEST_SIZE = 64, 256


@triton.jit
def _decode_attention_kernel(  # type: ignore[no-untyped-def]
    q, keys, values, mask, out, parts, tops, sums, heads, rows, length, size, part, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_place, v_batch, v_head, v_place,
    mask_batch, mask_place, out_batch, out_head, out_row,
    MASK: tl.constexpr, SPLIT: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    batch, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    row, lane, place = tl.arange(0, ROWS), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (lane < size)[None, :]
    at = batch * q_batch + head * q_head + row[:, None] * q_row + lane[None, :]
    query = tl.load(q + at, mask=inside, other=0.0)
    keys += batch * k_batch + head * k_head
    values += batch * v_batch + head * v_head
    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    begin = tl.program_id(1) * part
    end = tl.minimum(begin + part, length)
    for first in range(begin, end, BLOCK):
        spot = first + place
        there = (spot < end)[:, None] & (lane < size)[None, :]
        spot = spot.to(tl.int64)
        key = tl.load(keys + spot[:, None] * k_place + lane[None, :], mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if MASK == 2:
            shift = tl.load(mask + batch * mask_batch + spot * mask_place, mask=spot < end, other=0.0)
            score += shift.to(tl.float32)[None, :]
        seen = spot < end
        if MASK == 1:
            seen = seen & (tl.load(mask + batch * mask_batch + spot * mask_place, mask=spot < end, other=0) != 0)
        score = tl.where(seen[None, :], score, -float("inf"))
        found = tl.maximum(top, tl.max(score, 1))
        base = tl.where(found == -float("inf"), 0.0, found)  # nothing seen yet
        weight = tl.exp(score - base[:, None])
        fading = tl.exp(top - base)
        value = tl.load(values + spot[:, None] * v_place + lane[None, :], mask=there, other=0.0)
        mixed = tl.dot(weight.to(value.dtype), value, mixed * fading[:, None], input_precision="ieee")
        total = total * fading + tl.sum(weight, 1)
        top = found
    if SPLIT:
        number = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * rows + row
        tl.store(parts + number[:, None] * size + lane[None, :], mixed, mask=inside)
        tl.store(tops + number, top, mask=row < rows)
        tl.store(sums + number, total, mask=row < rows)
    else:
        mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
        at = batch * out_batch + head * out_head + row[:, None] * out_row + lane[None, :]
        tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _join_kernel(  # type: ignore[no-untyped-def]
    parts, tops, sums, out, heads, rows, size, count, out_batch, out_head, out_row,
    COUNT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    batch, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    row = tl.program_id(1)
    each, lane = tl.arange(0, COUNT), tl.arange(0, SIZE)
    number = (tl.program_id(0).to(tl.int64) * count + each) * rows + row
    top = tl.load(tops + number, mask=each < count, other=-float("inf"))
    highest = tl.max(top, 0)
    share = tl.exp(top - tl.where(highest == -float("inf"), 0.0, highest))
    total = tl.sum(share * tl.load(sums + number, mask=each < count, other=0.0), 0)
    there = (each < count)[:, None] & (lane < size)[None, :]
    mixed = tl.load(parts + number[:, None] * size + lane[None, :], mask=there, other=0.0)
    joined = tl.sum(mixed * share[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    at = batch * out_batch + head * out_head + row * out_row + lane
    tl.store(out + at, joined.to(out.dtype.element_ty), mask=lane < size)


def _rows(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, form: int) -> int:
    """Queries that share a key head. Raises ValueError for shapes that this is not for."""
    if q.ndim != 4 or keys.ndim != 4 or keys.shape != values.shape or not keys.shape[1] or not keys.shape[2]:
        raise ValueError("q (batch, heads, tokens, size), keys and values (batch, key heads, places, size)")
    batch, heads, tokens, size = q.shape
    if (keys.shape[0], keys.shape[3]) != (batch, size) or heads % keys.shape[1] or not 0 < size <= LARGEST_SIZE:
        raise ValueError(f"one batch, a multiple of the key heads, and a size of 1 to {LARGEST_SIZE} for all")
    if (tokens != 1 or heads == keys.shape[1]) if form != PLAIN else heads != keys.shape[1]:
        raise ValueError("one token of several heads a key head, or one head's rows")
    rows = heads // keys.shape[1] * tokens
    if not 0 < rows <= MOST_ROWS:
        raise ValueError(f"1 to {MOST_ROWS} queries a key head")
    if mask is not None and (mask.shape[0] not in (1, batch) or mask.shape[1:] != (1, 1, keys.shape[2])):
        raise ValueError("a mask (batch or 1, 1, 1, places)")
    return rows


def _output(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float, form: int
) -> torch.Tensor:
    """Memory laid out as the backend that torch would choose leaves it."""
    if form == REPEATED:  # in shape alone
        keys, values = (each[:, :1].expand(-1, q.shape[1], -1, -1) for each in (keys, values))
    chosen = torch._fused_sdp_choice(q, keys, values, mask, 0.0, False, scale=scale, enable_gqa=form == GROUPED)
    if chosen == SDPBackend.MATH.value:
        return torch.empty_like(q, memory_format=torch.contiguous_format)
    if chosen == SDPBackend.CUDNN_ATTENTION.value or not q.is_cuda:
        return torch.empty_like(q)
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)


def decode_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    form: int = REPEATED,
) -> torch.Tensor:
    """Attention of few queries; q, keys and values of one dtype with the size innermost, a mask (bools, or added).

    The output lies in memory as torch's would; queries that see nothing give zeros. `form` says how the reference calls
    torch, and what q's heads are.
    """
    rows = _rows(q, keys, values, mask, form)
    if any(t.stride(3) != 1 or t.dtype != q.dtype for t in (q, keys, values)):
        raise ValueError("the size innermost and one dtype")
    batch, heads, _, size = q.shape
    key_heads, length = keys.shape[1:3]
    out = _output(q, keys, values, mask, scale, form)
    if not batch:
        return out
    group = heads // key_heads
    step = 1 if form != PLAIN else 2
    count = max(1, min(PROGRAMS // (batch * key_heads), length // LEAST_PART))
    part = triton.cdiv(triton.cdiv(length, count), BLOCK) * BLOCK
    count = triton.cdiv(length, part)
    shape = (batch * key_heads * count * rows,) if count > 1 else (0,)
    parts = torch.empty(*shape, size, dtype=torch.float32, device=q.device)
    tops, sums = torch.empty(2, *shape, dtype=torch.float32, device=q.device).unbind(0)
    where = (out.stride(0), out.stride(1) * group, out.stride(step))
    _decode_attention_kernel[(batch * key_heads, count)](
        q, keys, values, q if mask is None else mask, out, parts, tops, sums, key_heads, rows, length, size, part,
        scale, q.stride(0), q.stride(1) * group, q.stride(step), *keys.stride()[:3], *values.stride()[:3],
        0 if mask is None or mask.shape[0] == 1 else mask.stride(0), 0 if mask is None else mask.stride(3), *where,
        MASK=0 if mask is None else 1 if mask.dtype is torch.bool else 2, SPLIT=count > 1,
        ROWS=max(16, triton.next_power_of_2(rows)), SIZE=max(16, triton.next_power_of_2(size)), BLOCK=BLOCK,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    if count > 1:
        _join_kernel[(batch * key_heads, rows)](
            parts, tops, sums, out, key_heads, rows, size, count, *where,
            COUNT=triton.next_power_of_2(count), SIZE=triton.next_power_of_2(size), num_warps=2,
        )  # fmt: skip
    return out


def reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    form: int = REPEATED,
) -> torch.Tensor:
    """As transformers has it over a static cache, and as the library's own re-routings of that have it."""
    _rows(q, keys, values, mask, form)
    if form == REPEATED:
        batch, key_heads, length, size = keys.shape
        shape = (batch, key_heads, q.shape[1] // key_heads, length, size)
        keys, values = (each[:, :, None].expand(shape).reshape(batch, -1, length, size) for each in (keys, values))
    return torch.nn.functional.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, scale=scale, enable_gqa=form == GROUPED
    )


def bytes_moved(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    form: int = REPEATED,
) -> int:
    """Everything once."""
    masked = 0 if mask is None else mask.numel() * mask.element_size()
    return (2 * q.numel() + keys.numel() + values.numel()) * q.element_size() + masked


def _cache(batch: int, heads: int, length: int, size: int) -> tuple[TensorCase, TensorCase]:
    one = TensorCase(shape=(batch, heads, length, size))
    return one, one


CASES = (
    Case(
        name="repeated-2x4x1x16",
        arguments=(
            TensorCase(shape=(2, 4, 1, 16)),
            *_cache(2, 2, 150, 16),
            TensorCase(shape=(2, 1, 1, 150), kind="ids", high=2, dtype="bool"),
            0.25,
        ),
    ),
    Case(
        name="grouped-1x6x1x20",
        arguments=(TensorCase(shape=(1, 6, 1, 20)), *_cache(1, 2, 300, 20), TensorCase(shape=(1, 1, 1, 300)), 0.2, 1),
    ),
    Case(
        name="plain-3x2x5x33",
        arguments=(
            TensorCase(shape=(3, 2, 5, 33)),
            *_cache(3, 2, 41, 33),
            TensorCase(shape=(1, 1, 1, 41), kind="ids", high=2, dtype="bool"),
            0.17,
            2,
        ),
    ),
    Case(name="grouped-2x4x1x16", arguments=(TensorCase(shape=(2, 4, 1, 16)), *_cache(2, 2, 35, 16), None, 0.25, 1)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="attention of one token over a static cache in Triton, grouped queries without repeating keys and values",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=decode_attention, reference=reference, op="attention", bytes_moved=bytes_moved)
