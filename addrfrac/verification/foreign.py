"""The one place where foreign code runs: what it raises becomes a value, whatever it is."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that foreign code let out."""

    type: str
    text: str
    where: str
    """The last lines of its traceback."""


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns, or a `Raised`; SystemExit and KeyboardInterrupt are no way out."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  (foreign code may raise anything)
        where = "".join(traceback.format_exception(error)[-3:])
        return Raised(type=type(error).__name__, text=str(error)[:500], where=where[-1500:])


def load_source(text: str, folder: Path, name: str) -> ModuleType:
    """Import source text under a neutral name from the worker's own folder (Triton reads its kernels from a file)."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_named(name: str) -> ModuleType:
    """Import an installed module."""
    return importlib.import_module(name)
