"""Times a candidate that passed its checks beside its baselines; the parent's side of the clock."""

from __future__ import annotations

import math
import random
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from addrfrac.verification import clock, timed
from addrfrac.verification.clock import Claim, Settled, distinct_bytes, judge_claim, net, settle
from addrfrac.verification.closeness import yardstick
from addrfrac.verification.exam import Exam, Trial
from addrfrac.verification.preparation import Footprint, Preparation, Side, timing_trials, wrong_output
from addrfrac.verification.processes import Server, WorkerFailure
from addrfrac.verification.records import Baseline, Check, PrecisionClass, Samples, Speed, Status
from addrfrac.verification.reference import Handle, ReferenceRaised
from addrfrac.verification.sources import Source
from addrfrac.verification.speed import choose_best, compare, noise_between, order_of_turns
from addrfrac.verification.verdict import unmeasured

BASELINES = ("eager-strict", "eager-tf32", "eager-graph", "compile")
CANDIDATE = "plain"
_FIRST_CALLS, _REPLAYS = 4, 5
_ROW_US = 8_000.0
"""Length of a row of graph replays that the parent times."""
_SAMPLED_ELEMENTS = 24
_LARGE_OUTPUT_BYTES = 16 << 20
"""Outputs beyond this are judged in one block of each process, drawn at random; the truth in fp64 is slow to move."""
_DRIFT = 1.10
"""A best baseline that is this much slower after the candidate than before leaves nothing to compare with."""


@dataclass(slots=True, kw_only=True)
class Timed:
    """Blocks of one side."""

    name: str
    """Variant in its process; 'plain' for the candidate."""
    blocks: list[list[float]] = field(default_factory=list)
    """[process][block]."""
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether every process has a time."""
        return not self.note and bool(self.blocks) and all(self.blocks)


@dataclass(slots=True, kw_only=True)
class Bench:
    """What stays the same over all processes of one measurement."""

    server: Server
    exam: Exam
    trials: list[Trial]
    vary: list[bool]
    span_us: float | None
    calls: int | None
    rounds: int
    sides: dict[str, Timed]
    checks: list[Check] = field(default_factory=list)
    warm_us: list[float] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    hold_us: float = 0.0
    """How long the device is held before each call, of whatever side; 0 until that and how calls are launched is
    decided, which is once for all sides and processes: only figures of one kind are compared."""
    unrolled: int = 0
    """Calls in one graph; 0 where single calls are timed."""
    too_small: str = ""
    """Why a call that is too short for a single one could not be unrolled."""
    needed_bytes: float | None = None
    judged: set[int] = field(default_factory=set)
    """Blocks of this process whose kept outputs are judged."""

    @property
    def cache_bytes(self) -> int:
        """Size of the device's cache."""
        return int(self.server.facts.get("cache_bytes", 0))

    @property
    def flush_bytes(self) -> int:
        """Four times the cache is read to evict it."""
        return 4 * self.cache_bytes


@dataclass(slots=True, kw_only=True)
class Seat:
    """A process in which a side is timed, with the keys of the contents in it."""

    handle: Handle
    keys: list[str]


