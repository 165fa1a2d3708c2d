"""Twenty-six tables in one lookup, multi-hot sizes as MLPerf's Criteo: the sparse half of DLRM-DCNv2.

Shapes: MLPerf DLRM-DCNv2 (mlcommons/training, recommendation_v2): 26 features, 128 columns, 1 to 100 ids a bag.
`production` is 26 x 10 M x 128 in fp16, 67 GB; `small` has tables that fit in L2.
"""

import itertools

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import CRITEO_POOLING, table_ids, table_offsets

SIZES = {
    "tiny": {"rows": 60, "dimension": 32, "batch": 4, "pooling": (3, 1, 7, 2), "half": False},
    "small": {"rows": 4_000, "dimension": 128, "batch": 2_048, "pooling": CRITEO_POOLING, "half": False},
    "medium": {"rows": 200_000, "dimension": 128, "batch": 8_192, "pooling": CRITEO_POOLING, "half": False},
    "production": {"rows": 10_000_000, "dimension": 128, "batch": 16_384, "pooling": CRITEO_POOLING, "half": True},
}
TRAINS = False


class Model(torch.nn.Module):
    """Sums over each bag of each table. Takes ids table by table; returns (batch, tables * dimension) fp32."""

    def __init__(self, rows: int, dimension: int, tables: int, half: bool) -> None:
        super().__init__()
        dtype = torch.float16 if half else torch.float32
        weight = torch.empty(tables * rows, dimension, dtype=dtype).normal_(0.0, 0.1)
        self.weight = torch.nn.Parameter(weight)
        self.rows, self.tables = rows, tables

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        indices, offsets = indices.long(), offsets.long()
        batch = (len(offsets) - 1) // self.tables
        pooled = []
        for table in range(self.tables):
            weight = self.weight[table * self.rows : (table + 1) * self.rows]
            bags = offsets[table * batch : (table + 1) * batch + 1]
            mine = indices[bags[0] : bags[-1]]
            if weight.dtype == torch.float32:
                bag = F.embedding_bag(mine, weight, bags - bags[0], mode="sum", include_last_offset=True)
            else:  # torch's half bag sums in half; what is wanted is a sum in fp32
                rows = F.embedding(mine, weight).float()
                bag = torch.segment_reduce(rows, "sum", offsets=bags - bags[0], axis=0, initial=0.0)
            pooled.append(bag)
        return torch.cat(pooled, dim=1)


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["rows"], shape["dimension"], len(shape["pooling"]), shape["half"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    return [
        table_ids(shape["pooling"], shape["batch"], shape["rows"], indices),
        table_offsets(shape["pooling"], shape["batch"]),
    ]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): each distinct row of each table once, ids, offsets and the pooled rows."""
    dimension, batch = model.weight.shape[1], (len(offsets) - 1) // model.tables
    bounds = offsets.long()[::batch].tolist()
    parts = [indices[a:b].unique() for a, b in itertools.pairwise(bounds)]
    distinct = sum(len(part) for part in parts)
    index_bytes = indices.numel() * indices.element_size() + offsets.numel() * offsets.element_size()
    table_bytes = distinct * dimension * model.weight.element_size()
    return table_bytes + index_bytes + (len(offsets) - 1) * dimension * 4, len(indices) * dimension
