"""What is installed in, tables of it on the terminal out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from addrfrac.records import Workload


def print_workloads(workloads: Sequence[Workload]) -> None:
    """One row a workload: its modes, the model options it takes, what it is."""
    table = Table(box=None, padding=(0, 2, 0, 0), expand=False)
    for heading in ("workload", "modes", "what it is, and the options it takes"):
        table.add_column(heading, overflow="fold")
    for each in workloads:
        options = " ".join("--" + name.replace("_", "-") for name in sorted(each.options))
        table.add_row(
            each.name, "\n".join(each.modes), f"{each.about}\n[dim]{options}[/dim]" if options else each.about
        )
    console = Console()
    console.print(table)
    console.print("your own model: addrfrac profile path/to/file.py:NAME", highlight=False)


def print_kernels(kernels: Mapping[str, Any]) -> None:
    """One row a kernel module: what it computes and for which inputs, its cases, who wrote it."""
    console = Console()
    if not kernels:
        console.print("no kernels are installed; a package adds its own under the entry-point group addrfrac.kernels")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), expand=False)
    for heading in ("kernel", "operation", "what it computes, and for which inputs"):
        table.add_column(heading, overflow="fold")
    for name, record in kernels.items():
        table.add_row(name, str(getattr(record, "op", "")), _about(record))
    console.print(table, highlight=False)
    console.print("is one right, and faster? addrfrac verify NAME", highlight=False)


def _about(record: Any) -> str:
    """The first line of the module's docstring and of the launcher's, the cases it comes with, its author."""
    if record is None:
        return "[dim]needs torch and triton, which are not here[/dim]"
    launcher = getattr(record, "launcher", None)
    module = sys.modules.get(getattr(launcher, "__module__", ""))
    lines = [_first_line(module), f"[dim]{_first_line(launcher)}[/dim]"]
    cases = ", ".join(case.name for case in getattr(module, "CASES", ()))
    author = getattr(getattr(module, "PROVENANCE", None), "author", "")
    lines.append(f"[dim]cases {cases}; by {author}[/dim]" if cases else "")
    return "\n".join(line for line in lines if line)


def _first_line(documented: Any) -> str:
    return escape((getattr(documented, "__doc__", None) or "").strip().partition("\n")[0])
