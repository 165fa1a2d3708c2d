"""Rows cut into pieces as wide as divides every feature: a map of pieces, made once, and whole pieces moved.

By Claude (Anthropic). A piece is read and written in words of 16 bytes where it is wide enough.
"""

import math

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p12_permute_pooled import Model

ELEMENTS, WARPS = 2_048, 4
WIDEST_PIECE = 256


@triton.jit
def _permute(pooled, source, out, total, pieces, PIECE: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    piece = first + tl.arange(0, N)
    inside = piece < total
    place = (first % pieces).to(tl.int32) + tl.arange(0, N)  # divided in 32 bits: the 64 of `first` are divided once
    row = first // pieces + place // pieces
    origin = row * pieces + tl.load(source + place % pieces, mask=inside, other=0)
    column = tl.arange(0, PIECE)[None, :]
    values = tl.load(pooled + origin[:, None] * PIECE + column, mask=inside[:, None], eviction_policy="evict_first")
    tl.store(out + piece[:, None] * PIECE + column, values, mask=inside[:, None], eviction_policy="evict_first")


class ModelNew(Model):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__(widths)
        self.piece = math.gcd(WIDEST_PIECE, *self.widths)
        starts = [sum(self.widths[:feature]) // self.piece for feature in range(len(self.widths))]
        pieces = [starts[f] + i for f in self.order for i in range(self.widths[f] // self.piece)]
        self.source = torch.tensor(pieces, dtype=torch.int32)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        if self.source.device != pooled.device:
            self.source = self.source.to(pooled.device)
        pooled = pooled.contiguous()
        out = torch.empty_like(pooled)
        pieces = pooled.numel() // self.piece
        if pieces:
            at_once = max(1, ELEMENTS // self.piece)
            _permute[(triton.cdiv(pieces, at_once),)](
                pooled, self.source, out, pieces, self.source.numel(), PIECE=self.piece, N=at_once, num_warps=WARPS
            )
        return out
