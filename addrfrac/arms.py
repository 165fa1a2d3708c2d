"""A workload and the names of free switches in, the step with them on and the callable that launches it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from addrfrac import capture
from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration, Workload
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

if TYPE_CHECKING:
    import torch

EAGER, GRAPH = "eager", "graph"
Table = tuple[Switch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is measured, as a process of its own can be told: by name."""

    workload: str
    """A workload's name or path/to/file.py:NAME."""
    configuration: Configuration
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The same step prepared one way; holds nothing that cannot be sent to another process."""

    name: str
    switches: tuple[str, ...] = ()
    launch: str = EAGER
    """'eager' or 'graph'."""
    source: Callable[[Arm, Workload, Configuration, Any], Step] | None = None
    """A function of a module that prepares the step; None: `prepare` with the switches."""


class NotCapturable(AddrfracError):
    """The step cannot be a CUDA graph; the line says why."""


def declared(error: NotCapturable) -> bool:
    """The step says so of itself; a capture that failed instead leaves a process that is of no more use."""
    return str(error).startswith("not captured")


def find(name: str, table: Table | None = None) -> Switch:
    """The switch of that name. Raises AddrfracError where there is none."""
    if table is None:
        from addrfrac.switches import find_switch

        return find_switch(name)
    return next(switch for switch in table if switch.name == name)


def in_order(names: Iterable[str], table: Table | None = None) -> tuple[Switch, ...]:
    """The switches by stage, within a stage in the order of the table. Raises AddrfracError for two that compile."""
    if table is None:
        from addrfrac.switches import SWITCHES

        table = SWITCHES
    places, stages = [switch.name for switch in table], list(Stage)
    switches = [find(name, table if name in places else None) for name in names]
    switches.sort(key=lambda switch: (stages.index(switch.stage), places.index(switch.name)))
    compiling = [switch.name for switch in switches if switch.stage is Stage.COMPILE]
    if len(compiling) > 1:
        raise AddrfracError(f"{' and '.join(compiling)} both compile the step; choose one of them")
    return tuple(switches)


def configured(
    configuration: Configuration, names: Iterable[str], launch: str = EAGER, table: Table | None = None
) -> Configuration:
    """The configuration that an arm is built from.

    `execution` tells the workload what will become of its step: a graph needs an optimizer that counts on the device,
    a compiled step leaves out the masks that eager leaves out.
    """
    switches = in_order(names, table)
    compiled = any(switch.stage is Stage.COMPILE for switch in switches)
    for switch in switches:
        configuration = switch.configure(configuration)
    return replace(configuration, execution=GRAPH if launch == GRAPH else "compiled" if compiled else EAGER)


@contextmanager
def settings(configuration: Configuration) -> Iterator[None]:
    """The process-wide switches of a configuration (TF32), and those that switches set, as they were afterwards."""
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, matmul.allow_bf16_reduced_precision_reduction
    try:
        with capture.numeric_settings(configuration):
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic, matmul.allow_bf16_reduced_precision_reduction = before


def prepare(
    workload: Workload,
    configuration: Configuration,
    names: Iterable[str],
    device: torch.device,
    launch: str = EAGER,
    *,
    before_compiling: Callable[[Step], None] | None = None,
    table: Table | None = None,
) -> Step:
    """The step, freshly built, with the switches on: configuration, then the model, then the compiler.

    Where it is to be launched as a graph, `run` of the step is what the graph holds, with the next inputs put in place
    first. `before_compiling` sees the step while its model can still be hooked. To be called, and the step to be run,
    within `settings`. Raises AddrfracError where a switch cannot be on.
    """
    switches = in_order(names, table)
    built_from = configured(configuration, names, launch, table)
    step = capture.built(workload, built_from, device)
    for switch in switches:
        if switch.stage is not Stage.COMPILE:
            step = _applied(switch, step, built_from)
    if launch == GRAPH:
        step = as_captured(step)
    if before_compiling is not None:
        before_compiling(step)
    for switch in switches:
        if switch.stage is Stage.COMPILE:
            capture.fresh_compiler()
            step = _applied(switch, step, built_from)
    return step


def _applied(switch: Switch, step: Step, configuration: Configuration) -> Step:
    """The step with one switch on. A switch of the configuration was on when it was built."""
    if switch.stage is Stage.CONFIGURATION:
        return switch.apply(step, configuration)
    why_not = switch.why_not(step, replace(configuration, execution=EAGER))  # nothing has been compiled yet
    if why_not:
        raise AddrfracError(f"{switch.name} does not apply: {why_not}")
    return switch.apply(step, configuration)


def as_captured(step: Step) -> Step:
    """The step whose `run` does what its graph will do, so that it compiles, is judged and is profiled as launched."""
    if step.graph_run is None:
        return step
    graph_run, advance = step.graph_run, step.advance
    if advance is None:
        return dataclasses.replace(step, run=graph_run, graph_run=None)

    def run() -> object:
        advance()
        return graph_run()

    return dataclasses.replace(step, run=run)


def launchable(step: Step, launch: str, device: torch.device) -> Callable[[], object]:
    """What runs one step: the step itself, or the replay of its graph with the next inputs put in place.

    Raises NotCapturable where there can be no graph.
    """
    if launch != GRAPH:
        return step.run
    capture.release_memory(device)  # warm-up takes as much again, on a stream of its own
    graph = capture.try_graph(step, device)
    if isinstance(graph, str):
        raise NotCapturable(graph)
    return graph.replay
