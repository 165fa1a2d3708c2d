"""What a claimed time is worth beside the parent's clock, the trace and what the device can do; plain numbers only.

One-sided: a claim may be slower than the evidence (it measured more), never faster by more than the tolerance.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from addrfrac.verification.records import Status

RELATIVE_TOLERANCE = 0.10
ABSOLUTE_TOLERANCE_US = 5.0
HOST_CALL_US = 100.0
"""What launching one call may cost the host beside the device. Honest Triton launchers took up to 51 us a call
on an H200 (kernels of 3 to 90 us); what hides below this is left to the trace's span, which sees every stream."""
BATCH_NOISE = 0.05
"""Share of an empty block (content, flush, messages) that the parent's clock may be off by."""
SMALLEST_SINGLE_CALL_US = 50.0
"""Below this a single call cannot be held against the parent's clock."""
PEAK_HEADROOM = 1.15
"""A measured peak may itself be this much too low."""
SMALLEST_FLOOR_US = 5.0
"""A floor of a few microseconds is all launch overhead and refutes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One block as both sides saw it."""

    call_us: tuple[float, ...]
    """What the candidate's process says of each call."""
    batch_us: float
    """The parent's clock over the block."""
    empty_batch_us: float
    """The parent's clock over the same block with nothing called."""
    span_us: float | None
    """First start to last end over all streams of one isolated call's trace; None where there is none."""
    empty_call_us: float
    """An empty start-stop pair."""
    bytes_moved: float
    """Bytes that must really move (distinct rows; what stays in cache not counted)."""
    peak_gb_per_s: float | None
    launches: int | None = None
    """Device kernels in the trace of one call."""


def net(samples_us: Sequence[float], empty_us: float) -> float:
    """Median less the empty window, not below zero."""
    return max(0.0, statistics.median(samples_us) - empty_us)


def tolerance(reference_us: float) -> float:
    """How far a claim may be below the evidence."""
    return max(RELATIVE_TOLERANCE * reference_us, ABSOLUTE_TOLERANCE_US)


def judge_claim(claim: Claim) -> tuple[Status, str]:
    """PASSED, or how the claim contradicts the evidence."""
    if not claim.call_us or any(not us >= 0.0 for us in claim.call_us):
        return Status.TIMING_DISAGREEMENT, "no times, or times below zero"
    count = len(claim.call_us)
    claimed = sum(claim.call_us)
    owed = claim.batch_us - claim.empty_batch_us
    noise = BATCH_NOISE * claim.empty_batch_us
    host = HOST_CALL_US * count if claim.span_us is not None else 0.0  # without a trace nothing else bounds what hides
    allowed = host + max(RELATIVE_TOLERANCE * owed, ABSOLUTE_TOLERANCE_US * count, noise)
    if claimed < owed - allowed:
        return (
            Status.TIMING_DISAGREEMENT,
            f"claims {claimed:.0f} us for {count} calls; the block took {owed:.0f} us more than an empty one",
        )
    call = net(claim.call_us, claim.empty_call_us)
    if claim.span_us is not None and call < claim.span_us - tolerance(claim.span_us):
        return (
            Status.TIMING_DISAGREEMENT,
            f"claims {call:.1f} us a call; its kernels span {claim.span_us:.1f} us over all streams",
        )
    if claim.peak_gb_per_s:
        floor = claim.bytes_moved / (claim.peak_gb_per_s * PEAK_HEADROOM * 1e3)
        if floor > SMALLEST_FLOOR_US and call < floor:
            return (
                Status.TOO_FAST,
                f"claims {call:.1f} us; its {claim.bytes_moved / 1e6:.1f} MB take {floor:.1f} us at the measured peak",
            )
    return Status.PASSED, f"{call:.1f} us a call, the block {owed / count:.1f} us a call by the parent's clock"


def too_small(call_us: float, graph_us: float | None) -> bool:
    """Whether neither a single call nor an unrolled graph can time it."""
    return call_us < SMALLEST_SINGLE_CALL_US and graph_us is None


def distinct_bytes(shapes: Sequence[tuple[int, int, int | None]]) -> float:
    """Bytes that must move: (elements, item size, distinct elements read or None for all) of each tensor."""
    return float(sum((count if used is None else min(used, count)) * size for count, size, used in shapes))
