"""A JSON file of any of three forms (a list, a line a row, objects one after the other) in, its rows out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from addrfrac.errors import AddrfracError

LEVEL = ("level_id", "level")
NUMBER = ("task_id", "problem_id", "number")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every object of the file. Raises AddrfracError naming the row that is none."""
    text = read_text(path)
    decoder, position = json.JSONDecoder(), 0
    rows: list[Any] = []
    while (position := _next_word(text, position)) < len(text):
        try:
            found, position = decoder.raw_decode(text, position)
        except ValueError as error:
            raise AddrfracError(
                f"{path.name} is no JSON after row {len(rows)} ({error}); give objects in a list or one after the other"
            ) from error
        rows += found if isinstance(found, list) else [found]
    for index, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise AddrfracError(f"{path.name} row {index} is no object: give one object a problem")
    if not rows:
        raise AddrfracError(f"{path.name} is empty: give one object a problem")
    return rows


def read_text(path: Path) -> str:
    """A file's text. Raises AddrfracError for what cannot be read as such."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AddrfracError(f"cannot read {path.name}: {error}") from error


def _next_word(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n,":
        position += 1
    return position


def place_of(row: Mapping[str, Any], index: int, path: Path) -> tuple[int, int]:
    """(level, number) of a row."""
    level, number = (first_of(row, names) for names in (LEVEL, NUMBER))
    if not (isinstance(level, int) and isinstance(number, int)):
        raise AddrfracError(
            f"{path.name} row {index} names no problem: give {' or '.join(LEVEL)} and {' or '.join(NUMBER)} as integers"
        )
    return level, number


def first_of(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of these fields that the row has; None without any."""
    return next((row[name] for name in names if name in row), None)
