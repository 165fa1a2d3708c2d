"""Weighted binary cross entropy of several tasks, forward and backward: the loss of a multi-task ranker.

Shapes: batch 65,536 and 8 tasks (MMoE, Ma et al., KDD 2018; MLPerf has one task).
"""

import torch
import torch.nn.functional as F

SIZES = {
    "tiny": {"batch": 33, "tasks": 3},
    "small": {"batch": 8_192, "tasks": 8},
    "medium": {"batch": 1_048_576, "tasks": 8},
    "production": {"batch": 4_194_304, "tasks": 16},
}
TRAINS = False


class Model(torch.nn.Module):
    """Logits, labels and weights (batch, tasks) in; the weighted mean loss and its gradient by the logits out."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.positive_weight = torch.nn.Parameter(torch.rand(tasks) + 0.5)

    def forward(
        self, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_(True)
            loss = F.binary_cross_entropy_with_logits(
                leaf, labels.to(leaf.dtype), weight=weights, pos_weight=self.positive_weight.detach()
            )
            (gradient,) = torch.autograd.grad(loss, leaf)
        return loss.detach(), gradient


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["tasks"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]["batch"], SIZES[size]["tasks"]
    return [torch.randn(shape) * 2.0, torch.randint(2, shape), torch.rand(shape) + 0.1]


def work(model: Model, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): three inputs read, the gradient written."""
    read = sum(tensor.numel() * tensor.element_size() for tensor in (logits, labels, weights))
    return read + logits.numel() * logits.element_size(), 12 * logits.numel()
