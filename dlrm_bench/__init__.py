"""DLRM-Bench: recommender kernels as problems in KernelBench's format, one module a problem.

A problem module holds `Model`, `get_inputs(size, indices)`, `get_init_inputs(size)`, `SIZES`, `TRAINS` (its backward is
checked too) and `work(model, *inputs)`, the bytes that must move and the flops that must be done. Ids come as int64;
every `Model` turns them back to int64 first, because KernelBench's own harness casts all inputs to a floating type
(exact below 2^24). Where ids decide the bytes, `work` counts distinct rows.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from addrfrac.errors import AddrfracError

SIZES = ("tiny", "small", "medium", "production")
"""'tiny' is for tests on a CPU; 'small' fits in an H200's L2; 'production' tables are many times the L2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of the suite."""

    number: int
    name: str
    """Without number, e.g. 'embedding_bag_sum'."""
    about: str
    """First line of the module's text."""
    path: Path
    module: str
    """Import path."""

    def load(self) -> ModuleType:
        """The module itself; imports torch."""
        return importlib.import_module(self.module)


def problems() -> tuple[Problem, ...]:
    """All problems, by number; found by name without importing them."""
    found = []
    for entry in pkgutil.iter_modules(__path__):
        number, _, name = entry.name[1:].partition("_")
        if entry.name.startswith("p") and number.isdigit():
            path = Path(next(iter(__path__))) / f"{entry.name}.py"
            about = path.read_text().split('"""')[1].strip().splitlines()[0]
            found.append(
                Problem(number=int(number), name=name, about=about, path=path, module=f"{__name__}.{entry.name}")
            )
    return tuple(sorted(found, key=lambda problem: problem.number))


def find_problem(key: str) -> Problem:
    """By number or name. Raises AddrfracError that names the known ones."""
    for problem in problems():
        if key in (str(problem.number), f"{problem.number:02d}", problem.name):
            return problem
    known = ", ".join(f"{problem.number} {problem.name}" for problem in problems())
    raise AddrfracError(f"no problem {key!r} in DLRM-Bench; there are {known}")
