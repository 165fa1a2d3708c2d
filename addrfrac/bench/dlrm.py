"""DLRM-Bench: every solution verified, then timed beside every baseline in turns, in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from addrfrac import __version__, environment, stats
from addrfrac.bench import judging, results, score, timing
from addrfrac.bench.contest import Contestant
from addrfrac.bench.floor import floor_us
from addrfrac.bench.records import SCHEMA, Evaluation, Judged, Solution, Suite
from addrfrac.bench.solutions import find_solutions
from addrfrac.bench.timing import CANDIDATE, Crew, Taken, contestant_of
from addrfrac.dlrm_bench import SIZES, Problem, find_problem, problems
from addrfrac.errors import AddrfracError
from addrfrac.records import ArmTimes, DeviceModel, Environment, Gain, Range

Progress = Callable[[str], None]
TIMED_THOUGH_REFUSED = ("shape-specialised", "unverifiable", "incomplete", "not verified")
"""What is right as the problem gives it, or was not judged, is timed all the same; it counts as no pass."""
CPU_ROUNDS = 4


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
    jobs: int = 0
    """Verified at a time; 0: half of the cores, at most eight."""
    resume: bool = False
    compile: bool = True
    verify: bool = True
    quick: bool = False
    """Fewer of the verifier's distributions, shapes and repeats."""
    time: bool = True
    timeout_s: float = 120.0
    device_model: DeviceModel | None = None
    directory: Path = Path("runs/bench-dlrm")
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One evaluation to be made."""

    problem: Problem
    solution: Solution
    size: str
    indices: str
    """'-' where the problem has no ids."""
    key: str

    @property
    def label(self) -> str:
        many = f" sample {self.solution.sample}" if self.solution.sample else ""
        ids = "" if self.indices == "-" else f" {self.indices}"
        return f"{self.problem.number:02d} {self.problem.name} {self.size}{ids} · {self.solution.name}{many}"


def run(request: Request, progress: Progress) -> Suite:
    """The suite. Raises AddrfracError for a request that cannot be met; a solution that fails is a result."""
    wanted = [find_problem(key) for key in request.problems] if request.problems else list(problems())
    _check(request)
    if request.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before any process that will import triton is started
    place = environment.describe(environment.torch_device(request.device), ())
    found = [solution for source in request.solutions for solution in find_solutions(source, wanted)]
    cases = list(_cases(found, request, place))
    kept = results.read(request.directory) if request.resume else {}
    results.keep_whole_lines(request.directory, kept.values())
    verdicts = _verdicts(cases, kept, request, place, progress)
    done: dict[str, Evaluation] = {}
    with Crew(request.device, request.timeout_s) as crew:
        for number, case in enumerate(cases, 1):
            judged = verdicts.get(judging.key_of(case.problem, case.solution, request, place), judging.UNVERIFIED)
            label = f"{number}/{len(cases)} {case.label}"
            if case.key in kept:
                progress(f"{label}: kept from the last run")
                done[case.key] = replace(kept[case.key], judged=judged if judged.known else kept[case.key].judged)
                continue
            progress(label)
            following = cases[number : number + 1]
            keep = any(_same_problem(case, after) and after.key not in kept for after in following)
            evaluation = _evaluate(case, judged, request, crew, place, keep=keep)
            progress(f"{label}: {outcome(evaluation)}")
            results.append(request.directory, evaluation)
            done[case.key] = evaluation
            results.save(_suite(done.values(), request, place), request.directory)
    suite = _suite(done.values(), request, place)
    results.keep_whole_lines(request.directory, (kept | done).values())
    results.save(suite, request.directory)
    return suite


def _same_problem(one: Case, other: Case) -> bool:
    """Whether two cases have the same baselines."""
    return (one.problem, one.size, one.indices) == (other.problem, other.size, other.indices)


def _suite(done: Iterable[Evaluation], request: Request, place: Environment) -> Suite:
    rows = tuple(done)
    return Suite(
        schema=SCHEMA,
        suite="dlrm",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        command=request.command,
        environment=place,
        evaluations=rows,
        scores=score.scores(rows),
        notes=_notes(request),
        device_model=request.device_model,
        pass_at_k=score.mean_pass_at_k(rows),
        best_of=score.best_of(rows),
    )


def _check(request: Request) -> None:
    for size in request.sizes:
        if size not in SIZES:
            raise AddrfracError(f"no size {size!r}; choose of {', '.join(SIZES)}")
    for indices in request.indices:
        if indices not in ("uniform", "zipf"):
            raise AddrfracError(f"no index distribution {indices!r}; choose uniform or zipf")
    if request.processes < 1 or request.rounds < 2:
        raise AddrfracError("give at least 1 process and 2 rounds: the best baseline is chosen on one, told of another")
    if not request.timeout_s > 0:
        raise AddrfracError(f"a timeout of {request.timeout_s:g} s: give more than 0")


def _cases(found: Sequence[Solution], request: Request, place: Environment) -> Iterable[Case]:
    """Size by size and problem by problem, the solutions of one problem beside each other."""
    numbers = {solution.problem: find_problem(solution.problem) for solution in found}
    by_number = sorted(found, key=lambda solution: numbers[solution.problem].number)
    for size in request.sizes:
        for indices in request.indices:
            for solution in by_number:
                problem = numbers[solution.problem]
                kind = indices if has_ids(problem) else "-"
                if kind == "-" and indices != request.indices[0]:
                    continue
                key = _key(problem, solution, size, kind, request, place)
                yield Case(problem=problem, solution=solution, size=size, indices=kind, key=key)


def has_ids(problem: Problem) -> bool:
    """Whether the distribution of ids makes a difference to it."""
    return "indices)" in problem.path.read_text()


def _key(problem: Problem, solution: Solution, size: str, indices: str, request: Request, place: Environment) -> str:
    """Of everything that the times depend on; a verdict is kept by itself."""
    versions = sorted(place.versions.items())
    timed = request.processes, request.rounds, request.compile, request.time
    return results.key_of(
        SCHEMA, problem.path.read_text(), solution.text, solution.name, solution.sample, size, indices, timed,
        place.device, versions,
    )  # fmt: skip


def _verdicts(
    cases: Sequence[Case],
    kept: Mapping[str, Evaluation],
    request: Request,
    place: Environment,
    progress: Progress,
) -> dict[str, Judged]:
    """The verifier's word on every solution, by content: it does not depend on the size that is timed.

    With --no-verify what the folder's file knows already.
    """
    if not request.verify:
        return judging.read(request.directory / judging.FILE)
    pairs = {
        judging.key_of(case.problem, case.solution, request, place): (case.problem, case.solution) for case in cases
    }
    return judging.judge_all(pairs, request, progress)


def _evaluate(
    case: Case, judged: Judged, request: Request, crew: Crew, place: Environment, *, keep: bool
) -> Evaluation:
    """`keep`: the next case has the same baselines."""
    began = time.monotonic()
    blank = Evaluation(
        schema=SCHEMA,
        key=case.key,
        number=case.problem.number,
        problem=case.problem.name,
        size=case.size,
        indices=case.indices,
        solution=case.solution.name,
        sample=case.solution.sample,
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
        failure="",
        seconds=0.0,
        extra={"library": libraries(case.problem), "path": case.solution.path, "trains": trains(case.problem)},
    )
    if not request.time:
        evaluation = replace(blank, failure="not timed: left out by --no-time")
    elif judged.passed or judged.status in TIMED_THOUGH_REFUSED:
        evaluation = _timed(blank, case, request, crew, place, keep=keep)
    else:
        evaluation = replace(blank, failure=f"not timed: {judged.status}")
    return replace(evaluation, seconds=round(time.monotonic() - began, 2))


def libraries(problem: Problem) -> list[str]:
    """Names of the operators that do a problem in production."""
    from addrfrac.dlrm_bench.baselines import makers

    return list(makers(problem.name))


def trains(problem: Problem) -> bool:
    """Whether forward and backward are timed together."""
    return "\nTRAINS = True" in problem.path.read_text()


# --- timed ----------------------------------------------------------------------------------------------------


def contestants(case: Case, request: Request) -> dict[str, Contestant]:
    """Everybody of a case by name: eager, compiled and library baselines and the solution."""
    kinds = {"eager": "reference"}
    kinds |= {"compile": "compile"} if request.compile else {}
    kinds |= {name: f"library:{name}" for name in libraries(case.problem)}
    kinds |= {CANDIDATE: "solution"}
    return {
        name: Contestant(
            problem=case.problem.name,
            size=case.size,
            indices="uniform" if case.indices == "-" else case.indices,
            kind=kind,
            text=case.solution.text if kind == "solution" else "",
        )
        for name, kind in kinds.items()
    }


def parameter_bytes(problem: Problem, size: str) -> int:
    """Of its model at that size, built without memory."""
    import torch

    module = problem.load()
    with torch.device("meta"):
        model = module.Model(*module.get_init_inputs(size))
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def _timed(
    blank: Evaluation, case: Case, request: Request, crew: Crew, place: Environment, *, keep: bool
) -> Evaluation:
    """The evaluation with its times, or with the reason why there are none."""
    everybody = contestants(case, request)
    on_cpu = request.device == "cpu"
    wanted = len(everybody) * request.processes
    held = parameter_bytes(case.problem, case.size)
    taken = timing.time_case(
        crew,
        everybody,
        processes=request.processes,
        rounds=min(request.rounds, CPU_ROUNDS) if on_cpu else request.rounds,
        at_once=timing.room(held, place.device_memory_bytes if not on_cpu else None, wanted),
        keep=keep,
    )
    return judged_times(blank, taken, request.device_model)


def judged_times(blank: Evaluation, taken: Taken, device_model: DeviceModel | None = None) -> Evaluation:
    """The evaluation with what was measured: a lie, an error or a missing arm is its failure, in words."""
    seated = taken.seated.get(CANDIDATE)
    agreement = seated.agreement if seated is not None else None
    calls = {name: said.calls["eager"] for name, said in taken.seated.items()}
    times = {name: arm_times(name, blocks, calls, taken) for name, blocks in taken.blocks.items()}
    evaluation = replace(
        blank,
        error=agreement.error if agreement else None,
        error_limit=agreement.limit if agreement else None,
        agrees=agreement.agrees if agreement else None,
        arms=tuple(times.values()),
        clock_ratio=round(taken.ratio, 4) if taken.ratio is not None else None,
        bytes=seated.bytes if seated else None,
        flops=seated.flops if seated else None,
        floor_us=floor_us(seated.bytes, seated.flops, blank.problem, device_model) if seated else blank.floor_us,
        peak_bytes=taken.peaks.get(CANDIDATE),
        baseline_peak_bytes=taken.peaks.get("eager"),
        extra=blank.extra | {"lost": taken.lost, "calls": calls, "stage_seconds": taken.seconds} | _others(taken),
    )
    if agreement is not None and not agreement.agrees:
        return replace(evaluation, failure=f"wrong at this size: {agreement.reason}")
    if taken.ratio is not None and taken.ratio > timing.LIE:
        said = f"timing disagreement: a step takes {taken.ratio:.2f} times what its process says"
        return replace(evaluation, failure=said)
    if CANDIDATE not in times or "eager" not in times:
        why = taken.lost.get(CANDIDATE) or taken.lost.get("eager") or "no block was timed"
        return replace(evaluation, failure=f"not timed: {why}")
    return compared(evaluation, times)


def _others(taken: Taken) -> dict[str, Any]:
    """Errors of the other contestants, where they were compared."""
    errors = {
        name: said.agreement.error
        for name, said in taken.seated.items()
        if said.agreement is not None and name != CANDIDATE
    }
    wrong = [name for name, said in taken.seated.items() if said.agreement is not None and not said.agreement.agrees]
    return {"errors": errors, "wrong": wrong}


def compared(evaluation: Evaluation, times: Mapping[str, ArmTimes]) -> Evaluation:
    """The evaluation with its gains; where a problem trains, those of the forward pass alone are beside them."""
    whole = {name: arm for name, arm in times.items() if " forward" not in name}
    forward = {name.replace(" forward", ""): arm for name, arm in times.items() if " forward" in name}
    compared_whole = _with_gains(evaluation, whole)
    if CANDIDATE not in forward or "eager" not in forward:
        return compared_whole
    alone = _with_gains(evaluation, forward)
    gains = {"over_eager": alone.over_eager, "over_best": alone.over_best, "over_library": alone.over_library}
    said = {name: [gain.speedup, gain.low, gain.high] for name, gain in gains.items() if gain is not None}
    return replace(compared_whole, extra=evaluation.extra | {"forward": said | {"best": alone.best_baseline}})


def _with_gains(evaluation: Evaluation, times: Mapping[str, ArmTimes]) -> Evaluation:
    """The best of several is chosen on even blocks and told of odd ones. A baseline that is wrong is none."""
    wrong = evaluation.extra.get("wrong", ())
    baselines = [name for name in times if not name.startswith(CANDIDATE) and contestant_of(name) not in wrong]
    ours = [name for name in times if name.startswith(CANDIDATE)]
    best, mine = (min(names, key=lambda name: _median(times[name], 0)) for names in (baselines, ours))
    library = [name for name in baselines if contestant_of(name) in evaluation.extra.get("library", ())]
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


def arm_times(
    name: str, blocks: Sequence[Sequence[Sequence[float]]], calls: Mapping[str, int], taken: Taken
) -> ArmTimes:
    """The record of an arm's blocks, microseconds a call."""
    who = contestant_of(name)
    value, low, high = stats.arm_interval(blocks)
    return ArmTimes(
        arm=name,
        switches=(),
        launch="graph" if name.endswith("+ graph") else "eager",
        blocks_us=tuple(tuple(tuple(block) for block in process) for process in blocks),
        median_us=value,
        low_us=low,
        high_us=high,
        peak_memory_bytes=taken.peaks.get(who),
        host_us=None,
        method=f"a call of steps of {calls.get(who, 1)} on inputs in rotation, {len(blocks)} processes in turns",
    )