def measure(
    server: Server,
    source: Source,
    exam: Exam,
    *,
    case: int = 0,
    quick: bool = False,
    processes: int = 3,
    calls: int | None = None,
    baselines: Sequence[str] = BASELINES,
    prepared: Preparation | None = None,
    span_us: float | None = None,
) -> tuple[Speed, list[Check]]:
    """Speed against the best baseline, and the checks of the clock; every failure is told, none is a speed."""
    ready = prepared
    if ready is None:
        compiled = "compile" in baselines and server.device == "cuda"
        ready = Preparation(server, exam.problem, case=case, dtype=exam.dtype, processes=processes, compiled=compiled)
        ready.begin_candidate(source, exam)
    names = [name for name in baselines if name != "compile" or ready.compiled]
    trials = timing_trials(exam)
    bench = Bench(
        server=server,
        exam=exam,
        trials=trials,
        vary=_varied(exam, trials),
        span_us=span_us,
        calls=calls,
        rounds=2 if quick else 4,
        sides={name: Timed(name=name) for name in (*names, CANDIDATE)},
    )
    weighed: list[Side] = []
    spares, server.most_spares = server.most_spares, 0  # nothing else starts up while somebody is timed
    try:
        sides = ready.all_ready()
        for index, (reference, candidate) in enumerate(sides):
            for name, note in reference.notes.items():
                bench.sides[name].note = note
            if index == 0:
                weighed = [reference, candidate]
            _one_process(bench, reference.handle, candidate.handle)
            if bench.too_small or _rejected(bench):
                break
        footprints = _footprints(ready, weighed)
    except (WorkerFailure, ReferenceRaised) as error:
        why = f"could not be timed: {error}"
        return unmeasured(why), [*bench.checks, _check("clock", Status.INCOMPLETE, why)]
    finally:
        server.most_spares = spares
        if prepared is None:
            ready.close()
    return _speed(bench, footprints), bench.checks


def _footprints(ready: Preparation, weighed: list[Side]) -> list[Footprint | None]:
    """Memory of baseline and candidate; where processes cannot be told apart, what each gives back at its end."""
    found = [side.footprint for side in weighed]
    if not any(one is not None and one.device_persistent_bytes is None for one in found):
        return found or [None, None]
    return [
        replace(side.footprint, device_persistent_bytes=ready.freed_bytes(side)) if side.footprint else None
        for side in weighed
    ]


def _rejected(bench: Bench) -> bool:
    return any(not check.passed for check in bench.checks)


def _varied(exam: Exam, trials: list[Trial]) -> list[bool]:
    """Inputs whose elements may be varied: numbers in general, not ids or masks that are kept as numbers."""
    tensors = [[t.arguments.tensors[i] for t in trials] for i in range(len(trials[0].arguments.tensors))]
    return [
        one[0].is_floating_point() and any(bool((t.double() % 1 != 0).any()) for t in one if t.numel())
        for one in tensors
    ]


# --- one process of each ------------------------------------------------------------------------------------


def _one_process(bench: Bench, reference: Handle, candidate: Handle) -> None:
    facts = bench.server.facts
    if not facts:
        facts |= _ask(reference, "device", "")
    made = bench.exam.constructs[0]
    values = made.states[bench.trials[0].state].values or [entry.value for entry in made.entries]
    if values:
        reference.set_values([entry.name for entry in made.entries], values, how="in place")
    seats = {
        "candidate": Seat(handle=candidate, keys=_placed(candidate, bench.trials)),
        "baseline": Seat(handle=reference, keys=_placed(reference, bench.trials)),
    }
    for side in bench.sides.values():
        side.blocks.append([])
    large = sum(t.numel() * t.element_size() for t in bench.trials[0].native.tensors) > _LARGE_OUTPUT_BYTES
    bench.judged = {secrets.randbelow(bench.rounds)} if large else set(range(bench.rounds))
    time_turns(bench, seats)


def time_turns(bench: Bench, seats: dict[str, Seat]) -> None:
    """Blocks of every side in turns, baselines before and after the candidate."""
    first = _first_block(bench, seats)
    if first is None:
        return
    if not bench.hold_us:
        _decide(bench, seats, first)
    for name in order_of_turns(list(bench.sides), bench.rounds):
        side = bench.sides[name]
        if side.note or _rejected(bench) or bench.too_small:
            continue
        if bench.unrolled and name == "eager-graph":
            side.note = "unrolled graphs are timed: every baseline is one"
            continue
        seat = seats["candidate" if name == CANDIDATE else "baseline"]
        try:
            block = _unrolled_block if bench.unrolled else _single_block
            block(bench, side, seat, seats["baseline"], first)
        except ReferenceRaised as error:
            if name == CANDIDATE:
                raise
            side.note = f"could not run: {str(error)[:120]}"


