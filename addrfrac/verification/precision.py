"""Rounding to a precision class, and a mode in which a model computes in fp64 whatever it asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "tf32": 2.0**-10}
_LOW = (torch.float32, torch.float16, torch.bfloat16)


def round_tensor(values: torch.Tensor, how: str, generator: torch.Generator, dtype: str) -> torch.Tensor:
    """fp64 values rounded to a class: 'exact', 'tf32', 'half' (bfloat16), or 'nudged' by about one ulp of `dtype`."""
    if how == "exact" or not values.is_floating_point():
        return values
    if how == "half":
        return values.bfloat16().double()
    if how == "tf32":
        bits = values.float().contiguous().view(torch.int32)
        rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()
        return torch.where(torch.isfinite(values), rounded, values)
    noise = torch.rand(values.shape, generator=generator, dtype=torch.float64).to(values.device) * 2 - 1
    return values * (1 + noise * EPSILON.get(dtype, 2.0**-23))


_DRAWS = frozenset({torch.rand, torch.randn, torch.normal})
_DRAWS_LIKE = frozenset({torch.rand_like, torch.randn_like})


class _Promote(TorchFunctionMode):
    """Every request for a smaller floating dtype is answered with fp64; random numbers are drawn natively."""

    def __init__(self, native: torch.dtype) -> None:
        super().__init__()
        self.native = native

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            return args[0].double()
        if function is torch.Tensor.view and isinstance(args[-1], torch.dtype) and not args[0].is_floating_point():
            return function(*args).double()  # bits are read as what they are, and widened afterwards
        if function in _DRAWS:
            return function(*args, **{**(kwargs or {}), "dtype": self.native}).double()
        if function in _DRAWS_LIKE:
            kwargs = {k: v for k, v in (kwargs or {}).items() if k != "dtype"}
            return function(args[0].to(self.native), *args[1:], **kwargs).double()
        args = tuple(torch.float64 if isinstance(a, torch.dtype) and a in _LOW else a for a in args)
        kwargs = {
            k: torch.float64 if isinstance(v, torch.dtype) and v in _LOW else v for k, v in (kwargs or {}).items()
        }
        return function(*args, **kwargs)


@contextlib.contextmanager
def truth_mode(native: torch.dtype) -> Iterator[None]:
    """fp64 by default and by force, for the reference's own process only."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Promote(native):
            yield
    finally:
        torch.set_default_dtype(before)
