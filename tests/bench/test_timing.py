"""What the parent makes of its workers, on workers made up for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch

from addrfrac.bench import contest, timing
from addrfrac.bench.contest import Agreement, Seated
from addrfrac.bench.dlrm import judged_times
from addrfrac.bench.timing import Taken, arm_name, clock_ratio, contestant_of


def seated(agreement: Agreement | None = None) -> Seated:
    return Seated(
        step_us={"eager": 1.0}, calls={"eager": 8}, no_graph="", spoilt=False, agreement=agreement, bytes=100, flops=0,
        peak_bytes=None,
    )  # fmt: skip


class FakeWorker:
    """Takes so long a step, and says what it likes."""

    def __init__(self, step_s: float, said_us: float, overhead_s: float = 0.002) -> None:
        self.step_s, self.said_us, self.overhead_s = step_s, said_us, overhead_s

    def ask(self, question: Callable[..., Any], steps: int, timeout: float = 1.0) -> list[float]:
        time.sleep(self.overhead_s + steps * self.step_s)
        return [self.said_us] * steps


def test_an_honest_process_agrees_with_the_parents_clock_whatever_a_message_costs():
    ratio, step_us = clock_ratio(FakeWorker(0.004, 500.0, overhead_s=0.02), "eager", calls=8)
    assert ratio < timing.LIE
    assert 2_000 < step_us < 8_000


@pytest.mark.parametrize("said_us", [0.0, 0.5, 250.0])
def test_a_process_that_says_less_than_it_takes_is_found_out(said_us):
    ratio, _ = clock_ratio(FakeWorker(0.004, said_us), "eager", calls=8)
    assert ratio > 1.5


def test_a_lie_is_the_failure_of_the_evaluation(blank):
    taken = Taken(ratio=3.0, blocks={"eager": [[[1.0]]], "solution": [[[0.5]]]})
    assert judged_times(blank, taken).failure.startswith("timing disagreement: a step takes 3.00 times")


def test_outputs_that_do_not_agree_at_the_timed_size_are_the_failure(blank):
    wrong = Agreement(error=0.5, limit=1e-5, agrees=False, reason="output 0: relative error 5.00e-01")
    taken = Taken(seated={"solution": seated(agreement=wrong)})
    found = judged_times(blank, taken)
    assert found.agrees is False
    assert found.failure == "wrong at this size: output 0: relative error 5.00e-01"


def test_gains_are_told_on_blocks_that_chose_nothing(blank):
    honest = Agreement(error=0.0, limit=1e-5, agrees=True, reason="")
    taken = Taken(
        seated={"solution": seated(agreement=honest), "eager": seated()},
        blocks={
            "eager": [[[10.0]] * 4] * 3,
            "compile": [[[2.0], [8.0]] * 2] * 3,  # best on even blocks alone
            "fbgemm": [[[5.0]] * 4] * 3,
            "solution": [[[4.0]] * 4] * 3,
        },
        ratio=1.0,
    )
    found = judged_times(blank, taken)
    assert found.best_baseline == "compile"
    assert found.over_best.speedup == pytest.approx(2.0)
    assert found.over_eager.speedup == pytest.approx(2.5)
    assert found.over_library.speedup == pytest.approx(1.25)


def test_a_baseline_whose_outputs_are_wrong_is_no_baseline(blank):
    honest = Agreement(error=0.0, limit=1e-5, agrees=True, reason="")
    wrong = Agreement(error=1.0, limit=1e-5, agrees=False, reason="output 0")
    taken = Taken(
        seated={"solution": seated(agreement=honest), "fbgemm": seated(agreement=wrong), "eager": seated()},
        blocks={"eager": [[[10.0]] * 4], "fbgemm": [[[1.0]] * 4], "solution": [[[5.0]] * 4]},
        ratio=1.0,
    )
    found = judged_times(blank, taken)
    assert (found.best_baseline, found.over_library) == ("eager", None)


def test_the_forward_pass_alone_stands_beside_what_trains(blank):
    taken = Taken(
        seated={"solution": seated(), "eager": seated()},
        blocks={
            "eager": [[[10.0]] * 4], "solution": [[[5.0]] * 4],
            "eager forward": [[[3.0]] * 4], "solution forward": [[[1.0]] * 4],
        },
        ratio=1.0,
    )  # fmt: skip
    found = judged_times(blank, taken)
    assert found.over_eager.speedup == pytest.approx(2.0)
    assert found.extra["forward"]["over_eager"][0] == pytest.approx(3.0)


def test_arms_are_named_after_who_computes_and_how():
    for launch in (contest.EAGER, contest.GRAPH, contest.FORWARD, contest.FORWARD_GRAPH):
        assert contestant_of(arm_name("fbgemm", launch)) == "fbgemm"
    assert arm_name("solution", contest.FORWARD_GRAPH) == "solution forward + graph"


def test_as_many_tables_as_the_device_holds_live_at_once():
    assert timing.room(2 << 30, 139 << 30, 12) >= 11
    assert timing.room(20 << 30, 139 << 30, 12) == 4
    assert timing.room(67 << 30, 139 << 30, 12) == 1
    assert timing.room(67 << 30, None, 12) == 12, "a CPU's memory is not asked"


def test_a_long_step_is_a_block_by_itself():
    assert timing.steps_of_block(1e6) == 1
    assert timing.steps_of_block(1.0) == timing.MOST_STEPS
    assert contest.lead_steps(1e6) == 0
    assert contest.lead_steps(10.0) == 2


def test_integers_must_be_equal_unless_the_baselines_own_differ():
    truth = torch.arange(100)
    other = truth.clone()
    other[3] = 0
    assert contest.compared([truth], [truth], [truth]).agrees
    assert not contest.compared([other], [truth], [truth]).agrees
    assert contest.compared([other], [other], [truth]).agrees


def test_an_error_may_be_eight_times_the_baselines_and_a_wrong_row_is_found():
    torch.manual_seed(0)
    truth = torch.randn(1000, 16, dtype=torch.float64)
    noisy = truth + 1e-4 * torch.randn_like(truth)
    assert contest.compared([truth + 3e-4 * torch.randn_like(truth)], [noisy], [truth]).agrees
    one_row = truth.clone()
    one_row[7] = 0.0  # 3 % of the whole
    assert not contest.compared([one_row], [noisy], [truth]).agrees
    assert not contest.compared([truth[:5]], [truth], [truth]).agrees
    assert not contest.compared([truth * float("nan")], [truth], [truth]).agrees


def test_a_baseline_stays_seated_for_the_next_solution_of_its_problem_alone():
    chair = contest.Chair(device=torch.device("cpu"), settings=ExitStack())
    eager = contest.Contestant(problem="permute_pooled", size="tiny", indices="uniform", kind="reference")
    first = contest.sit(chair, eager)
    seat = chair.seat
    assert contest.sit(chair, replace(eager, judged=False)) is first
    assert chair.seat is seat
    contest.sit(chair, replace(eager, problem="bce_with_logits"))
    assert chair.seat is not seat
    contest.stand_up(chair)
    assert chair.seat is None
    assert contest.sit(chair, eager) is not first


class Seen:
    """A worker that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Callable[..., Any]] = []

    def ask(self, question: Callable[..., Any]) -> None:
        self.asked.append(question)

    def end(self, _why: str) -> None:
        self.asked.append(self.end)


def test_baselines_that_the_next_case_has_not_give_their_memory_back():
    crew = timing.Crew("cpu", 1.0)
    crew.kept = {name: Seen() for name in ("eager #0", "fbgemm #0", "solution #0")}
    workers = dict(crew.kept)
    crew.rest(list(workers), keep=True)
    assert [worker.asked for worker in workers.values()] == [[], [], [workers["solution #0"].end]]
    timing.time_case(crew, {"eager": None}, processes=0, rounds=2, at_once=1)
    assert workers["fbgemm #0"].asked == [contest.stand_up]
    assert not crew.sitting
