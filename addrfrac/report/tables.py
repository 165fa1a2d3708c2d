"""Runs in, pandas frames of plain unrounded numbers out; renderers and the CSV take theirs from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from addrfrac.records import ArmTimes, Bound, Diff, Gain, KernelRow, Phase, Run, WhatIf
from addrfrac.report import ceilings, facts, ladders

if TYPE_CHECKING:
    import pandas as pd

BOUND_ORDER = (Bound.LIBRARY, Bound.SYSTEM, Bound.UNKNOWN, Bound.REPLACEABLE)
"""Left to right in every picture: what no kernel of ours can reach first."""


def kernels(run: Run) -> pd.DataFrame:
    """One row a distinct (kernel, op stack, phase), largest first; sequences joined to text."""
    import pandas as pd

    return pd.DataFrame([_kernel(row) for row in run.kernels], columns=_KERNEL_COLUMNS)


_KERNEL_COLUMNS = [
    "name",
    "op",
    "provider",
    "role",
    "phase",
    "incumbent",
    "bound",
    "bounds",
    "op_rule",
    "provider_rule",
    "certainty",
    "launching_op",
    "op_stack",
    "fused_ops",
    "evidence",
    "inputs",
    "launches",
    "device_us",
    "median_launch_us",
    "share_of_busy",
    "queued_gap_us",
]


def _kernel(row: KernelRow) -> dict[str, object]:
    joined: dict[str, object] = {
        "bounds": " ".join(f"{policy}={bound}" for policy, bound in row.bounds.items()),
        "launching_op": row.launching_op or "",
        "op_stack": " > ".join(row.op_stack),
        "fused_ops": " ".join(row.fused_ops),
        "evidence": "; ".join(row.evidence),
    }
    return {column: joined.get(column, getattr(row, column)) for column in _KERNEL_COLUMNS}


def everything(run: Run) -> pd.DataFrame:
    """The kernels of a run; where it has a ladder, ceilings or floors, these under them and column `part` first."""
    import pandas as pd

    parts = [("rung", _rungs(run)), ("arm", _arms(run)), ("ceiling", _ceilings(run)), ("floor", _floors(run))]
    parts = [(part, rows) for part, rows in parts if rows]
    if not parts:
        return kernels(run)
    frames = [kernels(run).assign(part="kernel"), *(pd.DataFrame(rows).assign(part=part) for part, rows in parts)]
    columns = ["part", *dict.fromkeys(column for frame in frames for column in frame.columns if column != "part")]
    # As objects, so that a whole number or a yes stays one where another part has no such column.
    return pd.concat([frame.astype(object) for frame in frames], ignore_index=True)[columns]


def _arm(times: ArmTimes | None) -> dict[str, object]:
    if times is None:
        return {}
    return {
        "launch": times.launch,
        "switches": " ".join(times.switches),
        "step_us": times.median_us,
        "step_low_us": times.low_us,
        "step_high_us": times.high_us,
        "peak_memory_bytes": times.peak_memory_bytes,
        "processes": len(times.blocks_us),
    }


def _gain(gain: Gain | None) -> dict[str, object]:
    if gain is None:
        return {}
    return {
        "speedup": gain.speedup,
        "speedup_low": gain.low,
        "speedup_high": gain.high,
        "verdict": str(gain.verdict),
        "against": f"{gain.before} / {gain.after}",
    }


def _rungs(run: Run) -> list[dict[str, object]]:
    """Every rung, those that were not measured too."""
    rows = []
    for rung in () if run.ladder is None else run.ladder.rungs:
        share = rung.share_of_busy.get(run.addressable.policy, facts.NONE)
        parity = None if rung.parity is None else rung.parity.passed
        told: dict[str, object] = {"name": rung.name, "kept": rung.kept, "reason": rung.reason, "parity_passed": parity}
        left = {"share_low": share.low, "share_high": share.high}
        rows.append(told | _arm(rung.times) | _gain(rung.gain) | left)
    return rows


def _arms(run: Run) -> list[dict[str, object]]:
    if run.ladder is None:
        return []
    gains = {gain.before: gain for gain in run.ladder.gains}
    rows = []
    for times in run.ladder.arms:
        share = ladders.share_of_arm(run, times)
        left: dict[str, object] = {"share_low": share.low, "share_high": share.high}
        rows.append({"name": times.arm} | _arm(times) | _gain(gains.get(times.arm)) | left)
    return rows


def _ceilings(run: Run) -> list[dict[str, object]]:
    return [
        {
            "name": row.what,
            "above": ceiling.arm,
            "kind": row.kind,
            "nodes": row.nodes,
            "device_us": row.deleted_us,
            "step_us": row.full_us,
            "step_without_us": row.reduced_us,
            "amdahl_of_busy_low": row.amdahl_of_busy.low,
            "amdahl_of_busy_high": row.amdahl_of_busy.high,
            "amdahl_of_wall_low": row.amdahl_of_wall.low,
            "amdahl_of_wall_high": row.amdahl_of_wall.high,
            "reason": row.note or row.explanation,
        }
        | _gain(row.gain)
        for ceiling in ceilings.ceilings(run)
        for row in ceiling.rows
    ]


def _floors(run: Run) -> list[dict[str, object]]:
    return [
        {
            "name": row.name,
            "op": str(row.op),
            "provider": row.provider,
            "bound": str(row.bound),
            "launching_op": row.launching_op or "",
            "launches": row.launches,
            "device_us": row.device_us,
            "bytes_low": row.bytes.low,
            "bytes_high": row.bytes.high,
            "flops": row.flops,
            "access": row.access,
            "floor_low_us": row.floor_us.low,
            "floor_high_us": row.floor_us.high,
            "headroom_low_us": row.headroom_us.low,
            "headroom_high_us": row.headroom_us.high,
            "reason": row.basis,
        }
        for row in (() if run.floors is None else run.floors.rows)
    ]


def everything_of_all(runs: Sequence[Run]) -> pd.DataFrame:
    """The rows of several runs under each other, the run's label first."""
    import pandas as pd

    frames = [everything(run).assign(run=label) for run, label in zip(runs, facts.labels(runs), strict=True)]
    if any("part" in frame for frame in frames):
        frames = [frame if "part" in frame else frame.assign(part="kernel") for frame in frames]
        frames = [frame.astype(object) for frame in frames]
    whole = pd.concat(frames, ignore_index=True)
    return whole[["run", *(column for column in whole.columns if column != "run")]]


