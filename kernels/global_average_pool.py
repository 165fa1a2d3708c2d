"""Global average of images: y = mean of x over height and width, one value a channel.

Moves x once, and 1 / (height width) as much out. One program an image and block of channels, all places of it in
flight; sums in fp32 whatever the dtype. Contiguous or channels-last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch._prims_common import suggest_memory_format

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

PLACES, CHANNELS = 64, 64


@triton.jit
def _global_average_pool_kernel(  # type: ignore[no-untyped-def]
    x, y, channels, places, x_image, x_channel, x_place, PLACES: tl.constexpr, CHANNELS: tl.constexpr
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    lanes = tl.arange(0, PLACES)
    start = x + image * x_image + channel[None, :] * x_channel
    total = tl.zeros([CHANNELS], tl.float32)
    for first in range(0, places, PLACES):
        place = first + lanes
        mask = (place < places)[:, None] & (channel < channels)[None, :]
        total += tl.sum(tl.load(start + place[:, None] * x_place, mask=mask, other=0.0).to(tl.float32), 0)
    tl.store(y + image * channels + channel, (total / places).to(y.dtype.element_ty), mask=channel < channels)


def global_average_pool(x: torch.Tensor) -> torch.Tensor:
    """Means (batch, channels, 1, 1); x (batch, channels, height, width) contiguous or channels-last."""
    if x.ndim != 4 or not x.is_floating_point() or min(x.shape[1:]) < 1:
        raise ValueError("images (batch, channels, height, width) of at least one place")
    if not (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)):
        raise ValueError("a contiguous or channels-last input")
    batch, channels, height, width = x.shape
    layout = suggest_memory_format(x)
    y = torch.empty(batch, channels, 1, 1, dtype=x.dtype, device=x.device, memory_format=layout)
    if batch:
        last = x.stride(3) if width > 1 else x.stride(2)
        _global_average_pool_kernel[(batch, triton.cdiv(channels, CHANNELS))](
            x, y, channels, height * width, x.stride(0), x.stride(1), last,
            PLACES=PLACES, CHANNELS=CHANNELS, num_warps=4,
        )  # fmt: skip
    return y


def reference(x: torch.Tensor) -> torch.Tensor:
    """As ResNet has it before its last layer."""
    return torch.nn.functional.adaptive_avg_pool2d(x, (1, 1))


def bytes_moved(x: torch.Tensor) -> int:
    """x once, the means once."""
    return (x.numel() + x.shape[0] * x.shape[1]) * x.element_size()


CASES = (
    Case(name="2x64x7x7", arguments=(TensorCase(shape=(2, 64, 7, 7)),)),
    Case(name="3x70x9x11-channels-last", arguments=(TensorCase(shape=(3, 70, 9, 11), layout="channels-last"),)),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="global average pool in Triton, both memory formats",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=global_average_pool, reference=reference, op="pooling", bytes_moved=bytes_moved)