def outcome(evaluation: Evaluation) -> str:
    """One line for the terminal while the suite runs."""
    stages = ", ".join(f"{stage} {s:.1f}" for stage, s in evaluation.extra.get("stage_seconds", {}).items())
    took = f"({evaluation.seconds:.1f} s{': ' if stages else ''}{stages})"
    if evaluation.failure:
        return f"{evaluation.judged.status}; {evaluation.failure} {took}"
    assert evaluation.over_eager is not None
    parts = [f"{evaluation.judged.status}", f"{evaluation.over_eager.speedup:.2f}x over eager"]
    if evaluation.over_best is not None:
        parts.append(f"{evaluation.over_best.speedup:.2f}x over {evaluation.best_baseline}")
    return f"{', '.join(parts)} {took}"


def _notes(request: Request) -> tuple[str, ...]:
    notes = ["TF32 is allowed to all contestants alike; ids are int64 for all"]
    if request.device == "cpu":
        notes.append("CPU times are no kernel results: Triton ran in its interpreter")
    if not request.compile:
        notes.append("torch.compile was left out of the baselines")
    if request.processes < 3:
        notes.append(f"{request.processes} process(es) an arm: what differs between processes is not in the intervals")
    if not request.verify:
        notes.append(
            "nothing was verified anew (--no-verify): what has no verdict of an earlier run does not count as right"
        )
    return tuple(notes)
