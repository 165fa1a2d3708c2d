"""What every renderer says about a run, in words: one run in, one sentence or a few labelled parts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from addrfrac import units
from addrfrac.records import Configuration, DiffRow, PolicyShare, Range, Run, Times, WhatIf
from addrfrac.report.names import one_line

NONE = Range(low=None, high=None)

SWEPT_FIELDS = ("batch", "seq_len", "cache_len", "layers", "rows")
"""Numbers of a configuration that several runs may differ in and still lie on one curve."""


# --- who and where ------------------------------------------------------------------------------------------


def is_cpu(run: Run) -> bool:
    """Whether CPU operators stand for kernels."""
    return run.source.device_kind == "cpu"


def is_recorded(run: Run) -> bool:
    """Whether this is a published run shown again, not a measurement of this machine."""
    return bool(run.extra.get("recorded"))


def kernel_noun(run: Run) -> str:
    """What the rows of the kernel table are."""
    return "operator" if is_cpu(run) else "kernel"


def device(run: Run) -> str:
    """The device's name, from the environment or else from the trace."""
    if run.environment is not None and run.environment.device:
        return one_line(run.environment.device)
    return one_line(", ".join(run.source.device_names)) or "unknown device"


def configuration_parts(configuration: Configuration) -> dict[str, str]:
    """The parts of a configuration that mean something for it, each as it reads in a title."""
    parts = {
        "workload": configuration.workload,
        "mode": configuration.mode,
        "batch": f"batch {units.count(configuration.batch)}",
        "seq_len": _numbered("seq", configuration.seq_len),
        "cache_len": _numbered("cache", configuration.cache_len),
        "layers": "" if configuration.layers is None else f"{configuration.layers} layers",
        "dtype": configuration.dtype,
        "layout": configuration.layout,
        "execution": configuration.execution,
        "embedding": configuration.embedding or "",
        "indices": "" if configuration.indices is None else f"{configuration.indices} indices",
        "pooling": "" if configuration.pooling is None else f"pooling {configuration.pooling}",
        "rows": _numbered("rows", configuration.rows),
        "routing": "" if configuration.routing is None else f"{configuration.routing} routing",
        "weights": "" if configuration.weights == "random" else f"weights {configuration.weights}",
    }
    return {name: one_line(text) for name, text in parts.items() if text}


def _numbered(word: str, number: int | None) -> str:
    return "" if number is None else f"{word} {units.count(number)}"


def title(run: Run) -> str:
    """The run in one line: its configuration, or the trace's name."""
    if run.configuration is None:
        return one_line(run.title) or one_line(run.source.path) or "untitled run"
    return " · ".join([*configuration_parts(run.configuration).values(), *filter(None, [arm(run)])])


BEST = "best-library"


def arm(run: Run) -> str:
    """What a run is beyond its configuration: best-library at the end of a ladder, or a measured ceiling; else ''."""
    if is_best_library(run):
        return BEST
    return "" if run.ceiling is None else one_line(f"ceiling above {run.ceiling.arm}")


def is_best_library(run: Run) -> bool:
    """Whether the run is of the arm at the end of a ladder: the base's configuration with the kept switches on."""
    return run.title.endswith(f" {BEST}")


def name(run: Run) -> str:
    """The shortest name of what ran."""
    return one_line(run.configuration.workload if run.configuration is not None else run.title) or "untitled run"


def versions(run: Run, wanted: Sequence[str] = ("torch", "cuda", "triton", "addrfrac")) -> tuple[str, ...]:
    """'torch 2.11.0', ... for the packages that the run recorded."""
    if run.environment is None:
        return ()
    known = run.environment.versions
    return tuple(one_line(f"{package} {known[package]}") for package in wanted if known.get(package))


def device_line(run: Run) -> str:
    """Device and versions in one line."""
    return " · ".join([device(run), *(versions(run) or ("versions not recorded",))])


def recorded_line(run: Run) -> str:
    """What a recorded run says of itself first; '' for a live one."""
    if not is_recorded(run):
        return ""
    on = " · ".join([f"Recorded {run.created[:10]} on {device(run)}", *versions(run)])
    return f"{on}. Nothing was measured on this machine."


