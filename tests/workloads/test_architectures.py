"""The full architectures, built without memory: as many parameters as their publishers count."""

import pytest
import torch

from addrfrac.workloads import decoders, encoders, vision

transformers = pytest.importorskip("transformers")
pytest.importorskip("torchvision")

# torchvision's documentation; model cards on the Hugging Face hub (safetensors metadata). BERT's has a head for SQuAD.
VISION = {"_resnet50": 25_557_032, "_vit_l16": 304_326_632, "_convnext_base": 88_591_464}
LANGUAGE = {
    (decoders, "_gpt2_medium", "AutoModelForCausalLM"): 354_823_168,
    (decoders, "_llama3_8b", "AutoModelForCausalLM"): 8_030_261_248,
    (decoders, "_llama3_70b", "AutoModelForCausalLM"): 70_553_706_496,
    (decoders, "_qwen3_8b", "AutoModelForCausalLM"): 8_190_735_360,
    (decoders, "_mixtral_8x7b", "AutoModelForCausalLM"): 46_702_792_704,
    (encoders, "_bert_large", "AutoModelForQuestionAnswering"): 334_094_338,
    (encoders, "_t5_base", "AutoModelForSeq2SeqLM"): 222_903_552,
    (encoders, "_whisper_small", "AutoModelForSpeechSeq2Seq"): 241_734_912,
}


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "parameters"), VISION.items())
def test_a_vision_model_has_its_published_size(name, parameters):
    with torch.device("meta"):
        assert count(getattr(vision, name)(tiny=False)) == parameters


@pytest.mark.parametrize(("model", "parameters"), LANGUAGE.items(), ids=lambda value: str(value))
def test_a_language_model_has_its_published_size(model, parameters):
    module, name, auto_class = model
    with torch.device("meta"):
        built = getattr(transformers, auto_class).from_config(getattr(module, name)(tiny=False))
    assert count(built) == parameters
