"""What a verification finds; frozen records of plain values, saved as JSON by `store`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1


class Status(StrEnum):
    """What became of a candidate; only `PASSED` is a pass."""

    PASSED = "passed"
    WRONG_VALUES = "wrong values"
    WRONG_SCHEMA = "wrong schema"
    """Container, count, type, shape, dtype, device, strides, attributes or storage differ from the reference's."""
    NOT_WRITTEN = "not written"
    """Output bytes follow whatever the memory held before."""
    ALIASED = "aliased"
    """An output shares memory with an input, a parameter or an earlier output, and the reference's does not."""
    CHANGED_STATE = "changed state"
    """Inputs, parameters, buffers or random state are not as the reference leaves them."""
    UNSTABLE = "unstable"
    """An output changed after it was returned, or repeats disagree."""
    WRONG_GRADIENTS = "wrong gradients"
    IGNORES_PARAMETERS = "ignores parameters"
    """Right at the parameters it was built with, wrong after they changed."""
    SHAPE_SPECIALISED = "shape-specialised"
    """Right at the published shape and layout, wrong at another that the reference accepts."""
    LOWER_PRECISION = "lower precision"
    """Right only to a coarser class than the problem's dtype asks for."""
    PARAMETERS_NOT_VARIED = "parameters not varied"
    """Right at the initial parameters, which could not be varied."""
    WEAK_PROBLEM = "weak problem"
    """A decoy that computes nothing of the kind passes the problem's checks too."""
    UNVERIFIABLE = "unverifiable"
    """The reference gives no truth to compare with."""
    TIMING_DISAGREEMENT = "timing disagreement"
    TOO_FAST = "faster than the device allows"
    TOO_SMALL_TO_TIME = "too small to time"
    TAMPERED = "tampered"
    """It replaced functions of its host process, wrote to the channel or left processes behind."""
    RAISED = "raised"
    """An exception at the published shape."""
    CRASHED = "crashed"
    """The process ended without an answer."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    NOT_LOADED = "not loaded"
    """The source could not be imported, or holds no candidate."""
    INCOMPLETE = "incomplete"
    """A planned check did not run."""


class Label(StrEnum):
    """What a reader must know of a candidate besides its status."""

    TF32 = "class tf32"
    HALF = "class half"
    APPROXIMATE = "class approx"
    INFERENCE_ONLY = "inference only"
    """The reference's outputs can be differentiated, the candidate's cannot."""
    LIBRARY = "library calls do the work"
    NO_CHANGE = "same operations as the reference"
    SWALLOWED_EXCEPTION = "swallowed an exception"
    SETTINGS_CHANGED = "changed global settings"
    REFUSES_SHAPES = "refuses shapes"
    REFUSES_LAYOUTS = "refuses layouts"
    OTHER_LAYOUT = "row-major output"
    """The reference's library lays its output out otherwise; a consumer that wants that pays a copy."""
    EXTRA_MEMORY = "keeps extra memory"
    SETUP_COMPUTES = "long set-up"
    SPECIAL_VALUES = "special values differ"
    REDUNDANT_PROBLEM = "algebraic shortcut"
    """It does far less work than the reference and is right: the problem holds redundant work."""
    PARAMETERS_NOT_VARIED = "parameters not varied"
    GRAPH = "replays a graph"
    FAST_MATH = "fast math"
    VALUE_DEPENDENT_TIME = "time depends on values"


