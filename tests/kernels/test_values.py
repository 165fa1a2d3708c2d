"""Kernels against their references at their own cases, forward and backward, under Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

NAMES = (
    "bn_relu_train",
    "decode_attention",
    "expert_sum",
    "global_average_pool",
    "linear_activation",
    "low_rank_cross",
    "max_pool",
    "packed_swiglu",
)
COMPARE = """
import importlib, sys
import torch
from addrfrac.verification.targets import make_inputs

torch.set_num_threads(1)
RUNNING = {("bn_relu_train", 1), ("bn_relu_train", 2)}


def clones(values):
    return [each.clone() if isinstance(each, torch.Tensor) else each for each in values]


def close(name, mine, theirs):
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), name
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")


for name in sys.argv[1:]:
    module = importlib.import_module(f"addrfrac.kernels.{name}")
    for number, case in enumerate(module.CASES):
        torch.manual_seed(number)
        mine = make_inputs(case)
        theirs = clones(mine)
        trained = [place for place, each in enumerate(mine) if isinstance(each, torch.Tensor)]
        trained = [place for place in trained if (name, place) not in RUNNING] if hasattr(module, "backward") else []
        for place in trained:
            mine[place].requires_grad_()
            theirs[place].requires_grad_()
        made, true = module.SUBSTITUTE.launcher(*mine), module.reference(*theirs)
        close(f"{name} {case.name}", made, true)
        for place, (one, two) in enumerate(zip(mine, theirs)):
            if isinstance(one, torch.Tensor):  # running statistics move in place
                close(f"{name} {case.name} argument {place}", one.detach(), two.detach())
        if trained:
            gradient = torch.randn_like(true)
            asked = torch.autograd.grad(made, [mine[place] for place in trained], gradient)
            wanted = torch.autograd.grad(true, [theirs[place] for place in trained], gradient)
            direct = module.backward([gradient], *[getattr(each, "detach", lambda each=each: each)() for each in mine])
            for place, one, two in zip(trained, asked, wanted):
                close(f"{name} {case.name} gradient {place}", one, two)
                close(f"{name} {case.name} gradient {place} by backward", direct[place], two)
    print(name, "holds")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there `addrfrac verify` judges them as they run")
def test_kernels_and_their_gradients_are_their_references():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMPARE, *NAMES]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split("\n")[:-1] == [f"{name} holds" for name in NAMES]
