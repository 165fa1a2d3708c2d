"""Whether an output is what the reference returns, before anybody looks at its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from addrfrac.verification.records import Status
from addrfrac.verification.reference import Output
from addrfrac.work.tensors import contiguous

if TYPE_CHECKING:
    import torch


def compare_schema(
    candidate: Output, reference: Output, *, given: Sequence[torch.Tensor] | None = None
) -> tuple[Status, str] | None:
    """The first difference in container, count, type, attributes, shape, dtype, device, strides, storage or aliases.

    `given` is what the model was called with and holds (arguments, parameters, buffers): a layout that one of them has
    is the caller's wish. None: strides are not compared.
    """
    if _containers(candidate.tree) != _containers(reference.tree):
        return Status.WRONG_SCHEMA, f"returns {_outline(candidate)}, the reference {_outline(reference)}"
    if len(candidate.infos) != len(reference.infos):
        return Status.WRONG_SCHEMA, f"{len(candidate.infos)} tensors, the reference {len(reference.infos)}"
    for index, (mine, theirs) in enumerate(zip(candidate.infos, reference.infos, strict=True)):
        problem = _facts_differ(mine, theirs)
        if not problem and given is not None and _layouts_differ(mine, theirs, given):
            problem = f"strides {mine['strides']}, not {theirs['strides']}: the next consumer pays for the layout"
        if problem:
            return Status.WRONG_SCHEMA, f"output {index}: {problem}"
        aliases = set(mine.get("overlaps", [])) - set(theirs.get("overlaps", []))
        if aliases:
            return Status.ALIASED, f"output {index} shares memory with {sorted(aliases)[0]}"
    if len(candidate.tensors) != len(candidate.infos):
        return Status.WRONG_SCHEMA, "not every output has bytes"
    for index, (tensor, info) in enumerate(zip(candidate.tensors, reference.infos, strict=True)):
        if list(tensor.shape) != list(info["shape"]) or str(tensor.dtype) != f"torch.{info['dtype']}":
            return Status.TAMPERED, f"output {index}: its bytes are not what its schema says"
    return None


def other_layout(candidate: Output, reference: Output) -> bool:
    """Whether an output that is accepted lies otherwise than the reference's."""
    return any(_strides(a) != _strides(b) for a, b in zip(candidate.infos, reference.infos, strict=True))


def _layouts_differ(mine: dict[str, Any], theirs: dict[str, Any], given: Sequence[torch.Tensor]) -> bool:
    """Whether the output lies in memory otherwise than it should.

    Row-major is right as well where the reference's order of dimensions is its library's own choice, as that of
    attention on a GPU is; an order that something given has (channels-last) must be kept.
    """
    if _strides(mine) == _strides(theirs):
        return False
    row_major = _strides(mine) == _strides({"shape": mine["shape"], "strides": contiguous(mine["shape"])})
    return not row_major or any(_same_order(tensor, theirs) for tensor in given)


def _strides(info: dict[str, Any]) -> list[int]:
    """Of dimensions that are longer than one: the others' mean nothing."""
    return [stride for length, stride in zip(info["shape"], info["strides"], strict=True) if length > 1]


def _same_order(tensor: torch.Tensor, info: dict[str, Any]) -> bool:
    """Whether the tensor's dimensions follow each other in memory as the output's do, and not row by row."""
    if tensor.ndim != len(info["shape"]):
        return False
    both = [i for i, length in enumerate(info["shape"]) if length > 1 and tensor.shape[i] > 1]
    order = sorted(both, key=lambda i: -tensor.stride()[i])
    return order == sorted(both, key=lambda i: -info["strides"][i]) != both


def _facts_differ(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    if not mine.get("plain"):
        return f"a {mine.get('type')}, not a plain tensor"
    if mine.get("type") != theirs.get("type"):
        return f"a {mine.get('type')}, not a {theirs.get('type')}"
    if mine.get("attributes"):
        return f"carries attributes {mine['attributes']}"
    for key, word in (("shape", "shape"), ("dtype", "dtype"), ("device", "device")):
        if mine.get(key) != theirs.get(key):
            return f"{word} {mine.get(key)}, not {theirs.get(key)}"
    if mine.get("slot") is None:
        return "its storage does not hold its elements"
    if mine.get("conj") != theirs.get("conj"):
        return "lazily conjugated or negated"
    return ""


def _containers(tree: Any) -> Any:
    """The tree with tensors and numbers marked as such; plain numbers are compared too."""
    if isinstance(tree, dict):
        if "t" in tree:
            return "tensor"
        if "d" in tree and isinstance(tree["d"], list):
            return {
                "d": [
                    [pair[0] if isinstance(pair[0], str) else _key(pair[0]), _containers(pair[1])] for pair in tree["d"]
                ]
            }
        return {key: _containers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_containers(item) for item in tree]
    return tree


def _key(tree: Any) -> str:
    return repr(tree.get("v")) if isinstance(tree, dict) else str(tree)


def _outline(output: Output) -> str:
    tree = output.tree
    if isinstance(tree, dict) and "t" in tree:
        return "a tensor"
    if isinstance(tree, dict) and "other" in tree:
        return f"a {tree['other']}"
    return f"{len(output.infos)} tensors in a container"