def _placed(handle: Handle, trials: list[Trial]) -> list[str]:
    """An arena for each content; layouts are alike, so each gets one of its own."""
    keys = []
    for trial in trials:
        arena = handle.place(trial.arguments)
        layout = next(key for key, known in handle.arenas.items() if known is arena)
        handle.arenas[hash(arena.key)] = handle.arenas.pop(layout)
        keys.append(arena.key)
    return keys


def _ask(handle: Handle, phase: str, variant: str, **request: Any) -> dict[str, Any]:
    return handle.ask({"op": "time", "phase": phase, "variant": variant, **request})


def _first_block(bench: Bench, seats: dict[str, Seat]) -> float | None:
    """About what a call takes; None where the claim is false already."""
    settled, _ = _settled_calls(bench, bench.sides[CANDIDATE], seats["candidate"], seats["baseline"], _FIRST_CALLS)
    if settled.status is not Status.PASSED:
        bench.checks.append(_check("clock", settled.status, settled.detail))
        return None
    return settled.call_us


def _decide(bench: Bench, seats: dict[str, Seat], first_us: float) -> None:
    """Whether single calls are timed, and how long the device is held before each: alike for all sides."""
    bench.hold_us = timed.HOLD_US
    if bench.server.device != "cuda":
        return
    slowest = 0.0
    call_us = first_us
    for side in [] if call_us < clock.SMALLEST_SINGLE_CALL_US else bench.sides.values():
        seat = seats["candidate" if side.name == CANDIDATE else "baseline"]
        if side.note:
            continue
        try:
            answer = _settled_calls(bench, side, seat, seats["baseline"], _FIRST_CALLS)[1]
        except ReferenceRaised as error:
            if side.name == CANDIDATE:
                raise
            side.note = f"could not run: {str(error)[:120]}"
            continue
        slowest = max(slowest, float(answer["host_us"]))
    bench.hold_us = clock.hold_for(slowest, timed.HOLD_US)
    if bench.hold_us > timed.HOLD_US:  # what seemed long may have been its launch
        call_us = min(call_us, _first_block(bench, seats) or call_us)
    if call_us < clock.SMALLEST_SINGLE_CALL_US:
        bench.unrolled = clock.unrolled_calls(call_us, _bytes_each(bench.trials[0]))


def _bytes_each(trial: Trial) -> int:
    return sum(t.numel() * t.element_size() for t in (*trial.arguments.tensors, *trial.native.tensors))


# --- single calls -------------------------------------------------------------------------------------------


def _single_block(bench: Bench, side: Timed, seat: Seat, baseline: Seat, first_us: float) -> None:
    known = [us for process in side.blocks for us in process]
    calls = bench.calls or clock.calls_in_block(statistics.median(known) if known else first_us)
    settled, answer = _settled_calls(bench, side, seat, baseline, calls)
    side.blocks[-1].append(settled.call_us)
    if side.name != CANDIDATE:
        return
    bench.discarded += settled.discarded
    bench.checks.append(_check("clock", settled.status, settled.detail))
    if len(side.blocks[-1]) - 1 in bench.judged:
        bench.checks.append(_timed_outputs(bench, answer["tensors"], answer["kept"], baseline))
    if answer.get("warm_us"):
        bench.warm_us.append(net(answer["warm_us"], statistics.median(answer["empty_us"])))


