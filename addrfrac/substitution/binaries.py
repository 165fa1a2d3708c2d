"""A kernel that has run in, digests of the device binaries that Triton made of it out; none where it is interpreted."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

from addrfrac.substitution.pool import Kernel

LETTERS = 16


def of_kernel(kernel: Kernel) -> tuple[str, ...]:
    """Digests of every binary of the kernel in this process so far, sorted."""
    found = {digest for name in kernel.device_functions for digest in _of_function(_globals(kernel).get(name))}
    return tuple(sorted(found))


def _globals(kernel: Kernel) -> dict[str, Any]:
    """Names of the module that the launcher is of: a function's, or those of a solution's class."""
    own = getattr(kernel.launcher, "__globals__", None)
    if isinstance(own, dict):
        return own
    module = sys.modules.get(type(kernel.launcher).__module__)
    return vars(module) if module is not None else {}


def _of_function(function: Any) -> Iterator[str]:
    """Of a `triton.jit` function, under whatever tunes it."""
    while function is not None and not hasattr(function, "device_caches"):
        function = getattr(function, "fn", None)
        if not hasattr(function, "fn") and not hasattr(function, "device_caches"):
            return  # interpreted, or no kernel at all
    for cache in getattr(function, "device_caches", {}).values():
        made = cache[0] if isinstance(cache, tuple) and cache else cache
        for compiled in made.values() if isinstance(made, dict) else ():
            binary = getattr(compiled, "asm", {}).get("cubin")
            if binary:
                yield hashlib.sha256(binary).hexdigest()[:LETTERS]
