"""A few users scored against a million items, the best hundred kept: brute-force retrieval of a two-tower model.

Shapes: 64 to 128 columns, one to eight users (Yi et al., RecSys 2019). Scores are returned sorted; items of equal score
may come in either order, so scores and the gathered scores of the returned items are what is compared.
"""

import torch

SIZES = {
    "tiny": {"items": 700, "dimension": 16, "users": 2, "best": 10},
    "small": {"items": 50_000, "dimension": 128, "users": 1, "best": 100},
    "medium": {"items": 1_000_000, "dimension": 128, "users": 1, "best": 100},
    "production": {"items": 20_000_000, "dimension": 128, "users": 4, "best": 100},
}
TRAINS = False


class Model(torch.nn.Module):
    """(users, d) in; scores (users, best), falling, and the scores of the items named, recomputed from them, out."""

    def __init__(self, items: int, dimension: int, best: int) -> None:
        super().__init__()
        self.items = torch.nn.Parameter(torch.randn(items, dimension) * dimension**-0.5)
        self.best = best

    def forward(self, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, chosen = torch.topk(users @ self.items.T, self.best, dim=1)
        again = (self.items[chosen] * users.unsqueeze(1)).sum(-1)
        return scores, again


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["items"], SIZES[size]["dimension"], SIZES[size]["best"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    return [torch.randn(SIZES[size]["users"], SIZES[size]["dimension"])]


def work(model: Model, users: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): the items once, the users, the results."""
    results = 2 * users.shape[0] * model.best
    bytes_moved = (model.items.numel() + users.numel() + results) * users.element_size()
    return bytes_moved, 2 * users.shape[0] * model.items.numel()
