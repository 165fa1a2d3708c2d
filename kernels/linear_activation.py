"""A linear layer that ends in its activation: y = act(x weight' + bias), act ReLU, GELU or GELU by its tanh form.

x (..., inner), weight (outer, inner). The product's tiles get bias and activation while they are in registers: moves
x, weight and y once where a library's product and the activation move y three times. 2 rows outer inner operations,
sums in fp32 whatever the dtype; products of fp32 in TF32 where torch allows it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

RELU, GELU, GELU_TANH = 0, 1, 2
GROUP = 8
"""Rows of tiles that are worked through together, so that the weights stay in the L2 cache."""
TILE = {"M": 128, "N": 128, "K": 32, "num_warps": 8, "num_stages": 3}
STRICT_TILE = {"M": 32, "N": 64, "K": 32, "num_warps": 4, "num_stages": 2}
"""Without TF32 the product of fp32 is of ordinary multiply-adds."""
HALF_TILE = {"M": 128, "N": 128, "K": 64, "num_warps": 8, "num_stages": 3}
"""114 registers and 96 KB: two programs a multiprocessor, so that one multiplies while the other activates."""


@triton.jit
def _product_tile(  # type: ignore[no-untyped-def]
    x, weight, rows, outer, inner,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """This program's tile of x weight', with its rows and its columns."""
    down, across = tl.cdiv(rows, M), tl.cdiv(outer, N)
    group = tl.program_id(0) // (GROUP * across)
    high = tl.minimum(down - group * GROUP, GROUP)
    number = tl.program_id(0) % (GROUP * across)
    block_row, block_column = group * GROUP + number % high, number // high
    row = block_row * M + tl.arange(0, M)
    column = block_column * N + tl.arange(0, N)
    place = tl.arange(0, K)
    left = x + (row % rows).to(tl.int64)[:, None] * inner + place[None, :]
    right = weight + (column % outer)[None, :] * inner + place[:, None]
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, inner, K):
        there = place < inner - first
        a = tl.load(left + first, mask=there[None, :], other=0.0)
        b = tl.load(right + first, mask=there[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total, row, column


@triton.jit
def _linear_activation_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, y, rows, outer, inner,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    values, row, column = _product_tile(x, weight, rows, outer, inner, GROUP, M, N, K, PRECISION)
    if HAS_BIAS:
        values += tl.load(bias + column, mask=column < outer, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == 0:
        values = tl.where(values < 0.0, 0.0, values)
    elif ACTIVATION == 1:
        values = 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    else:
        values = values / (1.0 + tl.exp(-1.5957691216057308 * (values + 0.044715 * values * values * values)))
    mask = (row < rows)[:, None] & (column < outer)[None, :]
    tl.store(y + row.to(tl.int64)[:, None] * outer + column[None, :], values.to(y.dtype.element_ty), mask=mask)


def _tile(dtype: torch.dtype) -> dict[str, Any]:
    """Tile and precision of a product of this dtype."""
    if dtype is not torch.float32:
        return {**HALF_TILE, "GROUP": GROUP, "PRECISION": "tf32"}
    if torch.backends.cuda.matmul.allow_tf32:
        return {**TILE, "GROUP": GROUP, "PRECISION": "tf32"}
    return {**STRICT_TILE, "GROUP": GROUP, "PRECISION": "ieee"}


def linear_activation(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: int = RELU
) -> torch.Tensor:
    """Activated rows (..., outer); contiguous inputs of one float dtype, at least one element a row."""
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1:] != weight.shape[1:] or not weight.numel():
        raise ValueError("x (..., inner) and weight (outer, inner)")
    if activation not in (RELU, GELU, GELU_TANH) or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError("a bias (outer) and one of three activations")
    inputs = (x, weight) if bias is None else (x, weight, bias)
    if not all(t.is_contiguous() and t.dtype == x.dtype for t in inputs):
        raise ValueError("contiguous inputs of one dtype")
    outer, inner = weight.shape
    rows = x.numel() // inner
    y = x.new_empty(*x.shape[:-1], outer)
    if rows:
        how = _tile(x.dtype)
        grid = (triton.cdiv(rows, how["M"]) * triton.cdiv(outer, how["N"]),)
        _linear_activation_kernel[grid](
            x, weight, x if bias is None else bias, y, rows, outer, inner,
            HAS_BIAS=bias is not None, ACTIVATION=activation, **how,
        )  # fmt: skip
    return y


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: int = RELU) -> torch.Tensor:
    """As DLRM, BERT and ViT have it."""
    y = torch.nn.functional.linear(x, weight, bias)
    if activation == RELU:
        return torch.relu(y)
    return torch.nn.functional.gelu(y, approximate="none" if activation == GELU else "tanh")


def bytes_moved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: int = RELU) -> int:
    """Everything once."""
    outer, inner = weight.shape
    elements = x.numel() + weight.numel() + x.numel() // inner * outer + (0 if bias is None else outer)
    return elements * x.element_size()


def _layer(shape: tuple[int, ...], outer: int) -> tuple[TensorCase, TensorCase, TensorCase]:
    return TensorCase(shape=shape), TensorCase(shape=(outer, shape[-1])), TensorCase(shape=(outer,))


CASES = (
    Case(name="40x64x96-relu", arguments=(*_layer((40, 64), 96), 0)),
    Case(name="3x11x20x70-gelu", arguments=(*_layer((3, 11, 20), 70), 1)),
    Case(name="5x7x33-gelu-tanh", arguments=(*_layer((5, 7), 33), 2)),
    Case(name="9x16x8-relu-no-bias", arguments=(*_layer((9, 16), 8)[:2], None, 0)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="a linear layer with bias and ReLU or GELU in the end of its product, in Triton",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=linear_activation, reference=reference, op="gemm", bytes_moved=bytes_moved)
