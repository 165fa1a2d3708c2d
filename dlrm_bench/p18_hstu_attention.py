"""Jagged causal attention with SiLU in place of softmax and a bias by distance: HSTU's sequence layer.

Shapes: 4 heads of 64, histories about 100, at most 256 (Zhai et al., arXiv 2402.17152). Scores are divided by the
longest length, as there.
"""

import torch
import torch.nn.functional as F

from addrfrac.dlrm_bench.draws import bag_offsets, jagged_lengths

SIZES = {
    "tiny": {"batch": 3, "mean": 5, "most": 12, "heads": 2, "width": 16},
    "small": {"batch": 64, "mean": 100, "most": 256, "heads": 4, "width": 64},
    "medium": {"batch": 512, "mean": 100, "most": 256, "heads": 4, "width": 64},
    "production": {"batch": 1_024, "mean": 400, "most": 1_024, "heads": 4, "width": 128},
}
TRAINS = False


class Model(torch.nn.Module):
    """q, k, v (total, heads, width) and offsets in, (total, heads, width) out."""

    def __init__(self, most: int, heads: int) -> None:
        super().__init__()
        self.most = most
        self.bias = torch.nn.Parameter(torch.randn(heads, most) * 0.5)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        offsets = offsets.long()
        if q.shape[1] != len(self.bias):
            raise ValueError(f"{len(self.bias)} heads, not {q.shape[1]}")
        place = torch.arange(self.most, device=q.device)
        inside = place < (offsets[1:] - offsets[:-1]).unsqueeze(1)
        source = (offsets[:-1].unsqueeze(1) + place).clamp_max(len(q) - 1)
        padded = [(x[source] * inside[:, :, None, None]).transpose(1, 2) for x in (q, k, v)]
        distance = place.unsqueeze(1) - place
        score = padded[0] @ padded[1].transpose(2, 3) * q.shape[-1] ** -0.5 + self.bias[:, distance.clamp_min(0)]
        weight = F.silu(score) / self.most
        weight = weight * ((distance >= 0) & inside[:, None, None, :])
        return (weight @ padded[2]).transpose(1, 2)[inside]


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["most"], SIZES[size]["heads"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    lengths = jagged_lengths(shape["batch"], shape["mean"], shape["most"], empty=0.05)
    rows = int(lengths.sum()), shape["heads"], shape["width"]
    return [torch.randn(rows), torch.randn(rows), torch.randn(rows), bag_offsets(lengths)]


def work(model: Model, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): q, k, v and the output once; two products over the causal half of each sequence."""
    lengths = (offsets[1:] - offsets[:-1]).double()
    pairs = float((lengths * (lengths + 1) / 2).sum())
    return 4 * q.numel() * q.element_size(), int(4 * pairs * q.shape[1] * q.shape[2])
