"""What a free switch is: a change that costs no kernel, only another call of what is already installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from addrfrac.records import Configuration
from addrfrac.workloads.step import Step


class Stage(StrEnum):
    """When a switch is applied; within a stage the order of the table holds."""

    CONFIGURATION = "configuration"
    """Before the model is built: layout, TF32, embedding operator."""
    MODEL = "model"
    """On the built step: rewrites of the model or its optimizer on public library calls."""
    COMPILE = "compile"
    """On the rewritten step, last: torch.compile and its modes; one of them at most."""


def _applies(step: Step, configuration: Configuration) -> str:
    return ""


def _same_configuration(configuration: Configuration) -> Configuration:
    return configuration


def _same_step(step: Step, configuration: Configuration) -> Step:
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One free switch of the ladder."""

    name: str
    about: str
    """One line: which library call takes the place of which."""
    stage: Stage
    why_not: Callable[[Step, Configuration], str] = _applies
    """In words why it has no meaning for this step (the base's, as built); '' where it can be tried."""
    configure: Callable[[Configuration], Configuration] = _same_configuration
    """The configuration to build from."""
    apply: Callable[[Step, Configuration], Step] = _same_step
    """The step with the switch on; the step handed in is not used afterwards, so its model may be changed in place.
    Raises AddrfracError where it finds that it cannot after all."""
    exact: bool = True
    """The arithmetic is the base's but for the order of sums; False where it is meant to differ (TF32)."""
    needs: tuple[str, ...] = ()
    """Names of switches that must be on before this one can be: alone they may win nothing, so the group is tried."""
    own_graph: bool = False
    """Its step replays CUDA graphs of its own, so it is launched eagerly and never captured again."""
    slow: bool = False
    """Takes minutes to compile: tried only where asked for (max-autotune)."""
