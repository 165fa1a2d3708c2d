"""One device and many processes: checks share it, whoever measures has it alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DeviceTurn:
    """Two files that every process of a run locks in the same order.

    Whoever wants the device passes the gate first and holds it while it waits, so that somebody who wants to measure
    waits for those that are at it and not for those that come later. A process that dies lets go of both.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.gate = os.open(folder / f"gate-{device}", os.O_RDWR | os.O_CREAT, 0o600)
        self.device = os.open(folder / f"device-{device}", os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """The device together with others that check."""
        self._take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self.device, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The device to oneself; inside `shared`, which is given up meanwhile and taken again."""
        fcntl.flock(self.device, fcntl.LOCK_UN)  # two that both hold it would wait for each other
        self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.device, fcntl.LOCK_UN)
            self._take(fcntl.LOCK_SH)

    def _take(self, how: int) -> None:
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self.device, how)
        finally:
            fcntl.flock(self.gate, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of both."""
        os.close(self.gate)
        os.close(self.device)
