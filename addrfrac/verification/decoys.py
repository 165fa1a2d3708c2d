"""Decoys: answers that compute nothing of the kind. A problem whose whole exam one of them passes is weak."""

from __future__ import annotations

from collections.abc import Callable

import torch

from addrfrac.verification.closeness import judge
from addrfrac.verification.exam import Maker, Trial
from addrfrac.verification.records import PrecisionClass
from addrfrac.verification.reference import Arguments, ReferenceRaised

Decoy = Callable[[torch.Tensor, Trial], torch.Tensor]


def _row_mean(truth: torch.Tensor, _trial: Trial) -> torch.Tensor:
    return truth.mean(-1, keepdim=True).expand_as(truth).contiguous() if truth.ndim else truth * 0


def _rank_one(truth: torch.Tensor, _trial: Trial) -> torch.Tensor:
    if truth.ndim < 2 or min(truth.shape[-2:]) < 2:
        return torch.zeros_like(truth)
    mean = truth.mean((-1, -2), keepdim=True)
    return truth.mean(-1, keepdim=True) * truth.mean(-2, keepdim=True) / torch.where(mean == 0, 1.0, mean)


def _copy_of_input(truth: torch.Tensor, trial: Trial) -> torch.Tensor:
    for tensor in trial.arguments.tensors:
        if tensor.shape == truth.shape:
            return tensor.double()
    return torch.zeros_like(truth)


DECOYS: dict[str, Decoy] = {
    "zeros": lambda truth, _trial: torch.zeros_like(truth),
    "ones": lambda truth, _trial: torch.ones_like(truth),
    "mean": lambda truth, _trial: torch.full_like(truth, float(truth.mean())),
    "row mean": _row_mean,
    "rank 1": _rank_one,
    "copy of an input": _copy_of_input,
}


def find_decoy(maker: Maker) -> str:
    """Name of a decoy that passes every trial of the exam; '' where none does."""
    trials = maker.exam.distributions
    for name, decoy in DECOYS.items():
        answers = [[_fill(decoy, s.truth, t) for s in t.sticks] for t in trials]
        if not all(_passes(outputs, trial) for outputs, trial in zip(answers, trials, strict=True)):
            continue
        exact = all(
            bool(torch.equal(output, stick.truth))
            for outputs, trial in zip(answers, trials, strict=True)
            for output, stick in zip(outputs, trial.sticks, strict=True)
        )
        if not exact:  # what is equal everywhere is no decoy: the problem asks for just that (a copy)
            return name
    for name, share in (("half of the data", 2), ("statistics of 1/64 of the data", 64)):
        if _sampled_passes(maker, share):
            return name
    return _parameters_idle(maker)


def _fill(decoy: Decoy, truth: torch.Tensor, trial: Trial) -> torch.Tensor:
    if truth.is_complex() or truth.numel() == 0:
        return torch.zeros_like(truth)
    return decoy(truth.double(), trial).to(truth.dtype)


def _passes(outputs: list[torch.Tensor], trial: Trial) -> bool:
    return all(
        judge(output, stick).precision not in (PrecisionClass.NONE, PrecisionClass.APPROX)
        for output, stick in zip(outputs, trial.sticks, strict=True)
    )


def _sampled_passes(maker: Maker, share: int) -> bool:
    """Whether the reference, shown a part of the data over and over, still passes."""
    seen = False
    for trial in [t for t in maker.exam.trials if t.kind in ("distribution", "probe")]:
        tensors = []
        for tensor in trial.arguments.tensors:
            if tensor.is_floating_point() and tensor.ndim and tensor.shape[-1] >= 2 * share:
                part = tensor[..., : tensor.shape[-1] // share]
                repeats = -(-tensor.shape[-1] // part.shape[-1])
                tensors.append(part.repeat(*([1] * (tensor.ndim - 1)), repeats)[..., : tensor.shape[-1]].contiguous())
                seen = True
            else:
                tensors.append(tensor)
        if not seen:
            return False
        maker.stand(trial.construct, trial.state)
        try:
            outputs = maker.reference.truth(
                Arguments(tree=trial.arguments.tree, tensors=tensors),
                how="exact",
                seed=trial.seed,
                dtype=maker.exam.dtype,
            )
        except ReferenceRaised:
            return False
        if len(outputs) != len(trial.sticks) or not _passes(outputs, trial):
            return False
    return True


def _parameters_idle(maker: Maker) -> str:
    """'affine dropped' where no trial's output depends on the parameters' values."""
    construct = maker.exam.constructs[0]
    if len(construct.states) < 2 or not any(entry.kind == "parameter" for entry in construct.entries):
        return ""
    for trial in maker.exam.distributions:
        if trial.state == 0:
            continue
        maker.stand(0, 0)
        try:
            outputs = maker.reference.truth(trial.arguments, how="exact", seed=trial.seed, dtype=maker.exam.dtype)
        except ReferenceRaised:
            return ""
        if not _passes(outputs, trial):
            return ""
    return "parameters dropped"