def cpu_line(run: Run) -> str:
    """What a CPU run says of itself; '' for a GPU."""
    if not is_cpu(run):
        return ""
    return (
        f"The self-times of CPU operators on {device(run)} stand for kernels; "
        "oneDNN and MKL count as libraries. It says nothing of a GPU."
    )


def subject(run: Run, policy: str | None = None) -> str:
    """What every figure names: device, dtype, mode, execution and policy."""
    parts = [device(run)]
    if run.configuration is not None:
        parts += [run.configuration.dtype, run.configuration.mode, run.configuration.execution]
    else:
        parts.append("dtype and mode not recorded")
    parts.append(f"policy {policy or run.addressable.policy}")
    return " · ".join(one_line(part) for part in parts if part)


# --- the answer ---------------------------------------------------------------------------------------------


def policies(run: Run) -> list[tuple[str, PolicyShare]]:
    """Every policy with its shares, the run's own first."""
    own = run.addressable.policy
    return sorted(run.addressable.by_policy.items(), key=lambda item: item[0] != own)


def range_percent(interval: Range, missing: str = units.NOT_MEASURED) -> str:
    return units.percent_range(interval.low, interval.high, missing)


def ceiling(speedup: Range, share: Range, missing: str = units.NOT_MEASURED) -> str:
    """Amdahl's ceiling; 'unbounded' where the share it follows from is 1 at both ends."""
    if share.low is None or share.high is None:
        return missing
    if speedup.low is None:
        return "unbounded" if share.low >= 1 else missing
    return units.speedup_range(speedup.low, speedup.high, missing)


def headline(run: Run) -> str:
    """The answer in one sentence."""
    share = run.addressable.share_of_busy
    if share.low is None:
        return "Addressable fraction: not measured (no device time in the window)."
    what = "busy CPU time" if is_cpu(run) else "busy GPU time"
    return f"{range_percent(share)} of {what} is addressable by replacement kernels (policy {run.addressable.policy})."


def ceiling_line(run: Run) -> str:
    """Amdahl's ceiling of the run's policy, of busy and, where measured, of wall."""
    policy = run.addressable.by_policy.get(run.addressable.policy)
    if policy is None or policy.share_of_busy.low is None:
        return "not measured"
    of_busy = f"{ceiling(policy.speedup_of_busy, policy.share_of_busy)} of busy"
    if policy.share_of_wall.low is None:
        return f"{of_busy}; of wall not measured"
    return f"{of_busy}, {ceiling(policy.speedup_of_wall, policy.share_of_wall)} of wall"


def host_answer(run: Run) -> str:
    """'host-bound', 'not host-bound' or 'cannot tell'."""
    return {True: "host-bound", False: "not host-bound", None: "cannot tell"}[run.accounts.host_bound]


def host_line(run: Run) -> str:
    """Whether the host holds the step back, with the evidence."""
    evidence = one_line(run.accounts.host_bound_evidence)
    return f"{host_answer(run)}: {evidence}" if evidence else host_answer(run)


def step_times(run: Run) -> Times | None:
    """The unprofiled times that stand for the step: device events, else the host's clock."""
    return None if run.wall is None else run.wall.device or run.wall.host


def step_line(run: Run) -> str:
    """Unprofiled step time with its interval; without a wall the profiled span, said so."""
    times = step_times(run)
    if times is None:
        span = units.microseconds(run.accounts.span_us) if run.accounts.span_us else "nothing"
        return f"wall not measured; {span} a step on the profiled timeline"
    return f"{units.microseconds(times.median_us)} wall ({interval(times)})"


def interval(times: Times) -> str:
    """'95 % 4.08–4.12 ms, n = 30'; without an interval just the number of samples."""
    count = len(times.samples_us)
    if count < 2:
        return "one value, no interval"
    return f"95 % {units.microseconds_range(times.low_us, times.high_us)}, n = {count}"


def graph_line(run: Run) -> str:
    """The step as a CUDA graph, or why there is none; '' where no wall was measured."""
    if run.wall is None:
        return ""
    if run.wall.graph is None:
        return f"no CUDA graph: {one_line(run.wall.graph_note) or 'not captured'}"
    return f"{units.microseconds(run.wall.graph.median_us)} as a CUDA graph ({interval(run.wall.graph)})"


