"""A device's labelled timeline in, one row for each distinct (kernel, label) of the window out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from addrfrac.gaps import KINDS, Gaps
from addrfrac.records import Bound, GapKind, Ids, Ints, KernelRow, Labels, Trace, Window
from addrfrac.shares import DeviceTimeline

MOST_STEPS_KEPT = 200
"""Per-step samples of single kernels are kept up to this many steps; `run.json` stays readable."""


def kernel_rows(
    trace: Trace,
    timeline: DeviceTimeline,
    labels: Labels,
    bounds: Mapping[str, Sequence[Bound]],
    policy: str,
    window: Window,
    busy_ns: int,
) -> tuple[KernelRow, ...]:
    """One row for each distinct (name, label) of the window, largest device time first; means over its steps."""
    kernels, steps = trace.kernels, window.steps
    key = kernels.name[timeline.row].astype(np.int64) * len(labels.table) + timeline.label
    keys, of_row = np.unique(key, return_inverse=True)
    count = np.bincount(of_row, minlength=len(keys))
    by_step = np.zeros(len(keys) * steps, dtype=np.int64)
    np.add.at(by_step, of_row * steps + timeline.step, timeline.device_ns)
    device = by_step.reshape(len(keys), steps)
    median = _median_by_group(timeline.device_ns, of_row, count)
    queued = _queued_before(timeline.gaps, of_row, len(keys))
    inputs = _common_inputs(kernels.inputs[timeline.row], of_row, len(keys))
    rows = []
    for i, one in enumerate(keys):
        name, at = divmod(int(one), len(labels.table))
        label = labels.table[at]
        total_us = float(device[i].sum()) / steps / 1e3
        rows.append(
            KernelRow(
                name=trace.names[name],
                op=label.op,
                provider=label.provider,
                role=label.role,
                phase=label.phase,
                incumbent=label.incumbent,
                bound=bounds[policy][at],
                bounds={each: of[at] for each, of in bounds.items()},
                op_rule=label.op_rule,
                provider_rule=label.provider_rule,
                certainty=label.certainty,
                launching_op=label.launching_op,
                op_stack=label.op_stack,
                fused_ops=label.fused_ops,
                evidence=label.evidence,
                launches=float(count[i]) / steps,
                device_us=total_us,
                median_launch_us=float(median[i]) / 1e3,
                share_of_busy=total_us * 1e3 * steps / busy_ns if busy_ns else 0.0,
                queued_gap_us=float(queued[i]) / steps / 1e3,
                device_us_by_step=tuple((device[i] / 1e3).tolist()) if steps <= MOST_STEPS_KEPT else (),
                inputs=trace.op_inputs[inputs[i]].dims if inputs[i] >= 0 else "",
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.device_us))


def _median_by_group(values: Ints, group: Ints, count: Ints) -> NDArray[np.float64]:
    order = np.lexsort((values, group))
    ordered = values[order]
    first = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    return np.asarray((ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2, dtype=np.float64)


def _queued_before(gaps: Gaps, of_row: Ints, keys: int) -> NDArray[np.float64]:
    queued = (gaps.kind == KINDS.index(GapKind.QUEUED)) & (gaps.follower >= 0)
    weights = gaps.length_ns[queued]
    return np.bincount(of_row[gaps.follower[queued]], weights=weights, minlength=keys).astype(np.float64)


def _common_inputs(inputs: Ids, of_row: Ints, keys: int) -> Ids:
    """The inputs that all launches of a row share, else -1."""
    low = np.full(keys, np.iinfo(np.int32).max, dtype=np.int32)
    high = np.full(keys, -1, dtype=np.int32)
    np.minimum.at(low, of_row, inputs)
    np.maximum.at(high, of_row, inputs)
    return np.where(low == high, high, -1).astype(np.int32)
