"""Every planted fault and every honest kernel through the verifier: catch rate and false alarms, by family."""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import addrfrac
from addrfrac.errors import AddrfracError
from addrfrac.verification import fixtures as fixtures_package
from addrfrac.verification.check import Exams, check_target
from addrfrac.verification.fixtures.catalogue import ROWS, WITHOUT_FIXTURE
from addrfrac.verification.fixtures.fixture import Fixture
from addrfrac.verification.fixtures.harness import HARNESS_CHECKS, HarnessCheck
from addrfrac.verification.fixtures.mutation_sources import EQUIVALENT, SOURCES
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.inprocess import accepted_by_published
from addrfrac.verification.mutants import mutation_scores, survivors_of
from addrfrac.verification.processes import Server, WorkerFailure, start_server
from addrfrac.verification.protocols import ADDRFRAC
from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import (
    SCHEMA,
    FixtureOutcome,
    Layer,
    MutationScore,
    Rate,
    SelfTestResult,
    Status,
    Verdict,
)
from addrfrac.verification.reference import ReferenceRaised
from addrfrac.verification.sources import Source, Target

Progress = Callable[[str], None]


def all_fixtures() -> list[Fixture]:
    """Fixtures of every module of the package, in order of their ids."""
    found: list[Fixture] = []
    for module in pkgutil.iter_modules(fixtures_package.__path__):
        found += getattr(importlib.import_module(f"{fixtures_package.__name__}.{module.name}"), "FIXTURES", ())
    return sorted(found, key=lambda fixture: (fixture.honest, fixture.id))


