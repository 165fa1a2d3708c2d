"""Jagged rows to a padded batch and back: what stands before and after every dense operation on histories.

Shapes: histories geometric about 100, at most 256, of 128 columns (HSTU, Zhai et al., arXiv 2402.17152).
"""

import torch

from addrfrac.dlrm_bench.draws import bag_offsets, jagged_lengths

SIZES = {
    "tiny": {"batch": 6, "mean": 4, "most": 9, "dimension": 16},
    "small": {"batch": 128, "mean": 100, "most": 256, "dimension": 128},
    "medium": {"batch": 2_048, "mean": 100, "most": 256, "dimension": 128},
    "production": {"batch": 8_192, "mean": 100, "most": 512, "dimension": 256},
}
TRAINS = False


class Model(torch.nn.Module):
    """Values (total, d) and a batch (batch, most, d) in; the padded values and the jagged rows of the batch out."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(
        self, values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        offsets = offsets.long()
        lengths = offsets[1:] - offsets[:-1]
        place = torch.arange(self.most, device=values.device)
        inside = place < lengths.unsqueeze(1)
        source = (offsets[:-1].unsqueeze(1) + place).clamp_max(len(values) - 1)
        padded = torch.where(inside.unsqueeze(2), values[source], values.new_zeros(()))
        return padded, dense[inside]


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["most"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    lengths = jagged_lengths(shape["batch"], shape["mean"], shape["most"])
    return [
        torch.randn(int(lengths.sum()), shape["dimension"]),
        bag_offsets(lengths),
        torch.randn(shape["batch"], shape["most"], shape["dimension"]),
    ]


def work(model: Model, values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): the values read, all of the padded batch written, the used rows of the dense batch read and
    written."""
    elements = values.numel() + dense.numel() + 2 * values.numel()
    return elements * values.element_size() + offsets.numel() * offsets.element_size(), 0
