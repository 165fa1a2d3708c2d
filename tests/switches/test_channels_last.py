import pytest

torch = pytest.importorskip("torch")


def test_a_contiguous_resnet_is_built_channels_last_and_gives_the_same(build, relative_error):
    step = build("resnet50", "infer", "channels-last", layout="contiguous")
    assert step.model.layer1[0].conv2.weight.is_contiguous(memory_format=torch.channels_last)
    assert relative_error("resnet50", "infer", "channels-last", layout="contiguous") < 1e-5


def test_it_says_why_it_does_not_apply(why_not):
    assert why_not("channels-last", "resnet50", "infer") == "the layout is channels-last already"
    assert "no layout" in why_not("channels-last", "vit-l16", "infer")
