"""What a benchmark finds; frozen records of plain values, saved one line an evaluation by `results`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from addrfrac.records import ArmTimes, DeviceModel, Environment, Gain, Range

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One candidate for one problem."""

    problem: str
    """The problem's name."""
    name: str
    """'first', 'tuned', or the folder that it came from."""
    sample: int
    """0 for the only one; of several samples the number."""
    path: str
    """As given, without machine folders."""
    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the verifier said of a solution, at the size that it verifies at."""

    protocol: str
    status: str
    """A verification status; 'passed' is the only pass."""
    reason: str
    precision: str
    labels: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Nothing but 'passed' passes."""
        return self.status == "passed"

    @property
    def known(self) -> bool:
        """Whether anybody looked."""
        return self.status != "not verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One solution of one problem at one size and index distribution, timed beside every baseline."""

    schema: int
    key: str
    """Digest of everything that the result depends on."""
    number: int
    problem: str
    size: str
    indices: str
    """'uniform' or 'zipf'; '-' where the problem has no ids."""
    solution: str
    sample: int
    judged: Judged
    error: float | None
    """Relative error at this size against the reference in higher precision; None where it was not run."""
    error_limit: float | None
    agrees: bool | None
    """The error keeps its limit."""
    arms: tuple[ArmTimes, ...]
    """Microseconds a call: every baseline and the solution, each launched eagerly and as a graph."""
    best_baseline: str
    """Arm that was fastest on the selecting blocks; '' where nothing was timed."""
    over_eager: Gain | None
    """Against TF32 eager, both launched eagerly."""
    over_best: Gain | None
    """Against the best baseline, the solution under its own best launch."""
    over_library: Gain | None
    """Against the operator that does it in production; None where there is none."""
    clock_ratio: float | None
    """Time a call by the parent's clock / what the solution's process said; far above 1 is a lie."""
    bytes: int | None
    """That must move, distinct rows counted once."""
    flops: int | None
    floor_us: Range
    """On the device model at hand; empty without one."""
    peak_bytes: int | None
    """Of the solution's process while it ran."""
    baseline_peak_bytes: int | None
    failure: str
    """Why there is no time; '' where there is."""
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of counted cases with its interval (95 %)."""

    hits: int
    total: int
    low: float | None
    high: float | None

    @property
    def value(self) -> float | None:
        """None where nothing was counted."""
        return self.hits / self.total if self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """A middle of several speedups, with a bootstrap interval over problems (95 %)."""

    value: float | None
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the evaluations of one solution set say together, at one size and index distribution."""

    solution: str
    size: str
    indices: str
    passed: Share
    wins_over_eager: Share
    """Verified and faster beyond the noise floor, of all problems (Wilson)."""
    wins_over_best: Share
    wins_over_library: Share
    median_over_eager: Centre
    """Over verified and timed problems."""
    geometric_mean_over_eager: Centre
    median_over_best: Centre
    median_win_over_eager: Centre
    """Over those that won."""
    median_win_over_best: Centre
    geometric_mean_over_best: Centre
    geometric_mean_fixed: Centre
    """Over eager with failures counted as 1.0: the denominator is fixed."""
    fast_p: dict[str, float]
    """Threshold p -> share of all problems that are right and more than p times as fast as eager."""
    failures: dict[str, int]
    """Status -> how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A whole benchmark run; saved as `bench.json`."""

    schema: int
    suite: str
    created: str
    version: str
    command: str
    environment: Environment | None
    evaluations: tuple[Evaluation, ...]
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()
    device_model: DeviceModel | None = None
    """That floors are of."""
    pass_at_k: dict[str, dict[str, float]] = field(default_factory=dict)
    """Solution set -> k -> mean over problems of the chance that one of k samples is right; with several samples."""
    best_of: dict[str, dict[str, Centre]] = field(default_factory=dict)
    """Solution set -> k -> median over problems of the best of k samples over eager, chosen on separate blocks."""
