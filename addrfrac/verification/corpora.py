"""Honest kernels of others through the verifier: none may be refused; what is not installed is told."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from addrfrac.verification.check import Exams, check_target
from addrfrac.verification.fixtures.corpora import IN_PLACE, LIGER, inductor_fixtures, liger_installed
from addrfrac.verification.fixtures.fixture import PREAMBLE, Fixture
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.inprocess import accepted_by_published
from addrfrac.verification.processes import Server, start_server
from addrfrac.verification.protocols import ADDRFRAC
from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import FixtureOutcome, SelfTestResult
from addrfrac.verification.self_test import is_caught
from addrfrac.verification.sources import Source, Target

Progress = Callable[[str], None]
_COMPILE_S = 600.0


def with_corpora(result: SelfTestResult, *, jobs: int = 1, progress: Progress | None = None) -> SelfTestResult:
    """A self-test with the corpora's kernels among its honest ones."""
    started = time.monotonic()
    found, missing = run_corpora(result.device, jobs=jobs, progress=progress)
    outcomes = (*result.outcomes, *(outcome for outcome in found if outcome.kind == "honest"))
    honest = [outcome for outcome in outcomes if outcome.kind == "honest"]
    return replace(
        result,
        outcomes=outcomes,
        false_alarms=clopper_pearson(sum(not outcome.right for outcome in honest), len(honest)),
        not_tested=result.not_tested | missing,
        seconds=result.seconds + time.monotonic() - started,
    )


def run_corpora(
    device: str, *, jobs: int = 1, quick: bool | None = None, progress: Progress | None = None
) -> tuple[tuple[FixtureOutcome, ...], dict[str, str]]:
    """What became of every kernel of the corpora on a device, and which corpora are not there, with the reason.

    Operators that write over their inputs stand among them as kind 'disclosed': right values, and that must be told.
    """
    quick = device == "cpu" if quick is None else quick
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="inductor") as folder:
        Path(folder).chmod(0o755)  # workers are other users
        fixtures = list(_inductor(device, Path(folder), missing))
        if liger_installed():
            fixtures += [f for f in (*LIGER, *IN_PLACE) if f.device in ("any", device)]
        else:
            missing["Liger-Kernel"] = "liger-kernel is not installed: pip install --no-deps liger-kernel"
        outcomes = []
        for outcome in _outcomes(fixtures, device, quick, jobs):
            outcomes.append(outcome)
            if progress is not None:
                progress(f"{outcome.id}: {outcome.status}" + ("" if outcome.right else "  NOT AS EXPECTED"))
    return tuple(sorted(outcomes, key=lambda outcome: outcome.id)), missing


def _inductor(device: str, folder: Path, missing: dict[str, str]) -> tuple[Fixture, ...]:
    """Inductor's code of reference problems, generated once in a process of its own."""
    command = [sys.executable, "-m", "addrfrac.verification.fixtures.inductor_code", device, str(folder)]
    environ = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        subprocess.run(command, check=True, timeout=_COMPILE_S, env=environ, capture_output=True, text=True)
        made: dict[str, str] = json.loads((folder / "made.json").read_text())
    except subprocess.CalledProcessError as error:
        missing["Inductor"] = f"it could not compile here: {error.stderr.strip().splitlines()[-1:]}"
        return ()
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        missing["Inductor"] = f"it could not compile here: {error}"
        return ()
    missing |= {f"Inductor {name}": why for name, why in made.items() if why}
    return inductor_fixtures({name: (folder / f"{name}.py").read_text() for name, why in made.items() if not why})


def _outcomes(fixtures: list[Fixture], device: str, quick: bool, jobs: int):  # type: ignore[no-untyped-def]
    if min(jobs, len(fixtures)) <= 1:
        with start_server(device) as server:
            for fixture in fixtures:
                yield _outcome(server, fixture, quick)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(fixtures)), mp_context=context) as pool:
        waiting = [pool.submit(_outcome_apart, fixture, device, quick) for fixture in fixtures]
        for future in as_completed(waiting):
            yield future.result()


_servers: dict[str, Server] = {}


def _outcome_apart(fixture: Fixture, device: str, quick: bool) -> FixtureOutcome:
    import torch

    torch.set_num_threads(1)
    if device not in _servers or _servers[device].process.poll() is not None:
        _servers[device] = start_server(device)
    return _outcome(_servers[device], fixture, quick)


def _outcome(server: Server, fixture: Fixture, quick: bool) -> FixtureOutcome:
    """One kernel under our protocol, and what the published ones say of it."""
    started = time.monotonic()
    problem = Source(text=PROBLEMS[fixture.problem])
    target = Target(
        name=fixture.id, problem=problem, solution=Source(text=PREAMBLE + fixture.solution), dtype=fixture.dtype
    )
    exams = Exams(server, problem, dtype=fixture.dtype, quick=quick)
    verdict = check_target(server, target, exams=exams, quick=quick, timeout_s=fixture.timeout_s, timing=False)
    accepted: dict[str, bool | None] = {ADDRFRAC.name: verdict.passed}
    accepted |= accepted_by_published(server, target, timeout_s=fixture.timeout_s)
    return FixtureOutcome(
        id=fixture.id,
        family="honest",
        kind="honest" if fixture.honest else "disclosed",
        expected="passed" if fixture.honest else " or ".join(e.value for e in fixture.expect),
        status=verdict.status.value,
        labels=tuple(label.value for label in verdict.labels),
        right=verdict.passed if fixture.honest else is_caught(fixture, verdict),
        reason=f"{fixture.about}: {verdict.reason}",
        accepted_by=accepted,
        seconds=time.monotonic() - started,
    )


def main() -> None:
    """`python -m addrfrac.verification.corpora DEVICE FILE [JOBS]`: the outcomes as JSON."""
    import msgspec

    jobs = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    outcomes, missing = run_corpora(sys.argv[1], jobs=jobs, progress=lambda text: print(text, file=sys.stderr))
    Path(sys.argv[2]).write_bytes(
        msgspec.json.format(msgspec.json.encode({"outcomes": outcomes, "missing": missing, "device": sys.argv[1]}))
    )
    wrong = [outcome.id for outcome in outcomes if not outcome.right]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} as they should be; missing: {missing or 'nothing'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
