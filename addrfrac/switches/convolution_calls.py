"""cuDNN's fused convolutions as functions that run anywhere: on a device without cuDNN the same mathematics unfused.

Imported only where a model is rewritten: torch is wanted here. Under torch.compile they are custom ops, because torch
has no shape function for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

LIBRARIES: Any = torch.library
LIBRARY = LIBRARIES.Library("addrfrac_convolution", "DEF")
GEOMETRY = "int[] stride, int[] padding, int[] dilation, int groups"
LIBRARY.define(f"relu(Tensor input, Tensor weight, Tensor bias, {GEOMETRY}) -> Tensor")
LIBRARY.define(f"add_relu(Tensor input, Tensor weight, Tensor addend, Tensor bias, {GEOMETRY}) -> Tensor")


def convolution_relu(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """relu(convolution + bias) in one kernel where cuDNN is."""
    call = torch.ops.addrfrac_convolution.relu if torch.compiler.is_compiling() else _relu
    result: torch.Tensor = call(input, weight, bias, stride, padding, dilation, groups)
    return result


def convolution_add_relu(
    input: torch.Tensor,
    weight: torch.Tensor,
    addend: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """relu(convolution + bias + addend) in one kernel where cuDNN is and the addend needs no broadcast."""
    if tuple(addend.shape) != _output_shape(input, weight, stride, padding, dilation):
        return torch.relu(torch.conv2d(input, weight, bias, stride, padding, dilation, groups) + addend)
    call = torch.ops.addrfrac_convolution.add_relu if torch.compiler.is_compiling() else _add_relu
    result: torch.Tensor = call(input, weight, addend, bias, stride, padding, dilation, groups)
    return result


def _output_shape(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    spatial = (
        (size + 2 * pad - space * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, space in zip(
            input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    )
    return (input.shape[0], weight.shape[0], *spatial)


def _memory_format(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """As ATen chooses for cuDNN (cudnn_conv_suggest_memory_format): channels last where either operand is."""
    from torch._prims_common import suggest_memory_format

    formats = (suggest_memory_format(input), suggest_memory_format(weight))
    return torch.channels_last if torch.channels_last in formats else torch.contiguous_format


def _relu(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    if input.is_cuda:
        result: torch.Tensor = torch.cudnn_convolution_relu(input, weight, bias, stride, padding, dilation, groups)
        return result
    unfused = torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return unfused.relu_().contiguous(memory_format=_memory_format(input, weight))


def _add_relu(
    input: torch.Tensor,
    weight: torch.Tensor,
    addend: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    if input.is_cuda:
        result: torch.Tensor = torch.cudnn_convolution_add_relu(
            input, weight, addend, 1.0, bias, stride, padding, dilation, groups
        )
        return result
    unfused = torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return unfused.add_(addend).relu_().contiguous(memory_format=_memory_format(input, weight))


def _empty_output(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    shape = _output_shape(input, weight, stride, padding, dilation)
    return torch.empty(shape, dtype=input.dtype, device=input.device, memory_format=_memory_format(input, weight))


def _relu_shape(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    return _empty_output(input, weight, stride, padding, dilation)


def _add_relu_shape(
    input: torch.Tensor,
    weight: torch.Tensor,
    addend: torch.Tensor,
    bias: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    return _empty_output(input, weight, stride, padding, dilation)


LIBRARIES.register_fake("addrfrac_convolution::relu", _relu_shape, lib=LIBRARY)
LIBRARIES.register_fake("addrfrac_convolution::add_relu", _add_relu_shape, lib=LIBRARY)
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("relu", _relu, _key)
    LIBRARY.impl("add_relu", _add_relu, _key)
