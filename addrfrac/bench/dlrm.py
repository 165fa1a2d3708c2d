"""DLRM-Bench: every solution verified, then timed beside every baseline in turns, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from addrfrac import __version__, environment, measure, stats
from addrfrac.arms import Arm, Job
from addrfrac.bench import contest, results, score
from addrfrac.bench.contest import Contestant
from addrfrac.bench.records import SCHEMA, Evaluation, Judged, Solution, Suite
from addrfrac.bench.solutions import find_solutions
from addrfrac.dlrm_bench import SIZES, Problem, find_problem, problems
from addrfrac.errors import AddrfracError
from addrfrac.records import ArmTimes, Configuration, Gain, Range
from addrfrac.verification.records import Status

Progress = Callable[[str], None]
VERIFY_SIZE = "tiny"
"""The verifier varies shapes, contents and parameters dozens of times; the timed size is looked at apart."""
LIE, LIE_US = 1.15, 5.0
"""A step may take this much more by the parent's clock than its process says."""
CANDIDATE = "solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac bench dlrm` as typed."""

    problems: tuple[str, ...] = ()
    """Numbers or names; all of them where empty."""
    solutions: tuple[str, ...] = ("first",)
    sizes: tuple[str, ...] = ("medium",)
    indices: tuple[str, ...] = ("uniform",)
    protocol: str = "addrfrac"
    device: str = "cuda"
    processes: int = 3
    rounds: int = 6
    resume: bool = False
    compile: bool = True
    verify: bool = True
    timeout_s: float = 120.0
    directory: Path = Path("runs/bench-dlrm")
    command: str = ""


def run(request: Request, progress: Progress) -> Suite:
    """The suite. Raises AddrfracError for a request that cannot be met; a solution that fails is a result."""
    wanted = [find_problem(key) for key in request.problems] if request.problems else list(problems())
    _check(request)
    found = [solution for source in request.solutions for solution in find_solutions(source, wanted)]
    kept = results.read(request.directory) if request.resume else {}
    results.keep_whole_lines(request.directory, kept.values())
    place = environment.describe(environment.torch_device(request.device), ())
    verdicts: dict[str, Judged] = {}
    done: list[Evaluation] = []
    cases = [(s, size, indices) for s in found for size in request.sizes for indices in _kinds(s, request)]
    for number, (solution, size, indices) in enumerate(cases, 1):
        problem = find_problem(solution.problem)
        key = _key(problem, solution, size, indices, request, place)
        label = f"{number}/{len(cases)} {problem.number} {problem.name} · {solution.name}"
        if key in kept:
            progress(f"{label} · {size} · {indices}: kept from the last run")
            done.append(kept[key])
            continue
        progress(f"{label} · {size} · {indices}")
        evaluation = _evaluate(problem, solution, size, indices, request, verdicts, key)
        results.append(request.directory, evaluation)
        done.append(evaluation)
    suite = Suite(
        schema=SCHEMA,
        suite="dlrm",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        command=request.command,
        environment=place,
        evaluations=tuple(done),
        scores=score.scores(done),
        notes=_notes(request),
    )
    results.save(suite, request.directory)
    return suite


def _check(request: Request) -> None:
    for size in request.sizes:
        if size not in SIZES:
            raise AddrfracError(f"no size {size!r}; choose of {', '.join(SIZES)}")
    for indices in request.indices:
        if indices not in ("uniform", "zipf"):
            raise AddrfracError(f"no index distribution {indices!r}; choose uniform or zipf")
    if request.processes < 1:
        raise AddrfracError("--processes must be at least 1")


def _kinds(solution: Solution, request: Request) -> tuple[str, ...]:
    """The distributions that make a difference to the problem: '-' where it has no ids."""
    text = find_problem(solution.problem).path.read_text()
    return request.indices if "indices)" in text else ("-",)


def _key(problem: Problem, solution: Solution, size: str, indices: str, request: Request, place: Any) -> str:
    versions = sorted(place.versions.items())
    return results.key_of(
        SCHEMA, problem.path.read_text(), solution.text, size, indices, request.protocol, place.device, versions
    )


def _evaluate(
    problem: Problem,
    solution: Solution,
    size: str,
    indices: str,
    request: Request,
    verdicts: dict[str, Judged],
    key: str,
) -> Evaluation:
    began = time.monotonic()
    judged = _judged(problem, solution, request, verdicts)
    blank = Evaluation(
        schema=SCHEMA,
        key=key,
        number=problem.number,
        problem=problem.name,
        size=size,
        indices=indices,
        solution=solution.name,
        sample=solution.sample,
        judged=judged,
        error=None,
        error_limit=None,
        agrees=None,
        arms=(),
        best_baseline="",
        over_eager=None,
        over_best=None,
        over_library=None,
        clock_ratio=None,
        bytes=None,
        flops=None,
        floor_us=Range(low=None, high=None),
        peak_bytes=None,
        baseline_peak_bytes=None,
        failure="" if judged.passed else f"not timed: {judged.status}",
        seconds=0.0,
        extra={"library": _library(problem), "path": solution.path},
    )
    if judged.passed or not request.verify:
        blank = _timed(blank, problem, solution, request)
    return replace(blank, seconds=round(time.monotonic() - began, 2))


