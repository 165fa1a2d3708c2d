"""One table, bags of fixed size, summed: the lookup of a single categorical feature.

Shapes: the largest Criteo tables hold 40 M rows of 128 (MLPerf DLRM-DCNv2); pooling 20 as in production models
(Naumov et al., arXiv 1906.00091; Gupta et al., HPCA 2020). `small` fits in L2 and says so.
"""

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import bag_offsets, ids

SIZES = {
    "tiny": {"rows": 500, "dimension": 32, "batch": 16, "pooling": 5},
    "small": {"rows": 50_000, "dimension": 128, "batch": 8_192, "pooling": 20},
    "medium": {"rows": 4_000_000, "dimension": 128, "batch": 32_768, "pooling": 20},
    "production": {"rows": 40_000_000, "dimension": 128, "batch": 65_536, "pooling": 20},
}
TRAINS = False


class Model(torch.nn.Module):
    """Sum of the rows that each bag names. Returns (batch, dimension) fp32."""

    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, dimension) * 0.1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices.long(), self.weight, offsets.long(), mode="sum", include_last_offset=True)


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
    """(bytes, flops): each distinct row once, ids, offsets and the pooled rows; an addition an element gathered."""
    row = model.weight.shape[1] * model.weight.element_size()
    pooled = (len(offsets) - 1) * row
    gathered = len(indices) * model.weight.shape[1]
    index_bytes = indices.numel() * indices.element_size() + offsets.numel() * offsets.element_size()
    return len(indices.unique()) * row + index_bytes + pooled, gathered
