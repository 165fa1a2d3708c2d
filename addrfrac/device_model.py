"""A CUDA device in, what its memory and matrix units reach out; measured once, kept in a file.

Times are those that the device itself records of each kernel (CUPTI, by torch's profiler): the same clock as every
kernel time that a floor is set beside. The same launches are timed a second time without the profiler between device
events, less an empty window, and the notes say how far the two agree: events also hold the latency between two commands
of a stream, about as much as a small kernel takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from addrfrac import __version__, environment, stats
from addrfrac.errors import AddrfracError, UnreadableTrace
from addrfrac.fits import fit_access
from addrfrac.parse import read_trace
from addrfrac.recorder import now
from addrfrac.records import AccessFit, DeviceModel, MatmulPeak
from addrfrac.store import write_whole

if TYPE_CHECKING:
    import torch

SCHEMA = 1
MARK = "addrfrac device "
"""Ranges of this name enclose the launches that are timed."""

SMALLEST_COLD_BYTES, LARGEST_BYTES = 64 * 1024, 2 * 1024**3
SMALLEST_L2_BYTES = 1024
"""What a kernel takes that does next to nothing fixes t0 there."""
COLD_SIZES, L2_SIZES = 10, 9
COLD_REPEATS, L2_REPEATS, EMPTY_REPEATS = 15, 20, 50
EVICTED_TIMES_L2 = 4
TABLE_TIMES_L2 = 20
LARGEST_SHARE_OF_L2 = 0.5
SHARE_OF_MEMORY = 1 / 16
"""No buffer is larger than this share of the device's memory."""
ROW_BYTES = 512
REDUCED_COLUMNS = 1024
HELD_CYCLES = 200_000
"""The stream is held this long (about 0.1 ms) so that all that is timed is queued before any of it starts."""
HELD_CYCLES_GRAPH = 2_000_000
"""Issuing a graph of a thousand nodes takes the host longer."""

PEAK_SIZES = (4096, 8192)
PEAK_REPEATS, PEAK_WARM_UP = 12, 3
PAUSE_S = 0.02
"""Between products of the smaller size: short bursts run at the clocks that a lone kernel meets."""
L2_BYTES_WHERE_UNKNOWN = 64 * 1024**2

