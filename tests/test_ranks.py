"""Who waited for whom, told from durations alone: the ranks' clocks are set at random here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.analysis import Options, analyze
from addrfrac.attribute import attribute
from addrfrac.classify import POLICIES
from addrfrac.collectives import RankPart
from addrfrac.ranks import rank_table
from addrfrac.records import Collective, Op
from addrfrac.window import find_window

ALL_REDUCE = Collective(name="allreduce", group="0", group_size=4, dtype="BFloat16", elements=1000, sequence=-1)
OFFSETS = (0, 7_000_000_000, 123_456_789, 55_555)


@pytest.fixture(scope="module")
def kinds(label):
    return {
        "gemm": label(Op.GEMM, "cublas"),
        "norm": label(Op.NORMALIZATION, "aten"),
        "nccl": label(Op.COMMUNICATION, "nccl"),
    }


@pytest.fixture(scope="module")
def table_of(run_of):
    def of(ranks):
        parts, runs = [], []
        for rank, built in enumerate(ranks):
            trace, labels = built.build(), built.labels()
            window = find_window(trace)
            timeline = attribute(trace, labels, window, POLICIES, "paper").timeline
            parts.append(RankPart(rank=rank, trace=trace, labels=labels, window=window, timeline=timeline))
            runs.append(run_of(built))
        return rank_table(parts, runs)

    return of


def job(trace_builder, kinds, gemms, *, transfer=2_000, offsets=OFFSETS, late=None, collective=ALL_REDUCE, hide=False):
    """Ranks that each run a GEMM (`gemms[step][rank]` ns) and then an all-reduce that ends on all of them at once.

    `late` is a rank whose all-reduce is launched 1.5 us after its GEMM has ended. With `hide` a norm runs beside every
    all-reduce on a stream of its own.
    """
    ranks = [trace_builder(rank=rank, world_size=len(gemms[0])) for rank in range(len(gemms[0]))]
    for step, lengths in enumerate(gemms):
        begin = 100_000 * step
        enters = [begin + 1_000 + length + (1_500 if rank == late else 0) for rank, length in enumerate(lengths)]
        end = max(enters) + transfer
        for rank, built in enumerate(ranks):
            at = offsets[rank]
            one = replace(collective, sequence=step) if collective and collective.sequence >= 0 else collective
            built.step(step, at + begin, at + begin + 99_999)
            built.launched(
                "gemm", at + begin, at + begin + 1_000, at + begin + 1_000 + lengths[rank], label=kinds["gemm"]
            )
            called = at + enters[rank] - 10 if rank == late else at + begin + 2
            built.launched("nccl", called, at + enters[rank], at + end, stream=20, label=kinds["nccl"], collective=one)
            if hide:
                start = at + enters[rank]
                built.launched("norm", at + begin + 3, start, at + end, label=kinds["norm"])
    return ranks


def by_rank(table):
    return {row.rank: row for row in table.ranks}


EVEN = (5_000, 5_000, 5_000, 5_000)
STRAGGLER = (5_000, 5_000, 8_000, 5_000)


def test_the_least_duration_is_the_transfer_and_the_rest_is_waiting(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER]))
    rows = by_rank(table)
    assert [rows[rank].transfer_us for rank in range(4)] == [2.0] * 4
    assert [rows[rank].waiting_us for rank in range(4)] == [3.0, 3.0, 0.0, 3.0]
    (kind,) = table.collectives
    assert (kind.name, kind.group, kind.ranks, kind.count) == ("allreduce", "0", 4, 1.0)
    assert (kind.transfer_us, kind.waiting_us) == (2.0, pytest.approx(9 / 4))


def test_waiting_is_charged_to_what_the_slowest_rank_did_meanwhile(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER]))
    assert [(cause.what, cause.us) for cause in table.causes] == [("gemm · cublas", pytest.approx(9 / 4))]
    assert table.straggler == 2
    assert by_rank(table)[2].came_last == 1.0
    assert by_rank(table)[2].caused_us == pytest.approx(3.0)
    assert by_rank(table)[0].caused_us == 0.0


def test_a_host_that_launched_late_is_the_cause_not_the_kernels(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [EVEN], late=1))
    assert [(cause.what, cause.us) for cause in table.causes] == [("idle: host-starved", pytest.approx(1.5 * 3 / 4))]
    assert table.straggler == 1


def test_figures_are_means_over_the_steps(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER, EVEN]))
    assert by_rank(table)[0].waiting_us == 1.5
    assert by_rank(table)[2].came_last == 0.5
    assert table.causes[0].us == pytest.approx(9 / 8)


def test_nobody_waits_where_all_are_even(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [EVEN]))
    assert table.straggler is None
    assert table.causes == ()
    assert all(row.waiting_us == 0.0 for row in table.ranks)
    assert table.work_spread == 0.0


def test_the_spread_is_of_the_work_not_of_the_waiting(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER]))
    assert len({row.busy_us for row in table.ranks}) == 1, "waiting in NCCL makes all ranks look equally busy"
    assert [row.work_us for row in table.ranks] == [7.0, 7.0, 10.0, 7.0]
    assert table.work_spread == pytest.approx(3 / 7)


def test_waiting_behind_other_work_is_not_exposed(trace_builder, kinds, table_of):
    bare, hidden = (by_rank(table_of(job(trace_builder, kinds, [STRAGGLER], hide=hide))) for hide in (False, True))
    assert (bare[0].waiting_us, bare[0].exposed_waiting_us) == (3.0, 3.0)
    assert (hidden[0].waiting_us, hidden[0].exposed_waiting_us) == (3.0, 0.0)


GEMMS = st.lists(st.tuples(*[st.integers(100, 9_000)] * 4), min_size=1, max_size=3)


@settings(max_examples=20, deadline=None)
@given(GEMMS, st.tuples(*[st.integers(0, 10**15)] * 4), st.booleans())
def test_the_ranks_clocks_do_not_matter(trace_builder, kinds, table_of, gemms, offsets, hide):
    told = table_of(job(trace_builder, kinds, gemms, hide=hide))
    assert table_of(job(trace_builder, kinds, gemms, hide=hide, offsets=offsets)) == told


@settings(max_examples=20, deadline=None)
@given(GEMMS, st.booleans())
def test_what_was_waited_was_caused_by_somebody_and_spent_on_something(trace_builder, kinds, table_of, gemms, hide):
    table = table_of(job(trace_builder, kinds, gemms, hide=hide))
    waited = sum(row.waiting_us for row in table.ranks)
    assert 3 * sum(row.caused_us for row in table.ranks) == pytest.approx(waited)
    assert 4 * sum(cause.us for cause in table.causes) == pytest.approx(waited)
    assert 4 * sum(row.waiting_us for row in table.collectives) == pytest.approx(waited)
    assert all(0 <= row.exposed_waiting_us <= row.waiting_us + 1e-9 for row in table.ranks)


# --- finding the counterpart --------------------------------------------------------------------------------


def test_a_recorded_sequence_number_finds_the_counterpart_where_a_rank_misses_some(trace_builder, kinds, table_of):
    numbered = replace(ALL_REDUCE, sequence=0)
    ranks = job(trace_builder, kinds, [EVEN, STRAGGLER, EVEN], collective=numbered)
    ranks[3]._kernels = [
        k for k in ranks[3]._kernels if not (k["collective"] >= 0 and k["start_ns"] < OFFSETS[3] + 50_000)
    ]
    table = table_of(ranks)
    assert not any("sequence number" in note for note in table.notes)
    assert by_rank(table)[3].waiting_us == pytest.approx(1.0)
    assert by_rank(table)[0].waiting_us == pytest.approx(1.0)
    assert all(row.unmatched_us == 0.0 for row in table.ranks)


def test_matching_by_order_is_told(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER, EVEN]))
    assert any("2 of 2 collectives carry no sequence number" in note for note in table.notes)


def test_by_order_a_step_with_different_counts_is_left_unmatched_and_told(trace_builder, kinds, table_of):
    ranks = job(trace_builder, kinds, [STRAGGLER, STRAGGLER])
    at = OFFSETS[3]
    ranks[3].launched("nccl", at + 5, at + 30_000, at + 31_000, label=kinds["nccl"], collective=ALL_REDUCE)
    table = table_of(ranks)
    assert by_rank(table)[0].waiting_us == 1.5, "the second step still tells"
    assert by_rank(table)[3].unmatched_us == pytest.approx((5.0 + 1.0) / 2)
    assert any("different numbers of them" in note for note in table.notes)


def test_counterparts_with_different_names_are_none(trace_builder, kinds, table_of):
    numbered = replace(ALL_REDUCE, sequence=0)
    ranks = job(trace_builder, kinds, [STRAGGLER], collective=numbered)
    ranks[0]._collectives[0] = replace(numbered, name="broadcast")
    table = table_of(ranks)
    assert all(row.waiting_us == 0.0 for row in table.ranks)
    assert any("4 communication kernels have no counterpart" in note for note in table.notes)


def test_sends_and_receives_are_not_matched(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER], collective=replace(ALL_REDUCE, name="send")))
    assert all(row.waiting_us == 0.0 for row in table.ranks)
    assert by_rank(table)[2].unmatched_us == 2.0


def test_a_group_of_one_waits_for_nobody_and_is_no_loss(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER], collective=replace(ALL_REDUCE, group_size=1)))
    assert all(row.waiting_us == row.unmatched_us == 0.0 for row in table.ranks)


def test_groups_of_some_ranks_each_wait_among_themselves(trace_builder, kinds, table_of):
    pairs = [replace(ALL_REDUCE, group=str(rank // 2), group_size=2) for rank in range(4)]
    ranks = job(trace_builder, kinds, [STRAGGLER])
    for built, pair in zip(ranks, pairs, strict=True):
        built._collectives[0] = pair
    rows = by_rank(table_of(ranks))
    # Ranks 0 and 1 have a group of their own: both ran 5 us in it, and nothing tells a wait.
    assert [rows[rank].waiting_us for rank in range(4)] == [0.0, 0.0, 0.0, 3.0]


def test_ranks_that_are_not_at_hand_make_bounds_and_are_told(trace_builder, kinds, table_of):
    ranks = job(trace_builder, kinds, [STRAGGLER])
    for built in ranks:
        built.world_size = 8
        built._collectives[0] = replace(ALL_REDUCE, group_size=8)
    notes = table_of(ranks).notes
    assert any("4 of 8 ranks are at hand" in note for note in notes)
    assert any("upper bound" in note for note in notes)


def test_traces_that_describe_no_collective_are_matched_by_kernel_and_order(trace_builder, kinds, table_of):
    table = table_of(job(trace_builder, kinds, [STRAGGLER], collective=None))
    assert by_rank(table)[0].waiting_us == 3.0
    assert table.collectives[0].name == "nccl"
    assert table.collectives[0].group == ""


def test_ranks_with_different_numbers_of_steps_are_told(trace_builder, kinds, table_of):
    ranks = job(trace_builder, kinds, [EVEN, EVEN])
    ranks[1] = job(trace_builder, kinds, [EVEN])[1]
    assert any("different numbers of steps" in note for note in table_of(ranks).notes)


# --- a folder -----------------------------------------------------------------------------------------------


def kineto(rank, gemm_us, offset_us):
    """A rank's trace as PyTorch writes it: two steps of a GEMM and an all-reduce that ends at once on all ranks."""
    events = []
    for step in range(2):
        at = offset_us + 1_000 * step
        host = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 990})
        names = (("nvjet_tst_128x256", gemm_us, {}), ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 300 - gemm_us, NCCL))
        start = at + 10.0
        for place, (name, length, args) in enumerate(names):
            correlation = 10 * step + place + 1
            call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + place, "dur": 0.5}
            events.append({**host, **call, "args": {"correlation": correlation}})
            kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length}
            where = {"device": 0, "stream": 7 + place, "correlation": correlation}
            events.append({**kernel, "args": {**where, **args, **({"Seq": step} if args else {})}})
            start += length
    distributed = {"backend": "nccl", "rank": rank, "world_size": 3}
    return {"schemaVersion": 1, "distributedInfo": distributed, "traceEvents": events}


NCCL = {
    "Collective name": "allreduce",
    "Process Group Name": "0",
    "Group size": 3,
    "dtype": "BFloat16",
    "In msg nelems": 64,
}


def test_a_folder_of_ranks_is_a_run_each_and_one_table_on_the_first(tmp_path):
    for rank, gemm_us in enumerate((100, 100, 180)):
        text = json.dumps(kineto(rank, gemm_us, 1e6 * (rank + 1)))
        (tmp_path / f"rank{rank}.json").write_text(text)
    runs = analyze(tmp_path, Options())
    assert [run.source.rank for run in runs] == [0, 1, 2]
    assert [run.ranks is None for run in runs] == [False, True, True]
    table = runs[0].ranks
    assert table.straggler == 2
    assert [row.waiting_us for row in table.ranks] == [pytest.approx(80), pytest.approx(80), 0.0]
    assert table.causes[0].what == "gemm · cublas"


def test_a_folder_of_one_rank_has_no_table(tmp_path):
    (tmp_path / "rank0.json").write_text(json.dumps(kineto(0, 100, 0.0)))
    (run,) = analyze(tmp_path, Options())
    assert run.ranks is None
