"""Every model here is captured afresh, on one thread, with no verdict known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("ADDRFRAC_CACHE", str(tmp_path / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(before)