def _settled_calls(bench: Bench, side: Timed, seat: Seat, baseline: Seat, calls: int) -> tuple[Settled, dict[str, Any]]:
    """A block of calls, measured again where it disagrees with this side's clock; the last answer."""
    answer: dict[str, Any] = {}
    mine = side.name == CANDIDATE
    hold_us = (bench.hold_us or timed.HOLD_US) / 2

    def measured() -> Claim:
        nonlocal answer, hold_us
        hold_us = min(2 * hold_us, clock.LONGEST_HOLD_US)  # a repeat hides more of what launching costs the host
        order = _Order(len(seat.keys), calls)
        request = {"flush_bytes": bench.flush_bytes, "keys": seat.keys, "vary": bench.vary, "keep": order.kept}
        common: dict[str, Any] = {"order": order.contents, "seeds": order.seeds, "cold": True, "hold_us": hold_us}
        common["flush_bytes"] = bench.flush_bytes
        _ask(seat.handle, "prepare", side.name, **request | {"keep": len(order.keep)})
        run = common | {"keep": order.keep}
        empty_batch_us = 1e6 * float(_ask(seat.handle, "run", side.name, **run, empty=True)["elapsed_s"])
        ran = _ask(seat.handle, "run", side.name, **run, empty=False)
        batch_us = 1e6 * float(ran["elapsed_s"])
        if mine and bench.server.device == "cuda" and calls > _FIRST_CALLS:
            warm = _Order(len(seat.keys), calls)
            again = run | {"order": warm.contents, "seeds": warm.seeds, "keep": [], "cold": False}
            _ask(seat.handle, "run", side.name, **again, empty=False)
        if mine and baseline.keys:  # an empty block that nothing of the candidate's can have lengthened
            empty_batch_us = min(empty_batch_us, _trusted_empty_us(bench, baseline, order, hold_us))
        answer = _ask(seat.handle, "finish", side.name)
        answer |= {"kept": order.kept, "host_us": ran["host_us"]}
        events = [float(us) for us in answer["full_us"]]
        if len(events) != calls:
            raise WorkerFailure(Status.TAMPERED, f"{len(events)} times for {calls} calls")
        cuda = bench.server.device == "cuda"
        return Claim(
            call_us=tuple(events),
            batch_us=batch_us,
            empty_batch_us=empty_batch_us,
            span_us=bench.span_us if mine else None,
            empty_call_us=statistics.median(answer["empty_us"]) if cuda else 0.0,
            bytes_moved=_bytes(bench) if mine else 0.0,
            peak_gb_per_s=bench.server.facts.get("peak_gb_per_s"),
            host_us=None if cuda else math.inf,  # a CPU that others share stalls at will; nobody is timed on one
        )

    if not mine:
        claim = measured()
        call = max(clock.claimed_call_us(claim), 1e-3)
        return Settled(status=Status.PASSED, detail="", call_us=call, discarded=()), answer
    return _settle(bench, measured, baseline), answer


class _Order:
    """Which content each call gets, under which seed, and which outputs are kept."""

    def __init__(self, contents: int, calls: int) -> None:
        rng = random.SystemRandom()
        self.contents = [rng.randrange(contents) for _ in range(calls)]
        self.seeds = [secrets.randbits(30) for _ in range(calls)]
        self.keep = sorted(rng.sample(range(calls), min(2, calls)))

    @property
    def kept(self) -> list[tuple[int, int]]:
        """(content, seed) of the kept calls."""
        return [(self.contents[call], self.seeds[call]) for call in self.keep]


def _trusted_empty_us(bench: Bench, baseline: Seat, order: _Order, hold_us: float) -> float:
    """The empty block in the baseline's process."""
    request = {"flush_bytes": bench.flush_bytes, "keys": baseline.keys, "vary": bench.vary, "keep": len(order.keep)}
    _ask(baseline.handle, "prepare", "eager-strict", **request)
    run: dict[str, Any] = {"order": order.contents, "seeds": order.seeds, "cold": True, "hold_us": hold_us}
    run["flush_bytes"] = bench.flush_bytes
    return 1e6 * float(_ask(baseline.handle, "run", "eager-strict", **run, keep=order.keep, empty=True)["elapsed_s"])


def _settle(bench: Bench, measured: Any, baseline: Seat) -> Settled:
    """Settled, with the bytes of a call that seems too fast counted again: only those that an output depends on."""

    def lenient() -> Claim:
        claim: Claim = measured()
        if bench.needed_bytes is not None:
            return _with_bytes(claim, bench.needed_bytes)
        if judge_claim(claim)[0] is Status.TOO_FAST:
            bench.needed_bytes = _needed_bytes(bench, baseline)
            return _with_bytes(claim, bench.needed_bytes)
        return claim

    return settle(lenient)


