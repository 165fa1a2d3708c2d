"""Steps in, whether one still computes what the other computes out: both against a run in higher precision.

`record` runs in the process of an arm and leaves its outputs in a file; `judge` compares three such files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from addrfrac.records import Configuration, Parity
from addrfrac.workloads.step import SEED, Step

if TYPE_CHECKING:
    import torch

FEWEST_SAMPLES = 32
FEWEST_RUNS = 4
LONGEST_S = 40.0
"""For the runs of one arm, beyond the fewest: slow steps are judged on fewer samples, and it is said."""
TRAINING_STEPS = 6
OWN_BATCHES = 16
"""A step that brings its own batches in turn may begin with any of so many."""
MOST_VALUES = 1 << 23
GRADIENT_VALUES = 1 << 20
MOST_RATIO = 1.5
MOST_INEXACT_ERROR = 0.01
"""For arithmetic that is meant to be coarser (TF32 has ten bits of mantissa)."""
DRAWS = 2000
VOCABULARY = 100
"""Fewer columns than this are no vocabulary."""
# Against the base alone, where there is no truth: several roundings of the dtype, no more.
MOST_DIFFERENCE = {"bf16": 0.1, "amp-bf16": 0.1, "fp16": 0.02, "amp-fp16": 0.02, "tf32": 0.02, "fp32": 1e-3}

Rows = NDArray[np.float64]


# --- recording: in the process of an arm ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A tensor that a step hands to its model, and what may be put there."""

    tensor: Any
    mean: float = 0.0
    spread: float = 0.0
    """Of floats."""
    low: int = 0
    high: int = -1
    """Of ids; none where high is below low."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inputs:
    """The places of a step's inputs, found by one run of it."""

    places: tuple[Place, ...]
    owns_batches: bool
    """The step puts new inputs in place itself; nothing is redrawn then."""


def find_inputs(step: Step) -> Inputs:
    """The model's own input tensors, each once. To be called before anything is compiled: it hooks the model."""
    import torch

    if step.advance is not None or not isinstance(step.model, torch.nn.Module):
        return Inputs(places=(), owns_batches=step.advance is not None)
    found: dict[int, Any] = {}

    def note(module: Any, arguments: Any, named: Any) -> None:
        for tensor in _tensors((arguments, named)):
            found.setdefault(tensor.data_ptr(), tensor)

    # Before any other hook, which may hand on copies; seeded, and without dropout, because a training step learns.
    hook = step.model.register_forward_pre_hook(note, with_kwargs=True, prepend=True)
    torch.manual_seed(SEED)
    with _dropout_off(step.model):
        step.run()
    hook.remove()
    return Inputs(places=places(each for each in found.values() if not each.requires_grad), owns_batches=False)


