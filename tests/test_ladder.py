"""The climb: what is kept, what is refused with which reason, and what a lost process costs."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from addrfrac import arms, ladder, ladder_ceilings, measure, parity, registry, store, switches
from addrfrac.arms import EAGER, GRAPH
from addrfrac.errors import AddrfracError
from addrfrac.measure import Facts, Lost, Tried
from addrfrac.records import Parity, Workload
from addrfrac.switches.switch import Stage, Switch


def switch(name, stage=Stage.MODEL, **fields):
    return Switch(name=name, about=f"about {name}", stage=stage, **fields)


TABLE = (
    switch("layout", Stage.CONFIGURATION),
    switch("first"),
    switch("second", needs=("first",)),
    switch("wrong"),
    switch("slowing"),
    switch("compile", Stage.COMPILE),
    switch("compile-own-graph", Stage.COMPILE, own_graph=True),
    switch("compile-slow", Stage.COMPILE, slow=True),
)


@dataclass
class World:
    """Step times by what is on, and what goes wrong; stands for the machine."""

    times: dict[str, float] = field(default_factory=lambda: {"first": 0.8, "slowing": 1.2})
    """Factor of each switch."""
    capturable: bool = True
    why_not: dict[str, str] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    """Arms whose preparation fails, and why."""
    fatal: set[str] = field(default_factory=set)
    """Arms that take their process along."""
    wrong: set[str] = field(default_factory=set)
    opened: int = 0
    free_beside_truth: int = 100 << 30
    alive: list[int] = field(default_factory=list)
    """How many arms were prepared together."""
    asked: list[tuple[str, object]] = field(default_factory=list)
    prepared: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)

    def us(self, arm):
        value = 1000.0 if arm.launch == EAGER else 700.0
        for name in arm.switches:
            value *= self.times.get(name, 1.0)
        return value

    def facts(self, arm):
        return Facts(
            estimate_us=self.us(arm),
            peak_bytes=1000,
            held_bytes=1 << 30,
            free_bytes=100 << 30,
            capturable=self.capturable,
            why_not="",
            trains=False,
            notes=(),
        )


class Fake:
    """A worker of that world."""

    def __init__(self, world, order):
        self.world, self.name, self.lost = world, order.name, ""
        if order.prepare is measure.record_truth:
            Path(order.arguments[1]).write_text("")
            self.said = ""
            return
        self.arm = order.arguments[1]
        if len(order.arguments) > 2 and order.arguments[2] is not None:
            Path(order.arguments[2]).write_text("")
        self.said = replace(world.facts(self.arm), free_bytes=world.free_beside_truth)
        self.beside = None

    def blocks(self, arm, rounds=6):
        return [[self.world.us(arm) * (1 + 0.001 * ((step + turn) % 3)) for step in range(5)] for turn in range(rounds)]

    def ask(self, question, *arguments, timeout=0, **named):
        if self.lost:
            raise Lost(self.lost)
        self.world.asked.append((self.name, question))
        if question is measure.facts_of_best:
            return self.world.facts(self.arm)
        if question is measure.why_not:
            return self.world.why_not.get(arguments[0], "")
        if question is measure.try_beside:
            return self.try_beside(arguments[1], arguments[2])
        if question is measure.keep:
            self.arm = self.beside
            return self.world.facts(self.arm)
        if question in (measure.block, measure.block_of_best):
            return self.blocks(self.arm, 1)[0]
        return None

    def try_beside(self, arm, outputs):
        if arm.name in self.world.fatal:
            self.lost = "its process ended (signal 11)"
            raise Lost(self.lost)
        if arm.name in self.world.failing:
            raise Lost(self.world.failing[arm.name])
        if arm.launch == GRAPH and not self.world.capturable:
            arm = replace(arm, launch=EAGER)
        if outputs is not None:
            Path(outputs).write_text("")
        self.beside = arm
        self.world.prepared.append((arm.name, arm.switches, arm.launch))
        return Tried(
            launch=arm.launch,
            best_us=self.blocks(self.arm),
            tried_us=self.blocks(arm),
            peak_bytes=1,
            host_us=2.0,
            seconds=(0, 0),
        )

    def end(self, why="ended"):
        self.lost = self.lost or why


def build(configuration, device):
    raise AssertionError("nothing is built in these tests")


WORKLOAD = Workload(name="fake", about="", build=build, defaults={"batch": 1}, modes=("infer",))


@pytest.fixture
def climb(monkeypatch):
    world = World()

    def start_all(orders, at_once):
        found, lost = {}, {}
        world.alive.append(len(orders))
        for order in orders:
            world.opened += order.prepare is measure.hold_bench
            arm = order.arguments[1]
            if order.prepare is measure.hold and arm.name in world.failing:
                lost[order.name] = world.failing[arm.name]
                continue
            if order.prepare is measure.hold:
                world.prepared.append((arm.name, arm.switches, arm.launch))
            found[order.name] = Fake(world, order)
        return found, lost

    def judge(base, arm, truth, configuration, *, exact=True, **others):
        bad = any(name in str(arm) for name in world.wrong)
        ratio = 90.0 if bad else 1.0
        return Parity(passed=not bad, error_ratio=ratio, base_error=0.01, arm_error=0.01, inputs=32, method="judged")

    monkeypatch.setattr(measure, "start_all", start_all)
    monkeypatch.setattr(parity, "judge", judge)
    monkeypatch.setattr(switches, "SWITCHES", TABLE)
    monkeypatch.setattr(switches, "find_switch", lambda name: next(each for each in TABLE if each.name == name))
    monkeypatch.setattr(registry, "find_workload", lambda name: WORKLOAD)

    def run(device="cuda", **plan):
        said: list[str] = []
        options = {"profiled": False, "ceilings": False} | plan
        found = ladder.ladder(
            "fake", registry.configure(WORKLOAD, device=device), plan=ladder.Plan(**options), progress=said.append
        )
        return found.ladder, said

    run.world = world
    return run


def rung(found, name):
    return next(each for each in found.rungs if each.name == name)


def test_what_helps_is_kept_and_what_does_not_is_shown_with_its_reason(climb):
    found, _ = climb()
    assert found.best == ("first",)
    assert found.best_launch == GRAPH
    assert rung(found, "first").kept
    assert "faster" in rung(found, "first").reason
    assert not rung(found, "layout").kept
    assert "same" in rung(found, "layout").reason
    assert "slower" in rung(found, "slowing").reason
    assert [each.name for each in found.rungs][:3] == ["eager", "cuda-graph", "layout"]


def test_each_switch_is_tried_on_top_of_those_kept_before(climb):
    found, _ = climb()
    assert rung(found, "second").switches == ("first", "second")
    assert rung(found, "layout").switches == ("layout",)
    assert rung(found, "first").gain.before == "best so far"


def test_a_faster_switch_that_computes_something_else_is_refused(climb):
    climb.world.times["wrong"] = 0.1
    climb.world.wrong.add("wrong")
    found, _ = climb()
    assert "wrong" not in found.best
    assert "parity fails" in rung(found, "wrong").reason
    assert "90" in rung(found, "wrong").reason


def test_a_switch_that_wins_only_with_another_is_tried_with_it(climb):
    climb.world.times |= {"first": 1.0, "second": 0.7}
    found, _ = climb()
    assert not rung(found, "first").kept
    assert rung(found, "second").kept
    assert found.best == ("first", "second")


def test_what_does_not_apply_is_in_the_record(climb):
    climb.world.why_not["first"] = "the model has no batch norm"
    found, _ = climb()
    assert rung(found, "first").times is None
    assert rung(found, "first").reason == "does not apply: the model has no batch norm"


def test_a_process_that_dies_costs_its_switch_and_not_the_climb(climb):
    climb.world.fatal.add("slowing")
    opened = climb.world.opened
    found, _ = climb()
    assert rung(found, "slowing").reason == "its process ended (signal 11)"
    assert climb.world.opened == opened + 2, "a second bench was opened"
    assert found.best == ("first",)
    assert [each.arm for each in found.arms] == ["eager", "eager + graph", "compile + graph", "best-library"]


def test_a_switch_that_cannot_be_on_after_all_says_why(climb):
    climb.world.failing["layout"] = "no ReLU comes right after a convolution here"
    found, _ = climb()
    assert rung(found, "layout").reason == "no ReLU comes right after a convolution here"


def test_the_compiler_is_tried_on_the_rewrites_and_on_the_plain_model_and_the_fastest_is_kept(climb):
    climb.world.times["compile"] = 0.6
    found, _ = climb()
    assert found.best == ("first", "compile")
    assert rung(found, "compile on all rewrites kept").kept
    assert not rung(found, "compile on the plain model").kept
    assert "faster still" in rung(found, "compile on the plain model").reason


def test_a_rewrite_that_hurts_the_compiler_is_left_out_under_it(climb, monkeypatch):
    world = climb.world
    world.times |= {"first": 0.9, "second": 0.9, "compile": 0.5}
    plain = world.us
    monkeypatch.setattr(
        world, "us", lambda arm: plain(arm) * (3 if {"second", "compile"} <= set(arm.switches) else 1), raising=False
    )
    found, _ = climb()
    assert found.best == ("first", "compile")
    assert rung(found, "compile on the rewrites without second").kept


def test_a_compiler_with_graphs_of_its_own_is_launched_eagerly(climb):
    climb()
    launches = {name: launch for name, _, launch in climb.world.prepared}
    assert launches["compile-own-graph on the plain model"] == EAGER
    assert launches["compile on the plain model"] == GRAPH


def test_what_compiles_for_minutes_waits_to_be_asked_for(climb):
    found, _ = climb()
    assert "--max-autotune" in rung(found, "compile-slow").reason
    found, _ = climb(max_autotune=True)
    assert rung(found, "compile-slow on the plain model").times is not None


def test_a_compiled_arm_that_fails_costs_itself_alone(climb):
    climb.world.failing["compile-own-graph on the plain model"] = "took more than 180 s"
    found, _ = climb()
    assert rung(found, "compile-own-graph on the plain model").reason == "took more than 180 s"
    assert rung(found, "compile on the plain model").times is not None


def test_the_arms_at_the_end_are_measured_in_processes_of_their_own(climb):
    found, _ = climb(processes=3)
    assert all(len(each.blocks_us) == 3 for each in found.arms)
    best = found.arms[-1]
    assert (best.arm, best.switches, best.launch) == ("best-library", ("first",), GRAPH)
    assert [(gain.before, gain.processes) for gain in found.gains] == [
        ("eager", 3),
        ("eager + graph", 3),
        ("compile + graph", 3),
    ]
    assert found.gains[0].speedup == pytest.approx(1000 / 560, rel=0.01)
    assert found.noise_floor is not None


def test_where_nothing_helps_the_best_is_the_base_and_no_gain_is_claimed(climb):
    climb.world.times = {}
    found, _ = climb()
    assert found.best == ()
    assert not any(each.kept for each in found.rungs if each.switches)
    assert next(gain for gain in found.gains if gain.before == "eager + graph").verdict == "same"


def test_a_step_that_can_be_no_graph_is_climbed_eagerly_and_says_so(climb):
    climb.world.capturable = False
    found, _ = climb()
    assert found.best_launch == EAGER
    assert [each.arm for each in found.arms] == ["eager", "compile", "best-library"]
    assert found.best == ("first",)


def test_on_a_cpu_nothing_is_captured_and_the_notes_say_what_the_times_are_not(climb):
    found, _ = climb(device="cpu")
    assert all(each.launch == EAGER for each in found.rungs)
    assert any("on the CPU" in note for note in found.notes)


def test_only_and_skip_choose_the_switches_and_an_unknown_name_is_told(climb, monkeypatch):
    found, _ = climb(only=("first", "slowing"), skip=("slowing",))
    assert [each.name for each in found.rungs] == ["eager", "cuda-graph", "first"]
    assert "compile + graph" not in [each.arm for each in found.arms]
    monkeypatch.undo()
    with pytest.raises(AddrfracError, match="no switch 'nonesuch'"):
        ladder._chosen(ladder.Plan(only=("nonesuch",)))


def test_the_climb_says_how_long_each_stage_took(climb):
    found, said = climb()
    assert any(note.startswith("seconds: building the base") for note in found.notes)
    assert all(line.startswith("[") for line in said)


def test_every_arm_gets_its_ceiling_once_where_only_one_process_fits(climb):
    found, _ = climb(at_once=1, ceilings=True, processes=2)
    assert len(found.ceilings) == 3
    asked = [name for name, question in climb.world.asked if question is ladder_ceilings.of_held]
    assert asked == ["eager + graph #1", "compile + graph #1", "best-library #1"]


def test_memory_that_the_truth_held_is_room_for_arms(climb):
    climb.world.free_beside_truth = 1 << 30
    climb()
    assert max(climb.world.alive) == 15


def test_what_was_tried_last_is_dropped_before_compilers_need_its_memory(climb):
    climb()
    asked = [question for _, question in climb.world.asked]
    last = max(place for place, question in enumerate(asked) if question is measure.try_beside)
    assert measure.drop in asked[last:]


def test_a_base_that_does_not_run_ends_the_climb_with_its_reason(climb, monkeypatch):
    monkeypatch.setattr(measure, "start_all", lambda orders, at_once: ({}, {"bench": "out of memory: 20 GiB"}))
    with pytest.raises(AddrfracError, match="does not run: out of memory"):
        climb()


# --- end to end, on this machine ------------------------------------------------------------------------------

NETWORK = """
import torch
from addrfrac.records import Workload
from addrfrac.workloads.step import inference

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, images):
        return self.head(torch.relu(self.norm(self.convolution(images))).mean((2, 3)))

