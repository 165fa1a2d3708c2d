"""Pooled embeddings of 26 features of different widths put into another order: key regrouping before the interaction.

Shapes: widths 32 to 256 as in mixed-dimension tables (Ginart et al., arXiv 1909.11810); torchrec's KeyedTensor.regroup
and FBGEMM's permute_pooled_embs do this in production.
"""

import torch

SIZES = {
    "tiny": {"widths": (4, 8, 16, 4, 12), "batch": 6},
    "small": {"widths": (32, 64, 128, 64, 256, 32) * 4, "batch": 1_024},
    "medium": {"widths": (32, 64, 128, 64, 256, 32) * 4, "batch": 16_384},
    "production": {"widths": (32, 64, 128, 64, 256, 32) * 16, "batch": 32_768},
}
TRAINS = False


class Model(torch.nn.Module):
    """(batch, sum of widths) in and out, the features in a fixed random order."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        generator = torch.Generator(device="cpu").manual_seed(20260928)
        self.widths = tuple(int(width) for width in widths)
        self.order = torch.randperm(len(self.widths), generator=generator, device="cpu").tolist()

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        parts = pooled.split(self.widths, dim=1)
        return torch.cat([parts[feature] for feature in self.order], dim=1)


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["widths"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    return [torch.randn(SIZES[size]["batch"], sum(SIZES[size]["widths"]))]


def work(model: Model, pooled: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): read once, written once."""
    return 2 * pooled.numel() * pooled.element_size(), 0
