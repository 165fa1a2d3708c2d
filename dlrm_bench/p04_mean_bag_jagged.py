"""Mean over bags of uneven length, some of them empty: a user's clicks of the last days.

Shapes: lengths geometric about 20, at most 200, one bag in ten empty; 64 columns as in two-tower retrieval
(Yi et al., RecSys 2019). An empty bag gives zeros.
"""

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import bag_offsets, ids, jagged_lengths

SIZES = {
    "tiny": {"rows": 300, "dimension": 24, "batch": 20, "mean": 4, "most": 12},
    "small": {"rows": 100_000, "dimension": 64, "batch": 8_192, "mean": 20, "most": 200},
    "medium": {"rows": 5_000_000, "dimension": 64, "batch": 32_768, "mean": 20, "most": 200},
    "production": {"rows": 80_000_000, "dimension": 64, "batch": 65_536, "mean": 20, "most": 200},
}
TRAINS = False


class Model(torch.nn.Module):
    """Mean of the rows that each bag names, zeros where it names none. Returns (batch, dimension) fp32."""

    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, dimension) * 0.1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices.long(), self.weight, offsets.long(), mode="mean", include_last_offset=True)


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["rows"], shape["dimension"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    lengths = jagged_lengths(shape["batch"], shape["mean"], shape["most"])
    return [ids(int(lengths.sum()), shape["rows"], indices), bag_offsets(lengths)]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): each distinct row once, ids, offsets and the pooled rows."""
    row = model.weight.shape[1] * model.weight.element_size()
    index_bytes = indices.numel() * indices.element_size() + offsets.numel() * offsets.element_size()
    gathered = len(indices) * model.weight.shape[1]
    return len(indices.unique()) * row + index_bytes + (len(offsets) - 1) * row, gathered
