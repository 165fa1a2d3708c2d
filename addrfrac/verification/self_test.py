"""Every planted fault and every honest kernel through the verifier: catch rate and false alarms, by family."""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

import addrfrac
from addrfrac.errors import AddrfracError
from addrfrac.verification import fixtures as fixtures_package
from addrfrac.verification.check import Exams, check_target
from addrfrac.verification.fixtures.catalogue import ROWS, WITHOUT_FIXTURE
from addrfrac.verification.fixtures.fixture import Fixture
from addrfrac.verification.fixtures.mutation_sources import EQUIVALENT, SOURCES
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.inprocess import published_accepts
from addrfrac.verification.mutants import mutation_scores, survivors_of
from addrfrac.verification.processes import Server, WorkerFailure, start_server
from addrfrac.verification.protocols import ADDRFRAC, PROTOCOLS
from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import SCHEMA, FixtureOutcome, Layer, MutationScore, Rate, SelfTestResult
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
    from addrfrac.verification.fixtures.harness import HARNESS_CHECKS, HarnessCheck

    found: dict[str, list[str]] = {}
    items: list[Fixture | HarnessCheck] = [*all_fixtures(), *HARNESS_CHECKS]
    for item in items:
        if item.device not in ("any", device) or (isinstance(item, Fixture) and item.honest):
            continue
        for row in (item.id[:3], *item.rows):
            found.setdefault(row, []).append(item.id)
    return found


def selftest(
    device: str = "cpu",
    *,
    jobs: int = 2,
    only: tuple[str, ...] = (),
    mutants: bool = True,
    protocols: bool = True,
    progress: Progress | None = None,
) -> SelfTestResult:
    """Run every fixture of a device; `only` keeps ids with these beginnings."""
    started = time.monotonic()
    wanted = [
        fixture
        for fixture in all_fixtures()
        if fixture.device in ("any", device) and (not only or fixture.id.startswith(only))
    ]
    groups: dict[str, list[Fixture]] = {}
    for fixture in wanted:
        groups.setdefault(f"{fixture.problem}/{fixture.dtype}", []).append(fixture)
    batches = _batches(list(groups.values()), jobs)
    outcomes: list[FixtureOutcome] = []
    layers: tuple[Layer, ...] = ()
    if len(batches) > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(batches), mp_context=context) as pool:
            for finished, found in pool.map(_run_batch, batches, [device] * len(batches), [protocols] * len(batches)):
                outcomes += finished
                layers = found or layers
    else:
        for batch in batches:
            done, layers = _run_batch(batch, device, protocols, progress)
            outcomes += done
    outcomes += _harness_outcomes(device, only)
    outcomes.sort(key=lambda outcome: (outcome.kind == "honest", outcome.id))
    scores, equivalent = _mutation(device, jobs) if mutants and not only else ((), ())
    return summarised(
        outcomes, device=device, layers=layers, seconds=time.monotonic() - started, scores=scores, equivalent=equivalent
    )


def _mutation(device: str, jobs: int) -> tuple[tuple[MutationScore, ...], tuple[str, ...]]:
    """Mutation scores, the sources dealt out over processes; and the mutants that are left out as equivalent."""
    names = list(SOURCES)
    if jobs == 1:
        found = [survivors_of(name, device) for name in names]
    else:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(survivors_of, names, [device] * len(names)))
    return mutation_scores(found), tuple(EQUIVALENT)


def _batches(groups: list[list[Fixture]], jobs: int) -> list[list[Fixture]]:
    """Groups of one problem kept together, dealt out so that batches are about equally long."""
    batches: list[list[Fixture]] = [[] for _ in range(max(1, jobs))]
    for group in sorted(groups, key=len, reverse=True):
        min(batches, key=len).extend(group)
    return [batch for batch in batches if batch]


def _run_batch(
    batch: list[Fixture], device: str, protocols: bool, progress: Progress | None = None
) -> tuple[list[FixtureOutcome], tuple[Layer, ...]]:
    import torch

    torch.set_num_threads(1)
    outcomes: list[FixtureOutcome] = []
    layers: tuple[Layer, ...] = ()
    with start_server(device) as server:
        exams: dict[tuple[str, str], Exams] = {}
        for fixture in batch:
            key = (fixture.problem, fixture.dtype)
            if key not in exams:
                exams[key] = Exams(server, Source(text=PROBLEMS[fixture.problem]), dtype=fixture.dtype)
            outcome, found = run_fixture(server, fixture, exams[key], protocols=protocols)
            layers = found or layers
            outcomes.append(outcome)
            if progress is not None:
                progress(f"{outcome.id}: {outcome.status}" + ("" if outcome.right else "  NOT AS EXPECTED"))
    return outcomes, layers


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
    verdict = check_target(server, target, exams=exams, timeout_s=fixture.timeout_s, timing=fixture.timing)
    accepted: dict[str, bool | None] = {}
    for protocol in PROTOCOLS.values():
        if protocol.in_process and protocols:
            accepted[protocol.name] = published_accepts(
                server, target, protocol, timeout_s=min(10.0, fixture.timeout_s)
            )[0]
    right = verdict.passed if fixture.honest else is_caught(fixture, verdict.status, verdict.labels)
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


def is_caught(fixture: Fixture, status: object, labels: tuple[object, ...]) -> bool:
    """Rejected or labelled in a way that names the fault."""
    return status in fixture.expect or any(label in fixture.expect for label in labels)


def _harness_outcomes(device: str, only: tuple[str, ...]) -> list[FixtureOutcome]:
    from addrfrac.verification.fixtures.harness import HARNESS_CHECKS

    wanted = [c for c in HARNESS_CHECKS if c.device in ("any", device) and (not only or c.id.startswith(only))]
    outcomes: list[FixtureOutcome] = []
    if not wanted:
        return outcomes
    with start_server(device) as server:
        for check in wanted:
            started = time.monotonic()
            try:
                withstood, detail = check.check(server)
            except (WorkerFailure, ReferenceRaised, AddrfracError, RuntimeError, ValueError, KeyError) as error:
                withstood, detail = False, f"the check itself failed: {type(error).__name__}: {error}"
            outcomes.append(
                FixtureOutcome(
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
            )
    return outcomes


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
