"""The whole clock on a simulated device: honest kernels of every kind pass, planted claims do not.

The worker's and the parent's code run as they are, in one process; the device, its streams, events and graphs are a
few numbers, and so is the time that either side's clock shows.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch

from addrfrac.verification import channel, clock, gpu, stopwatch, timed, worker
from addrfrac.verification.clock import SMALLEST_SINGLE_CALL_US
from addrfrac.verification.closeness import yardstick
from addrfrac.verification.exam import Trial
from addrfrac.verification.foreign import Raised, attempt
from addrfrac.verification.records import PrecisionClass, Status
from addrfrac.verification.reference import Arguments, Output, ReferenceRaised

MESSAGE_US = 60.0
SHAPE = (32, 48)


class Device:
    """Host and stream times in microseconds; work is a closure with a length."""

    type = "cuda"

    def __init__(self, seed: int = 0, noise: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.noise = noise
        self.host = 0.0
        self.streams: dict[str, float] = {}
        self.graph: Graph | None = None
        self.write_us = 12.0
        self.stall_at: set[int] = set()
        self.slow_host: tuple[float, float] = (0.0, 0.0)
        """From when to when the host is twenty times as slow: a driver that starts or ends another process."""
        self.writes = 0
        self.after: list[Callable[[], None]] = []
        self.mine = False
        """Whether the candidate's process is at work."""
        self.faster_events = 1.0

    def _length(self, us: float) -> float:
        return us * max(0.2, self.rng.gauss(1.0, self.noise)) if self.noise else us

    def kernel(self, us: float, work: Callable[[], Any], host_us: float = 6.0, stream: str = "main") -> None:
        """Launch work of a length; while a graph is captured it becomes a node."""
        if self.graph is not None:
            self.graph.nodes.append((us, work, stream))
            return
        slow = 20.0 if self.slow_host[0] < self.host < self.slow_host[1] else 1.0
        self.host += slow * self._length(host_us)
        self.run(us, work, stream)

    def run(self, us: float, work: Callable[[], Any], stream: str) -> None:
        work()
        self.streams[stream] = max(self.host, self.streams.get(stream, 0.0)) + self._length(us)

    def wait(self, stream: str, other: str) -> None:
        """Later work on `stream` waits for what is on `other`."""
        self.streams[stream] = max(self.streams.get(stream, 0.0), self.streams.get(other, 0.0))

    def synchronize(self, *_: Any) -> None:
        self.host = max([self.host, *self.streams.values()]) + 5.0

    def now(self) -> float:
        self.host += 2.0
        return max(self.host, self.streams.get("main", 0.0))


class Event:
    device: Device

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = self.device.now()

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * self.device.faster_events / 1e3


class Graph:
    device: Device

    def __init__(self) -> None:
        self.nodes: list[tuple[float, Callable[[], Any], str]] = []

    def replay(self) -> None:
        self.device.host += 12.0
        start = max([self.device.host, *self.device.streams.values()])
        for us, work, stream in self.nodes:
            self.device.streams[stream] = max(start, self.device.streams.get(stream, 0.0))
            self.device.run(us + 1.0, work, stream)
        for stream in {name for _, _, name in self.nodes}:
            self.device.wait("main", stream)


@contextlib.contextmanager
def capturing(graph: Graph, **_: Any) -> Iterator[None]:
    graph.device.graph = graph
    try:
        yield
    finally:
        graph.device.graph = None


class Stream:
    def wait_stream(self, _other: Stream) -> None:
        pass


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Device]:
    """Put a simulated device in the place of torch's."""

    def put(**options: Any) -> Device:
        device = Device(**options)
        Event.device = Graph.device = device
        cuda = torch.cuda
        for name, value in {
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": capturing,
            "Stream": Stream,
            "current_stream": Stream,
            "stream": lambda _stream: contextlib.nullcontext(),
            "synchronize": device.synchronize,
            "_sleep": lambda cycles: device.kernel(cycles / timed._CYCLES_PER_US, lambda: None),
        }.items():
            monkeypatch.setattr(cuda, name, value)
        monkeypatch.setattr(timed, "flush", lambda *_: device.kernel(60.0, lambda: None))
        original = timed.write

        def write(*arguments: Any) -> None:
            if device.after and device.mine:
                device.after.pop()()
            device.writes += 1
            if device.writes in device.stall_at:
                device.host += 5_000.0
            device.kernel(device.write_us if device.mine else 12.0, lambda: original(*arguments))

        monkeypatch.setattr(timed, "write", write)
        monkeypatch.setattr(timed, "_clock", lambda: int(1e3 * device.host))
        monkeypatch.setattr(timed, "_WARM_UP_NS", 0)
        monkeypatch.setattr(clock, "PAUSE_S", 0.0)
        monkeypatch.setattr(clock, "_MOST_UNROLLED", 64)
        monkeypatch.setattr(worker, "_HOST_ONLY", True)
        monkeypatch.setattr(worker.tripwires, "functions", dict)
        monkeypatch.setattr(worker.tripwires, "settings", dict)
        return device

    return put


