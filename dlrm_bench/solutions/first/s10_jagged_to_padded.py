"""One launch for both ways: a program takes a block of places of one sequence, pads it and packs its dense rows."""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p10_jagged_to_padded import Model


@triton.jit
def _both(values, offsets, dense, padded, packed, most, columns, PLACES: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    column = tl.arange(0, BLOCK)
    start, end = tl.load(offsets + sequence), tl.load(offsets + sequence + 1)
    wide = (place < most)[:, None] & (column < columns)[None, :]
    used = wide & (place < end - start)[:, None]
    jagged_at = (start + place)[:, None] * columns + column[None, :]
    padded_at = (sequence * most + place)[:, None] * columns + column[None, :]
    tl.store(padded + padded_at, tl.load(values + jagged_at, mask=used, other=0.0), mask=wide)
    tl.store(packed + jagged_at, tl.load(dense + padded_at, mask=used, other=0.0), mask=used)


class ModelNew(Model):
    def forward(
        self, values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        offsets = offsets.long()
        values, dense = values.contiguous(), dense.contiguous()
        sequences, columns = offsets.shape[0] - 1, values.shape[1]
        padded = torch.empty(sequences, self.most, columns, dtype=values.dtype, device=values.device)
        packed = torch.empty_like(values)
        _both[(sequences, triton.cdiv(self.most, 16))](
            values,
            offsets,
            dense,
            padded,
            packed,
            self.most,
            columns,
            PLACES=16,
            BLOCK=triton.next_power_of_2(columns),
        )
        return padded, packed
