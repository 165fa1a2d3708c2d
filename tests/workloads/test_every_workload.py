"""Every workload at toy width on the CPU: it builds, steps, and hides nothing behind identity weights."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from addrfrac import registry
from addrfrac.errors import AddrfracError

pytest.importorskip("torchvision")
pytest.importorskip("transformers")

WORKLOADS = registry.workloads()

EVERY_MODE = [(name, mode) for name, workload in WORKLOADS.items() for mode in workload.modes]


def test_the_workloads_of_the_readme_are_installed():
    assert set(WORKLOADS) >= {
        *("resnet50", "vit-l16", "convnext-base", "bert-large", "gpt2-medium", "llama3-8b", "llama3-70b", "qwen3-8b"),
        *("mixtral-8x7b", "whisper-small", "t5-base", "dlrm", "dlrm-dcnv2"),
    }


@pytest.mark.parametrize(("name", "mode"), EVERY_MODE)
def test_it_steps_and_its_output_is_finite(name, mode, tiny_step, tensor_of):
    step = tiny_step(name, mode)
    outputs = [tensor_of(step.run()) for _ in range(3)]
    assert all(torch.isfinite(output).all() for output in outputs)
    assert step.samples > 0
    assert step.parameters > 0
    if mode != "train":
        assert outputs[0].std() > 1e-3


@pytest.mark.parametrize(("name", "mode"), EVERY_MODE)
def test_it_steps_in_bf16(name, mode, tiny_step, tensor_of):
    output = tensor_of(tiny_step(name, mode, dtype="bf16").run())
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_no_parameter_is_left_at_a_constant(name, tiny_step):
    model = tiny_step(name, WORKLOADS[name].modes[0]).model
    constant = [
        name
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        if tensor.is_floating_point() and tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all())
    ]
    # FBGEMM and the fitted routers keep state there that is no weight of the model.
    assert [name for name in constant if "routing_bias" not in name] == []


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_two_builds_are_the_same_model_with_the_same_input(name, tiny_step, tensor_of):
    mode = WORKLOADS[name].modes[0]
    torch.manual_seed(1)
    first = tensor_of(tiny_step(name, mode).run())
    torch.manual_seed(2)
    if mode == "train":
        pytest.skip("dropout draws from the global source")
    assert torch.equal(first, tensor_of(tiny_step(name, mode).run()))


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_default_configuration_is_complete(name):
    for mode in WORKLOADS[name].modes:
        configuration = registry.configure(WORKLOADS[name], mode=mode)
        assert configuration.batch >= 1
        if mode == "prefill":
            assert configuration.seq_len
        if mode == "decode":
            assert configuration.cache_len


def test_autocast_keeps_fp32_weights_and_runs_in_half_precision(tiny_step, tensor_of):
    step = tiny_step("resnet50", "infer", dtype="amp-bf16")
    assert next(step.model.parameters()).dtype == torch.float32
    assert tensor_of(step.run()).dtype == torch.bfloat16


def test_fp16_training_scales_its_loss_and_is_no_graph(tiny_step):
    step = tiny_step("vit-l16", "train", dtype="amp-fp16")
    step.run()
    assert not step.capturable
    assert "GradScaler" in step.why_not


def test_training_plain_fp16_weights_is_refused(tiny_step):
    with pytest.raises(AddrfracError, match="amp-fp16"):
        tiny_step("vit-l16", "train", dtype="fp16")


def test_training_changes_the_weights(tiny_step):
    step = tiny_step("convnext-base", "train")
    before = [parameter.clone() for parameter in step.model.parameters()]
    step.run()
    assert any(not torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))


def test_channels_last_is_the_default_of_convolutional_models(tiny_step):
    step = tiny_step("resnet50", "infer")
    assert step.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    contiguous = tiny_step("resnet50", "infer", layout="contiguous")
    assert contiguous.model.layer1[0].conv2.weight.is_contiguous()


def test_layers_cuts_the_depth(tiny_step):
    step = tiny_step("qwen3-8b", "prefill", layers=1)
    assert len(step.model.model.layers) == 1


def test_listing_workloads_imports_no_torch():
    code = "import sys; from addrfrac import registry; registry.workloads(); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_weights_come_from_a_state_dict(tmp_path, tiny_step):
    step = tiny_step("resnet50", "infer")
    with torch.no_grad():
        step.model.fc.bias.fill_(3.0)
    torch.save(step.model.state_dict(), tmp_path / "weights.pt")
    loaded = tiny_step("resnet50", "infer", weights=str(tmp_path / "weights.pt"))
    assert bool((loaded.model.fc.bias == 3.0).all())


def test_weights_that_do_not_fit_are_one_clear_line(tmp_path, tiny_step):
    torch.save({"nothing": torch.zeros(1)}, tmp_path / "weights.pt")
    with pytest.raises(AddrfracError, match="do not fit this model") as error:
        tiny_step("resnet50", "infer", weights=str(tmp_path / "weights.pt"))
    assert "\n" not in str(error.value)


def test_weights_come_from_a_folder_that_transformers_saved(tmp_path, tiny_step):
    model = tiny_step("llama3-8b", "prefill").model
    model.save_pretrained(tmp_path)
    loaded = tiny_step("llama3-8b", "prefill", weights=str(tmp_path))
    assert torch.equal(loaded.model.lm_head.weight, model.lm_head.weight)


def test_an_unknown_weight_name_is_one_clear_line(tiny_step):
    with pytest.raises(AddrfracError, match="no weights") as error:
        tiny_step("resnet50", "infer", weights="ResNet50_Weights.NONE")
    assert "\n" not in str(error.value)


def test_the_dtype_of_a_configuration_reaches_the_weights(tiny_step):
    for dtype, expected in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("tf32", torch.float32)):
        step = tiny_step("bert-large", "infer", dtype=dtype)
        assert next(step.model.parameters()).dtype == expected
    assert replace(step, samples=1.0).samples == 1.0
