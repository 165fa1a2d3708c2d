"""Turns between processes, what a comparison of arms may claim, and processes that are lost."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from addrfrac import measure, registry, stats
from addrfrac.arms import Arm, Job
from addrfrac.measure import Lost
from addrfrac.records import Verdict


class Fake:
    """Stands for a worker: gives blocks of one duration, or is lost after so many."""

    def __init__(self, name, log, us=100.0, lost_after=None):
        self.name, self.log, self.us, self.lost_after = name, log, us, lost_after
        self.said = SimpleNamespace(estimate_us=us, peak_bytes=None)
        self.asked = 0

    def ask(self, question, *arguments, timeout=0, **named):
        if self.lost_after is not None and self.asked >= self.lost_after:
            raise Lost("its process ended (signal 9)")
        self.asked += 1
        self.log.append(self.name)
        return [self.us] * arguments[0] if question is measure.block else None


def test_the_device_passes_in_turns_a_b_b_a():
    log = []
    workers = {name: Fake(name, log) for name in ("A", "B", "C")}
    blocks, lost = measure.take_turns(workers, dict.fromkeys("ABC", 5), 4)
    assert "".join(log) == "ABCCBAABCCBA"
    assert [len(taken) for taken in blocks.values()] == [4, 4, 4]
    assert lost == {}


def test_a_process_that_dies_costs_its_arm_and_the_others_go_on():
    log = []
    workers = {"A": Fake("A", log), "B": Fake("B", log, lost_after=2)}
    blocks, lost = measure.take_turns(workers, {"A": 5, "B": 5}, 6)
    assert len(blocks["A"]) == 6
    assert "B" not in blocks
    assert lost == {"B": "its process ended (signal 9)"}


def test_a_block_is_long_enough_to_time_and_short_enough_to_take_turns():
    assert measure.steps_of_block(4_000) == 10
    assert measure.steps_of_block(1) == measure.MOST_STEPS
    assert measure.steps_of_block(1e7) == measure.FEWEST_STEPS
    assert measure.steps_of_block(1e7, fewest=measure.FEWEST_SCREENED) < measure.FEWEST_STEPS


def test_as_many_processes_live_at_once_as_the_first_one_s_memory_allows():
    first = measure.Facts(
        estimate_us=1,
        peak_bytes=None,
        held_bytes=19 << 30,
        free_bytes=100 << 30,
        capturable=True,
        why_not="",
        trains=False,
        notes=(),
    )
    assert measure.room(first, 24) == 4
    assert measure.room(replace(first, held_bytes=99 << 30), 24) == 1
    assert measure.room(replace(first, free_bytes=None), 8) == 8


# --- gains ----------------------------------------------------------------------------------------------------


def drawn(rng, us, *, processes=3, blocks=6, steps=10, between=0.0025, within=0.01):
    """Blocks of an arm whose processes differ by `between` and whose steps differ by `within`."""
    return [
        [list(us * at * (1 + within * rng.standard_normal(steps))) for _ in range(blocks)]
        for at in 1 + between * rng.standard_normal(processes)
    ]


def times(blocks, arm="arm"):
    found = measure.arm_times(measure.Series(arm=Arm(name=arm), blocks=blocks))
    assert found is not None
    return found


def test_a_pair_with_no_gain_is_not_called_one():
    rng = np.random.default_rng(1)
    called = [
        measure.gain(times(drawn(rng, 100)), times(drawn(rng, 100))).verdict in (Verdict.FASTER, Verdict.SLOWER)
        for _ in range(150)
    ]
    assert sum(called) / len(called) <= 0.06


def test_a_gain_within_the_noise_floor_or_the_margin_does_not_help():
    rng = np.random.default_rng(2)
    before = times(drawn(rng, 100, between=0, within=0.001))
    slightly = times(drawn(rng, 99.5, between=0, within=0.001))
    clearly = times(drawn(rng, 95, between=0, within=0.001))
    assert not measure.helps(measure.gain(before, slightly))
    assert measure.gain(before, slightly).verdict is Verdict.SAME
    assert not measure.helps(measure.gain(before, clearly, noise_floor=0.08))
    assert measure.helps(measure.gain(before, clearly))


def test_a_real_gain_is_found_with_an_interval_that_holds_it():
    rng = np.random.default_rng(3)
    found = [measure.gain(times(drawn(rng, 110)), times(drawn(rng, 100))) for _ in range(40)]
    assert all(each.verdict is Verdict.FASTER for each in found)
    assert np.mean([each.low <= 1.1 <= each.high for each in found]) >= 0.9
    assert all(each.processes == 3 and each.saved_us.low > 0 for each in found)


def test_a_slower_arm_is_called_slower():
    rng = np.random.default_rng(4)
    assert measure.gain(times(drawn(rng, 100)), times(drawn(rng, 120))).verdict is Verdict.SLOWER


def test_raw_samples_are_kept_as_they_were_taken():
    blocks = [[[3.0, 1.0], [2.0, 5.0]], [[1.0, 1.0], [4.0, 4.0]]]
    assert times(blocks).blocks_us == (((3.0, 1.0), (2.0, 5.0)), ((1.0, 1.0), (4.0, 4.0)))


def test_two_instances_of_the_same_arm_give_the_noise_floor():
    assert stats.noise_between([[[100.0]]], [[[102.0]]]) == pytest.approx(0.0196, abs=1e-4)


def test_processes_decide_and_not_the_many_steps_within_them():
    rng = np.random.default_rng(5)
    spread = measure.gain(
        times(drawn(rng, 100, between=0.03, within=1e-4, steps=100)),
        times(drawn(rng, 100, between=0.03, within=1e-4, steps=100)),
    )
    assert spread.least_detectable > 0.02


# --- real processes -------------------------------------------------------------------------------------------

WORKLOADS = """
import os, time
from addrfrac.records import Workload
from addrfrac.workloads.step import Step

