import pytest

from addrfrac.switches.native_gelu import gelu_of

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_gpt2_with_torch_s_gelu_gives_the_same(relative_error, mode):
    assert relative_error("gpt2-medium", mode, "native-gelu") < 1e-5


def test_the_chain_of_elementwise_calls_is_gone(build, operators):
    before, after = (
        operators(build("gpt2-medium", "infer").run),
        operators(build("gpt2-medium", "infer", "native-gelu").run),
    )
    assert before["tanh"] == 2
    assert (after["tanh"], after["gelu"]) == (0, 2)


def test_a_gelu_is_known_by_what_it_gives(why_not):
    class WrongGELU(torch.nn.Module):
        def forward(self, values):
            return values * torch.sigmoid(1.702 * values)

    assert gelu_of(WrongGELU()) == ("", 0)
    assert gelu_of(torch.nn.GELU()) == ("none", 1)
    assert gelu_of(torch.nn.GELU(approximate="tanh")) == ("tanh", 1)
    assert "no GELU written out" in why_not("native-gelu", "bert-large", "infer")
