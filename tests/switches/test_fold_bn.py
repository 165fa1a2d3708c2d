import pytest

from addrfrac.switches import find_switch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_a_resnet_with_norms_folded_gives_the_same(relative_error, dtype, tolerance):
    assert relative_error("resnet50", "infer", "fold-bn", dtype=dtype) < tolerance


def test_no_norm_remains_and_weights_keep_their_layout(build, operators):
    step = build("resnet50", "infer", "fold-bn")
    norms = ("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
    assert any(operators(build("resnet50", "infer").run)[norm] for norm in norms)
    assert not any(operators(step.run)[norm] for norm in norms)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in step.model.modules())
    assert step.model.layer1[0].conv2.weight.is_contiguous(memory_format=torch.channels_last)
    flat = build("resnet50", "infer", "fold-bn", layout="contiguous")
    assert flat.model.layer1[0].conv2.weight.is_contiguous()


def test_a_norm_that_shares_its_convolution_or_follows_none_stays(step_of, configured):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.shared = torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 3, 1)
            self.second, self.third = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
            self.alone = torch.nn.Conv2d(3, 3, 1)

        def forward(self, images):
            shared = self.shared(self.first(images))
            return self.third(self.alone(self.second(shared) + shared))

    step = step_of(Odd(), torch.randn(2, 3, 4, 4))
    for norm in (step.model.first, step.model.second, step.model.third):
        torch.nn.init.normal_(norm.running_mean)
        torch.nn.init.uniform_(norm.running_var, 0.5, 2)
    expected = step.run()
    find_switch("fold-bn").apply(step, configured("resnet50", "infer"))
    assert isinstance(step.model.first, torch.nn.BatchNorm2d)
    assert isinstance(step.model.second, torch.nn.BatchNorm2d)
    assert isinstance(step.model.third, torch.nn.Identity)
    torch.testing.assert_close(step.run(), expected)


def test_it_says_why_it_does_not_apply(why_not):
    assert "trains" in why_not("fold-bn", "resnet50", "train")
    assert "no batch norm" in why_not("fold-bn", "convnext-base", "infer")
