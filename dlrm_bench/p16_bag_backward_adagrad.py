"""Backward of a bag and row-wise Adagrad in one step, duplicates in the batch summed first: how tables train.

Shapes: 128 columns, pooling 20; FBGEMM's EXACT_ROWWISE_ADAGRAD is what trains DLRM-DCNv2 in MLPerf. The state is one
fp32 number a row: the mean square of its gradient, summed over steps.
"""

import torch

from addrfrac.dlrm_bench.draws import bag_offsets, ids

SIZES = {
    "tiny": {"rows": 50, "dimension": 16, "batch": 12, "pooling": 5},
    "small": {"rows": 50_000, "dimension": 128, "batch": 4_096, "pooling": 20},
    "medium": {"rows": 4_000_000, "dimension": 128, "batch": 16_384, "pooling": 20},
    "production": {"rows": 40_000_000, "dimension": 128, "batch": 65_536, "pooling": 20},
}
TRAINS = False
LEARNING_RATE, EPS = 0.02, 1e-8
SHOWN = 4_096
"""So many ids' new rows are returned, which shows the update without copying a table."""


class Model(torch.nn.Module):
    """Ids, offsets and the pooled rows' gradient in. Updates weight and momentum in place; returns their new values for
    the first ids of the batch: (min(ids, SHOWN), dimension) and (min(ids, SHOWN),)."""

    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(rows, dimension) * 0.1)
        self.register_buffer("momentum", torch.rand(rows))

    def forward(
        self, indices: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        indices, offsets = indices.long(), offsets.long()
        if gradient.shape[1] != self.weight.shape[1]:
            raise ValueError(f"gradients of {self.weight.shape[1]} columns, not {gradient.shape[1]}")
        bag = torch.repeat_interleave(
            torch.arange(len(offsets) - 1, device=offsets.device), offsets[1:] - offsets[:-1], output_size=len(indices)
        )
        rows, place = indices.unique(return_inverse=True)
        summed = gradient.new_zeros(len(rows), gradient.shape[1]).index_add_(0, place, gradient[bag])
        momentum = self.momentum[rows] + summed.square().mean(dim=1)
        self.momentum[rows] = momentum
        self.weight[rows] -= LEARNING_RATE * summed / (momentum.sqrt() + EPS).unsqueeze(1)
        shown = indices[:SHOWN]
        return self.weight[shown], self.momentum[shown]


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["rows"], SIZES[size]["dimension"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    batch, pooling = shape["batch"], shape["pooling"]
    return [
        ids(batch * pooling, shape["rows"], indices),
        bag_offsets(torch.full((batch,), pooling, dtype=torch.int64)),
        torch.randn(batch, shape["dimension"]) * 0.1,
    ]


def work(model: Model, indices: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): ids, offsets and gradient read, each distinct row and its state read and written."""
    read = sum(tensor.numel() * tensor.element_size() for tensor in (indices, offsets, gradient))
    row = model.weight.shape[1] * model.weight.element_size() + model.momentum.element_size()
    return read + 2 * len(indices.unique()) * row, len(indices) * model.weight.shape[1]
