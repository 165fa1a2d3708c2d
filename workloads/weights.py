"""A freshly built model in, the same model with weights that hide nothing out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from addrfrac.errors import AddrfracError
from addrfrac.workloads.step import generator

if TYPE_CHECKING:
    import torch


def randomise(model: torch.nn.Module, device: torch.device) -> None:
    """Draw every parameter that a framework starts as a constant, and all running statistics.

    An identity norm, a zero bias or a layer scale of 1e-6 makes whole operations removable without a trace in the
    output, so a kernel that skips them would look right. Matrices keep the framework's own random start. The spread
    is small around each constant, so that activations stay finite in half precision at any depth.
    """
    import torch

    source = generator(device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _randomise_constant(name, parameter, source)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1, generator=source)
            elif name.endswith("running_var"):
                buffer.uniform_(0.75, 1.25, generator=source)


def _randomise_constant(name: str, parameter: torch.Tensor, source: torch.Generator) -> None:
    if parameter.numel() < 2 or not parameter.is_floating_point():
        return
    flat = parameter.flatten()
    first = flat[0].clone()
    # The head decides for nearly all; only what looks constant is read to its end.
    if not bool((flat[:4096] == first).all()) or not bool((flat == first).all()):
        return
    if "layer_scale" in name:
        parameter.uniform_(0.05, 0.2, generator=source)  # starts at 1e-6: the block would not show in the output
    elif float(first) == 0.0:
        parameter.normal_(std=0.02, generator=source)
    else:
        parameter.normal_(std=0.1, generator=source).add_(1.0).mul_(first)


def load_checkpoint(model: torch.nn.Module, path: Path) -> None:
    """Load a `torch.save`d state dict into the model. Raises AddrfracError where it does not fit."""
    import pickle

    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("state_dict", state) if isinstance(state, dict) else state
        model.load_state_dict(state)
    except (OSError, RuntimeError, TypeError, pickle.UnpicklingError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AddrfracError(
            f"weights {path} do not fit this model ({first_line}); give a state dict of the same architecture"
        ) from error
