"""A trace's columns in, a label for each kernel out; work is done once per distinct key and broadcast."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from addrfrac.classify.builtin import BUILT_IN
from addrfrac.classify.labelling import StackVerdict, label_kernel, stack_verdict
from addrfrac.classify.replay import recover
from addrfrac.classify.rules import RuleSet
from addrfrac.records import Ids, Ints, Label, Labels, Trace

_NOT_LAUNCHED, _LAUNCHED, _REPLAYED = 0, 1, 2
_MODULE_NUMBER = re.compile(r"_\d+$")
_MODULES_NAMED = 3
_LARGEST_KEY = 2**62


def classify(trace: Trace, rules: RuleSet = BUILT_IN, *, capture: Trace | None = None) -> Labels:
    """A label for each kernel of the trace.

    The key is (name, kind, op stack, forward stack, how it was launched). With a `capture` trace of the same work, the
    kernels of graph replays take their op stacks from there (see `replay`).
    """
    recovered = np.zeros(len(trace.kernels), dtype=bool)
    if capture is not None:
        trace, recovered = recover(trace, capture)
    kernels = trace.kernels
    how = _how_launched(trace)
    first, of_kernel = _distinct(kernels.name, kernels.kind, kernels.op_stack, kernels.forward_stack, how, recovered)
    modules = _modules_of(trace, of_kernel)
    verdicts: dict[tuple[int, int], StackVerdict] = {}
    table: list[Label] = []
    has_ops = len(trace.op_stacks) > 1
    on_cpu = trace.source.device_kind == "cpu"
    for index, row in enumerate(first.tolist()):
        stack_id, forward_id = int(kernels.op_stack[row]), int(kernels.forward_stack[row])
        stack, forward = trace.op_stacks[stack_id], trace.op_stacks[forward_id]
        verdict = verdicts.get((stack_id, forward_id))
        if verdict is None:
            verdict = verdicts[stack_id, forward_id] = stack_verdict(stack, forward, rules)
        evidence = modules.get(index, ())
        if recovered[row]:
            evidence = (*evidence, "op stack recovered from the capture by node order")
        table.append(
            label_kernel(
                trace.names[int(kernels.name[row])],
                rules=rules,
                op_stack=stack,
                forward_stack=forward,
                kind=int(kernels.kind[row]),
                was_launched=has_ops and bool(how[row] == _LAUNCHED),
                is_graph_replay=bool(how[row] == _REPLAYED) and not recovered[row],
                on_cpu=on_cpu,
                stack=verdict,
                evidence=evidence,
            )
        )
    return Labels(table=tuple(table), of_kernel=of_kernel)


def _how_launched(trace: Trace) -> NDArray[np.uint8]:
    launch = trace.kernels.launch
    how = np.where(launch >= 0, _LAUNCHED, _NOT_LAUNCHED).astype(np.uint8)
    if len(trace.launches):
        how[(launch >= 0) & trace.launches.is_graph[launch]] = _REPLAYED
    return how


def _distinct(*columns: NDArray[np.generic]) -> tuple[Ints, Ids]:
    """Rows of the first occurrence of each distinct combination, and for each row its combination."""
    combined = np.zeros(len(columns[0]), dtype=np.int64)
    size = 1
    for column in columns:
        values = column.astype(np.int64)
        width = int(values.max(initial=0)) + 1
        if size * width >= _LARGEST_KEY:
            combined = _numbered(combined)[1].astype(np.int64)
            size = int(combined.max(initial=0)) + 1
        combined = combined * width + values
        size *= width
    return _numbered(combined)


def _numbered(values: Ints) -> tuple[Ints, Ids]:
    """As numpy.unique's index and inverse, without numpy.unique, whose first call loads masked arrays."""
    order = np.argsort(values, kind="stable")
    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = values[order[1:]] != values[order[:-1]]
    inverse = np.empty(len(values), dtype=np.int32)
    inverse[order] = np.cumsum(is_new, dtype=np.int32) - 1
    return order[is_new].astype(np.int64), inverse


def _modules_of(trace: Trace, of_kernel: Ids) -> dict[int, tuple[str, ...]]:
    """For each label the classes of the nn.Modules its kernels ran in, the commonest first."""
    module = trace.kernels.module
    recorded = module >= 0
    if not recorded.any():
        return {}
    width = len(trace.modules)
    keys = of_kernel[recorded].astype(np.int64) * width + module[recorded]
    first, number = _numbered(keys)
    pairs, counts = keys[first], np.bincount(number)
    totals: dict[int, dict[str, int]] = {}
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        name = _MODULE_NUMBER.sub("", trace.modules[pair % width].removeprefix("nn.Module: "))
        by_name = totals.setdefault(pair // width, {})
        by_name[name] = by_name.get(name, 0) + count
    return {label: (f"in nn.Module {_commonest(by_name)}",) for label, by_name in totals.items()}


def _commonest(by_name: dict[str, int]) -> str:
    names = sorted(by_name, key=lambda name: -by_name[name])
    more = f" and {len(names) - _MODULES_NAMED} more" if len(names) > _MODULES_NAMED else ""
    return ", ".join(names[:_MODULES_NAMED]) + more
