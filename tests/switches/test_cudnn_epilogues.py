from collections import Counter

import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


def calls(step):
    graph = step.model.forward.__self__.graph
    return Counter(getattr(node.target, "__name__", "") for node in graph.nodes if node.op == "call_function")


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("bf16", 2e-2)])
@pytest.mark.parametrize("switches", [("cudnn-epilogues",), ("fold-bn", "cudnn-epilogues")])
def test_a_resnet_of_fused_calls_gives_the_same(relative_error, switches, dtype, tolerance):
    assert relative_error("resnet50", "infer", *switches, dtype=dtype) < tolerance


def test_every_relu_of_a_resnet_goes_into_a_convolution(build):
    step = build("resnet50", "infer", "fold-bn", "cudnn-epilogues")
    # A stem and two of three convolutions in each of four blocks; the third takes the residual in.
    assert calls(step) == {"convolution_relu": 9, "convolution_add_relu": 4, "flatten": 1}
    assert not any(
        node.op == "call_module" and "relu" in node.target for node in step.model.forward.__self__.graph.nodes
    )


def test_the_bias_of_a_downsampling_convolution_is_added_by_the_fused_one(build):
    step = build("resnet50", "infer", "cudnn-epilogues")
    assert step.model.layer1[0].downsample[0].bias is None
    assert step.model.layer1[0].conv3.bias is not None


def test_a_residual_that_was_fused_itself_is_taken_in(step_of, configured):
    """Of a real ResNet: the second block of a stage adds what the first block's fused call gives."""
    from torchvision.models.resnet import BasicBlock, ResNet

    torch.manual_seed(0)
    step = step_of(ResNet(BasicBlock, [3, 2, 1, 1], num_classes=8), torch.randn(2, 3, 32, 32))
    expected = step.run()
    step = find_switch("cudnn-epilogues").apply(step, configured("resnet50", "infer"))
    assert calls(step) == {"convolution_relu": 8, "convolution_add_relu": 7, "flatten": 1}
    torch.testing.assert_close(step.run(), expected, rtol=1e-4, atol=1e-5)


def test_convolutions_without_bias_or_norm_and_an_addition_that_broadcasts_are_right(step_of, configured):
    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
            self.second = torch.nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2)
            self.third = torch.nn.Conv2d(4, 4, 3, padding=2, dilation=2)
            self.fourth = torch.nn.Conv2d(4, 4, 3, padding="same")

        def forward(self, images):
            images = torch.relu(self.first(images))
            images = torch.nn.functional.relu(self.second(images) + images.mean((2, 3), keepdim=True))
            images = (images + self.third(images)).relu()
            return torch.relu(self.fourth(images))

    torch.manual_seed(0)
    step = step_of(Small(), torch.randn(2, 3, 8, 8))
    expected = step.run()
    configuration = configured("resnet50", "infer")
    assert find_switch("cudnn-epilogues").why_not(step, configuration) == ""
    step = find_switch("cudnn-epilogues").apply(step, configuration)
    assert calls(step)["convolution_relu"] == 1  # padding given in words is no argument of cuDNN's call
    assert calls(step)["convolution_add_relu"] == 2
    torch.testing.assert_close(step.run(), expected)


def test_the_ops_that_compile_sees_have_the_shapes_and_strides_of_what_they_give():
    from addrfrac.switches import convolution_calls

    for layout in (torch.contiguous_format, torch.channels_last):
        images = torch.randn(2, 4, 9, 7).contiguous(memory_format=layout)
        weight, bias = torch.randn(6, 2, 3, 3), torch.randn(6)
        geometry = ((2, 1), (1, 0), (1, 2), 2)
        ops = torch.ops.addrfrac_convolution
        expected = torch.relu(torch.conv2d(images, weight, bias, *geometry))
        torch.testing.assert_close(ops.relu(images, weight, bias, *geometry), expected)
        addend = torch.randn_like(expected)
        torch.library.opcheck(ops.relu, (images, weight, bias, *geometry))
        torch.library.opcheck(ops.add_relu, (images, weight, addend, bias, *geometry))
        shape = convolution_calls._output_shape(images, weight, *geometry[:3])
        assert shape == tuple(expected.shape)


def test_it_says_why_it_does_not_apply(why_not):
    assert "trains" in why_not("cudnn-epilogues", "resnet50", "train")
    assert "autocast" in why_not("cudnn-epilogues", "resnet50", "infer", dtype="amp-bf16")
    assert "no ReLU" in why_not("cudnn-epilogues", "convnext-base", "infer")