def classes(run: Run) -> pd.DataFrame:
    """One row for each (bound, op): owners, launches and times a step over all phases, by bound then time."""
    import pandas as pd

    rows = [
        {
            "op": str(row.op),
            "bound": str(row.bound),
            "provider": row.provider,
            "launches": row.launches,
            "device_us": row.device_us,
            "exclusive_us": row.exclusive_us,
        }
        for row in run.accounts.classes
    ]
    columns = ["op", "bound", "provider", "launches", "device_us", "exclusive_us"]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.groupby(["bound", "op"], as_index=False, sort=False).agg(
        provider=("provider", lambda names: ", ".join(dict.fromkeys(names))),
        launches=("launches", "sum"),
        device_us=("device_us", "sum"),
        exclusive_us=("exclusive_us", "sum"),
    )
    frame["share_of_span"] = frame["exclusive_us"] / (run.accounts.span_us or 1.0)
    return frame.sort_values("device_us", ascending=False, kind="stable", ignore_index=True)


def accounts(run: Run) -> pd.DataFrame:
    """The parts that close the profiled step, in the order of the picture: classes, overlap, gaps, residual.

    Columns: part, kind ('class', 'overlap', 'gap', 'residual'), bound, us, share_of_span, number (launches or gaps).
    """
    import pandas as pd

    frame = classes(run)
    rows: list[tuple[str, str, str, float, float | None]] = [
        (op, "class", str(bound), us, launches)
        for bound in BOUND_ORDER
        for op, which, us, launches in zip(
            frame["op"], frame["bound"], frame["exclusive_us"], frame["launches"], strict=True
        )
        if which == bound
    ]
    rows.append(("overlap", "overlap", "", run.accounts.overlap_us, None))
    rows += [(str(gap.kind), "gap", "", gap.us, gap.count) for gap in run.accounts.gaps]
    rows.append(("residual", "residual", "", run.accounts.residual_us, None))
    whole = pd.DataFrame(rows, columns=["part", "kind", "bound", "us", "number"])
    whole["share_of_span"] = whole["us"] / (run.accounts.span_us or 1.0)
    return whole


IDLE = "no kernel"
OVERLAP = "two at once"


def all_have_walls(runs: Sequence[Run]) -> bool:
    """Whether the runs can be set side by side on their unprofiled steps."""
    return all(facts.wall_us(run) for run in runs)


