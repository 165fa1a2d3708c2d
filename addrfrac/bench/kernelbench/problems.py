"""A checkout, a folder or a JSON file in, problems as text out; and the rule by which some of them are chosen."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from addrfrac.bench.kernelbench.json_rows import first_of, place_of, read_rows, read_text
from addrfrac.bench.kernelbench.records import Problem
from addrfrac.errors import AddrfracError

REFERENCE = ("ref_code", "reference", "problem_code")
NUMBERED = re.compile(r"0*(\d+)_(.+)")


def find_problems(source: Path, levels: Sequence[int] = ()) -> list[Problem]:
    """Problems of these levels (all where empty) by level and number.

    A folder holds `level*/N_name.py`, itself or in its `KernelBench/`; or `N_name.py` straight, taken for the level
    that the folder is named by. Raises AddrfracError where there is none, or two of one number.
    """
    if source.is_dir():
        found = _of_folder(source)
    elif source.is_file():
        found = _of_rows(source)
    else:
        raise AddrfracError(f"no problems at {source}: give a KernelBench checkout, a folder or a JSON file")
    wanted = [problem for problem in found if not levels or problem.level in levels]
    if not wanted:
        there = sorted({problem.level for problem in found})
        what = f"levels there: {', '.join(map(str, there))}" if there else "name files level1/1_anything.py"
        raise AddrfracError(f"no problem of what was asked for in {source.name}; {what}")
    _reject_twins(wanted, source)
    return sorted(wanted, key=lambda problem: problem.place)


def _of_folder(source: Path) -> list[Problem]:
    inner = source / "KernelBench"
    root = inner if any(inner.glob("level*")) else source
    folders = [path for path in sorted(root.glob("level*")) if path.is_dir()] or [root]
    found = []
    for folder in folders:
        level = re.fullmatch(r"level_?(\d+)", folder.name)
        for path in sorted(folder.glob("*.py")):
            numbered = NUMBERED.fullmatch(path.stem)
            if numbered is None or (level is None and folder is not root):
                continue
            found.append(
                Problem(
                    level=int(level[1]) if level else 1,
                    number=int(numbered[1]),
                    title=numbered[2],
                    text=read_text(path),
                )
            )
    return found


def _of_rows(path: Path) -> list[Problem]:
    if path.suffix == ".py":
        numbered = NUMBERED.fullmatch(path.stem)
        number, title = (int(numbered[1]), numbered[2]) if numbered else (1, path.stem)
        return [Problem(level=_level_of(path.parent), number=number, title=title, text=read_text(path))]
    found: dict[tuple[int, int], Problem] = {}
    for index, row in enumerate(read_rows(path), 1):
        text = first_of(row, REFERENCE)
        if not isinstance(text, str) or not text.strip():
            raise AddrfracError(f"{path.name} row {index} has no reference: give it as {' or '.join(REFERENCE)}")
        level, number = place_of(row, index, path)
        known = found.get((level, number))
        if known is not None and known.text != text:
            raise AddrfracError(f"{path.name} row {index}: another reference for level {level} problem {number}")
        found[level, number] = Problem(level=level, number=number, title=_title(text), text=text)
    return list(found.values())


def _level_of(folder: Path) -> int:
    level = re.fullmatch(r"level_?(\d+)", folder.name)
    return int(level[1]) if level else 1


def _title(text: str) -> str:
    """What the model's docstring begins with; '' without one."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    words = (ast.get_docstring(models[0]) or "") if models else ""
    return words.splitlines()[0][:80] if words else ""


def _reject_twins(problems: Sequence[Problem], source: Path) -> None:
    seen: set[tuple[int, int]] = set()
    for problem in problems:
        if problem.place in seen:
            raise AddrfracError(
                f"{source.name} holds level {problem.level} problem {problem.number} twice: keep one of them"
            )
        seen.add(problem.place)


def choose(problems: Sequence[Problem], numbers: Sequence[int] = (), limit: int = 0) -> tuple[list[Problem], str]:
    """Some of the problems by a rule that knows nothing of results, and the rule in words."""
    if limit < 0:
        raise AddrfracError(f"a limit of {limit}: give 1 or more, or leave it out for all")
    wanted = [problem for problem in problems if not numbers or problem.number in numbers]
    if not wanted:
        raise AddrfracError(f"no problem has a number of {', '.join(map(str, numbers))}")
    said = f"numbers {', '.join(map(str, numbers))}" if numbers else "all problems"
    if not limit or limit >= len(wanted):
        return wanted, f"{said}: {len(wanted)}"
    levels = sorted({problem.level for problem in wanted})
    groups = {level: [problem for problem in wanted if problem.level == level] for level in levels}
    shares = _shares([len(groups[level]) for level in levels], limit)
    chosen = [problem for level, share in zip(levels, shares, strict=True) for problem in _evenly(groups[level], share)]
    parts = ", ".join(
        f"{share} of {len(groups[level])} of level {level}" for level, share in zip(levels, shares, strict=True)
    )
    return chosen, f"{limit} of {said}, evenly by number: {parts}"


def _shares(sizes: Sequence[int], limit: int) -> list[int]:
    """`limit` split in proportion to sizes; what rounding leaves goes to the largest remainders."""
    total = sum(sizes)
    shares = [limit * size // total for size in sizes]
    rest = sorted(range(len(sizes)), key=lambda index: (-(limit * sizes[index] % total), index))
    for index in rest[: limit - sum(shares)]:
        shares[index] += 1
    return shares


def _evenly(problems: Sequence[Problem], count: int) -> list[Problem]:
    return [problems[(2 * index + 1) * len(problems) // (2 * count)] for index in range(count)]
