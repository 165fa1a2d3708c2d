"""Problems and solutions of our own in KernelBench's layout, small enough for a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "import os\nimport time\n\nimport torch\nfrom torch import nn\n\n\n"
SWISH = (
    HEAD
    + '''class Model(nn.Module):
    """Swish of a matrix."""

    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(8, 33)]


def get_init_inputs():
    return []
'''
)
LINEAR = (
    HEAD
    + '''class Model(nn.Module):
    """A linear layer and a scale."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return 2.0 * self.linear(x)


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
'''
)


def answer(body: str) -> str:
    """A solution of the swish whose forward pass is `body`."""
    return HEAD + f"class ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n"


TEXTS = {
    "swish": SWISH,
    "linear": LINEAR,
    "right": answer("return x / (1.0 + torch.exp(-x))"),
    "zeros": answer("return torch.zeros_like(x)"),
    "only as published": answer("return x * torch.sigmoid(x.clamp(-5, 5))"),  # wrong for three times those numbers
    "dies": answer("os.abort()"),
    "raises": answer("raise ValueError('no')"),
    "shape": answer("return (x * torch.sigmoid(x))[:, :5]"),
    "within 1e-3": answer("return x * torch.sigmoid(x) + 5e-4"),
    "nan": answer("return torch.full_like(x, float('nan'))"),
}


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Problems and solutions by name."""
    return TEXTS


@pytest.fixture(scope="session")
def bench() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as typed, on a CPU."""

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "addrfrac", "bench", "kernelbench", "--device", "cpu", *options]
        environ = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)

    return run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as KernelBench's checkout has it."""
    for place, text in {"level1/1_swish.py": SWISH, "level2/7_linear_scale.py": LINEAR}.items():
        path = tmp_path / "checkout" / "KernelBench" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "checkout"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Objects one after the other, problems and solutions in one file; the second has no kernel."""
    path = tmp_path / "card.json"
    found = [
        {"level_id": 1, "task_id": 1, "ref_code": SWISH, "custom_code": TEXTS["right"], "score_default": 1.5},
        {"level_id": 2, "task_id": 7, "ref_code": LINEAR, "custom_code": None, "score_default": None},
    ]
    path.write_text("\n".join(json.dumps(row, indent=1) for row in found))
    return path
