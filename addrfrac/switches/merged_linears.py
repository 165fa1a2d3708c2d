"""Linear layers that take the same tensor (query, key, value; gate, up) as one matrix product over joined weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import must_run, no_inference, replace_modules, run_once
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

Group = tuple[Any, ...]
"""Linear layers in the order they are called in."""


def _groups(step: Step) -> list[Group]:
    """Sibling nn.Linears that one step calls one after the other on the very same tensor, each of them once.

    Found by watching a step, so no name of a layer matters and what is merged is proved to be one input.
    """
    import torch

    parents = {id(child): parent for parent in step.model.modules() for child in parent.children()}
    linears = [module for module in step.model.modules() if type(module) is torch.nn.Linear]
    calls: dict[int, int] = {}
    groups: list[list[Any]] = []
    last: list[Any] = [None, None]  # the tensor of the last call and its version: written to in between, it is another

    def note(module: Any, arguments: tuple[Any, ...]) -> None:
        calls[id(module)] = calls.get(id(module), 0) + 1
        if not arguments:
            last[:] = [None, None]
            return
        tensor = arguments[0]
        version = None if tensor.is_inference() else tensor._version
        same = tensor is last[0] and version == last[1]
        if same and parents[id(module)] is parents[id(groups[-1][-1])]:
            groups[-1].append(module)
        else:
            groups.append([module])
        last[:] = [tensor, version]

    hooks = [linear.register_forward_pre_hook(note) for linear in linears]
    try:
        run_once(step)
    finally:
        for hook in hooks:
            hook.remove()
    once = [tuple(group) for group in groups if len(group) > 1 and all(calls[id(module)] == 1 for module in group)]
    return [group for group in once if len({module.weight.dtype for module in group}) == 1]


def _is_attention(step: Step, group: Group) -> bool:
    parents = {id(child): parent for parent in step.model.modules() for child in parent.children()}
    return len(group) > 2 or "attention" in type(parents[id(group[0])]).__name__.lower()


def _query_key_value(step: Step) -> list[Group]:
    return [group for group in _groups(step) if _is_attention(step, group)]


def _gate_up(step: Step) -> list[Group]:
    return [group for group in _groups(step) if not _is_attention(step, group)]


def _why_not(find: Callable[[Step], list[Group]], what: str, step: Step, configuration: Configuration) -> str:
    if no_inference(step):
        return no_inference(step)
    return "" if find(step) else f"no {what} of the model are separate nn.Linear layers called on one tensor"


def _apply(find: Callable[[Step], list[Group]], what: str, step: Step, configuration: Configuration) -> Step:
    from addrfrac.switches.linear_calls import MergedLinears, WaitingPart

    groups = find(step)
    if not groups:
        raise AddrfracError(f"no {what} are separate linear layers called on one tensor here; leave the switch out")
    while groups:
        first, *rest = groups.pop()
        merged = MergedLinears([first, *rest])
        replace_modules(step.model, {first: merged} | {linear: WaitingPart(merged) for linear in rest})
        del first, rest  # one group's weights twice at a time, not the model's
    return must_run(step, f"the merged {what}")


def _switch(name: str, about: str, find: Callable[[Step], list[Group]], what: str) -> Switch:
    return Switch(
        name=name,
        about=about,
        stage=Stage.MODEL,
        why_not=partial(_why_not, find, what),
        apply=partial(_apply, find, what),
    )


MERGED_QKV = _switch(
    "merged-qkv",
    "query, key and value projections as one torch.nn.functional.linear over joined weights, split as views",
    _query_key_value,
    "query, key and value projections",
)
MERGED_GATE_UP = _switch(
    "merged-gate-up",
    "gate and up projections as one torch.nn.functional.linear over joined weights, split as views",
    _gate_up,
    "gate and up projections",
)