def _with_bytes(claim: Claim, count: float) -> Claim:
    return replace(claim, bytes_moved=count)


# --- unrolled graphs ----------------------------------------------------------------------------------------


def _unrolled_block(bench: Bench, side: Timed, seat: Seat, baseline: Seat, _first_us: float) -> None:
    mine, calls = side.name == CANDIDATE, bench.unrolled
    if not side.blocks[-1]:
        order = _Order(len(seat.keys), calls)
        try:
            _ask(seat.handle, "capture", side.name, keys=seat.keys, vary=bench.vary, calls=calls, keep=len(order.keep))
        except ReferenceRaised as error:
            if not mine:
                raise
            bench.too_small = f"its calls cannot be captured into a graph: {str(error)[:160]}"
            bench.checks.append(_check("clock", Status.TOO_SMALL_TO_TIME, bench.too_small))
            return
    answer: dict[str, Any] = {}

    def measured() -> Claim:
        nonlocal answer
        order = _Order(len(seat.keys), calls)
        seeds = [[secrets.randbits(30) for _ in range(calls)] for _ in range(_REPLAYS - 1)] + [order.seeds]
        request = {"order": order.contents, "seeds": seeds, "keep": order.keep, "flush_bytes": bench.flush_bytes}
        _ask(seat.handle, "replay", side.name, **request)
        answer = _ask(seat.handle, "finish", side.name)
        answer["kept"] = order.kept
        replay = max(net(answer["full_us"], statistics.median(answer["empty_us"])), 1e-3)
        rows = max(3, min(200, int(_ROW_US / replay)))
        empty = min(float(_ask(seat.handle, "repeat", side.name, count=0)["elapsed_s"]) for _ in range(2))
        row = float(_ask(seat.handle, "repeat", side.name, count=rows)["elapsed_s"])
        if mine and calls * _bytes_each(bench.trials[0]) < bench.cache_bytes / 2:  # nothing evicts what a row uses
            bench.warm_us.append(1e6 * max(0.0, row - empty) / rows / calls)
        return Claim(
            call_us=(replay,) * rows,
            batch_us=1e6 * row,
            empty_batch_us=1e6 * empty,
            span_us=bench.span_us if mine else None,
            empty_call_us=0.0,
            bytes_moved=_bytes(bench) if mine else 0.0,
            peak_gb_per_s=bench.server.facts.get("peak_gb_per_s"),
            calls_each=calls,
            host_us=clock.HOST_REPLAY_US,
        )

    if not mine:
        side.blocks[-1].append(max(clock.claimed_call_us(measured()), 1e-3))
        return
    settled = _settle(bench, measured, baseline)
    side.blocks[-1].append(settled.call_us)
    bench.discarded += settled.discarded
    bench.checks.append(_check("clock", settled.status, f"unrolled into a graph of {calls} calls: {settled.detail}"))
    if len(side.blocks[-1]) - 1 in bench.judged:
        bench.checks.append(_timed_outputs(bench, answer["tensors"], answer["kept"], baseline))


# --- outputs and bytes --------------------------------------------------------------------------------------


def _timed_outputs(bench: Bench, tensors: list[torch.Tensor], kept: list[tuple[int, int]], baseline: Seat) -> Check:
    """The hidden subset of timed outputs, judged like any other against answers to the same contents."""
    per = len(bench.trials[0].sticks)
    if len(tensors) != per * len(kept):
        return _check("timed outputs", Status.WRONG_SCHEMA, f"{len(tensors)} tensors for {len(kept)} kept calls")
    for position, (content, seed) in enumerate(kept):
        trial = _fresh_trial(bench, baseline, content, seed)
        wrong = wrong_output(tensors[position * per : (position + 1) * per], trial)
        if wrong:
            return _check("timed outputs", Status.WRONG_VALUES, f"a call amid the timed ones: {wrong}")
    return _check("timed outputs", Status.PASSED, f"{len(kept)} timed outputs are right")


