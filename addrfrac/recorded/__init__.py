"""Runs recorded on a GPU and shipped with the package, for machines that have none."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

from addrfrac.records import Configuration, Run

NOT_COMPARED = frozenset({"steps", "warmup", "device"})
"""Fields that say how long was measured and where, not what."""


class _Head(msgspec.Struct):
    configuration: Configuration


def _files() -> Iterator[Traversable]:
    yield from sorted(
        (file for file in resources.files(__name__).iterdir() if file.name.endswith(".json.gz")), key=lambda f: f.name
    )


def configurations() -> list[Configuration]:
    """What there is a recorded run of."""
    return [msgspec.json.decode(gzip.decompress(f.read_bytes()), type=_Head).configuration for f in _files()]


def find(configuration: Configuration) -> Run | None:
    """The recorded run of this configuration, marked as recorded; None where there is none."""
    for file in _files():
        content = gzip.decompress(file.read_bytes())
        if _same(msgspec.json.decode(content, type=_Head).configuration, configuration):
            run = msgspec.json.decode(content, type=Run)
            return replace(run, extra={**run.extra, "recorded": True})
    return None


def _same(one: Configuration, other: Configuration) -> bool:
    names = [field.name for field in fields(Configuration) if field.name not in NOT_COMPARED]
    return all(getattr(one, name) == getattr(other, name) for name in names)
