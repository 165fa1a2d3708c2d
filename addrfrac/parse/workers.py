"""A plain trace file in, its raw tables out; further processes take pieces too where that pays."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from addrfrac.parse import inflate, kineto, scan
from addrfrac.parse.columns import RawTables, merged

FORK_BYTES = 24 << 20
"""Smaller files are decoded before a second process would have started."""
USUAL_RATIO = 12
"""Inflated / gzipped bytes of a trace."""
MOST_PROCESSES = 4
NUMBER_BYTES = 4


def read_pieces(path: Path, cuts: list[int]) -> RawTables:
    """All pieces but the last (whose ending the caller takes apart) as one set of tables."""
    pieces = range(len(cuts) - 2)
    processes = process_count(cuts[-1] - cuts[0])
    if processes == 1:
        return _decode(path, cuts, pieces)
    queue = PieceQueue(len(pieces))
    children = [Child(partial(_decode, path, cuts, queue)) for _ in range(processes - 1)]
    own = _decode(path, cuts, queue)
    results = [child.result() for child in children]
    queue.close()
    others = [result for result in results if result is not None]
    # A child that was killed took pieces with it that nobody else has.
    return merged([own, *others]) if len(others) == len(results) else _decode(path, cuts, pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What one process took from a stream."""

    tables: RawTables
    events: scan.EventList
    ending: scan.Ending


def read_stream(path: Path) -> Streamed:
    """The whole of a gzip file: every process inflates it, which is the cheap part, and decodes its share of it."""
    processes = process_count(path.stat().st_size * USUAL_RATIO)
    children = [Child(partial(_stream_tables, path, number, processes)) for number in range(1, processes)]
    own = _decode_stream(path, 0, processes)
    results = [child.result() for child in children]
    others = [result for result in results if result is not None]
    if len(others) < len(results):
        return _decode_stream(path, 0, 1)
    return replace(own, tables=merged([own.tables, *others]))


def _stream_tables(path: Path, number: int, processes: int) -> RawTables:
    return _decode_stream(path, number, processes).tables


def _decode_stream(path: Path, number: int, processes: int) -> Streamed:
    """The share of process `number`; process 0 takes the last piece too."""
    reader = kineto.Reader()
    ending = scan.Ending(events=b"", fields={}, closed=True)
    with path.open("rb") as file:
        blocks = inflate.inflated(file)
        events, rest = scan.located(path.name, blocks)
        for index, piece in scan.streamed_pieces(blocks, rest, events, lambda index: index % processes == number):
            if index >= 0:
                reader.add(piece, index)
            elif number == 0:
                ending = scan.split_ending(piece, events.bare)
                reader.add(b"[" + ending.events + b"]", scan.LAST_PIECE)
    return Streamed(tables=reader.tables, events=events, ending=ending)


def process_count(size_bytes: int) -> int:
    """How many processes decode: one for small files and where processes cannot or should not be forked.

    A process that loaded torch is a training or serving loop, full of threads and perhaps with a device open.
    """
    if size_bytes < FORK_BYTES or not sys.platform.startswith("linux") or "torch" in sys.modules:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _decode(path: Path, cuts: list[int], pieces: Iterable[int]) -> RawTables:
    reader = kineto.Reader()
    piece = bytearray()
    with path.open("rb", buffering=0) as file:
        for index in pieces:
            scan.read_list(file, cuts[index], cuts[index + 1], piece)
            reader.add(piece, index)
    return reader.tables


class PieceQueue:
    """Numbers that several processes take one by one: whoever is free takes the next."""

    def __init__(self, count: int) -> None:
        assert count <= scan.MOST_PIECES, "all numbers must fit in the pipe"
        self.reading, writing = os.pipe()
        os.write(writing, b"".join(number.to_bytes(NUMBER_BYTES, "little") for number in range(count)))
        os.close(writing)

    def __iter__(self) -> Iterator[int]:
        while number := os.read(self.reading, NUMBER_BYTES):
            yield int.from_bytes(number, "little")

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self.reading)


class Child:
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