def build(configuration, device):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return inference(Net(), (torch.randn(configuration.batch, 3, 16, 16),), configuration, device, samples=4)

NET = Workload(name="net", about="", build=build, defaults={"batch": 4, "dtype": "fp32"}, modes=("infer",))
"""


def test_a_user_s_own_file_is_climbed_and_saved_with_its_best_arm(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "own.py").write_text(NETWORK)
    before, measure.PRELOAD = measure.PRELOAD, ("torch", "addrfrac.measure")
    request = ladder.Request(
        workload=f"{tmp_path / 'own.py'}:NET",
        batches=(),
        seq_lens=(),
        fields={"steps": 3},
        device="cpu",
        plan=ladder.Plan(only=("fold-bn",), processes=1, rounds=2, block_us=5_000),
        warm_caches=False,
        directory=tmp_path / "run",
    )
    try:
        outcome = ladder.run_request(request, lambda line: None)
    finally:
        measure.PRELOAD = before
    run = store.load(tmp_path / "run")
    assert run.kind == "ladder"
    assert [each.name for each in run.ladder.rungs] == ["eager", "fold-bn"]
    folded = run.ladder.rungs[1]
    assert folded.parity.passed, folded.parity.method
    assert folded.share_of_busy["paper"].high is not None
    assert run.ladder.rungs[0].parity.error_ratio == 1.0
    assert [each.arm for each in run.ladder.arms] == ["eager", "best-library"]
    assert (tmp_path / "run" / "report.html").exists()
    best = store.load(tmp_path / "run" / "best-library")
    assert best.title.endswith("best-library")
    assert any("addrfrac report" in line for line in outcome.files)
    assert ladder.best_library(tmp_path / "run") == (run.ladder.best, EAGER)
    with pytest.raises(AddrfracError, match="holds no ladder"):
        ladder.best_library(tmp_path / "run" / "best-library")
    assert arms.configured(run.configuration, run.ladder.best).device == "cpu"
