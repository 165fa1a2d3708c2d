"""What to verify: problems and solutions as text or module names, found without importing either."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from addrfrac.errors import AddrfracError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One module: its text, and its dotted name where it must be imported by name."""

    text: str
    module: str = ""
    """'' loads the text under a neutral name."""

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One case to verify: a reference, a candidate, and which of the module's cases."""

    name: str
    problem: Source
    solution: Source
    case: int = 0
    dtype: str = ""
    """'' takes the problem's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemText:
    """What the problem's text says without running it."""

    constants: tuple[float, ...]
    promises: frozenset[str]
    """Structure of inputs that its words promise: 'triangular', 'symmetric', ..."""


_PROMISES = ("triangular", "symmetric", "diagonal", "sorted", "one-hot", "sparse", "causal")


def read_problem(source: Source) -> ProblemText:
    """Numeric constants and promises of a problem's text."""
    try:
        tree = ast.parse(source.text)
    except SyntaxError as error:
        raise AddrfracError(f"the problem is not Python (line {error.lineno}): mend it first") from error
    constants = {
        float(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    }
    lowered = source.text.lower()
    return ProblemText(constants=tuple(sorted(constants)), promises=frozenset(p for p in _PROMISES if p in lowered))


def read_source(path: Path) -> Source:
    """A file's text."""
    try:
        return Source(text=path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise AddrfracError(f"cannot read {path.name}: {error}") from error


def pair(problem: Path, solution: Path, dtype: str = "") -> Target:
    """A KernelBench-format pair."""
    return Target(name=solution.stem, problem=read_source(problem), solution=read_source(solution), dtype=dtype)


def find_targets(targets: list[str], dtype: str = "") -> list[Target]:
    """Cases of each target: a kernel module (dotted, entry point, file) or a folder of pairs."""
    found: list[Target] = []
    for target in targets:
        path = Path(target)
        if path.is_dir():
            found += _folder(path, dtype)
        elif path.suffix == ".py" and path.exists():
            found += _module_cases(path.stem, Source(text=path.read_text()), dtype)
        else:
            found += _named(target, dtype)
    if not found:
        raise AddrfracError("nothing to verify: name a kernel module, a folder of pairs, or --problem and --solution")
    return found


def _named(name: str, dtype: str) -> list[Target]:
    for point in entry_points(group="addrfrac.kernels"):
        if point.name == name:
            name = point.value.partition(":")[0]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        raise AddrfracError(f"no kernel {name!r}: give a module, an entry point of addrfrac.kernels, or a .py file")
    return _module_cases(name, Source(text=Path(spec.origin).read_text(), module=name), dtype)


def _module_cases(name: str, source: Source, dtype: str) -> list[Target]:
    """One target a case; the cases are counted in the text, not by importing it."""
    tree = ast.parse(source.text)
    names = [
        node
        for node in tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and target.id == "CASES"
    ]
    if not names:
        raise AddrfracError(
            f"{name} is no kernel module (no CASES): for a KernelBench pair use --problem and --solution"
        )
    value = getattr(names[0], "value", None)
    count = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else 1
    short = name.rpartition(".")[2]
    return [
        Target(name=f"{short}[{index}]", problem=source, solution=source, case=index, dtype=dtype)
        for index in range(count)
    ]


def _folder(folder: Path, dtype: str) -> list[Target]:
    """Pairs: `X.py` + `X_solution.py`, `X/problem.py` + `X/solution.py`, `problems/X.py` + `solutions/X.py`."""
    found = []
    for solution in sorted(folder.rglob("*.py")):
        candidates = []
        if solution.stem.endswith("_solution"):
            candidates.append(solution.with_name(solution.stem.removesuffix("_solution") + ".py"))
        if solution.stem == "solution":
            candidates.append(solution.with_name("problem.py"))
        if solution.parent.name == "solutions":
            candidates.append(solution.parent.parent / "problems" / solution.name)
        for problem in candidates:
            if problem.exists():
                name = solution.parent.name if solution.stem == "solution" else problem.stem
                found.append(
                    Target(name=name, problem=read_source(problem), solution=read_source(solution), dtype=dtype)
                )
    return found
