"""A trace in, its grade out: how much it can tell, and the recorder setting that mends each loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from addrfrac.parse.join import ENQUEUED_BEFORE, enqueued_before
from addrfrac.records import RANGE_STEP, Grade, Loss, Trace

FULL, MOST, HALF = 0.99, 0.9, 0.5
"""Shares of device time."""
HOST_REMEDY = "record with ProfilerActivity.CPU beside CUDA, and with a warm-up step in torch.profiler.schedule"
SHAPES_REMEDY = "record with record_shapes=True"
STEPS_REMEDY = "give torch.profiler a schedule and call prof.step() once a step, or choose steps by annotation"
GRAPH_REMEDY = "record one eager or capture run too and give it as --capture"
RANK_REMEDY = "call init_process_group before the profiler starts, so that the trace holds distributedInfo"


def grade(trace: Trace, named: NDArray[np.bool_] | None = None) -> Grade:
    """A: everything is there. B: shapes, steps or a little else is missing. C: owners of much time are known by name
    alone. D: of most of it.

    `named` marks the replayed kernels whose operator a capture trace gave.
    """
    kernels = trace.kernels
    recorded = ~enqueued_before(kernels.launch, kernels.start_ns, kernels.device, kernels.stream)
    busy = np.maximum(kernels.end_ns - kernels.start_ns, 1).astype(np.float64) * recorded
    replay = np.append(trace.launches.is_graph, False)[kernels.launch]
    called = (kernels.launch >= 0) & ~replay
    known = called & (kernels.op_stack > 0) if named is None else named
    in_graph = replay & ~known
    launched = _share(busy, kernels.launch >= 0)
    owned = _share(busy[called], kernels.op_stack[called] > 0)
    replayed = _share(busy, in_graph, nothing=0.0)
    shaped = _share(busy[called], kernels.inputs[called] >= 0)

    losses = list(trace.source.losses)
    spoilt = [loss for loss in losses if loss.what != ENQUEUED_BEFORE]
    loose = called & (kernels.op_stack == 0)
    _note(losses, owned < FULL, "launches outside every recorded operator", loose, HOST_REMEDY)
    _note(losses, replayed > 0, "kernels replayed from a graph: their operators are unknown", in_graph, GRAPH_REMEDY)
    _note(losses, shaped < MOST, "kernels without recorded shapes", called & (kernels.inputs < 0), SHAPES_REMEDY)
    no_steps = not bool(np.any(trace.ranges.kind == RANGE_STEP))
    _note(losses, no_steps, "no ProfilerStep# marks", None, STEPS_REMEDY)
    no_rank = trace.source.rank is None and bool(np.any(kernels.collective >= 0))
    _note(losses, no_rank, "collectives, but no rank", None, RANK_REMEDY)
    return Grade(
        letter=_letter(
            known=_share(busy, known),
            complete=shaped >= MOST and not no_steps and not no_rank and launched >= FULL and not spoilt,
        ),
        losses=_distinct(losses),
    )


def _letter(*, known: float, complete: bool) -> str:
    """The letter, from the share of device time whose operator is known."""
    if known >= FULL:
        return "A" if complete else "B"
    if known >= MOST:
        return "B"
    return "C" if known >= HALF else "D"


def _share(busy: np.ndarray, mask: np.ndarray, nothing: float = 1.0) -> float:
    """Share of device time; `nothing` where there is no device time."""
    total = float(busy.sum())
    return float(busy[mask].sum()) / total if total > 0 else nothing


def _note(losses: list[Loss], wrong: bool, what: str, mask: np.ndarray | None, remedy: str) -> None:
    if wrong:
        losses.append(Loss(what=what, count=1 if mask is None else int(mask.sum()), remedy=remedy))


def _distinct(losses: list[Loss]) -> tuple[Loss, ...]:
    return tuple(dict.fromkeys(losses))
