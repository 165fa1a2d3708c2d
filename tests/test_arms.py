"""Arms: which configuration they are built from, in which order switches go on, and what their launch runs."""

import contextlib
from dataclasses import replace

import pytest

from addrfrac import arms, registry
from addrfrac.errors import AddrfracError
from addrfrac.records import Workload
from addrfrac.switches.switch import Stage, Switch
from addrfrac.workloads.step import Step

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")


class Net(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 4)

    def forward(self, values):
        return torch.relu(self.linear(values))


def build(configuration, device):
    model, values = Net(configuration.batch), torch.randn(3, configuration.batch)
    return Step(run=lambda: model(values), samples=3, parameters=36, model=model, extra={"built": configuration})


WORKLOAD = Workload(name="net", about="", build=build, defaults={"batch": 8, "dtype": "fp32"}, modes=("infer",))


def configuration(**fields):
    return registry.configure(WORKLOAD, device="cpu", **fields)


def noting(name, stage, order):
    def apply(step, built):
        order.append(name)
        return step

    return Switch(name=name, about="", stage=stage, apply=apply)


def test_switches_go_on_by_stage_and_within_a_stage_in_the_order_of_the_table():
    order: list[str] = []
    table = (
        noting("late", Stage.COMPILE, order),
        noting("first", Stage.MODEL, order),
        noting("second", Stage.MODEL, order),
        noting("layout", Stage.CONFIGURATION, order),
    )
    arms.prepare(WORKLOAD, configuration(), ("second", "late", "first", "layout"), CPU, table=table)
    assert order == ["layout", "first", "second", "late"]


def test_two_compilers_at_once_are_refused():
    table = (noting("one", Stage.COMPILE, []), noting("other", Stage.COMPILE, []))
    with pytest.raises(AddrfracError, match="both compile the step"):
        arms.in_order(("one", "other"), table)


def test_the_workload_is_told_whether_its_step_becomes_a_graph_or_is_compiled():
    table = (noting("compiler", Stage.COMPILE, []),)
    assert arms.configured(configuration(), (), table=table).execution == "eager"
    assert arms.configured(configuration(), ("compiler",), table=table).execution == "compiled"
    assert arms.configured(configuration(), ("compiler",), arms.GRAPH, table).execution == "graph"


def test_a_switch_of_the_configuration_changes_what_is_built():
    wider = Switch(name="wider", about="", stage=Stage.CONFIGURATION, configure=lambda c: replace(c, batch=16))
    step = arms.prepare(WORKLOAD, configuration(), ("wider",), CPU, table=(wider,))
    assert step.extra["built"].batch == 16


def test_a_switch_that_does_not_apply_says_so():
    switch = Switch(name="folding", about="", stage=Stage.MODEL, why_not=lambda step, configuration: "no norm here")
    with pytest.raises(AddrfracError, match="folding does not apply: no norm here"):
        arms.prepare(WORKLOAD, configuration(), ("folding",), CPU, table=(switch,))


def test_the_model_can_be_hooked_after_the_rewrites_and_before_the_compiler():
    order: list[str] = []
    table = (noting("compiler", Stage.COMPILE, order), noting("rewrite", Stage.MODEL, order))
    arms.prepare(
        WORKLOAD,
        configuration(),
        ("compiler", "rewrite"),
        CPU,
        table=table,
        before_compiling=lambda step: order.append("hook"),
    )
    assert order == ["rewrite", "hook", "compiler"]


def test_a_step_that_becomes_a_graph_runs_what_the_graph_will_hold_with_the_next_inputs_in_place():
    order: list[str] = []
    step = Step(
        run=lambda: order.append("run"),
        samples=1,
        parameters=0,
        graph_run=lambda: order.append("graph run"),
        advance=lambda: order.append("advance"),
    )
    arms.as_captured(step).run()
    assert order == ["advance", "graph run"]


def test_a_graph_is_refused_on_a_cpu_with_the_reason():
    step = arms.prepare(WORKLOAD, configuration(), (), CPU)
    with pytest.raises(arms.NotCapturable, match="CUDA device"):
        arms.launchable(step, arms.GRAPH, CPU)
    assert arms.launchable(step, arms.EAGER, CPU) is step.run


def test_what_a_switch_sets_for_the_whole_process_is_as_it_was_afterwards():
    before = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    with contextlib.suppress(KeyError), arms.settings(configuration(dtype="tf32")):
        torch.backends.cudnn.benchmark = not before[0]
        assert torch.backends.cuda.matmul.allow_tf32
        raise KeyError
    assert (torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32) == before


def test_the_ninth_arm_in_a_process_compiles_as_the_first_did():
    compiled: list[int] = []

    def backend(graph, inputs):
        compiled.append(1)
        return graph.forward

    def apply(step, built):
        step.model.compile(backend=backend, dynamic=False)
        return step

    table = (Switch(name="compiler", about="", stage=Stage.COMPILE, apply=apply),)
    for arm in range(10):
        arms.prepare(WORKLOAD, configuration(batch=8 + arm), ("compiler",), CPU, table=table).run()
    assert len(compiled) == 10, "Dynamo's limit of eight a piece of code holds over all arms"
