"""Arguments of ops that mostly move memory in, their bytes out: elementwise ops, copies, reductions, norms, pooling.

Operands of an elementwise op are counted apart, although a trace cannot tell whether two of them are one tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial

from addrfrac.work.record import Facts, Rule, Work
from addrfrac.work.tensors import (
    ITEM_BYTES,
    Argument,
    Tensor,
    TensorList,
    broadcast,
    flag,
    flags,
    integers,
    number,
    tensor,
    typed,
)

RANK = (
    "bool",
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "c10::BFloat16",
    "float",
    "double",
)
"""Element types from low to high, as far as promotion tells them apart."""


def moved(low: float, high: float | None = None, *, access: str = "stream", basis: str) -> Work:
    """Work that only moves bytes."""
    return Work(low_bytes=low, high_bytes=low if high is None else high, access=access, basis=basis)


def tensors(arguments: Sequence[Argument]) -> list[Tensor]:
    """The tensor arguments that are no wrapped numbers."""
    return [each for each in arguments if isinstance(each, Tensor)]


def promoted(operands: Sequence[Tensor]) -> str:
    """The element type of a result: the highest among operands with dimensions, else among all."""
    ranked = [each for each in operands if each.shape] or list(operands)
    known = [each.dtype for each in ranked if each.dtype in RANK]
    return max(known, key=RANK.index, default=ranked[0].dtype)


# --- elementwise --------------------------------------------------------------------------------------------


def elementwise(arguments: Sequence[Argument], facts: Facts, *, result: str = "") -> Work | None:
    """Every operand read once, the result written once; `result` names its element type where that is fixed."""
    operands = tensors(arguments)
    shape = broadcast([each.shape for each in operands]) if operands else None
    if shape is None:
        return None
    written = math.prod(shape) * ITEM_BYTES[result or promoted(operands)]
    return moved(sum(each.bytes for each in operands) + written, basis="operands read once, result written once")


def in_place(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """The first operand read and written, the others read."""
    operands = tensors(arguments)
    if not operands or not isinstance(arguments[0], Tensor):
        return None
    read = sum(each.bytes for each in operands)
    return moved(read + operands[0].bytes, basis="operands read once, the first written in place")


def masked_in_place(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """The mask read; of the tensor none to all read and written."""
    target, mask = tensor(arguments, 0), tensor(arguments, 1)
    if target is None or mask is None:
        return None
    value = tensor(arguments, 2)
    high = mask.bytes + 2 * target.bytes + (value.bytes if value is not None else 0)
    return moved(mask.bytes, high, basis="mask read; none to all of the tensor written")


def fill(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """The tensor written."""
    target = tensor(arguments, 0)
    return None if target is None else moved(target.bytes, access="write", basis="tensor written once")


def produced(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """arange and the like: numbers in, the tensor written that stands last (its size may only be known afterwards)."""
    target = next((each for each in reversed(arguments) if isinstance(each, Tensor)), None)
    count = number(arguments, 1)
    if target is None:
        return None
    written = target.bytes or (abs(count) * target.item_bytes if count is not None else 0)
    return moved(0, written, access="write", basis="result written once")


def dropout(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Input read, result and a mask of a byte an element written."""
    source = tensor(arguments, 0)
    if source is None:
        return None
    return moved(source.bytes + source.dense_bytes + source.elements, basis="input read, result and mask written once")


# --- copies -------------------------------------------------------------------------------------------------


