"""Pairwise dot products of the dense vector and 26 embeddings, the lower triangle written behind the dense vector.

Shapes: DLRM (Naumov et al., arXiv 1906.00091; MLPerf): 27 vectors of 128, 351 pairs, output 128 + 351.
"""

import torch

SIZES = {
    "tiny": {"features": 5, "dimension": 16, "batch": 7},
    "small": {"features": 26, "dimension": 128, "batch": 1_024},
    "medium": {"features": 26, "dimension": 128, "batch": 16_384},
    "production": {"features": 26, "dimension": 128, "batch": 65_536},
}
TRAINS = False


class Model(torch.nn.Module):
    """(batch, d) and (batch, features, d) in, (batch, d + pairs) out: dense, then (1,0), (2,0), (2,1), ..."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.vectors = features + 1
        row, column = torch.tril_indices(features + 1, features + 1, offset=-1)
        self.register_buffer("row", row)
        self.register_buffer("column", column)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        if sparse.shape[1] + 1 != self.vectors:
            raise ValueError(f"{self.vectors - 1} sparse features, not {sparse.shape[1]}")
        combined = torch.cat([dense.unsqueeze(1), sparse], dim=1)
        products = torch.bmm(combined, combined.transpose(1, 2))
        return torch.cat([dense, products[:, self.row, self.column]], dim=1)


def get_init_inputs(size: str = "medium") -> list:
    return [SIZES[size]["features"]]


def get_inputs(size: str = "medium", indices: str = "uniform") -> list:
    shape = SIZES[size]
    batch, dimension = shape["batch"], shape["dimension"]
    return [torch.randn(batch, dimension), torch.randn(batch, shape["features"], dimension)]


def work(model: Model, dense: torch.Tensor, sparse: torch.Tensor) -> tuple[int, int]:
    """(bytes, flops): both inputs once, the output once; a multiply-add a pair and column."""
    batch, features, dimension = sparse.shape
    pairs = (features + 1) * features // 2
    elements = dense.numel() + sparse.numel() + batch * (dimension + pairs)
    return elements * dense.element_size(), 2 * batch * pairs * dimension
