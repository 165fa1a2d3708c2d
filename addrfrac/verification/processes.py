"""The trusted side's handle on workers: start, ask, watch, end; every way to fail is told by name."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.verification import channel
from addrfrac.verification.isolation import FIRST_UID
from addrfrac.verification.records import Layer, Status

MEMORY_LIMIT_BYTES = 24 << 30
"""Resident memory of a worker and its children together."""
_POLL_S = 0.05
_WATCH_S = 0.5
"""Between two looks at a worker's memory: each reads through all processes."""
_START_S = {"cpu": 240.0, "cuda": 60.0}
"""A server imports torch and its compiler first: a busy machine takes long; a driver that hangs is no such case."""
SPARES = 3
"""Workers whose device is started ahead of need: a driver takes a second for it, and they do it while others work."""


class WorkerFailure(Exception):
    """A worker gave no valid answer; carries the status it means and the reason in words."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Server:
    """The fork server of one device."""

    def __init__(
        self, device: str = "cpu", threads: int = 1, skip: frozenset[str] = frozenset(), *, preload: bool = True
    ) -> None:
        self.device, self.skip = device, skip
        self.start_s = _START_S.get(device, 60.0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ, mode = _scrubbed(device, threads), "preload" if preload else "bare"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "addrfrac.verification.server", str(theirs.fileno()), device, mode],
            pass_fds=[theirs.fileno()],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("ADDRFRAC_VERIFY_DEBUG") else subprocess.DEVNULL,
        )
        theirs.close()
        self.control = ours
        self.lock = threading.Lock()
        self.spares: list[Worker] = []
        self.most_spares = 0
        self.facts: dict[str, Any] = {}
        """What was measured of the device, once a server."""
        self.trips: Counter[str] = Counter()
        """Round trips to workers, by request."""
        self.asked_s: dict[str, float] = {}

    def ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """One request to the server itself."""
        with self.lock:
            channel.send(self.control, request, fds)
            body, _fds = channel.receive(self.control, self.start_s)
        answer: dict[str, Any] = json.loads(body)
        return answer

    def worker(self, *, timeout_s: float = 60.0) -> Worker:
        """A worker that knows nothing yet: one whose device was started beforehand, if there is one."""
        with self.lock:
            found = self.spares.pop(0) if self.spares else None
        if found is None:
            found = Worker(self, timeout_s=timeout_s)
        found.timeout_s = timeout_s
        self.warm_spares()
        return found

    def warm_spares(self) -> None:
        """Fork workers ahead of need and have them start their device while others work; none on a CPU."""
        while len(self.spares) < self.most_spares:
            spare = Worker(self)
            spare.begin({"op": "probe"})
            with self.lock:
                self.spares.append(spare)

    def spares_ready(self) -> None:
        """Wait until the spares have started their device."""
        for spare in list(self.spares):
            try:
                spare.finish_begun()
            except WorkerFailure:
                self.spares.remove(spare)
                spare.end()

    def close(self) -> None:
        """End the server."""
        while self.spares:
            self.spares.pop().end()
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Group:
    """Workers of one purpose, ended together from any thread."""

    def __init__(self, server: Server) -> None:
        self.server, self.device, self.facts = server, server.device, server.facts
        self.workers: list[Worker] = []
        self.ended = False

    def worker(self, *, timeout_s: float = 60.0) -> Worker:
        """A worker of this group."""
        made = self.server.worker(timeout_s=timeout_s)
        self.workers.append(made)
        if self.ended:
            made.end()
        return made

    def end(self) -> None:
        """End them all; whoever waits for an answer learns that its process is gone."""
        self.ended = True
        for worker in list(self.workers):
            worker.end()


_ATTEMPTS: tuple[tuple[bool, frozenset[str]], ...] = (
    (True, frozenset()),
    (False, frozenset()),
    (False, frozenset({"landlock"})),
    (False, frozenset({"landlock", "user id"})),
    (False, frozenset({"landlock", "user id", "network namespace"})),
)
"""(preload, layers left out), strictest first: a driver may not start behind every layer."""


def start_server(device: str = "cpu", threads: int = 1) -> Server:
    """A server whose workers reach the device, behind as many layers as it starts under; what is missing is told."""
    reasons = []
    for preload, skip in _ATTEMPTS:
        server = Server(device, threads, skip, preload=preload)
        try:
            worker = Worker(server, timeout_s=60.0)
            answer = worker.ask({"op": "probe"})
            if "raised" not in answer:
                server.spares.append(worker)
                server.most_spares = SPARES if device == "cuda" else 0
                return server
            worker.end()
            reasons.append(str(answer["raised"].get("text")))
        except (WorkerFailure, channel.ChannelError) as error:
            reasons.append(str(error))
        server.close()
    raise AddrfracError(f"no worker could use {device}: {reasons[0][:200]}")


def _scrubbed(device: str, threads: int) -> dict[str, str]:
    """A worker's environment: what the machine needs, nothing of ours."""
    keep = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH", "LANG", "TZ")
    environ = {name: os.environ[name] for name in keep if name in os.environ}
    environ |= {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # a pool that spins after a call would look like work after return
        "GOMP_SPINCOUNT": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONHASHSEED": "0",
        "KINETO_LOG_LEVEL": "5",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking whether there is a device must not start the driver here
    }
    if device == "cpu":
        environ["TRITON_INTERPRET"] = "1"
        environ["CUDA_VISIBLE_DEVICES"] = ""
    return environ


