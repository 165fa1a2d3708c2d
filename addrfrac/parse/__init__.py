"""Trace files in, columns out; alone knows their formats."""

from __future__ import annotations

from pathlib import Path

from addrfrac.errors import AddrfracError, UnreadableTrace
from addrfrac.parse.grading import grade
from addrfrac.parse.ranks import in_rank_order, rank_files
from addrfrac.parse.reading import read_kineto, timed
from addrfrac.records import Trace

SQLITE_MAGIC = b"SQLite format 3\x00"

__all__ = ["grade", "read_ranks", "read_trace"]


def read_trace(path: Path, *, timings: dict[str, float] | None = None) -> Trace:
    """The trace of one file: Kineto .json or .json.gz, or an Nsight Systems .sqlite export.

    `timings` collects the seconds of each stage.
    """
    if path.is_dir():
        raise UnreadableTrace(f"{path} is a folder; give one trace file, or read it as a folder of ranks")
    try:
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise UnreadableTrace(f"{path} cannot be read ({error.strerror}); give a trace file") from error
    if magic == SQLITE_MAGIC:
        from addrfrac.parse.nsys import read_nsys  # here, because few traces need SQLite

        with timed(timings, "read"):
            return read_nsys(path)
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise UnreadableTrace(f"{path.name} is a report, not an export; run nsys export --type sqlite {path.name}")
    return read_kineto(path, timings)


def read_ranks(folder: Path, *, timings: dict[str, float] | None = None) -> tuple[Trace, ...]:
    """One trace a rank, sorted by rank, from a folder that holds one file a rank."""
    if not folder.is_dir():
        raise AddrfracError(f"{folder} is no folder; give a folder with one trace file a rank")
    files = rank_files(folder)
    if not files:
        raise AddrfracError(f"{folder} holds no trace (.json, .json.gz, .sqlite); give a folder with one file a rank")
    return in_rank_order(folder, [read_trace(path, timings=timings) for path in files])
