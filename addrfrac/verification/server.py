"""A process that has imported torch, computed nothing and touched no device; forks a worker on request (20 ms).

Run as `python -m addrfrac.verification.server FD DEVICE preload|bare`; requests and answers on the socket FD.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from addrfrac.verification import channel, tripwires, worker
from addrfrac.verification.foreign import Raised, attempt
from addrfrac.verification.isolation import _prctl

_PR_SET_CHILD_SUBREAPER = 36


def main(fd: int, device: str, preload: bool) -> None:
    """Answer fork and end requests until the parent closes the socket."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=fd)
    if preload:  # 1.8 s that a dispatch mode or torch.compile would else cost each worker
        import torch._dynamo

        assert torch._dynamo is not None
    if device == "cpu":
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401  (its interpreter; the compiler's import would touch the device)
    for name in ("calls", "evidence", "inprocess", "parameters", "timed"):  # nobody puts another in their place later
        importlib.import_module(f"addrfrac.verification.{name}")
    tripwires.refuse_audit_hooks()
    gc.collect()
    gc.freeze()
    while True:
        try:
            body, fds = channel.receive(control)
        except channel.ChannelClosed:
            return
        request = json.loads(body)
        if request["op"] == "fork":
            channel.send(control, {"pid": _fork(request, control, fds[0])})
        else:
            channel.send(control, _end(int(request["pid"]), int(request["uid"]), bool(request.get("patient"))))


def _fork(request: dict[str, object], control: socket.socket, fd: int) -> int:
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    code = 70
    try:
        control.close()
        ended = attempt(worker.main, socket.socket(fileno=fd), request)
        if isinstance(ended, Raised):  # a fault of ours: foreign code is already guarded within
            print(ended.where, file=sys.stderr, flush=True)
        else:
            code = 0
    finally:
        os._exit(code)


def _end(pid: int, uid: int, patient: bool) -> dict[str, object]:
    """Kill a worker, its process group and whatever it left behind; say how it had ended and what was left."""
    status = None
    with contextlib.suppress(ChildProcessError):
        for _ in range(10):  # a process that is just ending shows how, if given a moment
            done, code = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(code)
                break
            if patient:
                time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    left = leftovers(pid, uid)
    for other in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(other, signal.SIGKILL)
    for process in (pid, *left):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
    return {"status": status, "left": len(left)}


def leftovers(pid: int, uid: int) -> list[int]:
    """Processes of a worker's user, session or ancestry other than itself."""
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            other, state, parent, session = int(entry.name), fields[0], int(fields[1]), int(fields[3])
            parents[other] = parent
            mine = session == pid or parent == pid or (uid and entry.stat().st_uid == uid)
            if other != pid and mine and state not in "ZX":
                found.append(other)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "preload")
