"""Problems and solutions of our own in KernelBench's layout, small enough for a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addrfrac.bench.kernelbench.evaluate import Task, blank
from addrfrac.bench.kernelbench.records import NAIVE, TRUSTED, Evaluation, Problem, Solution, Study, Times
from addrfrac.records import Environment
from addrfrac.verification.records import Check, Credit, PrecisionClass, Status, Verdict
from addrfrac.verification.verdict import unmeasured

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


# --- planted records --------------------------------------------------------------------------------------------

Refusals = Sequence[tuple[str, Status, str]]
"""(check, status, detail) of each check that refuses."""


def planted_verdict(protocol: str, refusals: Refusals = (), speedup: float | None = None) -> Verdict:
    """A verdict as that protocol would have left it; the first refusal decides."""
    checks = tuple(Check(name=name, passed=False, status=status, detail=detail) for name, status, detail in refusals)
    return Verdict(
        name="planted", protocol=protocol, status=checks[0].status if checks else Status.PASSED, reason="", labels=(),
        precision=PrecisionClass.NONE, checks=checks, distributions_checked=1, distributions_planned=1, replaced=(),
        speed=replace(unmeasured(""), speedup=speedup), hints=(), isolation=(), device="cuda", dtype="float32",
        credit=Credit(own_share=None, kernels=(), operations=(), line=""), seconds=0.0, seed="", source_sha256="",
    )  # fmt: skip


def planted_evaluation(
    number: int, verdicts: Sequence[Verdict], naive: dict[str, float], trusted: dict[str, float], **fields: Any
) -> Evaluation:
    """One sample of that problem, with the microseconds that each side took by each clock."""
    given = {
        "level": 1,
        "number": number,
        "name": "llm",
        "sample": 0,
        "kind": "cuda",
        "published_speedup": None,
    } | fields
    task = Task(
        key=f"{number}-{given['sample']}", problem=Problem(level=1, number=number, title="planted", text=""),
        solution=Solution(path="x.py", text="", **given), protocols=(), precision="tf32", device="cuda", quick=True,
        timeout_s=1.0, device_name="planted", versions={},
    )  # fmt: skip
    clocks = ((NAIVE, naive), (TRUSTED, trusted))
    times = [Times(name=name, clock=clock, samples_us=(us,)) for clock, side in clocks for name, us in side.items()]
    return replace(blank(task), verdicts=tuple(verdicts), times=tuple(times))


@pytest.fixture(scope="session")
def sample() -> Callable[..., Evaluation]:
    """Makes a planted evaluation: right everywhere unless told; eager 4 us, 2 us with TF32, candidate 1 us."""

    def made(
        number: int,
        *,
        published: Refusals = (),
        verified: Refusals = (),
        ours: Refusals = (),
        naive: dict[str, float] | None = None,
        trusted: dict[str, float] | None = None,
        speedup: float | None = 1.5,
        **fields: Any,
    ) -> Evaluation:
        three = (
            planted_verdict("kernelbench", published),
            planted_verdict("kernelbench-verified", verified),
            planted_verdict("addrfrac", ours, None if ours else speedup),
        )
        times = {"eager-strict": 4.0, "eager-tf32": 2.0, "candidate": 1.0}
        slower = {"eager-strict": 3.0, "eager-tf32": 2.0, "candidate": 1.0}
        return planted_evaluation(number, three, naive or times, {} if ours else trusted or slower, **fields)

    return made


@pytest.fixture(scope="session")
def study() -> Callable[..., Study]:
    """Makes a study of planted evaluations; `problems` were chosen, numbered from 1."""

    def made(*evaluations: Evaluation, problems: int) -> Study:
        place = Environment(
            device="planted", device_kind="cuda", device_memory_bytes=None, multiprocessors=None, l2_bytes=None,
            driver="", host_cpu="", python="", platform="", versions={}, settings={},
        )  # fmt: skip
        return Study(
            schema=1, created="", version="", command="", environment=place, selection="", precision="tf32",
            protocols=("kernelbench", "kernelbench-verified", "addrfrac"), without_solution={},
            planned=tuple((1, number) for number in range(1, problems + 1)), evaluations=evaluations, seconds=0.0,
        )  # fmt: skip

    return made
