"""The synthetic runs, by name, for every renderer test."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


_RUNS = _load("runs")


@pytest.fixture(scope="session")
def runs() -> ModuleType:
    """The module of run factories."""
    return _RUNS


@pytest.fixture(scope="session")
def make() -> Callable[[str], tuple[Any, ...]]:
    """name of a factory -> its run or runs, always as a tuple."""

    def made(name: str) -> tuple[Any, ...]:
        result = getattr(_RUNS, name)()
        return result if isinstance(result, tuple) else (result,)

    return made
