"""Where a verification's seconds go: `python -m addrfrac.verification.breakdown TARGET... [--device cuda] [--quick]`.

Every stage and every step of the examination is timed from outside; round trips are counted by request.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

from addrfrac.verification import check, examine, preparation, stopwatch
from addrfrac.verification.processes import Server, start_server
from addrfrac.verification.records import Verdict
from addrfrac.verification.sources import Target, find_targets

_STEPS = (
    "build",
    "distributions",
    "probes",
    "writes",
    "state",
    "sequence",
    "stability",
    "repeats",
    "gradients",
    "endurance",
    "special",
    "evidence",
    "tripwires",
    "sealed",
    "shapes",
    "processes",
)


class Stages:
    """Seconds by stage, in the order in which stages were first entered."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Time every call of a function of a module or class from now on."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.seconds.setdefault(name, 0.0)
            started = time.monotonic()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.monotonic() - started

        setattr(owner, attribute, timed)


def watched() -> Stages:
    """Stages of all verifications of this process from now on."""
    stages = Stages()
    stages.watch(check, "prepare", "exam")
    stages.watch(check, "examine", "values")
    for step in _STEPS:
        stages.watch(examine, f"_{step}", f"values: {step}")
    stages.watch(preparation.Preparation, "trace", "wait for the trace")
    stages.watch(preparation.Preparation, "all_ready", "wait for timing processes")
    stages.watch(stopwatch, "time_turns", "timing: blocks")
    stages.watch(stopwatch, "_timed_outputs", "timing: outputs judged")
    stages.watch(stopwatch, "measure", "timing")
    stages.watch(preparation.Preparation, "close", "ending processes")
    return stages


def table(stages: Stages, server: Server, seconds: float) -> str:
    """Stages and round trips as text."""
    lines = [f"{seconds:8.2f} s  in all"]
    lines += [f"{spent:8.2f} s  {name}" for name, spent in stages.seconds.items()]
    trips = sum(server.trips.values())
    asked = sum(server.asked_s.values())
    lines.append(f"{trips} round trips, {asked:.2f} s in them (of several processes at once)")
    for name, count in server.trips.most_common():
        lines.append(f"{server.asked_s[name]:8.2f} s  {count:5d} x {name}")
    return "\n".join(lines)


def verify_watched(stages: Stages, server: Server, target: Target, *, quick: bool) -> tuple[Verdict, str]:
    """One verdict and the table of its seconds."""
    server.trips.clear()
    server.asked_s.clear()
    stages.seconds.clear()
    started = time.monotonic()
    verdict = check.check_target(server, target, quick=quick)
    return verdict, table(stages, server, time.monotonic() - started)


def main() -> None:
    """Verify each target and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    stages = watched()
    started = time.monotonic()
    with start_server(options.device) as server:
        print(
            f"{time.monotonic() - started:8.2f} s  server (layers left out: {', '.join(sorted(server.skip)) or 'none'})"
        )
        for target in find_targets(options.targets, ""):
            verdict, text = verify_watched(stages, server, target, quick=options.quick)
            print(
                f"\n{verdict.name}: {verdict.status}: {verdict.reason}\n{verdict.speed.verdict} {verdict.speed.launch}"
            )
            print(text, flush=True)


if __name__ == "__main__":
    main()
