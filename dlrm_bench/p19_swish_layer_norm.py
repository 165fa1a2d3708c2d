"""x * sigmoid(LayerNorm(x)): the normalised gate of DHEN's and DLRM's dense towers.

Shapes: rows of 512 to 4096 (torchrec.modules.activation.SwishLayerNorm; Zhang et al., arXiv 2203.11014).
"""

import torch
import torch.nn.functional as F

SIZES = {
    "tiny": {"batch": 11, "width": 36},
    "small": {"batch": 2_048, "width": 1_024},
    "medium": {"batch": 65_536, "width": 1_024},
    "production": {"batch": 131_072, "width": 4_096},
}
TRAINS = True


class Model(torch.nn.Module):
    """(batch, width) in and out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(width) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(F.layer_norm(x, x.shape[-1:], self.weight, self.bias))


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["width"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    return [torch.randn(SIZES[size]["batch"], SIZES[size]["width"])]


def work(model: Model, x: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops) of a forward pass: read once, written once."""
    return (2 * x.numel() + 2 * x.shape[1]) * x.element_size(), 12 * x.numel()
