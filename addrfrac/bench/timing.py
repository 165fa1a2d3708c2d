"""Contestants of one case in, blocks of their times out: processes of their own, and the device goes round in turns.

The processes of baselines are kept from case to case, so that a device is started and a compiler imported once; a
solution's are fresh each time, because what it did to its process must not stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from addrfrac import measure
from addrfrac.bench import contest
from addrfrac.bench.contest import FORWARD, FORWARD_GRAPH, GRAPH, Contestant, Seated
from addrfrac.measure import Asked, Lost, Worker

Progress = Callable[[str], None]
LIE, LIE_US = 1.15, 5.0
"""A step may take this much more by the parent's clock than its process says."""
LOOKS = 3
"""The parent's clock is held against a process so often; an honest one is not interrupted each time."""
BLOCK_US = 20_000.0
MOST_STEPS = 30
CPU_BLOCK_US = 15_000.0
START_TIMEOUT_S = 120.0
CONTEXT_BYTES = 1 << 30
WORK_BYTES = 3 << 30
"""Inputs, outputs and temporaries of a process beside its parameters."""
MEMORY_SHARE = 0.9
CANDIDATE = "solution"


@dataclass(slots=True, kw_only=True)
class Taken:
    """What was measured of one case."""

    blocks: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    """Arm -> [process][block][step], microseconds a call."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Contestant -> most bytes that a process of it held while it ran."""
    lost: dict[str, str] = field(default_factory=dict)
    """Arm -> why it has no times, or fewer processes."""
    seated: dict[str, Seated] = field(default_factory=dict)
    """Contestant -> what its first process said."""
    ratio: float | None = None
    """The solution's time by the parent's clock over what its process said."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage -> how long it took."""


def arm_name(contestant: str, launch: str) -> str:
    """E.g. 'eager', 'solution + graph'; 'solution forward' is the forward pass alone of a problem that trains."""
    forward = f"{contestant} forward" if launch in (FORWARD, FORWARD_GRAPH) else contestant
    return f"{forward} + graph" if launch in (GRAPH, FORWARD_GRAPH) else forward


def contestant_of(arm: str) -> str:
    """Whose arm it is."""
    return arm.partition(" + ")[0].removesuffix(" forward")


class Crew:
    """Worker processes of one run."""

    def __init__(self, device: str, timeout_s: float) -> None:
        self.device, self.timeout_s = device, timeout_s
        self.kept: dict[str, Worker] = {}
        self.sitting: set[str] = set()
        """Baselines that were left as they are for the next case."""
        self.folder = TemporaryDirectory(prefix="addrfrac-")

    def seat(self, wanted: Mapping[str, Contestant]) -> tuple[dict[str, tuple[Worker, Seated]], dict[str, str]]:
        """Contestants by name, ready side by side; and why others are not.

        A process that a capture spoilt, or that did not survive one, is begun again without a graph.
        """
        ready, lost = self._seat_once(wanted)
        again = {name: replace(wanted[name], graph=False) for name, (_, said) in ready.items() if said.spoilt}
        again |= {name: replace(wanted[name], graph=False) for name, why in lost.items() if _worth_again(wanted, name)}
        if not again:
            return ready, lost
        reasons = {name: said.no_graph for name, (_, said) in ready.items() if said.spoilt} | lost
        for name in again:
            self.end(name)
        second, lost_again = self._seat_once(again)
        for name, (worker, said) in second.items():
            second[name] = worker, replace(said, no_graph=reasons.get(name, ""))
        kept = {name: each for name, each in ready.items() if name not in again}
        still = {name: why for name, why in lost.items() if name not in again}
        return kept | second, still | lost_again

    def _seat_once(self, wanted: Mapping[str, Contestant]) -> tuple[dict[str, tuple[Worker, Seated]], dict[str, str]]:
        asked: dict[str, tuple[Worker, float]] = {}
        missing = [name for name in wanted if name not in self.kept]
        lost = self._ask(wanted, [name for name in wanted if name in self.kept], asked)
        lost |= self._start(missing)  # a device takes a second to start, while the others prepare
        lost |= self._ask(wanted, [name for name in missing if name in self.kept], asked)
        ready: dict[str, tuple[Worker, Seated]] = {}
        for name, (worker, deadline) in asked.items():
            try:
                ready[name] = worker, worker.answer(max(0.1, deadline - time.monotonic()), self.timeout_s)
            except Lost as why:
                lost[name] = str(why)
                if worker.lost:
                    self.kept.pop(name, None)
        return ready, lost

    def _ask(
        self, wanted: Mapping[str, Contestant], names: Sequence[str], asked: dict[str, tuple[Worker, float]]
    ) -> dict[str, str]:
        """Tell these to sit down, and note until when they may take; why others cannot be told."""
        lost: dict[str, str] = {}
        for name in names:
            worker = self.kept[name]
            try:
                worker.connection.send((contest.sit, (replace(wanted[name], folder=self.folder.name),), {}))
            except OSError:
                lost[name] = "its process ended"
                self.end(name)
                continue
            asked[name] = worker, time.monotonic() + self.timeout_s
        return lost

    def _start(self, names: Sequence[str]) -> dict[str, str]:
        orders = [
            measure.Order(name=name, prepare=contest.take_chair, arguments=(self.device,), timeout=START_TIMEOUT_S)
            for name in names
        ]
        if not orders:
            return {}
        workers, lost = measure.start_all(orders, len(orders))
        self.kept |= workers
        return dict(lost)

    def rest(self, names: Sequence[str], *, keep: bool = False) -> None:
        """Let go of what these hold: a solution's process ends, a baseline's gives its memory back and stays.

        `keep`: baselines stay seated, as the next case has the same ones.
        """
        for name in names:
            worker = self.kept.get(name)
            if worker is None:
                continue
            if name.startswith(CANDIDATE):
                self.end(name)
                continue
            if keep:
                self.sitting.add(name)
                continue
            try:
                worker.ask(contest.stand_up)
            except Lost:
                self.end(name)

    def end(self, name: str) -> None:
        worker = self.kept.pop(name, None)
        if worker is not None:
            worker.end("put away")  # killed at once: it holds nothing that must be written down

    def end_solutions(self) -> None:
        for name in [name for name in self.kept if name.startswith(CANDIDATE)]:
            self.end(name)

    def close(self) -> None:
        for name in list(self.kept):
            self.end(name)
        self.folder.cleanup()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _worth_again(wanted: Mapping[str, Contestant], name: str) -> bool:
    """A baseline that fell while it was prepared may stand without its graph; a solution that falls has fallen."""
    return wanted[name].graph and not name.startswith(CANDIDATE)