def covered_rows(device: str) -> dict[str, list[str]]:
    """Catalogue row -> ids of fixtures and harness checks that stand for it on a device."""
    found: dict[str, list[str]] = {}
    items: list[Fixture | HarnessCheck] = [*all_fixtures(), *HARNESS_CHECKS]
    for item in items:
        if item.device not in ("any", device) or (isinstance(item, Fixture) and item.honest):
            continue
        for row in (item.id[:3], *item.rows):
            found.setdefault(row, []).append(item.id)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A part of the self-test that one process does at a stretch."""

    name: str
    seconds: float
    """About how long it takes; the longest are begun first."""
    fixtures: tuple[Fixture, ...] = ()
    checks: tuple[str, ...] = ()
    """Ids of checks of our own code."""
    mutated: str = ""
    """Problem whose solution is mutated."""
    alone: bool = False
    """Something is timed on a device: nothing else may run there meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a task."""

    outcomes: tuple[FixtureOutcome, ...] = ()
    layers: tuple[Layer, ...] = ()
    mutants: tuple[int, dict[str, list[str]]] | None = None


_MOST_TOGETHER = {"cpu": 16, "cuda": 8}
"""On a device many processes share the work: long tasks would leave most of them idle at the end."""
_EXAM_S, _MUTANTS_S = 2.0, 20.0


def selftest(
    device: str = "cpu",
    *,
    jobs: int = 2,
    only: tuple[str, ...] = (),
    mutants: bool = True,
    protocols: bool = True,
    progress: Progress | None = None,
    journal: Path | None = None,
    verbose: bool = False,
) -> SelfTestResult:
    """Run every fixture of a device; `only` keeps ids with these beginnings.

    To `journal` each outcome is appended as a line of JSON when it is there: a run that is cut off loses nothing.
    """
    started = time.monotonic()
    tasks = sorted(_tasks(device, only, mutants=mutants and not only), key=lambda task: -task.seconds)
    outcomes: list[FixtureOutcome] = []
    layers: tuple[Layer, ...] = ()
    scores: list[tuple[int, dict[str, list[str]]]] = []
    if journal is not None:
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_bytes(b"")
    for done in _all_done(tasks, device, jobs, protocols, journal):
        outcomes += done.outcomes
        layers = done.layers or layers
        if done.mutants is not None:
            scores.append(done.mutants)
        if progress is not None:
            for outcome in done.outcomes:
                progress(told(outcome, verbose=verbose))
    outcomes.sort(key=lambda outcome: (outcome.kind == "honest", outcome.id))
    return summarised(
        outcomes,
        device=device,
        layers=layers,
        seconds=time.monotonic() - started,
        scores=mutation_scores(scores) if scores else (),
        equivalent=tuple(f"{name}: {why}" for name, why in EQUIVALENT.items()) if scores else (),
    )


def told(outcome: FixtureOutcome, *, verbose: bool = False) -> str:
    """An outcome in a line; its reason where it is not as expected, or where everything is wanted."""
    line = f"{outcome.id}: {outcome.status} ({outcome.seconds:.1f} s)" + ("" if outcome.right else "  NOT AS EXPECTED")
    return f"{line}: {outcome.reason}" if verbose or not outcome.right else line


def _tasks(device: str, only: tuple[str, ...], *, mutants: bool) -> list[Task]:
    """Fixtures of one problem together, as they share its exam, in parts that can be dealt out."""
    groups: dict[tuple[str, str, bool], list[Fixture]] = {}
    for fixture in all_fixtures():
        if fixture.device in ("any", device) and (not only or fixture.id.startswith(only)):
            alone = fixture.timing and device == "cuda"
            groups.setdefault((fixture.problem, fixture.dtype, alone), []).append(fixture)
    found = []
    most = _MOST_TOGETHER[device]
    for (problem, dtype, alone), fixtures in groups.items():
        fixtures.sort(key=lambda fixture: -fixture.seconds)
        for start in range(0, len(fixtures), most):
            part = fixtures[start : start + most]
            seconds = _EXAM_S + sum(fixture.seconds for fixture in part)
            found.append(Task(name=f"{problem} {dtype}", seconds=seconds, fixtures=tuple(part), alone=alone))
    for alone in (False, True):
        checks = tuple(
            check.id
            for check in HARNESS_CHECKS
            if check.device in ("any", device)
            and (not only or check.id.startswith(only))
            and (check.timed and device == "cuda") is alone
        )
        if checks:
            found.append(Task(name="checks of our own code", seconds=len(checks), checks=checks, alone=alone))
    if mutants:
        found += [Task(name=f"mutants of {name}", seconds=_MUTANTS_S, mutated=name) for name in SOURCES]
    return found


def _all_done(
    tasks: list[Task], device: str, jobs: int, protocols: bool, journal: Path | None = None
) -> Iterator[Done]:
    """Every task in this process, or in several as each becomes free; what is timed at the end, one after another."""
    together = [task for task in tasks if not task.alone]
    left = [task for task in tasks if task.alone]
    if min(jobs, len(together)) <= 1:
        together, left = [], [*together, *left]
    if together:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(together)), mp_context=context) as pool:
            waiting = [pool.submit(_do_apart, task, device, protocols, journal) for task in together]
            for future in as_completed(waiting):
                yield future.result()
    if left:
        with start_server(device) as server:
            for task in left:
                yield _do(server, task, device, protocols, journal)


_servers: dict[str, Server] = {}


def _do_apart(task: Task, device: str, protocols: bool, journal: Path | None) -> Done:
    """A task in a process of the pool, which keeps its server from task to task."""
    import torch

    torch.set_num_threads(1)
    if device not in _servers or _servers[device].process.poll() is not None:
        _servers[device] = start_server(device)
    return _do(_servers[device], task, device, protocols, journal)


def _do(server: Server, task: Task, device: str, protocols: bool, journal: Path | None = None) -> Done:
    if task.mutated:
        return Done(mutants=survivors_of(server, task.mutated))
    if task.checks:
        checked = []
        for check in HARNESS_CHECKS:
            if check.id in task.checks:
                checked.append(_harness_outcome(server, check))
                _noted(journal, checked[-1])
        return Done(outcomes=tuple(checked))
    first = task.fixtures[0]
    exams = Exams(server, Source(text=PROBLEMS[first.problem]), dtype=first.dtype)
    outcomes: list[FixtureOutcome] = []
    layers: tuple[Layer, ...] = ()
    for fixture in task.fixtures:
        outcome, found = run_fixture(server, fixture, exams, protocols=protocols)
        layers = found or layers
        outcomes.append(outcome)
        _noted(journal, outcome)
    return Done(outcomes=tuple(outcomes), layers=layers)


def _noted(journal: Path | None, outcome: FixtureOutcome) -> None:
    """One line at the end of the journal, in one write: several processes append to it."""
    if journal is not None:
        with journal.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(outcome) + b"\n")


def run_fixture(
    server: Server, fixture: Fixture, exams: Exams, *, protocols: bool = True
) -> tuple[FixtureOutcome, tuple[Layer, ...]]:
    """One fixture under our protocol, and what the published ones would have accepted."""
    target = Target(
        name=fixture.id,
        problem=Source(text=PROBLEMS[fixture.problem]),
        solution=Source(text=fixture.text),
        dtype=fixture.dtype,
    )
    started = time.monotonic()
    verdict = check_target(
        server, target, exams=exams, timeout_s=fixture.timeout_s, timing=fixture.timing, briefly=True
    )
    accepted: dict[str, bool | None] = {}
    if protocols:
        accepted |= accepted_by_published(server, target, timeout_s=min(10.0, fixture.timeout_s))
    right = verdict.passed if fixture.honest else is_caught(fixture, verdict)
    accepted[ADDRFRAC.name] = verdict.passed and (fixture.honest or not right)
    outcome = FixtureOutcome(
        id=fixture.id,
        family=fixture.family,
        kind="honest" if fixture.honest else "exploit",
        expected="passed" if fixture.honest else " or ".join(e.value for e in fixture.expect),
        status=verdict.status.value,
        labels=tuple(label.value for label in verdict.labels),
        right=right,
        reason=verdict.reason,
        accepted_by=accepted,
        seconds=time.monotonic() - started,
    )
    return outcome, verdict.isolation


_ON_ANOTHER_DEVICE = re.compile(
    r"same device|device type tensor to numpy|is on cpu|on cpu, different|cpu tensor\?|CPU tensor", re.IGNORECASE
)
"""How torch refuses a text that makes its tensors on a CPU: the fault never ran, so nothing was caught."""


def is_caught(fixture: Fixture, verdict: Verdict) -> bool:
    """Rejected or labelled in a way that names the fault."""
    if verdict.status is Status.RAISED and _ON_ANOTHER_DEVICE.search(verdict.reason):
        return False
    return verdict.status in fixture.expect or any(label in fixture.expect for label in verdict.labels)


def _harness_outcome(server: Server, check: HarnessCheck) -> FixtureOutcome:
    """One check of our own code."""
    started = time.monotonic()
    withstood: bool | None
    try:
        withstood, detail = check.check(server)
    except (WorkerFailure, ReferenceRaised, AddrfracError, RuntimeError, ValueError, KeyError) as error:
        withstood, detail = False, f"the check itself failed: {type(error).__name__}: {error}"
    return FixtureOutcome(
        id=check.id,
        family=check.family,
        kind="harness" if withstood is not None else "not testable here",
        expected="our code withstands it",
        status="withstood" if withstood else ("not testable here" if withstood is None else "fooled"),
        labels=(),
        right=withstood is not False,
        reason=f"{check.about}: {detail}",
        accepted_by={},
        seconds=time.monotonic() - started,
    )


def summarised(
    outcomes: list[FixtureOutcome],
    *,
    device: str,
    layers: tuple[Layer, ...],
    seconds: float,
    scores: tuple[MutationScore, ...] = (),
    equivalent: tuple[str, ...] = (),
) -> SelfTestResult:
    """Rates with their intervals, and which rows of the catalogue have no fixture here."""
    faults = [o for o in outcomes if o.kind in ("exploit", "harness")]
    honest = [o for o in outcomes if o.kind == "honest"]
    caught: dict[str, Rate] = {"all": clopper_pearson(sum(o.right for o in faults), len(faults))}
    for family in sorted({o.family for o in faults}):
        mine = [o for o in faults if o.family == family]
        caught[family] = clopper_pearson(sum(o.right for o in mine), len(mine))
    covered = covered_rows(device)
    return SelfTestResult(
        schema=SCHEMA,
        device=device,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=addrfrac.__version__,
        outcomes=tuple(outcomes),
        caught=caught,
        false_alarms=clopper_pearson(sum(not o.right for o in honest), len(honest)),
        not_tested={
            row: WITHOUT_FIXTURE.get(row, "its fixture needs another device") for row in ROWS if row not in covered
        },
        mutation=scores,
        equivalent_mutants=equivalent,
        isolation=layers,
        seconds=seconds,
    )
