"""Device memory of a process as the driver's management library has it: it sees what no allocator of torch does."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from typing import Any

_NOT_AVAILABLE = (1 << 64) - 1
_MOST_PROCESSES = 64
_POLL_S = 0.001


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class DeviceMemory:
    """Reads how much device memory a process has; None where the library does not say."""

    def __init__(self) -> None:
        self.library: Any = None
        self.handle = ctypes.c_void_p()
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
            if library.nvmlInit_v2() == 0 and self._found(library, visible):
                self.library = library

    def _found(self, library: Any, visible: str) -> bool:
        if visible.startswith("GPU-"):
            return bool(library.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(self.handle)) == 0)
        index = int(visible) if visible.isdigit() else 0
        return bool(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self.handle)) == 0)

    def of(self, pid: int) -> int | None:
        """Bytes that the process holds on the device."""
        if self.library is None:
            return None
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), found) != 0:
            return None
        for entry in found[: count.value]:
            if entry.pid == pid and entry.used != _NOT_AVAILABLE:
                return int(entry.used)
        return None

    def used(self) -> int | None:
        """Bytes that all processes together hold."""
        found = _Memory()
        if self.library is None or self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(found)) != 0:
            return None
        return int(found.used)


class Peak:
    """The most that a process held while a block of ours ran; the library is asked every millisecond or so."""

    def __init__(self, memory: DeviceMemory, pid: int) -> None:
        self.memory, self.pid = memory, pid
        self.bytes: int | None = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.over.is_set():
            now = self.memory.of(self.pid)
            if now is None:
                return
            self.bytes = max(self.bytes or 0, now)
            time.sleep(_POLL_S)

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
