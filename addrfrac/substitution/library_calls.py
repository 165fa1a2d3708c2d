"""Calls of torch that do in one what models write in several: they compete with the kernels for each site.

No kernel is written here and none is verified: a call is judged at the site, against what is there in higher
precision, and taken where it is faster; what it saves is credited to the library.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from addrfrac.kernels import residual_rmsnorm, rmsnorm
from addrfrac.verification.targets import Case, Substitute, TensorCase


def library_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """An RMSNorm written out, as torch's one call; it rounds once where the model rounds twice."""
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def library_residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum as it is, its norm as torch's one call."""
    total = x + residual
    return functional.rms_norm(total, (x.shape[-1],), weight, eps), total


# --- attention whose keys and values are not repeated -----------------------------------------------------------


def library_grouped_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> torch.Tensor:
    """The library's own grouping of queries; rows of heads lie in memory as its fused kernels leave them."""
    made = functional.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True
    )
    return made.transpose(1, 2).contiguous().transpose(1, 2)


def repeated_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> torch.Tensor:
    """As transformers has it: keys and values repeated for each query head of their group."""
    batch, key_heads, length, size = keys.shape
    heads = q.shape[1]
    shape = (batch, key_heads, heads // key_heads, length, size)
    keys, values = (each[:, :, None].expand(shape).reshape(batch, heads, length, size) for each in (keys, values))
    return functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=causal, scale=scale)


def _attention_bytes(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> int:
    """Everything once."""
    masked = 0 if mask is None else mask.numel() * mask.element_size()
    return (2 * q.numel() + keys.numel() + values.numel()) * q.element_size() + masked


# --- what follows a matrix product, within it -------------------------------------------------------------------


def _activated(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    flat = x.reshape(-1, x.shape[-1])
    made: torch.Tensor = torch._addmm_activation(bias, flat, weight.t(), use_gelu=gelu)
    return made.view(*x.shape[:-1], weight.shape[0])


def library_linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Bias and ReLU in cuBLASLt's epilogue."""
    return _activated(x, weight, bias, gelu=False)


def linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """As an MLP has it."""
    return torch.relu(functional.linear(x, weight, bias))


def library_linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Bias and GELU in cuBLASLt's epilogue, which has the GELU of tanh; on a CPU torch takes the exact one."""
    return _activated(x, weight, bias, gelu=True)


def linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """As an encoder has it."""
    return functional.gelu(functional.linear(x, weight, bias), approximate="tanh")


def _linear_bytes(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> int:
    """Inputs once, the result once."""
    made = x.numel() // x.shape[-1] * weight.shape[0]
    return (x.numel() + weight.numel() + bias.numel() + made) * x.element_size()


# --- GELU written out -------------------------------------------------------------------------------------------


def library_gelu(x: torch.Tensor) -> torch.Tensor:
    """One call in the place of seven."""
    return functional.gelu(x, approximate="tanh")


def written_gelu(x: torch.Tensor) -> torch.Tensor:
    """As GPT-2 has it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _gelu_bytes(x: torch.Tensor) -> int:
    """x once, the result once."""
    return 2 * x.numel() * x.element_size()


def _linear_case() -> tuple[TensorCase, ...]:
    return TensorCase(shape=(3, 7, 24)), TensorCase(shape=(40, 24)), TensorCase(shape=(40,))


def _attention_case(mask: TensorCase | None, *, causal: bool) -> tuple[TensorCase | float | bool | None, ...]:
    key = TensorCase(shape=(2, 2, 9, 16))
    return TensorCase(shape=(2, 4, 9, 16)), key, key, mask, 0.25, causal


CASES_OF = {
    "library_rms_norm": rmsnorm.CASES,
    "library_residual_rms_norm": residual_rmsnorm.CASES,
    "library_grouped_attention": (
        Case(name="causal", arguments=_attention_case(None, causal=True)),
        Case(name="whole", arguments=_attention_case(None, causal=False)),
        Case(name="masked", arguments=_attention_case(TensorCase(shape=(2, 1, 9, 9)), causal=False)),
    ),
    "library_linear_relu": (Case(name="3x7x24", arguments=_linear_case()),),
    "library_linear_gelu": (Case(name="3x7x24", arguments=_linear_case()),),
    "library_gelu": (Case(name="5x33", arguments=(TensorCase(shape=(5, 33)),)),),
}
"""By launcher: each call has arguments of its own."""
LIBRARY_CALLS = True
"""What stands here is no kernel of ours."""
TRAINS = True
NO_GRADIENT = ("library_linear_relu", "library_linear_gelu")
"""torch cannot differentiate _addmm_activation: the gradient is that of what is there, computed again."""
SUBSTITUTE = (
    Substitute(
        launcher=library_rms_norm,
        reference=rmsnorm.reference,
        op="normalization",
        bytes_moved=rmsnorm.bytes_moved,
    ),
    Substitute(
        launcher=library_residual_rms_norm,
        reference=residual_rmsnorm.reference,
        op="normalization",
        bytes_moved=residual_rmsnorm.bytes_moved,
    ),
    Substitute(
        launcher=library_grouped_attention,
        reference=repeated_attention,
        op="attention",
        bytes_moved=_attention_bytes,
    ),
    Substitute(launcher=library_linear_relu, reference=linear_relu, op="gemm", bytes_moved=_linear_bytes),
    Substitute(launcher=library_linear_gelu, reference=linear_gelu, op="gemm", bytes_moved=_linear_bytes),
    Substitute(launcher=library_gelu, reference=written_gelu, op="elementwise", bytes_moved=_gelu_bytes),
)