def copy(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """copy_(target, source): an expanded source is read where it is stored."""
    target, source = tensor(arguments, 0), tensor(arguments, 1)
    if target is None or source is None:
        return None
    if any(re.search(r"(HtoD|DtoH|Host)", name) for name in facts.kernels):
        return None
    order = "transpose" if _order(target) != _order(source) else "stream"
    return moved(source.bytes + target.bytes, access=order, basis="source read once where it is stored, target written")


def _order(one: Tensor) -> tuple[int, ...]:
    """Dimensions of more than one element from the outermost in memory to the innermost; expanded ones do not count."""
    real = [i for i, (size, stride) in enumerate(zip(one.shape, one.strides, strict=True)) if size > 1 and stride]
    return tuple(sorted(real, key=lambda i: (-one.strides[i], i)))


def concatenate(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Every tensor of the list read, the whole written; the kernel's name tells the element's bytes."""
    listed = arguments[0] if arguments else None
    item = list_item_bytes(facts.kernels)
    if not isinstance(listed, TensorList) or not listed.recorded or item is None:
        return None
    stored = sum(typed(each, "bool").bytes for each in listed.tensors)
    whole = sum(each.elements for each in listed.tensors)
    return moved(
        (stored + whole) * item, basis="every part read once, the whole written; element size from the kernel's name"
    )


OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
FUNCTOR = re.compile(r"Functor<([\w:]+(?:<\w+>)?), (\d+), (\d+), (\d+)>")
CPP_BYTES = {**ITEM_BYTES, "long": 8, "__half": 2, "__nv_bfloat16": 2}


def list_item_bytes(kernels: Sequence[str]) -> int | None:
    """Bytes of an element of a list's tensors, from the template arguments of the kernel that went over it."""
    for name in kernels:
        if found := OPAQUE.search(name):
            return int(found[1])
        if found := FUNCTOR.search(name):
            return CPP_BYTES.get(found[1])
    return None


CHUNKS_A_LAUNCH = 320 * 65536
"""Elements that one launch of ATen's multi_tensor_apply can reach (MultiTensorApply.cuh: blocks x chunk size)."""


def over_lists(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """A `_foreach_` op: the functor's template tells how many lists are read (one is written) and the element type.

    Lists of more than thirty tensors are not recorded: then they hold at most all parameters, and at most what the
    launches can reach.
    """
    functor = next((found for name in facts.kernels if (found := FUNCTOR.search(name))), None)
    item = list_item_bytes(facts.kernels)
    lists = [each for each in arguments if isinstance(each, TensorList)]
    if functor is None or item is None or not lists:
        return None
    read, listed = int(functor[3]), lists[0]
    if listed.recorded:
        elements = sum(each.elements for each in listed.tensors)
        basis = f"{read} lists read once, one written"
        return moved(elements * item * (read + 1), basis=basis)
    if facts.parameters is None:
        return None
    most = min(facts.parameters, CHUNKS_A_LAUNCH * len(facts.kernels)) * item * (read + 1)
    return moved(
        0, most, basis=f"{read} lists read, one written; lists over 30 tensors are not recorded: at most all parameters"
    )


def fused_optimizer(arguments: Sequence[Argument], facts: Facts, *, read: int, written: int) -> Work | None:
    """A fused optimizer: so many lists read and written, each as large as the parameters."""
    listed = arguments[0] if arguments else None
    item = next(
        (CPP_BYTES[kind] for name in facts.kernels for kind in FUSED_TYPE.findall(name) if kind in CPP_BYTES), None
    )
    if not isinstance(listed, TensorList) or item is None:
        return None
    basis = f"{read} lists read, {written} written"
    if listed.recorded:
        return moved(sum(each.elements for each in listed.tensors) * item * (read + written), basis=basis)
    if facts.parameters is None:
        return None
    most = min(facts.parameters, CHUNKS_A_LAUNCH * len(facts.kernels)) * item * (read + written)
    return moved(0, most, basis=f"{basis}; lists over 30 tensors are not recorded: at most all parameters")


FUSED_TYPE = re.compile(r"Fused\w+Functor<([\w:]+)")


# --- reductions, normalisations -----------------------------------------------------------------------------


def reduction(arguments: Sequence[Argument], facts: Facts, *, results: int = 1) -> Work | None:
    """The input read once; the result is what its dimensions leave, where they were recorded."""
    source = tensor(arguments, 0)
    if source is None:
        return None
    over = integers(arguments, 1)
    if over is None:
        single = number(arguments, 1)
        over = (
            (int(single),) if single is not None and single == int(single) and abs(single) <= len(source.shape) else ()
        )
    lost = (
        math.prod(source.shape[i] for i in over if -len(source.shape) <= i < len(source.shape))
        if over
        else source.elements
    )
    left = source.elements // max(lost, 1)
    return moved(
        source.bytes + results * left * min(source.item_bytes, 2),
        access="reduce",
        basis="input read once, result written",
    )


def row_wise(
    arguments: Sequence[Argument], facts: Facts, *, first: int = 0, read: int = 1, widened: int | None = None
) -> Work | None:
    """Softmax, layer norm, scan and their gradients: `read` tensors of the input's size read, one written.

    `widened`: place of the flag by which a 16-bit input gives an fp32 result.
    """
    source = tensor(arguments, first)
    if source is None:
        return None
    others = tensors(arguments)[1:]
    item = 4 if widened is not None and flag(arguments, widened) else source.item_bytes
    total = source.bytes + sum(each.bytes for each in others) + source.elements * item
    return moved(total, basis="inputs read once, result written once")


def layer_norm(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Also native_layer_norm and RMS norms: input, weight and bias read, result written (statistics are small)."""
    source = tensor(arguments, 0)
    if source is None:
        return None
    read = sum(each.bytes for each in tensors(arguments))
    return moved(read + source.dense_bytes, basis="input and parameters read once, result written once")


def norm_backward(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Gradient, input and statistics read, the input's gradient written; those of the parameters are small."""
    gradient, source = tensor(arguments, 0), tensor(arguments, 1)
    if gradient is None or source is None:
        return None
    read = sum(each.bytes for each in tensors(arguments))
    wanted = next((found for place in range(5, len(arguments)) if (found := flags(arguments, place))), (True,))
    written = source.dense_bytes if wanted[0] else 0
    return moved(read + written, basis="gradient and input read once, the input's gradient written")


def batch_norm(arguments: Sequence[Argument], facts: Facts, *, training: int) -> Work | None:
    """In training the statistics come first: a second pass over the input unless it stays on the chip."""
    source = tensor(arguments, 0)
    if source is None:
        return None
    least = sum(each.bytes for each in tensors(arguments)) + source.dense_bytes
    if flag(arguments, training) is False:
        return moved(least, basis="input and parameters read once, result written once")
    return moved(least, least + source.bytes, basis="input read once or twice (statistics first), result written once")


def batch_norm_backward(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Gradient and input read for the sums and again for the gradient, unless they stay on the chip."""
    gradient, source = tensor(arguments, 0), tensor(arguments, 1)
    if gradient is None or source is None:
        return None
    least = sum(each.bytes for each in tensors(arguments)) + source.dense_bytes
    high = least + gradient.bytes + source.bytes
    return moved(least, high, basis="gradient and input read once or twice (sums first), gradient written once")


# --- windows ------------------------------------------------------------------------------------------------


def pool(
    arguments: Sequence[Argument], facts: Facts, *, dilation: int | None, ceil: int, index_bytes: int
) -> Work | None:
    """Input read, result written, with the place of each maximum where those are kept."""
    source = tensor(arguments, 0)
    kernel = integers(arguments, 1)
    if source is None or not kernel or len(source.shape) <= len(kernel):
        return None
    rank = len(kernel)
    stride = integers(arguments, 2) or kernel
    padding = integers(arguments, 3) or (0,) * rank
    apart = (integers(arguments, dilation) if dilation is not None else None) or (1,) * rank
    stride, padding, apart = (each * rank if len(each) == 1 else each for each in (stride, padding, apart))
    up = bool(flag(arguments, ceil))
    places = 1
    for size, k, step, pad, d in zip(source.shape[-rank:], kernel, stride, padding, apart, strict=True):
        rest = size + 2 * pad - d * (k - 1) - 1
        places *= (-(-rest // step) if up else rest // step) + 1
    planes = math.prod(source.shape[:-rank])
    written = planes * places * (source.item_bytes + index_bytes)
    return moved(source.bytes + written, basis="input read once, result written once")


def window_backward(arguments: Sequence[Argument], facts: Facts, *, source: int = 1) -> Work | None:
    """Gradient (and indices) read, the gradient of the input written; the input itself need not be read."""
    gradient, shaped = tensor(arguments, 0), tensor(arguments, source)
    if gradient is None or shaped is None:
        return None
    read = sum(each.bytes for i, each in enumerate(arguments) if isinstance(each, Tensor) and i != source)
    return moved(read + shaped.elements * gradient.item_bytes, basis="gradient read once, the input's gradient written")


def resized(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Adaptive pooling and resampling: input read, an output of the size that the second argument says written.

    Nearest neighbours of a smaller output need not read all of the input.
    """
    source, sizes = tensor(arguments, 0), integers(arguments, 1)
    if source is None or not sizes or len(source.shape) <= len(sizes):
        return None
    written = math.prod(source.shape[: -len(sizes)]) * math.prod(sizes) * source.item_bytes
    return moved(
        min(source.bytes, written) + written, source.bytes + written, basis="input read once, result written once"
    )


# --- sorting ------------------------------------------------------------------------------------------------


def sort(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Values read, sorted values and their int64 places written: what any number of passes must move at least."""
    source = tensor(arguments, 0)
    if source is None:
        return None
    return moved(
        source.bytes + source.dense_bytes + 8 * source.elements, basis="values read once, values and places written"
    )


def top(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """topk(self, k): values read, k values and places a row written."""
    source, k = tensor(arguments, 0), number(arguments, 1)
    if source is None or k is None or not source.shape:
        return None
    rows = source.elements // max(source.shape[-1], 1)
    return moved(
        source.bytes + rows * k * (source.item_bytes + 8), access="reduce", basis="values read once, k a row written"
    )


def nll_loss(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """One value a target read."""
    source, target = tensor(arguments, 0), tensor(arguments, 1)
    if source is None or target is None:
        return None
    return moved(
        target.bytes + target.elements * source.item_bytes, access="gather", basis="targets and one value each read"
    )


def nll_loss_backward(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """Targets read, one place each written; the zeros around them are an op call of their own."""
    source, target = tensor(arguments, 1), tensor(arguments, 2)
    if source is None or target is None:
        return None
    written = target.elements * source.item_bytes
    return moved(target.bytes + written, access="gather", basis="targets read, one value each written")


def _ops(words: str) -> tuple[str, ...]:
    return tuple(f"aten::{word}" for word in words.split())


UNARY = _ops(
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 "
    "expm1 floor frac gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 "
    "log_sigmoid_forward mish nan_to_num neg reciprocal relu round rsqrt sgn sigmoid sign silu sin sinh softplus "
    "softshrink special_i0 sqrt square tan tanh threshold trunc celu selu positive clone"
)
BINARY = _ops(
    "add sub rsub mul div true_divide floor_divide fmod remainder pow maximum minimum atan2 copysign hypot lerp "
    "addcmul addcdiv bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift clamp clamp_min "
    "clamp_max where masked_fill logaddexp logit xlogy heaviside prelu mse_loss smooth_l1_loss huber_loss complex "
    "polar"
)
GRADIENTS = _ops(
    "threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward hardtanh_backward "
    "hardswish_backward hardsigmoid_backward leaky_relu_backward elu_backward softplus_backward mish_backward "
    "log_sigmoid_backward native_dropout_backward mse_loss_backward smooth_l1_loss_backward logit_backward "
    "glu_backward"
)
COMPARISONS = _ops("eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite signbit")
IN_PLACE = _ops(
    "add_ sub_ mul_ div_ floor_divide_ remainder_ fmod_ pow_ lerp_ addcmul_ addcdiv_ clamp_ clamp_min_ clamp_max_ "
    "relu_ silu_ sigmoid_ tanh_ gelu_ exp_ log_ sqrt_ rsqrt_ neg_ reciprocal_ abs_ floor_ round_ hardtanh_ "
    "hardswish_ hardsigmoid_ leaky_relu_ elu_ threshold_ bitwise_and_ bitwise_or_ logical_and_ eq_ ne_ "
    "nan_to_num_ square_ sin_ cos_ erf_ tril_ triu_ copysign_"
)
FILLS = _ops("fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ cauchy_ log_normal_ geometric_")
REDUCTIONS = _ops(
    "sum mean amax amin prod any all norm linalg_vector_norm logsumexp var std argmax argmin nansum count_nonzero"
)
SCANS = _ops("cumsum cumprod logcumsumexp flip roll tril triu")

RULES: dict[str, Rule] = {
    **dict.fromkeys((*UNARY, *BINARY, *GRADIENTS), elementwise),
    **{name: partial(elementwise, result="bool") for name in COMPARISONS},
    **dict.fromkeys(IN_PLACE, in_place),
    **dict.fromkeys(FILLS, fill),
    **dict.fromkeys(REDUCTIONS, reduction),
    "aten::max": partial(reduction, results=2),
    "aten::min": partial(reduction, results=2),
    "aten::var_mean": partial(reduction, results=2),
    "aten::std_mean": partial(reduction, results=2),
    **dict.fromkeys(SCANS, row_wise),
    "aten::arange": produced,
    "aten::linspace": produced,
    "aten::masked_fill_": masked_in_place,
    "aten::masked_scatter_": masked_in_place,
    "aten::native_dropout": dropout,
    "aten::copy_": copy,
    "aten::cat": concatenate,
    "aten::_softmax": partial(row_wise, widened=2),
    "aten::_log_softmax": partial(row_wise, widened=2),
    "aten::_softmax_backward_data": row_wise,
    "aten::_log_softmax_backward_data": row_wise,
    "aten::_masked_softmax": row_wise,
    "aten::native_layer_norm": layer_norm,
    "aten::native_group_norm": layer_norm,
    "aten::_fused_rms_norm": layer_norm,
    "aten::native_layer_norm_backward": norm_backward,
    "aten::native_group_norm_backward": norm_backward,
    "aten::_fused_rms_norm_backward": norm_backward,
    "aten::native_batch_norm": partial(batch_norm, training=5),
    "aten::_native_batch_norm_legit": partial(batch_norm, training=5),
    "aten::cudnn_batch_norm": partial(batch_norm, training=5),
    "aten::miopen_batch_norm": partial(batch_norm, training=5),
    "aten::native_batch_norm_backward": batch_norm_backward,
    "aten::cudnn_batch_norm_backward": batch_norm_backward,
    "aten::miopen_batch_norm_backward": batch_norm_backward,
    "aten::batch_norm_backward": batch_norm_backward,
    "aten::max_pool2d_with_indices": partial(pool, dilation=4, ceil=5, index_bytes=8),
    "aten::max_pool3d_with_indices": partial(pool, dilation=4, ceil=5, index_bytes=8),
    "aten::avg_pool2d": partial(pool, dilation=None, ceil=4, index_bytes=0),
    "aten::avg_pool3d": partial(pool, dilation=None, ceil=4, index_bytes=0),
    "aten::max_pool2d_with_indices_backward": window_backward,
    "aten::max_pool3d_with_indices_backward": window_backward,
    "aten::avg_pool2d_backward": window_backward,
    "aten::_adaptive_avg_pool2d_backward": window_backward,
    "aten::_adaptive_avg_pool2d": resized,
    "aten::upsample_nearest2d": resized,
    "aten::_upsample_nearest_exact2d": resized,
    "aten::upsample_bilinear2d": resized,
    "aten::upsample_bicubic2d": resized,
    "aten::_upsample_bilinear2d_aa": resized,
    "aten::sort": sort,
    "aten::topk": top,
    "aten::nll_loss_forward": nll_loss,
    "aten::nll_loss2d_forward": nll_loss,
    "aten::nll_loss_backward": nll_loss_backward,
    "aten::nll_loss2d_backward": nll_loss_backward,
    "aten::_fused_adam_": partial(fused_optimizer, read=4, written=3),
    "aten::_fused_adamw_": partial(fused_optimizer, read=4, written=3),
    "aten::_fused_sgd_": partial(fused_optimizer, read=2, written=1),
    "aten::_fused_adagrad_": partial(fused_optimizer, read=3, written=2),
}

ELEMENTWISE = frozenset((*UNARY, *BINARY, *GRADIENTS, *COMPARISONS, *IN_PLACE)) | {
    "aten::masked_fill_",
    "aten::native_dropout",
    "aten::copy_",
    "aten::_to_copy",
}
"""Ops that need of each operand only the element they write: they can run inside the kernel before or after them."""
OVERWRITES = frozenset((*FILLS, "aten::copy_"))
"""In-place ops that do not read what they write."""
