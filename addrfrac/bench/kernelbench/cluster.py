"""The same tasks over the GPUs of many machines, by Ray: a lost worker's evaluations are made again, records are equal.

Ray is an extra (`pip install addrfrac[cluster]`) because its wheel is large and one machine does not need it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from addrfrac.bench.kernelbench import workers
from addrfrac.bench.kernelbench.evaluate import Task, blank
from addrfrac.bench.kernelbench.records import Evaluation
from addrfrac.bench.kernelbench.workers import ATTEMPTS, jobs_for
from addrfrac.errors import AddrfracError

LOCAL = "local"


def evaluations(tasks: Sequence[Task], *, address: str, jobs: int, gpus: int, device: str) -> Iterator[Evaluation]:
    """One evaluation a task, in the order in which they are done. Raises AddrfracError without Ray or a cluster."""
    if not tasks:
        return
    ray = _ray()
    count = jobs_for(jobs, gpus, device)
    asked: dict[str, Any] = {"address": address}
    if address == LOCAL:
        asked = {"num_cpus": count, "num_gpus": gpus if device == "cuda" else 0, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, **asked)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0][:120]
        raise AddrfracError(f"no Ray cluster at {address!r} ({said}); give its address, or local") from error
    try:
        share = {"num_gpus": gpus / count} if device == "cuda" else {}
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1, **share)(_evaluate_there)
        running = {remote.remote(task): task for task in tasks}
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            yield _answer(ray, ready[0], running.pop(ready[0]))
    finally:
        ray.shutdown()


def _answer(ray: Any, reference: Any, task: Task) -> Evaluation:
    try:
        found: Evaluation = ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        return blank(task, failure=f"its worker was lost {ATTEMPTS} times: {why}")
    return found


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise AddrfracError("--cluster needs Ray, which is not installed: pip install 'addrfrac[cluster]'") from error
    return ray


def _evaluate_there(task: Task) -> Evaluation:
    """On a machine of the cluster: locks are files of that machine, one pair a GPU."""
    place = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if task.device == "cuda" else "cpu"
    folder = Path(tempfile.gettempdir()) / f"addrfrac-turns-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    workers.settle(place, str(folder))
    return workers.evaluate_here(task)
