import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("name", "mode"), [("llama3-8b", "decode"), ("llama3-8b", "train"), ("qwen3-8b", "prefill")])
def test_one_call_gives_what_the_written_out_norm_gives(relative_error, name, mode):
    assert relative_error(name, mode, "fused-rmsnorm") < 1e-5
    assert relative_error(name, mode, "fused-rmsnorm", dtype="bf16") < 2e-2


def test_every_norm_is_replaced_and_its_weight_is_the_same_parameter(build):
    base, step = build("llama3-8b", "train"), build("llama3-8b", "train", "fused-rmsnorm")
    norms = [module for module in step.model.modules() if isinstance(module, torch.nn.RMSNorm)]
    assert len(norms) == sum("RMSNorm" in type(module).__name__ for module in base.model.modules()) == 5
    held = {id(parameter) for group in step.optimizer.param_groups for parameter in group["params"]}
    assert all(id(norm.weight) in held for norm in norms)


def test_a_norm_that_adds_one_to_its_weight_is_another(step_of, configured):
    class GemmaLike(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.full((8,), 0.5)), 1e-6

        def forward(self, values):
            return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)

    step = step_of(torch.nn.Sequential(GemmaLike()), torch.randn(2, 8))
    reason = find_switch("fused-rmsnorm").why_not(step, configured("llama3-8b", "prefill"))
    assert "no RMSNorm written out" in reason
