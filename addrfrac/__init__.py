"""How much of a real workload's GPU time can replacement kernels reach, and how much do they really win?"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What users import from here is loaded at its first use, so that importing the package stays instant."""
    if name == "capture":
        import importlib

        return importlib.import_module("addrfrac.capture")
    if name == "check_kernel":
        from addrfrac.verification import check_kernel

        return check_kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
