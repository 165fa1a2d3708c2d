"""Honest kernels that nobody wrote for this verifier: they pass, and what is not installed is told."""

from __future__ import annotations

import pytest
import torch

from addrfrac.verification import corpora, inputs
from addrfrac.verification.fixtures.corpora import (
    CORPORA_PROBLEMS,
    IN_PLACE,
    LIGER,
    inductor_fixtures,
    liger_installed,
)
from addrfrac.verification.fixtures.inductor_code import PROBLEM_NAMES
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.processes import Server
from addrfrac.verification.records import Status
from addrfrac.verification.reference import Arguments
from addrfrac.verification.self_test import summarised
from addrfrac.verification.shapes import resized

needs_liger = pytest.mark.skipif(not liger_installed(), reason="needs liger-kernel (pip install --no-deps)")
BY_ID = {fixture.id: fixture for fixture in (*LIGER, *IN_PLACE)}


@pytest.fixture(scope="module")
def server():
    torch.set_num_threads(1)
    with Server("cpu") as running:
        yield running


def test_every_kernel_of_the_corpora_has_its_problem_and_a_name_of_its_own():
    assert len(BY_ID) == len(LIGER) + len(IN_PLACE)
    assert {fixture.problem for fixture in BY_ID.values()} == set(CORPORA_PROBLEMS)
    assert set(PROBLEM_NAMES) | set(CORPORA_PROBLEMS) <= set(PROBLEMS)


def test_what_is_not_installed_is_told_and_changes_no_rate(monkeypatch):
    monkeypatch.setattr(corpora, "liger_installed", lambda: False)
    monkeypatch.setattr(corpora, "_inductor", lambda *_: ())
    empty = summarised([], device="cpu", layers=(), seconds=0.0)
    found = corpora.with_corpora(empty)
    assert "liger-kernel is not installed" in found.not_tested["Liger-Kernel"]
    assert found.false_alarms == empty.false_alarms


@needs_liger
@pytest.mark.parametrize("name", ["relu-squared", "softmax"])
def test_an_operator_of_liger_passes(server, name):
    outcome = corpora._outcome(server, BY_ID[f"honest-liger-{name}"], True)
    assert outcome.right, outcome.reason


@needs_liger
def test_an_operator_that_writes_over_its_inputs_is_told_so(server):
    outcome = corpora._outcome(server, BY_ID["honest-liger-cross-entropy-in-place"], True)
    assert outcome.status == Status.CHANGED_STATE.value
    assert "input 0 is written over when gradients are asked for" in outcome.reason


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_kernel_of_the_corpora_is_refused_on_a_gpu():
    outcomes, missing = corpora.run_corpora("cuda", jobs=4)
    wrong = [f"{outcome.id}: {outcome.status}: {outcome.reason}" for outcome in outcomes if not outcome.right]
    assert not wrong
    assert not any(name == "Inductor" for name in missing)


@pytest.mark.slow
def test_what_inductor_generates_is_compiled_once_and_passes(server, tmp_path, monkeypatch):
    monkeypatch.setattr("addrfrac.verification.fixtures.inductor_code.PROBLEM_NAMES", ("gelu",))
    from addrfrac.verification.fixtures import inductor_code

    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    inductor_code.main("cpu", tmp_path)
    (fixture,) = inductor_fixtures({"gelu": (tmp_path / "gelu.py").read_text()})
    outcome = corpora._outcome(server, fixture, True)
    assert outcome.right, outcome.reason


def test_varied_inputs_and_other_shapes_lie_in_memory_as_the_problem_s_own():
    base = torch.randn(2, 24, 4, 32).transpose(1, 2)
    for name in ("published", "normal8", "sorted"):
        (made,) = inputs.vary(
            [base], inputs.DISTRIBUTIONS[name], inputs.DISTRIBUTIONS[name].strengths[0], torch.Generator(), ()
        )
        assert made.stride() == base.stride()
    (other,) = resized(Arguments(tree=None, tensors=[base]), 24, 23, torch.Generator()).tensors
    assert other.shape == (2, 4, 23, 32)
    assert other.stride() == torch.empty(2, 23, 4, 32).transpose(1, 2).stride()
    assert inputs.elements(base.clone()).numel() == base.numel()


def test_an_answer_more_exact_than_the_reference_s_own_zero_is_right(server):
    """gelu's tanh form is exactly zero in fp64 where the sigmoid form still has 1e-31."""
    from addrfrac.verification.check import check_target
    from addrfrac.verification.sources import find_targets

    verdict = check_target(server, find_targets(["geglu"])[0], quick=True, timing=False)
    assert verdict.passed, verdict.reason