class Worker:
    """One child: the reference, or a candidate."""

    def __init__(self, server: Server, *, timeout_s: float = 60.0, memory_limit_bytes: int = MEMORY_LIMIT_BYTES):
        self.server, self.timeout_s, self.memory_limit_bytes = server, timeout_s, memory_limit_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="w"))
        self.uid = FIRST_UID + secrets.randbelow(1 << 20) if os.getuid() == 0 else 0
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "op": "fork",
            "folder": str(self.folder),
            "uid": self.uid,
            "device": server.device,
            "skip": sorted(server.skip),
        }
        self.pid = int(server.ask(request, (theirs.fileno(),))["pid"])
        theirs.close()
        self.ended: dict[str, Any] | None = None
        self.begun = ""
        hello = self.ask({"op": "hello"})
        self.layers = tuple(Layer(**layer) for layer in hello["layers"])

    def ask(self, request: dict[str, Any], fds: tuple[int, ...] = (), timeout_s: float | None = None) -> dict[str, Any]:
        """One request, one answer; `tensors` of the answer are copied out. `elapsed_s` is this side's clock."""
        self.finish_begun()
        nonce = secrets.token_hex(8)
        started = time.monotonic()
        try:
            channel.send(self.sock, request | {"nonce": nonce}, fds)
            body, received = self._wait(started + (timeout_s or self.timeout_s))
        except (channel.ChannelClosed, ValueError) as error:  # ended by another thread while it waited
            raise self._gone() from error
        elapsed = time.monotonic() - started
        try:
            answer = json.loads(body)
            if not isinstance(answer, dict) or answer.get("nonce") != nonce:
                raise ValueError("an answer to no question")
        except ValueError as error:
            raise WorkerFailure(Status.TAMPERED, f"something else than an answer came back: {error}") from error
        tensors = []
        if "slots" in answer:
            if len(received) != 1:
                raise WorkerFailure(Status.TAMPERED, "an answer without its bytes")
            try:
                tensors = channel.unpack(received[0], answer["slots"])
            except (channel.ChannelError, OSError, TypeError) as error:
                raise WorkerFailure(Status.TAMPERED, f"malformed bytes: {error}") from error
        answer["tensors"] = tensors
        answer["elapsed_s"] = elapsed
        self.server.trips[request["op"]] += 1
        self.server.asked_s[request["op"]] = self.server.asked_s.get(request["op"], 0.0) + elapsed
        return answer

    def begin(self, request: dict[str, Any]) -> None:
        """Send a request whose answer is only waited for at the next one; it carries nothing back."""
        self.begun = secrets.token_hex(8)
        channel.send(self.sock, request | {"nonce": self.begun})

    def finish_begun(self) -> None:
        """Wait for the answer to a request that was begun."""
        if not self.begun:
            return
        wanted, self.begun = self.begun, ""
        try:
            body, _fds = self._wait(time.monotonic() + 60.0)
        except (channel.ChannelClosed, ValueError) as error:
            raise self._gone() from error
        if json.loads(body).get("nonce") != wanted:
            raise WorkerFailure(Status.TAMPERED, "an answer to no question")

    def _wait(self, deadline: float) -> tuple[bytes, list[int]]:
        watched = time.monotonic()
        while True:
            try:
                return channel.receive(self.sock, min(_POLL_S, max(0.0, deadline - time.monotonic())))
            except channel.ChannelTimeout:
                now = time.monotonic()
                if now >= deadline:
                    raise WorkerFailure(Status.TIMEOUT, f"no answer in {self.timeout_s:.0f} s") from None
                if now - watched < _WATCH_S:
                    continue
                watched, resident = now, self.resident_bytes()
                if resident > self.memory_limit_bytes:
                    raise WorkerFailure(
                        Status.OUT_OF_MEMORY,
                        f"{resident >> 20} MiB resident, limit {self.memory_limit_bytes >> 20} MiB",
                    ) from None

    def _gone(self) -> WorkerFailure:
        code = self.end(patient=True).get("status")
        if code is None:
            return WorkerFailure(Status.CRASHED, "the process closed its channel before the answer")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerFailure(Status.CRASHED, f"the process ended with {how} before the answer")

    def resident_bytes(self) -> int:
        """Resident memory of the worker and its descendants."""
        from addrfrac.verification.server import leftovers

        return sum(_resident(pid) for pid in (self.pid, *leftovers(self.pid, self.uid)))

    def private_bytes(self) -> int:
        """Resident memory of the worker that is no file's and not shared with this side."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) << 10
        return 0

    def companions(self) -> int:
        """Other processes of this worker's user or session, alive now."""
        from addrfrac.verification.server import leftovers

        return len(leftovers(self.pid, self.uid))

    def output(self) -> str:
        """What it printed, at most the last 4,000 characters."""
        with contextlib.suppress(OSError):
            return (self.folder / "output.txt").read_text(errors="replace")[-4000:]
        return ""

    def end(self, *, patient: bool = False) -> dict[str, Any]:
        """Kill it and everything it started; remove its folder."""
        if self.ended is None:
            self.ended = {"status": None, "left": 0}
            with contextlib.suppress(channel.ChannelError):
                self.ended = self.server.ask({"op": "end", "pid": self.pid, "uid": self.uid, "patient": patient})
            self.sock.close()
            self.printed = self.output()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.ended

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
