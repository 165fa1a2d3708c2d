"""A user's own training or serving loop in, its trace and unprofiled step times out."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from addrfrac import __version__, clock, environment, recorder, store
from addrfrac.errors import AddrfracError
from addrfrac.records import Capture, DeviceState

if TYPE_CHECKING:
    import torch

FACTS, SUMMARY = "capture.json", "summary.json"
PHASE_PREFIX = "addrfrac.phase:"
RANKS_WAIT_S = 60.0


@dataclass(slots=True)
class Run:
    """What `with addrfrac.capture(...) as run:` hands to the loop."""

    _directory: Path
    _on_gpu: bool
    _steps: int
    _warmup: int
    _unprofiled: int
    _title: str
    _samples: float | None
    _sample_unit: str
    _extra: dict[str, Any]
    _rank: int | None
    _world_size: int | None
    _done: int = 0
    _device: Any = None
    _watch: clock.Stopwatch | None = None
    _peak_bytes: int | None = None
    _before: DeviceState | None = None
    _profiler: Any = None
    _scratch: Any = None

    @property
    def total(self) -> int:
        """How many steps the loop must take for everything to be recorded."""
        return self._warmup + self._unprofiled + recorder.PROFILER_WARMUP + recorder.LEAD_IN + self._steps

    @property
    def done(self) -> bool:
        """Whether everything is recorded; the loop may stop, and further steps cost nothing."""
        return self._done >= self.total

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        if self.done:
            return
        self._done += 1
        timed = self._done - self._warmup
        if timed >= 0 and self._profiler is None:
            self._mark(timed)
        elif self._profiler is not None:
            self._profiler.step()
            if self.done:
                self._profiler.stop()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """A part of the step to tell apart in the reports: `with run.phase("prefill"): ...`."""
        from torch.profiler import record_function

        return record_function(f"{PHASE_PREFIX}{name}")

    def _begin(self) -> None:
        if self._warmup == 0:
            self._mark(0)

    def _mark(self, timed: int) -> None:
        """One boundary of the unprofiled part; its first one waits for the device, its last one starts the profiler."""
        if self._watch is None:
            self._device = _current_device() if self._on_gpu else _cpu()
            clock.synchronise(self._device)
            clock.reset_peak(self._device)
            self._before = environment.device_state("before", self._device)
            self._watch = clock.Stopwatch(device=self._device)
        self._watch.mark()
        if timed == self._unprofiled:
            self._watch.stop()
            self._peak_bytes = clock.peak_bytes(self._device)
            self._start_profiler()

    def _start_profiler(self) -> None:
        self._scratch = TemporaryDirectory(prefix="addrfrac-")
        raw = str(self._raw)
        self._profiler = recorder.make_profiler(
            self._steps, self._device, lambda profiler: profiler.export_chrome_trace(raw)
        )
        self._profiler.start()

    @property
    def _raw(self) -> Path:
        return Path(self._scratch.name) / "steps.json"

    def _abandon(self) -> None:
        """Stop the profiler and leave nothing behind."""
        if self._profiler is not None and not self.done:
            self._profiler.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _finish(self) -> None:
        """Save what is whole. Raises AddrfracError where that is not one profiled step."""
        recorded = self._done - self._warmup - self._unprofiled - recorder.PROFILER_WARMUP - recorder.LEAD_IN
        if recorded < 1:
            self._abandon()
            starting = recorder.PROFILER_WARMUP + recorder.LEAD_IN
            raise AddrfracError(
                f"the loop ended after {self._done} steps and the capture needs {self.total} ({self._warmup} warm-up, "
                f"{self._unprofiled} unprofiled, {starting} to start the profiler, {self._steps} profiled); "
                "run more steps, or pass smaller warmup=, unprofiled= or steps="
            )
        if not self.done:
            self._profiler.stop()  # exports what was recorded, with the step that had just begun
            recorder.drop_step(self._raw, f"ProfilerStep#{self._profiler.step_num}")
        facts = self._facts(recorded)
        recorder.save_trace(self._raw, self._directory / recorder.TRACE, facts)
        self._scratch.cleanup()
        store.write_whole(self._directory / FACTS, json.dumps(recorder.metadata(facts), indent=1).encode())

    def _facts(self, recorded: int) -> Capture:
        assert self._watch is not None
        assert self._before is not None
        states = (self._before, environment.device_state("after", self._device))
        notes = [] if self.done else [f"the loop ended early: {recorded} of {self._steps} profiled steps were recorded"]
        if self._device.type == "cpu":
            notes.append("measured on the CPU: operators of this machine stand for kernels")
        return Capture(
            schema=recorder.SCHEMA,
            created=recorder.now(),
            version=__version__,
            title=self._title,
            trace=recorder.TRACE,
            eager_trace=None,
            lead_in=True,
            profiled_steps=recorded,
            configuration=None,
            environment=environment.describe(self._device, states),
            wall=clock.wall(self._watch, "steps of the user's loop", None, "a user's own loop is not captured"),
            samples_per_step=self._samples,
            sample_unit=self._sample_unit,
            parameters=None,
            peak_memory_bytes=self._peak_bytes,
            rank=self._rank,
            world_size=self._world_size,
            extra=self._extra,
            notes=tuple(notes),
        )


class capture:
    """Record a loop of your own: `with addrfrac.capture("run/", steps=5) as run:`, and `run.step()` after each step.

    The first `warmup` steps are left alone, `unprofiled` ones are timed (default: three times `steps`, at least 20),
    the rest is profiled. `samples` is what one step works through, for throughput; `configuration` is any dict worth
    keeping with the figures. Under torchrun each rank writes `rank<r>/`, and rank 0 a summary of all.

    Raises AddrfracError on leaving where the loop was too short for one profiled step; an exception of the loop passes
    through with nothing written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        steps: int = 5,
        warmup: int = 3,
        unprofiled: int | None = None,
        device: str | None = None,
        title: str | None = None,
        samples: float | None = None,
        sample_unit: str = "samples",
        configuration: dict[str, Any] | None = None,
    ) -> None:
        unprofiled = clock.step_count(steps, 0.0) if unprofiled is None else unprofiled
        for name, value, least in (("steps", steps, 1), ("warmup", warmup, 0), ("unprofiled", unprofiled, 1)):
            if value < least:
                raise ValueError(f"{name}={value}: at least {least} is needed")
        self._root = Path(directory)
        self._rank, self._world_size = _rank()
        self._arguments = (steps, warmup, unprofiled)
        self._device_name = device
        self._title = title or Path(sys.argv[0]).name or "a user's loop"
        self._samples, self._sample_unit = samples, sample_unit
        self._extra = {"configuration": configuration or {}, "steps": steps, "warmup": warmup, "unprofiled": unprofiled}

    def __enter__(self) -> Run:
        directory = self._root if self._rank is None else self._root / f"rank{self._rank}"
        (directory / FACTS).unlink(missing_ok=True)  # an older run's must not pass for this one's
        kind = environment.torch_device(self._device_name or ("cuda" if environment.has_cuda() else "cpu")).type
        self._run = Run(
            directory,
            kind == "cuda",
            *self._arguments,
            self._title,
            self._samples,
            self._sample_unit,
            self._extra,
            self._rank,
            self._world_size,
        )
        self._run._begin()
        return self._run

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self._run._abandon()
            return
        self._run._finish()
        if self._rank == 0 and self._world_size is not None:
            summary = summarise(self._root, self._world_size, RANKS_WAIT_S)
            store.write_whole(self._root / SUMMARY, json.dumps(summary, indent=1).encode())


