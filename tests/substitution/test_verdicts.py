"""Verdicts of groups of sites: asked side by side, each given to its own question."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from addrfrac.substitution import verdicts


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_verdicts_taken_side_by_side_go_to_their_questions(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(min(count, verdicts.ABREAST["cuda"]))

    def start_server(device: str) -> Any:
        together.wait(20)  # breaks where servers start one after the other
        return nullcontext(device)

    def check_target(server: Any, target: Any, **options: Any) -> Any:
        status = SimpleNamespace(value=verdicts.PASSED if target.name.endswith("even") else "wrong_values")
        return SimpleNamespace(name=target.name, status=status, reason=target.name, seconds=0.0)

    monkeypatch.setattr(verdicts, "start_server", start_server)
    monkeypatch.setattr(verdicts, "check_target", check_target)
    asked = [
        verdicts.Question(group=f"{number} {'odd' if number % 2 else 'even'}", problem="", solution="")
        for number in range(count)
    ]
    found = verdicts.asked(asked, "cuda", use_cache=False, where="here")
    assert {group: (each.status, each.reason) for group, each in found.items()} == {
        each.group: (verdicts.PASSED if "even" in each.group else "wrong_values", each.group) for each in asked
    }
