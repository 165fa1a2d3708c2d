"""What the user asked for in, one saved run a configuration out: live, on the CPU, or from the recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
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

ALWAYS = frozenset({"batch", "dtype", "mode", "execution", "weights", "steps", "warmup", "device"})
"""Configuration fields that mean something for every workload."""


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
        return _from_recorded(request, [replace(each, device="cuda") for each in configurations])
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
    given = {name: value for name, value in request.fields.items() if value is not None}
    _check_options(workload, given, bool(request.seq_lens))
    mode = given.get("mode") or workload.defaults.get("mode") or _first_mode(workload)
    if mode not in workload.modes:
        raise AddrfracError(f"{workload.name} has no mode {mode!r}; its modes are {', '.join(workload.modes)}")
    base: dict[str, Any] = {"batch": 1, "dtype": "bf16", "layout": "", "execution": "eager"} | _defaults(workload, mode)
    base |= given | {"workload": workload.name, "mode": mode, "device": device}
    batches = request.batches or (base.pop("batch"),)
    lengths = request.seq_lens or (base.pop("seq_len", None),)
    base = {name: value for name, value in base.items() if name not in ("batch", "seq_len")}
    made = [Configuration(batch=batch, seq_len=length, **base) for batch, length in product(batches, lengths)]
    for each in made:
        _check_numbers(each, workload)
    return made


def _first_mode(workload: Workload) -> str:
    return next((mode for mode in ("infer", "prefill") if mode in workload.modes), workload.modes[0])


def _defaults(workload: Workload, mode: str) -> dict[str, Any]:
    """The workload's defaults; a mapping under a mode's name holds what differs in that mode."""
    flat = {name: value for name, value in workload.defaults.items() if not isinstance(value, Mapping)}
    of_mode = workload.defaults.get(mode)
    return flat | (dict(of_mode) if isinstance(of_mode, Mapping) else {})


def _check_options(workload: Workload, given: Mapping[str, Any], has_lengths: bool) -> None:
    asked = set(given) - ALWAYS - workload.options | ({"seq_len"} if has_lengths else set()) - workload.options
    for name in sorted(asked):
        option = "--" + name.replace("_", "-")
        known = ", ".join("--" + each.replace("_", "-") for each in sorted(workload.options)) or "none"
        raise AddrfracError(f"{option} means nothing for {workload.name}; of the model options it takes {known}")


def _check_numbers(configuration: Configuration, workload: Workload) -> None:
    for name in ("batch", "seq_len", "cache_len", "layers", "rows", "steps"):
        value = getattr(configuration, name)
        if value is not None and value < 1:
            raise AddrfracError(f"--{name.replace('_', '-')} {value} is less than 1; give a positive number")
    if configuration.warmup < 0:
        raise AddrfracError(f"--warmup {configuration.warmup} is negative; give 0 or more")
    pooling = configuration.pooling
    if pooling is not None and pooling != "mlperf" and not (pooling.isdigit() and int(pooling) > 0):
        raise AddrfracError(f"--pooling {pooling!r} is neither a positive number nor 'mlperf'")
    if configuration.layers is not None and workload.layers is not None and configuration.layers > workload.layers:
        raise AddrfracError(f"--layers {configuration.layers} is more than the {workload.layers} of {workload.name}")


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
    whole = replace(
        runs[-1],
        title=f"{title(configuration)} extrapolated from {', '.join(str(d) for d in depths(workload.layers))} layers",
        extrapolation=extrapolate(runs, workload.layers),
        notes=(*runs[-1].notes, f"accounts and kernels are of {runs[-1].configuration.layers} layers"),  # type: ignore[union-attr]
    )
    store.save(whole, folder / "run.json")
    return whole


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
    defaults = _defaults(workload, configuration.mode) if workload is not None else {}
    plain = {f.name: f.default for f in fields(Configuration)} | {"dtype": "bf16", "execution": "eager"} | defaults
    parts = [configuration.workload]
    if workload is not None and configuration.mode != _first_mode(workload):
        parts.append(f"--mode {configuration.mode}")
    parts.append(f"--batch {configuration.batch}")
    skipped = {"workload", "mode", "batch", "device", "steps", "warmup"}
    for each in fields(Configuration):
        value = getattr(configuration, each.name)
        if each.name not in skipped and value not in (None, "", plain.get(each.name)):
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
