"""Linear layers as other library calls say them: with an activation within the product, or padded to aligned sizes.

Imported only where a model is rewritten: torch is wanted here.
"""

from __future__ import annotations

import torch
from torch.nn import functional


class AlignedLinear(torch.nn.Module):
    """A linear layer whose weight is padded with zeros, so that the product's rows start at aligned addresses.

    The padding stays zero in training: its gradient is, and decay keeps it so.
    """

    def __init__(self, weight: torch.nn.Parameter, bias: torch.nn.Parameter | None, out_features: int) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.out_features = out_features

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output = functional.linear(padded(input, self.weight.shape[1]), self.weight, self.bias)
        return output if output.shape[-1] == self.out_features else output[..., : self.out_features]


def padded(input: torch.Tensor, features: int) -> torch.Tensor:
    """Zeros behind the last dimension up to `features`."""
    missing = features - input.shape[-1]
    return functional.pad(input, (0, missing)) if missing else input


def linear_activation(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, features_first: bool, gelu: bool
) -> torch.Tensor:
    """relu(linear) or tanh-GELU(linear) in one product.

    `features_first`: the weight is (out, in), as nn.Linear keeps it; else (in, out), as GPT-2's Conv1D does.
    """
    matrix = weight.t() if features_first else weight
    rows = padded(input, matrix.shape[0]).reshape(-1, matrix.shape[0])
    if input.is_cuda:
        # cuBLASLt's epilogue is the tanh GELU; where ATen cannot use cuBLASLt it runs the same tanh GELU after it.
        output = torch._addmm_activation(bias, rows, matrix, use_gelu=gelu)
    else:
        # On a CPU the same op means the exact GELU.
        product = torch.addmm(bias, rows, matrix)
        output = functional.gelu(product, approximate="tanh") if gelu else torch.relu_(product)
    return output.view(*input.shape[:-1], matrix.shape[1])


class MergedLinears(torch.nn.Module):
    """Several linear layers of one input as one product; gives the first one's part and leaves the rest waiting."""

    def __init__(self, linears: list[torch.nn.Linear]) -> None:
        super().__init__()
        like = linears[0].weight
        self.sizes = [linear.out_features for linear in linears]
        self.weight = torch.nn.Parameter(
            torch.cat([linear.weight.detach() for linear in linears]), requires_grad=like.requires_grad
        )
        self.bias: torch.nn.Parameter | None = None
        if any(linear.bias is not None for linear in linears):
            parts = [like.new_zeros(linear.out_features) if linear.bias is None else linear.bias for linear in linears]
            self.bias = torch.nn.Parameter(
                torch.cat([part.detach() for part in parts]), requires_grad=like.requires_grad
            )
        self.waiting: list[torch.Tensor] = []

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        parts = torch.split(functional.linear(input, self.weight, self.bias), self.sizes, dim=-1)
        self.waiting[:] = parts[1:]
        first: torch.Tensor = parts[0]
        return first


class WaitingPart(torch.nn.Module):
    """Stands where a merged linear layer was and gives its part; its input is the one that was merged."""

    def __init__(self, merged: MergedLinears) -> None:
        super().__init__()
        self.waiting = merged.waiting  # the list, not the module: its parameters are counted once

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.waiting.pop(0)
