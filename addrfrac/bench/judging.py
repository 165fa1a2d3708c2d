"""Problems with their solutions in, the verifier's word on each out; told once for each content, kept in a file."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from addrfrac.bench import results
from addrfrac.bench.records import Judged, Solution
from addrfrac.dlrm_bench import Problem
from addrfrac.records import Environment

if TYPE_CHECKING:
    from addrfrac.bench.dlrm import Request
    from addrfrac.verification.processes import Server

Progress = Callable[[str], None]
FILE = "verdicts.jsonl"
SIZE = "tiny"
"""The verifier varies shapes, contents and parameters dozens of times; the timed size is looked at apart."""
MOST_JOBS = 8
UNVERIFIED = Judged(
    protocol="none", status="not verified", reason="left out by --no-verify", precision="", labels=(), seconds=0.0
)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    key: str
    judged: Judged


def key_of(problem: Problem, solution: Solution, request: Request, place: Environment) -> str:
    """Of everything that a verdict depends on."""
    versions = sorted(place.versions.items())
    how = request.protocol, request.quick, request.device, place.device
    return results.key_of(problem.path.read_text(), solution.text, *how, versions)


def at_size(problem: Problem, size: str, indices: str = "uniform") -> str:
    """The problem's text, its inputs of one size and distribution where none is asked for."""
    return (
        problem.path.read_text()
        + "\n\n_of_inputs, _of_init = get_inputs, get_init_inputs\n\n\n"
        + f"def get_inputs():\n    return _of_inputs({size!r}, {indices!r})\n\n\n"
        + f"def get_init_inputs():\n    return _of_init({size!r})\n"
    )


def judge_all(pairs: Mapping[str, tuple[Problem, Solution]], request: Request, progress: Progress) -> dict[str, Judged]:
    """Key -> verdict. What the folder's file knows already is not verified again; each is written down as it comes."""
    path = request.directory / FILE
    known = {key: judged for key, judged in read(path).items() if key in pairs}
    waiting = {key: pair for key, pair in pairs.items() if key not in known}
    if not waiting:
        return known
    jobs = min(request.jobs or max(1, min(MOST_JOBS, (os.cpu_count() or 1) // 2)), len(waiting))
    progress(f"verifying {len(waiting)} solutions, {jobs} at a time")

    def told(key: str, judged: Judged) -> None:
        known[key] = judged
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(Kept(key=key, judged=judged)) + b"\n")
        problem, solution = waiting[key]
        said = f"{len(known)}/{len(pairs)} verified: {problem.number:02d} {problem.name} · {solution.name}: "
        progress(said + f"{judged.status} ({judged.seconds:.0f} s)")

    for key, judged in _judged(waiting, request, jobs):
        told(key, judged)
    return known


def read(path: Path) -> dict[str, Judged]:
    """Verdicts of an earlier run; a torn line is none."""
    found: dict[str, Judged] = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            one = msgspec.json.decode(line, type=Kept)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        found[one.key] = one.judged
    return found


def _judged(waiting: Mapping[str, tuple[Problem, Solution]], request: Request, jobs: int) -> Any:
    """(key, verdict) as they come: in this process with one server, or in several with one each."""
    if jobs == 1:
        from addrfrac.verification.processes import start_server

        with start_server(request.device) as server:
            for key, (problem, solution) in waiting.items():
                yield key, judge(server, problem, solution, request.protocol, request.quick, request.timeout_s)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = {
            pool.submit(_judge_apart, *pair, request.device, request.protocol, request.quick, request.timeout_s): key
            for key, pair in waiting.items()
        }
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except BrokenExecutor as error:
                why = f"the verifier's process ended: {error}"
                yield (
                    futures[future],
                    Judged(
                        protocol=request.protocol, status="incomplete", reason=why, precision="", labels=(), seconds=0.0
                    ),
                )


_servers: dict[str, Server] = {}


def _judge_apart(
    problem: Problem, solution: Solution, device: str, protocol: str, quick: bool, timeout_s: float
) -> Judged:
    """In a process of the pool, which keeps its server from solution to solution."""
    import torch

    from addrfrac.verification.processes import start_server

    torch.set_num_threads(1)
    if device not in _servers or _servers[device].process.poll() is not None:
        _servers[device] = start_server(device)
    return judge(_servers[device], problem, solution, protocol, quick, timeout_s)


def judge(server: Server, problem: Problem, solution: Solution, protocol: str, quick: bool, timeout_s: float) -> Judged:
    """One verdict; speed is not the verifier's to say here."""
    from addrfrac.verification.check import check_target
    from addrfrac.verification.protocols import find_protocol
    from addrfrac.verification.records import Status
    from addrfrac.verification.sources import Source, Target

    target = Target(name=problem.name, problem=Source(text=at_size(problem, SIZE)), solution=Source(text=solution.text))
    verdict = check_target(server, target, find_protocol(protocol), quick=quick, timeout_s=timeout_s, timing=False)
    return Judged(
        protocol=verdict.protocol,
        status=Status(verdict.status).value,
        reason=verdict.reason,
        precision=str(verdict.precision.value),
        labels=tuple(label.value for label in verdict.labels),
        seconds=round(verdict.seconds, 2),
    )