def _tensors(tree: Any) -> Iterator[Any]:
    """Tensors in tuples, lists and mappings, in order; what else holds tensors (a KV cache) is left alone."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for name, value in tree.items():
            if "past_key_values" not in str(name) and "cache" not in str(name):
                yield from _tensors(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from _tensors(value)


def places(tensors: Iterable[torch.Tensor]) -> tuple[Place, ...]:
    """What may be put into each tensor: floats of its mean and spread, ids within its range.

    Integers that are constant, sorted (offsets, positions) or negative somewhere (ignored labels) stay as they are.
    """
    import torch

    found = []
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel():
            wide = tensor.double()
            mean, spread = float(f"{wide.mean():.2e}"), float(f"{wide.std(correction=0):.2e}")
            found.append(Place(tensor=tensor, mean=mean, spread=spread))
        elif not tensor.is_complex() and tensor.dtype is not torch.bool and _are_ids(tensor):
            low = int(tensor.min()) if tensor.numel() > 1 else 0
            found.append(Place(tensor=tensor, low=low, high=int(tensor.max())))
    return tuple(found)


def redraw(inputs: Inputs, turn: int) -> None:
    """New values of the same kind in the same places; they depend on the turn alone, so every arm sees the same."""
    import torch

    for number, place in enumerate(inputs.places):
        tensor = place.tensor
        source = torch.Generator(tensor.device).manual_seed(SEED + 1000 * turn + number)
        if place.high >= place.low:
            fresh = torch.randint(place.low, place.high + 1, tensor.shape, device=tensor.device, generator=source)
        else:
            fresh = torch.randn(tensor.shape, device=tensor.device, generator=source) * place.spread + place.mean
        tensor.copy_(fresh)


def _are_ids(tensor: torch.Tensor) -> bool:
    flat = tensor.flatten()
    if flat.numel() == 0 or int(flat.min()) < 0:
        return False
    # A single id is no constant: one token of one sequence in decoding.
    return flat.numel() == 1 or bool((flat[1:] < flat[:-1]).any())


def record(
    step: Step, inputs: Inputs, *, training: bool, extra_runs: int, path: Path, weights: str = "the same weights"
) -> None:
    """Run the step on redrawn inputs and save what came of it; `weights` says in words which it has."""
    import torch

    saved = _training_outputs(step, inputs) if training else _outputs(step, inputs, extra_runs)
    torch.save(saved | {"weights": weights}, path)


def _outputs(step: Step, inputs: Inputs, extra_runs: int) -> dict[str, Any]:
    """Rows of what the step returns: one list a run, one entry a tensor."""
    import torch

    runs: list[list[Any]] = []
    count = kept = 0
    began = time.monotonic()
    while len(runs) < max(count, 1) and (len(runs) < FEWEST_RUNS or time.monotonic() - began < LONGEST_S):
        torch.manual_seed(SEED + len(runs))
        if inputs.places:
            redraw(inputs, len(runs))
        tensors = [tensor for tensor in _tensors(_listed(step.run())) if tensor.is_floating_point() and tensor.numel()]
        if not tensors:
            return {"kind": "nothing"}
        if not runs:
            rows, values = _rows(tensors[0]).shape
            count = max(FEWEST_RUNS, -(-FEWEST_SAMPLES // rows)) if inputs.places or inputs.owns_batches else 1
            kept = max(1, min(rows, MOST_VALUES // (values * count)))
            count += extra_runs if inputs.owns_batches else 0
        runs.append([_kept(_rows(tensor), kept) for tensor in tensors])
    return {"kind": "outputs", "runs": runs, "owns_batches": inputs.owns_batches}


def _listed(output: Any) -> Any:
    """What holds tensors as attributes (torchrec) is no output that can be compared value by value."""
    return output if isinstance(output, Mapping | tuple | list) else [output]


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """(samples, values): tokens of a sequence model and images of a batch are samples; lone values form groups."""
    if tensor.ndim == 3:
        return tensor.reshape(-1, tensor.shape[-1])
    if tensor.ndim >= 2 and tensor[0].numel() > 1:
        return tensor.reshape(tensor.shape[0], -1)
    groups = min(FEWEST_SAMPLES, max(1, tensor.numel() // 8))
    return tensor.reshape(-1)[: tensor.numel() // groups * groups].reshape(groups, -1)


def _kept(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Rows evenly spaced, on the host, wide enough to hold them exactly."""
    import torch

    places = torch.linspace(0, rows.shape[0] - 1, min(count, rows.shape[0]), device=rows.device).round().long()
    chosen = rows.detach()[places]
    return chosen.cpu() if chosen.dtype is torch.float64 else chosen.float().cpu()