class Handle:
    """A worker in this process."""

    def __init__(self, device: Device, model: Any, trials: list[Trial], tmp_path: Any) -> None:
        self.device = device
        self.state = worker.State(tmp_path, "cpu")
        self.state.model = model
        self.state.device = device  # type: ignore[assignment]
        self.keys = [f"k{i}" for i in range(len(trials))]
        for key, trial in zip(self.keys, trials, strict=True):
            tensors = [t.clone() for t in trial.arguments.tensors]
            self.state.arenas[key] = gpu.Inputs(tensors, torch.device("cpu"), trial.arguments.tree)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        before = self.device.host
        self.device.mine = not isinstance(self.state.model, Reference)
        answer = attempt(timed.PHASES[request["phase"]], self.state, request)
        if isinstance(answer, Raised):
            raise ReferenceRaised(f"{answer.type}: {answer.text}")
        tensors: list[torch.Tensor] = []
        if isinstance(answer, tuple):
            answer, (fd, slots) = answer
            tensors = channel.unpack(fd, slots)
        self.device.host += MESSAGE_US
        return {**answer, "tensors": tensors, "elapsed_s": (self.device.host - before) / 1e6}


class Server:
    device = "cuda"
    facts: ClassVar[dict[str, Any]] = {"cache_bytes": 1 << 20, "peak_gb_per_s": 4000.0}


class Exam:
    dtype, reduction_length, matmul, reseeded = "float32", 1.0, False, False


def answer_to(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2


def make_trials() -> list[Trial]:
    trials = []
    for seed in (1, 2):
        x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        native, truth = answer_to(x), answer_to(x.double())
        stick = yardstick(
            truth, {PrecisionClass.FP32: [native]}, dtype="float32", reduction_length=1.0, input_rms=1.0, nudged=truth
        )
        output = Output(tree=None, infos=[], tensors=[native], rng="", inputs_after=[x], elapsed_s=0.0, facts={})
        trials.append(
            Trial(
                name="signs",
                kind="distribution",
                construct=0,
                state=0,
                arguments=Arguments(tree={"l": [{"t": 0}]}, tensors=[x]),
                seed=seed,
                sticks=[stick],
                native=output,
                after=[x],
            )
        )
    return trials


class Reference(torch.nn.Module):
    def __init__(self, device: Device, us: float = 40.0) -> None:
        super().__init__()
        self.device, self.us = [device], us

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            return answer_to(x)
        out = torch.empty_like(x)
        self.device[0].kernel(self.us, lambda: out.copy_(answer_to(x)))
        return out


def timed_on(
    device: Device,
    forward: Callable[[torch.Tensor], Any],
    tmp_path: Any,
    *,
    span_us: float | None,
    rounds: int = 2,
    calls: int = 12,
) -> stopwatch.Bench:
    """One process of a candidate with that forward, beside the reference."""
    trials = make_trials()
    bench = stopwatch.Bench(
        server=Server(),  # type: ignore[arg-type]
        exam=Exam(),  # type: ignore[arg-type]
        trials=trials,
        vary=[True],
        span_us=span_us,
        calls=calls,
        rounds=rounds,
        sides={name: stopwatch.Timed(name=name) for name in ("eager-strict", "eager-tf32", stopwatch.CANDIDATE)},
    )
    for side in bench.sides.values():
        side.blocks.append([])
    bench.judged = set(range(rounds))
    mine = Handle(device, forward, trials, tmp_path)
    theirs = Handle(device, Reference(device), trials, tmp_path)
    seats = {
        "candidate": stopwatch.Seat(handle=mine, keys=mine.keys),  # type: ignore[arg-type]
        "baseline": stopwatch.Seat(handle=theirs, keys=theirs.keys),  # type: ignore[arg-type]
    }
    stopwatch.time_turns(bench, seats)
    return bench


def failures(bench: stopwatch.Bench) -> set[Status]:
    return {check.status for check in bench.checks if not check.passed}


def details(bench: stopwatch.Bench) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in bench.checks]


