"""Calls of torch that compete with kernels: where they are found, that they are judged, and who gets the credit."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from addrfrac import registry, substitution  # noqa: E402
from addrfrac.substitution import decide, library_calls, trial  # noqa: E402
from addrfrac.substitution.pool import LIBRARY, find_kernels  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

KERNEL = """
import torch
from addrfrac.kernels import rmsnorm
from addrfrac.verification.targets import Substitute
CASES, PROVENANCE = rmsnorm.CASES, rmsnorm.PROVENANCE
def normed(x, weight, eps=1e-6):
    return rmsnorm.reference(x, weight, eps)
SUBSTITUTE = Substitute(
    launcher=normed, reference=rmsnorm.reference, op="normalization", bytes_moved=rmsnorm.bytes_moved
)
"""


class Block(torch.nn.Module):
    """A norm, a product with its ReLU and a GELU, each written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(32) + 0.5)
        self.up, self.down = torch.nn.Linear(32, 40), torch.nn.Linear(40, 24)

    def forward(self, x: Any) -> Any:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        made = self.down(torch.relu(self.up(self.weight * wide.to(x.dtype))))
        return 0.5 * made * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (made + 0.044715 * torch.pow(made, 3.0))))


@pytest.fixture
def x() -> Any:
    return torch.randn(6, 5, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("trains", [False, True])
def test_library_calls_take_sites_and_compute_the_same(x: Any, trains: bool) -> None:
    model = Block()
    with torch.set_grad_enabled(trains):
        expected = model(x)
        with substitution.substituted(model, (x,), kernels=LIBRARY) as swap:
            found = {each.site.kernel: each.engaged for each in swap.engaged(lambda: model(x)) if each.substituted}
            given = model(x)
            torch.testing.assert_close(given, expected)
    assert found == {"library_rms_norm": 1, "library_linear_relu": 1, "library_gelu": 1}
    if trains:
        wanted, got = (torch.autograd.grad(each.sum(), list(model.parameters())) for each in (expected, given))
        torch.testing.assert_close(got, wanted)


def test_a_library_call_that_is_wrong_at_a_site_is_refused_there(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = library_calls.functional.rms_norm
    monkeypatch.setattr(library_calls.functional, "rms_norm", lambda *given: 1.01 * right(*given))
    with torch.no_grad(), substitution.substituted(Block(), (x,), kernels=LIBRARY) as swap:
        refused = {each.site.kernel for each in swap.sites if not each.substituted}
        assert refused == {"library_rms_norm"}
        assert all(each.reason.startswith("refused at this site") for each in swap.sites if not each.substituted)


@pytest.mark.parametrize("winner", ["normed", "library_rms_norm"])
def test_of_a_kernel_and_a_library_call_the_faster_gets_the_site(
    x: Any, winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "normed.py").write_text(KERNEL)
    answer = decide.verdicts.Answer(status="passed", reason="", cached=True)
    monkeypatch.setattr(decide.verdicts, "asked", lambda questions, *_, **__: {q.group: answer for q in questions})

    def timed(place: Any, watcher: Any, found: trial.Trial, *_: Any, **__: Any) -> None:
        found.before_us += [10.0] * 8
        found.after_us += [5.0 if place.site.kernel == winner else 7.0] * 8

    monkeypatch.setattr(trial, "timed", timed)
    kernels = f"{tmp_path / 'normed.py'},{LIBRARY}"
    with torch.no_grad(), substitution.substituted(Block(), (x,), kernels=kernels, need_gain=True) as swap:
        norms = {each.site.kernel: each for each in swap.sites if "norm" in each.site.kernel}
    (loser,) = set(norms) - {winner}
    assert norms[winner].substituted
    assert norms[loser].reason == f"{winner} takes calls of it and is worth more"
    assert norms["library_rms_norm"].site.library
    assert not norms["normed"].site.library


def test_attention_over_a_cache_that_was_just_filled_is_found() -> None:
    workload = registry.find_workload("llama3-8b")
    (configuration,) = registry.configurations(
        workload, (2,), (), device="cpu", mode="decode", cache_len=64, dtype="fp32"
    )
    step = workload.build(configuration, torch.device("cpu"), tiny=True)
    session = Session(kernels=find_kernels(f"decode_attention,{LIBRARY}"))
    with installed(step.model, session):
        step.run()
        found = Counter(each.site.kernel for each in session.places if each.match.kernel.op == "attention")
        repeated = [each for each in session.places if each.site.kernel == "decode_attention" and each.site.calls > 1]
    assert found["library_grouped_attention"] == 2
    assert len(repeated) == 2, "the kernel reads keys and values that were never repeated"
