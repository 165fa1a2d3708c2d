"""`addrfrac ceiling` as typed in, saved runs with a measured ceiling out; each is measured in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from addrfrac import arms, capture, environment, recorder, registry, store
from addrfrac.analysis import Options, build_run, saved_capture
from addrfrac.ceiling import Asked, Told, account_options, measuring, title
from addrfrac.ceiling_rows import Wanted
from addrfrac.errors import AddrfracError, OutOfDeviceMemory
from addrfrac.parse import read_trace
from addrfrac.records import Ceiling, CeilingRow, Configuration, Op, Run
from addrfrac.switches.switch import Stage

ARMS = ("eager", "compile", "best-library")
MOST_DEATHS = 4
"""After so many processes that a reduced graph took along, the rest is not tried."""
BUILD_PATIENCE_S = 3600.0
"""How long a process may say nothing while it builds, compiles and profiles."""
ROW_PATIENCE_S = 300.0
"""How long it may take for a row: a kept kernel can wait for ever for what a deleted one would have written."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process measures; holds nothing that cannot be sent to it."""

    workload: str
    configuration: Configuration
    asked: Asked
    directory: Path | None
    """Where its traces stay; None: nowhere."""
    target: Callable[[Job, Callable[[Any], None]], None] | None = None
    """What runs in the process; None: `measure_job`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac ceiling` as typed."""

    workload: str
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    fields: Mapping[str, Any]
    """Configuration fields; None where the user left them alone."""
    arm: str
    ladder: Path | None
    """A run whose ladder says what the arm best-library is."""
    wanted: Wanted
    options: Options
    directory: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request."""

    runs: tuple[Run, ...]
    files: tuple[str, ...]
    """Lines for the user: what was saved and how to render it again."""


def ceiling(request: Request, progress: Progress) -> Outcome:
    """Measure the ceiling of every configuration asked for, save the runs and say where.

    Raises AddrfracError for a request that cannot be met.
    """
    workload = registry.find_workload(request.workload)
    _check_classes(request.wanted.classes)
    switches = switches_of(request.arm, request.ladder)
    if not environment.has_cuda():
        raise AddrfracError(
            "no CUDA device here; a ceiling is measured on the step's CUDA graph (addrfrac profile gives Amdahl's)"
        )
    asked_for = {**request.fields, "device": "cuda"}
    configurations = registry.configurations(workload, request.batches, request.seq_lens, **asked_for)
    runs, folders = [], []
    for configuration in configurations:
        folder = _folder(request, configuration, len(configurations) > 1)
        asked = Asked(
            arm=request.arm,
            switches=switches,
            options=request.options,
            wanted=request.wanted,
            sample_unit=workload.sample,
            records_dataflow=request.options.device_model is not None and not _compiles(switches),
        )
        found = isolated(
            Job(workload=request.workload, configuration=configuration, asked=asked, directory=folder), progress
        )
        progress("accounting")
        runs.append(replace(_run(folder, request.options), ceiling=found))
        store.save(runs[-1], folder / "run.json")
        folders.append(folder)
    return Outcome(runs=tuple(runs), files=tuple(_save_pages(runs, folders)))


def switches_of(arm: str, ladder: Path | None) -> tuple[str, ...]:
    """Names of the switches of an arm. Raises AddrfracError where they are not known."""
    if arm == "eager":
        return ()
    if arm == "compile":
        return ("compile",)
    if arm != "best-library":
        raise AddrfracError(f"no arm {arm!r}; choose {', '.join(ARMS)}")
    if ladder is None:
        raise AddrfracError(
            "--arm best-library needs --ladder RUN.json, a run of `addrfrac ladder` that says what it is"
        )
    found = store.load(ladder).ladder
    if found is None:
        raise AddrfracError(f"{ladder} holds no ladder; give a run of `addrfrac ladder`")
    return found.best


def _check_classes(classes: tuple[str, ...]) -> None:
    for name in classes:
        if name not in tuple(Op):
            raise AddrfracError(f"--class {name}: no such class; choose one of {', '.join(Op)}")


def _folder(request: Request, configuration: Configuration, several: bool) -> Path:
    slug = "".join(c if c.isalnum() or c in "-_." else "-" for c in title(configuration, request.arm))
    if request.directory is None:
        return Path("runs") / slug
    return request.directory / slug if several else request.directory


def _run(folder: Path, options: Options) -> Run:
    trace = read_trace(folder / recorder.TRACE)
    ours = saved_capture(trace)
    has_eager = ours is not None and ours.eager_trace is not None
    return build_run(trace, account_options(options, folder, has_eager), kind="ceiling")


def _save_pages(runs: list[Run], folders: list[Path]) -> Iterator[str]:
    from addrfrac.report import render

    for run, folder in zip(runs, folders, strict=True):
        store.write_whole(folder / "report.html", render([run], "html").encode())
        yield f"saved     {folder / 'run.json'}, {folder / 'report.html'}"
    yield "again     addrfrac report " + " ".join(str(folder / "run.json") for folder in folders)


# --- processes ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Collected:
    """What the processes have told so far."""

    ceiling: Ceiling | None = None
    rows: dict[str, CeilingRow] = field(default_factory=dict)
    trying: CeilingRow | None = None
    """Begun and not finished."""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How a process ended."""

    kind: str
    """'done', 'uncaptured', 'error', 'memory' or 'death'."""
    reason: str = ""


