"""Arguments of convolutions in, their bytes and flops out.

The low end of the flops leaves out products with padding, which no implementation must make; Winograd's and Fourier's
algorithms, which save more, are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from addrfrac.work.record import Facts, Rule, Work
from addrfrac.work.tensors import MATRIX_DTYPES, Argument, Tensor, flag, flags, integers, number, tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How a kernel slides over an input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool


def output_sizes(sizes: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """Spatial sizes of a (not transposed) convolution's output."""
    given = zip(sizes, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    return tuple((size + 2 * pad - dilation * (k - 1) - 1) // step + 1 for size, k, step, pad, dilation in given)


def inner_taps(sizes: Sequence[int], kernel: Sequence[int], outputs: Sequence[int], geometry: Geometry) -> int:
    """(output place, kernel place) pairs that meet the input and not its padding."""
    taps = 1
    for size, k, out, step, pad, dilation in zip(
        sizes, kernel, outputs, geometry.stride, geometry.padding, geometry.dilation, strict=True
    ):
        taps *= sum(0 <= o * step - pad + j * dilation < size for o in range(out) for j in range(k))
    return taps


def _expanded(listed: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...] | None:
    """One number stands for all dimensions."""
    if listed is None or not listed:
        return (default,) * rank
    return listed * rank if len(listed) == 1 else listed if len(listed) == rank else None


def geometry_of(
    arguments: Sequence[Argument],
    rank: int,
    *,
    stride: int,
    padding: int,
    dilation: int | None,
    groups: int | None,
    transposed: int | bool,
) -> Geometry | None:
    """The geometry from the places of its arguments; None where a stride or padding was not recorded."""
    told = integers(arguments, stride), integers(arguments, padding)
    if any(each is None for each in told):
        return None
    steps, pads = _expanded(told[0], rank, 1), _expanded(told[1], rank, 0)
    dilations = _expanded(integers(arguments, dilation) if dilation is not None else None, rank, 1)
    if steps is None or pads is None or dilations is None:
        return None
    is_transposed = transposed if isinstance(transposed, bool) else bool(flag(arguments, transposed))
    return Geometry(
        stride=steps,
        padding=pads,
        dilation=dilations,
        groups=int(number(arguments, groups) or 1) if groups is not None else 1,
        transposed=is_transposed,
    )


def _flops(source: Tensor, weight: Tensor, outputs: Sequence[int], geometry: Geometry) -> tuple[float, float]:
    """(without products with padding, all): 2 N C_out (C_in / groups) taps of the plain convolution so shaped."""
    batch, kernel = source.shape[0], weight.shape[2:]
    each = 2.0 * batch * weight.shape[0] * weight.shape[1]
    if geometry.transposed:  # the plain convolution runs from the output to the input; every input place meets all taps
        every = each * math.prod(source.shape[2:]) * math.prod(kernel)
        return every * _kept_share(source.shape[2:], kernel, outputs, geometry), every
    inner = inner_taps(source.shape[2:], kernel, outputs, geometry)
    return each * inner, each * math.prod(outputs) * math.prod(kernel)


def _kept_share(sizes: Sequence[int], kernel: Sequence[int], outputs: Sequence[int], geometry: Geometry) -> float:
    return inner_taps(outputs, kernel, sizes, geometry) / max(math.prod(sizes) * math.prod(kernel), 1)


def convolution(
    arguments: Sequence[Argument],
    facts: Facts,
    *,
    stride: int,
    padding: int,
    dilation: int | None,
    groups: int | None,
    transposed: int | bool = False,
    output_padding: int | None = None,
    bias: int | None = None,
    added: int | None = None,
) -> Work | None:
    """A forward convolution, with what its epilogue reads (`bias`, `added`)."""
    source, weight = tensor(arguments, 0), tensor(arguments, 1)
    if source is None or weight is None or len(source.shape) != len(weight.shape) or len(source.shape) < 3:
        return None
    rank = len(source.shape) - 2
    geometry = geometry_of(
        arguments, rank, stride=stride, padding=padding, dilation=dilation, groups=groups, transposed=transposed
    )
    if geometry is None:
        return None
    outputs = _outputs(arguments, source, weight, geometry, output_padding)
    channels = weight.shape[1] * geometry.groups if geometry.transposed else weight.shape[0]
    written = source.shape[0] * channels * math.prod(outputs) * source.item_bytes
    extra = [tensor(arguments, place) for place in (bias, added) if place is not None]
    low, high = _flops(source, weight, outputs, geometry)
    moved = source.bytes + weight.bytes + written + sum(each.bytes for each in extra if each is not None)
    return Work(
        low_bytes=_read_at_least(source, weight, outputs, geometry) + moved - source.bytes,
        high_bytes=moved,
        access="stream",
        basis="input and weight read once, output written once; 2 flops a tap, the low end without padding",
        low_flops=low,
        high_flops=high,
        dtype=_dtype(source, facts),
    )


def _outputs(
    arguments: Sequence[Argument], source: Tensor, weight: Tensor, geometry: Geometry, output_padding: int | None
) -> tuple[int, ...]:
    sizes, kernel = source.shape[2:], weight.shape[2:]
    if not geometry.transposed:
        return output_sizes(sizes, kernel, geometry)
    more = _expanded(integers(arguments, output_padding) if output_padding is not None else None, len(sizes), 0)
    given = zip(
        sizes, kernel, geometry.stride, geometry.padding, geometry.dilation, more or (0,) * len(sizes), strict=True
    )
    return tuple((size - 1) * step - 2 * pad + d * (k - 1) + extra + 1 for size, k, step, pad, d, extra in given)


def _read_at_least(source: Tensor, weight: Tensor, outputs: Sequence[int], geometry: Geometry) -> float:
    """Of the input: a kernel narrower than its stride leaves places unread."""
    if geometry.transposed:
        return source.bytes
    share = 1.0
    for size, k, out, step in zip(source.shape[2:], weight.shape[2:], outputs, geometry.stride, strict=True):
        share *= min(1.0, out * k / size) if k < step and size else 1.0
    return source.bytes * share


def _dtype(source: Tensor, facts: Facts) -> str:
    found = MATRIX_DTYPES.get(source.dtype, "")
    return "tf32" if found == "fp32" and facts.allows_tf32 else found


def backward(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """aten::convolution_backward: gradients of the input, of the weight, or both (of the bias: read along)."""
    gradient, source, weight = (tensor(arguments, place) for place in range(3))
    wanted = flags(arguments, 10)
    if gradient is None or source is None or weight is None or wanted is None or len(source.shape) < 3:
        return None
    if not len(source.shape) == len(weight.shape) == len(gradient.shape):
        return None
    geometry = geometry_of(arguments, len(source.shape) - 2, stride=4, padding=5, dilation=6, groups=9, transposed=7)
    if geometry is None:
        return None
    products = int(wanted[0]) + int(wanted[1])
    low, high = _flops(source, weight, gradient.shape[2:], geometry)
    of_input = weight.bytes + source.dense_bytes if wanted[0] else 0
    of_weight = source.bytes + weight.dense_bytes if wanted[1] else 0
    once = gradient.bytes + of_input + of_weight
    return Work(
        low_bytes=once - (source.bytes - _read_at_least(source, weight, gradient.shape[2:], geometry)) * wanted[1],
        high_bytes=once + (gradient.bytes if products == 2 else 0),
        access="stream",
        basis="gradient, input and weight read, their gradients written; the gradient read once or once a product",
        low_flops=products * low,
        high_flops=products * high,
        dtype=_dtype(source, facts),
    )


RULES: dict[str, Rule] = {
    "aten::cudnn_convolution": partial(convolution, padding=2, stride=3, dilation=4, groups=5),
    "aten::cudnn_convolution_relu": partial(convolution, bias=2, stride=3, padding=4, dilation=5, groups=6),
    "aten::cudnn_convolution_add_relu": partial(
        convolution, added=2, bias=4, stride=5, padding=6, dilation=7, groups=8
    ),
    "aten::cudnn_convolution_transpose": partial(
        convolution, padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    "aten::miopen_convolution": partial(convolution, bias=2, padding=3, stride=4, dilation=5, groups=6),
    "aten::convolution": partial(
        convolution, bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
    ),
    "aten::_convolution": partial(
        convolution, bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
    ),
    "aten::_conv_depthwise2d": partial(convolution, bias=3, stride=4, padding=5, dilation=6, groups=None),
    "aten::conv_depthwise3d": partial(convolution, bias=3, stride=4, padding=5, dilation=6, groups=None),
    "aten::_slow_conv2d_forward": partial(convolution, bias=3, stride=4, padding=5, dilation=None, groups=None),
    "aten::convolution_backward": backward,
}
