"""Time and memory of `addrfrac analyze` beside its peers, over growing traces; prints a markdown table.

    python tests/benchmarks/trace_benchmark.py --traces ../shared/traces --work /tmp/traces

Run on demand, on a machine that does nothing else. The traces are h100_owlv2 tiled eight times (285 MB) and multiples
of that; every tile has its own stamps and ids. HolisticTraceAnalysis is installed into an environment of its own unless
--hta-python names one; TraceLens (AMD-AGI/TraceLens, not on PyPI) runs only where --tracelens-python names its Python.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SEED = "h100_owlv2.json.gz"
TILES_AT_SCALE_ONE = 8
HTA = "HolisticTraceAnalysis==0.5.0"
ID_STEP = 10_000_000
IDS = ("correlation", "External id", "Ev Idx", "Sequence number", "Python id", "Python parent id")
SAMPLE_SECONDS = 0.02
MARK = "@number@"
OURS, HTA_NAME, TRACELENS_NAME = "addrfrac analyze --format json", HTA, "TraceLens performance report, CSV"
SLOW = (HTA_NAME, TRACELENS_NAME)

HTA_CODE = """
import logging, sys, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
print(len(analysis.get_gpu_kernel_breakdown(visualize=False)[1]))
"""
BARE_CODE = """
import sys, msgspec
class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0
    dur: float = 0
    args: msgspec.Raw = msgspec.Raw()
class Trace(msgspec.Struct, gc=False):
    traceEvents: list[Event]
