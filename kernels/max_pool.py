"""Maximum over 3 x 3 windows, two apart, one place of padding; of x itself or of relu(batch norm at inference of x).

Moves x once and a quarter as much out, 1.25 n elements, where norm, ReLU and pool apart move 3.25 n (2.25 n of a
rectified norm in one kernel and the pool). One program a block of output places and channels: the nine places of a
window are loads in flight at once, most of them from the caches. Statistics are read from the live buffers, one value
a channel; fp32 whatever the dtype. Contiguous or channels-last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

BLOCK = 1024
MOST_CHANNELS = 64


@triton.jit
def _max_pool_kernel(  # type: ignore[no-untyped-def]
    x, mean, variance, weight, bias, y, places, channels, height, width, high, wide, eps,
    x_image, x_channel, x_row, x_column, y_image, y_channel, y_row, y_column,
    NORMS: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    image = (place // (high * wide)).to(tl.int64)
    row, column = place // wide % high, place % wide
    if NORMS:
        centre = tl.load(mean + channel, mask=known, other=0.0).to(tl.float32)
        spread = tl.load(variance + channel, mask=known, other=1.0).to(tl.float32)
        gain = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32) * (1.0 / tl.sqrt(spread + eps))
        shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    largest = tl.full([PLACES, CHANNELS], -float("inf"), tl.float32)
    for down in tl.static_range(3):
        for across in tl.static_range(3):
            h, w = 2 * row + (down - 1), 2 * column + (across - 1)
            there = (place < places) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
            mask = there[:, None] & known[None, :]
            start = image * x_image + h * x_row + w * x_column
            values = tl.load(x + start[:, None] + channel[None, :] * x_channel, mask=mask, other=0.0).to(tl.float32)
            if NORMS:
                values = (values - centre[None, :]) * gain[None, :] + shift[None, :]
                values = tl.where(values < 0.0, 0.0, values)
            values = tl.where(mask, values, -float("inf"))
            largest = tl.maximum(largest, values, propagate_nan=tl.PropagateNan.ALL)
    at = image * y_image + row * y_row + column * y_column
    mask = (place < places)[:, None] & known[None, :]
    tl.store(y + at[:, None] + channel[None, :] * y_channel, largest.to(y.dtype.element_ty), mask=mask)


def max_pool(
    x: torch.Tensor,
    mean: torch.Tensor | None = None,
    variance: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Pooled images, laid out as x is; x (batch, channels, height, width) contiguous or channels-last.

    Statistics and parameters all or none, contiguous, of one value a channel.
    """
    if x.ndim != 4 or not x.is_floating_point() or min(x.shape[1:]) < 1:
        raise ValueError("images (batch, channels, height, width) of at least one place")
    of_channels = [each for each in (mean, variance, weight, bias) if each is not None]
    if len(of_channels) not in (0, 4) or any(t.shape != x.shape[1:2] or not t.is_contiguous() for t in of_channels):
        raise ValueError("all or none of contiguous statistics and parameters of one value a channel")
    if x.is_contiguous():
        layout, most_channels = torch.contiguous_format, 1
    elif x.is_contiguous(memory_format=torch.channels_last):
        layout, most_channels = torch.channels_last, MOST_CHANNELS
    else:
        raise ValueError("a contiguous or channels-last input")
    batch, channels, height, width = x.shape
    high, wide = (height - 1) // 2 + 1, (width - 1) // 2 + 1
    y = torch.empty(batch, channels, high, wide, dtype=x.dtype, device=x.device, memory_format=layout)
    places = batch * high * wide
    if places:
        block = min(most_channels, triton.next_power_of_2(channels))
        _max_pool_kernel[(triton.cdiv(places, BLOCK // block), triton.cdiv(channels, block))](
            x, *(of_channels or (x, x, x, x)), y, places, channels, height, width, high, wide, eps,
            *x.stride(), *y.stride(), NORMS=bool(of_channels), PLACES=BLOCK // block, CHANNELS=block, num_warps=4,
        )  # fmt: skip
    return y


def reference(
    x: torch.Tensor,
    mean: torch.Tensor | None = None,
    variance: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As ResNet's stem has it in evaluation; without statistics the pool alone."""
    if mean is not None:
        y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
        x = torch.relu(y)
    return torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1)


def bytes_moved(
    x: torch.Tensor,
    mean: torch.Tensor | None = None,
    variance: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> int:
    """x and the pooled images once, four values a channel."""
    batch, channels, height, width = x.shape
    pooled = batch * channels * ((height - 1) // 2 + 1) * ((width - 1) // 2 + 1)
    of_channels = (each for each in (mean, variance, weight, bias) if each is not None)
    return (x.numel() + pooled) * x.element_size() + sum(t.numel() * t.element_size() for t in of_channels)


def _channels(count: int) -> tuple[TensorCase, TensorCase, TensorCase, TensorCase]:
    one = TensorCase(shape=(count,))
    return one, TensorCase(shape=(count,), kind="positive"), one, one


CASES = (
    Case(name="2x3x12x10", arguments=(TensorCase(shape=(2, 3, 12, 10)),)),
    Case(name="2x5x9x7-channels-last", arguments=(TensorCase(shape=(2, 5, 9, 7), layout="channels-last"),)),
    Case(
        name="3x70x5x6-norm-channels-last",
        arguments=(TensorCase(shape=(3, 70, 5, 6), layout="channels-last"), *_channels(70)),
    ),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="3 x 3 max pool in Triton, after batch norm at inference and ReLU or alone, both memory formats",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=max_pool, reference=reference, op="pooling", bytes_moved=bytes_moved)
