"""Batch norm in training and ReLU: y = relu((x - mean) / sqrt(variance + eps) * weight + bias [+ residual]).

mean and variance are of each channel of the batch; running ones move towards them by `momentum`, the variance's times
n / (n - 1) for n values a channel. Forward reads x for the sums and again for y: 3 n elements, 4 n with the residual,
where norm, sum and ReLU apart move 5 n and 8 n. Backward, with g = gradient where y > 0:
dx = weight / deviation * (g - mean(g) - xhat mean(g xhat)), bias's and weight's are the sums of g and of g xhat, the
residual's is g. Nothing but the inputs is kept: sums are made again (n), then those of g (2 n; 4 n with the residual,
where g is written), then dx (3 n). Sums in fp32: partial ones a block of rows, each block's mean and squares about it,
then joined as Chan, Golub and LeVeque have it, which does not cancel. Contiguous or channels-last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

TILE_PLACES, TILE_CHANNELS = 64, 64
"""Of channels-last; contiguous images are worked through a channel a time, in tiles of as many elements."""
PROGRAMS = 1056
"""Eight a multiprocessor of an H200 sum up."""
TRAINS = True
"""The reference trains: gradients are part of what must be right."""


@triton.jit
def _places(first, lanes, count, inner, x_image, x_place):
    """Where places of a channel lie, and which there are."""
    place = first + lanes
    return (place // inner).to(tl.int64) * x_image + (place % inner).to(tl.int64) * x_place, place < count


@triton.jit
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, means, squares, channels, count, inner, x_image, x_channel, x_place, part,
    PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Of one part of the places: each channel's mean and sum of squares about it."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    begin = tl.program_id(0) * part
    end = tl.minimum(begin + part, count)
    lanes = tl.arange(0, PLACES)
    mean = tl.zeros([CHANNELS], tl.float32)
    square = tl.zeros([CHANNELS], tl.float32)
    seen = 0.0
    for first in range(begin, end, PLACES):
        at, there = _places(first, lanes, end, inner, x_image, x_place)
        mask = there[:, None] & known[None, :]
        values = tl.load(x + at[:, None] + channel[None, :] * x_channel, mask=mask, other=0.0).to(tl.float32)
        here = tl.minimum(end - first, PLACES).to(tl.float32)
        own = tl.sum(values, 0) / here
        apart = tl.where(mask, values - own[None, :], 0.0)
        shift = own - mean
        square += tl.sum(apart * apart, 0) + shift * shift * (seen * here / (seen + here))
        mean += shift * (here / (seen + here))
        seen += here
    tl.store(means + tl.program_id(0) * channels + channel, mean, mask=known)
    tl.store(squares + tl.program_id(0) * channels + channel, square, mask=known)


@triton.jit
def _join_kernel(  # type: ignore[no-untyped-def]
    means, squares, centre, scale, running_mean, running_variance, channels, count, part, parts, momentum, eps,
    MOVES: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of each channel, and the running ones moved."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    each = tl.arange(0, PARTS)
    known = channel < channels
    mask = (each < parts)[:, None] & known[None, :]
    at = each[:, None] * channels + channel[None, :]
    size = tl.maximum(tl.minimum(count - each * part, part), 0).to(tl.float32)[:, None]
    own = tl.load(means + at, mask=mask, other=0.0)
    total = count.to(tl.float32)
    mean = tl.sum(own * size, 0) / total
    apart = tl.where(mask, own - mean[None, :], 0.0)
    square = tl.sum(tl.load(squares + at, mask=mask, other=0.0) + apart * apart * size, 0)
    tl.store(centre + channel, mean, mask=known)
    tl.store(scale + channel, 1.0 / tl.sqrt(square / total + eps), mask=known)
    if MOVES:
        before = tl.load(running_mean + channel, mask=known, other=0.0).to(tl.float32)
        moved = before + momentum * (mean - before)
        tl.store(running_mean + channel, moved.to(running_mean.dtype.element_ty), mask=known)
        before = tl.load(running_variance + channel, mask=known, other=0.0).to(tl.float32)
        moved = before + momentum * (square / (total - 1.0) - before)
        tl.store(running_variance + channel, moved.to(running_variance.dtype.element_ty), mask=known)


@triton.jit
def _normalise_kernel(  # type: ignore[no-untyped-def]
    x, centre, scale, weight, bias, residual, y, channels, count, inner, x_image, x_channel, x_place,
    ADDS: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    at, there = _places(tl.program_id(0) * PLACES, tl.arange(0, PLACES), count, inner, x_image, x_place)
    at = at[:, None] + channel[None, :] * x_channel
    mask = there[:, None] & known[None, :]
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - tl.load(centre + channel, mask=known)[None, :]
    gain = tl.load(weight + channel, mask=known).to(tl.float32) * tl.load(scale + channel, mask=known)
    values = values * gain[None, :] + tl.load(bias + channel, mask=known).to(tl.float32)[None, :]
    if ADDS:
        values = values.to(y.dtype.element_ty).to(tl.float32)  # as the two calls round it
        values += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + at, tl.where(values < 0.0, 0.0, values).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _gradient_sums_kernel(  # type: ignore[no-untyped-def]
    x, gradient, centre, scale, weight, bias, residual, masked, plain, turned,
    channels, count, inner, x_image, x_channel, x_place, part,
    ADDS: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Of one part of the places: each channel's sums of g and of g xhat; with a residual g is written."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    begin = tl.program_id(0) * part
    end = tl.minimum(begin + part, count)
    lanes = tl.arange(0, PLACES)
    middle = tl.load(centre + channel, mask=known, other=0.0)[None, :]
    narrow = tl.load(scale + channel, mask=known, other=0.0)[None, :]
    gain = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32)[None, :] * narrow
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[None, :]
    sum_plain = tl.zeros([CHANNELS], tl.float32)
    sum_turned = tl.zeros([CHANNELS], tl.float32)
    for first in range(begin, end, PLACES):
        at, there = _places(first, lanes, end, inner, x_image, x_place)
        at = at[:, None] + channel[None, :] * x_channel
        mask = there[:, None] & known[None, :]
        apart = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - middle
        values = apart * gain + shift
        if ADDS:
            values = values.to(masked.dtype.element_ty).to(tl.float32)
            values += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
        arriving = tl.load(gradient + at, mask=mask, other=0.0)
        values = values.to(masked.dtype.element_ty).to(tl.float32)  # what is rounded to zero passes nothing on
        arriving = tl.where(values <= 0.0, 0.0, arriving.to(tl.float32))
        if ADDS:
            tl.store(masked + at, arriving.to(masked.dtype.element_ty), mask=mask)
        sum_plain += tl.sum(arriving, 0)
        sum_turned += tl.sum(arriving * apart * narrow, 0)
    tl.store(plain + tl.program_id(0) * channels + channel, sum_plain, mask=known)
    tl.store(turned + tl.program_id(0) * channels + channel, sum_turned, mask=known)


@triton.jit
def _gradient_kernel(  # type: ignore[no-untyped-def]
    x, gradient, centre, scale, weight, bias, plain, turned, into_x,
    channels, count, inner, x_image, x_channel, x_place,
    MASKS: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """dx; MASKS: the gradient is y's and becomes g here."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    at, there = _places(tl.program_id(0) * PLACES, tl.arange(0, PLACES), count, inner, x_image, x_place)
    at = at[:, None] + channel[None, :] * x_channel
    mask = there[:, None] & known[None, :]
    narrow = tl.load(scale + channel, mask=known, other=0.0)[None, :]
    gain = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32)[None, :] * narrow
    apart = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - tl.load(centre + channel, mask=known)[None, :]
    arriving = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    if MASKS:
        values = apart * gain + tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)[None, :]
        values = values.to(into_x.dtype.element_ty).to(tl.float32)
        arriving = tl.where(values <= 0.0, 0.0, arriving)
    total = count.to(tl.float32)
    arriving -= tl.load(plain + channel, mask=known, other=0.0)[None, :] / total
    arriving -= apart * narrow * (tl.load(turned + channel, mask=known, other=0.0)[None, :] / total)
    tl.store(into_x + at, (gain * arriving).to(into_x.dtype.element_ty), mask=mask)


