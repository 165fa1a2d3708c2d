"""What a worker may answer about a tensor; anything else is a sign of tampering."""

from __future__ import annotations

from typing import Any

import msgspec


class TensorFacts(msgspec.Struct, kw_only=True):
    """Schema of one output tensor as its process describes it."""

    type: str
    plain: bool
    slot: int | None = None
    attributes: list[str] = []
    device: str = ""
    shape: list[int] = []
    dtype: str = ""
    requires_grad: bool = False
    strides: list[int] = []
    storage_offset: int = 0
    storage_bytes: int = 0
    overlaps: list[str] = []
    conj: bool = False


def tensor_facts(raw: Any, tensors: int) -> list[dict[str, Any]]:
    """Checked facts of every tensor of an answer that brought `tensors` of them; `ValueError` where they do not fit."""
    try:
        facts = msgspec.convert(raw, list[TensorFacts])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    slots = [fact.slot for fact in facts if fact.slot is not None]
    if slots != list(range(tensors)):
        raise ValueError(f"{tensors} tensors came, {len(slots)} were announced")
    if any(len(f.shape) != len(f.strides) for f in facts if f.slot is not None):
        raise ValueError("shape and strides disagree")
    return [msgspec.to_builtins(fact) for fact in facts]
