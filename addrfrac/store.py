"""Runs to and from `run.json`; the only place that knows how they lie on disk."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from addrfrac.errors import AddrfracError
from addrfrac.records import Run

SCHEMA = 1
GZIP = b"\x1f\x8b"
"""First bytes of a gzip file."""


def encode(runs: Run | Sequence[Run], indent: int = 1) -> bytes:
    """JSON of a run, or of a list of runs."""
    return msgspec.json.format(msgspec.json.encode(runs), indent=indent) + b"\n"


def encode_small(run: Run) -> bytes:
    """The same, compact and gzipped: for runs that are kept in numbers. Equal runs give equal bytes."""
    return gzip.compress(msgspec.json.encode(run), mtime=0)


def save(run: Run, path: Path) -> None:
    """Write a run so that a reader sees all of it or nothing."""
    write_whole(path, encode(run))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in its own folder, then rename it into place.

    Raises AddrfracError when the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise AddrfracError(f"cannot write {path}: {error.strerror}; choose another place with -o") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load(path: Path) -> Run:
    """The run saved at `path`, or in the folder `path` as `run.json` or `run.json.gz`.

    Raises AddrfracError for a file that is missing, damaged or from a newer version.
    """
    file = file_in(path) if path.is_dir() else path
    try:
        content = file.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise AddrfracError(f"{file} is damaged ({error}); copy or record it again") from error
    except OSError as error:
        raise AddrfracError(
            f"cannot read {file}: {error.strerror}; give a run.json or the folder that holds it"
        ) from error
    try:
        schema = msgspec.json.decode(content, type=_Versioned).schema
        if schema > SCHEMA:
            raise AddrfracError(
                f"{file} was saved by a newer addrfrac (schema {schema}, this one reads {SCHEMA}); upgrade addrfrac"
            )
        return msgspec.json.decode(content, type=Run)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise AddrfracError(f"{file} is not a saved run ({error}); traces go to `addrfrac analyze`") from error


def file_in(folder: Path) -> Path:
    """Where the run of a folder lies, or would lie."""
    small = folder / "run.json.gz"
    return small if small.exists() and not (folder / "run.json").exists() else folder / "run.json"


class _Versioned(msgspec.Struct):
    schema: int
