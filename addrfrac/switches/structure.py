"""What switches ask of a step's model, and how they change it in place, where the step's own closure sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.workloads.step import Step

UNTRACEABLE = (AttributeError, KeyError, NameError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What torch.fx, its TraceError (a ValueError) included, raises for a model whose Python it cannot follow."""


def no_model(step: Step) -> str:
    """In words why the step's model cannot be looked into; '' where it can."""
    import torch

    if not isinstance(step.model, torch.nn.Module):
        return "the step does not say which torch module it runs (Step.model)"
    return ""


def no_inference(step: Step) -> str:
    """In words why the step's model cannot be rewritten for good; '' for a model that only infers."""
    if step.optimizer is not None:
        return "the step trains: its parameters must stay as the optimizer holds them"
    return no_model(step)


def no_half_precision_weights(configuration: Configuration) -> str:
    """In words why a call that autocast does not know cannot be used; '' outside autocast."""
    if configuration.dtype.startswith("amp-"):
        plain = configuration.dtype.removeprefix("amp-")
        return f"autocast does not know this call and would leave it in fp32; --dtype {plain} has it"
    return ""


def device_type(step: Step) -> str:
    """Where the model's first parameter (else buffer) is: 'cuda', 'cpu', ..."""
    for tensor in (*step.model.parameters(), *step.model.buffers()):
        return str(tensor.device.type)
    return "cpu"


def trains_sparsely(step: Step) -> bool:
    """Some embedding of the model gives sparse gradients."""
    return any(getattr(module, "sparse", False) is True for module in step.model.modules())


def replace_modules(model: Any, new: dict[Any, Any]) -> int:
    """Put `new[module]` wherever the model holds `module`, under every name it has; how many places that were."""
    by_id = {id(old): module for old, module in new.items()}
    places = [
        (parent, name, by_id[id(child)])
        for parent in model.modules()
        for name, child in parent._modules.items()  # named_children passes over a child's second name
        if id(child) in by_id
    ]
    for parent, name, module in places:
        parent._modules[name] = module
    return len(places)


def traced(model: Any, *, children_are_leaves: bool = False) -> Any:
    """The model as a torch.fx.GraphModule that shares its modules. Raises one of UNTRACEABLE where fx cannot follow."""
    import torch.fx

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module: Any, qualified_name: str) -> bool:
            return children_are_leaves or super().is_leaf_module(module, qualified_name)

    graph = Tracer().trace(model)
    return torch.fx.GraphModule(model, graph)


def run_forward_of(model: Any, traced_model: Any) -> None:
    """Let the model run as the rewritten graph says: only on this instance, so that closures over it see it."""
    traced_model.graph.lint()
    traced_model.recompile()
    model.forward = traced_model.forward


def within(step: Step, context: Callable[[], AbstractContextManager[Any]]) -> Step:
    """The step with each run inside a context of its own."""

    def wrapped(run: Callable[[], object]) -> Callable[[], object]:
        def run_within() -> object:
            with context():
                return run()

        return run_within

    graph_run = wrapped(step.graph_run) if step.graph_run is not None else None
    return replace(step, run=wrapped(step.run), graph_run=graph_run)


def run_once(step: Step) -> None:
    """Run the step once where nothing of it stays behind: for looking at what it calls, or whether it can."""
    assert step.optimizer is None, "a training step would change its weights"
    (step.graph_run or step.run)()


def must_run(step: Step, what: str) -> Step:
    """The step, once it has been seen to run. Raises AddrfracError, saying `what` could not."""
    import torch

    try:
        run_once(step)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AddrfracError(f"{what} cannot run this step ({first_line}); leave the switch out") from error
    return step


def attention_calls(step: Step) -> list[dict[str, Any]]:
    """The calls of scaled_dot_product_attention in one run of an inference step: shapes, heads, mask, enable_gqa."""
    import torch

    stock = torch.nn.functional.scaled_dot_product_attention
    calls: list[dict[str, Any]] = []

    def watched(query: Any, key: Any, value: Any, *arguments: Any, **named: Any) -> Any:
        mask = named.get("attn_mask", arguments[0] if arguments else None)
        calls.append(
            {
                "query_length": query.shape[-2],
                "query_heads": query.shape[1] if query.dim() == 4 else 1,
                "key_heads": key.shape[1] if key.dim() == 4 else 1,
                "masked": mask is not None,
                "enable_gqa": bool(named.get("enable_gqa", False)),
            }
        )
        return stock(query, key, value, *arguments, **named)

    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", watched):
        run_once(step)
    return calls


@contextmanager
def setting(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute at `value`, and as it was afterwards."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
