import pytest

from addrfrac.errors import AddrfracError
from addrfrac.switches import SWITCHES, Stage, find_switch
from addrfrac.switches.compiled import compiled

torch = pytest.importorskip("torch")

COMBINED = [
    ("resnet50", "infer", ("fold-bn", "cudnn-epilogues")),
    ("llama3-8b", "decode", ("sdpa-gqa", "fused-rmsnorm", "merged-qkv", "merged-gate-up")),
]


@pytest.mark.parametrize(("name", "mode", "switches"), COMBINED)
def test_rewritten_models_are_one_graph_to_the_compiler_and_give_the_same(build, name, mode, switches):
    expected = build(name, mode, execution="compiled").run()
    step = compiled(build(name, mode, *switches, execution="compiled"), backend="aot_eager")
    result = step.run()
    result, expected = getattr(result, "logits", result), getattr(expected, "logits", expected)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert step.extra["compiled_graphs"] >= 1
    assert step.extra["graph_breaks"] == 0


def test_a_step_of_which_nothing_is_compiled_is_no_compiled_step(step_of):
    class Skipped(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, values):
            return values + 1

    step = compiled(step_of(Skipped(), torch.zeros(2)), backend="eager")
    with pytest.raises(AddrfracError, match="compiled nothing"):
        step.run()


def test_a_bare_sequential_is_compiled_from_outside(step_of):
    step = compiled(step_of(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.zeros(2)), backend="eager")
    step.run()
    assert step.extra["compiled_graphs"] == 1


def test_freezing_is_on_while_the_model_is_compiled_and_off_afterwards(build, configured):
    import torch._inductor.config

    step = find_switch("compile-freezing").apply(build("vit-l16", "infer"), configured("vit-l16", "infer"))
    seen = []
    step.model.register_forward_pre_hook(lambda *_: seen.append(torch._inductor.config.freezing))
    step.model._compiled_call_impl = None  # what Inductor then makes of it is not this test's business
    with pytest.raises(AddrfracError, match="compiled nothing"):
        step.run()
    assert seen == [True]
    assert torch._inductor.config.freezing is False


def test_compiled_steps_are_built_as_the_execution_compiled_builds_them(configured):
    for switch in SWITCHES:
        if switch.stage is Stage.COMPILE:
            assert switch.configure(configured("llama3-8b", "prefill")).execution == "compiled"


def test_it_says_why_it_does_not_apply(why_not):
    assert "trains" in why_not("compile-freezing", "resnet50", "train")
    assert "already" in why_not("compile", "resnet50", "infer", execution="compiled")
    assert "CUDA" in why_not("compile-reduce-overhead", "resnet50", "infer")
