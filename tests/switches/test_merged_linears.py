import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("switch", "name", "mode", "fewer"),
    [
        ("merged-qkv", "llama3-8b", "decode", 4),
        ("merged-qkv", "qwen3-8b", "prefill", 4),
        ("merged-qkv", "bert-large", "infer", 4),
        ("merged-qkv", "whisper-small", "infer", 10),  # of cross attention keys and values
        ("merged-gate-up", "llama3-8b", "decode", 2),
    ],
)
def test_one_product_over_joined_weights_gives_the_same(relative_error, build, operators, switch, name, mode, fewer):
    assert relative_error(name, mode, switch) < 1e-5
    before, after = operators(build(name, mode).run), operators(build(name, mode, switch).run)
    products = ("mm", "addmm", "bmm", "linear")
    assert sum(before[op] for op in products) - sum(after[op] for op in products) == fewer


def test_parameters_are_joined_and_counted_once(build):
    base, step = build("llama3-8b", "decode"), build("llama3-8b", "decode", "merged-qkv", "merged-gate-up")

    def elements(model):
        return sum(parameter.numel() for parameter in model.parameters())

    assert elements(step.model) == elements(base.model)


def test_layers_that_take_one_tensor_but_not_one_after_the_other_are_left_alone(step_of, configured):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, values):
            first = self.first(values)
            second = self.second(first)
            values.add_(0.0)  # written to: no longer what the first layer took
            return second + self.third(values)

    step = step_of(Model(), torch.randn(2, 4))
    for switch in ("merged-qkv", "merged-gate-up"):
        assert "separate" in find_switch(switch).why_not(step, configured("llama3-8b", "prefill"))


def test_a_training_step_keeps_the_parameters_that_its_optimizer_holds(why_not):
    assert "trains" in why_not("merged-qkv", "llama3-8b", "train")
    assert "no gate and up" in why_not("merged-gate-up", "bert-large", "infer")