def one_kernel(device: Device, us: float, host_us: float = 20.0) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        device.kernel(us, lambda: out.copy_(answer_to(x)), host_us=host_us)
        return out

    return forward


def several_kernels(device: Device, count: int, us: float, host_us: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for _ in range(count):
            device.kernel(us, lambda: out.copy_(answer_to(x)), host_us=host_us)
        return out

    return forward


def joined_stream(device: Device, us: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        device.wait("side", "main")
        device.kernel(us, lambda: out[:16].copy_(answer_to(x[:16])), stream="side")
        device.kernel(us, lambda: out[16:].copy_(answer_to(x[16:])))
        device.wait("main", "side")
        return out

    return forward


def compiled_for_each_pointer(device: Device, us: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Like a launcher that compiles or loads something for the first call on any storage."""
    honest, seen = one_kernel(device, us, host_us=40.0), set[int]()

    def forward(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in seen:
            seen.add(x.data_ptr())
            device.host += 9_000.0
        return honest(x)

    return forward


def waits_for_itself(device: Device, us: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A call that waits for the device, as one that reads a number back does."""
    honest = one_kernel(device, us)

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = honest(x)
        device.synchronize()
        return out

    return forward


def replayed_graph(device: Device, us: float) -> Callable[[torch.Tensor], torch.Tensor]:
    kept: dict[str, Any] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept["x"], kept["out"], kept["graph"] = x.clone(), torch.empty_like(x), Graph()
            with capturing(kept["graph"]):
                device.kernel(us, lambda: kept["out"].copy_(answer_to(kept["x"])))
        device.kernel(3.0, lambda: kept["x"].copy_(x))
        kept["graph"].replay()
        out = torch.empty_like(x)
        device.kernel(3.0, lambda: out.copy_(kept["out"]))
        return out

    return forward


HONEST: dict[str, tuple[Callable[[Device], Callable[[torch.Tensor], Any]], float]] = {
    "a long kernel": (lambda d: one_kernel(d, 500.0), 480.0),
    "one of 90 us with a slow launcher": (lambda d: one_kernel(d, 90.0, host_us=51.0), 88.0),
    "a small kernel with a slow launcher": (lambda d: one_kernel(d, 3.0, host_us=51.0), 2.9),
    "a kernel of 30 us": (lambda d: one_kernel(d, 30.0), 29.0),
    "ten launches, bound by the host": (lambda d: several_kernels(d, 10, 3.0, 9.0), 29.0),
    "thirty launches, bound by the host": (lambda d: several_kernels(d, 30, 4.0, 8.0), 118.0),
    "a launcher of half a millisecond": (lambda d: one_kernel(d, 110.0, host_us=460.0), 108.0),
    "a launcher of half a millisecond, small": (lambda d: one_kernel(d, 4.0, host_us=460.0), 4.0),
    "a hundred launches": (lambda d: several_kernels(d, 100, 2.0, 9.0), 200.0),
    "compiled for each pointer": (lambda d: compiled_for_each_pointer(d, 20.0), 20.0),
    "compiled for each pointer, long": (lambda d: compiled_for_each_pointer(d, 110.0), 108.0),
    "one that waits for the device": (lambda d: waits_for_itself(d, 120.0), 120.0),
    "two streams, joined": (lambda d: joined_stream(d, 70.0), 70.0),
    "two streams of a small kernel, joined": (lambda d: joined_stream(d, 9.0), 9.0),
    "a graph that copies input and output": (lambda d: replayed_graph(d, 120.0), 125.0),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("noise", [0.0, 0.08])
def test_honest_kernels_are_never_refused(name, noise, simulate, tmp_path):
    make, span_us = HONEST[name]
    for seed in range(2 if noise else 1):
        device = simulate(seed=seed, noise=noise)
        bench = timed_on(device, make(device), tmp_path, span_us=span_us)
        assert not failures(bench), details(bench)
        assert all(bench.sides[stopwatch.CANDIDATE].blocks[0])


@pytest.mark.parametrize("name", ["a long kernel", "a small kernel with a slow launcher"])
def test_one_stall_of_the_host_is_measured_again_and_no_disagreement(name, simulate, tmp_path):
    make, span_us = HONEST[name]
    for stall in (7, 24, 61):
        device = simulate()
        device.stall_at = {stall}
        bench = timed_on(device, make(device), tmp_path, span_us=span_us)
        assert not failures(bench), (stall, details(bench))


@pytest.mark.parametrize("name", ["a long kernel", "a kernel of 30 us", "a hundred launches"])
@pytest.mark.parametrize("begins", [2_000.0, 12_000.0, 30_000.0, 60_000.0])
def test_a_host_that_is_slow_for_a_while_is_no_disagreement(name, begins, simulate, tmp_path):
    make, span_us = HONEST[name]
    device = simulate()
    device.slow_host = (begins, begins + 40_000.0)
    bench = timed_on(device, make(device), tmp_path, span_us=span_us)
    assert not failures(bench), details(bench)


@pytest.mark.parametrize("host_us", [5.0, 60.0, 150.0, 400.0])
@pytest.mark.parametrize("us", [8.0, 90.0])
def test_the_figure_is_the_device_s_whatever_launching_costs(us, host_us, simulate, tmp_path):
    device = simulate()
    bench = timed_on(device, one_kernel(device, us, host_us=host_us), tmp_path, span_us=us)
    assert not failures(bench), details(bench)
    assert bench.sides[stopwatch.CANDIDATE].blocks[0] == pytest.approx([us, us], rel=0.15)
    assert bench.sides["eager-strict"].blocks[0] == pytest.approx([40.0, 40.0], rel=0.05)
    assert bool(bench.unrolled) == (us < SMALLEST_SINGLE_CALL_US)


def test_how_calls_are_launched_is_decided_once_for_all_processes(simulate, tmp_path):
    device = simulate()
    us = 70.0

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        device.kernel(us, lambda: out.copy_(answer_to(x)))
        return out

    bench = timed_on(device, forward, tmp_path, span_us=None)
    us, held = 20.0, bench.hold_us
    mine, theirs = (Handle(device, model, bench.trials, tmp_path) for model in (forward, Reference(device)))
    for side in bench.sides.values():
        side.blocks.append([])
    handles = {"candidate": mine, "baseline": theirs}
    stopwatch.time_turns(bench, {k: stopwatch.Seat(handle=h, keys=h.keys) for k, h in handles.items()})  # type: ignore[arg-type]
    assert not bench.unrolled
    assert bench.hold_us == held
    assert not any(side.note for side in bench.sides.values())


def test_short_calls_are_timed_in_an_unrolled_graph_and_their_figure_is_the_device_s(simulate, tmp_path):
    device = simulate()
    bench = timed_on(device, one_kernel(device, 6.0, host_us=40.0), tmp_path, span_us=6.0)
    assert bench.unrolled
    figures = bench.sides[stopwatch.CANDIDATE].blocks[0]
    assert all(6.0 < us < 8.0 for us in figures)
    assert not failures(bench), details(bench)


def test_a_short_call_that_cannot_be_captured_is_too_small_to_time(simulate, tmp_path):
    device = simulate()
    honest = one_kernel(device, 6.0)

    def forward(x: torch.Tensor) -> torch.Tensor:
        if device.graph is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        return honest(x)

    bench = timed_on(device, forward, tmp_path, span_us=6.0)
    assert failures(bench) == {Status.TOO_SMALL_TO_TIME}
    assert "not permitted" in bench.too_small


@pytest.mark.parametrize("span_us", [None, 400.0])
def test_work_on_a_stream_that_nobody_waits_for_is_a_disagreement(span_us, simulate, tmp_path):
    device = simulate()

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        device.wait("side", "main")
        device.kernel(400.0, lambda: out.copy_(answer_to(x)), stream="side")
        return out

    assert failures(timed_on(device, forward, tmp_path, span_us=span_us)) == {Status.TIMING_DISAGREEMENT}


def test_little_work_on_a_side_stream_shows_in_the_trace(simulate, tmp_path):
    device = simulate()

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        device.wait("side", "main")
        device.kernel(70.0, lambda: out.copy_(answer_to(x)), stream="side")
        return out

    assert failures(timed_on(device, forward, tmp_path, span_us=70.0)) == {Status.TIMING_DISAGREEMENT}


def test_work_put_off_until_after_the_end_event_is_a_disagreement(simulate, tmp_path):
    device = simulate()

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = answer_to(x)
        device.kernel(2.0, lambda: None)
        device.after.append(lambda: device.kernel(400.0, lambda: None))
        return out

    assert failures(timed_on(device, forward, tmp_path, span_us=None)) == {Status.TIMING_DISAGREEMENT}


def test_work_hidden_in_the_writing_of_content_shows_beside_an_untouched_process(simulate, tmp_path):
    device = simulate()

    def forward(x: torch.Tensor) -> torch.Tensor:
        device.write_us = 400.0  # from its first call on, whoever writes content pays
        device.kernel(2.0, lambda: None)
        return answer_to(x)

    assert failures(timed_on(device, forward, tmp_path, span_us=None)) == {Status.TIMING_DISAGREEMENT}


@pytest.mark.parametrize("us", [10.0, 500.0])
def test_events_that_show_a_hundredth_are_a_disagreement(us, simulate, tmp_path):
    device = simulate()
    device.faster_events = 0.01
    bench = timed_on(device, one_kernel(device, us), tmp_path, span_us=us)
    assert failures(bench) == {Status.TIMING_DISAGREEMENT}


@pytest.mark.parametrize("us", [10.0, 200.0])
def test_outputs_kept_from_earlier_calls_are_wrong_amid_the_timed_ones(us, simulate, tmp_path):
    device = simulate()
    seen: list[torch.Tensor] = []
    calls = 0

    def forward(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out = torch.empty_like(x)
        device.kernel(us, lambda: out.copy_(answer_to(x) if calls < 4 else seen[0]))
        seen.append(out.clone())
        return out

    assert failures(timed_on(device, forward, tmp_path, span_us=us)) == {Status.WRONG_VALUES}


def test_no_two_timed_calls_have_the_same_content(simulate, tmp_path):
    device = simulate()
    keys: list[float] = []
    honest = one_kernel(device, 200.0)

    def forward(x: torch.Tensor) -> torch.Tensor:
        if sys._getframe(1).f_code.co_name == "run_block":
            keys.append(float(x.double().sum()))
        return honest(x)

    timed_on(device, forward, tmp_path, span_us=199.0)
    assert len(keys) == len(set(keys)) >= 2 * 12


def test_a_rate_above_the_measured_peak_is_refused_where_an_output_depends_on_all_of_the_input(
    simulate, tmp_path, monkeypatch
):
    monkeypatch.setitem(Server.facts, "peak_gb_per_s", 1e-3 * SHAPE[0] * SHAPE[1] * 4 / 400.0)
    device = simulate()
    assert failures(timed_on(device, one_kernel(device, 200.0), tmp_path, span_us=None)) == {Status.TOO_FAST}
    honest = timed_on(device, one_kernel(device, 420.0), tmp_path, span_us=None)
    assert not failures(honest), details(honest)


def test_bytes_that_no_output_depends_on_need_not_move(simulate, tmp_path, monkeypatch):
    monkeypatch.setitem(Server.facts, "peak_gb_per_s", 1e-3 * SHAPE[0] * SHAPE[1] * 4 / 400.0)
    device = simulate()

    def half(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([answer_to(x[:8]), torch.zeros_like(x[8:])])

    trials = make_trials()
    bench = stopwatch.Bench(
        server=Server(),  # type: ignore[arg-type]
        exam=Exam(),  # type: ignore[arg-type]
        trials=trials,
        vary=[True],
        span_us=None,
        calls=None,
        rounds=2,
        sides={},
    )
    theirs = Handle(device, lambda x: half(x), trials, tmp_path)
    seat = stopwatch.Seat(handle=theirs, keys=theirs.keys)  # type: ignore[arg-type]
    assert stopwatch._needed_bytes(bench, seat) < 0.6 * stopwatch._bytes(bench)


def test_the_smallest_single_call_decides_how_calls_are_launched(simulate, tmp_path):
    device = simulate()
    long = timed_on(device, one_kernel(device, SMALLEST_SINGLE_CALL_US + 20), tmp_path, span_us=None)
    assert not long.unrolled
