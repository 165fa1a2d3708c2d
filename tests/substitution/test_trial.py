"""What a site is timed against: the model's calls one by one, or what Inductor makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from addrfrac.substitution import decide, trial, verdicts  # noqa: E402
from addrfrac.substitution.pool import find_kernels  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

KERNEL = """
import torch
from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

def gated(gate, up):
    return torch.mul(gate * torch.sigmoid(gate), up)

def reference(gate, up):
    return torch.nn.functional.silu(gate) * up

def bytes_moved(gate, up):
    return 3 * gate.numel() * gate.element_size()

CASES = (Case(name="8x96", arguments=(TensorCase(shape=(8, 96)), TensorCase(shape=(8, 96)))),)
PROVENANCE = Provenance(author="a person", task="a test", attempts=1, human_edits="")
SUBSTITUTE = Substitute(launcher=gated, reference=reference, op="elementwise", bytes_moved=bytes_moved)
"""


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = torch.nn.Linear(32, 48), torch.nn.Linear(32, 48)

    def forward(self, x):
        return torch.nn.functional.silu(self.gate(x)) * self.up(x) + 1


@pytest.mark.parametrize("compiled", [False, True])
def test_a_kernel_for_a_compiled_model_is_timed_against_inductor(tmp_path: Path, monkeypatch, compiled):
    (tmp_path / "gated.py").write_text(KERNEL)
    torch._dynamo.reset()
    asked: list[int] = []
    real = trial._compiled

    def counted(graph, tensors):
        asked.append(len(tensors))
        return real(graph, tensors)

    monkeypatch.setattr(trial, "_compiled", counted)
    model, session = Gated(), Session(kernels=find_kernels(str(tmp_path / "gated.py")))
    x = torch.randn(4, 32)
    with torch.no_grad(), installed(model, session):
        expected = model.forward(x)
        findings = decide.capture(session, lambda: model(x))
        passed = verdicts.Answer(status=verdicts.PASSED, reason="", cached=False)
        findings.answers = {place.site.group: passed for place in session.places}
        decide.try_places(session, lambda: model(x), findings, torch.device("cpu"), compiled=compiled)
        (found,) = findings.trials.values()
        torch.testing.assert_close(model(x), expected)
    assert not found.wrong
    assert len(found.before_us) == len(found.after_us) == trial.SAMPLES
    assert asked == ([2] if compiled else [])


def test_a_step_that_is_never_taken_is_no_difference_in_layout() -> None:
    token = torch.zeros(2, 4, 1, 16)
    assert token.transpose(1, 2).contiguous().transpose(1, 2).is_contiguous()
    other = torch.zeros(2, 1, 4, 16).transpose(1, 2)
    assert token.stride() != other.stride()
    assert trial.strides(token) == trial.strides(other)
    assert trial.strides(torch.zeros(2, 4, 3, 16)) != trial.strides(torch.zeros(2, 3, 4, 16).transpose(1, 2))
