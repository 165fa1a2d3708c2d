"""A plain trace file in, its raw tables out; a second process decodes every other piece where that pays."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from addrfrac.parse import kineto, scan
from addrfrac.parse.columns import RawTables, merged

FORK_BYTES = 24 << 20
"""Smaller files are decoded before a second process would have started."""
MOST_WORKERS = 4


def read_pieces(path: Path, cuts: list[int]) -> RawTables:
    """All pieces but the last (whose ending the caller takes apart) as one set of tables."""
    pieces = range(len(cuts) - 2)
    workers = worker_count(cuts[-1] - cuts[0])
    shares = [pieces[first::workers] for first in range(workers)]
    children = [_Child(partial(_decode, path, cuts, share)) for share in shares[1:]]
    parts = [_decode(path, cuts, shares[0])]
    for share, child in zip(shares[1:], children, strict=True):
        part = child.result()
        parts.append(_decode(path, cuts, share) if part is None else part)
    return merged(parts)


def worker_count(size_bytes: int) -> int:
    """How many processes decode: one for small files and where processes cannot be forked."""
    if size_bytes < FORK_BYTES or not sys.platform.startswith("linux"):
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


def _decode(path: Path, cuts: list[int], share: range) -> RawTables:
    tables = RawTables()
    with path.open("rb", buffering=0) as file:
        for index in share:
            kineto.add_piece(tables, scan.read_between(file, cuts[index], cuts[index + 1]), index)
    return tables


class _Child:
    """A forked process that computes tables and hands them back through a pipe."""

    def __init__(self, work: Callable[[], RawTables]) -> None:
        self.reading, writing = os.pipe()
        with warnings.catch_warnings():
            # The child only decodes and exits: it takes no lock that another thread may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process = os.fork()
        if self.process == 0:
            _run_child(work, self.reading, writing)
        os.close(writing)

    def result(self) -> RawTables | None:
        """The tables; None where the child did not finish."""
        with os.fdopen(self.reading, "rb") as pipe:
            try:
                tables = pickle.load(pipe)
            except (EOFError, pickle.UnpicklingError):
                tables = None
        os.waitpid(self.process, 0)
        return tables if isinstance(tables, RawTables) else None


def _run_child(work: Callable[[], RawTables], reading: int, writing: int) -> None:
    """Never returns: whatever happens, a forked copy must not go on with the parent's work."""
    status = 1
    try:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(work(), pipe, protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)
