"""How much of a real workload's GPU time can replacement kernels reach, and how much do they really win?"""

import importlib
from typing import Any

__version__ = "0.1.0"

_FROM = {"capture": "addrfrac.capture", "check_kernel": "addrfrac.verification", "substituted": "addrfrac.substitution"}
"""What users import from here -> the module that has it."""


def __getattr__(name: str) -> Any:
    """Loaded at its first use, so that importing the package stays instant."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_FROM[name])
    return module if name == "capture" else getattr(module, name)
