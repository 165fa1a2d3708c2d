"""What a profiler recorded of an op's arguments in, tensors and numbers out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from addrfrac.records import OpInputs

ITEM_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "long long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "unsigned int": 4,
    "unsigned short": 2,
    "unsigned long": 8,
}
"""Names of element types as Kineto writes them (C++ type names) -> bytes of an element."""
MATRIX_DTYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
}
"""Element types of a matrix product -> names of a device model's peaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor argument."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; contiguous where none were recorded."""
    dtype: str
    """As recorded."""

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def dense_bytes(self) -> int:
        """As a tensor of its own, without repeated elements."""
        return self.elements * self.item_bytes

    @property
    def bytes(self) -> int:
        """That lie in memory: an expanded dimension is stored once, overlapping windows too."""
        if not self.elements:
            return 0
        stored = math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)
        span = 1 + sum((size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides, strict=True))
        return min(stored, span) * self.item_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorList:
    """A list of tensors; the profiler leaves out those of more than thirty."""

    tensors: tuple[Tensor, ...]
    recorded: bool


Argument = Tensor | TensorList | str | None
"""A number or list of numbers stays the text that was recorded; None where the argument was left out."""


class UnreadableArguments(ValueError):
    """Inputs that are not of the form the profiler writes."""


def read_arguments(inputs: OpInputs) -> tuple[Argument, ...]:
    """The arguments in the op's order. Raises UnreadableArguments for anything but lists of one length."""
    dims, types = _loaded(inputs.dims), _loaded(inputs.types)
    strides, concrete = _loaded(inputs.strides), _loaded(inputs.concrete)
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        raise UnreadableArguments("dims and types do not go together")
    strides = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
    concrete = concrete if isinstance(concrete, list) and len(concrete) == len(dims) else [""] * len(dims)
    return tuple(_argument(*each) for each in zip(dims, types, strides, concrete, strict=True))


def _loaded(text: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableArguments(str(error)) from error


def _argument(dims: Any, kind: Any, strides: Any, concrete: Any) -> Argument:
    if kind in ITEM_BYTES and _is_shape(dims):
        return _tensor(dims, kind, strides)
    if isinstance(dims, list) and dims and all(_is_shape(each) for each in dims) and isinstance(kind, str):
        # Lists name no element type; see `typed`.
        laid_out = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        tensors = tuple(_tensor(each, "", stride) for each, stride in zip(dims, laid_out, strict=True))
        return TensorList(tensors=tensors, recorded=True)
    if kind == "TensorList":
        return TensorList(tensors=(), recorded=False)
    return concrete if isinstance(concrete, str) and concrete else None


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and all(isinstance(size, int) and size >= 0 for size in dims)


def _tensor(dims: list[int], dtype: str, strides: Any) -> Tensor:
    known = _is_shape(strides) and len(strides) == len(dims)
    return Tensor(shape=tuple(dims), strides=tuple(strides) if known else contiguous(dims), dtype=dtype)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def typed(tensor: Tensor, dtype: str) -> Tensor:
    """A list's tensor with the element type that its op's other facts imply."""
    return Tensor(shape=tensor.shape, strides=tensor.strides, dtype=dtype)


def tensor(arguments: Sequence[Argument], place: int) -> Tensor | None:
    """The tensor argument at a place; None where it was left out or is none."""
    found = arguments[place] if place < len(arguments) else None
    return found if isinstance(found, Tensor) else None


def number(arguments: Sequence[Argument], place: int) -> float | None:
    """The number at a place."""
    found = arguments[place] if place < len(arguments) else None
    try:
        return float(found) if isinstance(found, str) else None
    except ValueError:
        return None


def flag(arguments: Sequence[Argument], place: int) -> bool | None:
    """True or False at a place; None where it was not recorded."""
    found = arguments[place] if place < len(arguments) else None
    return {"True": True, "1": True, "False": False, "0": False}.get(found) if isinstance(found, str) else None


def integers(arguments: Sequence[Argument], place: int) -> tuple[int, ...] | None:
    """The list of whole numbers at a place, e.g. a stride '[2, 2]'."""
    found = arguments[place] if place < len(arguments) else None
    if not isinstance(found, str):
        return None
    try:
        listed = json.loads(found)
    except json.JSONDecodeError:
        return None
    return tuple(listed) if _is_integers(listed) else None


def _is_integers(listed: Any) -> bool:
    return isinstance(listed, list) and all(isinstance(each, int) for each in listed)


def flags(arguments: Sequence[Argument], place: int) -> tuple[bool, ...] | None:
    """The list of True and False at a place."""
    found = arguments[place] if place < len(arguments) else None
    if not isinstance(found, str) or not found.startswith("["):
        return None
    return tuple(word.strip() == "True" for word in found.strip("[]").split(","))


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that operands of these shapes give together; None where they do not fit."""
    rank = max((len(shape) for shape in shapes), default=0)
    whole = []
    for i in range(rank):
        sizes = {shape[len(shape) - rank + i] for shape in shapes if len(shape) - rank + i >= 0} - {1}
        if len(sizes) > 1:
            return None
        whole.append(sizes.pop() if sizes else 1)
    return tuple(whole)
