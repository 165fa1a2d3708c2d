import pytest

from addrfrac.switches import find_switch, grouped_mm

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def masking(monkeypatch):
    """A transformers that masks always, whichever is installed."""
    monkeypatch.setattr(grouped_mm, "_masks_are_left_out", lambda experts: False)


@pytest.mark.usefixtures("masking")
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_experts_without_masks_for_other_devices_give_the_same(relative_error, mode):
    assert relative_error("mixtral-8x7b", mode, "grouped-mm-lean", dtype="bf16") < 2e-2


@pytest.mark.usefixtures("masking")
def test_two_products_a_layer_and_no_masks_are_left(build, operators):
    after = operators(build("mixtral-8x7b", "prefill", "grouped-mm-lean", dtype="bf16").run)
    assert after["masked_fill"] == after["masked_fill_"] == 0
    assert after["_grouped_mm"] == 4


def test_an_expert_that_gets_no_token_does_no_harm(build):
    experts = build("mixtral-8x7b", "prefill", dtype="bf16").model.model.layers[0].mlp.experts
    tokens = torch.randn(6, 64, dtype=torch.bfloat16)
    ids = torch.tensor([[0, 7], [7, 0], [0, 2], [2, 7], [0, 7], [7, 2]])
    weights = torch.rand(6, 2, dtype=torch.bfloat16)
    with torch.no_grad():
        expected, result = experts(tokens, ids, weights), grouped_mm.lean_grouped_mm(experts, tokens, ids, weights)
    torch.testing.assert_close(result, expected)


def test_experts_that_loop_are_grouped(build, configured):
    step = build("mixtral-8x7b", "prefill", dtype="bf16")
    step.model.set_experts_implementation("eager")
    expected = step.run().logits
    configuration = configured("mixtral-8x7b", "prefill", dtype="bf16")
    assert find_switch("grouped-mm").why_not(step, configuration) == ""
    step = find_switch("grouped-mm").apply(step, configuration)
    assert step.model.model.layers[0].mlp.experts.config._experts_implementation == "grouped_mm"
    assert float((step.run().logits - expected).norm() / expected.norm()) < 2e-2


def test_it_says_why_it_does_not_apply(why_not):
    assert "already" in why_not("grouped-mm", "mixtral-8x7b", "prefill", dtype="bf16")
    assert "no experts" in why_not("grouped-mm-lean", "llama3-8b", "prefill", dtype="bf16")
    assert "fp32" in why_not("grouped-mm-lean", "mixtral-8x7b", "prefill")
