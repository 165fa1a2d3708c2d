"""torch.compile around the step's model, in its modes; at most one of them, after every rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration
from addrfrac.switches.structure import no_inference, within
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    return "the step is compiled already" if configuration.execution == "compiled" else ""


def _why_not_freezing(step: Step, configuration: Configuration) -> str:
    return _why_not(step, configuration) or no_inference(step)


def _why_not_reduce_overhead(step: Step, configuration: Configuration) -> str:
    if not configuration.device.startswith("cuda"):
        return "its CUDA graphs need a CUDA device"
    return _why_not(step, configuration)


def _configure(configuration: Configuration) -> Configuration:
    """So that the workload leaves out the masks which eager leaves to SDPA, too (workloads.transformer)."""
    return replace(configuration, execution="compiled")


def compiled(step: Step, **options: Any) -> Step:
    """The step with torch.compile around its model, or around all of it where that is a bare module of torch's own.

    The first run compiles, and raises AddrfracError where nothing of the step was; then `extra` says how much was.
    """
    import torch
    import torch._dynamo

    from addrfrac import capture

    capture.fresh_compiler()
    assert not torch._dynamo.config.suppress_errors, "a frame that fails to compile would silently run eager"
    extra = dict(step.extra)
    # Dynamo passes over the frames of torch's own modules, so a bare nn.Sequential compiles only from outside.
    if isinstance(step.model, torch.nn.Module) and not type(step.model).__module__.startswith("torch."):
        step.model.compile(dynamic=False, **options)
        run, graph_run = step.run, step.graph_run
    else:
        run = torch.compile(step.run, dynamic=False, **options)
        graph_run = None if step.graph_run is None else torch.compile(step.graph_run, dynamic=False, **options)
    graph_run = None if graph_run is None else _proved(graph_run, extra)
    return replace(step, run=_proved(run, extra), graph_run=graph_run, extra=extra)


def _proved(run: Callable[[], object], extra: dict[str, Any]) -> Callable[[], object]:
    """The run, after whose first time the compiler must have compiled something."""

    def proved() -> object:
        result = run()
        if "compiled_graphs" not in extra:
            from addrfrac import capture

            extra.update(capture.compile_facts())
        return result

    return proved


def _apply(options: dict[str, Any], step: Step, configuration: Configuration) -> Step:
    return compiled(step, **options)


def _apply_reduce_overhead(step: Step, configuration: Configuration) -> Step:
    step = compiled(step, mode="reduce-overhead")

    def marked(run: Callable[[], object]) -> Callable[[], object]:
        def run_marked() -> object:
            import torch

            # The last step's outputs may be overwritten: without the mark its graphs wait until nobody holds them.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return run()

        return run_marked

    return replace(
        step,
        run=marked(step.run),
        graph_run=None,
        capturable=False,
        why_not="torch.compile's reduce-overhead replays CUDA graphs of its own",
    )


def _apply_freezing(step: Step, configuration: Configuration) -> Step:
    import torch._inductor.config

    if step.optimizer is not None:
        raise AddrfracError("freezing makes constants of the parameters, which training changes; leave it out")
    # Dynamo asks for the setting too while it traces, so `options` of torch.compile would come too late.
    return within(compiled(step), lambda: torch._inductor.config.patch(freezing=True))


COMPILE = Switch(
    name="compile",
    about="torch.compile around the model, Inductor's defaults",
    stage=Stage.COMPILE,
    why_not=_why_not,
    configure=_configure,
    apply=partial(_apply, {}),
)
COMPILE_FREEZING = Switch(
    name="compile-freezing",
    about="torch.compile with Inductor's freezing: parameters are constants, folded and laid out beforehand",
    stage=Stage.COMPILE,
    why_not=_why_not_freezing,
    configure=_configure,
    apply=_apply_freezing,
)
COMPILE_REDUCE_OVERHEAD = Switch(
    name="compile-reduce-overhead",
    about="torch.compile mode reduce-overhead: Inductor's kernels in CUDA graphs that torch keeps",
    stage=Stage.COMPILE,
    why_not=_why_not_reduce_overhead,
    configure=_configure,
    apply=_apply_reduce_overhead,
    own_graph=True,
)
COMPILE_MAX_AUTOTUNE = Switch(
    name="compile-max-autotune",
    about="torch.compile mode max-autotune-no-cudagraphs: templates for matrix products and convolutions, timed",
    stage=Stage.COMPILE,
    why_not=_why_not,
    configure=_configure,
    apply=partial(_apply, {"mode": "max-autotune-no-cudagraphs"}),
    slow=True,
)
