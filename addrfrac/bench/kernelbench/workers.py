"""Tasks in, evaluations out as they come: processes of this machine, a device each, one of them measuring at a time.

Each worker process keeps its verification server from task to task. Candidates run in processes of their own below it,
so one that falls takes nothing along; should a worker itself be lost, its task alone is tried again.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from addrfrac.bench.kernelbench.evaluate import Task, blank
from addrfrac.bench.kernelbench.records import Evaluation

if TYPE_CHECKING:
    from addrfrac.bench.kernelbench.device_turn import DeviceTurn
    from addrfrac.verification.processes import Server

ATTEMPTS = 2
"""Times that a task is begun before its worker's end is its failure."""
MOST_JOBS = 16
_LOOK_S = 1.0
"""Between two looks at whether a thread fell."""


def jobs_for(jobs: int, gpus: int, device: str) -> int:
    """Worker processes in all: as asked, else a third of the cores, at least one a GPU.

    An evaluation keeps about three cores busy on a GPU: its own process, the candidate's and a compiler.
    """
    cores = os.cpu_count() or 1
    asked = jobs or min(MOST_JOBS, cores // (3 if device == "cuda" else 2))
    return max(asked, gpus, 1)


def evaluations(tasks: Sequence[Task], *, jobs: int, gpus: int, device: str) -> Iterator[Evaluation]:
    """One evaluation a task, in the order in which they are done."""
    if not tasks:
        return
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done: queue.SimpleQueue[Evaluation] = queue.SimpleQueue()
    stop = threading.Event()
    count = min(jobs_for(jobs, gpus, device), len(tasks))
    with TemporaryDirectory(prefix="addrfrac-") as folder, ThreadPoolExecutor(count) as threads:
        serving = [
            threads.submit(_serve, _place(index, gpus, device), folder, waiting, done, stop) for index in range(count)
        ]
        try:
            for _ in tasks:
                yield _next(done, serving)
        finally:
            stop.set()


def _next(done: queue.SimpleQueue[Evaluation], serving: Sequence[Future[None]]) -> Evaluation:
    """The next evaluation; raises what a thread raised, as that is a fault of ours."""
    while True:
        try:
            return done.get(timeout=_LOOK_S)
        except queue.Empty:
            for thread in serving:
                if thread.done():
                    thread.result()


def _place(index: int, gpus: int, device: str) -> str:
    """'cpu', or which of the visible GPUs a worker has; workers go round them."""
    if device == "cpu":
        return "cpu"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [name.strip() for name in visible if name.strip()] or [str(number) for number in range(gpus)]
    return names[index % min(gpus, len(names))]


def _serve(
    place: str,
    folder: str,
    waiting: queue.SimpleQueue[Task],
    done: queue.SimpleQueue[Evaluation],
    stop: threading.Event,
) -> None:
    """A thread with one worker process: task after task, a new process where the last was lost."""
    pool = _pool(place, folder)
    try:
        while not stop.is_set():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    done.put(pool.submit(evaluate_here, task).result())
                    break
                except BrokenExecutor as error:
                    pool.shutdown(wait=False)
                    pool = _pool(place, folder)
                    if attempt == ATTEMPTS:
                        done.put(blank(task, failure=f"its worker was lost {ATTEMPTS} times: {error}"))
    finally:
        pool.shutdown()


def _pool(place: str, folder: str) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=settle, initargs=(place, folder))


# --- inside a worker process ----------------------------------------------------------------------------------

_servers: dict[str, Server] = {}
_turns: dict[str, DeviceTurn] = {}
_settled = ["", ""]


def settle(place: str, folder: str) -> None:
    """A worker's start: which device is its own, before anything looks for one."""
    if place != "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = place
    _settled[:] = [place, folder]


def evaluate_here(task: Task) -> Evaluation:
    """In a worker: one evaluation, with the server that the last one left."""
    import torch

    from addrfrac.bench.kernelbench.device_turn import DeviceTurn
    from addrfrac.bench.kernelbench.evaluate import evaluate
    from addrfrac.verification.processes import start_server

    torch.set_num_threads(1)
    place, folder = _settled
    if task.device not in _servers or _servers[task.device].process.poll() is not None:
        _servers[task.device] = start_server(task.device)
    if place not in _turns:
        _turns[place] = DeviceTurn(Path(folder), place)
    return evaluate(_servers[task.device], task, _turns[place])
