"""What judging published kernels finds; frozen records of plain values, saved one line an evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from addrfrac.bench.records import Centre, Share
from addrfrac.records import Environment
from addrfrac.verification.records import Verdict

SCHEMA = 1
NAIVE, TRUSTED = "naive", "trusted"
TRITON, CUDA, PYTORCH = "triton", "cuda", "pytorch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem as text."""

    level: int
    number: int
    title: str
    text: str

    @property
    def place(self) -> tuple[int, int]:
        """(level, number), by which solutions name it."""
        return self.level, self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One sample for one problem as text."""

    level: int
    number: int
    name: str
    """Of the set that it belongs to: a model, a folder, a file."""
    sample: int
    path: str
    """Inside what was given, without machine folders."""
    text: str
    kind: str
    """'triton', 'cuda' or 'pytorch', by what the text brings."""
    published_speedup: float | None = None
    """What its authors say; None where they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outputs of one call beside the reference's, as a published harness sees them; made whether or not others failed.

    Figures are the worst of all outputs; None where there was nothing to compare.
    """

    seed: int
    distribution: str
    """'published', 'x3', 'x0.01' or 'negated'."""
    raised: str
    """What the candidate raised, or how its outputs are of another shape; '' where neither."""
    skipped: str
    """Why there is no truth (the reference raised); '' where there is one."""
    dtype: str
    tolerance_needed: float | None
    """Least absolute = relative tolerance at which allclose accepts; None also where no tolerance does."""
    relative_frobenius: float | None
    normalised_max: float | None
    written_share: float | None
    """Share of outputs that are not zero."""
    reference_written_share: float | None
    rows_sum_to_one: bool | None
    """None where the reference's do not."""
    overflows: bool
    """The reference itself is not finite."""
    not_finite: bool
    """The candidate is not, where the reference is: no tolerance accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Raw times of one way to compute a problem, microseconds a call."""

    name: str
    """'candidate', or a baseline: 'eager-strict', 'eager-tf32', 'compile', 'eager-graph', 'library'."""
    clock: str
    """'naive': events in the candidate's own process, as published harnesses have it; 'trusted': ours."""
    samples_us: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Most device memory that each side held; None where it was not measured."""

    candidate_persistent_bytes: int | None = None
    candidate_transient_bytes: int | None = None
    baseline_persistent_bytes: int | None = None
    baseline_transient_bytes: int | None = None
    naive_candidate_bytes: int | None = None
    """By the allocator in the candidate's own process, over what the call found there."""
    naive_baseline_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One solution of one problem under each protocol that was asked for."""

    schema: int
    key: str
    """Digest of everything that the result depends on."""
    level: int
    number: int
    title: str
    problem_sha256: str
    solution: str
    """Name of the set."""
    sample: int
    kind: str
    path: str
    solution_sha256: str
    published_speedup: float | None
    precision: str
    """'fp32' accepts no TF32, 'tf32' does where a matrix product asks for it, 'bf16' runs both sides in bf16."""
    quick: bool
    verdicts: tuple[Verdict, ...]
    """One a protocol, with every check that was made, those after the first failure among them."""
    comparisons: tuple[Comparison, ...]
    """Of the published harnesses, to the end; any tolerance's verdict follows from them."""
    times: tuple[Times, ...]
    best_baseline: str
    """By the trusted clock; '' where it was not asked or what it was asked of is wrong."""
    memory: Memory
    class_reached: str
    """Precision class by our own protocol; '' where it was not asked."""
    launched_by: str
    """'own kernels', 'library', 'graph', 'same operations', or '' where nobody could look."""
    own_share: float | None
    """Share of device time in kernels that the candidate brought."""
    stage_seconds: dict[str, float]
    device: str
    versions: dict[str, str]
    failure: str
    """Why there is no verdict at all (its worker was lost); '' where there are verdicts."""
    seconds: float

    @property
    def place(self) -> tuple[int, int]:
        """(level, number)."""
        return self.level, self.number

    def verdict(self, protocol: str) -> Verdict | None:
        """Under that protocol; None where it was not asked or the evaluation failed."""
        return next((one for one in self.verdicts if one.protocol == protocol), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A whole run; saved as `kernelbench.json`."""

    schema: int
    created: str
    version: str
    command: str
    environment: Environment
    protocols: tuple[str, ...]
    precision: str
    selection: str
    """In words, by what rule problems were chosen."""
    planned: tuple[tuple[int, int], ...]
    """(level, number) of every problem chosen: the fixed denominator."""
    without_solution: dict[str, tuple[tuple[int, int], ...]]
    """Solution set -> chosen problems that it has nothing for."""
    evaluations: tuple[Evaluation, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())


# --- what the evaluations say together ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One solution set under one protocol, its samples of one kind or all of them.

    Speedups are by that protocol's own clock and baseline. Intervals resample problems, and samples within them.
    """

    solution: str
    kind: str
    """'triton', 'cuda', 'pytorch' or 'all'; of one kind only problems with such a sample are counted."""
    protocol: str
    problems: int
    """The fixed denominator: all chosen problems, those without a solution among them where `kind` is 'all'."""
    samples: int
    passed: Share
    """First samples that pass, of all problems (Wilson)."""
    untimed: int
    """Samples that pass and have no time; they count as 1.0 where the denominator is fixed."""
    over_correct: Centre
    """Geometric mean of speedups over problems with a sample that passes and was timed."""
    fixed: Centre
    """Geometric mean over all problems, what fails or is missing as 1.0."""
    fast_p: dict[str, Centre]
    """Threshold p -> share of all problems right and more than p times as fast; with several samples, their mean."""
    pass_at_k: dict[str, float]
    """k -> mean over problems; up to the fewest samples of any problem that has one, empty where that is one."""
    failures: dict[str, int]
    """Status, 'lost' or 'no solution' -> samples, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One sample: what was published, what their conditions give here, what is left when it is verified."""

    level: int
    number: int
    title: str
    solution: str
    sample: int
    kind: str
    published: float | None
    reproduced: float | None
    """TF32-less eager / candidate by the clock in the candidate's process; None where that harness refuses it."""
    verified: float | None
    """Best baseline / candidate by our clock; None where we refuse it, or could not time it."""
    gain: str
    """Who does the work: 'own kernels', 'library', 'graph', 'same operations'; '' where nobody could look."""
    reasons: dict[str, str]
    """Protocol -> why it refuses; those that accept are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one factor takes from a speedup."""

    factor: str
    log_ratio: float
    """Shapley value on the scale of natural logarithms: negative takes away. All parts together are the whole drop."""
    low: float | None
    high: float | None

    @property
    def percent(self) -> float:
        """Change of the geometric mean that it alone stands for."""
        return 100.0 * math.expm1(self.log_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """From what the published harness says to what we say, over a fixed denominator."""

    solution: str
    problems: int
    published: float | None
    """Geometric mean of published speedups, 1.0 where none is said; None where nothing is."""
    before: float
    """Geometric mean by the published harness's checks, clock and baseline."""
    after: float
    """By ours."""
    parts: tuple[Part, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRule:
    """Problems affected by the rule of KernelBench-Verified (arXiv 2607.16241); shares of all chosen problems."""

    solution: str
    tf32: Share
    """The speedup falls by at least half when eager may use TF32."""
    hidden: Share
    """Right on the published inputs, refused only on another distribution."""
    both: Share
