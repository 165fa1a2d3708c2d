"""Evaluations to and from a file of one line each, so that a run goes on where it stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from addrfrac.bench import score
from addrfrac.bench.records import Evaluation, Suite
from addrfrac.errors import AddrfracError
from addrfrac.store import write_whole

LINES, WHOLE = "evaluations.jsonl", "bench.json"


class Keyed(Protocol):
    """What is kept one line each: a frozen record that says what it depends on."""

    @property
    def key(self) -> str: ...


AnyKeyed = TypeVar("AnyKeyed", bound=Keyed)


def key_of(*parts: object) -> str:
    """A digest of everything that a result depends on."""
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:24]


def append(folder: Path, evaluation: Keyed) -> None:
    """Add one line. Raises AddrfracError where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LINES).open("ab") as file:
            file.write(msgspec.json.encode(evaluation) + b"\n")
    except OSError as error:
        raise AddrfracError(f"cannot write {folder / LINES}: {error.strerror}; choose another place with -o") from error


def read(folder: Path) -> dict[str, Evaluation]:
    """Evaluations of an earlier run of a suite; see `read_lines`."""
    return read_lines(folder, Evaluation)


def read_lines(folder: Path, kind: type[AnyKeyed]) -> dict[str, AnyKeyed]:
    """Key -> evaluation of every whole line; the last line of an interrupted run may be torn and is dropped."""
    path = folder / LINES
    if not path.exists():
        return {}
    found: dict[str, AnyKeyed] = {}
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            if number == len(lines):
                break
            raise AddrfracError(
                f"{path} line {number} is no evaluation ({error}); move it away or leave --resume out"
            ) from error
        found[one.key] = one
    return found


def keep_whole_lines(folder: Path, evaluations: Iterable[Keyed]) -> None:
    """Rewrite the file with these lines, whole or not at all."""
    write_whole(folder / LINES, b"".join(msgspec.json.encode(one) + b"\n" for one in evaluations))


def encode(suite: Suite) -> bytes:
    return msgspec.json.encode(suite) + b"\n"


def save(suite: Suite, folder: Path) -> None:
    write_whole(folder / WHOLE, encode(suite))


def load_several(paths: Sequence[Path]) -> Suite:
    """The runs together as one: later ones take the place of the same evaluation in earlier ones."""
    suites = [load(path) for path in paths]
    together = {_place(one): one for suite in suites for one in suite.evaluations}
    rows = tuple(together.values())
    notes = tuple(dict.fromkeys(note for suite in suites for note in suite.notes))
    models = [suite.device_model for suite in suites if suite.device_model is not None]
    return replace(
        suites[-1],
        evaluations=rows,
        scores=score.scores(rows),
        notes=notes,
        device_model=models[-1] if models else None,
        pass_at_k=score.mean_pass_at_k(rows),
        best_of=score.best_of(rows),
    )


def _place(one: Evaluation) -> tuple[object, ...]:
    return one.number, one.size, one.indices, one.solution, one.sample


def load(path: Path) -> Suite:
    """The suite saved at `path`, or in the folder `path`. Raises AddrfracError for what is not one."""
    file = path / WHOLE if path.is_dir() else path
    try:
        return msgspec.json.decode(file.read_bytes(), type=Suite)
    except OSError as error:
        raise AddrfracError(f"cannot read {file}: {error.strerror}; give a folder that `bench` wrote") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise AddrfracError(f"{file} is no saved benchmark ({error})") from error
