"""Two ways to hold a recommender's tables, both fit for torchrec's DLRM; imported only where torchrec is wanted."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from addrfrac.workloads.step import generator

FEATURES = 26
DIMENSION = 128
TABLE_SEED = 1000
SPREAD = 0.1
"""Weights are uniform within this much of zero: sums of a hundred rows stay near 1."""

KEYS = [f"feature_{index}" for index in range(FEATURES)]


def configurations(rows: int, dimension: int) -> list[EmbeddingBagConfig]:
    """26 tables of the same shape, one feature each, sum pooling."""
    return [
        EmbeddingBagConfig(
            name=f"table_{index}",
            embedding_dim=dimension,
            num_embeddings=rows,
            feature_names=[key],
            init_fn=partial(fill, index),
        )
        for index, key in enumerate(KEYS)
    ]


def fill(index: int, weight: torch.Tensor) -> None:
    """Random rows for the table of that index: the same ones whichever operator holds them."""
    with torch.no_grad():
        weight.uniform_(-SPREAD, SPREAD, generator=generator(weight.device, TABLE_SEED + index))


class Bags(torch.nn.Module):
    """torchrec's EmbeddingBagCollection: an fp32 nn.EmbeddingBag for each table; pooled values in the dense dtype."""

    def __init__(
        self, tables: list[EmbeddingBagConfig], dtype: torch.dtype, device: torch.device, *, sparse_gradients: bool
    ) -> None:
        super().__init__()
        self.collection = EmbeddingBagCollection(tables=tables, device=device)
        self.dtype = dtype
        for bag in self.collection.embedding_bags.values():
            bag.sparse = sparse_gradients  # a dense gradient is as large as the table

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return list(self.collection.embedding_bag_configs())

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        pooled = self.collection(features)
        if self.dtype == torch.float32:
            return pooled
        return KeyedTensor(
            keys=pooled.keys(), length_per_key=pooled.length_per_key(), values=pooled.values().to(self.dtype)
        )


class TableBatched(torch.nn.Module):
    """FBGEMM's table-batched embedding: all tables in one launch, and in training their update within the backward."""

    def __init__(
        self, tables: list[EmbeddingBagConfig], dtype: torch.dtype, device: torch.device, *, rowwise_adagrad: bool
    ) -> None:
        super().__init__()
        self.tables = tables
        self.dtype = dtype
        on_gpu = device.type == "cuda"
        place, unit = (
            (EmbeddingLocation.DEVICE, ComputeDevice.CUDA) if on_gpu else (EmbeddingLocation.HOST, ComputeDevice.CPU)
        )
        optimizer = EmbOptimType.EXACT_ROWWISE_ADAGRAD if rowwise_adagrad else EmbOptimType.EXACT_SGD
        output = {torch.bfloat16: SparseType.BF16, torch.float16: SparseType.FP16}.get(dtype, SparseType.FP32)
        self.lookup = SplitTableBatchedEmbeddingBagsCodegen(
            [(table.num_embeddings, table.embedding_dim, place, unit) for table in tables],
            optimizer=optimizer,
            learning_rate=0.01,
            eps=1e-8,
            pooling_mode=PoolingMode.SUM,
            output_dtype=output if on_gpu else SparseType.FP32,
            device=device,
        )
        for index, weight in enumerate(self.lookup.split_embedding_weights()):
            fill(index, weight)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return self.tables

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _uncompiled(self, ids: torch.Tensor, offsets: torch.Tensor) -> Any:
        """In training the lookup counts its steps in a Python integer: torch.compile would compile every step anew."""
        return self.lookup(ids, offsets)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        lookup = self._uncompiled if self.training else self.lookup
        pooled = lookup(features.values(), features.offsets())
        return KeyedTensor(
            keys=KEYS, length_per_key=[table.embedding_dim for table in self.tables], values=pooled.to(self.dtype)
        )


def jagged(
    values: torch.Tensor, lengths: torch.Tensor, offsets: torch.Tensor, batch: int, pooling: tuple[int, ...]
) -> Any:
    """The ids of all features as torchrec wants them. With every size given on the host, nothing is read back."""
    per_key = [batch * hot for hot in pooling]
    return KeyedJaggedTensor(
        keys=KEYS,
        values=values,
        lengths=lengths,
        offsets=offsets,
        stride=batch,
        length_per_key=per_key,
        offset_per_key=[sum(per_key[:index]) for index in range(len(per_key) + 1)],
    )
