"""What a claimed time is worth beside the parent's clock, the trace and what the device can do; plain numbers only.

One-sided: a claim may be slower than the evidence (it measured more), never faster by more than the tolerance.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from addrfrac.verification.records import Status

RELATIVE_TOLERANCE = 0.10
ABSOLUTE_TOLERANCE_US = 5.0
HOST_CALL_US = 50.0
"""What one call may cost beside the device though it is queued while the device is held: what the end of a call and
the waiting for it cost differs between calls; what hides below this is left to the trace, which sees every stream."""
HOST_REPLAY_US = 100.0
"""What starting a row of graph replays may cost the host, once."""
BATCH_NOISE = 0.05
"""Share of an empty block (content, flush, messages) that the parent's clock may be off by."""
SMALLEST_SINGLE_CALL_US = 50.0
"""Below this a single call cannot be held against the parent's clock."""
PEAK_HEADROOM = 1.15
"""A measured peak may itself be this much too low."""
SMALLEST_FLOOR_US = 5.0
"""A floor of a few microseconds is all launch overhead and refutes nothing."""
ATTEMPTS = 5
"""A block that disagrees is measured again: a machine hiccups for a while, a false claim is false each time."""
PAUSE_S = 0.05
"""Before the first repeat, twice as long before each further one: a driver that starts or ends another process slows
everybody down for a tenth of a second."""
LONGEST_HOLD_US = 3_000.0
_FEWEST_UNROLLED, _MOST_UNROLLED = 8, 256
_UNROLLED_US = 1_500.0
_UNROLLED_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One block as both sides saw it."""

    call_us: tuple[float, ...]
    """What the candidate's process says of each window (a call, or a replay of `calls_each` of them)."""
    batch_us: float
    """The parent's clock over the block."""
    empty_batch_us: float
    """The parent's clock over the same block with nothing called."""
    span_us: float | None
    """Device time of one isolated call over all streams, gaps between kernels left out; None without a trace."""
    empty_call_us: float
    """An empty start-stop pair."""
    bytes_moved: float
    """Bytes that must really move (distinct rows; what stays in cache not counted)."""
    peak_gb_per_s: float | None
    launches: int | None = None
    """Device kernels in the trace of one call."""
    calls_each: int = 1
    """Calls in one window."""
    host_us: float | None = None
    """What the host may have spent beside the device in the whole block; None: as the kind of block has it."""


def net(samples_us: Sequence[float], empty_us: float) -> float:
    """Median less the empty window, not below zero."""
    return max(0.0, statistics.median(samples_us) - empty_us)


def tolerance(reference_us: float) -> float:
    """How far a claim may be below the evidence."""
    return max(RELATIVE_TOLERANCE * reference_us, ABSOLUTE_TOLERANCE_US)


def claimed_call_us(claim: Claim) -> float:
    """What the claim says of one call."""
    return net(claim.call_us, claim.empty_call_us) / claim.calls_each


def judge_claim(claim: Claim) -> tuple[Status, str]:
    """PASSED, or how the claim contradicts the evidence."""
    if not claim.call_us or any(not us >= 0.0 for us in claim.call_us):
        return Status.TIMING_DISAGREEMENT, "no times, or times below zero"
    count = len(claim.call_us)
    claimed = sum(claim.call_us)
    owed = claim.batch_us - claim.empty_batch_us
    noise = BATCH_NOISE * claim.empty_batch_us
    host = claim.host_us
    if host is None:  # without a trace nothing else bounds what hides
        host = HOST_CALL_US * count if claim.span_us is not None else 0.0
    allowed = host + max(RELATIVE_TOLERANCE * owed, ABSOLUTE_TOLERANCE_US * count, noise)
    if claimed < owed - allowed:
        return (
            Status.TIMING_DISAGREEMENT,
            f"claims {claimed:.0f} us for {count * claim.calls_each} calls; "
            f"the block took {owed:.0f} us more than an empty one",
        )
    call = claimed_call_us(claim)
    if claim.span_us is not None and call < claim.span_us - tolerance(claim.span_us):
        return (
            Status.TIMING_DISAGREEMENT,
            f"claims {call:.1f} us a call; its kernels take {claim.span_us:.1f} us over all streams",
        )
    floor = floor_us(claim)
    if floor > SMALLEST_FLOOR_US and call < floor:
        return (
            Status.TOO_FAST,
            f"claims {call:.1f} us; its {claim.bytes_moved / 1e6:.1f} MB take {floor:.1f} us at the measured peak",
        )
    own = owed / count / claim.calls_each
    return Status.PASSED, f"{call:.1f} us a call, the block {own:.1f} us a call by the parent's clock"


def floor_us(claim: Claim) -> float:
    """Least time that the bytes of one call take at the measured peak; 0 where no peak is known."""
    return claim.bytes_moved / (claim.peak_gb_per_s * PEAK_HEADROOM * 1e3) if claim.peak_gb_per_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of a block that may have been measured several times."""

    status: Status
    detail: str
    call_us: float
    """Claimed time of one call in the attempt that counts."""
    discarded: tuple[str, ...]
    """Why earlier attempts do not count."""


def settle(measured: Callable[[], Claim], attempts: int = ATTEMPTS) -> Settled:
    """A claim that agrees with the evidence at the first attempt that does; rejected where none does."""
    discarded: list[str] = []
    while True:
        claim = measured()
        status, detail = judge_claim(claim)
        call = max(claimed_call_us(claim), 1e-3) if claim.call_us else 1e-3
        if status is Status.PASSED or len(discarded) + 1 >= attempts:
            return Settled(status=status, detail=detail, call_us=call, discarded=tuple(discarded))
        discarded.append(detail)
        time.sleep(PAUSE_S * 2 ** (len(discarded) - 1))


def too_small(call_us: float, graph_us: float | None) -> bool:
    """Whether neither a single call nor an unrolled graph can time it."""
    return call_us < SMALLEST_SINGLE_CALL_US and graph_us is None


def hold_for(host_us: float, least_us: float) -> float:
    """How long the device is held before a call that takes the host so long to launch: twice that, within reason."""
    return min(max(least_us, 2.0 * host_us), LONGEST_HOLD_US)


def calls_in_block(call_us: float, most: int = 24) -> int:
    """Calls of a block, so that a block of long ones stays about a tenth of a second."""
    return max(5, min(most, int(100_000 / max(call_us, 1.0))))


def unrolled_calls(call_us: float, bytes_each: int) -> int:
    """Calls to unroll into one graph: long enough for the parent's clock, and their buffers within a gigabyte.

    Each call has buffers of its own that the flush before a replay evicted: all of them find the cache cold.
    """
    fit = _UNROLLED_BYTES // max(1, bytes_each)
    return max(_FEWEST_UNROLLED, min(_MOST_UNROLLED, math.ceil(_UNROLLED_US / max(call_us, 0.5)), fit))


def distinct_bytes(shapes: Sequence[tuple[int, int, int | None]]) -> float:
    """Bytes that must move: (elements, item size, distinct elements read or None for all) of each tensor."""
    return float(sum((count if used is None else min(used, count)) * size for count, size, used in shapes))
