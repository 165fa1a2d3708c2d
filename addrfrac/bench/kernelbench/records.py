"""What judging published kernels finds; frozen records of plain values, saved one line an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field

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
