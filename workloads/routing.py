"""A mixture-of-experts model in, the same model with its tokens spread over the experts as asked out.

A router with random weights spreads tokens as chance has it. A bias on its logits, fitted layer by layer to the
workload's own input, makes the spread what the configuration says; the counts that resulted are recorded.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from addrfrac.errors import AddrfracError

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration

FIT_ROUNDS = 200


def force_routing(model: Any, configuration: Configuration, forward: Callable[[], object]) -> dict[str, Any]:
    """Fit the routers to the asked spread; tokens per expert, layer by layer. Nothing for a model without experts.

    `forward` runs the workload's own input through the model.
    """
    import torch

    routers = [module for module in model.modules() if hasattr(module, "top_k") and hasattr(module, "num_experts")]
    routers = [router for router in routers if isinstance(getattr(router, "weight", None), torch.nn.Parameter)]
    if not routers:
        return {}
    for router in routers:
        router.register_buffer("routing_bias", torch.zeros_like(router.weight[:, 0]), persistent=False)
        router.stock_forward = router.forward
        router.forward = types.MethodType(_fitting(configuration.routing or "balanced"), router)
    forward()
    for router in routers:
        router.forward = types.MethodType(_route, router)
    counts = _tokens_per_expert(routers, forward)
    return {"routing": configuration.routing, "tokens_per_expert": counts}


def _route(router: Any, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The top-k router of transformers' Mixtral, with the bias that its own has not."""
    import torch

    hidden_states = hidden_states.reshape(-1, router.hidden_dim)
    logits = torch.nn.functional.linear(hidden_states, router.weight, router.routing_bias)
    probabilities = torch.nn.functional.softmax(logits.float(), dim=-1)
    scores, experts = torch.topk(probabilities, router.top_k, dim=-1)
    scores /= scores.sum(dim=-1, keepdim=True)
    return logits, scores, experts


def _fitting(routing: str) -> Callable[[Any, torch.Tensor], Any]:
    """A forward that fits the router's bias to the tokens it sees, then routes with it."""

    def forward(router: Any, hidden_states: torch.Tensor) -> Any:
        ours, stock = _route(router, hidden_states)[0].float(), router.stock_forward(hidden_states)[0].float()
        # Logits only, and to a few roundings of bf16: near a tie the choice itself may differ.
        if ours.shape != stock.shape or float((ours - stock).abs().max()) > 0.02 * float(stock.abs().max()):
            raise AddrfracError(
                "this version of transformers routes otherwise than known; use transformers 5.17 to 5.24"
            )
        bias = _fit(ours, router.top_k, target_shares(routing, router.num_experts))
        router.routing_bias.copy_(bias)
        return _route(router, hidden_states)

    return forward


def target_shares(routing: str, experts: int) -> list[float]:
    """Share of the routed tokens that each expert is to get: equal, or by 1 / rank."""
    weights = [1.0 / (rank + 1 if routing == "zipf" else 1) for rank in range(experts)]
    return [weight / sum(weights) for weight in weights]


def _fit(logits: torch.Tensor, top_k: int, shares: list[float]) -> torch.Tensor:
    """The bias under which the top-k choice of `logits` (tokens x experts) spreads as `shares`, as nearly as found."""
    import torch

    target = torch.tensor(shares, device=logits.device) * logits.shape[0] * top_k
    scale = logits.std(dim=0).mean().clamp_min(1e-6)
    bias = torch.zeros_like(target)
    best, least = bias, float("inf")
    for turn in range(FIT_ROUNDS):
        chosen = torch.topk(logits + bias, top_k, dim=-1).indices.flatten()
        counts = torch.bincount(chosen, minlength=len(shares)).float()
        error = float((counts - target).abs().sum())
        if error < least:
            best, least = bias, error
        bias = bias + scale * (0.5 / (1 + turn / 20)) * torch.log((target + 0.5) / (counts + 0.5))
    return best


def _tokens_per_expert(routers: list[Any], forward: Callable[[], object]) -> list[list[int]]:
    import torch

    counts: list[list[int]] = []

    def note(router: Any, inputs: Any, output: Any) -> None:
        counts.append(torch.bincount(output[2].flatten(), minlength=router.num_experts).tolist())

    hooks = [router.register_forward_hook(note) for router in routers]
    forward()
    for hook in hooks:
        hook.remove()
    return counts
