"""What several test modules share: a builder of traces as columns, so that no test of the core rests on the parser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from addrfrac.attribute import attribute
from addrfrac.classify import POLICIES
from addrfrac.project import project
from addrfrac.records import (
    KIND_KERNEL,
    RANGE_STEP,
    RANGE_USER,
    Certainty,
    Collective,
    Grade,
    Incumbent,
    Kernels,
    Label,
    Labels,
    Launches,
    Op,
    Phase,
    Ranges,
    Role,
    Run,
    Times,
    Trace,
    TraceSource,
    Wall,
)
from addrfrac.store import SCHEMA
from addrfrac.window import find_window

INCUMBENTS = {
    "cublas": Incumbent.CLOSED,
    "cudnn": Incumbent.CLOSED,
    "flash_attn_2": Incumbent.TUNED,
    "fbgemm": Incumbent.TUNED,
    "inductor": Incumbent.COMPILER,
    "aten": Incumbent.GENERIC,
    "nccl": Incumbent.SYSTEM,
    "cuda": Incumbent.SYSTEM,
    "unknown": Incumbent.UNKNOWN,
}


def make_label(
    op: Op = Op.ELEMENTWISE,
    provider: str = "aten",
    *,
    catch_all: bool = False,
    phase: Phase = Phase.FORWARD,
    op_stack: tuple[str, ...] = (),
    **fields: Any,
) -> Label:
    """A label with the fields that tests seldom care about filled in."""
    values: dict[str, Any] = {
        "role": Role.MAIN,
        "incumbent": INCUMBENTS[provider],
        "op_rule": f"op-{op}",
        "provider_rule": f"provider-{provider}",
        "certainty": Certainty.AGREE,
        "launching_op": op_stack[-1] if op_stack else None,
    }
    return Label(
        op=op, provider=provider, phase=phase, is_catch_all=catch_all, op_stack=op_stack, **{**values, **fields}
    )


@dataclass
class TraceBuilder:
    """Events in any order and in nanoseconds; `build` lays them out as a trace, `labels` as its kernels' labels."""

    rank: int | None = None
    world_size: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _kernels: list[dict[str, Any]] = field(default_factory=list)
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _ranges: list[dict[str, Any]] = field(default_factory=list)
    _collectives: list[Collective] = field(default_factory=list)

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def call(
        self,
        start_ns: int,
        end_ns: int,
        name: str = "cudaLaunchKernel",
        *,
        thread: int = 1,
        process: int = 1,
        graph: bool = False,
        sync: bool = False,
    ) -> int:
        """A runtime call; returns what `kernel(launch=...)` takes."""
        self._calls.append(
            {
                "name": self._name(name),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "thread": thread,
                "process": process,
                "is_graph": graph,
                "is_sync": sync,
            }
        )
        return len(self._calls) - 1

    def kernel(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        launch: int | None = None,
        stream: int = 7,
        device: int = 0,
        label: Label | None = None,
        collective: Collective | None = None,
    ) -> None:
        """A kernel, with the call that launched it where the trace has one."""
        self._kernels.append(
            {
                "name": self._name(name),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "launch": launch,
                "stream": stream,
                "device": device,
                "label": label or make_label(),
                "collective": -1 if collective is None else len(self._collectives),
            }
        )
        if collective is not None:
            self._collectives.append(collective)

    def launched(self, name: str, called_ns: int, start_ns: int, end_ns: int, **kernel: Any) -> None:
        """A kernel with a launch call of its own that takes a nanosecond."""
        self.kernel(name, start_ns, end_ns, launch=self.call(called_ns, called_ns + 1), **kernel)

    def range(
        self, name: str, start_ns: int, end_ns: int, *, step: bool = False, process: int = 1, thread: int = 1
    ) -> None:
        self._ranges.append(
            {
                "name": self._name(name),
                "kind": RANGE_STEP if step else RANGE_USER,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "process": process,
                "thread": thread,
            }
        )

    def step(self, number: int, start_ns: int, end_ns: int, *, process: int = 1) -> None:
        self.range(f"ProfilerStep#{number}", start_ns, end_ns, step=True, process=process)

    def _order(self) -> list[int]:
        return sorted(
            range(len(self._kernels)), key=lambda i: (self._kernels[i]["start_ns"], self._kernels[i]["end_ns"])
        )

    def build(self) -> Trace:
        calls = sorted(range(len(self._calls)), key=lambda i: self._calls[i]["start_ns"])
        place = {of: row for row, of in enumerate(calls)}
        kernels = [self._kernels[i] for i in self._order()]
        ranges = sorted(self._ranges, key=lambda each: each["start_ns"])

        def column(rows: list[dict[str, Any]], key: str, kind: Any) -> Any:
            return np.array([row[key] for row in rows], dtype=kind)

        def constant(value: int, kind: Any) -> Any:
            return np.full(len(kernels), value, dtype=kind)

        sorted_calls = [self._calls[i] for i in calls]
        return Trace(
            source=TraceSource(
                path="built.json",
                format="kineto",
                size_bytes=0,
                events=len(kernels) + len(calls) + len(ranges),
                device_kind="cuda",
                device_names=("a GPU of the tests",),
                rank=self.rank,
                world_size=self.world_size,
                metadata=self.metadata,
                losses=(),
            ),
            names=tuple(self._names),
            op_stacks=((),),
            op_inputs=(),
            modules=(),
            collectives=tuple(self._collectives),
            kernels=Kernels(
                name=column(kernels, "name", np.int32),
                kind=constant(KIND_KERNEL, np.uint8),
                start_ns=column(kernels, "start_ns", np.int64),
                end_ns=column(kernels, "end_ns", np.int64),
                device=column(kernels, "device", np.int32),
                stream=column(kernels, "stream", np.int64),
                launch=np.array([-1 if k["launch"] is None else place[k["launch"]] for k in kernels], dtype=np.int32),
                op_stack=constant(0, np.int32),
                forward_stack=constant(0, np.int32),
                op_call=constant(-1, np.int32),
                inputs=constant(-1, np.int32),
                module=constant(-1, np.int32),
                collective=column(kernels, "collective", np.int32),
                bytes=constant(-1, np.int64),
                graph_node=constant(-1, np.int64),
            ),
            launches=Launches(
                name=column(sorted_calls, "name", np.int32),
                start_ns=column(sorted_calls, "start_ns", np.int64),
                end_ns=column(sorted_calls, "end_ns", np.int64),
                process=column(sorted_calls, "process", np.int64),
                thread=column(sorted_calls, "thread", np.int64),
                correlation=np.arange(len(calls), dtype=np.int64),
                is_graph=column(sorted_calls, "is_graph", np.bool_),
                is_sync=column(sorted_calls, "is_sync", np.bool_),
            ),
            ranges=Ranges(
                name=column(ranges, "name", np.int32),
                kind=column(ranges, "kind", np.uint8),
                start_ns=column(ranges, "start_ns", np.int64),
                end_ns=column(ranges, "end_ns", np.int64),
                process=column(ranges, "process", np.int64),
                thread=column(ranges, "thread", np.int64),
            ),
        )

    def labels(self) -> Labels:
        """The labels given to `kernel`, one row of the table for each distinct one."""
        table: dict[Label, int] = {}
        of_kernel = [table.setdefault(self._kernels[i]["label"], len(table)) for i in self._order()]
        return Labels(table=tuple(table), of_kernel=np.array(of_kernel, dtype=np.int32))


