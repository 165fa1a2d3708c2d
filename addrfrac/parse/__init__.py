"""Trace files in, columns out; alone knows their formats."""

from __future__ import annotations

from pathlib import Path

from addrfrac.errors import AddrfracError, UnreadableTrace
from addrfrac.parse.grading import grade
from addrfrac.parse.ranks import in_rank_order, rank_files
from addrfrac.parse.reading import read_kineto
from addrfrac.records import Trace

__all__ = ["grade", "read_ranks", "read_trace"]


def read_trace(path: Path, *, timings: dict[str, float] | None = None) -> Trace:
    """The trace of one file: Kineto .json or .json.gz, or an Nsight Systems .sqlite export.

    `timings` collects the seconds of each stage.
    """
    if not path.exists():
        raise UnreadableTrace(f"{path} does not exist; give a trace file")
    if path.is_dir():
        raise UnreadableTrace(f"{path} is a folder; give one trace file, or read it as a folder of ranks")
    return read_kineto(path, timings)


def read_ranks(folder: Path, *, timings: dict[str, float] | None = None) -> tuple[Trace, ...]:
    """One trace a rank, sorted by rank, from a folder that holds one file a rank."""
    if not folder.is_dir():
        raise AddrfracError(f"{folder} is no folder; give a folder with one trace file a rank")
    files = rank_files(folder)
    if not files:
        raise AddrfracError(f"{folder} holds no trace (.json, .json.gz, .sqlite); give a folder with one file a rank")
    return in_rank_order(folder, [read_trace(path, timings=timings) for path in files])