def _fresh_trial(bench: Bench, baseline: Seat, content: int, seed: int) -> Trial:
    """The trial of a content as one timed call got it, its limits measured anew."""
    exam, trial = bench.exam, bench.trials[content]
    coarser = _coarser(exam)
    hows = ["exact", "nudged", *coarser.values()]
    integers = any(stick.ambiguous is not None for stick in trial.sticks)
    request = {"key": baseline.keys[content], "seed": seed, "vary": bench.vary, "hows": hows, "dtype": exam.dtype}
    answer = _ask(baseline.handle, "fresh", "", **request, inputs=integers)
    groups, tensors = [], answer["tensors"]
    for count in answer["counts"]:
        groups.append(tensors[: int(count)])
        tensors = tensors[int(count) :]
    answers = dict(zip((*hows, "native", "inputs"), groups, strict=True))
    halves = exam.dtype in ("float16", "bfloat16")
    honest = {PrecisionClass.HALF if halves else PrecisionClass.FP32: answers["native"]}
    honest |= {precision: answers[how] for precision, how in coarser.items()}
    inputs = answers["inputs"] or trial.arguments.tensors
    rms = [float(t.double().square().mean().sqrt()) for t in inputs if t.is_floating_point() and t.numel()]
    sticks = [
        yardstick(
            truth,
            {precision: [outputs[i]] for precision, outputs in honest.items()},
            dtype=exam.dtype,
            reduction_length=exam.reduction_length,
            input_rms=min(rms, default=0.0),
            nudged=answers["nudged"][i],
            inputs=inputs,
        )
        for i, truth in enumerate(answers["exact"])
    ]
    return replace(trial, sticks=sticks)


def _coarser(exam: Exam) -> dict[PrecisionClass, str]:
    """Classes coarser than the dtype's own, finest first, with the rounding of each."""
    if exam.dtype in ("float16", "bfloat16"):
        return {}
    half = {PrecisionClass.HALF: "half"}
    return {PrecisionClass.TF32: "tf32", **half} if exam.matmul else half


