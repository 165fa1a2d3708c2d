"""Ids, lengths and offsets as recommenders see them; drawn from torch's global generator, so a harness's seed holds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

ZIPF_EXPONENT = 1.05
"""Popularity of ids in click logs falls about as 1 / rank (Criteo 1TB; Gupta et al., HPCA 2020, figure 14)."""
CRITEO_POOLING = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
"""Ids a bag of each of the 26 features in MLPerf's multi-hot Criteo (mlcommons/training, recommendation_v2)."""


def ids(count: int, rows: int, indices: str) -> torch.Tensor:
    """`count` ids below `rows`, int64: all alike, or popular ones first with their rows strewn over the table.

    `ValueError` for a distribution other than 'uniform' and 'zipf'.
    """
    if indices == "uniform":
        return torch.randint(rows, (count,))
    if indices != "zipf":
        raise ValueError(f"indices are uniform or zipf, not {indices!r}")
    # Inverse of the continuous cumulative distribution: no table of `rows` probabilities is needed.
    power = 1.0 - ZIPF_EXPONENT
    chance = torch.rand(count, dtype=torch.float64)
    rank = ((chance * (float(rows) ** power - 1.0) + 1.0) ** (1.0 / power)).long().sub_(1).clamp_(0, rows - 1)
    strewn: torch.Tensor = (rank * 2_654_435_761 + 40_503) % rows  # Knuth's multiplicative hash strews neighbours
    return strewn


def bag_offsets(lengths: torch.Tensor) -> torch.Tensor:
    """0 and the running sums of `lengths`; one longer, int64."""
    zero = torch.zeros(1, dtype=torch.int64, device=lengths.device)
    return torch.cat([zero, lengths.long().cumsum(0)])


def jagged_lengths(batch: int, mean: int, most: int, empty: float = 0.1) -> torch.Tensor:
    """Lengths of bags or histories: geometric about `mean`, at most `most`, a share of them empty."""
    chance = torch.rand(batch, dtype=torch.float64).clamp_min_(1e-12)
    lengths = (chance.log() / torch.log(torch.tensor(1.0 - 1.0 / mean, dtype=torch.float64))).long() + 1
    lengths = lengths.clamp_(1, most)
    lengths[torch.rand(batch) < empty] = 0
    lengths[0] = min(mean, most)
    return lengths


def table_ids(pooling: Sequence[int], batch: int, rows: int, indices: str) -> torch.Tensor:
    """Ids of several tables, feature by feature, `pooling[t]` a bag; int64."""
    return torch.cat([ids(batch * hot, rows, indices) for hot in pooling])


def table_offsets(pooling: Sequence[int], batch: int) -> torch.Tensor:
    """Offsets of `len(pooling) * batch` bags of fixed sizes; int64."""
    return bag_offsets(torch.cat([torch.full((batch,), hot, dtype=torch.int64) for hot in pooling]))