LAUNCHES, LAUNCH_BLOCKS = 200, 25
CHAIN_LENGTHS = (100, 250, 500, 1000)
CHAIN_REPEATS = 15

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kernel at one size."""

    series: str
    """Trials of one series make one fit or one peak."""
    work: int
    """Bytes moved, or flops."""
    launch: Callable[[], object]
    before: Callable[[], object]
    """Runs before each timed launch: reads the eviction buffer, or launches the same kernel once."""
    repeats: int
    pause_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Bench:
    """The device with the buffers that all trials share."""

    device: torch.device
    l2_bytes: int
    largest_bytes: int
    evict: Callable[[], object]
    generator: torch.Generator
    notes: list[str] = field(default_factory=list)


Samples = dict[str, dict[int, list[float]]]
"""Series -> work -> microseconds."""


def measure_device(*, command: str = "", progress: Progress = lambda _: None) -> DeviceModel:
    """Measure the current CUDA device; under a minute on an H200. Raises AddrfracError where there is none."""
    if not environment.has_cuda():
        raise AddrfracError(
            "addrfrac device measures a CUDA device and there is none here; run it on the machine that was profiled"
        )
    import torch

    device = environment.torch_device("cuda")
    torch.cuda.set_device(device)
    with torch.no_grad(), TemporaryDirectory(prefix="addrfrac-") as scratch:
        bench = _bench(device)
        _wake(bench)
        before = environment.device_state("before", device)
        progress("timing between device events")
        empty_us = _empty_window_us(bench)
        windows = _windows(bench, empty_us, progress)
        progress("the same under the profiler")
        recorded, tiny_us = _recorded(bench, Path(scratch) / "device.json", progress)
        progress("launches and graph nodes")
        launch_us = _launch_us(bench)
        slope_us = _graph_slope_us(bench)
        after = environment.device_state("after", device)
        facts = environment.describe(device, (before, after))
    taken = recorded if recorded else windows
    clock = "kernel records of the profiler" if recorded else "device events less an empty window"
    notes = list(dict.fromkeys(bench.notes))
    if recorded:
        notes.append(_comparison(recorded, windows, empty_us))
    else:
        notes.append("the profiler recorded no kernel; times are device events less an empty window")
    if tiny_us is not None and slope_us is not None:
        notes.append(f"a node of a chain of tiny kernels: {slope_us:.2f} us, the kernel itself {tiny_us:.2f} us")
    del bench
    torch.cuda.empty_cache()
    return DeviceModel(
        schema=SCHEMA,
        created=now(),
        version=__version__,
        command=command,
        environment=facts,
        fits=tuple(_fits(taken, clock, notes)),
        peaks=tuple(_peaks(taken)),
        launch_us=launch_us,
        graph_node_us=max(slope_us - tiny_us, 0.0) if slope_us is not None and tiny_us is not None else None,
        notes=tuple(notes),
    )


# --- the bench ----------------------------------------------------------------------------------------------


def _bench(device: torch.device) -> Bench:
    import torch

    properties = torch.cuda.get_device_properties(device)
    found = int(getattr(properties, "L2_cache_size", 0) or 0)
    l2_bytes = found or L2_BYTES_WHERE_UNKNOWN
    unread = torch.ones(EVICTED_TIMES_L2 * l2_bytes // 4, device=device)
    total = torch.zeros((), device=device)
    largest = min(LARGEST_BYTES, int(properties.total_memory * SHARE_OF_MEMORY))
    notes = [f"L2 is evicted by reading {EVICTED_TIMES_L2 * l2_bytes / 1e6:.0f} MB before each cold launch"]
    if not found:
        notes.append(f"torch does not tell the size of L2; {l2_bytes / 1e6:.0f} MB was assumed")
    return Bench(
        device=device,
        l2_bytes=l2_bytes,
        largest_bytes=largest,
        evict=partial(torch.sum, unread, dim=0, out=total),
        generator=torch.Generator(device).manual_seed(stats.SEED),
        notes=notes,
    )


def _wake(bench: Bench) -> None:
    """Half a second of reading, so that the clocks have risen."""
    import torch

    began = time.perf_counter()
    while time.perf_counter() - began < 0.5:
        for _ in range(20):
            bench.evict()
        torch.cuda.synchronize(bench.device)


def sizes(smallest: int, largest: int, count: int) -> tuple[int, ...]:
    """`count` sizes from smallest to largest in equal ratios."""
    ratio = (largest / smallest) ** (1.0 / (count - 1))
    return tuple(round(smallest * ratio**i) for i in range(count))


def _groups(bench: Bench) -> Iterator[tuple[str, Callable[[], Iterator[Trial]]]]:
    """What is timed, group by group; a group's buffers live while it runs."""
    l2_sizes = sizes(SMALLEST_L2_BYTES, int(bench.l2_bytes * LARGEST_SHARE_OF_L2), L2_SIZES)
    cold_sizes = sizes(SMALLEST_COLD_BYTES, bench.largest_bytes, COLD_SIZES)
    for access, trials in ACCESSES.items():
        yield f"{access} cold", partial(trials, bench, f"{access} cold", cold_sizes, True)
        yield f"{access} l2", partial(trials, bench, f"{access} l2", l2_sizes, False)
    for dtype in PEAK_DTYPES:
        yield f"peak {dtype}", partial(_products, bench, dtype)


def _trial(bench: Bench, series: str, work: int, launch: Callable[[], object], cold: bool) -> Trial:
    return Trial(
        series=series,
        work=work,
        launch=launch,
        before=bench.evict if cold else _held(launch),
        repeats=COLD_REPEATS if cold else L2_REPEATS,
    )


def _held(launch: Callable[[], object]) -> Callable[[], object]:
    """Hold the stream, then launch once: the timed launch finds its data in L2 and is queued before it can start."""

    def before() -> None:
        _hold()
        launch()

    return before


