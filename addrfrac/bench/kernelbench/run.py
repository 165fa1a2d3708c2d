"""`addrfrac bench kernelbench`: problems and solutions found, evaluated, written down as they come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from addrfrac import __version__, environment
from addrfrac.bench import results
from addrfrac.bench.kernelbench import cluster, workers
from addrfrac.bench.kernelbench.evaluate import DTYPES, Task
from addrfrac.bench.kernelbench.problems import choose, find_problems
from addrfrac.bench.kernelbench.records import SCHEMA, Evaluation, Problem, Solution, Study
from addrfrac.bench.kernelbench.solutions import find_solutions
from addrfrac.errors import AddrfracError
from addrfrac.records import Environment
from addrfrac.store import write_whole

FILE = "kernelbench.json"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac bench kernelbench` as typed."""

    problems: Path
    solutions: tuple[Path, ...]
    levels: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    limit: int = 0
    """Problems at most, evenly spread over levels by number; 0 for all."""
    protocols: tuple[str, ...] = ("addrfrac", "study", "kernelbench", "kernelbench-verified")
    precision: str = "tf32"
    device: str = "cuda"
    jobs: int = 0
    gpus: int = 1
    cluster: str = ""
    """A Ray address, 'local', or '' for processes of this machine."""
    resume: bool = False
    quick: bool = False
    timeout_s: float = 120.0
    directory: Path = Path("runs/bench-kernelbench")
    command: str = ""


def run(request: Request, progress: Progress) -> Study:
    """The study. Raises AddrfracError for a request that cannot be met; a solution that fails is a result."""
    began = time.monotonic()
    _check(request)
    found = find_problems(request.problems, request.levels)
    chosen, selection = choose(found, request.numbers, request.limit)
    solutions = [one for source in request.solutions for one in find_solutions(source, chosen)]
    _reject_twins(solutions)
    if request.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before any process that will import triton is started
    place = environment.describe(environment.torch_device(request.device), ())
    tasks = list(_tasks(chosen, solutions, request, place))
    kept = results.read_lines(request.directory, Evaluation) if request.resume else {}
    results.keep_whole_lines(request.directory, kept.values())
    done = {task.key: kept[task.key] for task in tasks if task.key in kept}
    if done:
        progress(f"{len(done)} of {len(tasks)} kept from the last run")
    left = [task for task in tasks if task.key not in done]
    for evaluation in _evaluations(left, request):
        results.append(request.directory, evaluation)
        done[evaluation.key] = evaluation
        progress(f"{len(done)}/{len(tasks)} {outcome(evaluation)}")
    study = Study(
        schema=SCHEMA,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        command=request.command,
        environment=place,
        protocols=request.protocols,
        precision=request.precision,
        selection=selection,
        planned=tuple(problem.place for problem in chosen),
        without_solution=_without(chosen, solutions),
        evaluations=tuple(done[task.key] for task in tasks),
        seconds=round(time.monotonic() - began, 2),
        notes=_notes(request, place, len(tasks) - len(left)),
    )
    save(study, request.directory)
    return study


def _check(request: Request) -> None:
    from addrfrac.verification.protocols import find_protocol

    for name in request.protocols:
        find_protocol(name)
    if not request.protocols:
        raise AddrfracError("no protocol: name one, or all")
    if request.precision not in DTYPES:
        raise AddrfracError(f"no precision {request.precision!r}; choose of {', '.join(DTYPES)}")
    if not request.timeout_s > 0:
        raise AddrfracError(f"a timeout of {request.timeout_s:g} s: give more than 0")
    if request.jobs < 0 or request.gpus < 1:
        raise AddrfracError(f"{request.jobs} jobs on {request.gpus} GPUs: give 0 or more jobs and at least 1 GPU")
    if request.device == "cuda" and not request.cluster:
        import torch

        there = torch.cuda.device_count()
        if request.gpus > there:
            raise AddrfracError(f"--gpus {request.gpus}, but there are {there} here; give fewer, or --device cpu")


