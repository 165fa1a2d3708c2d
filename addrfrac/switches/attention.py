"""Grouped-query attention without a copy of keys and values for each query head, and the choice of SDPA's backend."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import attention_calls, device_type, must_run, no_model, within
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_no_groups(step: Step, configuration: Configuration) -> str:
    """Why transformers' own call of SDPA leaves nothing to win for grouped queries."""
    if no_model(step):
        return no_model(step)
    config = getattr(step.model, "config", None)
    implementation = getattr(config, "_attn_implementation", None)
    if implementation is None:
        return "the model is none of transformers', whose hook for attention functions this needs"
    if not implementation.startswith(("sdpa", "addrfrac-")):
        return f"the model's attention is {implementation!r}, not SDPA"
    if not any(getattr(module, "num_key_value_groups", 1) > 1 for module in step.model.modules()):
        return "every query head of the model has keys and values of its own"
    if step.optimizer is not None:
        return "in training there is no mask, and there transformers passes enable_gqa itself"
    if not any(call["masked"] for call in attention_calls(step)):
        return "the step's attention has no mask, and there transformers passes enable_gqa itself"
    return ""


def _why_not_packed(step: Step, configuration: Configuration) -> str:
    reason = _why_no_groups(step, configuration)
    if reason:
        return reason
    # Query heads packed by another implementation are rows too, so ask how many there can be, not whether one.
    calls = [call for call in attention_calls(step) if call["masked"]]
    heads = step.model.config.num_attention_heads
    if all(call["query_length"] * call["query_heads"] == heads for call in calls):
        return ""
    return "the step asks for several tokens a sequence, so heads cannot stand where queries do"


def _call(
    packed: bool,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **named: Any,
) -> tuple[Any, None]:
    """An attention function as transformers asks for it: (batch, heads, length, width) in, length before heads out."""
    import torch

    if named.get("position_bias") is not None or named.get("softcap") is not None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        named |= {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        stock: tuple[Any, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **named)
        return stock
    length = query.shape[2]
    wanted = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(length > 1 and attention_mask is None and wanted)
    if causal and key.shape[2] > length:  # a prompt into a longer, empty cache
        key, value = key[:, :, :length], value[:, :, :length]
    batch, heads, _, width = query.shape
    groups = heads // key.shape[1]
    one_mask = attention_mask is None or attention_mask.shape[1] == 1
    pack = packed and length == 1 and groups > 1 and one_mask
    if pack:  # the heads that share keys stand as queries of one head: one token sees the same mask from all
        query = query.reshape(batch, key.shape[1], groups, width)
    output = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        is_causal=causal,
        enable_gqa=groups > 1 and not pack,
    )
    if pack:
        output = output.reshape(batch, heads, 1, output.shape[-1])
    return output.transpose(1, 2).contiguous(), None


def grouped_query_attention(*arguments: Any, **named: Any) -> tuple[Any, None]:
    """scaled_dot_product_attention(enable_gqa=True), with a mask too."""
    return _call(False, *arguments, **named)


def packed_query_attention(*arguments: Any, **named: Any) -> tuple[Any, None]:
    """scaled_dot_product_attention with the query heads of a group as rows, where there is one token to attend from."""
    return _call(True, *arguments, **named)


def _apply_function(name: str, function: Any, step: Step, configuration: Configuration) -> Step:
    """Registered under a name of its own and chosen in this model's configuration, so no other model changes."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    reason = _why_no_groups(step, configuration)
    if reason:
        raise AddrfracError(f"{reason}; leave the switch out")
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
    step.model.config._attn_implementation = name
    for module in step.model.modules():  # some keep a copy of the configuration
        config: Any = getattr(module, "config", None)
        if str(getattr(config, "_attn_implementation", "")).startswith(("sdpa", "addrfrac-")):
            config._attn_implementation = name
    return must_run(step, "SDPA for grouped queries")


SDPA_GQA = Switch(
    name="sdpa-gqa",
    about="scaled_dot_product_attention(enable_gqa=True) in place of keys and values copied for each query head",
    stage=Stage.MODEL,
    why_not=_why_no_groups,
    apply=partial(_apply_function, "addrfrac-gqa", grouped_query_attention),
)
SDPA_PACKED = Switch(
    name="sdpa-packed",
    about="scaled_dot_product_attention with a group's query heads as rows, for one token a sequence (over sdpa-gqa)",
    stage=Stage.MODEL,
    why_not=_why_not_packed,
    apply=partial(_apply_function, "addrfrac-packed", packed_query_attention),
)


# --- backends -----------------------------------------------------------------------------------------------

BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def _why_no_backend(step: Step, configuration: Configuration) -> str:
    import torch

    if no_model(step):
        return no_model(step)
    if device_type(step) != "cuda":
        return "SDPA has backends to choose from on an NVIDIA GPU only"
    if configuration.dtype in ("fp32", "tf32"):
        return f"FlashAttention and cuDNN take bf16 and fp16, and this step runs in {configuration.dtype}"
    config = getattr(step.model, "config", None)
    hooked = str(getattr(config, "_attn_implementation", "")).startswith(("sdpa", "addrfrac-"))
    stock = any(isinstance(module, torch.nn.MultiheadAttention) for module in step.model.modules())
    if hooked or stock:
        return ""
    if step.optimizer is None and attention_calls(step):
        return ""
    return "the model does not call scaled_dot_product_attention"


def _first(backend: str) -> AbstractContextManager[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = (backend, *(name for name in BACKENDS if name != backend))
    return sdpa_kernel([getattr(SDPBackend, name) for name in names], set_priority=True)


def _apply_backend(backend: str, step: Step, configuration: Configuration) -> Step:
    return within(step, lambda: _first(backend))


def _backend(name: str, backend: str, whose: str) -> Switch:
    return Switch(
        name=name,
        about=f"torch.nn.attention.sdpa_kernel: {whose} kernels before others, where they take the call",
        stage=Stage.MODEL,
        why_not=_why_no_backend,
        apply=partial(_apply_backend, backend),
    )


SDPA_FLASH = _backend("sdpa-flash", "FLASH_ATTENTION", "FlashAttention's")
SDPA_CUDNN = _backend("sdpa-cudnn", "CUDNN_ATTENTION", "cuDNN's")
SDPA_EFFICIENT = _backend("sdpa-efficient", "EFFICIENT_ATTENTION", "the memory-efficient")
