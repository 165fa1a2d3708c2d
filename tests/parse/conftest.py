"""A builder of small Kineto traces, and where the real ones lie."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REAL_TRACES = Path(__file__).parents[2] / "../shared/traces"
HOST, THREAD, AUTOGRAD_THREAD = 100, 101, 102


@dataclass
class KinetoBuilder:
    """Events as a recorder writes them; times in microseconds."""

    top: dict[str, Any] = field(default_factory=lambda: {"schemaVersion": 1})
    events: list[dict[str, Any]] = field(default_factory=list)

    def event(self, cat: str, name: str, ts: Any, dur: Any, pid: Any, tid: Any, **args: Any) -> dict[str, Any]:
        made = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(made)
        return made

    def op(
        self, name: str, ts: float, dur: float, *, tid: Any = THREAD, pid: Any = HOST, **args: Any
    ) -> dict[str, Any]:
        return self.event("cpu_op", name, ts, dur, pid, tid, **args)

    def annotation(self, name: str, ts: float, dur: float, *, tid: Any = THREAD, pid: Any = HOST) -> dict[str, Any]:
        return self.event("user_annotation", name, ts, dur, pid, tid)

    def call(
        self, name: str, ts: float, correlation: int, *, dur: float = 1.0, tid: Any = THREAD, pid: Any = HOST
    ) -> dict[str, Any]:
        return self.event("cuda_runtime", name, ts, dur, pid, tid, correlation=correlation)

    def kernel(
        self, name: str, ts: float, dur: float, correlation: int, *, device: int = 0, stream: int = 7, **args: Any
    ) -> dict[str, Any]:
        args = {"device": device, "stream": stream, "correlation": correlation, **args}
        return self.event("kernel", name, ts, dur, device, stream, **args)

    def launched(self, name: str, call_ts: float, ts: float, dur: float, correlation: int, **args: Any) -> None:
        """A kernel with the call that launched it."""
        self.call("cudaLaunchKernel", call_ts, correlation)
        self.kernel(name, ts, dur, correlation, **args)

    def text(self, **layout: Any) -> str:
        return json.dumps({**self.top, "traceEvents": self.events}, **layout)

    def write(self, path: Path, **layout: Any) -> Path:
        content = self.text(**layout).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path


@pytest.fixture
def kineto() -> KinetoBuilder:
    return KinetoBuilder()


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of real traces; the test is skipped, and says so, where it is absent."""
    if not REAL_TRACES.is_dir():
        pytest.skip("the real traces are not here (../shared/traces beside the checkout)")
    return REAL_TRACES
