import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


def test_it_is_on_while_the_step_runs_and_as_before_afterwards(build, configured):
    step = build("resnet50", "infer")
    seen = []
    step.model.register_forward_pre_hook(lambda *_: seen.append(torch.backends.cudnn.benchmark))
    step = find_switch("cudnn-benchmark").apply(step, configured("resnet50", "infer"))
    step.run()
    assert seen == [True]
    assert torch.backends.cudnn.benchmark is False


def test_there_is_no_cudnn_on_a_cpu(why_not):
    assert "GPU" in why_not("cudnn-benchmark", "resnet50", "infer")
