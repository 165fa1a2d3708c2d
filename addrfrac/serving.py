"""A serving trace in, its steps sorted into buckets (prefill, decode, mixed) and the share weighted over them out.

A serving engine's steps differ: a decode step of 4 requests and a prefill of 2,000 tokens have nothing in common, so
their mean says little. Each bucket is a row of its own, and how often each occurs is the user's to say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from addrfrac import stats
from addrfrac.engine_steps import UNKNOWN, EngineStep, describe, range_of
from addrfrac.errors import AddrfracError
from addrfrac.records import RANGE_USER, Bucket, Ids, Ints, Labels, Op, Range, Role, Serving, Trace, Window
from addrfrac.shares import Held, share_of_busy
from addrfrac.weights import Weights
from addrfrac.window import HostSteps, host_steps, known_annotations, window_of

GRAPH_LAUNCH = "graph-launch"
ANNOTATION = "annotation:"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """A serving trace cut into steps."""

    at: str
    """In words: what each step begins with."""
    window: Window
    steps: tuple[EngineStep, ...]
    """What is known of each step of the window."""
    notes: tuple[str, ...] = ()


def cut(trace: Trace, labels: Labels, steps_by: str, *, steps: str | None = None) -> Cut:
    """Cut a trace at its graph launches ('graph-launch') or at ranges whose text begins as a regular expression says
    ('annotation:REGEX'); `steps` ('a:b') keeps some of them.

    What is launched between two cuts belongs to the first. Raises AddrfracError where there is nothing to cut at.
    """
    if steps_by == GRAPH_LAUNCH:
        return _cut_at_graphs(trace, labels, steps)
    if steps_by.startswith(ANNOTATION):
        return _cut_at_annotations(trace, steps_by.removeprefix(ANNOTATION), steps)
    raise AddrfracError(f"--steps-by {steps_by!r} is neither {GRAPH_LAUNCH!r} nor '{ANNOTATION}REGEX'")


def _cut_at_annotations(trace: Trace, pattern: str, steps: str | None) -> Cut:
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise AddrfracError(f"--steps-by {ANNOTATION}{pattern} is not a regular expression: {error}") from None
    rows = _matching(trace, regex)
    if not rows.size:
        raise AddrfracError(f"no annotation begins as {pattern!r} says; {known_annotations(trace)}")
    what = f"ranges that match {pattern!r}"
    window = window_of(trace, host_steps(trace, rows, what, owns_work_after=True, owns_idle_before=False), steps=steps)
    return Cut(at=f"the ranges that match {pattern!r}", window=window, steps=tuple(map(describe, window.names)))


def _matching(trace: Trace, regex: re.Pattern[str]) -> Ints:
    user = trace.ranges.kind == RANGE_USER
    names = np.unique(trace.ranges.name[user])
    wanted = [int(i) for i in names if regex.match(trace.names[i])]
    return np.flatnonzero(user & np.isin(trace.ranges.name, wanted))


# --- graph launches -----------------------------------------------------------------------------------------


def _cut_at_graphs(trace: Trace, labels: Labels, steps: str | None) -> Cut:
    kernels, launches = trace.kernels, trace.launches
    used = np.unique(kernels.launch[kernels.launch >= 0])
    rows = used[launches.is_graph[used]]
    if not rows.size:
        raise AddrfracError(f"no graph was launched in the trace; use --steps-by {ANNOTATION}REGEX")
    texts = _enclosing_texts(trace, rows)
    found = HostSteps(
        what="graph launches",
        names=tuple(text or f"graph launch {i}" for i, text in enumerate(texts)),
        start_ns=launches.start_ns[rows],
        end_ns=launches.end_ns[rows],
        process=None,
        owns_work_after=True,
        owns_idle_before=False,
    )
    window = window_of(trace, found, steps=steps)
    return Cut(
        at="graph launches",
        window=window,
        steps=_graph_steps(trace, labels, window),
        notes=_pieces_note(trace, labels, window),
    )


def _enclosing_texts(trace: Trace, rows: Ids | Ints) -> list[str]:
    """For each launch the text of the range around it that a serving engine wrote; '' where there is none."""
    ranges = trace.ranges
    known = [int(i) for i in np.unique(ranges.name) if describe(trace.names[i]).phase != UNKNOWN]
    wanted = np.flatnonzero((ranges.kind == RANGE_USER) & np.isin(ranges.name, known))
    texts = []
    for call_ns in trace.launches.start_ns[rows]:
        around = wanted[(ranges.start_ns[wanted] <= call_ns) & (call_ns <= ranges.end_ns[wanted])]
        texts.append(trace.names[ranges.name[around[-1]]] if around.size else "")
    return texts


def _graph_steps(trace: Trace, labels: Labels, window: Window) -> tuple[EngineStep, ...]:
    """What the range around each launch says, else which graph ran.

    Eager attention beside a graph that has its own tells of a second pass (a prefill before the next replay): such
    steps are kept apart from those of the graph alone.
    """
    in_graph, attends = _of_kernels(trace, labels)
    graphs: Counter[bytes] = Counter()
    found = []
    for k, mine in enumerate(_by_step(window)):
        replayed = mine[in_graph[mine]]
        identity = np.sort(trace.kernels.name[replayed]).tobytes()
        graphs[identity] += int((trace.kernels.end_ns[replayed] - trace.kernels.start_ns[replayed]).sum())
        second = bool(attends[replayed].any() and attends[mine[~in_graph[mine]]].any())
        found.append((describe(window.names[k]), identity, len(replayed), second))
    letters = {identity: _letters(i) for i, (identity, _) in enumerate(graphs.most_common())}
    return tuple(
        step
        if step.phase != UNKNOWN
        else EngineStep(
            phase=UNKNOWN,
            name=f"graph {letters[identity]} ({size} nodes)" + (" and an eager pass" if second else ""),
        )
        for step, identity, size, second in found
    )


def _by_step(window: Window) -> list[Ints]:
    """The kernels of each step."""
    order = np.argsort(window.step, kind="stable")
    return np.split(order, np.searchsorted(window.step[order], np.arange(window.steps + 1)))[1:-1]


def _of_kernels(trace: Trace, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """For each kernel whether a graph launched it, and whether it computes attention."""
    kernels = trace.kernels
    in_graph = (kernels.launch >= 0) & trace.launches.is_graph[np.maximum(kernels.launch, 0)]
    of_label = np.array([label.op == Op.ATTENTION and label.role == Role.MAIN for label in labels.table])
    return in_graph, of_label[labels.of_kernel]


def _pieces_note(trace: Trace, labels: Labels, window: Window) -> tuple[str, ...]:
    """Engines may capture a step in pieces between its attention calls: then a graph launch is no step."""
    in_graph, attends = _of_kernels(trace, labels)
    mine = window.step >= 0
    if not (attends & mine & ~in_graph).any() or (attends & mine & in_graph).any():
        return ()
    return (
        f"attention runs outside the graphs, so they look like pieces of steps; --steps-by {ANNOTATION}REGEX cuts whole"
        f" steps ({known_annotations(trace)})",
    )


def _letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


# --- buckets ------------------------------------------------------------------------------------------------


def serve(cut: Cut, held: Mapping[str, Held], launches: Sequence[int], weights: Weights | None = None) -> Serving:
    """One row a bucket, and the share weighted over them: by the trace's busy time, or as the user's weights say.

    `held` and `launches` are of the cut's window, step by step. Raises AddrfracError where `weights` do not fit.
    """
    names = [step.bucket for step in cut.steps]
    rows = {name: np.array([k for k, other in enumerate(names) if other == name]) for name in dict.fromkeys(names)}
    busy_ns = next(iter(held.values())).busy_ns
    busy = {name: float(busy_ns[steps].sum()) for name, steps in rows.items()}
    phases = {name: cut.steps[steps[0]].phase for name, steps in rows.items()}
    counts = {name: len(steps) for name, steps in rows.items()}
    weight = weights.of_buckets(phases, counts, busy) if weights is not None else busy
    total = sum(weight.values())
    if not total:
        raise AddrfracError("no step of the window did any work; nothing can be weighted")
    buckets = [
        _bucket(name, cut, steps, held, launches, weight[name] / total)
        for name, steps in sorted(rows.items(), key=lambda item: -weight[item[0]])
    ]
    starts, ends = cut.window.start_ns, cut.window.end_ns
    between = int(ends[-1] - starts[0]) - int((ends - starts).sum())
    return Serving(
        cut_at=cut.at,
        buckets=tuple(buckets),
        weighted_by=weights.words if weights is not None else "busy time in the trace",
        share_of_busy={policy: _weighted(buckets, policy) for policy in held},
        between_us=between / cut.window.steps / 1e3,
        notes=(*cut.notes, *_left_out(buckets)),
    )


def _bucket(
    name: str, cut: Cut, steps: Ints, held: Mapping[str, Held], launches: Sequence[int], weight: float
) -> Bucket:
    span = (cut.window.end_ns[steps] - cut.window.start_ns[steps]) / 1e3
    of = [cut.steps[k] for k in steps]
    return Bucket(
        name=name,
        phase=of[0].phase,
        steps=len(steps),
        requests=range_of([step.requests for step in of]),
        tokens=range_of([step.tokens for step in of]),
        span_us=float(span.mean()),
        span_interval_us=stats.sampling_range(span.tolist()),
        busy_us=float(next(iter(held.values())).busy_ns[steps].mean()) / 1e3,
        launches=float(np.mean([launches[k] for k in steps])),
        weight=weight,
        share_of_busy={policy: share_of_busy(one, steps) for policy, one in held.items()},
    )


def _weighted(buckets: Sequence[Bucket], policy: str) -> Range:
    """The mean of the buckets' shares; a bucket in which nothing ran has no share and no say."""
    known = [(bucket.weight, bucket.share_of_busy[policy]) for bucket in buckets]
    told = [(weight, share.low, share.high) for weight, share in known if share.low is not None and weight]
    total = sum(weight for weight, _, _ in told)
    if not total:
        return Range(low=None, high=None)
    return Range(
        low=sum(weight * (low or 0.0) for weight, low, _ in told) / total,
        high=sum(weight * (high or 0.0) for weight, _, high in told) / total,
    )


def _left_out(buckets: Sequence[Bucket]) -> tuple[str, ...]:
    unweighted = [bucket.name for bucket in buckets if not bucket.weight]
    if not unweighted:
        return ()
    return (f"the weights give nothing to: {', '.join(unweighted)}",)
