"""One pass of the published harnesses says what each of them says by itself, and goes on where they stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from addrfrac.bench.kernelbench import workers
from addrfrac.bench.kernelbench.device_turn import DeviceTurn
from addrfrac.bench.kernelbench.evaluate import Task, blank, evaluate, median_us, without_tf32
from addrfrac.bench.kernelbench.records import Evaluation, Problem, Solution
from addrfrac.bench.kernelbench.solutions import kind_of
from addrfrac.verification.check import check_target
from addrfrac.verification.harness import figures_of
from addrfrac.verification.processes import Server, start_server
from addrfrac.verification.protocols import PROTOCOLS
from addrfrac.verification.records import PrecisionClass, Status
from addrfrac.verification.sources import Source, Target

Make = Callable[..., Task]
PUBLISHED = tuple(name for name, protocol in PROTOCOLS.items() if protocol.in_process)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with start_server("cpu") as one:
        yield one


@pytest.fixture
def turn(tmp_path: Path) -> DeviceTurn:
    return DeviceTurn(tmp_path, "cpu")


@pytest.fixture
def task(texts: dict[str, str]) -> Callable[..., Task]:
    def made(name: str, protocols: tuple[str, ...] = PUBLISHED, precision: str = "tf32") -> Task:
        text = texts[name]
        return Task(
            key="k",
            problem=Problem(level=1, number=1, title="swish", text=texts["swish"]),
            solution=Solution(level=1, number=1, name="llm", sample=0, path="x.py", text=text, kind=kind_of(text)),
            protocols=protocols,
            precision=precision,
            device="cpu",
            quick=True,
            timeout_s=30.0,
            device_name="a CPU",
            versions={},
        )

    return made


@pytest.mark.parametrize(
    "name", ["right", "zeros", "only as published", "dies", "raises", "shape", "within 1e-3", "nan"]
)
def test_one_pass_accepts_what_each_harness_accepts_by_itself(
    server: Server, turn: DeviceTurn, task: Make, texts: dict[str, str], name: str
) -> None:
    found = evaluate(server, task(name), turn)
    target = Target(name="swish", problem=Source(text=texts["swish"]), solution=Source(text=texts[name]))
    for protocol in PUBLISHED:
        mine = found.verdict(protocol)
        assert mine is not None
        assert mine.passed is check_target(server, target, PROTOCOLS[protocol], timeout_s=30.0).passed, protocol


def test_checks_after_the_first_failure_are_told_with_their_figures(
    server: Server, turn: DeviceTurn, task: Make
) -> None:
    found = evaluate(server, task("zeros"), turn)
    verdict = found.verdict("kernelbench-verified")
    assert verdict is not None
    assert [check.passed for check in verdict.checks] == [False] * 4
    assert all(check.figure is not None and check.limit == 1e-3 for check in verdict.checks)
    assert len(found.comparisons) == 8  # five seeds, and three more distributions of the first


def test_any_tolerance_s_verdict_follows_from_the_figures(server: Server, turn: DeviceTurn, task: Make) -> None:
    found = evaluate(server, task("within 1e-3"), turn)
    needed = [one.tolerance_needed for one in found.comparisons if one.distribution == "published"]
    assert all(each is not None and 1e-4 < each < 1e-3 for each in needed)


def test_what_dies_in_the_common_pass_is_asked_by_each_protocol_apart(
    server: Server, turn: DeviceTurn, task: Make
) -> None:
    found = evaluate(server, task("dies"), turn)
    assert found.comparisons == ()
    assert found.times == ()
    assert "published harnesses, one by one" in found.stage_seconds
    assert [verdict.passed for verdict in found.verdicts] == [False] * 3
    assert "signal 6" in found.verdicts[0].reason


def test_both_sides_are_timed_by_the_naive_clock_whether_right_or_not(
    server: Server, turn: DeviceTurn, task: Make
) -> None:
    found = evaluate(server, task("zeros"), turn)
    for name in ("eager-strict", "eager-tf32", "candidate"):
        us = median_us(found, name, "naive")
        assert us is not None
        assert us > 0
    assert median_us(found, "candidate", "trusted") is None


def test_protocols_stand_in_the_order_asked_for_with_ours_among_them(
    server: Server, turn: DeviceTurn, task: Make
) -> None:
    found = evaluate(server, task("only as published", ("kernelbench", "addrfrac", "study")), turn)
    assert [verdict.protocol for verdict in found.verdicts] == ["kernelbench", "addrfrac", "study"]
    assert [verdict.passed for verdict in found.verdicts] == [True, False, True]
    assert found.class_reached


def test_right_only_to_tf32_is_not_right_where_fp32_was_asked_for(server: Server, turn: DeviceTurn, task: Make) -> None:
    verdict = evaluate(server, task("right", ("addrfrac",)), turn).verdicts[0]
    assert verdict.passed
    assert without_tf32(verdict) == verdict
    coarse = without_tf32(replace(verdict, precision=PrecisionClass.TF32))
    assert coarse.status is Status.LOWER_PRECISION
    assert not coarse.checks[-1].passed


def test_both_sides_run_in_bf16_where_it_was_asked_for(server: Server, turn: DeviceTurn, task: Make) -> None:
    found = evaluate(server, task("right", precision="bf16"), turn)
    assert {one.dtype for one in found.comparisons} == {"bfloat16"}


# --- figures ----------------------------------------------------------------------------------------------------


def test_the_tolerance_needed_is_where_allclose_turns() -> None:
    torch.manual_seed(0)
    reference = torch.randn(50, 7, dtype=torch.float64)
    output = reference + 1e-3 * torch.randn(50, 7, dtype=torch.float64)
    found = figures_of(reference, output)
    assert isinstance(found, dict)
    needed = found["tolerance_needed"]
    assert torch.allclose(output, reference, atol=needed * 1.0001, rtol=needed * 1.0001)
    assert not torch.allclose(output, reference, atol=needed * 0.9999, rtol=needed * 0.9999)


def test_equal_infinities_are_equal_and_a_nan_needs_more_than_any_tolerance() -> None:
    infinite = torch.tensor([1.0, float("inf")])
    same, wrong = figures_of(infinite, infinite.clone()), figures_of(torch.ones(2), torch.tensor([1.0, float("nan")]))
    assert isinstance(same, dict)
    assert isinstance(wrong, dict)
    assert (same["tolerance_needed"], same["overflows"], same["not_finite"]) == (0.0, True, False)
    assert (wrong["tolerance_needed"], wrong["not_finite"]) == (None, True)


def test_an_empty_output_and_another_shape_have_an_answer() -> None:
    empty = figures_of(torch.zeros(0, 3), torch.zeros(0, 3))
    assert isinstance(empty, dict)
    assert empty["tolerance_needed"] == 0.0
    assert figures_of(torch.zeros(2, 3), torch.zeros(3, 2)) == "shape (3, 2), not (2, 3)"


# --- who has the device, and workers that are lost ---------------------------------------------------------------


def test_whoever_measures_has_the_device_alone(tmp_path: Path) -> None:
    checking, measuring, overlaps = set[int](), set[int](), list[bool]()

    def one(index: int) -> None:
        turn = DeviceTurn(tmp_path, "0")
        for _ in range(20):
            with turn.shared():
                checking.add(index)
                overlaps.append(bool(measuring))
                checking.discard(index)
                with turn.alone():
                    measuring.add(index)
                    overlaps.append(len(measuring) > 1 or bool(checking))
                    measuring.discard(index)
        turn.close()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(overlaps) == 4 * 20 * 2
    assert not any(overlaps)


class Falling:
    """A pool whose process is lost at the first task of each of its first `falls` lives."""

    lives = 0
    falls = 0

    def __init__(self) -> None:
        type(self).lives += 1

    def submit(self, _function: Any, one: Task) -> Future[Evaluation]:
        done: Future[Evaluation] = Future()
        if type(self).lives <= type(self).falls:
            done.set_exception(BrokenProcessPool("gone"))
        else:
            done.set_result(blank(one))
        return done

    def shutdown(self, wait: bool = True) -> None:
        """Nothing to end."""


@pytest.mark.parametrize(("falls", "lost"), [(0, 0), (1, 0), (2, 1), (4, 2)])
def test_a_lost_worker_s_task_is_tried_once_more_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, task: Make, falls: int, lost: int
) -> None:
    Falling.lives, Falling.falls = 0, falls
    monkeypatch.setattr(workers, "_pool", lambda place, folder: Falling())
    found = list(workers.evaluations([task("right")] * 3, jobs=1, gpus=1, device="cpu"))
    assert [bool(one.failure) for one in found] == [True] * lost + [False] * (3 - lost)
    assert all("its worker was lost 2 times" in one.failure for one in found[:lost])


def test_a_fault_of_our_own_is_raised_and_not_waited_for(monkeypatch: pytest.MonkeyPatch, task: Make) -> None:
    def fall(_place: str, _folder: str) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr(workers, "_pool", fall)
    with pytest.raises(KeyError, match="ours"):
        list(workers.evaluations([task("right")], jobs=1, gpus=1, device="cpu"))


def test_workers_go_round_the_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [workers._place(index, 2, "cuda") for index in range(4)] == ["3", "5", "3", "5"]
    assert workers._place(0, 2, "cpu") == "cpu"
