"""Runs of one model at three depths in, its full depth out, with the error seen at the depth that was held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from addrfrac.records import Extrapolation, Range, Run

FRACTIONS = (8, 4, 2)
"""Depths measured are the full depth divided by these; the last is the one held out."""


def depths(full_depth: int) -> tuple[int, ...]:
    """Three depths, smallest first, distinct where the model is deep enough."""
    return tuple(sorted({max(1, full_depth // fraction) for fraction in FRACTIONS}))


def extrapolate(runs: Sequence[Run], full_depth: int) -> Extrapolation:
    """The full depth on a straight line through the runs, one a depth, smallest first.

    A decoder is equal layers between a first and a last part, so time and each share's microseconds grow linearly
    with depth. The error is that of the line through all but the deepest run, at the deepest run; the figures are from
    the line through all of them. Raises ValueError for fewer than three runs.
    """
    if len(runs) < 3:
        raise ValueError("three depths are needed: two for the line, one to check it")
    measured = [_layers(run) for run in runs]
    share_error = _middle(_share(runs[:-1], measured[-1])) - _middle(_share(runs[-1:], measured[-1]))
    has_graphs = all(run.wall is not None and run.wall.graph is not None for run in runs)
    return Extrapolation(
        depths=tuple(measured),
        step_us=tuple(_step_us(run) for run in runs),
        full_depth=full_depth,
        full_step_us=_at(runs, full_depth, _step_us),
        full_share_of_busy=_share(runs, full_depth),
        held_out_depth=measured[-1],
        held_out_step_error=_held_out_error(runs, _step_us),
        held_out_share_error=share_error,
        full_busy_us=_at(runs, full_depth, _busy_us),
        held_out_busy_error=_held_out_error(runs, _busy_us),
        full_graph_us=_at(runs, full_depth, _graph_us) if has_graphs else None,
        held_out_graph_error=_held_out_error(runs, _graph_us) if has_graphs else None,
    )


def _held_out_error(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    """(predicted - measured) / measured at the deepest run, from the others."""
    return _at(runs[:-1], _layers(runs[-1]), of) / of(runs[-1]) - 1.0


def _layers(run: Run) -> int:
    depth = run.configuration.layers if run.configuration is not None else None
    assert depth is not None, "a run at a depth knows its depth"
    return depth


def _step_us(run: Run) -> float:
    return run.wall.step_us if run.wall is not None else run.accounts.span_us


def _graph_us(run: Run) -> float:
    graph = run.wall.graph if run.wall is not None else None
    assert graph is not None, "asked for only where every depth has one"
    return graph.median_us


def _busy_us(run: Run) -> float:
    return run.accounts.busy_us


def _low_us(run: Run) -> float:
    return run.addressable.by_policy[run.addressable.policy].replaceable_us.low or 0.0


def _high_us(run: Run) -> float:
    return run.addressable.by_policy[run.addressable.policy].replaceable_us.high or 0.0


def _at(runs: Sequence[Run], depth: int, of: Callable[[Run], float]) -> float:
    if len(runs) == 1:
        return of(runs[0])
    slope, start = np.polyfit([_layers(run) for run in runs], [of(run) for run in runs], 1)
    return float(start + slope * depth)


def _share(runs: Sequence[Run], depth: int) -> Range:
    busy = _at(runs, depth, _busy_us)
    return Range(low=_at(runs, depth, _low_us) / busy, high=_at(runs, depth, _high_us) / busy)


def _middle(share: Range) -> float:
    return ((share.low or 0.0) + (share.high or 0.0)) / 2
