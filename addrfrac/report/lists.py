"""What is installed in, tables of it on the terminal out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
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
    """One row a kernel module's SUBSTITUTE record."""
    console = Console()
    if not kernels:
        console.print("no kernels are installed; a package adds its own under the entry-point group addrfrac.kernels")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("kernel", "operation", "dtypes", "supports"):
        table.add_column(heading, overflow="fold")
    for name, record in kernels.items():
        dtypes = ", ".join(getattr(record, "dtypes", ()))
        table.add_row(name, str(getattr(record, "op", "")), dtypes, str(getattr(record, "supports", "")))
    console.print(table)
