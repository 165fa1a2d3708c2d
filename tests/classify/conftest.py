"""Traces with op stacks, built from rows, so that no test of classification rests on the parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from addrfrac.records import KIND_KERNEL, Trace

SHARED = Path(__file__).parents[2] / "../shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kernel of a test's trace."""

    name: str
    op_stack: tuple[str, ...] = ()
    forward_stack: tuple[str, ...] = ()
    kind: int = KIND_KERNEL
    graph: int | None = None
    """Which graph launch replayed it; None: launched by a call of its own."""
    launched: bool = True
    module: str = ""
    duration_ns: int = 1000


@pytest.fixture(scope="session")
def row() -> type[Row]:
    """The row class: `row(name=..., op_stack=(...))`."""
    return Row


@pytest.fixture(scope="session")
def trace_of(trace_builder) -> Callable[..., Trace]:
    """`trace_of([row(...), ...])`: the rows in this order, 2 us apart."""

    def build(rows: Sequence[Row], *, device_kind: str = "cuda") -> Trace:
        built = trace_builder()
        graphs: dict[int, int] = {}
        for number, each in enumerate(rows):
            start_ns = 10_000 * (number + 1)
            launch = None
            if each.graph is not None:
                if each.graph not in graphs:
                    graphs[each.graph] = built.call(start_ns - 100, start_ns - 90, "cudaGraphLaunch", graph=True)
                launch = graphs[each.graph]
            elif each.launched:
                launch = built.call(start_ns - 100, start_ns - 90)
            built.kernel(each.name, start_ns, start_ns + each.duration_ns, launch=launch)
        trace = built.build()
        stacks = list(dict.fromkeys([(), *(each.op_stack for each in rows), *(each.forward_stack for each in rows)]))
        modules = list(dict.fromkeys(each.module for each in rows if each.module))
        kernels = replace(
            trace.kernels,
            op_stack=np.array([stacks.index(each.op_stack) for each in rows], dtype=np.int32),
            forward_stack=np.array([stacks.index(each.forward_stack) for each in rows], dtype=np.int32),
            op_call=np.full(len(rows), -1, dtype=np.int32),
            kind=np.array([each.kind for each in rows], dtype=np.uint8),
            module=np.array([modules.index(each.module) if each.module else -1 for each in rows], dtype=np.int32),
        )
        source = replace(trace.source, device_kind=device_kind)
        return replace(trace, kernels=kernels, op_stacks=tuple(stacks), modules=tuple(modules), source=source)

    return build


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded traces and labelled names beside the checkout; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no shared folder beside the checkout")
    return SHARED
