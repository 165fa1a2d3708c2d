"""`test_passes.py` under Triton's interpreter, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels run as they are")
def test_every_pass_holds_under_the_interpreter():
    file = Path(__file__).with_name("test_passes.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(file)]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "13 passed" in ran.stdout, ran.stdout[-300:]
