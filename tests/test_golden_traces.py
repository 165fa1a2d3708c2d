"""Our own recordings on an H200, taken end to end: what is known of them without this code must come out of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from addrfrac.analysis import Options, analyze
from addrfrac.records import Bound, Certainty, Op, Run

TRACES = Path(__file__).parent / "traces"
GRAPH, CAPTURE = TRACES / "h200_resnet50_graph_trace.json.gz", TRACES / "h200_resnet50_graph_capture.json.gz"


@pytest.fixture(scope="module")
def dlrm() -> Run:
    return analyze(TRACES / "h200_dlrm_fbgemm_infer.json.gz", Options())[0]


@pytest.fixture(scope="module")
def replay() -> Run:
    return analyze(GRAPH, Options(capture=CAPTURE))[0]


def share_of_time(run: Run, wanted: object) -> float:
    return sum(row.device_us for row in run.kernels if wanted(row)) / sum(row.device_us for row in run.kernels)  # type: ignore[operator]


def test_accounts_close_in_every_step(dlrm: Run, replay: Run) -> None:
    for run in (dlrm, replay):
        assert len(run.accounts.steps) == 10, "eleven were recorded, the first is the lead-in"
        assert run.accounts.residual_us == 0
        for step in run.accounts.steps:
            assert step.residual_us == 0
            assert step.busy_us + step.gap_us == pytest.approx(step.span_us)


def test_the_recorded_capture_comes_back_with_the_trace(dlrm: Run) -> None:
    assert dlrm.environment is not None
    assert dlrm.environment.device == "NVIDIA H200"
    assert dlrm.configuration is not None
    assert dlrm.configuration.embedding == "fbgemm"
    assert dlrm.wall is not None
    assert dlrm.wall.device is not None
    assert len(dlrm.wall.device.samples_us) == 30
    assert dlrm.accounts.busy_us < dlrm.wall.step_us


def test_one_fbgemm_lookup_a_step_is_the_embedding_and_counts_by_policy(dlrm: Run) -> None:
    fbgemm = [row for row in dlrm.kernels if row.provider == "fbgemm"]
    assert {row.op for row in fbgemm} == {Op.EMBEDDING}
    lookups = [row for row in fbgemm if "split_embedding_codegen_forward" in row.name]
    assert [row.launches for row in lookups] == [1.0], "all 26 tables in one launch"
    assert lookups[0].bounds["paper"] is Bound.REPLACEABLE
    assert lookups[0].bounds["strict"] is Bound.LIBRARY
    assert dlrm.addressable.by_policy["strict"].share_of_busy.high < dlrm.addressable.share_of_busy.low


def test_nothing_of_these_models_is_unknown(dlrm: Run, replay: Run) -> None:
    for run in (dlrm, replay):
        assert run.addressable.by_policy["paper"].unknown_us <= 0.005 * run.accounts.busy_us


def test_a_replay_is_one_host_call_a_step_and_is_not_host_bound(replay: Run) -> None:
    assert replay.accounts.host_calls == 1
    assert replay.accounts.host_bound is False


def test_a_capture_trace_gives_replayed_kernels_their_ops(replay: Run) -> None:
    def agrees(row: object) -> bool:
        return row.certainty is Certainty.AGREE  # type: ignore[attr-defined]

    alone = analyze(GRAPH, Options())[0]
    assert share_of_time(alone, agrees) == 0, "a replay alone has only names"
    assert share_of_time(replay, agrees) > 0.95
    convolutions = [row for row in replay.kernels if row.op is Op.CONV]
    assert sum(row.launches for row in convolutions if row.role == "main") == 53, "ResNet-50 has 53 convolutions"


def test_the_fraction_of_a_replay_agrees_with_its_own_eager_steps(replay: Run) -> None:
    eager = analyze(CAPTURE, Options())[0]
    assert eager.addressable.share_of_busy.low == pytest.approx(replay.addressable.share_of_busy.low, abs=0.01)


def test_a_supplied_wall_replaces_the_recorded_one(dlrm: Run) -> None:
    other = analyze(TRACES / "h200_dlrm_fbgemm_infer.json.gz", Options(wall_ms=10.0))[0]
    assert other.wall is not None
    assert other.wall.step_us == 10_000
    assert dataclasses.replace(other, wall=dlrm.wall).kernels == dlrm.kernels
