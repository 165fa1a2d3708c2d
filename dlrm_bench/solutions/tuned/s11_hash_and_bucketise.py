"""Two launches: ids hashed, sharded and counted while lengths are summed by chunks; then offsets, and counts in all.

By Claude (Anthropic). Remainders are products with reciprocals of 64 bits, exact for every int64: for u < 2**64 and
m = floor(2**64 / d), the high half of u * m is the quotient or one less. Nothing is added up by atomics.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p11_hash_and_bucketise import MULTIPLIER, Model

BLOCK, WARPS = 1_024, 4
CHUNK = 2_048
PROGRAMS = 1_056
"""Of those that hash: eight for each of an H200's processors."""


def reciprocal(divisor: int) -> int:
    """floor(2**64 / divisor), at most 2**64 - 1, as the int64 of the same bits."""
    bits = min((1 << 64) // divisor, (1 << 64) - 1)
    return bits - (1 << 64) if bits >> 63 else bits


@triton.jit
def _divided(number, divisor, inverse):
    """Quotient and remainder of number, uint64, by divisor, below 2**63."""
    quotient = tl.umulhi(number, inverse)
    remainder = (number - quotient * divisor).to(tl.int64)
    once_more = remainder.to(tl.uint64) >= divisor
    return quotient.to(tl.int64) + once_more.to(tl.int64), tl.where(
        once_more, remainder - divisor.to(tl.int64), remainder
    )


@triton.jit
def _hash(
    raw,
    rows_out,
    shard_out,
    parts,
    lengths,
    sums,
    count,
    bags,
    multiplier,
    rows,
    by_rows,
    wrapped,
    block,
    by_block,
    hashing,
    SHARDS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    program = tl.program_id(0)
    if program >= hashing:
        place = (program - hashing).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
        mine = tl.load(lengths + place, mask=place < bags, other=0).to(tl.int64)
        tl.store(sums + program - hashing, tl.sum(mine, 0))
    else:
        which = tl.arange(0, SHARDS)
        found = tl.zeros((SHARDS,), tl.int32)
        divisor = tl.zeros((1,), tl.int64) + rows
        inverse = tl.zeros((1,), tl.int64) + by_rows
        wide = tl.zeros((1,), tl.int64) + block
        by_wide = tl.zeros((1,), tl.int64) + by_block
        for first in range(program.to(tl.int64) * BLOCK, count, hashing.to(tl.int64) * BLOCK):
            place = first + tl.arange(0, BLOCK)
            inside = place < count
            mixed = tl.load(raw + place, mask=inside, other=0).to(tl.int64) * multiplier
            mixed = mixed ^ (mixed >> 15)
            _, row = _divided(mixed.to(tl.uint64), divisor.to(tl.uint64), inverse.to(tl.uint64))
            row = tl.where(mixed < 0, row - wrapped, row)  # a negative number is 2**64 more as bits
            row = tl.where(row < 0, row + rows, row)
            shard, _ = _divided(row.to(tl.uint64), wide.to(tl.uint64), by_wide.to(tl.uint64))
            tl.store(rows_out + place, row, mask=inside)
            tl.store(shard_out + place, shard, mask=inside)
            same = (shard.to(tl.int32)[:, None] == which[None, :]) & inside[:, None]
            found += tl.sum(same.to(tl.int32), 0)
        tl.store(parts + program * SHARDS + which, found)


@triton.jit
def _offsets(lengths, sums, parts, offsets, counts, bags, shards, hashing, SHARDS: tl.constexpr, CHUNK: tl.constexpr):
    chunk = tl.program_id(0)
    before = tl.zeros((CHUNK,), tl.int64)
    for first in range(0, chunk, CHUNK):
        earlier = first + tl.arange(0, CHUNK)
        before += tl.load(sums + earlier, mask=earlier < chunk, other=0)
    place = chunk.to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    mine = tl.load(lengths + place, mask=place < bags, other=0).to(tl.int64)
    tl.store(offsets + 1 + place, tl.cumsum(mine, 0) + tl.sum(before, 0), mask=place < bags)
    if chunk == 0:
        tl.store(offsets, tl.zeros((), tl.int64))
        which = tl.arange(0, SHARDS)
        found = tl.zeros((SHARDS,), tl.int64)
        for first in range(0, hashing, 128):
            program = first + tl.arange(0, 128)
            at = parts + program[:, None] * SHARDS + which[None, :]
            found += tl.sum(tl.load(at, mask=(program < hashing)[:, None], other=0).to(tl.int64), 0)
        tl.store(counts + which, found, mask=which < shards)


class ModelNew(Model):
    def forward(
        self, raw: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        if raw.is_floating_point():
            raw, lengths = raw.long(), lengths.long()
        raw, lengths = raw.contiguous(), lengths.contiguous()
        count, bags, device = raw.numel(), lengths.numel(), raw.device
        rows, shard = (torch.empty(count, dtype=torch.int64, device=device) for _ in range(2))
        offsets = torch.empty(bags + 1, dtype=torch.int64, device=device)
        counts = torch.empty(self.shards, dtype=torch.int64, device=device)
        hashing, chunks = min(PROGRAMS, triton.cdiv(count, BLOCK)), triton.cdiv(bags, CHUNK)
        shards = triton.next_power_of_2(self.shards)
        parts = torch.empty(hashing, shards, dtype=torch.int32, device=device)
        sums = torch.empty(chunks, dtype=torch.int64, device=device)
        block = (self.rows + self.shards - 1) // self.shards
        if hashing + chunks:
            _hash[(hashing + chunks,)](
                raw,
                rows,
                shard,
                parts,
                lengths,
                sums,
                count,
                bags,
                MULTIPLIER,
                self.rows,
                reciprocal(self.rows),
                (1 << 64) % self.rows,
                block,
                reciprocal(block),
                hashing,
                SHARDS=shards,
                BLOCK=BLOCK,
                CHUNK=CHUNK,
                num_warps=WARPS,
            )
        _offsets[(max(1, chunks),)](
            lengths, sums, parts, offsets, counts, bags, self.shards, hashing, SHARDS=shards, CHUNK=CHUNK
        )
        return offsets, rows, shard, counts
