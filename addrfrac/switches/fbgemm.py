"""FBGEMM's table-batched embedding: one lookup for all tables in place of one nn.EmbeddingBag each; and its checks."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

from addrfrac.records import Configuration
from addrfrac.switches.structure import no_model
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step


def _why_not(step: Step, configuration: Configuration) -> str:
    import torch

    if configuration.embedding is None:
        return "this workload has no embedding operator to choose"
    if configuration.embedding == "fbgemm":
        return "the tables are FBGEMM's already"
    if importlib.util.find_spec("fbgemm_gpu") is None:
        return "fbgemm_gpu is not installed; pip install 'addrfrac[dlrm]' has it"
    if isinstance(step.optimizer, torch.optim.Adagrad):
        return "FBGEMM's fused update is row-wise Adagrad, another rule than the Adagrad this step trains with"
    return ""


def _configure(configuration: Configuration) -> Configuration:
    return replace(configuration, embedding="fbgemm")


FBGEMM = Switch(
    name="fbgemm",
    about="FBGEMM's SplitTableBatchedEmbeddingBags: one launch for all tables, their update within the backward",
    stage=Stage.CONFIGURATION,
    why_not=_why_not,
    configure=_configure,
)


def _checked(model: Any) -> list[Any]:
    """Lookups of FBGEMM that check their indices on the device."""
    lookups = [module for module in model.modules() if hasattr(module, "bounds_check_mode_int")]
    return [lookup for lookup in lookups if lookup.bounds_check_mode_int != _no_check()]


def _no_check() -> int:
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode

    return int(BoundsCheckMode.NONE.value)


def _why_checks_stay(step: Step, configuration: Configuration) -> str:
    if no_model(step):
        return no_model(step)
    # The switch before this one may bring FBGEMM in: then there is something to do although the base has none.
    if configuration.embedding == "bag" and not _why_not(step, configuration):
        return ""
    if configuration.embedding is None and importlib.util.find_spec("fbgemm_gpu") is None:
        return "the model has no FBGEMM lookup"
    return "" if _checked(step.model) else "the model has no FBGEMM lookup that checks its indices"


def _without_checks(step: Step, configuration: Configuration) -> Step:
    from addrfrac.errors import AddrfracError

    lookups = _checked(step.model)
    if not lookups:
        raise AddrfracError("no FBGEMM lookup checks its indices here; try the switch together with fbgemm")
    for lookup in lookups:
        lookup.bounds_check_mode_int = _no_check()
    note = "FBGEMM's bounds check is off: an id outside its table reads or writes foreign memory instead of a warning"
    return replace(step, notes=(*step.notes, note))


FBGEMM_NO_BOUNDS_CHECK = Switch(
    name="fbgemm-no-bounds-check",
    about="BoundsCheckMode.NONE: ids known to be good are looked up without a kernel that reads them all beforehand",
    stage=Stage.MODEL,
    why_not=_why_checks_stay,
    apply=_without_checks,
)
