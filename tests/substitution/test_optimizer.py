"""An optimizer's step by the kernel: the same numbers in the same tensors, and nothing of it left afterwards.

In a process of their own: whether Triton interprets is settled when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

TESTS = """
import copy
import torch
from addrfrac.kernels import adamw
from addrfrac.substitution.optimizer import optimizer_substituted

torch.set_num_threads(1)


def trained(steps, largest_norm=None, kernel=False, settings={}, state=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last), torch.nn.Flatten(),
                                torch.nn.Linear(45, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **settings)
    x = torch.randn(4, 3, 5, 5)
    model(x).square().sum().backward()
    if not kernel:
        for _ in range(steps):
            if largest_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), largest_norm)
            optimizer.step()
            optimizer.zero_grad()
            model(x).square().sum().backward()
        return model, optimizer, None
    with optimizer_substituted(optimizer, largest_norm=largest_norm, need_gain=False) as swap:
        assert swap.substituted, swap.reason
        assert not optimizer.state, "the trial leaves no state"
        for _ in range(steps):
            optimizer.step()
            optimizer.zero_grad()
            model(x).square().sum().backward()
    return model, optimizer, swap


for settings in ({}, {"fused": True}):
    for norm in (None, 0.3):
        model, optimizer, swap = trained(4, norm, kernel=True, settings=settings)
        other, plain, _ = trained(4, norm, settings=settings)
        assert (swap.calls, swap.fallbacks) == (3, 1), swap  # torch's first step makes the state
        for one, two in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
        states = [each.state_dict()["state"] for each in (optimizer, plain)]
        torch.testing.assert_close(states[0], states[1], rtol=1e-4, atol=1e-6)
        assert "step" not in vars(optimizer)
print("same numbers")

right = adamw.update
adamw.update = lambda rate, *rest: right(rate * 1.01, *rest)
model, optimizer, _ = trained(1)
before = copy.deepcopy(optimizer.state_dict())
with optimizer_substituted(optimizer, need_gain=False) as swap:
    assert not swap.substituted
    assert swap.reason.startswith("refused")
torch.testing.assert_close(optimizer.state_dict(), before)
adamw.update = right
print("wrong refused")

try:
    with optimizer_substituted(optimizer, need_gain=False) as swap:
        assert swap.substituted
        raise KeyError("of the body")
except KeyError:
    pass
assert "step" not in vars(optimizer)
print("restored")

with optimizer_substituted(torch.optim.SGD(model.parameters(), lr=0.1)) as swap:
    assert not swap.substituted
    assert "SGD" in swap.reason
with optimizer_substituted(optimizer, need_gain=True) as swap:
    assert not swap.substituted  # the interpreter is slow
    assert "no faster" in swap.reason
print("told")

import addrfrac
x = torch.randn(4, 3, 5, 5)
with torch.enable_grad(), addrfrac.substituted(model, (x,), "swiglu", optimizer=optimizer) as swap:
    assert swap.optimizer.substituted
    optimizer.step()
    assert swap.optimizer.calls == 1
assert "step" not in vars(optimizer)
print("with the model")
"""


def test_the_kernel_takes_the_optimizer_s_steps_and_leaves_nothing_behind():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", TESTS], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == ["same numbers", "wrong refused", "restored", "told", "with the model"]