def _library(problem: Problem) -> list[str]:
    from addrfrac.dlrm_bench.baselines import makers

    return list(makers(problem.name))


# --- verified -------------------------------------------------------------------------------------------------


def _judged(problem: Problem, solution: Solution, request: Request, verdicts: dict[str, Judged]) -> Judged:
    """The verifier's word, once a solution: it does not depend on the size that is timed."""
    key = results.key_of(problem.name, solution.text)
    if key not in verdicts:
        verdicts[key] = _verify(problem, solution, request) if request.verify else _unverified()
    return verdicts[key]


def _unverified() -> Judged:
    return Judged(
        protocol="none", status="not verified", reason="left out by --no-verify", precision="", labels=(), seconds=0.0
    )


def _verify(problem: Problem, solution: Solution, request: Request) -> Judged:
    from addrfrac.verification.check import check_target
    from addrfrac.verification.processes import start_server
    from addrfrac.verification.protocols import find_protocol
    from addrfrac.verification.sources import Source, Target

    target = Target(
        name=problem.name, problem=Source(text=at_size(problem, VERIFY_SIZE)), solution=Source(text=solution.text)
    )
    with start_server(request.device) as server:
        verdict = check_target(
            server, target, find_protocol(request.protocol), timeout_s=request.timeout_s, timing=False
        )
    return Judged(
        protocol=verdict.protocol,
        status=Status(verdict.status).value,
        reason=verdict.reason,
        precision=str(verdict.precision.value),
        labels=tuple(label.value for label in verdict.labels),
        seconds=round(verdict.seconds, 2),
    )


def at_size(problem: Problem, size: str, indices: str = "uniform") -> str:
    """The problem's text, its inputs of one size and distribution where none is asked for."""
    return (
        problem.path.read_text()
        + "\n\n_of_inputs, _of_init = get_inputs, get_init_inputs\n\n\n"
        + f"def get_inputs():\n    return _of_inputs({size!r}, {indices!r})\n\n\n"
        + f"def get_init_inputs():\n    return _of_init({size!r})\n"
    )


# --- timed ----------------------------------------------------------------------------------------------------


def contestants(problem: Problem, solution: Solution, size: str, indices: str, request: Request) -> dict[str, Arm]:
    """Every arm of a case by name: eager, compiled and library baselines and the solution, eager and as a graph."""
    kinds = {"eager": "reference"}
    kinds |= {"compile": "compile"} if request.compile else {}
    kinds |= {name: f"library:{name}" for name in _library(problem)}
    kinds |= {CANDIDATE: "solution"}
    found = {}
    for name, kind in kinds.items():
        for graph in (False, True) if request.device == "cuda" else (False,):
            who = Contestant(
                problem=problem.name,
                size=size,
                indices="uniform" if indices == "-" else indices,
                kind=kind,
                text=solution.text if kind == "solution" else "",
                graph=graph,
            )
            label = f"{name} + graph" if graph else name
            found[label] = Arm(name=label, source=partial(contest.prepare, contestant=who))
    return found


def _timed(blank: Evaluation, problem: Problem, solution: Solution, request: Request) -> Evaluation:
    """The evaluation with its times, or with the reason why there are none."""
    arms = contestants(problem, solution, blank.size, blank.indices, request)
    # TF32 on for everybody, where a dtype of fp32 lets it.
    configuration = Configuration(
        workload="contest", mode="infer", batch=1, dtype="tf32", layout="", execution="eager", device=request.device
    )
    job = Job(workload=contest.HERE, configuration=configuration, device=request.device)
    told: dict[str, dict[str, Any]] = {}
    ratios: dict[str, float] = {}

    def visit(workers: Mapping[str, measure.Worker], taken: Mapping[str, measure.Series]) -> None:
        for name, worker in workers.items():
            told.setdefault(name, worker.ask(contest.facts_of))
            if name.startswith(CANDIDATE):
                ratios[name] = clock_ratio(worker)

    try:
        series = measure.measure_arms(
            job,
            list(arms.values()),
            processes=request.processes,
            rounds=request.rounds,
            at_once=_at_once(problem, blank.size),
            timeout=request.timeout_s + 120.0,
            visit=visit,
        )
    except measure.Lost as lost:
        return replace(blank, failure=f"not timed: {lost}")
    times = {name: arm_times(one, contest.CALLS) for name, one in series.items() if one.blocks}
    lost_arms = {name: one.lost[0] for name, one in series.items() if one.lost}
    facts = next((told[name] for name in (CANDIDATE, f"{CANDIDATE} + graph") if name in told), {})
    extra = blank.extra | {"lost": lost_arms, "calls": contest.CALLS}
    if CANDIDATE not in times or "eager" not in times:
        why = lost_arms.get(CANDIDATE) or lost_arms.get("eager") or "no block was timed"
        return replace(blank, failure=f"not timed: {why}", extra=extra, arms=tuple(times.values()))
    limit, error = facts.get("error_limit"), facts.get("error")
    ratio = max(ratios.values(), default=None) if ratios else None
    evaluation = replace(
        blank,
        error=error,
        error_limit=limit,
        agrees=None if error is None or limit is None else error <= limit,
        arms=tuple(times.values()),
        clock_ratio=ratio,
        bytes=facts.get("bytes"),
        flops=facts.get("flops"),
        peak_bytes=times[CANDIDATE].peak_memory_bytes,
        baseline_peak_bytes=times["eager"].peak_memory_bytes,
        extra=extra,
    )
    if ratio is not None and ratio > LIE:
        return replace(evaluation, failure=f"timing disagreement: {ratio:.2f} times what its process says")
    return compared(evaluation, times)


