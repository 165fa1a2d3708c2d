"""Linear layers of odd sizes (a vocabulary of 50,257, thirteen dense features) padded with zeros to aligned ones.

Tensor-core kernels load 16 bytes at a time: where a row does not start at a multiple of that, cuBLAS falls back to
kernels several times slower. The padded weight is the same Parameter, so optimizer, tied embedding and gradients stay.
"""

from __future__ import annotations

from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import no_model, replace_modules
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

LOAD_BYTES = 16
ITEM_BYTES = {"bf16": 2, "fp16": 2, "amp-bf16": 2, "amp-fp16": 2, "tf32": 4}
"""Of the operands of a matrix product; fp32 proper uses no tensor cores."""


def _padding(size: int, multiple: int) -> int:
    return -size % multiple


def _odd_linears(model: Any, multiple: int) -> list[Any]:
    """nn.Linears with an unaligned size whose weight nobody else reads, or an embedding by rows only."""
    import torch

    owners: dict[int, list[tuple[Any, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((module, name))
    found = []
    for module in model.modules():
        if type(module) is not torch.nn.Linear or module.out_features < multiple:
            continue
        rows, columns = _padding(module.out_features, multiple), _padding(module.in_features, multiple)
        if not rows and not columns:
            continue
        others = [owner for owner, name in owners[id(module.weight)] if owner is not module]
        by_rows_only = all(type(other) is torch.nn.Embedding for other in others) and not columns
        own_bias = module.bias is None or len(owners[id(module.bias)]) == 1
        if (not others or by_rows_only) and own_bias:
            found.append(module)
    return found


def _why_not(step: Step, configuration: Configuration) -> str:
    if no_model(step):
        return no_model(step)
    if configuration.dtype not in ITEM_BYTES:
        return f"alignment matters to tensor cores, which {configuration.dtype} does not use"
    multiple = LOAD_BYTES // ITEM_BYTES[configuration.dtype]
    if _odd_linears(step.model, multiple):
        return ""
    return f"every nn.Linear of the model has sizes that are multiples of {multiple}"


def _pad(parameter: Any, rows: int, columns: int, optimizer: Any) -> None:
    """Zeros below and right of a parameter and of what the optimizer keeps for it, in place."""
    import torch

    def padded(tensor: Any) -> Any:
        return torch.nn.functional.pad(tensor, (0, columns, 0, rows) if tensor.dim() == 2 else (0, rows))

    before = parameter.shape
    state = optimizer.state.get(parameter, {}) if optimizer is not None else {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == before:
            state[name] = padded(value)
    parameter.data = padded(parameter.data)
    parameter.grad = None


def _apply(step: Step, configuration: Configuration) -> Step:
    from addrfrac.switches.linear_calls import AlignedLinear

    multiple = LOAD_BYTES // ITEM_BYTES[configuration.dtype]
    linears = _odd_linears(step.model, multiple)
    if not linears:
        raise AddrfracError("every linear layer has aligned sizes here; leave aligned-linears out")
    new = {}
    for linear in linears:
        rows, columns = _padding(linear.out_features, multiple), _padding(linear.in_features, multiple)
        _pad(linear.weight, rows, columns, step.optimizer)
        if linear.bias is not None and rows:
            _pad(linear.bias, rows, 0, step.optimizer)
        new[linear] = AlignedLinear(linear.weight, linear.bias, linear.out_features)
    replace_modules(step.model, new)
    return step


ALIGNED_LINEARS = Switch(
    name="aligned-linears",
    about="linear layers of odd sizes padded with zeros, for cuBLAS's aligned kernels (vocabulary 50,257 to 50,264)",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)
