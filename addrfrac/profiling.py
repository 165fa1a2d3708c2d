"""What the user asked for in, one saved run a configuration out: live, on the CPU, or from the recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from addrfrac import recorded, registry, store
from addrfrac.analysis import Options, build_run
from addrfrac.capture import title
from addrfrac.environment import has_cuda
from addrfrac.errors import AddrfracError, OutOfDeviceMemory
from addrfrac.extrapolate import depths, extrapolate
from addrfrac.parse import read_trace
from addrfrac.records import Configuration, Run, Workload

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac profile` as typed."""

    workload: str
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    fields: Mapping[str, Any]
    """Configuration fields; None where the user left them alone."""
    device: str | None
    extrapolate: bool
    options: Options
    directory: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request."""

    runs: tuple[Run, ...]
    files: tuple[str, ...]
    """Lines for the user: what was saved and how to render it again."""
    failures: tuple[str, ...] = field(default=())
    """One line for each configuration of a sweep that could not be run."""


def profile(request: Request, progress: Progress) -> Outcome:
    """Run every configuration that was asked for, save it, and say where.

    Raises AddrfracError for a request that cannot be met. In a sweep a configuration that does not fit is a failure in
    the outcome, and the others are kept.
    """
    workload = registry.find_workload(request.workload)
    device = _device(request.device)
    configurations = _configurations(request, workload, device)
    if device == "recorded":
        return _from_recorded(request, configurations)
    runs, failures, folders = [], [], []
    for configuration in configurations:
        folder = _folder(request, configuration, len(configurations) > 1)
        try:
            runs.append(_measure(workload, configuration, folder, request, progress))
            folders.append(folder)
        except OutOfDeviceMemory as error:
            if len(configurations) == 1:
                raise
            failures.append(f"{title(configuration)}: {error}")
    files = _save_pages(runs, folders, request) if runs else ()
    return Outcome(runs=tuple(runs), files=files, failures=tuple(failures))


def _device(asked: str | None) -> str:
    if asked == "cuda" and not has_cuda():
        raise AddrfracError("no CUDA device here; use --device cpu, or leave --device out for a recorded run")
    return asked or ("cuda" if has_cuda() else "recorded")


def _configurations(request: Request, workload: Workload, device: str) -> list[Configuration]:
    """One a batch size and length asked for."""
    asked = {**request.fields, "device": "cpu" if device == "cpu" else "cuda"}
    return registry.configurations(workload, request.batches, request.seq_lens, **asked)


def slug(configuration: Configuration) -> str:
    """A folder name that tells configurations apart."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in title(configuration))


def _folder(request: Request, configuration: Configuration, in_sweep: bool) -> Path:
    if request.directory is None:
        return Path("runs") / slug(configuration)
    return request.directory / slug(configuration) if in_sweep else request.directory


def _measure(
    workload: Workload, configuration: Configuration, folder: Path, request: Request, progress: Progress
) -> Run:
    if request.extrapolate:
        return _measure_depths(workload, configuration, folder, request, progress)
    try:
        return _measure_one(workload, configuration, folder, request, progress)
    except OutOfDeviceMemory as error:
        if workload.layers is None or configuration.layers is not None:
            raise
        progress(f"{error}; measuring three depths instead")
        return _measure_depths(workload, configuration, folder, request, progress)


def _measure_one(
    workload: Workload, configuration: Configuration, folder: Path, request: Request, progress: Progress
) -> Run:
    """One configuration, measured, accounted for and saved."""
    from addrfrac.capture import measure

    taken = measure(workload, configuration, folder, progress=progress)
    progress("accounting")
    options = replace(request.options, capture=folder / taken.eager_trace if taken.eager_trace else None)
    run = build_run(read_trace(folder / taken.trace), options, kind="profile")
    store.save(run, folder / "run.json")
    return run


def _measure_depths(
    workload: Workload, configuration: Configuration, folder: Path, request: Request, progress: Progress
) -> Run:
    """Three depths, and the full one on the line through them; the deepest run carries it."""
    if workload.layers is None:
        raise AddrfracError(f"the depth of {workload.name} cannot be cut, so there is nothing to extrapolate from")
    runs = []
    for depth in depths(workload.layers):
        progress(f"{depth} of {workload.layers} layers")
        at_depth = replace(configuration, layers=depth)
        runs.append(_measure_one(workload, at_depth, folder / f"layers-{depth}", request, progress))
    if len(runs) < 3:
        raise AddrfracError(
            f"{workload.name} has only {workload.layers} layers, too few to extrapolate from three depths"
        )
    whole_model = whole(runs, request.options.command, workload.layers)
    store.save(whole_model, folder / "run.json")
    return whole_model


def whole(runs: Sequence[Run], command: str, layers: int) -> Run:
    """The deepest run, carrying what all of them say of the full depth."""
    deepest, configuration = runs[-1], runs[-1].configuration
    assert configuration is not None, "a run at a depth knows its depth"
    depths_run = ", ".join(str(depth) for depth in extrapolate(runs, layers).depths)
    return replace(
        deepest,
        command=command,
        title=f"{title(replace(configuration, layers=None))} extrapolated from {depths_run} layers",
        extrapolation=extrapolate(runs, layers),
        notes=(*deepest.notes, f"accounts and kernels are of {configuration.layers} layers"),
    )


def _from_recorded(request: Request, configurations: list[Configuration]) -> Outcome:
    runs = []
    for configuration in configurations:
        run = recorded.find(configuration)
        if run is None:
            known = "; ".join(_as_options(each) for each in recorded.configurations()) or "none"
            raise AddrfracError(
                f"no CUDA device here and no recorded run of {title(configuration)}; recorded are: {known}; "
                "or run it on this machine with --device cpu"
            )
        runs.append(run)
    folders = [_folder(request, each, len(configurations) > 1) for each in configurations]
    for run, folder in zip(runs, folders, strict=True):
        store.save(run, folder / "run.json")
    return Outcome(runs=tuple(runs), files=_save_pages(runs, folders, request))


def _as_options(configuration: Configuration) -> str:
    """What to type after `addrfrac profile` for this configuration."""
    workload = registry.workloads().get(configuration.workload)
    parts = [configuration.workload]
    plain = registry.configure(workload) if workload is not None else None
    if plain is not None and configuration.mode != plain.mode:
        parts.append(f"--mode {configuration.mode}")
        plain = registry.configure(workload, mode=configuration.mode) if workload is not None else None
    parts.append(f"--batch {configuration.batch}")
    for each in fields(Configuration):
        value = getattr(configuration, each.name)
        skipped = each.name in {"workload", "mode", "batch", *recorded.NOT_COMPARED}
        if not skipped and value and value != getattr(plain, each.name, each.default):
            parts.append(f"--{each.name.replace('_', '-')} {value}")
    return " ".join(parts)


def _save_pages(runs: list[Run], folders: list[Path], request: Request) -> tuple[str, ...]:
    """A page beside each run, and one over all of a sweep."""
    from addrfrac.report import render

    lines = []
    for run, folder in zip(runs, folders, strict=True):
        store.write_whole(folder / "report.html", render([run], "html").encode())
        lines.append(f"saved     {folder / 'run.json'}, {folder / 'report.html'}")
    if len(runs) > 1:
        over = (request.directory or Path("runs") / f"{request.workload.replace('/', '-')}-sweep") / "report.html"
        store.write_whole(over, render(runs, "html").encode())
        lines.append(f"sweep     {over}")
    lines.append("again     addrfrac report " + " ".join(str(folder / "run.json") for folder in folders))
    return tuple(lines)