print(len(msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Trace).traceEvents))
"""
INFLATE_CODE = """
import sys, zlib
inflater = zlib.decompressobj(wbits=31)
with open(sys.argv[1], "rb") as file:
    print(sum(len(inflater.decompress(block)) for block in iter(lambda: file.read(65536), b"")))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run of a command took."""

    seconds: float
    peak_mb: float
    """Resident memory of all its processes together, sampled; pages that they share count in each.

    Not ru_maxrss, which starts at what this process held when it forked.
    """


def main() -> None:
    """Build the traces, run everything on them, print the tables."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    scales = [int(scale) for scale in options.scales.split(",")]
    print(
        f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, {sys.version.split()[0]}"
    )
    template = Template.of(options.traces / SEED)
    _compare_with_peers(options, template)
    _show_growth(options, template, scales)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help=f"folder that holds {SEED}")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the large files; they are removed at the end"
    )
    parser.add_argument("--scales", default="1,2,4,8,16", help="multiples of 285 MB")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command at scale 1; the median is shown")
    parser.add_argument("--hta-python", type=Path, help=f"Python of an environment with {HTA}")
    parser.add_argument("--tracelens-python", type=Path, help="Python of an environment with TraceLens")
    parser.add_argument("--keep", action="store_true", help="leave the large files")
    return parser.parse_args()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """A trace's events as one format string with their stamps and ids as numbers."""

    head: str
    text: str
    numbers: np.ndarray
    steps: np.ndarray
    """What each number grows by from tile to tile."""

    @classmethod
    def of(cls, path: Path) -> Template:
        """The template of a trace file."""
        with gzip.open(path) as file:
            content = json.load(file)
        events = content.pop("traceEvents")
        stamps = [_nanoseconds(event["ts"]) for event in events]
        ends = [stamp + _nanoseconds(event.get("dur", 0)) for stamp, event in zip(stamps, events, strict=True)]
        span = max(ends) - min(stamps) + 1_000_000
        numbers: list[int] = []
        steps: list[int] = []
        texts: list[str] = []
        for event, stamp in zip(events, stamps, strict=True):
            text, growing = _marked(event, stamp, span // 1000)
            texts.append(text)
            for number, step in growing:
                numbers.append(number)
                steps.append(step)
        head = json.dumps(content)[:-1] + ', "traceEvents": ['
        return cls(head=head, text=", ".join(texts), numbers=np.array(numbers), steps=np.array(steps))

    def write(self, path: Path, tiles: int) -> None:
        """That many tiles, one after the other in time."""
        with path.open("w") as file:
            file.write(self.head)
            for tile in range(tiles):
                file.write(", " if tile else "")
                file.write(self.text % tuple((self.numbers + tile * self.steps).tolist()))
            file.write("]}")


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def _marked(event: dict[str, Any], stamp_ns: int, span_us: int) -> tuple[str, list[tuple[int, int]]]:
    """The event's JSON as a format string, and in the order of their places its numbers with their growth by tile."""
    marked = {**event, "ts": MARK}
    if "id" in event:
        marked["id"] = f"{MARK}{event['id']}"
    if "args" in event:
        marked["args"] = {
            key: f"{MARK}{value}" if key in IDS and isinstance(value, int) else value
            for key, value in event["args"].items()
        }
    growing: list[tuple[int, int]] = []

    def placed(found: re.Match[str]) -> str:
        if found.group(1):
            growing.append((int(found.group(1)), ID_STEP))
            return "%d"
        growing.extend([(stamp_ns // 1000, span_us), (stamp_ns % 1000, 0)])
        return "%d.%03d"

    return re.sub(f'"{MARK}(-?\\d*)"', placed, json.dumps(marked).replace("%", "%%")), growing


def _compare_with_peers(options: argparse.Namespace, template: Template) -> None:
    """Everything on the file of scale 1, in turns, so that a slow moment of the machine meets all."""
    path = options.work / "trace_x1.json"
    template.write(path, TILES_AT_SCALE_ONE)
    zipped = options.work / "trace_x1.json.gz"
    with path.open("rb") as plain, gzip.open(zipped, "wb", compresslevel=6) as file:
        shutil.copyfileobj(plain, file, 1 << 22)
    commands = _commands(options, path, zipped)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(options.repeats):
        for name, command in commands.items():
            if turn == 0 or name not in SLOW:
                costs[name].append(_run(command, options.work))
    events = subprocess.run(_bare(path), capture_output=True, text=True, check=True).stdout.strip()
    print(f"\n{path.stat().st_size / 1e6:.0f} MB, {events} events; median of {options.repeats} (peers: one run)\n")
    ours = statistics.median(cost.seconds for cost in costs[OURS])
    print("| | s | all runs, s | peak MB | times ours |\n|---|---|---|---|---|")
    for name, runs in costs.items():
        seconds = statistics.median(cost.seconds for cost in runs)
        every = " ".join(f"{cost.seconds:.2f}" for cost in runs)
        print(f"| {name} | {seconds:.2f} | {every} | {max(cost.peak_mb for cost in runs):.0f} | {seconds / ours:.1f} |")
    if not options.keep:
        path.unlink()
        zipped.unlink()


def _commands(options: argparse.Namespace, path: Path, zipped: Path) -> dict[str, list[str]]:
    """What is run, by name."""
    commands = {
        OURS: _analyze(path),
        f"{OURS}, gzip": _analyze(zipped),
        "inflating the gzip file alone (zlib)": [sys.executable, "-c", INFLATE_CODE, str(zipped)],
        "bare msgspec decode": _bare(path),
        HTA_NAME: [str(_hta_python(options)), "-c", HTA_CODE, str(path), str(options.work)],
    }
    if options.tracelens_python is not None:
        report = ["-m", "TraceLens.Reporting.generate_perf_report_pytorch", "--profile_json_path", str(path)]
        csvs = options.work / "tracelens"
        commands[TRACELENS_NAME] = [str(options.tracelens_python), *report, "--output_csvs_dir", str(csvs)]
    return commands


def _analyze(path: Path) -> list[str]:
    return [sys.executable, "-m", "addrfrac", "analyze", str(path), "--format", "json"]


def _bare(path: Path) -> list[str]:
    return [sys.executable, "-c", BARE_CODE, str(path)]


def _hta_python(options: argparse.Namespace) -> Path:
    """The given Python, or that of a new environment with HTA in it."""
    if options.hta_python is not None:
        return Path(options.hta_python)
    folder = options.work / "hta"
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", HTA], check=True)
    return Path(folder / "bin/python")


def _show_growth(options: argparse.Namespace, template: Template, scales: Sequence[int]) -> None:
    """Our command on growing files."""
    print("\n| scale | MB | s | s per GB | peak MB |\n|---|---|---|---|---|")
    for scale in scales:
        path = options.work / f"trace_x{scale}.json"
        template.write(path, TILES_AT_SCALE_ONE * scale)
        size = path.stat().st_size
        cost = min((_run(_analyze(path), options.work) for _ in range(2)), key=lambda run: run.seconds)
        per_gb = cost.seconds / size * 1e9
        print(f"| {scale} | {size / 1e6:.0f} | {cost.seconds:.2f} | {per_gb:.2f} | {cost.peak_mb:.0f} |")
        if not options.keep:
            path.unlink()


def _run(command: Sequence[str], folder: Path) -> Cost:
    """Wall seconds from process start to exit, and peak memory."""
    start = time.perf_counter()
    with (folder / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, cwd=folder)
        peak = _Peak(process.pid)
        failed = process.wait()
        seconds = time.perf_counter() - start
        if failed:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{errors.read()[-2000:]}")
    return Cost(seconds=seconds, peak_mb=peak.stop() / 1e6)


class _Peak:
    """Samples the resident memory of a process and its children."""

    def __init__(self, root: int) -> None:
        self._root, self._peak_bytes, self._done = root, 0, threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._peak_bytes = max(self._peak_bytes, _tree_bytes(self._root))

    def stop(self) -> int:
        """The largest sum seen, in bytes."""
        self._done.set()
        self._thread.join()
        return self._peak_bytes


def _tree_bytes(root: int) -> int:
    """Resident bytes of a process and all below it."""
    total = 0
    try:
        total += int(Path(f"/proc/{root}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        children = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    except (OSError, IndexError):
        return total
    return total + sum(_tree_bytes(int(child)) for child in children)


if __name__ == "__main__":
    main()
