"""A kernel in, the torch operator that it enters a graph as out; calls are counted site by site.

An operator is opaque to every tracer and has a gradient: the kernel's own backward, its launcher's where that can be
differentiated, else the reference's, computed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from addrfrac.substitution.pool import Kernel

NAMESPACE = "addrfrac"
ALIGNMENT = 16
"""Bytes; Triton makes another binary for a pointer that is not a multiple of it."""

calls: Counter[int] = Counter()
"""Site number -> calls of its kernel in this process."""
fallbacks: Counter[int] = Counter()
"""Site number -> calls that ran the reference, because the arguments lay in memory as no verified ones did."""
frozen: dict[int, tuple[bool, ...]] = {}
"""Site number -> which of its tensor arguments were aligned when it was verified."""

_libraries: list[Any] = []
_made: dict[str, Any] = {}


def aligned(arguments: Sequence[Any]) -> tuple[bool, ...]:
    """Which of the tensor arguments begin at a multiple of `ALIGNMENT`."""
    return tuple(each.data_ptr() % ALIGNMENT == 0 for each in arguments if isinstance(each, torch.Tensor))


def operator_of(kernel: Kernel, arguments: Sequence[Any], outputs: int) -> Any:
    """The operator that calls the kernel with arguments of these kinds; its last argument is the site's number."""
    kinds = [_kind(each) for each in arguments]
    said = f"{kernel.name}_{kernel.sha256[:8]}_{'_'.join(kind[0] for kind in kinds)}".lower()
    name = re.sub(r"\W", "_", said if said[0].isalpha() else f"kernel_{said}")
    if name not in _made:
        _made[name] = _make(name, kernel, kinds, outputs)
    return _made[name]


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    kinds: dict[type, str] = {bool: "bool", int: "int", float: "float"}
    return kinds.get(type(value), "Tensor")


def _make(name: str, kernel: Kernel, kinds: Sequence[str], outputs: int) -> Any:
    """Define it: schema, kernel, shapes, gradient."""
    given = [f"{kind} a{number}" for number, kind in enumerate(kinds) if kind != "None"]
    returned = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    library.define(f"{name}({', '.join([*given, 'int site'])}) -> {returned}")

    def spread(values: Sequence[Any]) -> list[Any]:
        rest = iter(values)
        return [None if kind == "None" else next(rest) for kind in kinds]

    def launch(*values: Any) -> Any:
        *some, site = values
        expected = frozen.get(site)
        if expected is not None and aligned(some) != expected:
            fallbacks[site] += 1
            return _fresh(kernel.reference(*spread(some)), some)
        calls[site] += 1
        return kernel.launcher(*spread(some))

    def shapes(*values: Any) -> Any:
        return _fresh(kernel.reference(*spread(values[:-1])), values)

    library.impl(name, launch, "CPU")
    library.impl(name, launch, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{name}", shapes, lib=library)
    torch.library.register_autograd(f"{NAMESPACE}::{name}", _gradient(kernel, spread), setup_context=_keep, lib=library)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _fresh(result: Any, inputs: Sequence[Any]) -> Any:
    """An operator must not hand out its arguments."""
    if isinstance(result, tuple | list):
        return tuple(_fresh(each, inputs) for each in result)
    return result.clone() if any(result is each for each in inputs) else result


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.kept = tuple(None if isinstance(each, torch.Tensor) else each for each in inputs)
    ctx.save_for_backward(*(each if isinstance(each, torch.Tensor) else None for each in inputs))


def _gradient(kernel: Kernel, spread: Any) -> Any:
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        values = [tensor if tensor is not None else plain for tensor, plain in zip(saved, ctx.kept, strict=True)]
        wanted = [bool(each) for each in ctx.needs_input_grad]
        some = values[:-1]
        if kernel.backward is not None:
            found = iter(kernel.backward(gradients, *spread(some)))
            listed = [each for each, value in zip(found, spread(some), strict=True) if value is not None]
            return (*listed, None)
        return (*_recomputed(kernel, spread, some, wanted, gradients), None)

    return backward


def _recomputed(
    kernel: Kernel, spread: Any, values: Sequence[Any], wanted: Sequence[bool], gradients: Sequence[Any]
) -> list[Any]:
    """Gradients by running the launcher, or else the reference, once more where autograd sees it."""
    function = kernel.launcher if kernel.trains else kernel.reference
    with torch.enable_grad():
        leaves = [
            each.detach().requires_grad_(needs) if isinstance(each, torch.Tensor) else each
            for each, needs in zip(values, wanted, strict=False)
        ]
        result = function(*spread(leaves))
        results = result if isinstance(result, tuple | list) else (result,)
        pairs = [(each, gradient) for each, gradient in zip(results, gradients, strict=True) if gradient is not None]
        pairs = [(each, gradient) for each, gradient in pairs if each.requires_grad]
        asked = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
        found: dict[int, Any] = {}
        if pairs and asked:
            made = torch.autograd.grad(
                [each for each, _ in pairs], asked, [gradient for _, gradient in pairs], allow_unused=True
            )
            found = {id(each): gradient for each, gradient in zip(asked, made, strict=True)}
    return [found.get(id(each)) if isinstance(each, torch.Tensor) else None for each in leaves]
