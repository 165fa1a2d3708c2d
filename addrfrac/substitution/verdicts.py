"""Verdicts of groups of sites, kept from run to run: a verdict holds for one source, signature, device and versions."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from addrfrac import __version__
from addrfrac.verification.check import check_target
from addrfrac.verification.processes import start_server
from addrfrac.verification.records import Verdict
from addrfrac.verification.sources import Source, Target

PASSED = "passed"
ABREAST = {"cuda": 4}
"""Verifications at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A kernel at a group of sites, as the verifier takes it."""

    group: str
    problem: str
    solution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the verifier said of it."""

    status: str
    reason: str
    cached: bool


def cache_file() -> Path:
    """Where verdicts are kept: ADDRFRAC_CACHE, else the user's cache folder."""
    home = os.environ.get("ADDRFRAC_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "addrfrac" / "site-verdicts.json"


def machine(device: str) -> str:
    """The device and the versions that a verdict holds for."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    try:
        import triton

        compiler = str(triton.__version__)
    except ImportError:
        compiler = "none"
    return f"{name}|torch {torch.__version__}|triton {compiler}|addrfrac {__version__}"


def known(device: str, where: str = "") -> dict[str, Answer]:
    """Group -> what was found of it on this machine before; `where` is what `machine` says, if it is known."""
    found = _read().get(where or machine(device), {})
    return {group: Answer(status=each[0], reason=each[1], cached=True) for group, each in found.items()}


def _read() -> dict[str, dict[str, list[str]]]:
    try:
        content = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _keep(where: str, answers: Mapping[str, Answer]) -> None:
    from addrfrac.store import write_whole

    content = _read()
    content.setdefault(where, {}).update({group: [answer.status, answer.reason] for group, answer in answers.items()})
    file = cache_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(content, indent=1).encode())
    except OSError:
        return  # a cache that cannot be written is verified anew


def _verified(targets: Sequence[Target], device: str, progress: Callable[[str], None] | None) -> list[Verdict]:
    """Verdicts on values by the quick protocol; times are taken in the model, where they count.

    On a GPU some are verified side by side, each behind a server of its own: a verdict is mostly waiting for processes.
    """
    abreast = min(ABREAST.get(device, 1), len(targets))
    alone = threading.Lock()  # a trace must show one candidate's work

    def share(first: int) -> list[Verdict]:
        found = []
        with start_server(device) as server:
            for target in targets[first::abreast]:
                verdict = check_target(server, target, quick=True, timing=False, alone=alone)
                found.append(verdict)
                if progress is not None:
                    progress(f"{verdict.name}: {verdict.status} ({verdict.seconds:.1f} s)")
        return found

    with ThreadPoolExecutor(abreast) as pool:
        shares = list(pool.map(share, range(abreast)))
    return [shares[number % abreast][number // abreast] for number in range(len(targets))]


def asked(
    questions: Sequence[Question],
    device: str,
    *,
    use_cache: bool = True,
    where: str = "",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Answer]:
    """Group -> verdict, by the quick protocol in isolation, or from before."""
    where = where or machine(device)
    found = {group: each for group, each in known(device, where).items() if use_cache}
    fresh = [each for each in questions if each.group not in found]
    targets = [
        Target(name=each.group, problem=Source(text=each.problem), solution=Source(text=each.solution))
        for each in fresh
    ]
    verdicts = _verified(targets, device, progress) if targets else []
    made = {
        question.group: Answer(status=str(verdict.status.value), reason=verdict.reason, cached=False)
        for question, verdict in zip(fresh, verdicts, strict=True)
    }
    if use_cache:
        _keep(where, made)
    return {each.group: (found | made)[each.group] for each in questions}
