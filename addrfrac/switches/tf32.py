"""Matrix products and convolutions of fp32 operands on tensor cores, with ten bits of mantissa."""

from __future__ import annotations

from dataclasses import replace

from addrfrac.records import Configuration
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    if configuration.dtype == "tf32":
        return "TF32 is allowed already"
    return "" if configuration.dtype == "fp32" else f"TF32 speeds up fp32, and this step runs in {configuration.dtype}"


def _configure(configuration: Configuration) -> Configuration:
    return replace(configuration, dtype="tf32")


TF32 = Switch(
    name="tf32",
    about="torch.backends allow_tf32: fp32 products rounded to TF32 (another arithmetic, on purpose)",
    stage=Stage.CONFIGURATION,
    why_not=_why_not,
    configure=_configure,
    exact=False,
)
