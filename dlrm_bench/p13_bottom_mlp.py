"""Linear + bias + ReLU three times, from 13 dense features up: the bottom MLP, whose first product has K = 13.

Shapes: MLPerf DLRM-DCNv2 bottom MLP 13-512-256-128.
"""

import itertools

import torch
import torch.nn.functional as F

SIZES = {
    "tiny": {"widths": (5, 16, 12, 8), "batch": 9},
    "small": {"widths": (13, 512, 256, 128), "batch": 1_024},
    "medium": {"widths": (13, 512, 256, 128), "batch": 32_768},
    "production": {"widths": (13, 512, 256, 128), "batch": 131_072},
}
TRAINS = False


class Model(torch.nn.Module):
    """(batch, 13) in, (batch, 128) out."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.weights = torch.nn.ParameterList([torch.randn(n, k) * (2.0 / k) ** 0.5 for k, n in pairs])
        self.biases = torch.nn.ParameterList([torch.randn(n) * 0.1 for _, n in pairs])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = torch.relu(F.linear(x, weight, bias))
        return x


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["widths"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    return [torch.rand(SIZES[size]["batch"], SIZES[size]["widths"][0])]


def work(model: Model, x: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops) of a forward pass: input, weights and output once."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    last = model.weights[-1].shape[0]
    flops = 2 * x.shape[0] * sum(weight.numel() for weight in model.weights)
    return (x.numel() + weights + x.shape[0] * last) * x.element_size(), flops
