"""The published harnesses in one pass: reference and candidate in, every comparison to the end and the naive clock out.

Runs in the candidate's own process, as those harnesses do; what it says is theirs to believe. Where they stop at the
first failure this goes on, so that any of their verdicts, at any tolerance, follows from the figures.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from addrfrac.verification import channel
from addrfrac.verification.foreign import Raised, attempt
from addrfrac.verification.inprocess import SCALES, placed, scaled
from addrfrac.verification.processes import Worker
from addrfrac.verification.sources import Target
from addrfrac.verification.targets import Loaded

WARM_UPS = 3
_CHUNK = 1 << 24
"""Numbers compared at a time: outputs of some problems fill gigabytes, and fp64 copies of them would not fit."""


@dataclass(slots=True, kw_only=True)
class Pair:
    """Both sides as the first seed built them, with its inputs; what is timed."""

    model: Any
    new: Any
    inputs: list[Any]


def compare_to_the_end(
    problem: Loaded, solution: Loaded, calls: Sequence[Sequence[Any]], device: torch.device, dtype: str
) -> tuple[list[dict[str, Any]], Pair | None]:
    """In the worker: a row for each (seed, distribution), and the pair of the first seed; None where none was built."""
    rows: list[dict[str, Any]] = []
    first: Pair | None = None
    for seed in dict.fromkeys(int(seed) for seed, _ in calls):
        names = [str(name) for each, name in calls if each == seed]
        torch.manual_seed(seed)
        init = problem.get_init_inputs()
        torch.manual_seed(seed)
        model = placed(problem.build(*init), device, dtype)
        torch.manual_seed(seed)
        new = attempt(solution.build, *init)
        if isinstance(new, Raised):
            said = f"constructor raised {new.type}: {new.text[:100]}"
            rows += [_row(seed, name, dtype, raised=said) for name in names]
            continue
        new = placed(new, device, dtype)
        torch.manual_seed(seed)
        base = list(problem.get_inputs())
        for name in names:
            inputs = [scaled(value, SCALES[name], device, dtype) for value in base]
            rows.append(_compared(model, new, inputs, seed, name, dtype))
        if first is None:
            first = Pair(model=model, new=new, inputs=[scaled(value, 1.0, device, dtype) for value in base])
    return rows, first


def _row(seed: int, distribution: str, dtype: str, **found: Any) -> dict[str, Any]:
    blank = {
        "raised": "",
        "skipped": "",
        "tolerance_needed": None,
        "relative_frobenius": None,
        "normalised_max": None,
        "written_share": None,
        "reference_written_share": None,
        "rows_sum_to_one": None,
        "overflows": False,
        "not_finite": False,
    }
    return {"seed": seed, "distribution": distribution, "dtype": dtype} | blank | found


def _compared(model: Any, new: Any, inputs: list[Any], seed: int, name: str, dtype: str) -> dict[str, Any]:
    with torch.no_grad():
        expected = attempt(model, *inputs)
        if isinstance(expected, Raised):
            return _row(seed, name, dtype, skipped=f"the reference raised {expected.type}")
        found = attempt(new, *inputs)
    if isinstance(found, Raised):
        return _row(seed, name, dtype, raised=f"raised {found.type}: {found.text[:100]}")
    ours = expected if isinstance(expected, (list, tuple)) else [expected]
    theirs = found if isinstance(found, (list, tuple)) else [found]
    if len(ours) != len(theirs):
        return _row(seed, name, dtype, raised="another number of outputs")
    figures: list[dict[str, Any]] = []
    for reference, output in zip(ours, theirs, strict=True):
        if isinstance(reference, torch.Tensor):
            said = attempt(figures_of, reference, output)
            if isinstance(said, Raised):
                return _row(seed, name, dtype, raised=f"comparison raised {said.type}: {said.text[:100]}")
            if isinstance(said, str):
                return _row(seed, name, dtype, raised=said)
            figures.append(said)
    if not figures:
        return _row(seed, name, dtype, skipped="nothing to compare")
    kept = dtype or str(next(r.dtype for r in ours if isinstance(r, torch.Tensor))).removeprefix("torch.")
    return _row(seed, name, kept, **_worst(figures))


def figures_of(reference: torch.Tensor, output: Any) -> dict[str, Any] | str:
    """How far one output is from the reference's; in words where their shapes differ."""
    if reference.shape != output.shape:
        return f"shape {tuple(output.shape)}, not {tuple(reference.shape)}"
    needed = error_square = true_square = largest_error = largest = 0.0
    written = reference_written = 0
    overflows = not_finite = False
    flat, found = reference.reshape(-1), output.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        wanted, got = flat[start : start + _CHUNK], found[start : start + _CHUNK]
        true, mine = wanted.double(), got.to(wanted.device).double()
        error = torch.where(true == mine, 0.0, (mine - true).abs())  # equal infinities are equal
        overflows = overflows or not bool(torch.isfinite(true).all())
        not_finite = not_finite or not bool(torch.isfinite(error).all())
        needed = max(needed, float((error / (1.0 + true.abs())).max()))
        error_square += float(error.square().sum())
        true_square += float(true.square().sum())
        largest_error, largest = max(largest_error, float(error.max())), max(largest, float(true.abs().max()))
        written += int((got != 0).sum())
        reference_written += int((wanted != 0).sum())
    count = max(reference.numel(), 1)
    return {
        "tolerance_needed": None if not_finite else needed,
        "relative_frobenius": _ratio(math.sqrt(error_square), math.sqrt(true_square)),
        "normalised_max": _ratio(largest_error, largest),
        "written_share": written / count,
        "reference_written_share": reference_written / count,
        "rows_sum_to_one": _rows_sum_to_one(reference, output),
        "overflows": overflows,
        "not_finite": not_finite,
    }


