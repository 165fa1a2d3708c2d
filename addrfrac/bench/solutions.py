"""Where solutions come from: the attempts that ship with the suite, or a folder of `ModelNew` files from anybody."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from addrfrac import dlrm_bench
from addrfrac.bench.records import Solution
from addrfrac.dlrm_bench import Problem
from addrfrac.errors import AddrfracError

SHIPPED = Path(dlrm_bench.__file__).resolve().parent / "solutions"


def shipped() -> tuple[str, ...]:
    """Names of the solution sets that ship with the suite."""
    return tuple(sorted(path.name for path in SHIPPED.iterdir() if any(path.glob("s*.py"))))


def find_solutions(source: str, problems: Sequence[Problem]) -> list[Solution]:
    """Solutions of these problems from a shipped set or a folder.

    In a folder a file is of the problem whose number or name its own begins with (`08_x.py`, `s08_x.py`,
    `dot_interaction.py`), and so is every `sample_K.py` in a folder named so. Raises AddrfracError where there is none.
    """
    if source in shipped():
        return [_shipped(source, problem) for problem in problems if _shipped_path(source, problem).exists()]
    folder = Path(source)
    if not folder.is_dir():
        raise AddrfracError(f"no solutions {source!r}: give a folder, or one of {', '.join(shipped())}")
    found = [solution for problem in problems for solution in _of(folder, problem)]
    if not found:
        raise AddrfracError(
            f"no solutions in {source}: name files by problem, as 08_anything.py, or 08/sample_0.py for several"
        )
    return found


def _shipped_path(source: str, problem: Problem) -> Path:
    return SHIPPED / source / f"s{problem.number:02d}_{problem.name}.py"


def _shipped(source: str, problem: Problem) -> Solution:
    path = _shipped_path(source, problem)
    return Solution(
        problem=problem.name,
        name=source,
        sample=0,
        path=f"dlrm_bench/solutions/{source}/{path.name}",
        text=path.read_text(),
        author="Claude (Anthropic)",
    )


def _of(folder: Path, problem: Problem) -> list[Solution]:
    files = [path for path in sorted(folder.glob("*.py")) if _is_of(path.stem, problem)]
    found = [(path, index) for index, path in enumerate(files)]
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and _is_of(path.name, problem)):
        found += [(path, _sample(path, index)) for index, path in enumerate(sorted(inner.glob("*.py")))]
    return [
        Solution(
            problem=problem.name,
            name=folder.name,
            sample=sample,
            path=str(path.relative_to(folder)),
            text=_text(path),
        )
        for path, sample in found
    ]


def _is_of(stem: str, problem: Problem) -> bool:
    numbered = re.match(r"[sp]?0*(\d+)(?:_|$)", stem)
    if numbered is not None:
        return int(numbered[1]) == problem.number
    return stem == problem.name


def _sample(path: Path, index: int) -> int:
    numbered = re.search(r"(\d+)$", path.stem)
    return int(numbered[1]) if numbered else index


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise AddrfracError(f"cannot read {path.name}: {error}") from error
