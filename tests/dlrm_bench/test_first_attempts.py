"""Every first attempt is right under Triton's interpreter: value by value against fp64, gradients where it trains."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from addrfrac import dlrm_bench

FOLDER = Path(dlrm_bench.__file__).resolve().parent / "solutions" / "first"
PROGRAM = """
import copy, importlib, sys
import torch
torch.set_num_threads(1)
worst = {}
for number, name in (pair.split(":") for pair in sys.argv[1:]):
    problem = importlib.import_module(f"addrfrac.dlrm_bench.p{number}_{name}")
    solution = importlib.import_module(f"addrfrac.dlrm_bench.solutions.first.s{number}_{name}")
    for indices in ("uniform", "zipf"):
        torch.manual_seed(7)
        model = problem.Model(*problem.get_init_inputs("tiny"))
        inputs = problem.get_inputs("tiny", indices)
        mine = solution.ModelNew(*problem.get_init_inputs("tiny"))
        mine.load_state_dict(copy.deepcopy(model.state_dict()))
        truth = copy.deepcopy(model).double() if not name.startswith("quantised") and name != "half_bag" else model
        wide = [x.double() if x.is_floating_point() else x for x in inputs] if truth is not model else inputs
        expected, found = truth(*wide), mine(*inputs)
        pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)))
        pairs = [(a, b) for a, b in pairs]
        pairs += [(a, b) for a, b in zip(mine.buffers(), truth.buffers())]
        if problem.TRAINS:
            cotangent = torch.randn(found.shape)
            ours = torch.autograd.grad(found, list(mine.parameters()), cotangent, allow_unused=True)
            theirs = torch.autograd.grad(expected, list(truth.parameters()), cotangent.double(), allow_unused=True)
            pairs += list(zip(ours, theirs))
        for a, b in pairs:
            assert a.shape == b.shape, (name, a.shape, b.shape)
            if not a.is_floating_point():
                assert torch.equal(a, b), name
                continue
            error = float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))
            worst[name] = max(worst.get(name, 0.0), error)
            assert error < 2e-6, (name, indices, error)
print(worst)
"""


def test_every_problem_has_a_first_attempt():
    assert sorted(path.stem[1:] for path in FOLDER.glob("s*.py")) == sorted(
        f"{problem.number:02d}_{problem.name}" for problem in dlrm_bench.problems()
    )


@pytest.mark.parametrize("half", [0, 1])
def test_first_attempts_are_right_in_the_interpreter(half):
    """In a process of its own, because triton reads the switch when it is imported."""
    pairs = [f"{p.number:02d}:{p.name}" for p in dlrm_bench.problems()][half::2]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *pairs], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_first_attempt_is_only_a_forward_of_its_own():
    """None of them falls back to the reference's forward."""
    for path in FOLDER.glob("s*.py"):
        assert "super().forward" not in path.read_text()
        module = importlib.import_module(f"addrfrac.dlrm_bench.solutions.first.{path.stem}")
        assert "forward" in vars(module.ModelNew)
