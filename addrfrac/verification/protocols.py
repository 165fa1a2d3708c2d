"""The four protocols, as data; one kernel's results under each can stand side by side."""

from __future__ import annotations

from addrfrac.errors import AddrfracError
from addrfrac.verification.records import Protocol

KERNELBENCH = Protocol(
    name="kernelbench",
    about="absolute and relative tolerance 1e-2 (half) or 1e-4 (fp32), five known seeds, one process",
    in_process=True,
    distributions=("published",),
    shared_base=False,
    seeds=(42, 43, 44, 45, 46),
    metric="allclose",
    tolerance={"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2, "float64": 1e-4},
)
KERNELBENCH_VERIFIED = Protocol(
    name="kernelbench-verified",
    about="four input distributions, tolerance 1e-3 (fp32) or 1e-2 (bf16), TF32 eager baseline, peak memory",
    in_process=True,
    distributions=("published", "x3", "x0.01", "negated"),
    shared_base=True,
    seeds=(42,),
    metric="allclose",
    tolerance={"float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-2, "float64": 1e-3},
    tf32_baseline=True,
)
STUDY = Protocol(
    name="study",
    about="relative Frobenius < 2e-2, normalised max < 5e-2, written fraction, invariants, over four distributions",
    in_process=True,
    distributions=("published", "x3", "x0.01", "negated"),
    shared_base=True,
    seeds=(42,),
    metric="relative",
    tolerance={},
    relative_frobenius=2e-2,
    normalised_max=5e-2,
    written_fraction=True,
    invariants=True,
    tf32_baseline=True,
)
ADDRFRAC = Protocol(
    name="addrfrac",
    about="isolated processes, secret seeds, errors against fp64, writes, state, shapes, parameters, trusted clock",
    in_process=False,
    distributions=(
        "published",
        "x3",
        "x0.01",
        "negated",
        "normal8",
        "signs",
        "spikes",
        "tiles",
        "small",
        "balanced",
        "large",
        "offset",
        "breakpoints",
        "sorted",
        "outlier-channels",
        "ties",
        "zero-slices",
        "mixed",
        "keep-alive",
        "cancellation",
        "aligned",
        "redrawn-ids",
        "ragged",
    ),
    shared_base=False,
    seeds=(),
    metric="class",
    tolerance={},
    relative_frobenius=2e-2,
    normalised_max=5e-2,
    invariants=True,
    checks=frozenset(
        {
            "problem",
            "schema",
            "distributions",
            "parameters",
            "shapes",
            "layouts",
            "probes",
            "writes",
            "state",
            "stability",
            "repeats",
            "gradients",
            "endurance",
            "tripwires",
            "processes",
        }
    ),
    tf32_baseline=True,
    baselines=("eager-strict", "eager-tf32", "library", "compile", "eager-graph"),
)

PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (ADDRFRAC, STUDY, KERNELBENCH, KERNELBENCH_VERIFIED)}


def find_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise AddrfracError(f"no protocol {name!r}: choose one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
