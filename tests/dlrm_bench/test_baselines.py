"""The library operators compute what the problems ask for, or a comparison with them would mean nothing."""

import copy

import pytest
import torch

from addrfrac import dlrm_bench

pytest.importorskip("fbgemm_gpu")
from addrfrac.dlrm_bench.baselines import BASELINES, makers

PAIRS = [(problem, name) for problem, found in BASELINES.items() for name in found]


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(("problem", "name"), PAIRS, ids=[f"{p}-{n}" for p, n in PAIRS])
@pytest.mark.parametrize("indices", ["uniform", "zipf"])
def test_a_library_baseline_agrees_with_the_problem(problem, name, indices):
    module = dlrm_bench.find_problem(problem).load()
    torch.manual_seed(3)
    model = module.Model(*module.get_init_inputs("tiny"))
    inputs = module.get_inputs("tiny", indices)
    with torch.no_grad():
        expected = outputs(copy.deepcopy(model)(*inputs))
        found = outputs(makers(problem)[name](model)(*inputs))
    for a, b in zip(found, expected, strict=True):
        error = float((a.double() - b.double()).norm() / b.double().norm())
        assert a.shape == b.shape
        assert error < 2e-6, error


def test_a_problem_without_a_library_has_no_baseline_of_its_own():
    assert makers("target_attention") == {}