def steady(configuration, device):
    def run():
        time.sleep(0.001 * configuration.batch)
    return Step(run=run, samples=1, parameters=0)

def dying(configuration, device):
    os._exit(3)

def hanging(configuration, device):
    time.sleep(100)

def failing(configuration, device):
    raise ValueError("no such layer\\nsecond line")

def big(configuration, device):
    raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")

def dies_late(configuration, device):
    seen = []
    def run():
        seen.append(1)
        if len(seen) > 12:
            os._exit(5)
        time.sleep(0.001)
    return Step(run=run, samples=1, parameters=0)

STEADY, DYING, HANGING, FAILING, BIG, LATE = (
    Workload(name=build.__name__, about="", build=build, defaults={"batch": 1}, modes=("infer",))
    for build in (steady, dying, hanging, failing, big, dies_late)
)
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    pytest.importorskip("torch")
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(WORKLOADS)

    def job(name, batch=1):
        workload = registry.find_workload(f"{file}:{name}")
        return Job(
            workload=f"{file}:{name}",
            configuration=registry.configure(workload, device="cpu", batch=batch),
            device="cpu",
        )

    return job


@pytest.fixture(scope="module", autouse=True)
def _quick_server():
    before = measure.PRELOAD
    measure.PRELOAD = ("torch", "addrfrac.measure")
    yield
    measure.PRELOAD = before


def order(name, job, timeout=60.0):
    return measure.Order(name=name, prepare=measure.hold, arguments=(job, Arm(name=name)), timeout=timeout)


def test_what_goes_wrong_in_a_process_is_one_line_and_the_others_are_there(jobs):
    names = ("DYING", "FAILING", "BIG", "STEADY")
    found, lost = measure.start_all([order(name, jobs(name)) for name in names], 4)
    assert set(found) == {"STEADY"}
    assert lost == {
        "DYING": "its process ended (exit 3)",
        "FAILING": "ValueError: no such layer",
        "BIG": "out of memory: CUDA out of memory. Tried to allocate 20 GiB",
    }
    worker = found["STEADY"]
    assert len(worker.ask(measure.block, 7)) == 7
    assert worker.said.estimate_us > 900
    worker.end()
    assert not worker.process.is_alive()
    with pytest.raises(Lost):
        worker.ask(measure.block, 7)


def test_a_process_that_takes_too_long_is_ended_and_says_so(jobs):
    found, lost = measure.start_all([order("HANGING", jobs("HANGING"), timeout=6.0)], 1)
    assert found == {}
    assert lost == {"HANGING": "took more than 6 s"}


def test_arms_in_processes_of_their_own_are_told_apart_and_a_dying_one_is_reported(jobs):
    job = jobs("STEADY", batch=2)
    series = measure.measure_arms(
        job, [Arm(name="one"), Arm(name="other")], processes=2, rounds=3, at_once=2, block_us=10_000
    )
    assert [len(each.blocks) for each in series.values()] == [2, 2]
    assert all(len(process) == 3 for each in series.values() for process in each.blocks)
    assert measure.arm_times(series["one"], on_cpu=True).median_us > 1900
    late = measure.measure_arms(jobs("LATE"), [Arm(name="late")], processes=1, rounds=4, at_once=1, block_us=5_000)
    assert late["late"].blocks == []
    assert late["late"].lost == ["its process ended (exit 5)"]


def test_the_last_process_of_every_arm_is_visited_once_where_not_all_fit(jobs):
    seen = []

    def visit(workers, so_far):
        alive = all(worker.ask(measure.facts).estimate_us > 0 for worker in workers.values())
        seen.append((alive, {name: len(so_far[name].blocks) for name in workers}))

    wanted = [Arm(name="one"), Arm(name="other"), Arm(name="third")]
    measure.measure_arms(jobs("STEADY", batch=2), wanted, processes=2, rounds=1, at_once=2, block_us=2_000, visit=visit)
    assert seen == [(True, {"one": 2}), (True, {"other": 2, "third": 2})]
