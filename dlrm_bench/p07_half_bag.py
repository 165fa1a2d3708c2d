"""An fp16 table summed in fp32: half of the bytes of problem 1, and no error that grows with the bag.

Shapes: as problem 1, with fp16 rows, which FBGEMM takes too.
"""

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import bag_offsets, ids

SIZES = {
    "tiny": {"rows": 500, "dimension": 40, "batch": 16, "pooling": 9},
    "small": {"rows": 100_000, "dimension": 128, "batch": 8_192, "pooling": 20},
    "medium": {"rows": 8_000_000, "dimension": 128, "batch": 32_768, "pooling": 20},
    "production": {"rows": 80_000_000, "dimension": 128, "batch": 65_536, "pooling": 20},
}
TRAINS = False


class Model(torch.nn.Module):
    """Sum in fp32 of the fp16 rows that each bag names. Returns (batch, dimension) fp32."""

    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(rows, dimension, dtype=torch.float16).normal_(0.0, 0.1))

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(indices.long(), self.weight).float()
        return torch.segment_reduce(rows, "sum", offsets=offsets.long(), axis=0, initial=0.0)


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["rows"], shape["dimension"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    count = shape["batch"] * shape["pooling"]
    return [
        ids(count, shape["rows"], indices),
        bag_offsets(torch.full((shape["batch"],), shape["pooling"], dtype=torch.int64)),
    ]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): each distinct fp16 row once, ids, offsets and the pooled fp32 rows."""
    dimension = model.weight.shape[1]
    index_bytes = indices.numel() * indices.element_size() + offsets.numel() * offsets.element_size()
    table_bytes = len(indices.unique()) * dimension * model.weight.element_size()
    return table_bytes + index_bytes + (len(offsets) - 1) * dimension * 4, len(indices) * dimension
