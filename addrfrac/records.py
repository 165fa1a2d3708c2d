"""Every record that one stage hands to the next; no behaviour beyond derived properties.

Two kinds: *columns* (numpy arrays, one row an event, built by `parse` and never saved) and *results*
(frozen dataclasses of plain values, saved in `run.json` by `store`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

# --- vocabulary ---------------------------------------------------------------------------------------------


class Op(StrEnum):
    """What a kernel computes."""

    GEMM = "gemm"
    CONV = "conv"
    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    NORMALIZATION = "normalization"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    COPY_LAYOUT = "copy_layout"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GATHER_SCATTER = "gather_scatter"
    EMBEDDING = "embedding"
    POOLING = "pooling"
    RESAMPLE = "resample"
    OPTIMIZER = "optimizer"
    LOSS = "loss"
    SORT_TOPK = "sort_topk"
    RNG = "rng"
    COMMUNICATION = "communication"
    QUANTIZATION = "quantization"
    MOE_ROUTING = "moe_routing"
    ROPE = "rope"
    KV_CACHE = "kv_cache"
    SAMPLING = "sampling"
    SCHEDULING = "scheduling"
    LINALG = "linalg"
    FFT = "fft"
    SPARSE = "sparse"
    RNN = "rnn"
    FUSED_UNKNOWN = "fused_unknown"
    OTHER = "other"


class Role(StrEnum):
    """Whether a kernel is the work itself or serves another kernel's work."""

    MAIN = "main"
    AUX = "aux"


class Phase(StrEnum):
    """Where in a step a kernel was launched from."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    UNKNOWN = "unknown"


class Incumbent(StrEnum):
    """How hard the present owner of a kernel is to beat; follows from the provider."""

    CLOSED = "closed"
    """A vendor's binary: cuBLAS, cuDNN, ..."""
    TUNED = "tuned"
    """A hand-tuned open library: FlashAttention, FBGEMM, CUTLASS, ..."""
    COMPILER = "compiler"
    """Generated: Inductor, XLA."""
    GENERIC = "generic"
    """ATen native and the like."""
    SYSTEM = "system"
    """The driver or a communication library."""
    UNKNOWN = "unknown"


class Bound(StrEnum):
    """What a policy makes of a kernel."""

    LIBRARY = "library"
    REPLACEABLE = "replaceable"
    SYSTEM = "system"
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    """Where the evidence for a label came from."""

    AGREE = "name and op agree"
    NAME = "name only"
    OP = "op only"
    CONFLICT = "conflict"


class GapKind(StrEnum):
    """Why no kernel ran for a while."""

    HOST_STARVED = "host-starved"
    """The launch call returned after the previous kernel had ended."""
    QUEUED = "queued"
    """The next kernel was already enqueued; belongs to that kernel."""
    SYNCHRONISATION = "synchronisation"
    """The host was waiting for the device and could launch only afterwards."""
    DEPENDENCY = "dependency"
    """The next kernel was enqueued and waited for another stream or rank."""
    UNEXPLAINED = "unexplained"
    """The trace holds no launch event for the kernel that follows."""


