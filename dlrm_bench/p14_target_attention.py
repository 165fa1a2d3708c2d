"""A user's history pooled by its fit to the candidate item: target attention of DIN.

Shapes: history of 50 to 200 items of 64 columns, activation unit 4 d - 80 - 40 - 1 (Zhou et al., KDD 2018).
"""

import torch

SIZES = {
    "tiny": {"batch": 4, "history": 7, "dimension": 16, "hidden": (12, 6)},
    "small": {"batch": 256, "history": 50, "dimension": 64, "hidden": (80, 40)},
    "medium": {"batch": 4_096, "history": 100, "dimension": 64, "hidden": (80, 40)},
    "production": {"batch": 16_384, "history": 200, "dimension": 64, "hidden": (80, 40)},
}
TRAINS = False


class Model(torch.nn.Module):
    """Query (batch, d), history (batch, n, d) and its lengths in; the weighted sum of the history (batch, d) out."""

    def __init__(self, dimension: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        first, second = hidden
        self.first = torch.nn.Linear(4 * dimension, first)
        self.second = torch.nn.Linear(first, second)
        self.last = torch.nn.Linear(second, 1)

    def forward(self, query: torch.Tensor, history: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        repeated = query.unsqueeze(1).expand_as(history)
        features = torch.cat([repeated, history, repeated - history, repeated * history], dim=-1)
        score = self.last(torch.sigmoid(self.second(torch.sigmoid(self.first(features))))).squeeze(-1)
        place = torch.arange(history.shape[1], device=history.device)
        weight = torch.where(place < lengths.long().unsqueeze(1), score, score.new_zeros(()))
        return torch.bmm(weight.unsqueeze(1), history).squeeze(1)


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["dimension"], SIZES[size]["hidden"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    return [
        torch.randn(shape["batch"], shape["dimension"]),
        torch.randn(shape["batch"], shape["history"], shape["dimension"]),
        torch.randint(1, shape["history"] + 1, (shape["batch"],)),
    ]


def work(model: Model, query: torch.Tensor, history: torch.Tensor, lengths: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): the used part of the history, the query, the weights and the output; the unit's products."""
    used = int(lengths.sum())
    dimension = history.shape[2]
    weights = sum(parameter.numel() for parameter in model.parameters())
    products = model.first.weight.numel() + model.second.weight.numel() + model.last.weight.numel()
    elements = used * dimension + 2 * query.numel() + weights
    return elements * query.element_size() + lengths.numel() * lengths.element_size(), 2 * used * (products + dimension)