def _bytes(bench: Bench, shares: Sequence[float] | None = None) -> float:
    """Bytes that one call must move to or from memory.

    Of a table only the distinct rows that ids can name, of any input only the share on which an output depends; of
    the outputs what does not fit the cache, where the rest may still lie when the call is over.
    """
    trial = bench.trials[0]
    ids = [t for t in trial.arguments.tensors if not t.is_floating_point() and t.numel()]
    rows: list[tuple[int, int, int | None]] = []
    for index, tensor in enumerate(trial.arguments.tensors):
        used: int | None = None
        if ids and tensor.is_floating_point() and tensor.ndim >= 2:
            distinct = max(int(torch.unique(t).numel()) for t in ids)
            used = min(distinct, tensor.shape[0]) * (tensor.numel() // max(1, tensor.shape[0]))
        if shares is not None and shares[index] < 1.0:
            used = min(tensor.numel() if used is None else used, int(shares[index] * tensor.numel()))
        rows.append((tensor.numel(), tensor.element_size(), used))
    written = sum(t.numel() * t.element_size() for t in trial.native.tensors)
    return distinct_bytes(rows) + max(0, written - bench.cache_bytes)


def _needed_bytes(bench: Bench, baseline: Seat) -> float:
    """Bytes on which an output depends, by a sample of elements changed one at a time in the reference."""
    request = {"key": baseline.keys[0], "seed": secrets.randbits(30), "samples": _SAMPLED_ELEMENTS}
    shares = [float(share) for share in _ask(baseline.handle, "needed", "", **request)["shares"]]
    # what a sample missed may be a tenth of the whole
    return _bytes(bench, [share if share == 1.0 else 0.9 * share for share in shares])


# --- the result ---------------------------------------------------------------------------------------------


def _speed(bench: Bench, footprints: list[Footprint | None]) -> Speed:
    candidate = bench.sides[CANDIDATE]
    baselines = {name: side for name, side in bench.sides.items() if name != CANDIDATE}
    if bench.too_small:
        return unmeasured(f"too small to time: {bench.too_small}")
    if _rejected(bench):
        failed = next(check for check in bench.checks if not check.passed)
        return unmeasured(f"no figure: {failed.status}: {failed.detail}")
    usable = {name: side.blocks for name, side in baselines.items() if side.usable}
    if not usable or not candidate.usable:
        return unmeasured("no baseline could be timed")
    best, reporting = choose_best(usable)
    floor = noise_between(usable[best][0::2], usable[best][1::2]) if len(usable[best]) >= 2 else None
    found = compare(reporting[best], candidate.blocks, noise_floor=floor)
    drift = _drift(usable[best])
    verdict, notes = found.verdict, []
    if drift > _DRIFT and verdict == "faster":
        verdict = "inconclusive"
        notes.append(f"{best} was {drift:.2f} times slower after the candidate than before")
    if len(candidate.blocks) < 2:
        notes.append("one process only: cannot decide")
    if bench.discarded:
        notes.append(f"{len(bench.discarded)} blocks measured again: {bench.discarded[0]}")
    call = statistics.median(us for process in candidate.blocks for us in process)
    return Speed(
        verdict=verdict,
        speedup=found.speedup,
        low=found.low,
        high=found.high,
        least_detectable=found.least_detectable,
        noise_floor=floor,
        best_baseline=best,
        baselines=tuple(_baseline(side, bench) for side in baselines.values()),
        candidate=Samples(name="candidate", block_us=tuple(tuple(p) for p in candidate.blocks)),
        warm_us=statistics.median(bench.warm_us) if bench.warm_us else None,
        cold_us=call,
        setup_s=None,
        note="; ".join(notes),
        launch=_launch(bench),
        peak_gb_per_s=bench.server.facts.get("peak_gb_per_s"),
        **_memory(footprints),
    )


def _launch(bench: Bench) -> str:
    if not bench.unrolled:
        return "single calls, cache cold" if bench.server.device == "cuda" else "single calls"
    return f"unrolled graph of {bench.unrolled} calls, cache cold"


def _memory(footprints: list[Footprint | None]) -> dict[str, int | None]:
    reference, candidate = footprints
    return {
        "peak_persistent_bytes": candidate.persistent_bytes if candidate else None,
        "peak_transient_bytes": candidate.transient_bytes if candidate else None,
        "device_persistent_bytes": candidate.device_persistent_bytes if candidate else None,
        "device_transient_bytes": candidate.device_transient_bytes if candidate else None,
        "baseline_persistent_bytes": reference.persistent_bytes if reference else None,
        "baseline_transient_bytes": reference.transient_bytes if reference else None,
        "baseline_device_persistent_bytes": reference.device_persistent_bytes if reference else None,
        "baseline_device_transient_bytes": reference.device_transient_bytes if reference else None,
    }


def _before_and_after(blocks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Medians over the processes of the first and the last block."""
    filled = [process for process in blocks if process]
    if not filled:
        return 0.0, 0.0
    return statistics.median(p[0] for p in filled), statistics.median(p[-1] for p in filled)


def _drift(blocks: Sequence[Sequence[float]]) -> float:
    before, after = _before_and_after(blocks)
    return after / before if before else 1.0


def _baseline(side: Timed, bench: Bench) -> Baseline:
    before, after = _before_and_after(side.blocks)
    return Baseline(
        name=side.name,
        samples_us=tuple(us for process in side.blocks for us in process),
        before_us=before,
        after_us=after,
        settings={"tf32": str(side.name != "eager-strict"), "launch": _launch(bench)},
        note=side.note,
    )


def _check(name: str, status: Status, detail: str) -> Check:
    return Check(name=name, passed=status is Status.PASSED, status=status, detail=detail)
