"""A mixture's experts as one grouped matrix product, and without the passes that guard against experts elsewhere."""

from __future__ import annotations

from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import must_run, no_inference, no_model
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

LEAN = "addrfrac-lean-grouped-mm"


def _experts(model: Any) -> list[Any]:
    """Modules whose forward transformers dispatches by `config._experts_implementation`."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "_apply_gate") and hasattr(getattr(module, "config", None), "_experts_implementation")
    ]


def _implementations(experts: list[Any]) -> set[str]:
    return {str(module.config._experts_implementation) for module in experts}


def _choose(step: Step, name: str) -> None:
    for module in _experts(step.model):
        module.config._experts_implementation = name
    step.model.config._experts_implementation = name


def _why_not(step: Step, configuration: Configuration) -> str:
    if no_model(step):
        return no_model(step)
    experts = _experts(step.model)
    if not experts:
        return "the model has no experts that transformers can dispatch"
    already = _implementations(experts) <= {"grouped_mm", LEAN}
    return "transformers runs these experts by grouped_mm already" if already else ""


def _apply(step: Step, configuration: Configuration) -> Step:
    if _why_not(step, configuration):
        raise AddrfracError(f"{_why_not(step, configuration)}; leave grouped-mm out")
    _choose(step, "grouped_mm")
    return step if step.optimizer is not None else must_run(step, "grouped_mm")


GROUPED_MM = Switch(
    name="grouped-mm",
    about="transformers' experts_implementation 'grouped_mm': all experts in one torch grouped matrix product",
    stage=Stage.MODEL,
    why_not=_why_not,
    apply=_apply,
)


def lean_grouped_mm(module: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """Experts as transformers' grouped_mm runs them, less the masks for ids of experts that live elsewhere.

    hidden_states (tokens, width), top_k_index and top_k_weights (tokens, k) -> (tokens, width).
    """
    import torch

    tokens, width = hidden_states.shape
    k = top_k_index.shape[-1]
    sorted_ids, order = torch.sort(top_k_index.reshape(-1))
    # histc and cumsum, because bincount reads its size back to the host.
    countable = sorted_ids.int() if hidden_states.is_cuda else sorted_ids.float()
    counts = torch.histc(countable, bins=module.num_experts, min=0, max=module.num_experts - 1)
    ends = counts.cumsum(0, dtype=torch.int32)
    rows = hidden_states[order // k]
    gated = module._apply_gate(_grouped(rows, module.gate_up_proj.transpose(-2, -1), ends))
    output = _grouped(gated, module.down_proj.transpose(-2, -1), ends)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.shape[0], device=order.device)
    weighted = output[places].view(tokens, k, width) * top_k_weights.unsqueeze(-1)
    return weighted.sum(dim=1).to(hidden_states.dtype)


def _grouped(rows: Any, weights: Any, ends: Any) -> Any:
    import torch

    call = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    return call(rows.to(weights.dtype), weights, offs=ends)


def _masks_are_left_out(experts: list[Any]) -> bool:
    """After 5.17 transformers came to ask each module whether its experts are spread over devices."""
    return all(hasattr(module, "_is_expert_parallel") for module in experts)


def _why_not_lean(step: Step, configuration: Configuration) -> str:
    if no_inference(step):
        return no_inference(step)
    experts = _experts(step.model)
    if not experts:
        return "the model has no experts that transformers can dispatch"
    plain = all(
        getattr(module, "has_gate", False)
        and not getattr(module, "has_bias", True)
        and not getattr(module, "is_transposed", True)
        for module in experts
    )
    if not plain:
        return "the model's experts have biases, no gate or transposed weights, which this call does not say"
    if configuration.dtype not in ("bf16", "fp16"):
        return f"torch's grouped matrix product takes bf16 and fp16, and this step runs in {configuration.dtype}"
    if _masks_are_left_out(experts):
        return "this version of transformers masks only where experts live on several devices"
    return ""


def _apply_lean(step: Step, configuration: Configuration) -> Step:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    reason = _why_not_lean(step, configuration)
    if reason:
        raise AddrfracError(f"{reason}; leave grouped-mm-lean out")
    ALL_EXPERTS_FUNCTIONS.register(LEAN, lean_grouped_mm)
    _choose(step, LEAN)
    return must_run(step, "torch's grouped matrix product")


GROUPED_MM_LEAN = Switch(
    name="grouped-mm-lean",
    about="torch's grouped matrix product without transformers' masks for experts of other devices (there are none)",
    stage=Stage.MODEL,
    why_not=_why_not_lean,
    apply=_apply_lean,
)
