"""One launch for both ways: a program takes a block of places of one sequence, pads it and packs its dense rows.

By Claude (Anthropic). What is written is not read again, and leaves the L2 to what is.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p10_jagged_to_padded import Model

PLACES, WARPS = 16, 4
WIDEST_BLOCK = 512


@triton.jit
def _both(values, offsets, dense, padded, packed, most, columns, PLACES: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    start, end = tl.load(offsets + sequence).to(tl.int64), tl.load(offsets + sequence + 1).to(tl.int64)
    wide = (place < most)[:, None] & (column < columns)[None, :]
    used = wide & (place < end - start)[:, None]
    jagged_at = (start + place)[:, None] * columns + column[None, :]
    padded_at = (sequence * most + place)[:, None] * columns + column[None, :]
    jagged = tl.load(values + jagged_at, mask=used, other=0.0, eviction_policy="evict_first")
    rows = tl.load(dense + padded_at, mask=used, other=0.0, eviction_policy="evict_first")
    tl.store(padded + padded_at, jagged, mask=wide, eviction_policy="evict_first")
    tl.store(packed + jagged_at, rows, mask=used, eviction_policy="evict_first")


class ModelNew(Model):
    def forward(
        self, values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if offsets.is_floating_point():
            offsets = offsets.long()
        values, offsets, dense = values.contiguous(), offsets.contiguous(), dense.contiguous()
        sequences, columns = offsets.shape[0] - 1, values.shape[1]
        padded = torch.empty(sequences, self.most, columns, dtype=values.dtype, device=values.device)
        packed = torch.empty_like(values)
        if not padded.numel():
            return padded, packed
        block = min(WIDEST_BLOCK, triton.next_power_of_2(columns))
        _both[(sequences, triton.cdiv(self.most, PLACES), triton.cdiv(columns, block))](
            values,
            offsets,
            dense,
            padded,
            packed,
            self.most,
            columns,
            PLACES=PLACES,
            BLOCK=block,
            num_warps=WARPS,
        )
        return padded, packed
