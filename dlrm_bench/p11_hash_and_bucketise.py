"""Raw ids to table rows and shards: offsets from lengths, a hash into the table, each row's shard and their counts.

Shapes: 26 features, row-wise sharding over 8 devices (torchrec's block_bucketize before the all-to-all). The hash is
Fibonacci's multiplicative one. Raw ids stay below 2**24, so that a harness that casts inputs to fp32 keeps them.
"""

import torch

from addrfrac.dlrm_bench.draws import CRITEO_POOLING, ids

SIZES = {
    "tiny": {"rows": 97, "shards": 3, "batch": 5, "pooling": (2, 1, 4)},
    "small": {"rows": 100_003, "shards": 8, "batch": 2_048, "pooling": CRITEO_POOLING},
    "medium": {"rows": 1_000_003, "shards": 8, "batch": 16_384, "pooling": CRITEO_POOLING},
    "production": {"rows": 40_000_003, "shards": 16, "batch": 65_536, "pooling": CRITEO_POOLING},
}
TRAINS = False
RAW_IDS = 1 << 24
MULTIPLIER = 2_654_435_769


class Model(torch.nn.Module):
    """Raw ids and bag lengths in; (offsets, rows, shard of each id, ids a shard) out, all int64."""

    def __init__(self, rows: int, shards: int) -> None:
        super().__init__()
        self.rows, self.shards = rows, shards

    def forward(
        self, raw: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        raw, lengths = raw.long(), lengths.long()
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        mixed = raw * MULTIPLIER
        rows = (mixed ^ (mixed >> 15)) % self.rows
        block = (self.rows + self.shards - 1) // self.shards
        shard = rows // block
        counts = (shard.unsqueeze(1) == torch.arange(self.shards, device=raw.device)).sum(0)
        return offsets, rows, shard, counts


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["rows"], SIZES[size]["shards"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    lengths = torch.cat([torch.full((shape["batch"],), hot, dtype=torch.int64) for hot in shape["pooling"]])
    return [ids(int(lengths.sum()), RAW_IDS, indices), lengths]


def work(model: Model, raw: torch.Tensor, lengths: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): ids and lengths read, rows, shards and offsets written as int64."""
    read = raw.numel() * raw.element_size() + lengths.numel() * lengths.element_size()
    return read + 8 * (2 * raw.numel() + lengths.numel() + 1 + model.shards), 0
