"""The table of switches as a whole."""

import subprocess
import sys

import pytest

from addrfrac.errors import AddrfracError
from addrfrac.switches import SWITCHES, Stage, find_switch
from addrfrac.workloads.step import Step


def test_names_are_distinct_and_what_a_switch_needs_stands_before_it():
    names = [switch.name for switch in SWITCHES]
    assert len(set(names)) == len(names)
    for place, switch in enumerate(SWITCHES):
        assert set(switch.needs) <= set(names[:place])


def test_stages_stand_in_the_order_they_are_applied_in():
    order = list(Stage)
    assert [switch.stage for switch in SWITCHES] == sorted((s.stage for s in SWITCHES), key=order.index)


def test_a_switch_that_does_not_exist_is_answered_with_those_that_do():
    assert find_switch("fold-bn").name == "fold-bn"
    with pytest.raises(AddrfracError, match=r"fold-bm.*fold-bn.*compile-freezing"):
        find_switch("fold-bm")


def test_a_step_without_a_model_is_told_why_no_switch_applies_to_its_model(configured):
    step = Step(run=lambda: None, samples=1, parameters=0)
    configuration = configured("resnet50", "infer", dtype="bf16")
    for switch in SWITCHES:
        if switch.stage is Stage.MODEL:
            assert "model" in switch.why_not(step, configuration) or "optimizer" in switch.why_not(step, configuration)


def test_the_table_is_read_without_loading_torch():
    code = "import addrfrac.switches, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
