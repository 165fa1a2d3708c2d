"""Random values for parameters and buffers, and how a candidate's are matched with the reference's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One parameter or buffer."""

    name: str
    kind: str
    """'parameter' or 'buffer'."""
    value: torch.Tensor


def randomised(entries: list[Entry], generator: torch.Generator) -> list[torch.Tensor]:
    """New values of the same scale: weights around their spread, constants off their identity, variances positive.

    A buffer that is no constant (a mask, a table of angles) keeps its value: a kernel may know it by its meaning.
    """
    return [_redraw(entry, generator) for entry in entries]


def _redraw(entry: Entry, generator: torch.Generator) -> torch.Tensor:
    value = entry.value
    if not value.is_floating_point() or value.numel() == 0 or not bool(torch.isfinite(value).all()):
        return value.clone()
    constant = bool((value == value.flatten()[0]).all())
    if entry.kind == "buffer" and not constant:
        return value.clone()
    if entry.kind == "buffer" and float(value.flatten()[0]) > 0:
        drawn = torch.empty_like(value).uniform_(0.25, 4.0, generator=generator)
        if drawn.numel() > 2:  # one that hardly varies: there the constant beside it decides
            drawn.view(-1)[int(torch.randint(drawn.numel(), (1,), generator=generator))] = 0.02
        return drawn
    noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    if constant:
        return (value.double() + 0.5 * noise).to(value.dtype)
    spread = float(value.double().std()) if value.numel() > 1 else 0.5
    return (float(value.double().mean()) + 1.3 * spread * noise).to(value.dtype)


def coarse_values(entries: list[Entry], values: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Values of so few bits that rounding changes none: matrices rounded, vectors drawn as powers of two.

    A product of a matrix and a vector's element is then still exact, for kernels that fold a scale into a weight.
    """
    found = []
    for entry, value in zip(entries, values or [entry.value for entry in entries], strict=True):
        if not value.is_floating_point() or entry.kind == "buffer":
            found.append(value.clone())
        elif value.ndim > 1:
            found.append(value.bfloat16().to(value.dtype))
        else:
            power = torch.randint(-2, 2, value.shape, generator=generator)
            sign = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
            found.append((2.0**power * sign).to(value.dtype))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Which of the candidate's entries hold which of the reference's."""

    names: tuple[str, ...]
    """For each of the reference's entries the candidate's name; () where no mapping was found."""
    how: str
    """'by name', 'by order and shape', 'none needed' or 'none'."""

    @property
    def found(self) -> bool:
        """Whether values can be carried over."""
        return self.how in ("by name", "by order and shape")


def match(reference: list[Entry], candidate: list[Entry]) -> Mapping:
    """By name where all names and shapes agree, else by order where the sequence of shapes does."""
    if not reference:
        return Mapping(names=(), how="none needed")
    theirs = {entry.name: tuple(entry.value.shape) for entry in candidate}
    if all(theirs.get(entry.name) == tuple(entry.value.shape) for entry in reference):
        return Mapping(names=tuple(entry.name for entry in reference), how="by name")
    matched: list[str] = []
    for kind in ("parameter", "buffer"):
        ours = [entry for entry in reference if entry.kind == kind and entry.value.is_floating_point()]
        others = [entry for entry in candidate if entry.kind == kind and entry.value.is_floating_point()]
        if [tuple(e.value.shape) for e in ours] != [tuple(e.value.shape) for e in others]:
            return Mapping(names=(), how="none")
        matched += [entry.name for entry in others]
    return Mapping(names=tuple(matched), how="by order and shape")


def mapped_entries(reference: list[Entry], mapping: Mapping) -> list[Entry]:
    """The reference's entries in the order of `mapping.names`."""
    if mapping.how == "by name":
        return reference
    floating = [entry for entry in reference if entry.value.is_floating_point()]
    return [e for e in floating if e.kind == "parameter"] + [e for e in floating if e.kind == "buffer"]


@contextlib.contextmanager
def random_constants(seed: int | None) -> Iterator[None]:
    """While a model is built, initialisers that write constants draw random values instead, by shape and order.

    Two models that ask for the same constants of the same shapes in the same order get the same values, so a kernel
    with renamed or packed parameters can still be compared at parameters other than the identity.
    """
    if seed is None:
        yield
        return
    counts: dict[tuple[int, ...], int] = {}

    def noise(shape: tuple[int, ...]) -> torch.Tensor:
        counts[shape] = counts.get(shape, 0) + 1
        generator = torch.Generator().manual_seed((seed * 1_000_003 + counts[shape] * 7919 + hash(shape)) % (1 << 62))
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def fill(original: Any) -> Any:
        def initialise(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            with torch.no_grad():
                result = original(tensor, *args, **kwargs)
                if tensor.is_floating_point():
                    tensor.add_(0.5 * noise(tuple(tensor.shape)).to(tensor.dtype))
            return result  # type: ignore[no-any-return]

        return initialise

    def make(original: Any) -> Any:
        def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
            result = original(*args, **kwargs)
            if type(result) is torch.Tensor and result.is_floating_point() and result.numel():
                positive = original is torch_ones  # running variances are ones and must stay positive
                draw = noise(tuple(result.shape))
                result.add_((0.5 * draw.abs() if positive else 0.5 * draw).to(result.dtype))
            return result  # type: ignore[no-any-return]

        return factory

    torch_ones = torch.ones
    replaced = {
        (torch.nn.init, "ones_"): fill(torch.nn.init.ones_),
        (torch.nn.init, "zeros_"): fill(torch.nn.init.zeros_),
        (torch.nn.init, "constant_"): fill(torch.nn.init.constant_),
        (torch, "ones"): make(torch.ones),
        (torch, "zeros"): make(torch.zeros),
        (torch, "full"): make(torch.full),
    }
    originals = {key: getattr(*key) for key in replaced}
    for (space, name), function in replaced.items():
        setattr(space, name, function)
    try:
        yield
    finally:
        for (space, name), function in originals.items():
            setattr(space, name, function)
