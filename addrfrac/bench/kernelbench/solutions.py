"""A folder or a JSON file in, solutions of the chosen problems as text out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from addrfrac.bench.kernelbench.json_rows import first_of, place_of, read_rows, read_text
from addrfrac.bench.kernelbench.records import CUDA, PYTORCH, TRITON, Problem, Solution
from addrfrac.errors import AddrfracError

CODE = ("custom_code", "code", "solution", "kernel")
SPEEDUP = ("score_default", "published_speedup", "speedup")
_PLACE = re.compile(r"level_?(\d+)_problem_?0*(\d+)(?:_sample_?(\d+))?")
_NUMBER = re.compile(r"[sp]?0*(\d+)(?:_|$)")
_SAMPLE = re.compile(r"sample_?(\d+)")


def find_solutions(source: Path, problems: Sequence[Problem]) -> list[Solution]:
    """Solutions of these problems in their order, samples of one beside each other.

    Files are told apart by name: `levelL/N_anything.py`, `levelL/NN/sample_K.py`, `NN/sample_K.py`,
    `level_L_problem_N_sample_K_kernel.py`; a JSON file by its rows. Raises AddrfracError where there is none.
    """
    if source.is_dir():
        found = _of_folder(source, problems)
    elif source.suffix == ".py" and source.is_file():
        found = [_of_file(source, source.parent, problems)]
    elif source.is_file():
        found = _of_rows(source)
    else:
        raise AddrfracError(f"no solutions at {source}: give a folder, a .py file or a JSON file")
    order = {problem.place: index for index, problem in enumerate(problems)}
    wanted = [solution for solution in found if (solution.level, solution.number) in order]
    if not wanted:
        raise AddrfracError(
            f"no solution in {source.name} is of a chosen problem: name files level1/8_anything.py or 8/sample_0.py"
        )
    return sorted(_numbered(wanted), key=lambda one: (order[one.level, one.number], one.name, one.sample))


def kind_of(text: str) -> str:
    """What a text brings: Triton kernels, CUDA source, or neither."""
    if re.search(r"^\s*@triton\.(jit|autotune)|^\s*@jit\b", text, re.M) and "triton" in text:
        return TRITON
    return CUDA if "__global__" in text else PYTORCH


def _of_folder(folder: Path, problems: Sequence[Problem]) -> list[Solution]:
    paths = [path for path in sorted(folder.rglob("*.py")) if not path.name.startswith(("_", "."))]
    return [_of_file(path, folder, problems) for path in paths if _place(path, folder, problems) is not None]


def _of_file(path: Path, folder: Path, problems: Sequence[Problem]) -> Solution:
    place = _place(path, folder, problems)
    if place is None:
        raise AddrfracError(f"cannot tell which problem {path.name} is of: begin its name with the problem's number")
    text = read_text(path)
    sample = _SAMPLE.search(path.stem)
    return Solution(
        level=place[0],
        number=place[1],
        name=folder.name,
        sample=int(sample[1]) if sample else -1,
        path=str(path.relative_to(folder)),
        text=text,
        kind=kind_of(text),
    )


def _place(path: Path, folder: Path, problems: Sequence[Problem]) -> tuple[int, int] | None:
    """(level, number) by the names of the file and its folders; None where they say nothing.

    Without a level it is that of the only level chosen.
    """
    whole = _PLACE.search(path.stem)
    if whole is not None:
        return int(whole[1]), int(whole[2])
    parents = path.relative_to(folder).parts[:-1]
    named = [re.fullmatch(r"level_?(\d+)", part) for part in (folder.name, *parents)]
    levels = [int(match[1]) for match in named if match is not None]
    chosen = sorted({problem.level for problem in problems})
    level = levels[-1] if levels else chosen[0] if len(chosen) == 1 else None
    number = next((m for m in map(_NUMBER.match, (path.stem, *reversed(parents))) if m is not None), None)
    return (level, int(number[1])) if level is not None and number is not None else None


def _of_rows(path: Path) -> list[Solution]:
    found = []
    for index, row in enumerate(read_rows(path), 1):
        text = first_of(row, CODE)
        if text is None and any(name in row for name in CODE):
            continue  # said to have none
        if not isinstance(text, str):
            raise AddrfracError(f"{path.name} row {index} has no code: give it as {' or '.join(CODE)}")
        level, number = place_of(row, index, path)
        found.append(
            Solution(
                level=level,
                number=number,
                name=str(row.get("model") or path.stem),
                sample=_sample(row),
                path=f"{path.name} row {index}",
                text=text,
                kind=kind_of(text),
                published_speedup=_speedup(row),
            )
        )
    return found


def _sample(row: Mapping[str, Any]) -> int:
    found = first_of(row, ("sample", "sample_id"))
    return found if isinstance(found, int) else -1


def _speedup(row: Mapping[str, Any]) -> float | None:
    found = first_of(row, SPEEDUP)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _numbered(solutions: Sequence[Solution]) -> list[Solution]:
    """Samples that name no number get the next that is free in their set and problem."""
    taken: dict[tuple[int, int, str], set[int]] = {}
    for one in solutions:
        if one.sample >= 0:
            taken.setdefault((one.level, one.number, one.name), set()).add(one.sample)
    numbered = []
    for one in solutions:
        if one.sample < 0:
            mine = taken.setdefault((one.level, one.number, one.name), set())
            sample = next(number for number in range(len(mine) + 1) if number not in mine)
            mine.add(sample)
            one = replace(one, sample=sample)
        numbered.append(one)
    return numbered
