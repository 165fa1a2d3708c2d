"""Sites as problems, and a solution dropped beside one: found where the problem came from."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from addrfrac import store  # noqa: E402
from addrfrac.cli import app  # noqa: E402
from addrfrac.substitution.pool import find_kernels, load_file  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

WORKLOAD = """
import torch
from addrfrac.records import Workload
from addrfrac.workloads.step import inference

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (torch.nn.Linear(64, 64, device="cpu") for _ in range(3))

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x)) + x

def build(configuration, device):
    torch.manual_seed(0)
    return inference(Block(), (torch.randn(configuration.batch, 64),), configuration, device, samples=1)

OWN = Workload(name="own", about="a gated block", build=build, defaults={"batch": 8, "dtype": "fp32"}, modes=("infer",))
"""
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


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ADDRFRAC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "own.py").write_text(dedent(WORKLOAD))
    return f"{tmp_path / 'own.py'}:OWN"


def run(*arguments: str) -> str:
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("blind", [False, True])
def test_a_solution_beside_an_extracted_problem_fits_the_model_it_came_from(own, tmp_path, blind):
    folder = tmp_path / "problems"
    said = run("extract", own, "--device", "cpu", "--top", "3", "-o", str(folder), *(["--blind"] if blind else []))
    problem = next(each for each in folder.glob("*.py") if "silu" in each.read_text())
    assert "twice as fast is worth" in said
    assert ("def get_inputs" in problem.read_text()) is not blind
    solution = problem.with_name(f"{problem.stem}_solution.py")
    solution.write_text(problem.read_text().replace("class Model(", "class ModelNew("))
    module = load_file(tmp_path / "own.py")
    from addrfrac import registry

    step = module.build(registry.configure(module.OWN, device="cpu"), torch.device("cpu"))
    session = Session(kernels=find_kernels(str(folder)))
    with installed(step.model, session):
        step.run()
        assert [place.site.kernel for place in session.places] == [solution.stem]


@pytest.mark.slow
def test_apply_measures_every_arm_and_saves_what_it_decided(own, tmp_path):
    (tmp_path / "gated.py").write_text(dedent(KERNEL))
    run(
        *("apply", own, "--kernels", str(tmp_path / "gated.py"), "--device", "cpu"),
        *("--processes", "1", "--rounds", "2", "--at-once", "2", "-o", str(tmp_path / "out")),
    )
    applied = store.load(tmp_path / "out" / "run.json").applied
    assert [each.substituted for each in applied.decisions] == [True]
    assert [each.engaged for each in applied.decisions] == [1.0]
    assert {each.arm for each in applied.arms} == {
        "eager",
        "compile",
        "captured",
        "substituted",
        "compile + kernels",
    }
    assert applied.engaged is True
    assert applied.parity.passed is True
    assert [each.part for each in applied.credits] == [
        "launches removed",
        "re-routing to library calls",
        "capture",
        "kernels and their fusion",
    ]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What kernels are worth in this model" in page