def parts(run: Run, of_wall: bool) -> list[tuple[str, float]]:
    """The step by bound, then overlap, then time without a kernel, as (name, us); the parts sum to the step.

    Of the wall, where it was measured: the profiler stretches gaps, so those of its timeline are not the step's. Wall
    and busy time come from different steps; where busy time is the longer, nothing is idle.
    """
    frame = accounts(run)
    by_bound = frame[frame["kind"] == "class"].groupby("bound")["us"].sum()
    rows = [(str(bound), float(by_bound.get(str(bound), 0.0))) for bound in BOUND_ORDER]
    whole_us = (facts.wall_us(run) or 0.0) if of_wall else run.accounts.span_us
    idle_us = max(0.0, whole_us - run.accounts.busy_us)
    return [*rows, (OVERLAP, run.accounts.overlap_us), (IDLE, idle_us)]


def phases(run: Run) -> pd.DataFrame:
    """Exclusive time a step by phase and bound; columns phase, bound, us, device_us, launches."""
    import pandas as pd

    rows = [
        (str(row.phase), str(row.bound), row.exclusive_us, row.device_us, row.launches) for row in run.accounts.classes
    ]
    frame = pd.DataFrame(rows, columns=["phase", "bound", "us", "device_us", "launches"])
    frame["phase"] = pd.Categorical(frame["phase"], [str(phase) for phase in Phase])
    frame["bound"] = pd.Categorical(frame["bound"], [str(bound) for bound in BOUND_ORDER])
    return frame.groupby(["phase", "bound"], as_index=False, observed=True).sum()


def has_phases(run: Run) -> bool:
    """Whether a forward / backward / optimizer split says anything."""
    return len({row.phase for row in run.accounts.classes} - {Phase.UNKNOWN}) > 1


def steps(run: Run) -> pd.DataFrame:
    """The profiled steps one by one, with the replaceable share of each step's busy time."""
    import pandas as pd

    rows = [
        {
            "step": step.name,
            "span_us": step.span_us,
            "busy_us": step.busy_us,
            "gap_us": step.gap_us,
            "overlap_us": step.overlap_us,
            "residual_us": step.residual_us,
            "launches": step.launches,
            "share_low": step.replaceable_exclusive_us / step.busy_us if step.busy_us else None,
            "share_high": min(1.0, step.replaceable_union_us / step.busy_us) if step.busy_us else None,
        }
        for step in run.accounts.steps
    ]
    columns = [
        "step",
        "span_us",
        "busy_us",
        "gap_us",
        "overlap_us",
        "residual_us",
        "launches",
        "share_low",
        "share_high",
    ]
    return pd.DataFrame(rows, columns=columns)


def classes_of_all(runs: Sequence[Run]) -> pd.DataFrame:
    """Device time a step by class (rows: op and bound) and run (columns), the largest over all runs first."""
    import pandas as pd

    columns = {
        label: classes(run).set_index(["op", "bound"])["device_us"]
        for run, label in zip(runs, facts.labels(runs), strict=True)
    }
    frame = pd.DataFrame(columns)
    return frame.loc[frame.max(axis=1).sort_values(ascending=False, kind="stable").index]


def class_rows(frame: pd.DataFrame) -> list[tuple[tuple[str, Bound], list[float | None]]]:
    """The rows of `classes_of_all` as ((op, bound), times); None where a run has no such class."""
    return [
        ((str(op), Bound(bound)), [None if us != us else float(us) for us in times])
        for (op, bound), times in zip(frame.index.tolist(), frame.to_numpy().tolist(), strict=True)
    ]


def diff(record: Diff) -> pd.DataFrame:
    """Every row of a diff under each other; column `part` says step, class, gap or kernel."""
    import pandas as pd

    groups = (("step", (record.step,)), ("class", record.classes), ("gap", record.gaps), ("kernel", record.kernels))
    rows = [
        (
            part,
            row.name,
            row.before_us,
            row.after_us,
            row.change_us,
            row.interval_us.low,
            row.interval_us.high,
            str(row.verdict),
        )
        for part, members in groups
        for row in members
    ]
    columns = ["part", "name", "before_us", "after_us", "change_us", "change_low_us", "change_high_us", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def what_if(record: WhatIf) -> pd.DataFrame:
    """The assumptions of a what-if and the time they bear on."""
    import pandas as pd

    rows = [
        (row.what, row.speedup, row.kernels, row.device_us, row.saved_us.low, row.saved_us.high) for row in record.rows
    ]
    columns = ["what", "speedup", "kernels", "device_us", "saved_low_us", "saved_high_us"]
    return pd.DataFrame(rows, columns=columns)
