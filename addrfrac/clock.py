"""A step in, its unprofiled times out: by device events, by the host's clock, and as a replayed CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from addrfrac import stats
from addrfrac.errors import brief
from addrfrac.records import Times, Wall

if TYPE_CHECKING:
    import torch

GRAPH_WARMUP = 3
LONGEST_S = 60.0
FEWEST_STEPS = 5


def step_count(steps: int, estimate_s: float) -> int:
    """How many unprofiled steps to time, fixed before the first of them is.

    Three times the profiled steps and at least 20; fewer only where the estimate of one step says that they would take
    more than a minute.
    """
    wanted = max(20, 3 * steps)
    return wanted if wanted * estimate_s <= LONGEST_S else max(FEWEST_STEPS, int(LONGEST_S / estimate_s))


def synchronise(device: torch.device) -> None:
    """Wait for the device; nothing to wait for on a CPU."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    """Begin anew what `peak_bytes` reports."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Most that torch's allocator held since `reset_peak`; None on a CPU."""
    if device.type != "cuda":
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(device))


@dataclass(slots=True, kw_only=True)
class Stopwatch:
    """Readings at step boundaries; no step waits for the device, only `stop` does."""

    device: Any
    host_ns: list[int] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    stopped_ns: int = 0

    def mark(self) -> None:
        """The boundary between two steps: an event in the stream and a reading of the host's clock."""
        if self.device.type == "cuda":
            import torch

            cuda: Any = torch.cuda
            event = cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self.device))
            self.events.append(event)
        self.host_ns.append(time.perf_counter_ns())

    def stop(self) -> None:
        """Wait for the last step to end."""
        synchronise(self.device)
        self.stopped_ns = time.perf_counter_ns()

    @property
    def steps(self) -> int:
        return max(0, len(self.host_ns) - 1)

    def device_us(self) -> list[float]:
        """Microseconds between events; empty on a CPU."""
        return [a.elapsed_time(b) * 1e3 for a, b in zip(self.events, self.events[1:], strict=False)]

    def host_us(self) -> list[float]:
        """Microseconds between the host's readings."""
        return [(b - a) / 1e3 for a, b in zip(self.host_ns, self.host_ns[1:], strict=False)]

    def device_times(self, what: str) -> Times | None:
        """Times between events; None on a CPU."""
        if not self.events:
            return None
        samples = self.device_us()
        return stats.times(samples, f"device events between {len(samples)} {what}, nothing else in between")

    def host_times(self, what: str) -> Times:
        """Times between the host's readings: how long the host needed to issue each step (all of it on a CPU)."""
        samples = self.host_us()
        method = f"host clock between {len(samples)} {what}"
        if self.events:
            whole = (self.stopped_ns - self.host_ns[0]) / 1e3 / len(samples)
            method += f", one synchronisation after the last; the whole loop took {whole:.1f} us a step"
        return stats.times(samples, method)


def time_steps(run: Callable[[], object], count: int, device: torch.device) -> Stopwatch:
    """`count` steps back to back, timed. The device is idle at the start."""
    synchronise(device)
    watch = Stopwatch(device=device)
    watch.mark()
    for _ in range(count):
        run()
        watch.mark()
    watch.stop()
    return watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A captured step."""

    replay: Callable[[], object]
    """Puts the next inputs in place where the step asks for it, then replays."""
    owner: Any
    """The torch.cuda.CUDAGraph; its memory lives as long as this."""


def capture_graph(
    run: Callable[[], object], advance: Callable[[], None] | None, device: torch.device, *, keep: bool = False
) -> Graph | str:
    """The step as a CUDA graph, or in words why it could not be captured.

    `keep`: the captured graph stays beside the executable one, for `owner.raw_cuda_graph()`.
    A failed capture can leave torch's random generator and allocator in disorder: do it after everything else.
    """
    import torch

    cuda: Any = torch.cuda
    stream = cuda.Stream(device)
    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    current = torch.cuda.current_stream(device)
    try:
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(GRAPH_WARMUP):
                run()
        current.wait_stream(stream)
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph, stream=stream):
            run()
        if keep:
            graph.instantiate()
        torch.cuda.synchronize(device)
    except RuntimeError as error:  # torch.AcceleratorError and OutOfMemoryError are among them
        torch.cuda.set_stream(current)  # a capture that fails at its end leaves its own stream behind
        return f"capture failed: {brief(str(error)) or type(error).__name__}"

    def replay() -> None:
        if advance is not None:
            advance()
        graph.replay()

    return Graph(replay=replay, owner=graph)


def graph_times(graph: Graph, count: int, device: torch.device) -> Times:
    """Times between device events around replays, after a few that are not counted."""
    for _ in range(GRAPH_WARMUP):
        graph.replay()
    times = time_steps(graph.replay, count, device).device_times("replays of the step as a CUDA graph")
    assert times is not None
    return times


def wall(watch: Stopwatch, what: str, graph: Times | None, graph_note: str) -> Wall:
    return Wall(device=watch.device_times(what), host=watch.host_times(what), graph=graph, graph_note=graph_note)
