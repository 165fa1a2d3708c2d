"""Recommenders: fresh ids, both kinds of tables, MLPerf's shapes."""

import pytest
import torch

from addrfrac.workloads.recommenders import MLPERF_POOLING, pooling_sizes

pytest.importorskip("torchrec")


def _ids(step, run) -> torch.Tensor:
    """The ids that one run looks up."""
    seen = []
    hook = step.model.sparse_arch.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].values().clone()))
    run()
    hook.remove()
    return seen[0]


def test_mlperf_has_26_features_and_214_ids_a_sample():
    assert len(MLPERF_POOLING) == 26
    assert sum(MLPERF_POOLING) == 214
    assert pooling_sizes("mlperf") == MLPERF_POOLING
    assert pooling_sizes("20") == (20,) * 26
    assert pooling_sizes(None) == (1,) * 26


@pytest.mark.parametrize("embedding", ["bag", "fbgemm"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", ["dlrm", "dlrm-dcnv2"])
def test_every_kind_of_table_runs_and_stays_finite(name, mode, embedding, tiny_step):
    step = tiny_step(name, mode, embedding=embedding, batch=4)
    assert all(torch.isfinite(step.run()).all() for _ in range(4))


@pytest.mark.parametrize("embedding", ["bag", "fbgemm"])
def test_training_updates_the_rows_that_were_looked_up(embedding, tiny_step):
    step = tiny_step("dlrm", "train", embedding=embedding, batch=4)
    tables = step.model.sparse_arch.embedding_bag_collection
    weights = (
        [bag.weight for bag in tables.collection.embedding_bags.values()]
        if embedding == "bag"
        else tables.lookup.split_embedding_weights()
    )
    before = [weight.detach().clone() for weight in weights]
    step.run()
    changed = sum(int((a != b).any(dim=1).sum()) for a, b in zip(before, weights, strict=True))
    assert 0 < changed <= step.extra["ids_per_step"]


def test_a_compiled_training_step_is_compiled_once(tiny_step):
    step = tiny_step("dlrm", "train", embedding="fbgemm", batch=4)
    graphs = []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph

    step.model.compile(backend=counted, dynamic=False)
    step.run()
    first = len(graphs)
    for _ in range(3):
        step.run()
    assert len(graphs) == first > 0


def test_consecutive_steps_look_up_other_ids(tiny_step):
    step = tiny_step("dlrm", "infer")
    first, second = _ids(step, step.run), _ids(step, step.run)
    assert first.shape == second.shape
    assert not torch.equal(first, second)


def test_a_captured_step_reads_the_batch_that_was_put_in_place(tiny_step):
    step = tiny_step("dlrm", "infer")
    step.advance()
    first = _ids(step, step.graph_run)
    same = _ids(step, step.graph_run)
    step.advance()
    second = _ids(step, step.graph_run)
    assert torch.equal(first, same)
    assert not torch.equal(first, second)


def test_nothing_is_made_within_a_step(tiny_step):
    step = tiny_step("dlrm", "infer", indices="zipf")
    before = torch.get_rng_state()
    step.run()
    assert torch.equal(before, torch.get_rng_state())


def test_bag_and_table_batched_lookups_agree(tiny_step):
    bag, batched = (tiny_step("dlrm", "infer", embedding=kind, pooling="3") for kind in ("bag", "fbgemm"))
    tables = bag.model.sparse_arch.embedding_bag_collection.collection.embedding_bags.values()
    lookup = batched.model.sparse_arch.embedding_bag_collection.lookup
    with torch.no_grad():
        for weight, bag_table in zip(lookup.split_embedding_weights(), tables, strict=True):
            weight.copy_(bag_table.weight)
    batched.model.dense_arch.load_state_dict(bag.model.dense_arch.state_dict())
    batched.model.over_arch.load_state_dict(bag.model.over_arch.state_dict())
    assert torch.allclose(bag.run(), batched.run(), atol=1e-5)


def test_zipf_repeats_rows_and_uniform_hardly(tiny_step):
    zipf = tiny_step("dlrm", "infer", indices="zipf", batch=64, pooling="8").extra
    uniform = tiny_step("dlrm", "infer", indices="uniform", batch=64, pooling="8").extra
    assert zipf["ids_per_step"] == uniform["ids_per_step"] == 64 * 8 * 26
    assert zipf["distinct_rows_per_step"] < 0.7 * uniform["distinct_rows_per_step"]


def test_table_bytes_are_rows_times_columns_times_tables(tiny_step):
    extra = tiny_step("dlrm", "infer", rows=500).extra
    assert extra["table_bytes"] == 26 * 500 * 8 * 4
