import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


def test_gpt2_s_gelu_goes_into_the_product_and_gives_the_same(relative_error):
    assert relative_error("gpt2-medium", "infer", "addmm-activation") < 1e-5
    assert relative_error("gpt2-medium", "infer", "native-gelu", "addmm-activation", dtype="bf16") < 2e-2


def test_dlrm_s_relus_go_into_the_products_and_give_the_same(relative_error, build, operators):
    assert relative_error("dlrm", "infer", "addmm-activation") < 1e-5
    assert relative_error("dlrm", "infer", "aligned-linears", "addmm-activation", dtype="bf16") < 2e-2
    step = build("dlrm", "infer", "addmm-activation")
    fused = [module for module in step.model.modules() if "forward" in vars(module)]
    assert {type(module).__name__ for module in fused} == {"Perceptron"}
    assert len(fused) == 3


def test_what_comes_between_or_is_another_activation_is_left_alone(step_of, configured):
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8),
        torch.nn.GELU(),
        torch.nn.Linear(8, 8),
        torch.nn.LayerNorm(8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 8, bias=False),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 8),
        torch.nn.GELU(approximate="tanh"),
    )
    step = step_of(model, torch.randn(2, 3, 4))
    expected = step.run()
    step = find_switch("addmm-activation").apply(step, configured("vit-l16", "infer"))
    called = [node.target.__name__ for node in model.forward.__self__.graph.nodes if node.op == "call_function"]
    assert called == ["linear_activation"]
    torch.testing.assert_close(step.run(), expected)


def test_it_says_why_it_does_not_apply(why_not):
    assert "exact GELU" in why_not("addmm-activation", "vit-l16", "infer")
    assert "trains" in why_not("addmm-activation", "gpt2-medium", "train")
    assert "autocast" in why_not("addmm-activation", "gpt2-medium", "infer", dtype="amp-bf16")
