"""Whether an output is what the reference returns, before anybody looks at its numbers."""

from __future__ import annotations

from typing import Any

from addrfrac.verification.records import Status
from addrfrac.verification.reference import Output


def compare_schema(candidate: Output, reference: Output, *, strides: bool = True) -> tuple[Status, str] | None:
    """The first difference in container, count, type, attributes, shape, dtype, device, strides, storage or aliases."""
    if _containers(candidate.tree) != _containers(reference.tree):
        return Status.WRONG_SCHEMA, f"returns {_outline(candidate)}, the reference {_outline(reference)}"
    if len(candidate.infos) != len(reference.infos):
        return Status.WRONG_SCHEMA, f"{len(candidate.infos)} tensors, the reference {len(reference.infos)}"
    for index, (mine, theirs) in enumerate(zip(candidate.infos, reference.infos, strict=True)):
        problem = _facts_differ(mine, theirs, strides)
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


def _facts_differ(mine: dict[str, Any], theirs: dict[str, Any], strides: bool) -> str:
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
    sized = [i for i, n in enumerate(mine["shape"]) if n > 1]  # strides of single elements mean nothing
    if strides and [mine["strides"][i] for i in sized] != [theirs["strides"][i] for i in sized]:
        return f"strides {mine['strides']}, not {theirs['strides']}: the next consumer pays for the layout"
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