# --- launching --------------------------------------------------------------------------------------------------


def _layout(x: torch.Tensor) -> torch.memory_format:
    """Raises ValueError for images that are neither contiguous nor channels-last."""
    if x.is_contiguous():
        return torch.contiguous_format
    if x.ndim != 4 or not x.is_contiguous(memory_format=torch.channels_last):
        raise ValueError("a contiguous or channels-last input")
    return torch.channels_last


def _shape(x: torch.Tensor) -> tuple[tuple[int, ...], dict[str, int]]:
    """Channels, places a channel, places an image and the strides of image, channel and place; and the tile."""
    channels = x.shape[1]
    inner = x.numel() // max(1, x.shape[0] * channels)
    size = (channels, x.shape[0] * inner, inner)
    if x.is_contiguous():
        return (*size, channels * inner, inner, 1), {"PLACES": TILE_PLACES * TILE_CHANNELS, "CHANNELS": 1}
    return (*size, channels * inner, 1, channels), {"PLACES": TILE_PLACES, "CHANNELS": TILE_CHANNELS}


def _parts(size: tuple[int, ...], tile: dict[str, int]) -> tuple[int, int]:
    """How the places are parted for sums: places a part, and parts."""
    channels, count = size[:2]
    tiles = triton.cdiv(count, tile["PLACES"])
    parts = max(1, min(tiles, PROGRAMS // triton.cdiv(channels, tile["CHANNELS"])))
    part = triton.cdiv(tiles, parts) * tile["PLACES"]
    return part, triton.cdiv(count, part)


def _statistics(
    x: torch.Tensor, eps: float, running: tuple[torch.Tensor, torch.Tensor] | None, momentum: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / deviation of each channel in fp32; running statistics move where they are given."""
    size, tile = _shape(x)
    channels, count = size[:2]
    part, parts = _parts(size, tile)
    means, squares = torch.empty(2, parts, channels, dtype=torch.float32, device=x.device).unbind(0)
    centre, scale = torch.empty(2, channels, dtype=torch.float32, device=x.device).unbind(0)
    _sums_kernel[(parts, triton.cdiv(channels, tile["CHANNELS"]))](x, means, squares, *size, part, **tile, num_warps=4)
    block = triton.next_power_of_2(parts)
    wide = max(1, min(64, 4096 // block))
    _join_kernel[(triton.cdiv(channels, wide),)](
        means, squares, centre, scale, *(running or (centre, scale)), channels, count, part, parts, momentum, eps,
        MOVES=running is not None, PARTS=block, CHANNELS=wide, num_warps=4,
    )  # fmt: skip
    return centre, scale


def _check(x: torch.Tensor, of_channels: Sequence[torch.Tensor], residual: torch.Tensor | None) -> None:
    """Raises ValueError for inputs that this is not for."""
    if x.ndim < 2 or any(t.shape != x.shape[1:2] or not t.is_contiguous() for t in of_channels):
        raise ValueError("an input with channels, and contiguous statistics and parameters of one value a channel")
    if x.numel() <= x.shape[1]:
        raise ValueError("more than one value a channel")
    layout = _layout(x)
    if residual is None:
        return
    if (residual.shape, residual.dtype) != (x.shape, x.dtype) or not residual.is_contiguous(memory_format=layout):
        raise ValueError("a residual of x's shape, layout and dtype")


class _BnReluTrain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        x, mean, variance, weight, bias, residual, momentum, eps = inputs
        size, tile = _shape(x)
        centre, scale = _statistics(x, eps, (mean, variance), momentum)
        y = torch.empty_like(x)
        grid = (triton.cdiv(size[1], tile["PLACES"]), triton.cdiv(size[0], tile["CHANNELS"]))
        _normalise_kernel[grid](
            x, centre, scale, weight, bias, x if residual is None else residual, y, *size,
            ADDS=residual is not None, **tile, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, mean, variance, weight, bias, residual)
        ctx.plain = momentum, eps
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return tuple(backward(gradients, *ctx.saved_tensors, *ctx.plain))


def bn_relu_train(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalised and rectified, the running mean and variance moved; x contiguous or channels-last, more than one value
    a channel, the residual laid out like it.
    """
    _check(x, (mean, variance, weight, bias), residual)
    y: torch.Tensor = _BnReluTrain.apply(x, mean, variance, weight, bias, residual, momentum, eps)
    return y


def reference(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As ResNet has it in training."""
    y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=True, momentum=momentum, eps=eps)
    return torch.relu(y if residual is None else y + residual)


def backward(
    gradients: Sequence[torch.Tensor],
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> list[torch.Tensor | None]:
    """Gradients of x, weight, bias and the residual; running statistics have none."""
    gradient = gradients[0].contiguous(memory_format=_layout(x))
    size, tile = _shape(x)
    channels, count = size[:2]
    centre, scale = _statistics(x, eps, None, momentum)
    part, parts = _parts(size, tile)
    plain, turned = torch.empty(2, parts, channels, dtype=torch.float32, device=x.device).unbind(0)
    adds = residual is not None
    masked, into_x = torch.empty_like(x) if adds else x, torch.empty_like(x)
    blocks = triton.cdiv(channels, tile["CHANNELS"])
    _gradient_sums_kernel[(parts, blocks)](
        x, gradient, centre, scale, weight, bias, x if residual is None else residual, masked, plain, turned,
        *size, part, ADDS=adds, **tile, num_warps=4,
    )  # fmt: skip
    into_bias, into_weight = plain.sum(0), turned.sum(0)
    _gradient_kernel[(triton.cdiv(count, tile["PLACES"]), blocks)](
        x, masked if adds else gradient, centre, scale, weight, bias, into_bias, into_weight, into_x, *size,
        MASKS=not adds, **tile, num_warps=4,
    )  # fmt: skip
    into_residual = masked if adds else None
    return [into_x, None, None, into_weight.to(weight.dtype), into_bias.to(bias.dtype), into_residual, None, None]


def bytes_moved(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> int:
    """Forward: x twice, as its sums come before its norm, y and the residual once; statistics read and written."""
    large = (3 if residual is None else 4) * x.numel() * x.element_size()
    return large + sum(t.numel() * t.element_size() for t in (mean, variance, mean, variance, weight, bias))


def _channels(count: int) -> tuple[TensorCase, TensorCase, TensorCase, TensorCase]:
    one = TensorCase(shape=(count,))
    return one, TensorCase(shape=(count,), kind="positive"), one, one


CASES = (
    Case(name="2x6x7x5", arguments=(TensorCase(shape=(2, 6, 7, 5)), *_channels(6))),
    Case(
        name="3x70x5x9-channels-last",
        arguments=(TensorCase(shape=(3, 70, 5, 9), layout="channels-last"), *_channels(70)),
    ),
    Case(
        name="2x12x7x9-residual-channels-last",
        arguments=(
            TensorCase(shape=(2, 12, 7, 9), layout="channels-last"),
            *_channels(12),
            TensorCase(shape=(2, 12, 7, 9), layout="channels-last"),
        ),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="batch norm in training with ReLU and an optional residual in Triton, forward and backward",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=bn_relu_train, reference=reference, op="normalization", bytes_moved=bytes_moved)
