"""Policies as data: what each makes of a label; a user's policy file in, a `Policy` out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from addrfrac.classify.user_rules import read_toml
from addrfrac.errors import AddrfracError
from addrfrac.records import Bound, Incumbent, Label, Op, Policy

_SYSTEM_OPS = frozenset({Op.MEMCPY, Op.MEMSET, Op.COMMUNICATION})
_SYSTEM_PROVIDERS = frozenset({"cuda_driver", "nccl", "rccl", "gloo", "nvshmem", "deep_ep", "aten_dispatch"})

PAPER = Policy(
    name="paper",
    # linear_attention is not among them: what runs there is hand-written Triton or CUDA without a vendor's library
    # behind it. rnn is: a cuDNN RNN kernel is a persistent GEMM with the cell fused in.
    library_ops=frozenset({Op.GEMM, Op.CONV, Op.ATTENTION, Op.LINALG, Op.FFT, Op.SPARSE, Op.RNN}),
    library_incumbents=frozenset(),
    system_ops=_SYSTEM_OPS,
    system_providers=_SYSTEM_PROVIDERS,
    about="by op: GEMM, convolution, attention, RNN, linalg, FFT, sparse are library, whoever runs them",
)
VENDOR = Policy(
    name="vendor",
    library_ops=frozenset(),
    library_incumbents=frozenset({Incumbent.CLOSED}),
    system_ops=_SYSTEM_OPS,
    system_providers=_SYSTEM_PROVIDERS,
    about="by owner: library only where a vendor's own library runs",
)
STRICT = Policy(
    name="strict",
    library_ops=frozenset(),
    library_incumbents=frozenset({Incumbent.CLOSED, Incumbent.TUNED}),
    system_ops=_SYSTEM_OPS,
    system_providers=_SYSTEM_PROVIDERS,
    about="by owner: library wherever a vendor's or a hand-tuned open library runs, whatever the op",
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in (PAPER, VENDOR, STRICT)}
"""The built-in policies; `paper` is the default."""

_FIELDS = {"library_ops": Op, "library_incumbents": Incumbent, "system_ops": Op, "system_providers": None}
_KNOWN = {"name", "about", "extends", *_FIELDS}


def bound(policy: Policy, label: Label) -> Bound:
    """What a policy makes of a label.

    System first: a copy inside a library op is still the driver's. A catch-all is unknown under every policy; a policy
    that asks for the owner cannot say anything of a kernel whose owner is unknown.
    """
    if label.op in policy.system_ops or label.provider in policy.system_providers:
        return Bound.SYSTEM
    if label.is_catch_all:
        return Bound.UNKNOWN
    if label.op in policy.library_ops or label.incumbent in policy.library_incumbents:
        return Bound.LIBRARY
    if label.incumbent is Incumbent.UNKNOWN and policy.library_incumbents:
        return Bound.UNKNOWN
    return Bound.REPLACEABLE


def policy_named(name_or_path: str) -> Policy:
    """A built-in policy by name, or one from a TOML file."""
    if name_or_path in POLICIES:
        return POLICIES[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return load_policy(path)
    raise AddrfracError(f"unknown policy '{name_or_path}': use one of {', '.join(POLICIES)} or the path of a TOML file")


def load_policy(path: Path | str) -> Policy:
    """A policy from TOML; `extends` names the built-in policy whose other fields it keeps (default: paper)."""
    path = Path(path)
    table = read_toml(path)
    for key in table:
        if key not in _KNOWN:
            raise AddrfracError(f"{path}: unknown field '{key}' in a policy: use {', '.join(sorted(_KNOWN))}")
    extended = str(table.get("extends", "paper"))
    if extended not in POLICIES:
        raise AddrfracError(f"{path}: extends = '{extended}' is no built-in policy: use {', '.join(POLICIES)}")
    changes: dict[str, Any] = {
        "name": str(table.get("name", path.stem)),
        "about": str(table.get("about", f"from {path.name}")),
    }
    for field, vocabulary in _FIELDS.items():
        if field in table:
            changes[field] = _members(path, field, table[field], vocabulary)
    return replace(POLICIES[extended], **changes)


def _members(path: Path, field: str, values: Any, vocabulary: type[Op] | type[Incumbent] | None) -> frozenset[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise AddrfracError(f"{path}: {field} must be a list of strings")
    if vocabulary is not None:
        known = {member.value for member in vocabulary}
        for value in values:
            if value not in known:
                raise AddrfracError(f"{path}: {field} names '{value}', which is none of {', '.join(sorted(known))}")
        return frozenset(vocabulary(value) for value in values)
    return frozenset(values)