def graph_us(run: Run) -> float | None:
    """The step as a CUDA graph; None where it was not captured."""
    return None if run.wall is None or run.wall.graph is None else run.wall.graph.median_us


def busy_of_span(run: Run) -> float | None:
    """Share of the profiled span in which at least one kernel ran."""
    return run.accounts.busy_us / run.accounts.span_us if run.accounts.span_us else None


def busy_of_wall(run: Run) -> float | None:
    """Profiled busy time over the unprofiled wall; can pass 1, since the two come from different steps."""
    step_us = wall_us(run)
    return run.accounts.busy_us / step_us if step_us else None


def wall_us(run: Run) -> float | None:
    return None if run.wall is None else run.wall.step_us


def busy_share(run: Run, missing: str = units.NOT_MEASURED) -> str:
    """Busy share of the unprofiled wall, or of the profiled span, said so, where no wall was measured."""
    if wall_us(run) is not None:
        return units.percent(busy_of_wall(run), missing)
    share = busy_of_span(run)
    return missing if share is None else f"{units.percent(share)} of span"


DISTORTED = 0.1
"""Gaps of the profiler's making that hold more than this share of the span are worth a warning."""
CLOCKS_AGREE = 0.02
"""Busy time and wall come from different steps; busy may exceed the wall by this much without a word."""


def distortion_line(run: Run) -> str:
    """A warning where profiled and unprofiled steps differ in kind; '' where they do not or where no wall is known."""
    step_us, busy_us = wall_us(run), run.accounts.busy_us
    if not step_us or not run.accounts.span_us:
        return ""
    if busy_us > step_us * (1 + CLOCKS_AGREE):
        return (
            f"While profiled, {kernel_noun(run)}s took {units.microseconds(busy_us)}, more than the whole unprofiled "
            f"step of {units.microseconds(step_us)}: shares of wall are too high by that much."
        )
    made_by_profiler_us = run.accounts.span_us - busy_us - max(0.0, step_us - busy_us)
    if made_by_profiler_us <= DISTORTED * run.accounts.span_us:
        return ""
    return (
        f"The profiler stretched this step: its span is {units.significant(run.accounts.span_us / step_us)} times the "
        f"unprofiled wall. Kernel times stand, but at least {units.microseconds(made_by_profiler_us)} of the gaps are "
        f"the profiler's. Unprofiled, kernels fill {busy_share(run)} of the wall."
    )


def busy_line(run: Run) -> str:
    """Busy time a step, as shares of span and wall, with the distortion between the two."""
    if not run.accounts.span_us:
        return "nothing ran on the device"
    parts = [f"{units.percent(busy_of_span(run))} of profiled span"]
    if wall_us(run) is not None:
        parts.append(f"{units.percent(busy_of_wall(run))} of wall")
    if run.accounts.distortion is not None:
        parts.append(f"span/wall {units.significant(run.accounts.distortion)}")
    return f"{units.microseconds(run.accounts.busy_us)}: {', '.join(parts)}"


def sampling_line(run: Run) -> str:
    """How much the share moved from step to step; '' with too few steps to say."""
    policy = run.addressable.by_policy.get(run.addressable.policy)
    if policy is None or policy.sampling_of_busy.low is None:
        return ""
    steps = units.plural(len(run.accounts.steps), "step")
    return f"{range_percent(policy.sampling_of_busy)}: 95 % interval of the share's mid-point over {steps}"


def throughput(run: Run) -> float | None:
    """Samples a second at the unprofiled step time."""
    step_us = wall_us(run)
    if not step_us or run.samples_per_step is None:
        return None
    return run.samples_per_step / step_us * 1e6


def throughput_text(run: Run, missing: str = units.NOT_MEASURED) -> str:
    return units.rate(throughput(run), one_line(run.sample_unit) or "samples", missing)


def launches_line(run: Run) -> str:
    """Work items and host calls a step."""
    return (
        f"{units.count(run.accounts.launches)} device work items, "
        f"{units.count(run.accounts.host_calls)} host launch calls a step"
    )