def make_wall(*samples_us: float, device: bool = False, graph_us: float | None = None) -> Wall:
    """A wall of these step times, by the host's clock or by device events."""
    times = Times(
        samples_us=samples_us,
        median_us=float(np.median(samples_us)),
        low_us=min(samples_us),
        high_us=max(samples_us),
        method="made up",
    )
    graph = None if graph_us is None else make_wall(graph_us).host
    return Wall(device=times if device else None, host=times, graph=graph, graph_note="" if graph else "not tried")


def make_run(built: TraceBuilder, *, wall: Wall | None = None, policy: str = "paper", title: str = "built") -> Run:
    """The run that the builder's trace and labels make."""
    trace = built.build()
    found = attribute(trace, built.labels(), find_window(trace), POLICIES, policy, wall)
    return Run(
        schema=SCHEMA,
        kind="analyze",
        created="2026-01-01T00:00:00+00:00",
        version="0",
        command="",
        title=title,
        configuration=None,
        environment=None,
        source=trace.source,
        grade=Grade(letter="A", losses=()),
        window="",
        wall=wall,
        samples_per_step=None,
        sample_unit="",
        accounts=found.accounts,
        addressable=found.addressable,
        kernels=found.kernels,
        projection=project(found.accounts, found.kernels),
        notes=found.notes,
    )


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Run]:
    """`run_of(built, wall=wall(10.0))`."""
    return make_run


@pytest.fixture(scope="session")
def wall() -> Callable[..., Wall]:
    """`wall(10.0, 10.1, device=True)`."""
    return make_wall


@pytest.fixture(scope="session")
def trace_builder() -> type[TraceBuilder]:
    """The builder class: `built = trace_builder()`, add events, then `built.build()`."""
    return TraceBuilder


@pytest.fixture(scope="session")
def label() -> Callable[..., Label]:
    """`label(Op.GEMM, "cublas")`."""
    return make_label
