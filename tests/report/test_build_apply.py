"""The table of gains over recorded runs."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from addrfrac import store
from addrfrac.records import Range

SCRIPT = Path(__file__).parents[2] / "reports" / "build_apply.py"


@pytest.fixture
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("published_gains", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_table_says_what_kernels_won_and_where_none_pays(script, runs, tmp_path):
    run = runs.applied()
    none = replace(run.applied, gain=None, credits=(), projected_us=Range(low=None, high=None), reach=None)
    for name, applied in (("a-wins", run.applied), ("b-none", none), ("c-other", None)):
        store.write_whole(tmp_path / name / "run.json.gz", store.encode_small(replace(run, applied=applied)))
    head, _, first, second = script.gains_table(tmp_path).splitlines()
    assert head.startswith("| run | control |")
    assert "reports/apply/a-wins/report.html" in first
    assert "faster" in first
    assert "agree" in first
    assert "61" in first
    assert "no kernel pays" in second
    assert "agree" not in second


def test_there_is_no_table_without_runs(script, tmp_path):
    assert script.gains_table(tmp_path) == ""
