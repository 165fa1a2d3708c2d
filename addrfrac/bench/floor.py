"""Bytes and flops of a call in, the microseconds that they take at least on a measured device out."""

from __future__ import annotations

from addrfrac.floors import NOTHING, floor_of, reach
from addrfrac.records import DeviceModel, Range
from addrfrac.work import Work

GATHERS = (
    "embedding_bag_sum",
    "table_batched_bag",
    "weighted_bag",
    "mean_bag_jagged",
    "quantised_bag_int8",
    "quantised_bag_int4",
    "half_bag",
    "bag_backward_adagrad",
)
"""Problems whose bytes are rows of tables."""
PRODUCTS = ("dot_interaction", "low_rank_cross", "bottom_mlp", "target_attention", "hstu_attention", "expert_gates")
"""Problems whose flops are matrix products, which TF32 does at most as fast as it can."""


def floor_us(moved: int, flops: int, problem: str, model: DeviceModel | None) -> Range:
    """An interval; empty without a device model."""
    device = reach(model) if model is not None else None
    if device is None:
        return NOTHING
    return floor_of(
        Work(
            low_bytes=float(moved),
            high_bytes=float(moved),
            low_flops=float(flops) if problem in PRODUCTS else 0.0,
            high_flops=float(flops) if problem in PRODUCTS else 0.0,
            dtype="tf32",
            access="gather" if problem in GATHERS else "stream",
            basis="the problem's own count",
        ),
        device,
    )
