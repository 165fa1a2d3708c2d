"""Runs recorded on a GPU and shipped with the package, for machines that have none."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import resources

import msgspec

from addrfrac.records import Configuration, Extrapolation, Run

NOT_COMPARED = frozenset({"steps", "warmup", "device"})
"""Fields that say how long was measured and where, not what."""


class _Head(msgspec.Struct):
    configuration: Configuration
    extrapolation: Extrapolation | None = None

    @property
    def answers(self) -> Configuration:
        return answers(self.configuration, self.extrapolation is not None)


def answers(configuration: Configuration, is_extrapolated: bool) -> Configuration:
    """The configuration that a run answers for: one that was extrapolated speaks of all layers."""
    return replace(configuration, layers=None) if is_extrapolated else configuration


def _contents() -> Iterator[bytes]:
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".json.gz"))
    for file in sorted(files, key=lambda file: file.name):
        yield gzip.decompress(file.read_bytes())


def configurations() -> list[Configuration]:
    """What there is a recorded run of."""
    return [msgspec.json.decode(content, type=_Head).answers for content in _contents()]


def find(configuration: Configuration) -> Run | None:
    """The recorded run of this configuration, marked as recorded; None where there is none."""
    for content in _contents():
        if _same(msgspec.json.decode(content, type=_Head).answers, configuration):
            run = msgspec.json.decode(content, type=Run)
            return replace(run, extra={**run.extra, "recorded": True})
    return None


def _same(one: Configuration, other: Configuration) -> bool:
    names = [field.name for field in fields(Configuration) if field.name not in NOT_COMPARED]
    return all(getattr(one, name) == getattr(other, name) for name in names)
