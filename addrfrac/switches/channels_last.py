"""Channels innermost in memory: what cuDNN's tensor-core convolutions read without a transposition."""

from __future__ import annotations

from dataclasses import replace

from addrfrac.records import Configuration
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    if configuration.layout == "channels-last":
        return "the layout is channels-last already"
    return "" if configuration.layout else "this workload has no layout to choose"


def _configure(configuration: Configuration) -> Configuration:
    return replace(configuration, layout="channels-last")


CHANNELS_LAST = Switch(
    name="channels-last",
    about="weights and images in torch.channels_last, which cuDNN's convolutions read directly",
    stage=Stage.CONFIGURATION,
    why_not=_why_not,
    configure=_configure,
)
