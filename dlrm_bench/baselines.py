"""The library operators that do each problem in production: FBGEMM's at their best setting, and stock PyTorch calls.

Each maker takes a problem's `Model` with its parameters and returns a callable of the problem's inputs with the same
outputs. Ids are checked by nobody (`BoundsCheckMode.NONE`), as the candidates do not check them either. What a library
keeps in a layout of its own is copied when the callable is made, outside of any timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Call = Callable[..., Any]
Maker = Callable[[Any], Call]


def makers(problem: str) -> dict[str, Maker]:
    """Baseline name -> maker, for a problem's name; {} where no library does it in one call."""
    return BASELINES.get(problem, {})


def _split_tables(
    model: Any,
    tables: int,
    rows: int,
    mode: str = "SUM",
    *,
    learning_rate: float = 0.0,
    eps: float = 1e-8,
    trains: bool = False,
) -> Any:
    """FBGEMM's training operator over the model's own table memory."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    weight = model.weight.detach()
    on_gpu = weight.device.type == "cuda"
    place = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
    unit = ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU
    # It allocates tables of its own, which are let go once it points at the model's.
    lookup = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, weight.shape[1], place, unit)] * tables,
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD if trains else EmbOptimType.EXACT_SGD,
        learning_rate=learning_rate,
        eps=eps,
        weights_precision=SparseType.FP16 if weight.dtype == torch.float16 else SparseType.FP32,
        output_dtype=SparseType.FP32,
        pooling_mode=getattr(PoolingMode, mode),
        bounds_check_mode=BoundsCheckMode.NONE,
        stochastic_rounding=False,
        device=weight.device,
    )
    held = lookup.weights_dev if on_gpu else lookup.weights_host
    held.data = weight.view(-1)
    return lookup


def _one_table(mode: str = "SUM") -> Maker:
    def make(model: Any) -> Call:
        lookup = _split_tables(model, 1, model.weight.shape[0], mode)

        def call(indices: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None = None) -> Any:
            return lookup(indices, offsets, weights)

        return call

    return make


def _many_tables(model: Any) -> Call:
    return _split_tables(model, model.tables, model.rows)  # type: ignore[no-any-return]


def _quantised(bits: int) -> Maker:
    """FBGEMM's inference operator; its rows are padded to 16 bytes on a GPU, so the table is copied into its layout."""

    def make(model: Any) -> Call:
        from fbgemm_gpu.split_embedding_configs import SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
            BoundsCheckMode,
            EmbeddingLocation,
            PoolingMode,
        )
        from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen

        table = model.table
        on_gpu = table.device.type == "cuda"
        columns = (table.shape[1] - 4) * 8 // bits
        kind = SparseType.INT8 if bits == 8 else SparseType.INT4
        place = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
        lookup = IntNBitTableBatchedEmbeddingBagsCodegen(
            [("", model.rows, columns, kind, place)] * model.tables,
            pooling_mode=PoolingMode.SUM,
            bounds_check_mode=BoundsCheckMode.NONE,
            output_dtype=SparseType.FP32,
            indices_dtype=torch.int64,
            device=table.device,
        )
        lookup.initialize_weights()
        for index, (rows, _, _) in enumerate(lookup.split_embedding_weights_with_scale_bias(0)):
            mine = table[index * model.rows : (index + 1) * model.rows]
            rows[:, : mine.shape[1]].copy_(mine)
        return lambda indices, offsets: lookup(indices, offsets)

    return make


def _padded(model: Any) -> Call:
    import fbgemm_gpu  # noqa: F401  registers the operators

    fbgemm = torch.ops.fbgemm

    def call(values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = fbgemm.jagged_to_padded_dense(values, [offsets], [model.most], 0.0)
        packed = fbgemm.dense_to_jagged(dense, [offsets], values.shape[0])[0]
        return padded, packed

    return call


def _permuted(model: Any) -> Call:
    import fbgemm_gpu  # noqa: F401  registers the operators
    from fbgemm_gpu.permute_pooled_embedding_modules import PermutePooledEmbeddings

    permute = PermutePooledEmbeddings(list(model.widths), list(model.order))
    return lambda pooled: permute(pooled)


def _fused_backward(model: Any) -> Call:
    """Backward and row-wise Adagrad in FBGEMM's one kernel. Its forward runs when a batch is first seen, untimed."""
    from addrfrac.dlrm_bench.p16_bag_backward_adagrad import EPS, LEARNING_RATE, SHOWN

    lookup = _split_tables(model, 1, model.weight.shape[0], learning_rate=LEARNING_RATE, eps=EPS, trains=True)
    on_gpu = model.weight.device.type == "cuda"
    state = lookup.momentum1_dev if on_gpu else lookup.momentum1_host
    state.data = model.momentum
    seen: dict[int, torch.Tensor] = {}

    def call(indices: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if indices.data_ptr() not in seen:
            with torch.enable_grad():
                seen[indices.data_ptr()] = lookup(indices, offsets)
        seen[indices.data_ptr()].backward(gradient, retain_graph=True)  # type: ignore[no-untyped-call]
        shown = indices[:SHOWN]
        return model.weight[shown], model.momentum[shown]

    return call


def _epilogues(model: Any) -> Call:
    """Bias and ReLU in cuBLASLt's epilogue."""
    weights = [weight.T for weight in model.weights]

    def call(x: torch.Tensor) -> torch.Tensor:
        for weight, bias in zip(weights, model.biases, strict=True):
            x = torch._addmm_activation(bias, x, weight)
        return x

    return call


BASELINES: dict[str, dict[str, Maker]] = {
    "embedding_bag_sum": {"fbgemm": _one_table()},
    "table_batched_bag": {"fbgemm": _many_tables},
    "weighted_bag": {"fbgemm": _one_table()},
    "mean_bag_jagged": {"fbgemm": _one_table("MEAN")},
    "quantised_bag_int8": {"fbgemm-intnbit": _quantised(8)},
    "quantised_bag_int4": {"fbgemm-intnbit": _quantised(4)},
    "half_bag": {"fbgemm": _one_table()},
    "jagged_to_padded": {"fbgemm": _padded},
    "permute_pooled": {"fbgemm": _permuted},
    "bottom_mlp": {"addmm-activation": _epilogues},
    "bag_backward_adagrad": {"fbgemm-fused": _fused_backward},
}