def _current_device() -> torch.device:
    """The loop's own choice of GPU, asked for at its first step: under torchrun every rank has another."""
    import torch

    return torch.device("cuda", torch.cuda.current_device())


def _cpu() -> torch.device:
    import torch

    return torch.device("cpu")


def _rank() -> tuple[int | None, int | None]:
    """Rank and world size as torchrun sets them; None outside of it."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None, None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def summarise(root: Path, world_size: int, wait_s: float) -> dict[str, Any]:
    """Every rank's median step time, in one table; ranks whose files did not appear in time are listed as missing.

    By files and not by a collective, which would hang where a rank has died.
    """
    deadline = time.monotonic() + wait_s
    files = {rank: root / f"rank{rank}" / FACTS for rank in range(world_size)}
    while not all(file.exists() for file in files.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    ranks = {rank: json.loads(file.read_text()) for rank, file in files.items() if file.exists()}
    return {
        "created": recorder.now(),
        "world_size": world_size,
        "missing_ranks": [rank for rank in files if rank not in ranks],
        "ranks": [
            {
                "rank": rank,
                "trace": f"rank{rank}/{facts['trace']}",
                "device": facts["environment"]["device"],
                "profiled_steps": facts["profiled_steps"],
                "step_us": _median(facts["wall"]),
                "peak_memory_bytes": facts["peak_memory_bytes"],
                "notes": facts["notes"],
            }
            for rank, facts in sorted(ranks.items())
        ],
    }


def _median(wall: dict[str, Any]) -> float:
    import statistics

    return float(statistics.median(wall.get("device_us") or wall["host_us"]))
