"""Verdicts and self-tests as JSON files and back."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from addrfrac.errors import AddrfracError
from addrfrac.verification.records import SCHEMA, SelfTestResult, Verdict

Saved = tuple[Verdict, ...] | SelfTestResult


def encode(result: Saved) -> bytes:
    """Verdicts or a self-test as JSON, with the schema's number and kind."""
    kind = "selftest" if isinstance(result, SelfTestResult) else "verdicts"
    document = {"schema": SCHEMA, "kind": kind, "result": result}
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def save(result: Saved, path: Path) -> None:
    """Write verdicts or a self-test."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(result))


def load(path: Path) -> Saved:
    """What `save` wrote."""
    try:
        content = path.read_bytes()
        document: dict[str, Any] = msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content)
    except OSError as error:
        raise AddrfracError(f"cannot read {path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, EOFError, zlib.error) as error:
        raise AddrfracError(f"{path.name} is no JSON of ours: {error}") from error
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
