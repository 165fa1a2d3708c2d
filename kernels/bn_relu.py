"""Batch norm at inference and ReLU: y = relu((x - mean) / sqrt(variance + eps) * weight + bias [+ residual]).

Statistics are read from the live buffers at every call, one value a channel. Moves x, y and the residual once: 2 n or
3 n elements, and 4 c. Element by element in the order of memory, contiguous or channels-last; fp32 whatever the dtype.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

BLOCK = 1024


@triton.jit
def _bn_relu_kernel(  # type: ignore[no-untyped-def]
    x, mean, variance, weight, bias, residual, y, count, channels, inner, eps,
    ADDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    channel = offsets // inner % channels
    values = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    centre = tl.load(mean + channel, mask=inside, other=0.0).to(tl.float32)
    spread = tl.load(variance + channel, mask=inside, other=1.0).to(tl.float32)
    gain = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
    values = (values - centre) * (1.0 / tl.sqrt(spread + eps)) * gain + shift
    if ADDS:
        values = values.to(y.dtype.element_ty).to(tl.float32)  # as the two calls round it
        values += tl.load(residual + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + offsets, tl.where(values > 0, values, values * 0.0).to(y.dtype.element_ty), mask=inside)


def bn_relu(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalised and rectified; x (batch, channels, ...) contiguous or channels-last, the residual laid out like it."""
    if x.ndim < 2 or any(t.shape != x.shape[1:2] or not t.is_contiguous() for t in (mean, variance, weight, bias)):
        raise ValueError("an input with channels, and contiguous statistics and parameters of one value a channel")
    if residual is not None and (residual.shape, residual.stride(), residual.dtype) != (x.shape, x.stride(), x.dtype):
        raise ValueError("a residual of x's shape, layout and dtype")
    channels = x.shape[1]
    if x.is_contiguous():
        inner = x.numel() // max(1, x.shape[0] * channels)
    elif x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
        inner = 1
    else:
        raise ValueError("a contiguous or channels-last input")
    y = torch.empty_like(x)
    if x.numel():
        _bn_relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](
            x, mean, variance, weight, bias, x if residual is None else residual, y, x.numel(), channels, inner, eps,
            ADDS=residual is not None, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
    return y


def reference(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As ResNet has it in evaluation."""
    y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
    return torch.relu(y if residual is None else y + residual)


def bytes_moved(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> int:
    """x, y and the residual once, four values a channel."""
    large = (2 if residual is None else 3) * x.numel() * x.element_size()
    return large + sum(t.numel() * t.element_size() for t in (mean, variance, weight, bias))


def _channels(count: int) -> tuple[TensorCase, TensorCase, TensorCase, TensorCase]:
    one = TensorCase(shape=(count,))
    return one, TensorCase(shape=(count,), kind="positive"), one, one


CASES = (
    Case(name="2x16x12x12", arguments=(TensorCase(shape=(2, 16, 12, 12)), *_channels(16))),
    Case(
        name="3x7x5x9-residual",
        arguments=(TensorCase(shape=(3, 7, 5, 9)), *_channels(7), TensorCase(shape=(3, 7, 5, 9))),
    ),
    Case(
        name="2x12x7x9-channels-last",
        arguments=(TensorCase(shape=(2, 12, 7, 9), layout="channels-last"), *_channels(12)),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="batch norm at inference with ReLU and an optional residual in one Triton kernel, both memory formats",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=bn_relu, reference=reference, op="normalization", bytes_moved=bytes_moved)
