"""A plain list of kernel names in, one classified row for each out, in the order given; and back to text."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.labelling import label_kernel
from addrfrac.classify.normalise import normalise
from addrfrac.classify.phases import phase_of_name
from addrfrac.classify.policies import PAPER, bound
from addrfrac.classify.rules import RuleSet
from addrfrac.errors import AddrfracError
from addrfrac.records import KIND_KERNEL, Label, Phase, Policy

OUTPUT_COLUMNS = (
    "kernel_name",
    "launching_op",
    "op",
    "provider",
    "role",
    "phase",
    "incumbent",
    "bound",
    "op_rule",
    "provider_rule",
    "certainty",
)
FORMATS = ("tsv", "csv", "json")
_FOREIGN_COLUMNS = ("Kernel Name", "Name")
_COUNTED = re.compile(r"^(?P<op>.*?)(?:\*(?P<count>\d+))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKernel:
    """One line of the input."""

    name: str
    launching_op: str = ""
    """As given: `aten::mm*297; aten::bmm*144`, most frequent first; '' where there is none."""


def classify_name(
    name: str,
    launching_op: str | None = None,
    op_stack: tuple[str, ...] = (),
    *,
    forward_stack: tuple[str, ...] = (),
    kind: int = KIND_KERNEL,
    rules: RuleSet = BUILT_IN,
) -> Label:
    """The label of one kernel by its name and, where given, its launching op or whole op stack (outermost first).

    A launching op alone is no stack: only an op of the backward pass or the optimizer tells the phase.
    """
    stack = op_stack or ((launching_op,) if launching_op else ())
    label = label_kernel(name, rules=rules, op_stack=stack, forward_stack=forward_stack, kind=kind)
    if not op_stack and label.phase is Phase.FORWARD:
        return replace(label, phase=phase_of_name(normalise(name).text))
    return label


def classify_rows(
    rows: Iterable[NamedKernel], rules: RuleSet = BUILT_IN, policy: Policy = PAPER
) -> list[dict[str, str]]:
    """One record of OUTPUT_COLUMNS for each row, in the order given.

    A name that several ops launched gets the class that most of its launches have.
    """
    labelled: dict[NamedKernel, Label] = {}
    out = []
    for row in rows:
        if row not in labelled:
            labelled[row] = _majority_label(row, rules)
        out.append(_record(row, labelled[row], policy))
    return out


def _majority_label(row: NamedKernel, rules: RuleSet) -> Label:
    ops = launching_ops(row.launching_op)
    if not ops:
        return classify_name(row.name, rules=rules)
    votes: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], Label] = {}
    for op, count in ops:
        label = classify_name(row.name, op, rules=rules)
        key = (label.op, label.role)
        votes[key] = votes.get(key, 0) + count
        first.setdefault(key, label)
    return first[max(votes, key=lambda key: votes[key])]


def launching_ops(cell: str) -> list[tuple[str, int]]:
    """(op, launches) for each op of a cell such as `aten::mm*297; other*144`; a missing count is 1."""
    ops = []
    for part in cell.split(";"):
        match = _COUNTED.match(part.strip())
        if match and match["op"]:
            ops.append((match["op"], int(match["count"] or 1)))
    return ops


def _record(row: NamedKernel, label: Label, policy: Policy) -> dict[str, str]:
    return {
        "kernel_name": row.name,
        "launching_op": row.launching_op,
        "op": str(label.op),
        "provider": label.provider,
        "role": str(label.role),
        "phase": str(label.phase),
        "incumbent": str(label.incumbent),
        "bound": str(bound(policy, label)),
        "op_rule": label.op_rule,
        "provider_rule": label.provider_rule,
        "certainty": str(label.certainty),
    }


def read_names(source: str) -> list[NamedKernel]:
    """The kernels that a file lists, or standard input for '-'."""
    if source == "-":
        return parse_names(sys.stdin.read(), source="standard input")
    try:
        return parse_names(Path(source).read_text(encoding="utf-8"), source=source)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise AddrfracError(f"cannot read {source}: {reason}; give a list of kernel names, or - for stdin") from error


def parse_names(text: str, *, source: str = "input") -> list[NamedKernel]:
    """The rows of a list of names: one a line, or TSV/CSV whose header has `kernel_name` (and `launching_op`).

    The tables of `nsys stats` and `ncu --csv` are read too: their columns are called `Name` and `Kernel Name`.
    """
    text = text.lstrip("\ufeff")
    lines = text.splitlines()
    delimiter, column = _header(lines[0] if lines else "")
    if column is None:
        names = [NamedKernel(name=line.strip()) for line in lines if line.strip()]
        if not names:
            raise AddrfracError(
                f"{source} holds no kernel names: give one a line, or TSV/CSV with a column 'kernel_name'"
            )
        return names
    plain = delimiter == "\t" and not _is_quoted(lines)
    reader = csv.DictReader(
        io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    )
    try:
        rows = [
            NamedKernel(name=(row[column] or "").strip(), launching_op=(row.get("launching_op") or "").strip())
            for row in reader
            if (row[column] or "").strip()
        ]
    except csv.Error as error:
        raise AddrfracError(f"{source}: line {reader.line_num} is no row of a table: {error}") from error
    if not rows:
        raise AddrfracError(f"{source} has a header but no kernels: give at least one row")
    return rows


def _header(line: str) -> tuple[str, str | None]:
    """(delimiter, the column of kernel names) of a table's first line; no column where it is a plain name."""
    for delimiter in ("\t", ","):
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if "kernel_name" in cells:
            return delimiter, "kernel_name"
        if len(cells) > 1 and (column := next((name for name in _FOREIGN_COLUMNS if name in cells), None)):
            return delimiter, column
    return "", None


def _is_quoted(lines: Sequence[str]) -> bool:
    """Whether cells of a TSV are quoted; names themselves hold no double quotes."""
    return any(line.startswith('"') or '\t"' in line for line in lines)


def write_names(rows: Sequence[dict[str, str]], output_format: str) -> str:
    """The classified rows as text: 'tsv', 'csv' or 'json' (a list)."""
    if output_format == "json":
        return json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n"
    if output_format not in FORMATS:
        raise AddrfracError(f"unknown format '{output_format}': use one of {', '.join(FORMATS)}")
    out = io.StringIO()
    writer = csv.DictWriter(
        out, fieldnames=OUTPUT_COLUMNS, delimiter="\t" if output_format == "tsv" else ",", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