def time_case(
    crew: Crew,
    contestants: Mapping[str, Contestant],
    *,
    processes: int,
    rounds: int,
    at_once: int,
    keep: bool = False,
) -> Taken:
    """Blocks of every contestant, each launch of it, in so many processes, at most `at_once` of them alive together.

    `keep`: the next case has the same baselines, which stay seated where all fit at once.
    """
    taken = Taken()
    names = [(who, number) for number in range(processes) for who in contestants]
    crew.rest(sorted(crew.sitting - {f"{who} #{number}" for who, number in names}))
    crew.sitting.clear()
    whole = max(1, at_once // len(contestants)) * len(contestants)
    size = whole if at_once >= len(contestants) else max(1, at_once)
    for begin in range(0, len(names), size):
        chosen = names[begin : begin + size]
        if size < len(contestants):  # tables so large that whoever is not timed must not hold one
            for name in list(crew.kept):
                crew.end(name)
        _time_group(crew, contestants, chosen, rounds, taken, keep=keep and size >= len(names))
        if taken.ratio is not None and taken.ratio > LIE:
            break
        if any(who == CANDIDATE for who, _ in chosen) and CANDIDATE not in taken.blocks:
            break  # nothing to compare with
    return taken


def _time_group(
    crew: Crew,
    contestants: Mapping[str, Contestant],
    chosen: Sequence[tuple[str, int]],
    rounds: int,
    taken: Taken,
    *,
    keep: bool,
) -> None:
    began = time.monotonic()
    wanted = {}
    for who, number in chosen:
        spoilt = who in taken.seated and bool(taken.seated[who].no_graph)
        contestant = replace(contestants[who], judged=number == 0)
        wanted[f"{who} #{number}"] = replace(contestant, graph=False) if spoilt else contestant
    owner = {f"{who} #{number}": who for who, number in chosen}
    ready, lost = crew.seat(wanted)
    for name, why in lost.items():
        taken.lost.setdefault(owner[name], why)
    for name, (_, said) in ready.items():
        taken.seated.setdefault(owner[name], said)
        if said.no_graph:
            taken.lost.setdefault(arm_name(owner[name], GRAPH), said.no_graph)
        if said.peak_bytes is not None:
            taken.peaks[owner[name]] = max(taken.peaks.get(owner[name], 0), said.peak_bytes)
    _spend(taken, "prepared", began)
    if _solution_is_out(ready, owner, taken):
        crew.rest(list(wanted), keep=keep)
        return
    began = time.monotonic()
    walls = _look(ready, owner, taken)
    _spend(taken, "looked at", began)
    if taken.ratio is None or taken.ratio <= LIE:
        began = time.monotonic()
        _take(ready, owner, walls, rounds, taken, on_cpu=crew.device == "cpu")
        _spend(taken, "timed", began)
    began = time.monotonic()
    crew.rest(list(wanted), keep=keep)
    _spend(taken, "put away", began)


def _spend(taken: Taken, stage: str, began: float) -> None:
    taken.seconds[stage] = round(taken.seconds.get(stage, 0.0) + time.monotonic() - began, 3)


def _solution_is_out(ready: Mapping[str, tuple[Worker, Seated]], owner: Mapping[str, str], taken: Taken) -> bool:
    """Nothing is timed for a solution that did not come or is wrong; alone in its group a baseline is timed anyway."""
    if CANDIDATE not in owner.values():
        return False
    seated = taken.seated.get(CANDIDATE)
    there = any(owner[name] == CANDIDATE for name in ready)
    return not there or (seated is not None and seated.agreement is not None and not seated.agreement.agrees)


def _look(
    ready: Mapping[str, tuple[Worker, Seated]], owner: Mapping[str, str], taken: Taken
) -> dict[tuple[str, str], float]:
    """Hold the parent's clock against the solution's processes; microseconds a step by that clock."""
    walls: dict[tuple[str, str], float] = {}
    for name, (worker, said) in ready.items():
        if owner[name] != CANDIDATE:
            continue
        for launch in said.step_us:
            try:
                ratio, step_us = clock_ratio(worker, launch, said.calls[launch])
            except Lost as why:
                taken.lost.setdefault(arm_name(CANDIDATE, launch), str(why))
                continue
            walls[name, launch] = step_us
            taken.ratio = max(ratio, taken.ratio or 0.0)
    return walls


def clock_ratio(worker: Asked, launch: str, calls: int, block_us: float = BLOCK_US) -> tuple[float, float]:
    """(how much longer a step takes by this process's clock than the worker says, microseconds a step by this clock).

    By the slope over two lengths: what both have in common (the message, the first launch) drops out. The least of a
    few looks counts, as this process may be interrupted. Raises Lost.
    """
    question = partial(contest.block, launch=launch)
    steps = min(max(int(block_us / max(_wall_us(worker, question, 1)[0], 1.0)), 1), 60)
    longer = 4 * steps if steps > 1 else 2
    least, step_us = float("inf"), 0.0
    for _ in range(LOOKS):
        (short_us, short_said), (long_us, long_said) = (_wall_us(worker, question, n) for n in (steps, longer))
        slope, claim = (long_us - short_us) / (longer - steps), (long_said - short_said) * calls / (longer - steps)
        ratio = max(slope - LIE_US, 0.0) / max(claim, 1e-3)
        if ratio < least:
            least, step_us = ratio, slope
        if least <= LIE:
            break
    return least, max(step_us, 1.0)


def _wall_us(worker: Asked, question: Callable[..., Any], steps: int) -> tuple[float, float]:
    """(microseconds by this clock, sum of what the worker says)."""
    began = time.perf_counter()
    said = worker.ask(question, steps)
    return (time.perf_counter() - began) * 1e6, float(sum(said))


def _take(
    ready: Mapping[str, tuple[Worker, Seated]],
    owner: Mapping[str, str],
    walls: Mapping[tuple[str, str], float],
    rounds: int,
    taken: Taken,
    *,
    on_cpu: bool,
) -> None:
    """Blocks in turns: of each process each launch."""
    workers: dict[str, Worker] = {}
    questions: dict[str, Callable[..., Any]] = {}
    steps: dict[str, int] = {}
    arms: dict[str, str] = {}
    for name, (worker, said) in ready.items():
        for launch, step_us in said.step_us.items():
            key = f"{name} {launch}"
            workers[key], questions[key] = worker, partial(contest.block, launch=launch)
            steps[key] = steps_of_block(max(step_us, walls.get((name, launch), 0.0)), on_cpu=on_cpu)
            arms[key] = arm_name(owner[name], launch)
    blocks, lost = measure.take_turns(workers, steps, rounds, questions)
    for key, why in lost.items():
        taken.lost.setdefault(arms[key], why)
    for key, found in blocks.items():
        taken.blocks.setdefault(arms[key], []).append(found)


def steps_of_block(step_us: float, *, on_cpu: bool = False) -> int:
    """How many steps a block holds, fixed before the first is timed: one, where a step is long already."""
    wanted = (CPU_BLOCK_US if on_cpu else BLOCK_US) / max(step_us, 1e-3)
    return int(min(max(wanted, 1), MOST_STEPS))


def room(parameter_bytes: int, device_bytes: int | None, wanted: int) -> int:
    """How many processes may hold their tables at once.

    Each needs them once, and once more while a solution or a library is built; of large ones only the library does.
    """
    if device_bytes is None:
        return wanted
    beside = WORK_BYTES + CONTEXT_BYTES
    free = MEMORY_SHARE * device_bytes
    if parameter_bytes > contest.LARGE_BYTES:
        fit = (free - parameter_bytes) / (parameter_bytes + beside)
    else:
        fit = free / (2 * parameter_bytes + beside)
    return max(1, min(wanted, int(fit)))
