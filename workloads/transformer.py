"""A transformers configuration in, its model with randomised weights and a step out; nothing is fetched from a hub."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from addrfrac.errors import AddrfracError
from addrfrac.workloads.step import SEED, Step, training, weight_dtype
from addrfrac.workloads.weights import load_checkpoint, randomise

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration

MASK_FUNCTIONS = ("create_causal_mask", "create_bidirectional_mask", "create_sliding_window_causal_mask")


def build_model(auto_class: str, config: Any, configuration: Configuration, device: torch.device) -> Any:
    """The model, made directly on the device in the asked dtype: 8B parameters and more never pass through the host.

    `auto_class` names one of transformers' Auto classes. Real weights come by the name or folder that `from_pretrained`
    takes, with their own configuration, or from a state dict's path.
    """
    import torch
    import transformers

    factory = getattr(transformers, auto_class)
    dtype = weight_dtype(configuration)
    weights = configuration.weights
    if weights != "random" and not Path(weights).is_file():
        return _pretrained(factory, weights, configuration, dtype).to(device)
    torch.manual_seed(SEED)
    with device:
        model = factory.from_config(config, dtype=dtype)
    if weights == "random":
        randomise(model, device)
    else:
        load_checkpoint(model, Path(weights))
    return model


def _pretrained(factory: Any, name: str, configuration: Configuration, dtype: torch.dtype) -> Any:
    import transformers

    depth = {"num_hidden_layers": configuration.layers} if configuration.layers else {}
    try:
        config = transformers.AutoConfig.from_pretrained(name, **depth)
        return factory.from_pretrained(name, config=config, dtype=dtype)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise AddrfracError(
            f"no weights {name!r} ({first_line}); give a hub name, or a folder or state dict on this machine"
        ) from error


def with_stock_masks(step: Step, configuration: Configuration, forward: Callable[[], object]) -> Step:
    """The step with attention masks left out under graph capture and compilation where eager leaves them out.

    transformers hands a causal or empty mask to SDPA as `is_causal` or none at all, but builds it in full while torch
    is tracing or capturing. That takes other attention kernels, so a graph or a compiled model would not be the eager
    step made faster but another step. `forward` runs the model once, to see which masks eager leaves out.
    """
    import torch

    module = sys.modules[type(step.model).__module__]
    with torch.no_grad():
        skipped = _skipped_masks(module, forward)
    if not skipped:
        return step

    def run_without_masks() -> object:
        with _masks_left_out(module, skipped):
            return step.run()

    if configuration.execution == "compiled":
        return replace(step, run=run_without_masks, notes=(*step.notes, MASK_NOTE))
    return replace(step, graph_run=run_without_masks)


MASK_NOTE = (
    "attention masks that eager leaves to SDPA are left to it in the compiled step too (transformers builds them)"
)


def _skipped_masks(module: Any, forward: Callable[[], object]) -> tuple[str, ...]:
    """Those of the model's mask functions that were called and always returned no mask."""
    results: dict[str, list[bool]] = {}

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(module, name)

        @wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            mask = original(*arguments, **named)
            results.setdefault(name, []).append(mask is None)
            return mask

        return function

    with ExitStack() as stack:
        for name in MASK_FUNCTIONS:
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, watched(name)))
        forward()
    return tuple(name for name, skipped in results.items() if all(skipped))


def no_mask(*arguments: Any, **named: Any) -> None:
    """Stands for a mask function whose mask SDPA does not need."""


@contextmanager
def _masks_left_out(module: Any, names: tuple[str, ...]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in names}
    for name in names:
        setattr(module, name, no_mask)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def train_with_adamw(
    model: Any, inputs: dict[str, Any], configuration: Configuration, device: torch.device, *, samples: float
) -> Step:
    """A training step on `inputs`, whose labels make the model return its loss; AdamW as torch builds it by default."""
    import torch

    capturable = configuration.execution == "graph"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, capturable=capturable)
    model.train()

    def loss() -> torch.Tensor:
        value: torch.Tensor = model(**inputs).loss
        return value

    step = training(model, loss, optimizer, configuration, device, samples=samples)
    step = with_stock_masks(step, configuration, lambda: model(**inputs))
    if not capturable and step.capturable:
        step = replace(
            step,
            capturable=False,
            why_not="AdamW keeps its step count on the host by default; --execution graph builds it capturable",
        )
    return step