class Verdict(StrEnum):
    """What a comparison of two times says."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """The whole interval lies within the margin."""
    INCONCLUSIVE = "inconclusive"


# --- columns ------------------------------------------------------------------------------------------------

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]

KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET = 0, 1, 2
RANGE_STEP, RANGE_USER = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """What ran on the device (kernels, copies, sets), one row each, sorted by (start_ns, end_ns)."""

    name: Ids
    """Index into `Trace.names`."""
    kind: NDArray[np.uint8]
    """KIND_KERNEL, KIND_MEMCPY or KIND_MEMSET."""
    start_ns: Ints
    end_ns: Ints
    device: Ids
    stream: Ints
    launch: Ids
    """Row of `Trace.launches` that started it; -1 where the trace has none."""
    op_stack: Ids
    """Index into `Trace.op_stacks`: the ops and annotations open on the launching thread; 0 is the empty stack."""
    forward_stack: Ids
    """For a backward kernel the stack of its forward op, found by sequence number; 0 where there is none."""
    op_call: Ids
    """Number of the call of the innermost op that launched it, the same for all kernels of that call (in a replayed
    graph: of one replay); -1 where there is none."""
    inputs: Ids
    """Index into `Trace.op_inputs` of the innermost op that recorded its inputs; -1 where there is none."""
    module: Ids
    """Index into `Trace.modules`: innermost nn.Module open at the launch; -1 where not recorded."""
    collective: Ids
    """Index into `Trace.collectives`; -1 for everything but recorded collectives."""
    bytes: Ints
    """Bytes of a copy or set; -1 where not recorded."""
    graph_node: Ints
    """Node id within a replayed graph; -1 outside graphs or where not recorded (see `Launches.is_graph`)."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """Runtime and driver calls that launched device work or synchronised with it, sorted by start_ns."""

    name: Ids
    """Index into `Trace.names`."""
    start_ns: Ints
    end_ns: Ints
    process: Ints
    thread: Ints
    correlation: Ints
    is_graph: NDArray[np.bool_]
    """A graph launch: all of its kernels share this row."""
    is_sync: NDArray[np.bool_]
    """A call in which the host waits for the device."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranges:
    """Host-side annotations (steps, phases, a serving engine's batches), sorted by start_ns."""

    name: Ids
    """Index into `Trace.names`."""
    kind: NDArray[np.uint8]
    """RANGE_STEP for `ProfilerStep#n`, else RANGE_USER."""
    start_ns: Ints
    end_ns: Ints
    process: Ints
    thread: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInputs:
    """What an op was called with, as JSON text just as recorded ('' where not recorded)."""

    dims: str
    """`Input Dims`, e.g. '[[64, 3, 224, 224], []]'."""
    types: str
    """`Input type`, e.g. '["float", "Scalar"]'."""
    strides: str
    concrete: str
    """`Concrete Inputs`: scalar arguments as strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A communication kernel as its launcher described it."""

    name: str
    group: str
    group_size: int
    dtype: str
    elements: int
    sequence: int
    """Sequence number within the group; -1 where not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A part of a trace that could not be read or used, and what would mend it."""

    what: str
    count: int
    remedy: str
    """The recorder setting that fixes it; '' where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Where a trace came from."""

    path: str
    """File name only, no folder."""
    format: str
    """'kineto', 'nsys'."""
    size_bytes: int
    events: int
    """Events in the file, of every kind."""
    device_kind: str
    """'cuda', 'hip' or 'cpu' (self-times of CPU operators stand for kernels)."""
    device_names: tuple[str, ...]
    rank: int | None
    world_size: int | None
    metadata: dict[str, Any]
    """Top-level fields of the file as they were, less the events; ours sit under 'addrfrac'."""
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A trace as columns; what every later stage works on."""

    source: TraceSource
    names: tuple[str, ...]
    """Distinct names of kernels, calls and ranges."""
    op_stacks: tuple[tuple[str, ...], ...]
    """Distinct op stacks, outermost first, autograd and optimizer frames kept, `ProfilerStep#` dropped; [0] is ()."""
    op_inputs: tuple[OpInputs, ...]
    modules: tuple[str, ...]
    collectives: tuple[Collective, ...]
    kernels: Kernels
    launches: Launches
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """The steps that a run speaks of."""

    step: Ids
    """For each kernel the position of its step (0..steps-1); -1 outside the window."""
    names: tuple[str, ...]
    """What each step is called."""
    start_ns: Ints
    """Start of each step's part of the device timeline: the end of the work before it, where there is any."""
    end_ns: Ints
    how: str
    """In words: how the steps were found and which were left out."""

    @property
    def steps(self) -> int:
        return len(self.names)


