"""Layers between a candidate and the rest of the machine; each says whether this machine has it.

As root, resource limits do not stop forks and file modes do not stop writes, and an address-space limit breaks CUDA:
what works is another user id, Landlock, a network namespace and a watch on resident memory (the watch is the
parent's, in `processes`).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from pathlib import Path

from addrfrac.verification.records import Layer

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_CLONE_NEWIPC = 0x08000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 1, 4, 8, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH = 47, 2, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 14)) | _TRUNCATE  # remove and make of every kind, refer
FIRST_UID = 200_000


def _prctl(option: int, value: int) -> bool:
    return bool(_libc.prctl(option, value, 0, 0, 0) == 0)


def landlock(writable: list[Path]) -> str:
    """Forbid writes outside `writable` for this process and its children; '' when done, else why not."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return "the kernel has no Landlock"
    handled = _WRITES if version >= 3 else _WRITES & ~_TRUNCATE
    if version < 2:
        handled &= ~(1 << 13)
    attributes = struct.pack("<Q", handled)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return f"Landlock refused a ruleset (errno {ctypes.get_errno()})"
    for path in writable:
        if not path.exists():
            continue
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = handled if path.is_dir() else handled & (_WRITE_FILE | _TRUNCATE)
        rule = struct.pack("<Qi", allowed, fd)
        _libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0)
        os.close(fd)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    failed = _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)
    return f"Landlock refused (errno {ctypes.get_errno()})" if failed else ""


def enter(folder: Path, uid: int, *, device: str, skip: frozenset[str] = frozenset()) -> list[Layer]:
    """Put this process behind every layer that the machine has; never raises, says what is missing."""
    layers = [_own_session(), _no_network(skip)]
    layers.append(_own_user(folder, uid, skip))
    layers.append(_no_writes(folder, device, skip))
    _prctl(_PR_SET_PDEATHSIG, 9)
    return layers


def _own_session() -> Layer:
    os.setsid()
    return Layer(name="process group", active=True, detail="killed as a whole")


def _no_network(skip: frozenset[str]) -> Layer:
    if "network namespace" in skip:
        return Layer(name="network namespace", active=False, detail="the device did not start under it")
    if _libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC) == 0:
        return Layer(name="network namespace", active=True, detail="no interface but a dead loopback")
    return Layer(name="network namespace", active=False, detail="not permitted here: the candidate can use the network")


def _own_user(folder: Path, uid: int, skip: frozenset[str]) -> Layer:
    if os.getuid() != 0:
        return Layer(name="user id", active=False, detail="needs root: the candidate could signal its parent")
    if "user id" in skip:
        return Layer(name="user id", active=False, detail="the device did not start under another user")
    os.chown(folder, uid, uid)
    os.setgroups([])
    os.setgid(uid)
    _prctl(_PR_SET_KEEPCAPS, 1)
    readable = all(_open_to_others(Path(path)) for path in (os.__file__, sys.prefix, __file__))
    os.setuid(uid)
    _keep_reading(keep=not readable)
    _prctl(_PR_SET_DUMPABLE, 1)  # its own /proc entries stay readable: the CUDA driver reads them
    return Layer(name="user id", active=True, detail="a user of its own")


def _open_to_others(path: Path) -> bool:
    """Whether any user can reach a path."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def _keep_reading(*, keep: bool) -> None:
    """Drop every capability; where Python itself lies in a private folder, keep the one that reads files."""
    mask = 1 << _CAP_DAC_READ_SEARCH if keep else 0
    header = struct.pack("<Ii", 0x20080522, 0)
    _libc.capset(header, struct.pack("<IIIIII", mask, mask, mask, 0, 0, 0))
    if keep:
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)


def _no_writes(folder: Path, device: str, skip: frozenset[str]) -> Layer:
    if "landlock" in skip:
        return Layer(name="landlock", active=False, detail="the device did not start under it")
    writable = [folder, Path("/dev/null"), Path("/dev/tty")]
    if device != "cpu":  # the driver makes files in /dev/shm and writes to its device nodes and to /proc/self
        writable += [Path("/dev"), Path("/proc")]
    problem = landlock(writable)
    if problem:
        return Layer(name="landlock", active=False, detail=f"{problem}: the candidate can write where its user can")
    return Layer(name="landlock", active=True, detail="writes only in its own folder")
