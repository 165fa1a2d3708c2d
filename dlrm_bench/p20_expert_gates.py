"""Mixture of experts for several tasks: each task's softmax gate and its mix of the experts' outputs.

Shapes: 8 experts, 8 tasks, 256 columns (MMoE, Ma et al., KDD 2018; PLE, Tang et al., RecSys 2020).
"""

import torch
import torch.nn.functional as F

SIZES = {
    "tiny": {"batch": 9, "width": 20, "experts": 3, "tasks": 2, "output": 12},
    "small": {"batch": 1_024, "width": 512, "experts": 8, "tasks": 8, "output": 256},
    "medium": {"batch": 16_384, "width": 512, "experts": 8, "tasks": 8, "output": 256},
    "production": {"batch": 65_536, "width": 512, "experts": 16, "tasks": 12, "output": 256},
}
TRAINS = False


class Model(torch.nn.Module):
    """Shared input (batch, width) and expert outputs (batch, experts, output) in, (tasks, batch, output) out."""

    def __init__(self, width: int, experts: int, tasks: int) -> None:
        super().__init__()
        self.gate = torch.nn.Parameter(torch.randn(tasks * experts, width) * width**-0.5)
        self.tasks = tasks

    def forward(self, x: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        gates = F.linear(x, self.gate).view(x.shape[0], self.tasks, -1).softmax(-1)
        return torch.bmm(gates, experts).transpose(0, 1).contiguous()


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["width"], SIZES[size]["experts"], SIZES[size]["tasks"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    return [
        torch.randn(shape["batch"], shape["width"]),
        torch.randn(shape["batch"], shape["experts"], shape["output"]),
    ]


def work(model: Model, x: torch.Tensor, experts: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): both inputs and the gate once, the output once; the gate's product and the mix."""
    batch, count, output = experts.shape
    elements = x.numel() + experts.numel() + model.gate.numel() + model.tasks * batch * output
    flops = 2 * batch * (model.gate.numel() + model.tasks * count * output)
    return elements * x.element_size(), flops
