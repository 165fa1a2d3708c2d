import dataclasses

import pytest

from addrfrac.switches import find_switch
from addrfrac.switches.attention import _first
from addrfrac.switches.structure import attention_calls

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize("switch", ["sdpa-gqa", "sdpa-packed"])
@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-8b"])
def test_decoding_without_copies_of_keys_gives_the_same(relative_error, switch, name):
    assert relative_error(name, "decode", switch) < 1e-5
    assert relative_error(name, "decode", switch, dtype="bf16") < 2e-2


def test_keys_keep_their_heads_and_the_mask_stays(build):
    for call in attention_calls(build("llama3-8b", "decode", "sdpa-gqa")):
        assert call["masked"]
        assert call["enable_gqa"]
        assert (call["query_heads"], call["key_heads"]) == (4, 2)
    for call in attention_calls(build("llama3-8b", "decode", "sdpa-packed")):
        assert not call["enable_gqa"]
        assert (call["query_heads"], call["key_heads"], call["query_length"]) == (2, 2, 2)


def test_both_are_the_same_for_a_prompt_too(build):
    """As a user's own model may call them: without a mask, causal, into a longer cache."""
    from addrfrac.switches.attention import grouped_query_attention, packed_query_attention

    module = build("llama3-8b", "decode").model.model.layers[0].self_attn
    query, key = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 8, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key[:, :, :5].repeat_interleave(2, 1), key[:, :, :5].repeat_interleave(2, 1), is_causal=True
    ).transpose(1, 2)
    for function in (grouped_query_attention, packed_query_attention):
        torch.testing.assert_close(function(module, query, key, key, None)[0], expected)


def test_another_model_of_the_same_process_keeps_its_attention(build):
    base = build("llama3-8b", "decode")
    build("llama3-8b", "decode", "sdpa-gqa")
    assert base.model.config._attn_implementation == "sdpa"


def test_it_says_why_it_does_not_apply(why_not):
    assert "no mask" in why_not("sdpa-gqa", "llama3-8b", "prefill")
    assert "no mask" in why_not("sdpa-gqa", "llama3-8b", "train")
    assert "of its own" in why_not("sdpa-gqa", "gpt2-medium", "infer")
    assert "none of transformers'" in why_not("sdpa-packed", "vit-l16", "infer")
    assert "GPU" in why_not("sdpa-flash", "llama3-8b", "prefill", dtype="bf16")


def test_a_backend_comes_first_while_the_step_runs(build, configured):
    step = build("llama3-8b", "prefill", dtype="bf16")
    seen = []
    step.model.register_forward_pre_hook(lambda *_: seen.append(torch._C._get_sdp_priority_order()))
    before = torch._C._get_sdp_priority_order()
    for name, backend in (("sdpa-flash", "FLASH_ATTENTION"), ("sdpa-cudnn", "CUDNN_ATTENTION")):
        configuration = configured("llama3-8b", "prefill", dtype="bf16")
        find_switch(name).apply(dataclasses.replace(step), configuration).run()
        assert seen[-1][0] == int(getattr(torch.nn.attention.SDPBackend, backend))
        assert len(seen[-1]) >= 4
    assert torch._C._get_sdp_priority_order() == before
    with _first("MATH"):
        assert torch._C._get_sdp_priority_order()[0] == int(torch.nn.attention.SDPBackend.MATH)
