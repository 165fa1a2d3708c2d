"""AdamW over all parameters in one launch, with the clip by the global norm in one more.

m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p = (1 - lr decay) p - lr (m / c1) / (sqrt(v / c2) + eps), where
c = 1 - b^step and g is the gradient, scaled to the largest norm where all gradients together exceed it.

Moves parameter, gradient and both moments once and writes all but the gradient: 7 n elements; the norm reads the
gradients once more. Tensors stay where the optimizer has them: a table of distances from the first says where. A
program takes one chunk of one tensor; arithmetic in fp32 whatever the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

CHUNK, BLOCK = 16_384, 1024
KINDS = 4
"""Parameters, gradients, first and second moments."""


@triton.jit
def _square_kernel(first, table, partial, count, CHUNK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    chunk = tl.program_id(0)
    tensor = tl.load(table + 5 * count + 2 * chunk)
    begin = tl.load(table + 5 * count + 2 * chunk + 1)
    end = tl.minimum(begin + CHUNK, tl.load(table + 4 * count + tensor))
    gradient = first + tl.load(table + count + tensor)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        where = begin + start + tl.arange(0, BLOCK)
        value = tl.load(gradient + where, mask=where < end, other=0.0).to(tl.float32)
        total += value * value
    tl.store(partial + chunk, tl.sum(total, 0))


@triton.jit
def _adamw_kernel(  # type: ignore[no-untyped-def]
    first, table, steps, scale, count, rate, keep, rest1, rest2, log1, log2, eps,
    CLIPS: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    tensor = tl.load(table + 5 * count + 2 * chunk)
    begin = tl.load(table + 5 * count + 2 * chunk + 1)
    end = tl.minimum(begin + CHUNK, tl.load(table + 4 * count + tensor))
    parameter = first + tl.load(table + tensor)
    gradient = first + tl.load(table + count + tensor)
    moment = first + tl.load(table + 2 * count + tensor)
    square = first + tl.load(table + 3 * count + tensor)
    step = tl.load(steps + tensor).to(tl.float64)
    size = (rate / (1.0 - tl.exp2(step * log1))).to(tl.float32)  # 1 - b^step in fp64: at the first steps it is tiny
    root = tl.sqrt(1.0 - tl.exp2(step * log2)).to(tl.float32)
    factor = 1.0
    if CLIPS:
        factor = tl.load(scale)
    for start in range(0, CHUNK, BLOCK):
        where = begin + start + tl.arange(0, BLOCK)
        inside = where < end
        g = tl.load(gradient + where, mask=inside, other=0.0).to(tl.float32) * factor
        m = tl.load(moment + where, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(square + where, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(parameter + where, mask=inside, other=0.0).to(tl.float32) * keep
        m = m + (g - m) * rest1
        v = v + (g * g - v) * rest2
        p = p - size * m / (tl.sqrt(v) / root + eps)
        tl.store(moment + where, m.to(moment.dtype.element_ty), mask=inside)
        tl.store(square + where, v.to(square.dtype.element_ty), mask=inside)
        tl.store(parameter + where, p.to(parameter.dtype.element_ty), mask=inside)


def update(
    rate: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    largest_norm: float | None,
    steps: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    table: torch.Tensor,
) -> None:
    """One step in place, of tensors that `places` put into the table.

    `tensors`: all parameters, then gradients, first and second moments in the same order; `steps` counts this step,
    for each parameter, on the device.
    """
    count = len(tensors) // KINDS
    chunks = (table.numel() - 5 * count) // 2
    first, scale = tensors[0], steps
    if largest_norm is not None:
        partial = torch.empty(chunks, dtype=torch.float32, device=first.device)
        _square_kernel[(chunks,)](first, table, partial, count, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=4)
        scale = (largest_norm / (partial.sum().sqrt() + 1e-6)).clamp(max=1.0)
    _adamw_kernel[(chunks,)](
        first, table, steps, scale, count, rate, 1.0 - rate * decay, 1.0 - betas[0], 1.0 - betas[1],
        math.log2(betas[0]), math.log2(betas[1]), eps,
        CLIPS=largest_norm is not None, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip


def places(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Where tensors lie: distances from the first in elements, lengths, then tensor and begin of each chunk.

    Raises ValueError for what the kernel cannot do: other than four tensors a parameter, dense and of one dtype.
    """
    count = len(tensors) // KINDS
    first = tensors[0]
    kinds = [tensors[number * count : (number + 1) * count] for number in range(KINDS)]
    if not count or len(tensors) != KINDS * count or any(not each.numel() for each in tensors):
        raise ValueError("parameters, gradients and two moments, as many of each, none empty")
    if any(each.dtype != first.dtype or each.device != first.device or each.is_sparse for each in tensors):
        raise ValueError("dense tensors of one dtype on one device")
    # A gradient that lies as its parameter does is walked in the same order, whatever the layout.
    for parameter, *others in zip(*kinds, strict=True):
        if any(each.shape != parameter.shape or each.stride() != parameter.stride() for each in others):
            raise ValueError("gradients and moments that lie in memory as their parameters do")
        reach = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride(), strict=True))
        if reach + 1 != parameter.numel():
            raise ValueError("parameters without holes")
    width = first.element_size()
    away = [each.data_ptr() - first.data_ptr() for each in tensors]
    if any(each % width for each in away):
        raise ValueError("tensors a whole number of elements apart")
    sizes = [each.numel() for each in kinds[0]]
    chunks = [each for number, size in enumerate(sizes) for begin in range(0, size, CHUNK) for each in (number, begin)]
    return [*(each // width for each in away), *sizes, *chunks]


def adamw(
    rate: float, beta1: float, beta2: float, eps: float, decay: float, largest_norm: float, step: int, *given: Any
) -> tuple[torch.Tensor, ...]:
    """Parameters and moments after the step, in new tensors; `given` as `update` takes them, no clip at norm 0."""
    tensors = [each.clone(memory_format=torch.preserve_format) for each in given]
    table = torch.tensor(places(tensors), dtype=torch.int64, device=tensors[0].device)
    count = len(tensors) // KINDS
    steps = torch.full((count,), float(step), device=tensors[0].device)
    update(rate, (beta1, beta2), eps, decay, largest_norm or None, steps, tensors, table)
    return (*tensors[:count], *tensors[2 * count :])


def reference(
    rate: float, beta1: float, beta2: float, eps: float, decay: float, largest_norm: float, step: int, *given: Any
) -> tuple[torch.Tensor, ...]:
    """As torch writes it for one tensor after another."""
    count = len(given) // KINDS
    parameters, gradients, moments, squares = (given[n * count : (n + 1) * count] for n in range(KINDS))
    if largest_norm:
        norm = torch.stack([each.float().square().sum() for each in gradients]).sum().sqrt()
        scale = (largest_norm / (norm + 1e-6)).clamp(max=1.0)
        gradients = tuple(each * scale for each in gradients)
    moments = tuple(m + (g - m) * (1.0 - beta1) for m, g in zip(moments, gradients, strict=True))
    squares = tuple(v + (g * g - v) * (1.0 - beta2) for v, g in zip(squares, gradients, strict=True))
    size, root = rate / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)
    updated = (
        p * (1.0 - rate * decay) - size * m / (v.sqrt() / root + eps)
        for p, m, v in zip(parameters, moments, squares, strict=True)
    )
    return (*updated, *moments, *squares)


def bytes_moved(
    rate: float, beta1: float, beta2: float, eps: float, decay: float, largest_norm: float, step: int, *given: Any
) -> int:
    """All four read and three written; the gradients read once more for their norm."""
    elements = sum(each.numel() for each in given) // KINDS
    return int((2 * KINDS - 1 + bool(largest_norm)) * elements * given[0].element_size())


def _case(name: str, shapes: Sequence[tuple[int, ...]], largest_norm: float, step: int) -> Case:
    signed = [TensorCase(shape=shape) for shape in shapes]
    squares = [TensorCase(shape=shape, kind="positive") for shape in shapes]
    return Case(
        name=name,
        arguments=(1e-3, 0.9, 0.999, 1e-8, 0.01, largest_norm, step, *signed, *signed, *signed, *squares),
    )


CASES = (
    _case("first-3", ((64, 33), (7,), (1,)), 0.0, 1),
    _case("clipped-2", ((129, 130), (257,)), 0.5, 7),
    _case("loose-2", ((5, 3), (11,)), 1e6, 1000),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="AdamW of all parameters in one Triton launch and the clip by their global norm in one more",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=adamw, reference=reference, op="optimizer", bytes_moved=bytes_moved)
