import pytest

from addrfrac.errors import AddrfracError
from addrfrac.switches import find_switch
from addrfrac.switches.optimizers import _set

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("switch", ["optimizer-foreach", "optimizer-fused"])
@pytest.mark.parametrize(
    ("name", "asked"), [("bert-large", {}), ("resnet50", {}), ("dlrm-dcnv2", {"embedding": "fbgemm"})]
)
def test_training_goes_as_before(relative_error, switch, name, asked):
    """Under AdamW, SGD with momentum and Adagrad; the third step's loss shows the updates of the first two."""
    assert relative_error(name, "train", switch, **asked) < 1e-4


def test_the_flags_are_those_of_an_optimizer_built_with_them(build):
    fused = build("bert-large", "train", "optimizer-foreach", "optimizer-fused").optimizer
    assert all(group["fused"] and not group["foreach"] for group in fused.param_groups)
    assert fused._step_supports_amp_scaling
    foreach = build("bert-large", "train", "optimizer-foreach").optimizer
    assert all(group["foreach"] and not group["fused"] for group in foreach.param_groups)


def test_a_capturable_optimizer_counts_on_the_device(build):
    optimizer = _set(build("dlrm-dcnv2", "train", embedding="fbgemm"), fused=True).optimizer
    assert all(state["step"].dtype == torch.float32 for state in optimizer.state.values())
    adamw = _set(build("bert-large", "train"), capturable=True).optimizer
    assert all(group["capturable"] for group in adamw.param_groups)
    assert adamw.defaults["capturable"]


def test_a_step_built_for_a_graph_is_capturable_already_and_stays_as_it_is(build, configured):
    configuration = configured("bert-large", "train", execution="graph")
    step = build("bert-large", "train", execution="graph")
    assert find_switch("optimizer-capturable").apply(step, configuration) is step


def test_an_optimizer_that_has_taken_steps_is_left_alone(build, configured):
    step = build("bert-large", "train")
    step.run()
    with pytest.raises(AddrfracError, match="taken steps already"):
        find_switch("optimizer-fused").apply(step, configured("bert-large", "train"))


def test_it_says_why_it_does_not_apply(why_not):
    assert "trains nothing" in why_not("optimizer-fused", "resnet50", "infer")
    assert "sparse" in why_not("optimizer-fused", "dlrm", "train")
    assert "CUDA graph already" in why_not("optimizer-capturable", "resnet50", "train")
    assert "CUDA device" in why_not("optimizer-capturable", "bert-large", "train")
    assert "no capturable" in why_not("optimizer-capturable", "dlrm-dcnv2", "train", embedding="fbgemm")
