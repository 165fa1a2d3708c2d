"""What decoders and experts need beyond a forward pass: a cache that never overflows, masks, routing."""

import sys
from unittest import mock

import pytest
import torch

from addrfrac.workloads.routing import target_shares

pytest.importorskip("transformers")


def test_decode_may_run_for_longer_than_its_cache_and_repeats_itself(tiny_step, tensor_of):
    step = tiny_step("llama3-8b", "decode", cache_len=8)
    outputs = [tensor_of(step.run()) for _ in range(20)]
    assert torch.equal(outputs[0], outputs[-1])


def test_decode_reads_the_whole_cache(tiny_step, tensor_of):
    short = tensor_of(tiny_step("llama3-8b", "decode", cache_len=8).run())
    longer = tensor_of(tiny_step("llama3-8b", "decode", cache_len=16).run())
    assert not torch.allclose(short, longer)


def _tracing():
    """transformers believing that a graph is being captured, as it does on a GPU."""
    masking = sys.modules["transformers.masking_utils"]
    return mock.patch.object(masking, "is_tracing", return_value=True)


def _masks_seen(run) -> list[bool]:
    """For every attention of one run, whether it was handed a mask."""
    seen = []
    original = torch.nn.functional.scaled_dot_product_attention

    def watched(*arguments, attn_mask=None, **named):
        seen.append(attn_mask is not None)
        return original(*arguments, attn_mask=attn_mask, **named)

    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", watched):
        run()
    return seen


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("llama3-8b", "prefill"),
        ("llama3-8b", "train"),
        ("gpt2-medium", "infer"),
        ("qwen3-8b", "prefill"),
        ("mixtral-8x7b", "prefill"),
        ("bert-large", "infer"),
        ("bert-large", "train"),
        ("whisper-small", "infer"),
    ],
)
def test_a_captured_step_hands_attention_the_masks_that_eager_does(name, mode, tiny_step):
    """transformers 5.17 builds all of these while capturing, 5.24 still some."""
    step = tiny_step(name, mode)
    eager = _masks_seen(step.run)
    assert eager
    assert not any(eager)
    with _tracing():
        assert _masks_seen(step.graph_run) == eager


def test_decode_masks_are_the_step_s_own_work_and_stay(tiny_step):
    step = tiny_step("llama3-8b", "decode")
    assert all(_masks_seen(step.run))
    assert step.graph_run is None


def test_routing_balanced_gives_every_expert_about_the_same(tiny_step):
    counts = tiny_step("mixtral-8x7b", "prefill", batch=8, seq_len=64, routing="balanced").extra["tokens_per_expert"]
    assert len(counts) == 2
    for layer in counts:
        assert sum(layer) == 8 * 64 * 2
        assert max(layer) - min(layer) <= 0.05 * sum(layer)


def test_routing_zipf_gives_them_shares_by_rank(tiny_step):
    counts = tiny_step("mixtral-8x7b", "prefill", batch=8, seq_len=64, routing="zipf").extra["tokens_per_expert"]
    for layer in counts:
        for count, share in zip(layer, target_shares("zipf", 8), strict=True):
            assert count / sum(layer) == pytest.approx(share, abs=0.03)


def test_target_shares_sum_to_one_and_fall():
    shares = target_shares("zipf", 8)
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares, reverse=True)
    assert len(set(target_shares("balanced", 8))) == 1


def test_adamw_is_captured_only_where_graphs_were_asked_for(tiny_step):
    assert not tiny_step("gpt2-medium", "train").capturable
    assert tiny_step("gpt2-medium", "train", execution="graph").capturable


def test_prefill_computes_the_logits_of_the_last_token_only(tiny_step, tensor_of):
    assert tensor_of(tiny_step("llama3-8b", "prefill", batch=3, seq_len=5).run()).shape[:2] == (3, 1)