# --- labels -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What is known of one distinct (kernel name, op stack, phase)."""

    op: Op
    provider: str
    """`provider_family` id, e.g. 'cublas', 'aten'; 'unknown' where no rule matched."""
    role: Role
    phase: Phase
    incumbent: Incumbent
    op_rule: str
    """Name of the rule that decided the op."""
    provider_rule: str
    """Name of the rule that decided the provider."""
    certainty: Certainty
    is_catch_all: bool
    """Decided by a catch-all rule: counts as unknown under every policy."""
    launching_op: str | None
    """Innermost op that launched it."""
    op_stack: tuple[str, ...]
    fused_ops: tuple[str, ...] = ()
    """Ops that a generated kernel says it fused."""
    evidence: tuple[str, ...] = ()
    """Other facts that bear on the label, in words: module, graph replay, Inductor metadata, ..."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """A label for each kernel of a trace."""

    table: tuple[Label, ...]
    of_kernel: Ids
    """For each kernel its index into `table`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which labels count as what; data, editable by the user."""

    name: str
    library_ops: frozenset[str]
    """These ops are `library`, with their aux kernels, whoever runs them."""
    library_incumbents: frozenset[str]
    """Kernels of these incumbents are `library`, whatever they compute."""
    system_ops: frozenset[str]
    system_providers: frozenset[str]
    about: str = ""


# --- results ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An interval; both ends None where the figure was not measured."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Repeated measurements of one duration."""

    samples_us: tuple[float, ...]
    """One a step, in the order taken."""
    median_us: float
    low_us: float
    """95 % block-bootstrap interval of the median."""
    high_us: float
    method: str
    """In words: which clock, what was between two readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """Unprofiled step times, taken before the profiled steps."""

    device: Times | None
    """Between device events; None on a CPU or where the user supplied a wall."""
    host: Times
    """By the host's clock."""
    graph: Times | None
    """The same step replayed as a CUDA graph; None where it could not be captured."""
    graph_note: str
    """Why there is no graph time; '' where there is one."""

    @property
    def step_us(self) -> float:
        """The median step time that shares of wall are taken of."""
        return (self.device or self.host).median_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """One class of kernels in the accounts of a step (means over the window's steps)."""

    op: Op
    provider: str
    bound: Bound
    """Under the policy that the run names."""
    phase: Phase
    launches: float
    """Launches a step."""
    device_us: float
    """Sum of durations a step; overlap counts in full."""
    exclusive_us: float
    """Time a step in which nothing of another class ran."""
    union_us: float
    """Time a step in which at least one of its kernels ran."""
    even_us: float
    """Time a step with overlap divided evenly between classes; for pictures only, feeds no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapTime:
    """Idle device time of one kind (means over the window's steps)."""

    kind: GapKind
    us: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """One step of the profiled timeline; parts sum to `span_us` but for `residual_us`."""

    name: str
    span_us: float
    busy_us: float
    gap_us: float
    gaps_us: dict[GapKind, float]
    overlap_us: float
    residual_us: float
    replaceable_exclusive_us: float
    """Under the run's policy."""
    replaceable_union_us: float
    """Under the run's policy, unknown time counted in."""
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The profiled timeline of the window, closed: exclusive + overlap + gaps + residual = span (means a step)."""

    span_us: float
    busy_us: float
    """Time in which at least one kernel ran."""
    exclusive_us: float
    """Sum over classes of the time in which only that class ran."""
    overlap_us: float
    """Time in which two or more classes ran."""
    residual_us: float
    """span - (exclusive + overlap + gaps), each measured on its own."""
    classes: tuple[ClassTime, ...]
    """Largest `device_us` first."""
    gaps: tuple[GapTime, ...]
    steps: tuple[StepAccount, ...]
    launches: float
    """Device work items a step."""
    host_calls: float
    """Launching runtime calls a step; a graph launch is one."""
    distortion: float | None
    """Profiled span / unprofiled wall; None where no wall was measured."""
    host_bound: bool | None
    """None where the trace cannot tell."""
    host_bound_evidence: str
    """In words, with the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyShare:
    """The addressable fraction under one policy."""

    share_of_busy: Range
    """[replaceable ran alone, replaceable or unknown ran] / busy."""
    share_of_wall: Range
    sampling_of_busy: Range
    """95 % interval of the *mid-point* of `share_of_busy` over the window's steps; None with fewer than 3 steps."""
    replaceable_us: Range
    """Microseconds a step, [exclusive, union]."""
    library_us: float
    """Union, a step."""
    system_us: float
    unknown_us: float
    speedup_of_busy: Range
    """Amdahl's ceiling 1 / (1 - f) at both ends; None where f = 1."""
    speedup_of_wall: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressable:
    """The headline."""

    policy: str
    """The policy of the run, whose figures the two shares repeat."""
    share_of_busy: Range
    share_of_wall: Range
    by_policy: dict[str, PolicyShare]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One distinct (kernel, op stack, phase) in the window (means over the window's steps)."""

    name: str
    op: Op
    provider: str
    role: Role
    phase: Phase
    incumbent: Incumbent
    bound: Bound
    bounds: dict[str, Bound]
    """Under every policy."""
    op_rule: str
    provider_rule: str
    certainty: Certainty
    launching_op: str | None
    op_stack: tuple[str, ...]
    fused_ops: tuple[str, ...]
    evidence: tuple[str, ...]
    launches: float
    device_us: float
    median_launch_us: float
    """Median duration of one launch."""
    share_of_busy: float
    """device_us / busy; sums above 1 where kernels overlap."""
    queued_gap_us: float
    """Queued gaps before it, a step."""
    device_us_by_step: tuple[float, ...]
    inputs: str
    """`Input Dims` of the launching op, when all launches agree; '' else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """How much faster one class must become for a given end-to-end gain."""

    op: Op
    device_us: float
    share_of_busy: Range
    for_gain: float
    """End-to-end gain asked for, e.g. 0.05."""
    class_speedup: float | None
    """None: impossible, even at infinite speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A replaceable class or kernel, ranked by the microseconds it holds."""

    name: str
    op: Op
    provider: str
    device_us: float
    share_of_busy: float
    speedup_if_free: float
    """Amdahl of busy for this one alone."""
    launches: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Bounds on the gain, from the accounts alone; nothing here was measured end to end."""

    break_even: tuple[BreakEven, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How much a trace can tell."""

    letter: str
    """A to D."""
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Clocks, heat and throttling, read and never set."""

    when: str
    """'before' or 'after'."""
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: tuple[str, ...]
    other_processes: int | None
    """Other processes that held this device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a figure depends on besides the workload."""

    device: str
    """'NVIDIA H200', or the CPU's model name."""
    device_kind: str
    """'cuda', 'hip' or 'cpu'."""
    device_memory_bytes: int | None
    multiprocessors: int | None
    l2_bytes: int | None
    driver: str
    host_cpu: str
    python: str
    platform: str
    versions: dict[str, str]
    """Package -> version: torch, cuda, cudnn, triton, transformers, torchvision, torchrec, fbgemm, addrfrac."""
    settings: dict[str, str]
    """Numeric switches in force: allow_tf32, cudnn.benchmark, matmul precision, SDPA backends, ..."""
    states: tuple[DeviceState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What `profile` was asked to run."""

    workload: str
    mode: str
    batch: int
    dtype: str
    layout: str
    """'channels-last', 'contiguous' or '' where it has no meaning."""
    execution: str
    device: str
    seq_len: int | None = None
    cache_len: int | None = None
    layers: int | None = None
    """None: all of them."""
    embedding: str | None = None
    indices: str | None = None
    pooling: str | None = None
    rows: int | None = None
    routing: str | None = None
    steps: int = 10
    warmup: int = 3
    weights: str = "random"
    """'random', or the name real weights were loaded from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model family as `profile` sees it; the record that `addrfrac.workloads` entry points name."""

    name: str
    about: str
    """One line: architecture, source, what a step is."""
    build: Any
    """(Configuration, torch.device) -> a zero-argument callable that runs one step; see workloads/__init__.py."""
    defaults: dict[str, Any]
    """Configuration fields that differ from the general defaults; under a mode's name a dict of that mode's own."""
    modes: tuple[str, ...]
    layers: int | None = None
    """Depth of the real model, where depth can be cut."""
    options: frozenset[str] = frozenset()
    """Configuration fields that mean something here: 'seq_len', 'cache_len', 'layers', 'embedding', ..."""
    extra: str = "models"
    """The optional dependency set it needs."""
    sample: str = "samples"
    """What one unit of `samples a step` is: images, sequences, tokens, ..."""
    weights_dtype: str = ""
    """'fp32' where the model's weights are published in fp32, so that a run in half precision has rounded them; ''
    where they are taken as the run has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """A full-depth figure from runs at smaller depths."""

    depths: tuple[int, ...]
    """Measured; the last was held out of the fit."""
    step_us: tuple[float, ...]
    full_depth: int
    full_step_us: float
    full_share_of_busy: Range
    held_out_depth: int
    held_out_step_error: float
    """(predicted - measured) / measured at the held-out depth."""
    held_out_share_error: float
    """Predicted - measured share of busy (mid-point), in share units."""
    full_busy_us: float
    """Device time of a step at full depth; free of the host, whose pace an eager step can keep."""
    held_out_busy_error: float
    full_graph_us: float | None
    """The step as a CUDA graph at full depth; None where a depth could not be captured."""
    held_out_graph_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One kind of step of a serving trace (means over its steps)."""

    name: str
    """'decode batch 17-32', 'prefill 513-1024 tokens', 'graph A (415 nodes)', ..."""
    phase: str
    """'prefill', 'decode', 'mixed', 'idle' or 'unknown'."""
    steps: int
    requests: Range
    """Fewest and most requests a step; empty where the trace does not tell."""
    tokens: Range
    """Same for tokens."""
    span_us: float
    """Device time from the start of a step to the end of its work, gaps included."""
    span_interval_us: Range
    """95 % interval of `span_us` over the steps; empty with fewer than 3."""
    busy_us: float
    launches: float
    """Device work items a step."""
    weight: float
    """Share of this bucket in the weighted fraction, 0..1."""
    share_of_busy: dict[str, Range]
    """Addressable, under every policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A serving trace cut into steps of several kinds."""

    cut_at: str
    """In words: what each step begins with."""
    buckets: tuple[Bucket, ...]
    """Largest weight first."""
    weighted_by: str
    """In words: the trace's own busy time, or the user's weights."""
    share_of_busy: dict[str, Range]
    """Addressable, weighted over the buckets, under every policy."""
    between_us: float
    """Device time a step between the end of one step's work and the beginning of the next: no work, or work of none."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank of several (means a step)."""

    rank: int
    span_us: float
    busy_us: float
    share_of_busy: Range
    """Addressable, under the run's policy."""
    transfer_us: float
    """Of its matched collectives: the least duration over the ranks."""
    waiting_us: float
    """The rest of their durations."""
    exposed_waiting_us: float
    """Waiting during which nothing but communication ran on this rank."""
    work_us: float
    """`busy_us` less the exposed waiting: what the rank did itself."""
    came_last: float
    """Collectives a step that this rank entered last: the others waited for it."""
    caused_us: float
    """Mean over the other ranks of what they waited for it."""
    unmatched_us: float
    """Collectives without a counterpart on another rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One kind of collective, matched over the ranks (means a step)."""

    name: str
    group: str
    """'' where the trace names none."""
    group_size: int
    """-1 where the trace does not tell."""
    ranks: int
    """Ranks at hand that took part."""
    dtype: str
    elements: int
    """-1 where it differs or was not recorded."""
    count: float
    transfer_us: float
    """Sum of the least durations."""
    waiting_us: float
    """Mean over the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCause:
    """What the last rank did while the others waited for it."""

    what: str
    """A class ('gemm · cublas'), or why the last rank's device was idle ('idle: host-starved')."""
    us: float
    """A step, mean over the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """Several ranks of one job side by side."""

    ranks: tuple[RankRow, ...]
    collectives: tuple[CollectiveRow, ...]
    """Largest waiting first."""
    causes: tuple[WaitingCause, ...]
    """Largest first; they sum to the mean `waiting_us` of a rank."""
    straggler: int | None
    """The rank that caused most waiting; None where nobody waited."""
    work_spread: float | None
    """(most - least) / median of the ranks' `work_us`."""
    notes: tuple[str, ...] = ()


# --- gains, ceilings, floors, the ladder ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTimes:
    """Step times of one arm: the same step, prepared one way."""

    arm: str
    """'eager', 'compile + graph', 'best-library', ..."""
    switches: tuple[str, ...]
    """Names of the switches that were applied, in order."""
    launch: str
    """'eager' or 'graph'."""
    blocks_us: tuple[tuple[tuple[float, ...], ...], ...]
    """[process][block][step], in the order taken; blocks of different arms took turns on the device."""
    median_us: float
    """Median of the processes' medians."""
    low_us: float
    """95 % interval of it, processes and blocks within them resampled."""
    high_us: float
    peak_memory_bytes: int | None
    """Most that torch's allocator held in any of its processes while steps ran; None on a CPU."""
    host_us: float | None
    """Median host time to issue a step; None where it was not measured."""
    method: str
    """In words: clock, turns, processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One arm against another, from interleaved blocks."""

    before: str
    after: str
    speedup: float
    """Before / after."""
    low: float
    """95 % hierarchical-bootstrap interval of `speedup`."""
    high: float
    saved_us: Range
    """95 % interval of before - after, a step."""
    verdict: Verdict
    noise_floor: float | None
    """|ratio - 1| of two separately built instances of the same arm (A/A); None where none was run."""
    least_detectable: float
    """Smallest relative change that this comparison could have told from none."""
    processes: int
    """Fewest processes of either arm; with one the verdict speaks of that process alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Whether an arm still computes what the base computes."""

    passed: bool | None
    """None: it could not be judged, `method` says why."""
    error_ratio: float | None
    """Upper 95 % bound of (error of the arm / error of the base), both against a run in higher precision."""
    base_error: float | None
    """Relative Frobenius error of the base."""
    arm_error: float | None
    inputs: int
    """How many inputs (samples) it was judged on."""
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRow:
    """The step with some of its kernels deleted, measured beside the whole step."""

    what: str
    """'all replaceable', 'class normalization', 'kernel elementwise_kernel', 'library removed', ..."""
    kind: str
    """'all', 'class', 'kernel', 'site' or 'complement'."""
    nodes: int
    """Nodes of the graph that were deleted."""
    deleted_us: float | None
    """Their device time in the profiled replay; None where they could not be matched to it."""
    full_us: float | None
    """The whole graph, in turns with the reduced one; None where the row was not measured."""
    reduced_us: float | None
    gain: Gain | None
    """Whole against reduced; `gain.high` is the most that kernels of no cost could give."""
    amdahl_of_busy: Range
    """1 / (1 - f) for the same kernels, from the profiled shares."""
    amdahl_of_wall: Range
    explanation: str
    """Why measured and Amdahl differ, in words and figures: gaps that vanish with the nodes, overlap, clocks."""
    note: str = ""
    """Why the row was not measured; '' where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What a step would cost if kernels were free: its CUDA graph replayed with their nodes deleted."""

    arm: str
    """Which arm was captured: 'eager', 'compile', 'best-library'."""
    switches: tuple[str, ...]
    measured: bool
    why_not: str
    """Why there is only Amdahl's interval; '' where it was measured."""
    nodes: int
    kernel_nodes: int
    labelled_nodes: int
    """Kernel nodes whose label came from the profiled replay or their name."""
    edges: int
    branches: bool
    """The graph is no chain: some node has several predecessors or successors."""
    step_us: float | None
    """Median of the whole graph."""
    noise_floor: float | None
    """A/A: two instances of the whole graph in turns."""
    policy: str
    rows: tuple[CeilingRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFit:
    """Time of a memory-bound kernel as a function of its bytes: t0 + bytes / bandwidth, fitted over sizes."""

    access: str
    """'stream', 'write', 'gather', 'reduce' or 'transpose'."""
    residency: str
    """'cold': L2 evicted by reading before each launch; 'l2': the data was just used."""
    t0_us: float
    gb_per_s: float
    low_gb_per_s: float
    """95 % interval of the bandwidth."""
    high_gb_per_s: float
    largest_error: float
    """Largest |fitted - measured| / measured over the sizes."""
    sizes_bytes: tuple[int, ...]
    times_us: tuple[float, ...]
    """Median at each size."""
    what: str
    """In words: the kernel that was timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulPeak:
    """The best rate of a square matrix product on random data."""

    dtype: str
    tflops: float
    low_tflops: float
    high_tflops: float
    size: int
    """M = N = K."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """One card, measured once: what its memory and matrix units reach."""

    schema: int
    created: str
    version: str
    command: str
    environment: Environment
    fits: tuple[AccessFit, ...]
    peaks: tuple[MatmulPeak, ...]
    launch_us: float | None
    """Host time of one eager launch of an empty elementwise kernel."""
    graph_node_us: float | None
    """Time a node of a graph of tiny kernels takes beyond the kernel itself (slope over lengths)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRow:
    """What one distinct kernel must cost at least, and what lies above that (a step)."""

    name: str
    op: Op
    provider: str
    bound: Bound
    launching_op: str | None
    launches: float
    device_us: float
    bytes: Range
    """That must move, a step; an interval where rows of an embedding may repeat. Empty where shapes are not known."""
    flops: float | None
    access: str
    floor_us: Range
    """Standalone: this op alone moves its own bytes or does its own flops, whichever takes longer."""
    headroom_us: Range
    """max(0, device - floor)."""
    basis: str
    """In words: where bytes and flops come from, or why there is no floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Floors of a step on the device it ran on."""

    device_model: DeviceModel
    rows: tuple[FloorRow, ...]
    """Largest headroom first, whoever owns the kernel."""
    covered_share: float
    """Share of device time whose kernels have a floor."""
    standalone_us: Range
    """Replaceable ops, each moving its own bytes; library kernels at the time they take."""
    fused_us: Range
    """Replaceable ops moving only what must cross between library calls; empty where the data flow is not known."""
    absorbed_us: Range
    """Replaceable work inside the library calls' epilogues and prologues; empty likewise."""
    step_floor_us: Range
    """The whole step: every op at its floor, nothing overlapping."""
    bandwidth_utilisation: Range
    """Bytes that must move a step / (step time x cold stream bandwidth)."""
    flops_utilisation: float | None
    """Flops of a step / (step time x peak of its dtype)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One free switch tried on top of those kept before it."""

    name: str
    about: str
    switches: tuple[str, ...]
    """All that were on, in order."""
    launch: str
    """'eager' or 'graph'."""
    kept: bool
    reason: str
    """In words and figures: why it was kept or not, or why it does not apply here or failed."""
    times: ArmTimes | None
    """None where it was not measured."""
    gain: Gain | None
    """Against the best so far, in turns with it."""
    parity: Parity | None
    share_of_busy: dict[str, Range]
    """Policy -> addressable share of the busy time that remains; {} where it was not profiled."""
    share_of_wall: dict[str, Range]
    busy_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The free switches, measured one after the other, and what they leave to win."""

    base: str
    rungs: tuple[Rung, ...]
    """In the order tried; not applicable ones too."""
    best: tuple[str, ...]
    """Switches of the arm `best-library`."""
    best_launch: str
    arms: tuple[ArmTimes, ...]
    """eager, eager + graph, compile + graph, best-library (each in processes of its own, on samples not chosen by)."""
    gains: tuple[Gain, ...]
    """best-library against each other arm."""
    noise_floor: float | None
    ceilings: tuple[Ceiling, ...] = ()
    """Above eager, compile + graph and best-library."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in a captured model that computes what a kernel computes."""

    key: str
    """Group, graph and number within them: the same in every process that builds the same model."""
    group: str
    """Kernel, its source and the specialisation signature of the place: what a verdict holds for."""
    kernel: str
    source_sha256: str
    op: str
    where: str
    """The module whose forward calls it; '' where the capture did not say."""
    inputs: tuple[str, ...]
    """Dtype, shape and strides of tensors, plain arguments as they are."""
    outputs: tuple[str, ...]
    calls: int
    """Calls of the captured graph that it would take the place of."""
    bytes_moved: int | None
    """Least bytes that the kernel must move there; None where that hangs on values."""
    trains: bool
    """A gradient flows through it."""
    library: bool = False
    """The candidate is a call of an installed library and no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDecision:
    """What was decided of one site, and why."""

    site: Site
    substituted: bool
    reason: str
    """In words and figures."""
    verdict: str
    """Status of its verification, '' where none was made."""
    error_ratio: float | None
    """Largest (error of the kernel / error of what is there), both against higher precision, on the site's inputs."""
    before_us: float | None
    """Median of what is there, as it runs in the model, on the samples that are reported."""
    after_us: float | None
    saved_us: Range
    """95 % interval of before - after, on samples that nothing was chosen by."""
    engaged: float | None
    """Calls of its kernel a step of the substituted model; None where they were not counted."""
    fallbacks: float | None
    """Calls a step that ran what was there, because the arguments lay in memory as no verified ones did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """One of the parts of a gain."""

    part: str
    """'kernels and their fusion', 're-routing to library calls', 'launches removed' or 'capture'; where library calls
    won sites from kernels their share apart."""
    before: str
    """The arm before it."""
    after: str
    saved_us: Range
    """Empty where the arms were not measured."""
    verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One part of a step without the kernels and with them; the parts' savings add up to what was measured."""

    part: str
    """A class of ops, 'overlap of classes', a kind of gap, or what the profiles do not show."""
    before_us: float | None
    """Of the profiled step without the kernels; None where the part is not of the profiles."""
    after_us: float | None
    saved_us: float
    projected_us: float | None
    """What the sites of this class were to save; None for what no site is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Kernels put into a real model: what was decided, projected and measured."""

    kernels: tuple[str, ...]
    """Names of the pool."""
    base_switches: tuple[str, ...]
    """Free switches that are on in every arm but the first."""
    decisions: tuple[SiteDecision, ...]
    arms: tuple[ArmTimes, ...]
    gains: tuple[Gain, ...]
    """The substituted arm against each other one."""
    noise_floor: float | None
    control: str
    """The arm that the kernels' gain is taken against: the best without kernels under the same launch."""
    gain: Gain | None
    """Substituted against the control."""
    projected_us: Range
    """Sum of the savings of the substituted sites."""
    agrees: bool | None
    """Whether projected and measured agree; None where one is missing."""
    agreement: str
    """In words: the difference and what was allowed."""
    credits: tuple[Credit, ...]
    reach: float | None
    """Credit of the kernels and their fusion / (control - fused floor), both graphs; None where not defined."""
    reach_note: str
    engagement: str
    """In words: expected and counted calls of the kernels a step."""
    engaged: bool | None
    """Every substituted site ran its kernel as often as expected; None where nothing was substituted."""
    parity: Parity | None
    conclusion: str
    """One sentence."""
    notes: tuple[str, ...] = ()
    """What could not be captured, matched or measured, with the reason."""
    differences: tuple[Difference, ...] = ()
    """From the captured model without kernels to the one with them; empty where they were not profiled."""
    binaries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Kernel -> digests of the device binaries that ran when its sites were judged; {} where the interpreter ran."""
    unlisted: dict[str, float] = field(default_factory=dict)
    """Kernel -> sites of the measured model that fell back because another binary would have run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that one measurement or analysis found; saved as `run.json`."""

    schema: int
    kind: str
    """'profile', 'analyze', 'capture', 'ceiling' or 'ladder'."""
    created: str
    """ISO 8601, UTC."""
    version: str
    """Of addrfrac."""
    command: str
    """What reproduces it."""
    title: str
    configuration: Configuration | None
    environment: Environment | None
    source: TraceSource
    grade: Grade
    window: str
    """In words: which steps."""
    wall: Wall | None
    samples_per_step: float | None
    sample_unit: str
    accounts: Accounts
    addressable: Addressable
    kernels: tuple[KernelRow, ...]
    """Largest `device_us` first."""
    projection: Projection
    parameters: int | None = None
    peak_memory_bytes: int | None = None
    extrapolation: Extrapolation | None = None
    serving: Serving | None = None
    """Where --steps-by cut the trace."""
    ranks: RankTable | None = None
    """All ranks side by side; on the first run of a folder of ranks only."""
    floors: Floors | None = None
    """Where the device was measured and the trace has shapes."""
    ceiling: Ceiling | None = None
    """Of the captured step, from `addrfrac ceiling`."""
    ladder: Ladder | None = None
    """From `addrfrac ladder`; the accounts of such a run are of its base."""
    applied: Applied | None = None
    """From `addrfrac apply`; the accounts of such a run are of its base."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Workload-specific facts, e.g. tokens per expert, table bytes."""
    notes: tuple[str, ...] = ()
    """What a reader must know: everything skipped, substituted or doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """One thing that may have moved between two runs."""

    name: str
    before_us: float | None
    """A step; None where it was not there."""
    after_us: float | None
    change_us: float
    interval_us: Range
    """95 % interval of the change over per-step samples; empty where there are too few steps."""
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What moved from run A to run B."""

    before: str
    """Title of run A."""
    after: str
    step: DiffRow
    """The step as a whole: unprofiled wall where both runs have one, else the profiled span."""
    slowdown: Range
    """95 % interval of (after - before) / before of the step."""
    basis: str
    """In words: which samples the step row compares."""
    classes: tuple[DiffRow, ...]
    """Largest absolute change first."""
    gaps: tuple[DiffRow, ...]
    kernels: tuple[DiffRow, ...]
    shares: dict[str, tuple[Range, Range]]
    """Policy -> addressable share of busy before and after."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRow:
    """One assumption of a what-if and the time it bears on."""

    what: str
    """As the user wrote it."""
    speedup: float
    kernels: int
    """Distinct kernels it matched."""
    device_us: float
    """Their time a step."""
    saved_us: Range
    """[only time in which nothing else ran, all of their time]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a step would cost if some kernels were faster; projected, not measured."""

    title: str
    rows: tuple[WhatIfRow, ...]
    busy_us: float
    busy_after_us: Range
    speedup_of_busy: Range
    wall_us: float | None
    wall_after_us: Range
    """At the high end a host-bound step keeps its wall: nothing but launches is saved there."""
    speedup_of_wall: Range
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a capture knew besides the timeline; also written into the trace, under 'addrfrac'."""

    schema: int
    created: str
    """ISO 8601, UTC."""
    version: str
    """Of addrfrac."""
    title: str
    trace: str
    """File name of the profiled trace, in the folder of the capture."""
    eager_trace: str | None
    """Same for a trace of eager steps that names the ops behind replayed kernels; None where `trace` is eager."""
    lead_in: bool
    """The first recorded step only fixes where the timeline begins."""
    profiled_steps: int
    """Without the lead-in."""
    configuration: Configuration | None
    """None for a user's own loop."""
    environment: Environment
    wall: Wall | None
    samples_per_step: float | None
    sample_unit: str
    parameters: int | None
    peak_memory_bytes: int | None
    """Most that the allocator held during the unprofiled steps; None on a CPU."""
    rank: int | None
    world_size: int | None
    extra: dict[str, Any]
    notes: tuple[str, ...]
