"""DCN-v2's low-rank cross network: x <- x0 * (V (U x) + b) + x, three layers.

Shapes: MLPerf DLRM-DCNv2: 27 x 128 = 3456 inputs, rank 512, three layers (Wang et al., arXiv 2008.13535).
"""

import torch
import torch.nn.functional as F

SIZES = {
    "tiny": {"width": 48, "rank": 8, "layers": 2, "batch": 9},
    "small": {"width": 3_456, "rank": 512, "layers": 3, "batch": 256},
    "medium": {"width": 3_456, "rank": 512, "layers": 3, "batch": 8_192},
    "production": {"width": 3_456, "rank": 512, "layers": 3, "batch": 65_536},
}
TRAINS = True


class Model(torch.nn.Module):
    """(batch, width) in and out."""

    def __init__(self, width: int, rank: int, layers: int) -> None:
        super().__init__()
        self.down = torch.nn.Parameter(torch.randn(layers, rank, width) * width**-0.5)
        self.up = torch.nn.Parameter(torch.randn(layers, width, rank) * rank**-0.5)
        self.bias = torch.nn.Parameter(torch.randn(layers, width) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        crossed = x
        for down, up, bias in zip(self.down, self.up, self.bias, strict=True):
            crossed = x * F.linear(F.linear(crossed, down), up, bias) + crossed
        return crossed


def get_init_inputs(size: str = "medium") -> list:
    shape = SIZES[size]
    return [shape["width"], shape["rank"], shape["layers"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    return [torch.randn(SIZES[size]["batch"], SIZES[size]["width"])]


def work(model: Model, x: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops) of a forward pass: x, the weights and the output once; two products a layer."""
    weights = model.down.numel() + model.up.numel() + model.bias.numel()
    flops = 2 * x.shape[0] * (model.down.numel() + model.up.numel())
    return (2 * x.numel() + weights) * x.element_size(), flops