def _ratio(part: float, whole: float) -> float | None:
    """None where it says nothing, as of an error against zeros: such a harness gets NaN and refuses."""
    found = part / whole if whole else math.nan
    return found if math.isfinite(found) else None


def _rows_sum_to_one(reference: torch.Tensor, output: torch.Tensor) -> bool | None:
    if not (reference.ndim and reference.shape[-1] > 1 and reference.is_floating_point()):
        return None
    if not bool(((reference.sum(-1, dtype=torch.float64) - 1).abs() < 1e-4).all()):
        return None
    return bool(((output.sum(-1, dtype=torch.float64) - 1).abs() < 1e-3).all())


def _worst(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several outputs the worst figure of each kind."""
    worst = dict(figures[0])
    for one in figures[1:]:
        for name in ("tolerance_needed", "relative_frobenius", "normalised_max"):
            both = (worst[name], one[name])
            worst[name] = None if None in both else max(both)
        if one["reference_written_share"] - one["written_share"] > (
            worst["reference_written_share"] - worst["written_share"]
        ):
            worst |= {key: one[key] for key in ("written_share", "reference_written_share")}
        sums = [each for each in (worst["rows_sum_to_one"], one["rows_sum_to_one"]) if each is not None]
        worst["rows_sum_to_one"] = all(sums) if sums else None
        worst |= {key: worst[key] or one[key] for key in ("overflows", "not_finite")}
    return worst


# --- the naive clock ------------------------------------------------------------------------------------------


def naive_times(pair: Pair | None, trials: int, device: torch.device) -> dict[str, Any]:
    """In the worker: microseconds a call of each side, between events, and the most memory that a call took."""
    if pair is None:
        return {"times": {}, "notes": {"candidate": "nothing was built"}, "peaks": {}}
    times: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    peaks: dict[str, int] = {}
    sides = (("eager-strict", pair.model, False), ("candidate", pair.new, False), ("eager-tf32", pair.model, True))
    before = torch.backends.cuda.matmul.allow_tf32
    for name, model, tf32 in sides:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            taken = attempt(_timed, model, pair.inputs, trials, device)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        if isinstance(taken, Raised):
            notes[name] = f"raised {taken.type}: {taken.text[:100]}"
            continue
        times[name], peak = taken
        if peak is not None:
            peaks[name] = peak
    return {"times": times, "notes": notes, "peaks": peaks}


def _timed(model: Any, inputs: list[Any], trials: int, device: torch.device) -> tuple[list[float], int | None]:
    on_gpu = device.type == "cuda"
    with torch.no_grad():
        for _ in range(WARM_UPS):
            model(*inputs)
        if not on_gpu:
            return [_on_host(model, inputs) for _ in range(trials)], None
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        held = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        samples = [_between_events(model, inputs, device) for _ in range(trials)]
        return samples, torch.cuda.max_memory_allocated(device) - held


def _on_host(model: Callable[..., Any], inputs: list[Any]) -> float:
    began = time.perf_counter()
    model(*inputs)
    return (time.perf_counter() - began) * 1e6


def _between_events(model: Callable[..., Any], inputs: list[Any], device: torch.device) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    model(*inputs)
    end.record()
    torch.cuda.synchronize(device)
    return float(start.elapsed_time(end)) * 1e3


# --- the parent's side ----------------------------------------------------------------------------------------


def ask_to_compare(worker: Worker, target: Target, calls: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Rows of all these (seed, distribution). Raises WorkerFailure; what loading raised stands in every row."""
    fds = []
    texts = [target.problem.text.encode(), target.solution.text.encode()]
    for text in texts:
        fd = channel.memory_file(max(1, len(text)), sealed=True)
        channel.write_all(fd, text, 0)
        fds.append(fd)
    message = {
        "op": "harness",
        "phase": "compare",
        "sizes": [len(text) for text in texts],
        "module": target.solution.module,
        "case": target.case,
        "calls": [list(call) for call in calls],
        "dtype": target.dtype,
    }
    try:
        answer = worker.ask(message, tuple(fds))
    finally:
        for fd in fds:
            os.close(fd)
    if "raised" in answer:
        said = f"{answer['raised'].get('type')}: {answer['raised'].get('text')}"
        return [_row(seed, name, target.dtype, raised=said) for seed, name in calls]
    return list(answer["rows"])


def ask_for_times(worker: Worker, trials: int) -> dict[str, Any]:
    """What the harnesses' clock says. Raises WorkerFailure."""
    answer = worker.ask({"op": "harness", "phase": "times", "trials": trials})
    if "raised" in answer:
        said = f"{answer['raised'].get('type')}: {answer['raised'].get('text')}"
        return {"times": {}, "notes": {"candidate": said}, "peaks": {}}
    return answer
