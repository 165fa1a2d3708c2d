"""Arguments of kernels that a compiler generated in, the bytes of their tensors out.

A generated kernel's launch records its tensors in order, not which of them are read and which written, nor how much of
each: a kernel of n points reads all of a tensor at most, and of a larger one (a table, a slice) maybe only n elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from addrfrac.work.record import Facts, Work
from addrfrac.work.tensors import Argument, Tensor, number

PREFIX = "triton_"


def generated(name: str, arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """A Triton kernel of Inductor: its numel arguments stand behind its tensors."""
    operands = [each for each in arguments if isinstance(each, Tensor)]
    sizes = [size for place in range(len(arguments)) if (size := number(arguments, place)) is not None]
    if not operands:
        return None
    points = 1.0
    for size in sizes[:3]:
        points *= max(size, 1.0)
    if not sizes:
        points = float(max(each.elements for each in operands))
    touched = [min(each.bytes, points * each.item_bytes) for each in operands]
    largest = max(operands, key=lambda each: each.elements)
    in_place = min(largest.bytes, points * largest.item_bytes)
    alone = sum(each.elements == largest.elements for each in operands) == 1
    is_pointwise = name.startswith("triton_poi_") and len(operands) > 1
    # A pointwise kernel writes a tensor of its points: where only one is so large, it is read and written in place.
    once = sum(touched) + (in_place if is_pointwise and alone and largest.elements == points else 0)
    return Work(
        low_bytes=once,
        high_bytes=max(once, sum(touched) + in_place),
        access="stream" if name.startswith("triton_poi_") else "reduce",
        basis="every tensor of the generated kernel moved once; the largest maybe read and written in place",
    )
