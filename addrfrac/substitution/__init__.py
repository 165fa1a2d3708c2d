"""Verified kernels into a real model: capture, patterns and passes, sites, the swap and its proof.

Nothing is imported before it is asked for: the command line reaches this package without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from addrfrac.substitution.swap import Swap, substituted

__all__ = ["Swap", "substituted"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from addrfrac.substitution import swap

        return getattr(swap, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