def _hold(cycles: int = HELD_CYCLES) -> None:
    import torch

    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _stream(bench: Bench, series: str, of_bytes: tuple[int, ...], cold: bool) -> Iterator[Trial]:
    import torch

    source = torch.ones(max(of_bytes) // 8, device=bench.device)
    target = torch.empty_like(source)
    for size in of_bytes:
        x, y = source[: size // 8], target[: size // 8]
        yield _trial(bench, series, 8 * len(x), partial(torch.add, x, 1.0, out=y), cold)


def _write(bench: Bench, series: str, of_bytes: tuple[int, ...], cold: bool) -> Iterator[Trial]:
    import torch

    target = torch.empty(max(of_bytes) // 4, device=bench.device)
    for size in of_bytes:
        y = target[: size // 4]
        yield _trial(bench, series, 4 * len(y), partial(y.fill_, 1.0), cold)


def _gather(bench: Bench, series: str, of_bytes: tuple[int, ...], cold: bool) -> Iterator[Trial]:
    """Rows of a table at distinct random places: each id names one row to read and one to write."""
    import torch

    each = 2 * ROW_BYTES + 8
    most = max(of_bytes) // each
    table_bytes = TABLE_TIMES_L2 * bench.l2_bytes if cold else int(bench.l2_bytes * LARGEST_SHARE_OF_L2 / 2)
    rows = max(table_bytes // ROW_BYTES, most if cold else 1)
    table = torch.ones(rows, ROW_BYTES // 4, device=bench.device)
    ids = torch.randperm(rows, generator=bench.generator, device=bench.device)
    target = torch.empty(most, ROW_BYTES // 4, device=bench.device)
    for size in of_bytes:
        n = max(1, min(size // each, rows))
        if n < size // each:
            continue  # the small table has no more distinct rows
        chosen, out = ids[:n], target[:n]
        yield _trial(bench, series, n * each, partial(torch.index_select, table, 0, chosen, out=out), cold)


def _reduce(bench: Bench, series: str, of_bytes: tuple[int, ...], cold: bool) -> Iterator[Trial]:
    import torch

    each = 4 * REDUCED_COLUMNS + 4
    source = torch.ones(max(of_bytes) // each, REDUCED_COLUMNS, device=bench.device)
    target = torch.empty(len(source), device=bench.device)
    for size in of_bytes:
        n = max(1, size // each)
        x, y = source[:n], target[:n]
        yield _trial(bench, series, len(x) * each, partial(torch.sum, x, dim=1, out=y), cold)


def _transpose(bench: Bench, series: str, of_bytes: tuple[int, ...], cold: bool) -> Iterator[Trial]:
    import torch

    for size in of_bytes:
        n = max(32, round(math.sqrt(size / 8) / 32) * 32)
        x = torch.ones(n, n, device=bench.device)
        yield _trial(bench, series, 8 * n * n, partial(_transposed, x), cold)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


ACCESSES: dict[str, Callable[[Bench, str, tuple[int, ...], bool], Iterator[Trial]]] = {
    "stream": _stream,
    "write": _write,
    "gather": _gather,
    "reduce": _reduce,
    "transpose": _transpose,
}
WHAT = {
    "stream": "x + 1, fp32 read and written (aten::add)",
    "write": "a constant written, fp32 (aten::fill_)",
    "gather": f"{ROW_BYTES}-byte rows at distinct random ids, read and written, ids read (aten::index_select)",
    "reduce": f"sums of rows of {REDUCED_COLUMNS} fp32 (aten::sum)",
    "transpose": "square fp32 matrix, .t().contiguous() (aten::copy_)",
}
PEAK_DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8")


def _products(bench: Bench, dtype: str) -> Iterator[Trial]:
    """Square products of random numbers: how many bits switch decides the power drawn, and so the clock."""
    for size in PEAK_SIZES:
        launch = _product(bench, dtype, size)
        if launch is None:
            bench.notes.append(f"{dtype}: this device and torch have no product of that kind")
            return
        yield Trial(
            series=f"peak {dtype} {size}",
            work=2 * size**3,
            launch=launch,
            before=_hold,
            repeats=PEAK_REPEATS,
            pause_s=PAUSE_S if size == min(PEAK_SIZES) else 0.0,
        )


def _product(bench: Bench, dtype: str, size: int) -> Callable[[], object] | None:
    import torch

    def random() -> torch.Tensor:
        return torch.randn(size, size, device=bench.device, generator=bench.generator)

    if dtype == "fp8":
        kind = getattr(torch, "float8_e4m3fn", None)
        if kind is None or not hasattr(torch, "_scaled_mm") or torch.cuda.get_device_capability(bench.device) < (8, 9):
            return None
        left, right = random().to(kind), random().to(kind).t()  # the right factor by columns, as cuBLAS wants it
        one = torch.ones((), device=bench.device)
        return lambda: torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    plain = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    a, b = random().to(plain), random().to(plain)
    target = torch.empty_like(a)

    def launch() -> object:
        with _tf32(dtype == "tf32"):
            return torch.mm(a, b, out=target)

    return launch


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    import torch

    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _ready(bench: Bench, name: str, trials: Callable[[], Iterator[Trial]]) -> Iterator[Trial]:
    """The trials of a group, each warmed up; what fails on this device ends the group and becomes a note."""
    import torch

    try:
        for trial in trials():
            for _ in range(PEAK_WARM_UP):
                trial.launch()
            torch.cuda.synchronize(bench.device)
            yield trial
    except RuntimeError as error:
        bench.notes.append(f"{name} stopped: {str(error).splitlines()[0][:160]}")


# --- two clocks ---------------------------------------------------------------------------------------------


def _windows(bench: Bench, empty_us: float, progress: Progress) -> Samples:
    """Every trial between device events, less an empty window."""
    import torch

    found: Samples = {}
    for name, trials in _groups(bench):
        progress(f"timing {name}")
        for trial in _ready(bench, name, trials):
            pairs = []
            for _ in range(trial.repeats):
                _pause(bench, trial)
                start, end = _event(), _event()
                trial.before()
                start.record()
                trial.launch()
                end.record()
                pairs.append((start, end))
            torch.cuda.synchronize(bench.device)
            times = [max(_between_us(start, end) - empty_us, 0.01) for start, end in pairs]
            found.setdefault(trial.series, {}).setdefault(trial.work, []).extend(times)
    return found


def _event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _between_us(start: Any, end: Any) -> float:
    return float(start.elapsed_time(end)) * 1e3


def _pause(bench: Bench, trial: Trial) -> None:
    import torch

    if trial.pause_s:
        torch.cuda.synchronize(bench.device)
        time.sleep(trial.pause_s)


def _empty_window_us(bench: Bench) -> float:
    """Median time between two events with nothing between them, on a stream that is held busy before."""
    import torch

    times = []
    for _ in range(EMPTY_REPEATS):
        start, end = _event(), _event()
        _hold()
        start.record()
        end.record()
        torch.cuda.synchronize(bench.device)
        times.append(_between_us(start, end))
    return median(times)


def _recorded(bench: Bench, raw: Path, progress: Progress) -> tuple[Samples, float | None]:
    """Every trial by the profiler's kernel records, and the median of a kernel of one element; ({}, None) without."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    keys: list[tuple[str, int]] = []
    one = torch.zeros(1, device=bench.device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        for name, trials in _groups(bench):
            progress(f"profiling {name}")
            for trial in _ready(bench, name, trials):
                for _ in range(trial.repeats):
                    _pause(bench, trial)
                    trial.before()
                    with record_function(f"{MARK}{len(keys)}"):
                        trial.launch()
                    keys.append((trial.series, trial.work))
                torch.cuda.synchronize(bench.device)
        for _ in range(EMPTY_REPEATS):
            _hold()
            with record_function(f"{MARK}{len(keys)}"):
                one.add_(1)
            keys.append(("tiny", 4))
        torch.cuda.synchronize(bench.device)
    profiler.export_chrome_trace(str(raw))
    found = _by_key(marked_us(raw), keys)
    tiny = found.pop("tiny", {}).get(4, [])
    return found, median(tiny) if tiny else None


def marked_us(raw: Path) -> dict[int, float]:
    """Number of each marked range in a trace -> microseconds of the kernels launched in it; {} without kernels."""
    try:
        trace = read_trace(raw)
    except UnreadableTrace:
        return {}
    kernels = trace.kernels
    numbers = [
        next((int(frame.removeprefix(MARK)) for frame in stack if frame.startswith(MARK)), -1)
        for stack in trace.op_stacks
    ]
    number = np.array(numbers, dtype=np.int64)[kernels.op_stack]
    inside = number >= 0
    took = np.bincount(number[inside], weights=(kernels.end_ns - kernels.start_ns)[inside] / 1e3)
    return {int(each): float(took[each]) for each in np.flatnonzero(took > 0)}


def _by_key(took: Mapping[int, float], keys: list[tuple[str, int]]) -> Samples:
    found: Samples = {}
    for number, us in took.items():
        series, work = keys[number]
        found.setdefault(series, {}).setdefault(work, []).append(us)
    return found


def _comparison(recorded: Samples, windows: Samples, empty_us: float) -> str:
    """How far the two clocks agree, in words: apart from a constant they should."""
    extra, ratio = [], []
    for series, of_work in recorded.items():
        for work, times in of_work.items():
            other = windows.get(series, {}).get(work)
            if not other:
                continue
            ours, theirs = median(times), median(other)
            if ours < 10.0:
                extra.append(theirs - ours)
            elif ours > 100.0:
                ratio.append(theirs / ours)
    small = f"{median(extra):+.2f} us on kernels under 10 us" if extra else "no small kernels compared"
    large = f"{(median(ratio) - 1) * 100:+.1f} % on kernels over 100 us" if ratio else "no large kernels compared"
    return f"device events less an empty window ({empty_us:.2f} us) against kernel records: {small}, {large}"


# --- launches -----------------------------------------------------------------------------------------------


def _launch_us(bench: Bench) -> float:
    """Host time of one eager launch of a kernel of one element, which the device outruns."""
    import torch

    one = torch.zeros(1, device=bench.device)
    blocks = []
    for _ in range(LAUNCH_BLOCKS):
        torch.cuda.synchronize(bench.device)
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            one.add_(1)
        blocks.append((time.perf_counter() - began) * 1e6 / LAUNCHES)
    torch.cuda.synchronize(bench.device)
    return median(blocks)


def _graph_slope_us(bench: Bench) -> float | None:
    """Time a node of a chain of tiny kernels in a CUDA graph: the slope over its length; None where capture fails."""
    import torch

    one = torch.zeros(1, device=bench.device)
    one.add_(1)
    torch.cuda.synchronize(bench.device)
    medians = []
    try:
        for length in CHAIN_LENGTHS:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(length):
                    one.add_(1)
            medians.append(_replay_us(bench, graph))
    except RuntimeError as error:
        bench.notes.append(f"graph nodes not timed: {str(error).splitlines()[0][:160]}")
        return None
    return float(np.polyfit(CHAIN_LENGTHS, medians, 1)[0])


def _replay_us(bench: Bench, graph: Any) -> float:
    import torch

    graph.replay()
    times = []
    for _ in range(CHAIN_REPEATS):
        start, end = _event(), _event()
        torch.cuda.synchronize(bench.device)
        _hold(HELD_CYCLES_GRAPH)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize(bench.device)
        times.append(_between_us(start, end))
    return median(times)


# --- fits and peaks -----------------------------------------------------------------------------------------


def _fits(taken: Samples, clock: str, notes: list[str]) -> Iterator[AccessFit]:
    for access in ACCESSES:
        for residency in ("cold", "l2"):
            samples = taken.get(f"{access} {residency}", {})
            if len(samples) < 3:
                notes.append(f"{access} {residency}: {len(samples)} sizes were timed, too few for a fit")
                continue
            what = f"{WHAT[access]}; {clock}"
            yield fit_access(access=access, residency=residency, samples_us=samples, what=what)


def _peaks(taken: Samples) -> Iterator[MatmulPeak]:
    for series, of_work in taken.items():
        if not series.startswith("peak "):
            continue
        _, dtype, size = series.split()
        for flops, times in of_work.items():
            found = stats.times(times, "")
            yield MatmulPeak(
                dtype=dtype,
                tflops=flops / found.median_us / 1e6,
                low_tflops=flops / found.high_us / 1e6,
                high_tflops=flops / found.low_us / 1e6,
                size=int(size),
            )


# --- the file -----------------------------------------------------------------------------------------------


def save_device_model(model: DeviceModel, path: Path) -> None:
    """Write a device model so that a reader sees all of it or nothing."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")


def load_device_model(path: Path) -> DeviceModel:
    """The device model saved at `path`. Raises AddrfracError for a file that is missing, damaged or newer than this."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise AddrfracError(f"cannot read {path}: {error.strerror}; `addrfrac device -o {path}` makes one") from error
    try:
        model = msgspec.json.decode(content, type=DeviceModel)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise AddrfracError(f"{path} is no device model ({error}); `addrfrac device` makes one") from error
    if model.schema > SCHEMA:
        raise AddrfracError(f"{path} is of a newer addrfrac (schema {model.schema}, this one reads {SCHEMA}); upgrade")
    return model
