"""Table-batched bags over int4 rows, two values a byte, each row with a scale and a bias of its own.

Shapes: 26 Criteo features, 128 columns. A row is 4 bytes of fp16 scale and bias, then half a byte a column, the even
column in the low half: the layout of FBGEMM's IntNBitTableBatchedEmbeddingBags (int4, fp16 scale and bias in front).
"""

import itertools

import torch

from addrfrac.dlrm_bench.draws import CRITEO_POOLING, table_ids, table_offsets

SIZES = {
    "tiny": {"rows": 60, "dimension": 32, "batch": 4, "pooling": (3, 1, 7, 2)},
    "small": {"rows": 20_000, "dimension": 128, "batch": 2_048, "pooling": CRITEO_POOLING},
    "medium": {"rows": 1_000_000, "dimension": 128, "batch": 8_192, "pooling": CRITEO_POOLING},
    "production": {"rows": 36_000_000, "dimension": 128, "batch": 16_384, "pooling": CRITEO_POOLING},
}
TRAINS = False
HEAD_BYTES = 4


class Model(torch.nn.Module):
    """Sums of dequantised rows, bag by bag. Returns (batch, tables * dimension) fp32."""

    def __init__(self, rows: int, dimension: int, tables: int) -> None:
        super().__init__()
        count = tables * rows
        table = torch.empty(count, HEAD_BYTES + dimension // 2, dtype=torch.uint8)
        table[:, HEAD_BYTES:].random_(0, 256)
        head = torch.empty(count, 2, dtype=torch.float16)
        head[:, 0].uniform_(0.02, 0.06)
        head[:, 1].uniform_(-0.4, -0.1)
        table[:, :HEAD_BYTES] = head.view(torch.uint8)
        self.register_buffer("table", table)
        self.rows, self.tables = rows, tables

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        indices, offsets = indices.long(), offsets.long()
        batch = (len(offsets) - 1) // self.tables
        starts = offsets[batch::batch].contiguous()
        table_of_id = torch.searchsorted(starts, torch.arange(len(indices), device=indices.device), right=True)
        row = self.table[indices + table_of_id * self.rows]
        head = row[:, :HEAD_BYTES].contiguous().view(torch.float16).float()
        packed = row[:, HEAD_BYTES:]
        quantised = torch.stack([packed & 15, packed >> 4], dim=2).flatten(1)
        values = quantised.float() * head[:, :1] + head[:, 1:]
        pooled = torch.segment_reduce(values, "sum", offsets=offsets, axis=0, initial=0.0)
        return pooled.view(self.tables, batch, -1).transpose(0, 1).reshape(batch, -1)


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["rows"], shape["dimension"], len(shape["pooling"])]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    return [
        table_ids(shape["pooling"], shape["batch"], shape["rows"], indices),
        table_offsets(shape["pooling"], shape["batch"]),
    ]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): each distinct quantised row of each table once, ids, offsets and the pooled fp32 rows."""
    dimension, batch = 2 * (model.table.shape[1] - HEAD_BYTES), (len(offsets) - 1) // model.tables
    bounds = offsets.long()[::batch].tolist()
    distinct = sum(len(indices[a:b].unique()) for a, b in itertools.pairwise(bounds))
    index_bytes = indices.numel() * indices.element_size() + offsets.numel() * offsets.element_size()
    pooled_bytes = (len(offsets) - 1) * dimension * 4
    return distinct * model.table.shape[1] + index_bytes + pooled_bytes, 3 * len(indices) * dimension