class PrecisionClass(StrEnum):
    """How close to fp64 a candidate stays, on its worst distribution."""

    FP32 = "fp32"
    TF32 = "tf32"
    HALF = "half"
    APPROX = "approx"
    EXACT = "exact"
    """Integer and boolean outputs only."""
    NONE = "none"
    """Outside every class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A way to accept or reject a kernel, as data."""

    name: str
    about: str
    in_process: bool
    """Reference, candidate and comparison share one process, as the published harness has it."""
    distributions: tuple[str, ...]
    """Names of `inputs`; each gets a fresh base unless `shared_base`."""
    shared_base: bool
    seeds: tuple[int, ...]
    """Known seeds; empty where seeds are secret."""
    metric: str
    """'allclose', 'relative' (Frobenius and normalised max) or 'class' (four errors against fp64)."""
    tolerance: dict[str, float]
    """dtype -> absolute and relative tolerance, for 'allclose'."""
    relative_frobenius: float | None = None
    normalised_max: float | None = None
    written_fraction: bool = False
    invariants: bool = False
    checks: frozenset[str] = frozenset()
    """Names of the further checks it makes (see `examine.CHECKS`)."""
    tf32_baseline: bool = False
    baselines: tuple[str, ...] = ("eager",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one candidate."""

    name: str
    passed: bool
    status: Status
    """What a failure of it makes of the candidate; PASSED where it passed."""
    detail: str
    figure: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """Distance of an output from the fp64 truth; each 0 where equal."""

    relative_frobenius: float
    normalised_max: float
    """Largest error over the largest magnitude of the truth."""
    worst_slice: float
    """Largest relative Frobenius error of an index slice along any dimension."""
    centred: float
    """Frobenius error over the truth's distance from its own mean."""
    finite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of isolation and whether this machine has it."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One way to compute the reference, with its own time."""

    name: str
    samples_us: tuple[float, ...]
    before_us: float
    """Median before the candidate ran."""
    after_us: float
    """Median after it."""
    settings: dict[str, str]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw times of one side: [process][block] in microseconds a call."""

    name: str
    block_us: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a candidate is beside the best baseline."""

    verdict: str
    """'faster', 'slower', 'same', 'inconclusive', or why it was not measured."""
    speedup: float | None
    """Best baseline / candidate, medians; None where not measured."""
    low: float | None
    high: float | None
    least_detectable: float | None
    """Smallest ratio - 1 that this measurement could have told from noise."""
    noise_floor: float | None
    """Ratio - 1 of two separately built instances of the same thing (A/A)."""
    best_baseline: str
    baselines: tuple[Baseline, ...]
    candidate: Samples | None
    warm_us: float | None
    cold_us: float | None
    peak_persistent_bytes: int | None
    peak_transient_bytes: int | None
    setup_s: float | None
    note: str = ""
    launch: str = ""
    """How calls were launched and what the cache held: single calls, or an unrolled graph of how many."""
    peak_gb_per_s: float | None = None
    """Rate of a large copy on this device, measured by the same server."""
    device_persistent_bytes: int | None = None
    """As the driver has it, whoever allocated, code and context growth among it; None where it does not say."""
    device_transient_bytes: int | None = None
    baseline_persistent_bytes: int | None = None
    baseline_transient_bytes: int | None = None
    baseline_device_persistent_bytes: int | None = None
    baseline_device_transient_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Who did the work."""

    own_share: float | None
    """Share of device time in kernels that the candidate brought; None on a CPU."""
    kernels: tuple[str, ...]
    operations: tuple[str, ...]
    """Library operations that it called, by name."""
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Something that the source screen saw; decides nothing."""

    line: int
    what: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that a verification of one candidate under one protocol found."""

    name: str
    protocol: str
    status: Status
    reason: str
    labels: tuple[Label, ...]
    precision: PrecisionClass
    checks: tuple[Check, ...]
    distributions_checked: int
    distributions_planned: int
    replaced: tuple[str, ...]
    """Distributions on which the reference itself gives no truth, with what stood in for them."""
    speed: Speed
    credit: Credit
    hints: tuple[Hint, ...]
    isolation: tuple[Layer, ...]
    device: str
    dtype: str
    seconds: float
    seed: str
    """The secret seed, told after the fact so that a run can be repeated."""
    source_sha256: str
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """A pass is this one status and nothing else."""
        return self.status is Status.PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureOutcome:
    """What became of one planted fault or honest control."""

    id: str
    family: str
    """A..U, or 'honest'."""
    kind: str
    """'exploit', 'honest', 'harness'."""
    expected: str
    status: str
    labels: tuple[str, ...]
    right: bool
    """Caught, for a fault; passed, for an honest kernel."""
    reason: str
    accepted_by: dict[str, bool | None]
    """Protocol -> would have accepted it; None where that protocol has nothing to say."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of counted cases with its Clopper-Pearson interval (95 %)."""

    hits: int
    total: int
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """None where nothing was counted."""
        return self.hits / self.total if self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """Mutants killed under one protocol."""

    protocol: str
    killed: Rate
    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """The verifier's own catch rate and false-alarm rate."""

    schema: int
    device: str
    created: str
    version: str
    outcomes: tuple[FixtureOutcome, ...]
    caught: dict[str, Rate]
    """Family -> share of faults caught; 'all' for all of them."""
    false_alarms: Rate
    not_tested: dict[str, str]
    """Row of the catalogue -> why it has no fixture on this device."""
    mutation: tuple[MutationScore, ...]
    equivalent_mutants: tuple[str, ...]
    isolation: tuple[Layer, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Everything caught and no false alarm."""
        return all(outcome.right for outcome in self.outcomes)