def extrapolation_line(run: Run) -> str:
    """The full-depth figure with the error of the held-out depth; '' where nothing was extrapolated."""
    full = run.extrapolation
    if full is None:
        return ""
    return (
        f"Extrapolated to {full.full_depth} layers from {', '.join(map(str, full.depths))}: "
        f"{units.microseconds(full.full_step_us)} a step, {range_percent(full.full_share_of_busy)} of busy; "
        f"at the held-out depth {full.held_out_depth} off by {units.signed_percent(full.held_out_step_error)} "
        f"of the step and {units.signed_points(full.held_out_share_error)} of the share. "
        f"Device alone {_with_error(full.full_busy_us, full.held_out_busy_error)}, "
        f"as a CUDA graph {_with_error(full.full_graph_us, full.held_out_graph_error)}."
    )


def _with_error(us: float | None, error: float | None) -> str:
    return f"{units.microseconds(us)} ({units.signed_percent(error)})" if us is not None else units.NOT_MEASURED


def trace_line(run: Run) -> str:
    """The trace, its grade and the window."""
    source = run.source
    parts = [
        f"trace grade {run.grade.letter or '?'}",
        one_line(source.path),
        f"{units.count(source.events)} events",
        units.bytes_(source.size_bytes),
    ]
    if source.rank is not None:
        parts.append(f"rank {source.rank}" + (f" of {source.world_size}" if source.world_size is not None else ""))
    return ", ".join(part for part in parts if part)


def losses(run: Run) -> list[str]:
    """Each part of the trace that was lost and the recorder setting that mends it."""
    return [
        f"{units.count(loss.count)} {one_line(loss.what)}" + (f" ({one_line(loss.remedy)})" if loss.remedy else "")
        for loss in run.grade.losses
    ]


