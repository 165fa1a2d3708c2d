"""What the verifier does for a device, as far as it can be seen without one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from addrfrac.verification import gpu, shapes
from addrfrac.verification.reference import ReferenceRaised

HOOKS = """
import sys
from addrfrac.verification import tripwires
tripwires.refuse_audit_hooks()
exec(compile("import sys\\nsys.addaudithook(print)", sys.argv[1], "exec"))
print(tripwires._run_by_the_interpreter()["audit hook"])
"""


@pytest.mark.parametrize(("file", "told"), [(f"{sys.prefix}/lib/compiler.py", "0"), ("/tmp/candidate.py", "1")])
def test_a_refused_hook_is_told_of_a_candidate_and_not_of_an_installed_library(file, told):
    ran = subprocess.run([sys.executable, "-c", HOOKS, file], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.split() == [told]


def test_what_a_call_changes_on_a_device_is_seen_in_the_shared_bytes():
    shared = [torch.arange(4.0), torch.arange(3.0)]
    inputs = gpu.Inputs(shared, torch.device("cpu"), None)
    inputs.device = torch.device("cuda")  # from here on it looks at its own copies
    inputs.tensors = inputs.buffers = [tensor.clone() for tensor in shared]
    inputs.before = [tensor.clone() for tensor in inputs.buffers]
    assert inputs.changed_on_device() == []
    inputs.tensors[1].add_(1)
    assert inputs.changed_on_device() == [1]
    assert shared[1].tolist() == [1, 2, 3]
    assert shared[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("text", "opened"), [("AcceleratorError: CUDA error: misaligned address", 1), ("no", 0)])
def test_a_reference_that_faults_on_a_layout_begins_again(text, opened):
    again = []
    maker = SimpleNamespace(
        exam=SimpleNamespace(refused_shapes=[], trials=[]),
        reference=SimpleNamespace(reopen=lambda: again.append(1)),
        current=(0, 0),
    )

    def make(_maker, _wanted):
        raise ReferenceRaised(text)

    assert shapes._add(maker, make, ("layout", "misaligned")) == 0
    assert len(again) == opened
    assert maker.current is None
    assert text[:10] in maker.exam.refused_shapes[0]