def _training_outputs(step: Step, inputs: Inputs) -> dict[str, Any]:
    """Losses and gradients of steps from the same weights, and where the weights went; dropout is off."""
    import torch

    if not isinstance(step.model, torch.nn.Module):
        return {"kind": "nothing"}
    parameters = {name: each for name, each in step.model.named_parameters() if each.requires_grad}
    # Evenly spaced: a step that forgets a part of a tensor shows.
    most = max(64, GRADIENT_VALUES // max(1, len(parameters)))
    start = {name: _thinned(each, most) for name, each in parameters.items()}
    losses: list[float] = []
    gradients: list[dict[str, Any]] = []
    with _dropout_off(step.model):
        for turn in range(TRAINING_STEPS):
            torch.manual_seed(SEED + turn)
            if inputs.places:
                redraw(inputs, turn)
            loss = step.run()
            losses.append(float(loss) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else float("nan"))
            gradients.append(
                {
                    name: _thinned(each.grad, most)
                    for name, each in parameters.items()
                    if each.grad is not None and not each.grad.is_sparse
                }
            )
    moved = {name: _thinned(each, most) - start[name] for name, each in parameters.items()}
    return {"kind": "training", "losses": losses, "gradients": gradients, "moved": moved}


def _thinned(tensor: torch.Tensor, most: int) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // most)].double().cpu()


@contextmanager
def _dropout_off(model: torch.nn.Module) -> Iterator[None]:
    """Dropout draws other masks in a compiled step than in an eager one, so a step is judged without."""
    modules: list[Any] = [each for each in model.modules() if type(each).__name__.startswith("Dropout")]
    before = [(each, each.p) for each in modules if hasattr(each, "p")]
    for module, _ in before:
        module.p = 0.0
    try:
        yield
    finally:
        for module, probability in before:
            module.p = probability


# --- the truth: the same weights in higher precision ----------------------------------------------------------


def truth_configuration(configuration: Configuration, weights_dtype: str = "") -> Configuration:
    """What the truth is built from: the same weights, without autocast and TF32.

    Of a model that is published in fp32 it is those weights, not their rounding to half precision: rounding is part of
    the error of the base then, and an arm that rounds other products of the same weights is judged on equal terms.
    """
    plain = configuration.dtype in ("bf16", "fp16", "fp32")
    return (
        configuration
        if plain and not as_published(configuration, weights_dtype)
        else replace(configuration, dtype="fp32")
    )


def as_published(configuration: Configuration, weights_dtype: str) -> bool:
    """Whether the truth has weights that the arms have rounded."""
    return weights_dtype == "fp32" and configuration.dtype in ("bf16", "fp16") and configuration.mode != "train"


def upcast(step: Step, configuration: Configuration) -> str:
    """Turn a step into the truth for arms of this configuration, in place; '' or why it cannot be.

    Weights that were rounded to half precision are widened to fp32, fp32 ones to fp64; what goes into the model is
    rounded as the arms' inputs are and widened on the way in.
    """
    import torch

    if not isinstance(step.model, torch.nn.Module):
        return "the step names no model whose weights could be widened"
    wide = torch.float64 if configuration.dtype in ("fp32", "tf32") else torch.float32
    lacking = _lacking_bytes(step.model, wide)
    if lacking:
        return f"a run in {str(wide).removeprefix('torch.')} lacks {lacking / 1e9:.1f} GB of memory"
    step.model.to(wide)
    modules: list[Any] = list(step.model.modules())
    for module in modules:
        if isinstance(vars(module).get("dtype"), torch.dtype):
            module.dtype = wide

    for state in step.optimizer.state.values() if step.optimizer is not None else ():
        for name, value in state.items():
            state[name] = value.to(wide) if isinstance(value, torch.Tensor) and value.numel() > 1 else value

    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(configuration.dtype, wide)

    def widen(module: Any, arguments: Any, named: Any) -> tuple[Any, Any]:
        return _widened(arguments, narrow, wide), _widened(named, narrow, wide)

    step.model.register_forward_pre_hook(widen, with_kwargs=True)
    return ""


def _lacking_bytes(model: torch.nn.Module, wide: torch.dtype) -> float:
    """How much memory the widened weights lack, leaving half of what is free to all else; 0 where they fit."""
    import torch

    parameters = list(model.parameters())
    if not parameters or parameters[0].device.type != "cuda":
        return 0.0
    needed = sum(each.numel() for each in parameters) * wide.itemsize
    free, _ = torch.cuda.mem_get_info(parameters[0].device)
    return float(max(0.0, needed - free / 2))


def _widened(tree: Any, narrow: torch.dtype, wide: torch.dtype) -> Any:
    import torch

    if isinstance(tree, torch.Tensor):
        return tree.to(narrow).to(wide) if tree.is_floating_point() else tree
    if isinstance(tree, tuple | list):
        return type(tree)(_widened(each, narrow, wide) for each in tree)
    if isinstance(tree, dict):
        return {name: _widened(each, narrow, wide) for name, each in tree.items()}
    for layer in getattr(tree, "layers", ()):  # a static KV cache, which keeps the dtype that it was filled in
        if isinstance(getattr(layer, "keys", None), torch.Tensor):
            layer.keys, layer.values = layer.keys.to(wide), layer.values.to(wide)
            layer.dtype = wide
    return tree


# --- judging: three files in, a verdict out -------------------------------------------------------------------


def judge(
    base: Path,
    arm: Path,
    truth: Path | None,
    configuration: Configuration,
    *,
    why_no_truth: str = "",
    exact: bool = True,
    language_model: bool = False,
) -> Parity:
    """Whether the arm's error is at most 1.5 times the base's, by the upper 95 % bound over samples.

    An arm whose arithmetic is meant to be coarser passes by its own error. Without a truth nothing passes, but an arm
    that differs from the base by more than roundings fails.
    """
    import torch

    of_base, of_arm = torch.load(base), torch.load(arm)
    if of_base["kind"] == "nothing" or of_arm["kind"] != of_base["kind"]:
        return _unjudged("the step returns nothing that could be compared")
    if truth is None:
        return _against_base(of_base, of_arm, configuration, why_no_truth)
    of_truth = torch.load(truth)
    if of_truth["kind"] == "training":
        return _judge_training(of_base, of_arm, of_truth, exact)
    return _judge_outputs(of_base, of_arm, of_truth, exact, language_model)


def _unjudged(why: str) -> Parity:
    return Parity(passed=None, error_ratio=None, base_error=None, arm_error=None, inputs=0, method=why)


def _judge_outputs(
    base: dict[str, Any], arm: dict[str, Any], truth: dict[str, Any], exact: bool, language_model: bool
) -> Parity:
    runs = min(len(each["runs"]) for each in (base, arm, truth))
    base, arm = {**base, "runs": base["runs"][:runs]}, {**arm, "runs": arm["runs"][:runs]}
    if [_shapes(run) for run in arm["runs"]] != [_shapes(run) for run in truth["runs"][:runs]]:
        return Parity(
            passed=False,
            error_ratio=None,
            base_error=None,
            arm_error=None,
            inputs=0,
            method="the arm returns tensors of other shapes than the base",
        )
    base_first, arm_first = _aligned(base, truth), _aligned(arm, truth)
    of_base = _errors(base["runs"], truth["runs"][base_first : base_first + runs])
    of_arm = _errors(arm["runs"], truth["runs"][arm_first : arm_first + runs])
    method = (
        f"relative error of {len(of_arm)} samples of {runs} {'batches' if truth['owns_batches'] else 'redrawn inputs'}"
        f" against {truth.get('weights', 'the same weights')} in {_precision(truth)}"
    )
    if len(of_arm) < FEWEST_SAMPLES:
        method += f" (fewer than {FEWEST_SAMPLES})"
    if language_model:
        method += _divergences(base, arm, truth, base_first, arm_first)
    return _verdict(of_base, of_arm, exact, method)


def _shapes(run: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in run]


def _precision(truth: dict[str, Any]) -> str:
    return str(truth["runs"][0][0].dtype).removeprefix("torch.")


def _aligned(arm: dict[str, Any], truth: dict[str, Any]) -> int:
    """Which of the truth's runs the arm's first one corresponds to: a step's own batches may begin anywhere."""
    runs = len(arm["runs"])
    starts = range(len(truth["runs"]) - runs + 1) if truth["owns_batches"] else range(1)
    return min(starts, key=lambda start: float(_errors(arm["runs"], truth["runs"][start : start + runs]).mean()))


def _errors(runs: list[list[Any]], truths: list[list[Any]]) -> Rows:
    """Relative Frobenius error of each sample; infinite where a finite value became none."""
    errors: list[Rows] = []
    for tensors, expected in zip(runs, truths, strict=True):
        for tensor, true in zip(tensors, expected, strict=True):
            wanted, got = true.double(), tensor.double()
            usable = wanted.isfinite().all(dim=1)
            relative = (got - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(1e-30)
            relative[~got.isfinite().all(dim=1)] = float("inf")
            errors.append(relative[usable].numpy())
    return np.concatenate(errors) if errors else np.zeros(0)


def _verdict(base: Rows, arm: Rows, exact: bool, method: str) -> Parity:
    """Passed by the upper bound of the ratio of mean errors, samples resampled in pairs."""
    if not len(arm) or len(arm) != len(base) or not np.isfinite(base).all():
        return _unjudged(f"{method}; the truth or the base is not finite")
    base_error, arm_error = float(base.mean()), float(arm.mean())
    if not np.isfinite(arm).all():
        return _parity(False, None, base_error, None, len(arm), f"{method}; values that are not finite")
    picks = np.random.default_rng(SEED).integers(0, len(arm), (DRAWS, len(arm)))
    ratios = arm[picks].mean(axis=1) / np.maximum(base[picks].mean(axis=1), 1e-30)
    ratio = float(np.quantile(ratios, 0.95)) if arm_error != base_error else 1.0
    if exact:
        return _parity(ratio <= MOST_RATIO, ratio, base_error, arm_error, len(arm), method)
    method += f"; its arithmetic is meant to be coarser, so it passes by an error of at most {MOST_INEXACT_ERROR:g}"
    return _parity(arm_error <= MOST_INEXACT_ERROR, ratio, base_error, arm_error, len(arm), method)


def _parity(
    passed: bool | None, ratio: float | None, base: float, arm: float | None, samples: int, method: str
) -> Parity:
    return Parity(passed=passed, error_ratio=ratio, base_error=base, arm_error=arm, inputs=samples, method=method)


def _divergences(
    base: dict[str, Any], arm: dict[str, Any], truth: dict[str, Any], base_first: int, arm_first: int
) -> str:
    """KL of the next token's distribution from the truth's, of the arm and of the base, in words."""
    if truth["runs"][0][0].shape[1] < VOCABULARY:
        return ""
    of_arm, of_base = _divergence(arm, truth, arm_first), _divergence(base, truth, base_first)
    return f"; KL a token {of_arm:.2e} nats, the base's own {of_base:.2e}"


def _divergence(arm: dict[str, Any], truth: dict[str, Any], first: int) -> float:
    import torch

    total, tokens = 0.0, 0
    for run, true in zip(arm["runs"], truth["runs"][first:], strict=False):
        wanted, got = torch.log_softmax(true[0].double(), -1), torch.log_softmax(run[0].double(), -1)
        total += float((wanted.exp() * (wanted - got)).sum())
        tokens += len(wanted)
    return total / tokens


def _judge_training(base: dict[str, Any], arm: dict[str, Any], truth: dict[str, Any], exact: bool) -> Parity:
    """Gradients, the way the weights went, and the losses: the worst of the three ratios decides."""
    of_base, of_arm = _gradient_errors(base, truth), _gradient_errors(arm, truth)
    method = (
        f"relative error of the gradients of {TRAINING_STEPS} steps on redrawn inputs, of where they took the weights, "
        "and of the losses, against fp32 or wider from the same weights; dropout off"
    )
    if not len(of_arm) or not len(of_base):
        return _unjudged("no parameter of the arm has the name and size of one of the base")
    judged = _verdict(of_base, of_arm, exact, method)
    moved_base, moved_arm = _moved_error(base, truth), _moved_error(arm, truth)
    if judged.passed and exact and moved_arm > MOST_RATIO * max(moved_base, 1e-12):
        return replace(
            judged,
            passed=False,
            error_ratio=moved_arm / max(moved_base, 1e-12),
            method=f"{method}; the weights went elsewhere: error {moved_arm:.2e}, the base's {moved_base:.2e}",
        )
    loss_base, loss_arm = _loss_error(base, truth), _loss_error(arm, truth)
    if judged.passed and not loss_arm <= 3 * loss_base + 1e-3:
        return replace(
            judged, passed=False, method=f"{method}; losses off by {loss_arm:.2e}, the base's {loss_base:.2e}"
        )
    return judged


def _gradient_errors(arm: dict[str, Any], truth: dict[str, Any]) -> Rows:
    errors = []
    for got, wanted in zip(arm["gradients"], truth["gradients"], strict=True):
        pair = _joined(got, wanted)
        if pair is not None:
            errors.append(_distance(*pair))
    return np.asarray(errors, dtype=np.float64)


def _joined(got: dict[str, Any], wanted: dict[str, Any]) -> tuple[Rows, Rows] | None:
    names = [name for name in wanted if name in got and got[name].shape == wanted[name].shape]
    if not names:
        return None
    return (
        np.concatenate([got[name].numpy() for name in names]),
        np.concatenate([wanted[name].numpy() for name in names]),
    )


def _distance(got: Rows, wanted: Rows) -> float:
    return float(np.linalg.norm(got - wanted) / max(float(np.linalg.norm(wanted)), 1e-30))


def _moved_error(arm: dict[str, Any], truth: dict[str, Any]) -> float:
    pair = _joined(arm["moved"], truth["moved"])
    return _distance(*pair) if pair is not None else 0.0


def _loss_error(arm: dict[str, Any], truth: dict[str, Any]) -> float:
    got, wanted = np.asarray(arm["losses"]), np.asarray(truth["losses"])
    return float(np.max(np.abs(got - wanted) / np.maximum(np.abs(wanted), 1e-12)))


def _against_base(base: dict[str, Any], arm: dict[str, Any], configuration: Configuration, why: str) -> Parity:
    """Without a truth: refused where it differs from the base by more than roundings can."""
    if base["kind"] == "training":
        errors = _gradient_errors(arm, base)
    elif any(_shapes(got) != _shapes(wanted) for got, wanted in zip(arm["runs"], base["runs"], strict=False)):
        errors = np.array([np.inf])
    else:
        runs = min(len(arm["runs"]), len(base["runs"]))
        errors = _errors(arm["runs"][:runs], base["runs"][:runs])
    worst = float(errors.mean()) if len(errors) else float("nan")
    most = MOST_DIFFERENCE.get(configuration.dtype, 0.1)
    method = f"not judged against higher precision: {why}; it differs from the base by {worst:.2e}"
    if not worst <= most:
        return _parity(False, None, 0.0, None, len(errors), f"{method}, more than roundings of {configuration.dtype}")
    return replace(_unjudged(method), inputs=len(errors))
