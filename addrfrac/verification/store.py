"""Verdicts and self-tests as JSON files and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from addrfrac.errors import AddrfracError
from addrfrac.verification.records import SCHEMA, SelfTestResult, Verdict

Saved = tuple[Verdict, ...] | SelfTestResult


def save(result: Saved, path: Path) -> None:
    """Write verdicts or a self-test, with the schema's number and kind."""
    kind = "selftest" if isinstance(result, SelfTestResult) else "verdicts"
    document = {"schema": SCHEMA, "kind": kind, "result": result}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))


def load(path: Path) -> Saved:
    """What `save` wrote."""
    try:
        document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise AddrfracError(f"cannot read {path.name}: {error}") from error
    if not isinstance(document, dict) or document.get("kind") not in ("verdicts", "selftest"):
        raise AddrfracError(f"{path.name} holds no verdicts: give a file that `addrfrac verify` wrote")
    if document.get("schema") != SCHEMA:
        raise AddrfracError(
            f"{path.name} has schema {document.get('schema')}, this version reads {SCHEMA}: verify again"
        )
    kind: Any = SelfTestResult if document["kind"] == "selftest" else tuple[Verdict, ...]
    try:
        converted: Saved = msgspec.convert(document["result"], kind)
    except msgspec.ValidationError as error:
        raise AddrfracError(f"{path.name} is damaged: {error}") from error
    return converted