def compared(evaluation: Evaluation, times: Mapping[str, ArmTimes]) -> Evaluation:
    """The evaluation with its gains: the best baseline is chosen on even blocks and reported on odd ones."""
    baselines = [name for name in times if not name.startswith(CANDIDATE)]
    ours = [name for name in times if name.startswith(CANDIDATE)]
    best, mine = (min(names, key=lambda name: _median(times[name], 0)) for names in (baselines, ours))
    library = [name for name in baselines if name.partition(" + ")[0] in evaluation.extra.get("library", ())]
    at_best = min(library, key=lambda name: _median(times[name], 0)) if library else None
    return replace(
        evaluation,
        best_baseline=best,
        over_eager=gain(times["eager"], times[CANDIDATE]),
        over_best=gain(times[best], times[mine], reporting=True),
        over_library=gain(times[at_best], times[mine], reporting=True) if at_best else None,
    )


def _median(times: ArmTimes, parity: int) -> float:
    return stats.arm_median(_half(times, parity))


def _half(times: ArmTimes, parity: int) -> list[list[tuple[float, ...]]]:
    """Every other block of each process; all where there is only one."""
    return [list(process[parity::2] or process) for process in times.blocks_us]


def gain(before: ArmTimes, after: ArmTimes, *, reporting: bool = False) -> Gain:
    """One arm over another; `reporting` leaves the blocks out that the choice was made on."""
    a = _half(before, 1) if reporting else [list(process) for process in before.blocks_us]
    b = _half(after, 1) if reporting else [list(process) for process in after.blocks_us]
    found = stats.compare_arms(a, b)
    return Gain(
        before=before.arm,
        after=after.arm,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        saved_us=found.saved,
        verdict=found.verdict,
        noise_floor=None,
        least_detectable=found.least_detectable,
        processes=min(len(a), len(b)),
    )


def arm_times(series: measure.Series, calls: int) -> ArmTimes:
    """Microseconds a call; a step is `calls` of them."""
    blocks = tuple(tuple(tuple(us / calls for us in block) for block in process) for process in series.blocks)
    value, low, high = stats.arm_interval(blocks)
    return ArmTimes(
        arm=series.arm.name,
        switches=(),
        launch="graph" if series.arm.name.endswith("+ graph") else "eager",
        blocks_us=blocks,
        median_us=value,
        low_us=low,
        high_us=high,
        peak_memory_bytes=max(series.peaks, default=None) if series.peaks else None,
        host_us=None,
        method=f"steps of {calls} calls on inputs in rotation between device events, {len(blocks)} processes in turns",
    )


def clock_ratio(worker: measure.Worker, block_us: float = 20_000.0) -> float:
    """How much longer a step takes by this process's clock than the worker says: by the slope over two lengths.

    What both lengths have in common (the message, the first launch) drops out.
    """
    estimate = max(worker.ask(measure.block, 2))
    steps = int(min(max(block_us / max(estimate, 1.0), 2), 60))
    walls, said = [], []
    for length in (steps, 4 * steps):
        began = time.perf_counter()
        claimed = worker.ask(measure.block, length)
        walls.append((time.perf_counter() - began) * 1e6)
        said.append(sum(claimed))
    slope, claim = (walls[1] - walls[0]) / (3 * steps), (said[1] - said[0]) / (3 * steps)
    return float(max(slope - LIE_US, 0.0) / max(claim, 1e-3))


def _at_once(problem: Problem, size: str) -> int:
    """Large tables are held by one process at a time."""
    return 1 if size == "production" else 10


def _notes(request: Request) -> tuple[str, ...]:
    notes = ["TF32 is allowed to all contestants alike; ids are int64 for all"]
    if request.device == "cpu":
        notes.append("CPU times are no kernel results: Triton ran in its interpreter, if at all")
    if not request.verify:
        notes.append("nothing was verified (--no-verify), so nothing counts as right")
    return tuple(notes)


def sorted_by_number(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return sorted(evaluations, key=lambda e: (e.solution, e.size, e.indices, e.number, e.sample))
