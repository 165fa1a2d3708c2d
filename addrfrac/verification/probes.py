"""Probes: one element changed, or two swapped, in the same storage; the output must change as the truth does."""

from __future__ import annotations

from dataclasses import replace

import torch

from addrfrac.verification.exam import Maker, ModelState, Trial, Unverifiable, change_between
from addrfrac.verification.inputs import elements
from addrfrac.verification.reference import Arguments, ReferenceRaised

_SIZES = (64.0, 8.0, 1.0)


def make_probes(maker: Maker, count: int) -> None:
    """Probe trials, each against the trial they all start from."""
    exam = maker.exam
    start = next((t for t in exam.distributions if t.name == "signs"), exam.distributions[-1])
    positions = [i for i, t in enumerate(start.arguments.tensors) if t.is_floating_point() and t.numel() > 1]
    exam.trials += _parameter_probes(maker, start, 2 if count < 8 else 4)
    if not positions:
        exam.notes.append("no floating input to probe")
        return
    made: list[Trial] = []
    for published in [t for t in exam.distributions if t.name == "published"]:
        within = [_probe_within(maker, published, positions[i % len(positions)], i) for i in range(count // 4)]
        exam.trials += [trial for trial in within if trial is not None]
    for index in range(count):
        probe = _probe(maker, start, positions[index % len(positions)], index, count)
        if probe is not None:
            made.append(probe)
    for index in range(2):
        swap = _swap(maker, start, positions[index % len(positions)])
        if swap is not None:
            made.append(swap)
    exam.trials += made
    if len(made) < count // 2:
        exam.notes.append(f"{len(made)} of {count} probes can be told from rounding")


def _parameter_probes(maker: Maker, start: Trial, count: int) -> list[Trial]:
    """One element of one parameter changed in place: what was packed from it is stale now."""
    made = maker.exam.constructs[0]
    values = made.states[start.state].values
    weights = [
        i
        for i, e in enumerate(made.entries)
        if e.kind == "parameter" and e.value.is_floating_point() and e.value.numel()
    ]
    found: list[Trial] = []
    for index in range(count if values and weights else 0):
        position = weights[index % len(weights)]
        element = maker.seed() % values[position].numel()
        for size in (8.0, 64.0):
            changed = [v.clone() for v in values]
            flat = elements(changed[position])
            flat[element] += size * (float(flat.double().square().mean().sqrt()) or 1.0)
            made.states.append(ModelState(name="one parameter changed", how="in place", values=changed))
            trial = _compared(
                maker, start, start.arguments.tensors, f"parameter probe {index}", "probe", len(made.states) - 1
            )
            if trial is not None:
                found.append(trial)
                break
            made.states.pop()
    return found


def _probe(maker: Maker, start: Trial, position: int, index: int, count: int) -> Trial | None:
    """A change of one element, as small as can still be told from rounding noise."""
    flat_size = start.arguments.tensors[position].numel()
    element = maker.seed() % flat_size
    if index == 0:
        element = flat_size - 1
    sign = 1.0 if index % 2 else -1.0
    order = _SIZES if index % 3 else _SIZES[1:]
    for size in order:
        tensors = [t.clone() for t in start.arguments.tensors]
        flat = elements(tensors[position])
        rms = float(flat.double().square().mean().sqrt()) or 1.0
        flat[element] += sign * size * rms
        trial = _compared(maker, start, tensors, f"probe {index}", "probe")
        if trial is not None:
            return trial
    return None


def _probe_within(maker: Maker, start: Trial, position: int, index: int) -> Trial | None:
    """One of the published numbers becomes another of their range: nothing but the answer tells it from them."""
    tensors = [t.clone() for t in start.arguments.tensors]
    flat = elements(tensors[position])
    element = maker.seed() % flat.numel()
    low, high = flat.min(), flat.max()
    flat[element] = high if float(flat[element]) < float(low + high) / 2 else low
    return _compared(maker, start, tensors, f"probe {index} within the published range", "probe")


def _swap(maker: Maker, start: Trial, position: int) -> Trial | None:
    """Two unlike elements exchanged: sums and sums of squares stay."""
    tensors = [t.clone() for t in start.arguments.tensors]
    flat = elements(tensors[position])
    first, second = int(flat.argmax()), int(flat.argmin())
    if maker.seed() % 2:
        second = maker.seed() % flat.numel()
    if float(flat[first]) == float(flat[second]):
        return None
    pair = torch.tensor([first, second])
    flat[pair] = flat[pair.flip(0)].clone()
    return _compared(maker, start, tensors, "swap", "swap")


def _compared(
    maker: Maker, start: Trial, tensors: list[torch.Tensor], name: str, kind: str, state: int | None = None
) -> Trial | None:
    arguments = Arguments(tree=start.arguments.tree, tensors=tensors)
    try:
        trial = maker.trial(name, kind, arguments, start.construct, start.state if state is None else state)
    except (ReferenceRaised, Unverifiable):
        return None
    change = change_between(start, trial, maker.exam)
    if change is None and kind == "probe" and not _whole_numbers_change(start, trial):
        return None
    return replace(trial, change=change)


def _whole_numbers_change(start: Trial, trial: Trial) -> bool:
    """Whether an integer output is another: it is compared exactly, so any change can be told."""
    return any(
        new.ambiguous is not None and old.truth.shape == new.truth.shape and not bool((old.truth == new.truth).all())
        for old, new in zip(start.sticks, trial.sticks, strict=True)
    )
