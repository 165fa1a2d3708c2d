"""A file that says how often each kind of serving step occurs in, the weight of each bucket out."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from addrfrac.errors import AddrfracError

TIME, STEPS = "time", "steps"
HEADERS = {"weight": TIME, "time": TIME, "share": TIME, "steps": STEPS, "count": STEPS}
"""What the second column of a table may be called, and what it then counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each bucket counts."""

    file: str
    """File name, for messages."""
    by: str
    """TIME: weights are shares of busy time. STEPS: of the number of steps."""
    of: Mapping[str, float]
    """By the name of a bucket, or by a phase for all buckets of it together."""

    @property
    def words(self) -> str:
        """What the shares were weighted by."""
        return f"{self.file}, as shares of {'busy time' if self.by == TIME else 'the number of steps'}"

    def of_buckets(
        self, phases: Mapping[str, str], steps: Mapping[str, int], busy: Mapping[str, float]
    ) -> dict[str, float]:
        """The weight of each bucket in busy time; a phase's weight is divided among its buckets as the trace has them.

        Raises AddrfracError for a name that no bucket and no phase of the trace has, and where all weights are 0.
        """
        weight = dict.fromkeys(phases, 0.0)
        for name, given in self.of.items():
            named = [name] if name in phases else [bucket for bucket, phase in phases.items() if phase == name]
            if not named:
                raise AddrfracError(f"{self.file}: the trace has no bucket {name!r}; it has: {', '.join(phases)}")
            in_trace = {bucket: busy[bucket] if self.by == TIME else float(steps[bucket]) for bucket in named}
            whole = sum(in_trace.values())
            for bucket in named:
                part = given * (in_trace[bucket] / whole if whole else 0.0)
                weight[bucket] += part if self.by == TIME else part * busy[bucket] / steps[bucket]
        if not any(weight.values()):
            raise AddrfracError(f"{self.file} gives every bucket of the trace the weight 0; give one a positive weight")
        return weight


def load_weights(path: Path) -> Weights:
    """Weights from TOML (`"decode batch 17-32" = 0.8`, under [time] or [steps]) or from a CSV or TSV of two columns.

    Raises AddrfracError for a file that cannot be read or understood.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise AddrfracError(f"cannot read {path}: {reason}; give a TOML, CSV or TSV file of weights") from error
    by, rows = _from_toml(path.name, text) if path.suffix == ".toml" else _from_table(path.name, text)
    if not rows:
        raise AddrfracError(f"{path.name} holds no weights; write one bucket and its weight a line")
    of: dict[str, float] = {}
    for name, weight in rows:
        if name in of:
            raise AddrfracError(f"{path.name} names {name!r} twice; keep one")
        if not math.isfinite(weight) or weight < 0:
            raise AddrfracError(f"{path.name}: the weight {weight:g} of {name!r} is not a number of 0 or more")
        of[name] = weight
    return Weights(file=path.name, by=by, of=of)


def _from_toml(file: str, text: str) -> tuple[str, list[tuple[str, float]]]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AddrfracError(f"{file} is not TOML: {error}") from error
    by = TIME
    if len(table) == 1 and (only := next(iter(table))) in (TIME, STEPS) and isinstance(table[only], dict):
        by, table = only, table[only]
    for name, weight in table.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise AddrfracError(f'{file}: {name!r} is no weight; write "bucket" = number, under [time] or [steps]')
    return by, [(name, float(weight)) for name, weight in table.items()]


def _from_table(file: str, text: str) -> tuple[str, list[tuple[str, float]]]:
    delimiter = "\t" if "\t" in text else ","
    lines = [
        (number, [cell.strip() for cell in cells])
        for number, cells in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter), 1)
        if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#")
    ]
    by = TIME
    if lines and len(lines[0][1]) == 2 and lines[0][1][1].lower() in HEADERS:
        by = HEADERS[lines.pop(0)[1][1].lower()]
    return by, [_weight(file, number, cells) for number, cells in lines]


def _weight(file: str, number: int, cells: Sequence[str]) -> tuple[str, float]:
    if len(cells) != 2:
        raise AddrfracError(f"{file}, line {number}: {len(cells)} columns; write a bucket and its weight, two columns")
    try:
        return cells[0], float(cells[1])
    except ValueError:
        raise AddrfracError(f"{file}, line {number}: {cells[1]!r} is not a number") from None