def _reject_twins(solutions: Sequence[Solution]) -> None:
    """Two sets of one name would be taken for samples of one model."""
    seen: dict[tuple[int, int, str, int], str] = {}
    for one in solutions:
        place = one.level, one.number, one.name, one.sample
        if place in seen:
            raise AddrfracError(
                f"two solutions are {one.name!r} sample {one.sample} of level {one.level} problem {one.number} "
                f"({seen[place]}, {one.path}): rename one's folder or number its samples"
            )
        seen[place] = one.path


def _tasks(
    chosen: Sequence[Problem], solutions: Sequence[Solution], request: Request, place: Environment
) -> Iterator[Task]:
    by_place = {problem.place: problem for problem in chosen}
    for one in solutions:
        problem = by_place[one.level, one.number]
        yield Task(
            key=_key(problem, one, request, place),
            problem=problem,
            solution=one,
            protocols=request.protocols,
            precision=request.precision,
            device=request.device,
            quick=request.quick,
            timeout_s=request.timeout_s,
            device_name=str(place.device),
            versions=dict(place.versions),
        )


def _key(problem: Problem, one: Solution, request: Request, place: Environment) -> str:
    """Of everything that an evaluation depends on; not of where files lie."""
    how = ",".join(request.protocols), request.precision, request.device, request.quick, request.timeout_s
    return results.key_of(
        SCHEMA, __version__, problem.place, problem.text, one.name, one.sample, one.text, one.published_speedup, *how,
        place.device, sorted(place.versions.items()),
    )  # fmt: skip


def _evaluations(tasks: Sequence[Task], request: Request) -> Iterable[Evaluation]:
    if request.cluster:
        return cluster.evaluations(
            tasks, address=request.cluster, jobs=request.jobs, gpus=request.gpus, device=request.device
        )
    return workers.evaluations(tasks, jobs=request.jobs, gpus=request.gpus, device=request.device)


def _without(chosen: Sequence[Problem], solutions: Sequence[Solution]) -> dict[str, tuple[tuple[int, int], ...]]:
    names = dict.fromkeys(one.name for one in solutions)
    there = {(one.name, (one.level, one.number)) for one in solutions}
    return {name: tuple(problem.place for problem in chosen if (name, problem.place) not in there) for name in names}


def _notes(request: Request, place: Environment, kept: int) -> tuple[str, ...]:
    notes = []
    if request.device == "cpu":
        notes.append("CPU times are no kernel results: Triton ran in its interpreter, the trusted clock needs a GPU")
    if request.quick:
        notes.append("--quick: fewer of the verifier's trials, one process a side, no compiled baseline")
    if request.cluster:
        notes.append(f"spread by Ray; versions are those of the machine that asked ({place.device})")
    if kept:
        notes.append(f"{kept} evaluations are of an earlier run of the same texts, device and versions")
    return tuple(notes)


def outcome(evaluation: Evaluation) -> str:
    """One line for the terminal while the study runs."""
    what = f"level {evaluation.level} {evaluation.number:3d} {evaluation.solution} sample {evaluation.sample}"
    if evaluation.failure:
        return f"{what}: {evaluation.failure}"
    said = ", ".join(f"{verdict.protocol} {verdict.status.value}" for verdict in evaluation.verdicts)
    return f"{what}: {said} ({evaluation.seconds:.1f} s)"


def statuses(study: Study) -> Mapping[str, Mapping[str, int]]:
    """Protocol -> status -> how many; evaluations without a verdict count as 'lost'."""
    counted: dict[str, dict[str, int]] = {}
    for protocol in study.protocols:
        for evaluation in study.evaluations:
            verdict = evaluation.verdict(protocol)
            status = verdict.status.value if verdict is not None else "lost"
            mine = counted.setdefault(protocol, {})
            mine[status] = mine.get(status, 0) + 1
    return counted


def save(study: Study, folder: Path) -> None:
    """Write it whole, as `kernelbench.json` of that folder."""
    write_whole(folder / FILE, msgspec.json.encode(study) + b"\n")


def load(path: Path) -> Study:
    """The study saved at `path`, or in the folder `path`. Raises AddrfracError for what is not one."""
    file = path / FILE if path.is_dir() else path
    try:
        return msgspec.json.decode(file.read_bytes(), type=Study)
    except OSError as error:
        raise AddrfracError(f"cannot read {file}: {error.strerror}; give a folder that `bench` wrote") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise AddrfracError(f"{file} is no saved KernelBench study ({error})") from error