def facts_extra(run: Run) -> list[tuple[str, str]]:
    """Workload-specific facts as name and text, the recorded mark left out."""
    return [
        (one_line(str(key)).replace("_", " "), one_line(_plain(value)))
        for key, value in run.extra.items()
        if key != "recorded"
    ]


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return units.significant(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# --- several runs -------------------------------------------------------------------------------------------


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each of several runs that says only where they differ; always distinct."""
    parts = [_distinguishing(run) for run in runs]
    keys = list(dict.fromkeys(key for part in parts for key in part))
    differing = [key for key in keys if len({part.get(key) for part in parts}) > 1]
    texts = [
        " · ".join(part[key] for key in differing if part.get(key)) or name(run)
        for part, run in zip(parts, runs, strict=True)
    ]
    return [text if texts.count(text) == 1 else f"{text} #{number}" for number, text in enumerate(texts, 1)]


def common_title(runs: Sequence[Run]) -> str:
    """What all of several runs share."""
    parts = [_distinguishing(run) for run in runs]
    shared = [text for key, text in parts[0].items() if all(part.get(key) == text for part in parts)]
    return " · ".join(shared)


def comparison_kind(runs: Sequence[Run]) -> str:
    """'Sweep over batch size', or '3 runs side by side'."""
    curve = sweep(runs)
    return f"Sweep over {FIELD_WORDS[curve.field]}" if curve else f"{len(runs)} runs side by side"


def comparison_title(runs: Sequence[Run]) -> str:
    """What several runs are, and what they share."""
    return ": ".join(text for text in (comparison_kind(runs), common_title(runs)) if text)


def _distinguishing(run: Run) -> dict[str, str]:
    parts = {"workload": name(run)} if run.configuration is None else configuration_parts(run.configuration)
    parts |= {"arm": arm(run)} if arm(run) else {}
    return {**parts, "device": device(run), "torch": "".join(versions(run, ("torch",)))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Which numbers of the configuration several runs differ in, and in nothing else."""

    field: str
    """Runs along the axis of the curve."""
    series: str | None
    """A second number that differs: one curve for each of its values."""


def sweep(runs: Sequence[Run]) -> Sweep | None:
    """How runs of one workload on one device form a curve; None where more than one or two numbers differ."""
    if len(runs) < 2 or any(run.configuration is None for run in runs):
        return None
    parts = [_distinguishing(run) for run in runs]
    differing = {key for part in parts for key in part if len({other.get(key) for other in parts}) > 1}
    if not differing or len(differing) > 2 or not differing <= set(SWEPT_FIELDS):
        return None
    points = [tuple(swept_value(run, field) for field in sorted(differing)) for run in runs]
    if any(None in point for point in points) or len(set(points)) < len(points):
        return None
    field, *others = sorted(differing, key=lambda key: -len({part[key] for part in parts}))
    return Sweep(field=field, series=others[0] if others else None)


def ordered(runs: Sequence[Run]) -> list[Run]:
    """Runs of a sweep along their curve, others in the order given."""
    curve = sweep(runs)
    if curve is None:
        return list(runs)
    fields = [curve.series, curve.field] if curve.series else [curve.field]
    return sorted(runs, key=lambda run: [swept_value(run, field) or 0 for field in fields])


def swept_value(run: Run, field: str) -> int | None:
    value = getattr(run.configuration, field)
    return value if isinstance(value, int) else None


FIELD_WORDS = {
    "batch": "batch size",
    "seq_len": "sequence length",
    "cache_len": "cache length",
    "layers": "layers",
    "rows": "rows a table",
}


def policy_names(runs: Sequence[Run]) -> list[str]:
    """Every policy that any of the runs has, the runs' own first."""
    return list(dict.fromkeys(policy for run in runs for policy, _ in policies(run)))


def headline_columns(names: Sequence[str]) -> list[str]:
    """Titles of `headline_cells`; a column that starts with '>' holds numbers."""
    return [
        ">step",
        ">as a graph",
        ">busy",
        *(f">addressable, {name}" for name in names),
        ">ceiling of busy",
        "host-bound",
    ]


def headline_cells(run: Run, names: Sequence[str]) -> list[str]:
    """Step, graph, busy share, share of busy under each policy, ceiling of busy under the run's own, host."""
    own = run.addressable.by_policy.get(run.addressable.policy)
    shares = [run.addressable.by_policy.get(name) for name in names]
    return [
        units.microseconds(wall_us(run), units.DASH),
        units.microseconds(graph_us(run), units.DASH),
        busy_share(run, units.DASH),
        *(units.DASH if share is None else range_percent(share.share_of_busy, units.DASH) for share in shares),
        units.DASH if own is None else ceiling(own.speedup_of_busy, own.share_of_busy, units.DASH),
        {True: "yes", False: "no", None: "cannot tell"}[run.accounts.host_bound],
    ]


def extrapolated_title(run: Run) -> str:
    """The run's title at the full depth that it was extrapolated to; '' where it was not."""
    if run.extrapolation is None or run.configuration is None:
        return ""
    depth = f"{units.plural(run.extrapolation.full_depth, 'layer')}, extrapolated"
    return " · ".join({**configuration_parts(run.configuration), "layers": depth}.values())


def extrapolated_cells(run: Run, names: Sequence[str]) -> list[str]:
    """`headline_cells` at full depth: only what was extrapolated, the share under the run's own policy."""
    full = run.extrapolation
    assert full is not None
    shares = (full.full_share_of_busy if name == run.addressable.policy else NONE for name in names)
    return [
        units.microseconds(full.full_step_us),
        units.microseconds(full.full_graph_us, units.DASH),
        units.percent(full.full_busy_us / full.full_step_us if full.full_step_us else None, units.DASH),
        *(range_percent(share, units.DASH) for share in shares),
        units.DASH,
        units.DASH,
    ]


# --- diff and what-if ---------------------------------------------------------------------------------------


def moved(row: DiffRow) -> str:
    """'4.10 ms → 4.41 ms (+312 µs)'."""
    before, after = (units.microseconds(us, "absent") for us in (row.before_us, row.after_us))
    return f"{before} → {after} ({units.signed_microseconds(row.change_us)})"


def what_if_lines(record: WhatIf) -> list[tuple[str, str]]:
    """Busy and wall before and after, both projected."""
    lines = [
        (
            "busy",
            f"{units.microseconds(record.busy_us)} → "
            f"{units.microseconds_range(record.busy_after_us.low, record.busy_after_us.high)} projected, "
            f"{units.speedup_range(record.speedup_of_busy.low, record.speedup_of_busy.high)}",
        )
    ]
    if record.wall_us is None:
        return [*lines, ("wall", units.NOT_MEASURED)]
    after = units.microseconds_range(record.wall_after_us.low, record.wall_after_us.high)
    faster = units.speedup_range(record.speedup_of_wall.low, record.speedup_of_wall.high)
    return [*lines, ("wall", f"{units.microseconds(record.wall_us)} → {after} projected, {faster}")]
