"""What to verify: problems and solutions as text or module names, found without importing either."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import re
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
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


def pairs(problem: Path, solution: Path, dtype: str = "") -> list[Target]:
    """A pair of files, or of folders: files of one name or of one number (`7_softmax.py`) belong together."""
    if problem.is_dir() and solution.is_dir():
        found, alone = _matched(_python_files(problem), _python_files(solution), dtype)
        if not found:
            raise AddrfracError(
                f"no file of {solution.name}/ belongs to one of {problem.name}/: give both the same name or number"
            )
        if alone:
            raise AddrfracError(f"no problem for {', '.join(alone[:4])} in {problem.name}/: add it or move them away")
        return found
    if problem.is_dir() or solution.is_dir():
        raise AddrfracError("--problem and --solution are two files or two folders")
    return [pair(problem, solution, dtype)]


def find_targets(targets: list[str], dtype: str = "") -> list[Target]:
    """Cases of each target: a kernel module (dotted, entry point, file) or a folder of modules or pairs."""
    found: list[Target] = []
    for target in targets:
        path = Path(target)
        if path.is_dir():
            found += _folder(path, dtype)
        elif path.suffix == ".py" or "/" in target:
            if not path.exists():
                raise AddrfracError(f"no file or folder {target}: give a .py file, a folder or a kernel's name")
            found += _module_cases(path.stem, read_source(path), dtype)
        else:
            found += _named(target, dtype)
    if not found:
        raise AddrfracError("nothing to verify: name a kernel module, a folder of pairs, or --problem and --solution")
    return found


def distinct(targets: list[Target]) -> list[Target]:
    """The same targets, names that occur again with a number behind them."""
    seen: dict[str, int] = {}
    named = []
    for target in targets:
        seen[target.name] = seen.get(target.name, 0) + 1
        count = seen[target.name]
        named.append(target if count == 1 else replace(target, name=f"{target.name} ({count})"))
    return named


def _named(name: str, dtype: str) -> list[Target]:
    points = {point.name: point.value.partition(":")[0] for point in entry_points(group="addrfrac.kernels")}
    module = points.get(name, name)
    spec = _spec(module) or _spec(f"addrfrac.kernels.{name}")
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        close = difflib.get_close_matches(name, points, n=1)
        hint = f"did you mean {close[0]}? `addrfrac kernels` lists all" if close else f"there are {', '.join(points)}"
        raise AddrfracError(f"no kernel {name!r}: {hint}; or give a .py file or a folder")
    return _module_cases(spec.name, Source(text=read_source(Path(spec.origin)).text, module=spec.name), dtype)


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _parsed(name: str, source: Source) -> ast.Module:
    try:
        return ast.parse(source.text)
    except SyntaxError as error:
        raise AddrfracError(f"{name} is not Python (line {error.lineno}: {error.msg}): mend it first") from error


def _cases_of(tree: ast.Module) -> list[ast.expr] | None:
    """The entries of a module's CASES as they are written; None where it has none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "CASES" for target in targets):
            value = getattr(node, "value", None)
            return list(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else [ast.Constant(value=None)]
    return None


def _case_name(case: ast.expr, index: int) -> str:
    keywords = case.keywords if isinstance(case, ast.Call) else []
    named = [k.value.value for k in keywords if k.arg == "name" and isinstance(k.value, ast.Constant)]
    return str(named[0]) if named else str(index)


def _module_cases(name: str, source: Source, dtype: str) -> list[Target]:
    """One target a case; the cases are counted in the text, not by importing it."""
    cases = _cases_of(_parsed(name, source))
    if cases is None:
        raise AddrfracError(
            f"{name} is no kernel module (no CASES): for a KernelBench pair use --problem and --solution"
        )
    short = name.rpartition(".")[2]
    return [
        Target(
            name=f"{short} {_case_name(case, index)}",
            problem=source,
            solution=source,
            case=index,
            dtype=dtype,
        )
        for index, case in enumerate(cases)
    ]


def _python_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if not path.name.startswith(("_", "."))]


def _number(path: Path) -> str:
    """'7' of `7_softmax.py` and of `level_1_problem_7_sample_0_kernel.py`; '' where there is none."""
    found = re.search(r"problem_0*(\d+)", path.stem) or re.match(r"0*(\d+)(?:_|$)", path.stem)
    return found.group(1) if found else ""


def _matched(problems: list[Path], solutions: list[Path], dtype: str) -> tuple[list[Target], list[str]]:
    """Pairs of one name or one number, and the names of solutions without a problem."""
    found, alone = [], []
    by_name = {path.stem: path for path in problems}
    numbers = [_number(path) for path in problems]
    by_number = {
        number: path for number, path in zip(numbers, problems, strict=True) if number and numbers.count(number) == 1
    }
    for solution in solutions:
        problem = by_name.get(solution.stem.removesuffix("_solution")) or by_number.get(_number(solution))
        if problem is None:
            alone.append(solution.name)
            continue
        found.append(
            Target(
                name=problem.stem if solution.stem.startswith(problem.stem) else solution.stem,
                problem=read_source(problem),
                solution=read_source(solution),
                dtype=dtype,
            )
        )
    return found, alone


def _folder(folder: Path, dtype: str) -> list[Target]:
    """Kernel modules, or pairs: `X.py` + `X_solution.py`, `X/problem.py` + `X/solution.py`, `problems/` + `solutions/`.

    In `problems/` and `solutions/` files of one name or of one number belong together.
    """
    found: list[Target] = []
    for problems in sorted(path for path in folder.rglob("problems") if path.is_dir()):
        solutions = problems.with_name("solutions")
        if solutions.is_dir():
            matched, alone = _matched(_python_files(problems), _python_files(solutions), dtype)
            if alone:
                raise AddrfracError(f"no problem for {', '.join(alone[:4])} in {problems}: add it or move them away")
            found += matched
    for solution in _python_files(folder):
        if solution.parent.name in ("problems", "solutions"):
            continue
        problem = None
        if solution.stem == "solution":
            problem, name = solution.with_name("problem.py"), solution.parent.name
        elif solution.stem.endswith("_solution"):
            name = solution.stem.removesuffix("_solution")
            problem = solution.with_name(f"{name}.py")
        if problem is not None and problem.exists():
            found.append(Target(name=name, problem=read_source(problem), solution=read_source(solution), dtype=dtype))
        elif problem is None and _cases_of(_parsed(solution.name, read_source(solution))) is not None:
            found += _module_cases(solution.stem, read_source(solution), dtype)
    if not found:
        raise AddrfracError(
            f"{folder} holds no kernel module and no pair: X.py with X_solution.py, X/problem.py with X/solution.py, "
            "or problems/ with solutions/"
        )
    return found
