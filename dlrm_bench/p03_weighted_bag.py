"""Bags summed with a weight for each id: attention-like or frequency-weighted pooling of one feature.

Shapes: as problem 1; per-sample weights as in torchrec's weighted KeyedJaggedTensor.
"""

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import bag_offsets, ids

SIZES = {
    "tiny": {"rows": 400, "dimension": 48, "batch": 12, "pooling": 6},
    "small": {"rows": 50_000, "dimension": 128, "batch": 8_192, "pooling": 20},
    "medium": {"rows": 4_000_000, "dimension": 128, "batch": 32_768, "pooling": 20},
    "production": {"rows": 40_000_000, "dimension": 128, "batch": 65_536, "pooling": 20},
}
TRAINS = False


class Model(torch.nn.Module):
    """Weighted sum of the rows that each bag names. Returns (batch, dimension) fp32."""

    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(rows, dimension) * 0.1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(
            indices.long(),
            self.weight,
            offsets.long(),
            mode="sum",
            per_sample_weights=sample_weights,
            include_last_offset=True,
        )


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["rows"], shape["dimension"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    count = shape["batch"] * shape["pooling"]
    return [
        ids(count, shape["rows"], indices),
        bag_offsets(torch.full((shape["batch"],), shape["pooling"], dtype=torch.int64)),
        torch.rand(count) + 0.1,
    ]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor, sample_weights: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): each distinct row once, ids, weights, offsets and the pooled rows; a multiply-add an element."""
    row = model.weight.shape[1] * model.weight.element_size()
    inputs = (indices, offsets, sample_weights)
    input_bytes = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    gathered = len(indices) * model.weight.shape[1]
    return len(indices.unique()) * row + input_bytes + (len(offsets) - 1) * row, 2 * gathered
