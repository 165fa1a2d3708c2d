"""Names, files and folders in, kernels out: launcher, reference and the cases it was written for.

Built-in kernels, those of installed packages (entry points `addrfrac.kernels`), a user's file or folder of kernel
modules, and solutions in KernelBench's format beside the problem that they solve (as `addrfrac extract` writes them).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from addrfrac.errors import AddrfracError

GROUP = "addrfrac.kernels"
AUTO = "auto"
SOLUTION = "_solution"
LIBRARY = "library_calls"
"""The name of torch's own calls among the kernels, for which `--kernels` can ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One candidate for sites."""

    name: str
    source: str
    """A dotted module, or the path of a file."""
    text: str
    """Of the module, for the digest and for what is verified."""
    launcher: Callable[..., Any]
    reference: Callable[..., Any]
    op: str
    bytes_moved: Callable[..., int] | None
    examples: tuple[Callable[[], Sequence[Any]], ...]
    """Arguments of each case, made on demand; patterns are traced from them."""
    backward: Callable[..., Any] | None = None
    """(gradients of the outputs, *arguments) -> a gradient or None for each argument."""
    trains: bool = False
    """The launcher can be differentiated itself."""
    is_stock: bool = False
    """A call of an installed library: no kernel was written."""
    problem: str = ""
    """Path of the problem that it solves, for KernelBench's format."""

    @property
    def sha256(self) -> str:
        """Digest of the module's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def device_functions(self) -> tuple[str, ...]:
        """Names of the Triton kernels in its text, as a trace shows them."""
        return tuple(re.findall(r"@triton\.jit[^\n]*\n(?:@[^\n]*\n)*\s*def\s+(\w+)", self.text))


def find_kernels(asked: str | Sequence[str] = AUTO) -> tuple[Kernel, ...]:
    """The kernels that are meant: 'auto' for all installed, else names, files and folders.

    Raises AddrfracError for a name that is none and for a file that holds no kernel.
    """
    wanted = [part for part in asked.split(",") if part] if isinstance(asked, str) else list(asked)
    found: list[Kernel] = []
    for name in wanted:
        if name == AUTO:
            found += [kernel for module in installed().values() for kernel in _of_module(module)]
        elif Path(name).exists() and (Path(name).is_dir() or name.endswith(".py")):
            found += _of_path(Path(name))
        else:
            found += _named(name)
    return tuple({kernel.sha256 + kernel.name: kernel for kernel in found}.values())


def installed() -> dict[str, str]:
    """Name -> dotted module of every installed kernel, built-in ones first; the library's own calls last."""
    import addrfrac.kernels

    names = [each.name for each in pkgutil.iter_modules(addrfrac.kernels.__path__) if not each.name.startswith("_")]
    found = {name: f"addrfrac.kernels.{name}" for name in sorted(names)}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point.value.partition(":")[0])
    found.setdefault(LIBRARY, f"addrfrac.substitution.{LIBRARY}")  # last: where nothing is timed, kernels come first
    return found


def _named(name: str) -> list[Kernel]:
    import difflib

    known = installed()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)};"
        raise AddrfracError(f"no kernel {name!r}: {hint} `addrfrac kernels` lists all; or give a .py file or a folder")
    found = _of_module(known[name])
    if not found:
        raise AddrfracError(f"{known[name]} is no kernel module: it has no SUBSTITUTE")
    return found


def _of_module(dotted: str) -> list[Kernel]:
    try:
        module = importlib.import_module(dotted)
    except ImportError as error:
        raise AddrfracError(
            f"kernel {dotted} cannot be loaded ({error}); reinstall or uninstall its package"
        ) from error
    return _kernels(module, dotted)


def _kernels(module: ModuleType, source: str) -> list[Kernel]:
    """What a kernel module's SUBSTITUTE names, one record or a tuple of them."""
    substitutes = getattr(module, "SUBSTITUTE", None)
    if substitutes is None:
        return []
    text = inspect.getsource(module)
    listed = substitutes if isinstance(substitutes, tuple) else (substitutes,)
    return [_kernel(module, each, source, text) for each in listed]


def _kernel(module: ModuleType, substitute: Any, source: str, text: str) -> Kernel:
    from addrfrac.verification.targets import make_inputs

    def example(case: Any) -> Callable[[], Sequence[Any]]:
        return lambda: make_inputs(case)

    is_stock = bool(getattr(module, "LIBRARY_CALLS", False))
    no_gradient = getattr(module, "NO_GRADIENT", ())
    cases = getattr(module, "CASES_OF", {}).get(substitute.launcher.__name__, getattr(module, "CASES", ()))
    return Kernel(
        name=substitute.launcher.__name__,
        source=source,
        text=text,
        launcher=substitute.launcher,
        reference=substitute.reference,
        op=str(substitute.op),
        bytes_moved=substitute.bytes_moved,
        examples=tuple(example(case) for case in cases),
        backward=getattr(substitute, "backward", None) or getattr(module, "backward", None),
        trains=bool(getattr(module, "TRAINS", False)) and substitute.launcher.__name__ not in no_gradient,
        is_stock=is_stock,
    )


def _of_path(path: Path) -> list[Kernel]:
    """Kernel modules and solutions of a file or of all files in a folder. Raises AddrfracError where there is none."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    found: list[Kernel] = []
    for file in files:
        if file.stem.endswith(SOLUTION):
            problem = file.with_name(file.stem.removesuffix(SOLUTION) + ".py")
            if not problem.is_file():
                raise AddrfracError(f"{file.name} has no problem {problem.name} beside it; put them in one folder")
            found.append(_solution(problem, file))
        elif not file.with_name(f"{file.stem}{SOLUTION}.py").is_file():
            module = load_file(file)
            found += _kernels(module, str(file.resolve()))
    if not found:
        raise AddrfracError(f"{path} holds no kernel: a module with SUBSTITUTE, or X.py with X{SOLUTION}.py beside it")
    return found


def _solution(problem: Path, solution: Path) -> Kernel:
    """A solution in KernelBench's format: its problem's Model is the pattern to find."""
    asked, answer = load_file(problem), load_file(solution)
    if not hasattr(asked, "Model") or not hasattr(answer, "ModelNew"):
        raise AddrfracError(f"{problem.name} defines no Model, or {solution.name} no ModelNew")
    initial = list(getattr(asked, "get_init_inputs", list)())
    return Kernel(
        name=solution.stem,
        source=str(solution.resolve()),
        text=solution.read_text(),
        launcher=answer.ModelNew(*initial),
        reference=asked.Model(*initial),
        op=str(getattr(asked, "OP", "other")),
        bytes_moved=None,
        examples=(getattr(asked, "get_inputs", partial(_hidden_inputs, problem)),),
        problem=str(problem.resolve()),
    )


def _hidden_inputs(problem: Path) -> Sequence[Any]:
    """The captured inputs of a problem that was written blind."""
    import torch

    found: Sequence[Any] = torch.load(problem.parent / ".inputs" / f"{problem.stem}.pt", weights_only=True)
    return found


def load_file(path: Path) -> ModuleType:
    """The module that a user's file makes. Raises AddrfracError where it cannot be loaded."""
    name = f"addrfrac_kernel_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise AddrfracError(f"{path}, line {error.lineno}: {error.msg}; correct the file") from error
    except ImportError as error:
        raise AddrfracError(f"{path} cannot be loaded ({error}); install what it needs") from error
    return module