def isolated(job: Job, progress: Progress) -> Ceiling:
    """The ceiling of a workload, measured in processes of its own.

    A reduced graph that faults or never ends costs the process it ran in. Its row is tried once more in a fresh one,
    with integer tensors kept out of the reuse of memory (not where a compiler hands out the memory); then it says why
    it was not measured, and the others go on. Raises AddrfracError where nothing could be measured at all.
    """
    collected = _Collected()
    job = replace(job, asked=replace(job.asked, ends_uncaptured=True))
    deaths = 0
    while True:
        ending = _one_process(job, collected, progress)
        if ending.kind == "done":
            break
        if ending.kind == "memory":
            raise OutOfDeviceMemory(ending.reason)
        if ending.kind == "error":
            raise AddrfracError(ending.reason)
        if ending.kind == "uncaptured":
            job = replace(job, asked=replace(job.asked, why_not=ending.reason))
            continue
        if collected.trying is None:
            raise AddrfracError(f"measuring the ceiling failed: {ending.reason}; `addrfrac profile` gives Amdahl's")
        deaths += 1
        progress(f"{collected.trying.what[:60]}: {ending.reason}; going on in a fresh process")
        job = _after_death(job, collected, ending.reason)
        if deaths >= MOST_DEATHS:
            _give_up(collected, deaths)
            break
    assert collected.ceiling is not None, "a process that is done has told of its ceiling"
    return replace(collected.ceiling, rows=tuple(collected.rows.values()))


def _after_death(job: Job, collected: _Collected, reason: str) -> Job:
    """The job that is left; the row that was tried gets a second try, or its reason."""
    row, asked = collected.trying, job.asked
    assert row is not None
    collected.trying = None
    if not asked.hold_indices and not _compiles(asked.switches):
        asked = replace(asked, hold_indices=True)
    else:
        collected.rows[row.what] = replace(row, note=reason)
    asked = replace(asked, skip=frozenset(collected.rows))
    return replace(job, asked=asked, directory=None)  # the first process left its traces, of the graph it measured


def _give_up(collected: _Collected, deaths: int) -> None:
    assert collected.ceiling is not None
    note = f"{deaths} reduced graphs each took their process along; the rows that are not here were not tried"
    collected.ceiling = replace(collected.ceiling, notes=(*collected.ceiling.notes, note))


def _compiles(switches: tuple[str, ...]) -> bool:
    return any(switch.stage is Stage.COMPILE for switch in arms.in_order(switches))


def _one_process(job: Job, collected: _Collected, progress: Progress) -> _Ending:
    """Start a process on the job and collect what it tells until it ends."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(job, sender))
    process.start()
    sender.close()
    try:
        while True:
            patience = BUILD_PATIENCE_S if collected.trying is None else ROW_PATIENCE_S
            if not receiver.poll(patience):
                process.kill()
                return _Ending(kind="death", reason=f"the process said nothing for {patience:.0f} s and was ended")
            try:
                told = receiver.recv()
            except EOFError:
                process.join(10)
                return _Ending(kind="death", reason=f"the process ended with exit code {process.exitcode}")
            if isinstance(told, str):
                progress(told)
            elif isinstance(told, _Ending):
                return told
            elif (ending := _collect(told, collected)) is not None:
                return ending
    finally:
        receiver.close()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _collect(told: Told, collected: _Collected) -> _Ending | None:
    if told.kind == "ceiling":
        # A later process captured anew: what the first said of the graph stands, and what the later adds is said too.
        notes = () if collected.ceiling is None else collected.ceiling.notes
        assert told.ceiling is not None
        collected.ceiling = collected.ceiling or told.ceiling
        extra = [note for note in told.ceiling.notes if note not in notes]
        collected.ceiling = replace(collected.ceiling, notes=(*notes, *extra))
    elif told.kind == "begin":
        collected.trying = told.row
    elif told.kind == "row":
        assert told.row is not None
        collected.rows[told.row.what] = told.row
        collected.trying = None
    elif told.kind == "fault":
        assert told.row is not None
        return _Ending(kind="death", reason=told.row.note)
    elif told.kind == "uncaptured":
        return _Ending(kind="uncaptured", reason=told.why_not)
    return None


def _serve(job: Job, pipe: Connection) -> None:
    """What a process does: the job, telling through the pipe; a fault ends it at once, since CUDA is of no more use."""
    try:
        (job.target or measure_job)(job, pipe.send)
        pipe.send(_Ending(kind="done"))
    except BrokenPipeError:
        pass  # told of a fault, the other end has stopped listening
    except AddrfracError as error:
        pipe.send(_Ending(kind="error", reason=str(error)))
    except RuntimeError as error:
        if not capture.is_out_of_memory(error):
            raise
        pipe.send(_Ending(kind="memory", reason=capture._out_of_memory_line(str(error), job.configuration, _device())))
    finally:
        pipe.close()
    os._exit(0)  # past torch's clean-up, which waits for ever on a device that faulted


def _device() -> Any:
    return environment.torch_device("cuda")


def measure_job(job: Job, tell: Callable[[Any], None]) -> None:
    """Prepare the step of a job and measure it in this process."""
    device = environment.torch_device(job.configuration.device)
    if device.type == "cuda":
        capture._use(device)
    workload, asked = registry.find_workload(job.workload), job.asked
    launch = arms.EAGER if asked.why_not else arms.GRAPH
    configuration = arms.configured(job.configuration, asked.switches, launch)
    with arms.settings(configuration):
        tell("building the model")
        step = arms.prepare(workload, job.configuration, asked.switches, device, launch)
        for told in measuring(step, configuration, device, asked, directory=job.directory, progress=tell):
            tell(told)
            if told.kind == "fault":
                return
