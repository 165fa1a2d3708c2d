"""The self-test: a fixture of each mechanism, the catalogue, the mutants."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch

from addrfrac.verification.check import Exams
from addrfrac.verification.fixtures.catalogue import ROWS, WITHOUT_FIXTURE
from addrfrac.verification.fixtures.fixture import PREAMBLE, Fixture
from addrfrac.verification.fixtures.harness import HARNESS_CHECKS
from addrfrac.verification.fixtures.mutation_sources import EQUIVALENT, SOURCES
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.mutants import all_mutants
from addrfrac.verification.processes import Server
from addrfrac.verification.rates import clopper_pearson
from addrfrac.verification.records import Status
from addrfrac.verification.self_test import _tasks, all_fixtures, covered_rows, is_caught, run_fixture, selftest
from addrfrac.verification.sources import Source

CATALOGUE = Path(__file__).parents[2] / "../shared/exploits.md"
FIXTURES = {fixture.id: fixture for fixture in all_fixtures() if fixture.device != "cuda"}
SOME = (
    "A03",
    "B03b",
    "C02",
    "D01",
    "E02",
    "F03",
    "I03",
    "J01",
    "M06",
    "honest-splitk",
    "honest-inplace",
    "honest-guard",
)


@pytest.fixture(scope="module")
def server():
    torch.set_num_threads(1)
    with Server("cpu") as running:
        yield running


@pytest.mark.parametrize("name", SOME)
def test_a_fixture_of_each_mechanism_comes_out_as_it_must(server, name):
    fixture = FIXTURES[name]
    exams = Exams(server, Source(text=PROBLEMS[fixture.problem]), dtype=fixture.dtype)
    outcome, _ = run_fixture(server, fixture, exams, protocols=False)
    assert outcome.right, f"{outcome.status}: {outcome.reason}"


def test_every_row_has_a_fixture_or_a_reason_and_never_both():
    covered = set(covered_rows("cpu")) | set(covered_rows("cuda"))
    assert set(ROWS) == covered & set(ROWS) | set(WITHOUT_FIXTURE)
    assert not covered & set(WITHOUT_FIXTURE)
    assert all(len(reason) > 10 for reason in WITHOUT_FIXTURE.values())


@pytest.mark.skipif(not CATALOGUE.exists(), reason="the catalogue lies beside the checkout")
def test_the_table_of_rows_is_the_catalogue_s():
    assert list(ROWS) == re.findall(r"^\| ([A-U]\d\d) \|", CATALOGUE.read_text(), re.M)


def test_ids_of_fixtures_are_distinct_on_each_device_and_problems_exist():
    for device in ("cpu", "cuda"):
        ids = [f.id for f in all_fixtures() if f.device == device]
        assert len(ids) == len(set(ids))
    assert all(f.problem in PROBLEMS for f in all_fixtures())


def test_mutants_have_distinct_names_and_those_called_equivalent_exist():
    names = [mutant.name for mutant in all_mutants()]
    assert set(EQUIVALENT) <= set(names)
    assert len(names) > 50


@pytest.mark.parametrize("problem", sorted(SOURCES))
def test_the_sources_that_mutants_are_made_of_pass(server, problem):
    fixture = Fixture(id="honest-source", problem=problem, about="", solution=SOURCES[problem])
    outcome, _ = run_fixture(
        server, fixture, Exams(server, Source(text=PROBLEMS[problem]), quick=True), protocols=False
    )
    assert outcome.status == Status.PASSED.value, outcome.reason


def test_an_interval_of_a_rate_is_scipy_s():
    stats = pytest.importorskip("scipy.stats")
    for hits, total in ((0, 10), (3, 10), (10, 10), (149, 150)):
        wanted = stats.binomtest(hits, total).proportion_ci(method="exact")
        found = clopper_pearson(hits, total)
        assert found.low == pytest.approx(wanted.low, abs=1e-9)
        assert found.high == pytest.approx(wanted.high, abs=1e-9)


def test_sources_of_fixtures_are_whole():
    assert all(fixture.text.startswith(PREAMBLE) for fixture in all_fixtures())


_MAKERS = {"zeros", "empty", "ones", "full", "arange", "rand", "randn", "tensor", "linspace", "eye", "randint"}
_MADE_ON_A_CPU = {
    "C-window": "moved to the device afterwards",
    "F09": "numbers to compare with, made at import",
    "F12": "numbers to compare with, made at import",
    "J07": "the replacement of a maker",
    "M-channels-last": "only its strides are used",
    "R01": "one number from a generator of its own",
}


def test_faults_for_every_device_make_their_tensors_where_their_input_is():
    wrong = []
    for fixture in all_fixtures():
        if fixture.device == "cpu" or fixture.id in _MADE_ON_A_CPU:
            continue
        tree = ast.parse(fixture.text)
        within = {id(inner) for node in ast.walk(tree) if _moved_with_the_model(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or id(node) in within:
                continue
            called = ast.unparse(node.func)
            lacks = called.removeprefix("torch.") in _MAKERS and "device" not in {k.arg for k in node.keywords}
            if lacks or (node.func.attr == "numpy" and not called.endswith(".cpu().numpy")):
                wrong.append(f"{fixture.id}: {ast.unparse(node)}")
    assert not wrong


def _moved_with_the_model(node: ast.AST) -> bool:
    """Whether what a call is given becomes a parameter or a buffer."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("nn.Parameter", "self.register_buffer")


class _Raised:
    status, labels = Status.RAISED, ()

    def __init__(self, reason: str) -> None:
        self.reason = reason


def test_a_fault_that_could_not_run_on_the_device_was_not_caught():
    fixture = Fixture(id="K", problem="add", about="", solution="", expect=(Status.RAISED,))
    assert is_caught(fixture, _Raised("build: AcceleratorError: an illegal memory access was encountered"))
    for reason in (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first",
        "Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on cuda:0",
    ):
        assert not is_caught(fixture, _Raised(reason))


def test_what_is_timed_on_a_device_has_it_for_itself():
    tasks = _tasks("cuda", (), mutants=False)
    timed = [{f.id for f in all_fixtures() if f.timing and f.device in ("any", "cuda")}]
    timed.append({check.id for check in HARNESS_CHECKS if check.timed})
    assert all(timed)
    for task in tasks:
        for ids, known in zip(({f.id for f in task.fixtures}, set(task.checks)), timed, strict=True):
            assert ids <= known if task.alone else not ids & known
    assert not any(task.alone for task in _tasks("cpu", (), mutants=False))


def test_every_outcome_is_in_the_journal_before_the_run_is_over(tmp_path):
    journal = tmp_path / "selftest.jsonl"
    seen = []

    def progress(line: str) -> None:
        seen.append((line, len(journal.read_text().splitlines())))

    result = selftest("cpu", jobs=1, only=("O07", "A19", "Q08"), journal=journal, progress=progress, verbose=True)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {line["id"] for line in lines} == {o.id for o in result.outcomes} == {"O07", "A19", "Q08"}
    assert all(count == 3 for _, count in seen)
    assert all(outcome.reason in "".join(line for line, _ in seen) for outcome in result.outcomes)
