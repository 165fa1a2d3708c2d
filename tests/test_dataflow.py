"""Fused and absorbed bytes of small data flows, worked out by hand, and the recording of a real step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from addrfrac.dataflow import Access, Crossing, Dataflow, Group, OpFlow, as_facts, crossing, from_facts

SIZE = 1000.0


def access(storage: int, size: float = SIZE, view: int | None = None) -> Access:
    return Access(storage=storage, view=storage if view is None else view, low_bytes=size, high_bytes=size)


def op(name: str, reads: list[Any], writes: list[Any]) -> OpFlow:
    """'library', 'elementwise' or another name; storages by number, or accesses."""

    def accesses(listed: list[Any]) -> tuple[Access, ...]:
        return tuple(each if isinstance(each, Access) else access(each) for each in listed)

    return OpFlow(
        op=name,
        reads=accesses(reads),
        writes=accesses(writes),
        is_library=name == "library",
        is_elementwise=name == "elementwise",
    )


def flow(*ops: OpFlow, kept: set[int] | None = None, sizes: dict[int, float] | None = None) -> Crossing:
    return crossing(Dataflow(ops=ops, kept=frozenset(kept or set()), sizes=sizes or {}))


def moved(groups: tuple[Group, ...]) -> list[float]:
    return [group.high_bytes for group in groups]


def test_what_a_group_passes_on_within_itself_is_not_moved() -> None:
    found = flow(op("norm", [0], [1]), op("norm", [1], [2]), op("norm", [2], [3]), op("library", [3], [4]))
    assert moved(found.fused) == [2 * SIZE]  # 0 read, 3 written; 1 and 2 stay on the chip
    assert (found.ops, found.library_ops) == (4, 1)


def test_a_library_call_cuts_a_chain_in_two() -> None:
    found = flow(op("norm", [0], [1]), op("library", [1], [2]), op("norm", [2], [3]), kept={3})
    assert moved(found.fused) == [2 * SIZE, 2 * SIZE]


def test_what_is_needed_behind_the_next_library_call_is_written() -> None:
    """A residual: the sum is read by the call and, after it, by the next sum."""
    found = flow(
        op("norm", [0], [1]),
        op("library", [1], [2]),
        op("norm", [1, 2], [3]),
        kept={3},
    )
    assert moved(found.fused) == [2 * SIZE, 3 * SIZE]


def test_an_operand_that_several_ops_of_a_group_read_is_read_once() -> None:
    found = flow(op("norm", [0], [1]), op("norm", [0, 1], [2]), kept={2})
    assert moved(found.fused) == [2 * SIZE]


def test_what_nobody_reads_and_nothing_keeps_is_not_written() -> None:
    assert moved(flow(op("norm", [0], [1])).fused) == [SIZE]
    assert moved(flow(op("norm", [0], [1]), kept={1}).fused) == [2 * SIZE]


def test_an_op_in_place_is_read_once_and_written_once() -> None:
    found = flow(op("norm", [0], [0]), op("norm", [0], [0]), kept={0})
    assert moved(found.fused) == [2 * SIZE]


def test_views_of_one_storage_count_once_each_and_no_more_than_there_is() -> None:
    halves = op("norm", [access(0, SIZE / 2, view=1), access(0, SIZE / 2, view=2), access(0, SIZE / 2, view=1)], [9])
    found = flow(halves, kept={9}, sizes={0: SIZE})
    assert found.fused[0].high_bytes == 2 * SIZE
    assert found.fused[0].low_bytes == 1.5 * SIZE  # the two halves may overlap
    whole = op("norm", [access(0, SIZE, view=1), access(0, SIZE, view=2)], [9])
    assert flow(whole, kept={9}, sizes={0: SIZE}).fused[0].high_bytes == 2 * SIZE


def test_ops_that_no_data_connects_share_a_kernel_where_no_call_lies_between() -> None:
    """As the parameters of a foreach optimizer."""
    found = flow(op("norm", [0], [1]), op("norm", [2], [3]), kept={1, 3})
    assert [group.ops for group in found.fused] == [2]
    assert moved(found.fused) == [4 * SIZE]


def test_an_epilogue_moves_only_its_other_operands() -> None:
    """Call, + residual, activation: the result takes the place of what the call writes anyway."""
    found = flow(
        op("library", [0], [1]),
        op("elementwise", [1, 2], [3]),
        op("elementwise", [3], [4]),
        op("library", [4], [5]),
    )
    assert moved(found.fused) == [3 * SIZE]
    assert found.absorbed_high_bytes == SIZE
    assert found.rest == ()


def test_what_others_also_read_is_not_taken_into_the_call_that_wrote_it() -> None:
    found = flow(
        op("library", [0], [1]),
        op("elementwise", [1], [2]),
        op("library", [2], [3]),
        op("norm", [1, 3], [4]),
        kept={4},
    )
    # 1 must be written for the norm, so the elementwise op is a prologue of the second call: it reads 1 in place of 2.
    assert found.absorbed_high_bytes == 0.0
    assert moved(found.rest) == [3 * SIZE]


def test_a_prologue_replaces_what_the_call_would_read() -> None:
    found = flow(op("norm", [0], [1]), op("elementwise", [1, 2], [3]), op("library", [3], [4]))
    # The norm writes 1; the call reads 1 and 2 in place of 3: 2 is extra.
    assert moved(found.fused) == [3 * SIZE]
    assert found.absorbed_high_bytes == SIZE
    assert moved(found.rest) == [2 * SIZE]


def test_a_norm_behind_a_call_cannot_be_its_epilogue() -> None:
    found = flow(op("library", [0], [1]), op("norm", [1], [2]), op("library", [2], [3]))
    assert found.absorbed_high_bytes == 0.0
    assert moved(found.rest) == moved(found.fused) == [2 * SIZE]


def test_absorbing_is_refused_where_it_would_move_more() -> None:
    """A small product broadcast over large operands: fused it is one pass, taken apart it would be two."""
    found = flow(
        op("library", [0], [access(1, 10.0)]),
        op("elementwise", [access(1, 10.0), 2], [3]),
        op("norm", [3], [access(4, 10.0)]),
        kept={4},
    )
    assert found.absorbed_low_bytes == 0.0
    assert moved(found.rest) == moved(found.fused) == [SIZE + 20.0]


def test_absorbed_never_moves_more_than_fused() -> None:
    found = flow(
        op("elementwise", [0], [1]),
        op("library", [1], [2]),
        op("elementwise", [2, 0], [3]),
        op("norm", [3], [4]),
        op("elementwise", [4], [5]),
        op("library", [5], [6]),
        op("elementwise", [6, 3], [7]),
        kept={7},
    )
    fused = sum(group.low_bytes for group in found.fused)
    assert found.absorbed_low_bytes + sum(group.low_bytes for group in found.rest) <= fused


def test_a_crossing_comes_back_from_a_capture_s_facts() -> None:
    found = flow(op("norm", [0], [1]), op("library", [1], [2]))
    assert from_facts(json.loads(json.dumps(as_facts(found)))) == found


@pytest.mark.parametrize("facts", [None, {}, [], {"ops": 1}, {"ops": "x", "absorbed_bytes": [1, 2]}])
def test_facts_of_another_form_are_no_crossing(facts: Any) -> None:
    assert from_facts(facts) is None


# --- recording ----------------------------------------------------------------------------------------------


def recorded(run: Any, **rows: Any) -> Dataflow:
    from addrfrac.dataflow_recording import record_dataflow

    return record_dataflow(run, device_type="cpu", rows=rows)


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    found.set_num_threads(1)
    return found


def test_a_recorded_step_holds_what_worked_and_not_its_views(torch: Any) -> None:
    x, weight = torch.randn(4, 8), torch.randn(8, 16)

    def run() -> Any:
        with torch.no_grad():
            return torch.relu(x.view(4, 8) @ weight).t() + 1.0

    flow = recorded(run)
    assert [each.op for each in flow.ops] == ["aten::mm", "aten::relu", "aten::add"]
    assert [each.is_library for each in flow.ops] == [True, False, False]
    found = crossing(flow)
    assert found.fused[0].ops == 2
    assert found.fused[0].high_bytes == 4 * 64  # the product read; the sum is dropped when the step ends
    assert found.absorbed_high_bytes == 0.0


def test_memory_that_is_used_again_is_not_taken_for_the_same(torch: Any) -> None:
    def run() -> None:
        with torch.no_grad():
            for _ in range(5):
                torch.ones(1000).neg()

    storages = [each.storage for op in recorded(run).ops for each in op.writes]
    assert len(storages) == len(set(storages)) == 10


def test_what_outlives_the_step_is_written(torch: Any) -> None:
    target = torch.zeros(100)

    def run() -> None:
        with torch.no_grad():
            target.add_(1.0)

    found = crossing(recorded(run))
    assert moved(found.fused) == [800.0]


def test_a_training_step_is_recorded_through_backward_and_optimizer(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 8)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    flow = recorded(run)
    assert sum(each.is_library for each in flow.ops) == 2 + 3  # forward; two weight gradients and one of an input
    assert "aten::gelu_backward" in {each.op for each in flow.ops}
    parameters = sum(4 * each.numel() for each in model.parameters())
    last = crossing(flow).fused[-1]
    assert last.high_bytes >= 2 * parameters / 3  # at least the last weight gradients meet their parameters there


def test_rows_of_a_table_are_read_and_not_the_table(torch: Any) -> None:
    table, ids = torch.randn(10_000, 16), torch.randint(0, 10_000, (50,))
    offsets = torch.arange(0, 50, 10)

    def run() -> Any:
        return torch.embedding_bag(table, ids, offsets)

    (bag,) = [each for each in recorded(run).ops if "embedding_bag" in each.op]
    assert (bag.reads[0].low_bytes, bag.reads[0].high_bytes) == (64.0, 50 * 64.0)
    known = recorded(run, row_bytes_per_step=3200, distinct_row_bytes_per_step=1600)
    (bag,) = [each for each in known.ops if "embedding_bag" in each.op]
    assert bag.reads[0].low_bytes == 25 * 64.0


def test_a_batch_norm_without_statistics_can_be_an_epilogue(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3, 16, 16)

    def run() -> Any:
        with torch.no_grad():
            return model(x)

    found = crossing(recorded(run))
    assert found.rest == ()
    assert found.absorbed_high_bytes == 4 * 4 * 8  # weight, bias, mean and variance of a channel


def test_a_step_that_cannot_be_recorded_says_why(torch: Any) -> None:
    from addrfrac.dataflow_recording import dataflow_facts

    def run() -> None:
        raise RuntimeError("of the tests")

    facts, why_not = dataflow_facts(run, device_type="cpu", extra={})
    assert facts == {}
    assert "of the tests" in why_not
