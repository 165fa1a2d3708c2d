"""Decoder language models from transformers: GPT-2, Llama 3, Qwen3 and Mixtral."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Workload
from addrfrac.workloads.routing import force_routing
from addrfrac.workloads.step import Step, autocast, generator, inference, parameter_count
from addrfrac.workloads.transformer import build_model, train_with_adamw, with_stock_masks

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration


def _gpt2_medium(tiny: bool) -> Any:
    from transformers import GPT2Config

    if tiny:
        return GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    return GPT2Config(n_embd=1024, n_layer=24, n_head=16)


def _llama3_8b(tiny: bool) -> Any:
    from transformers import LlamaConfig

    if tiny:
        return LlamaConfig(**_TINY, rope_parameters=_rope(500000.0))
    return LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters=_rope(500000.0),
    )


def _llama3_70b(tiny: bool) -> Any:
    from transformers import LlamaConfig

    if tiny:
        return _llama3_8b(tiny=True)
    return LlamaConfig(
        vocab_size=128256,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters=_rope(500000.0),
    )


def _qwen3_8b(tiny: bool) -> Any:
    from transformers import Qwen3Config

    if tiny:
        return Qwen3Config(**_TINY, head_dim=16, rope_parameters=_rope(1000000.0))
    return Qwen3Config(
        vocab_size=151936,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        rope_parameters=_rope(1000000.0),
    )


def _mixtral_8x7b(tiny: bool) -> Any:
    from transformers import MixtralConfig

    if tiny:
        return MixtralConfig(**_TINY, num_local_experts=8, num_experts_per_tok=2, rope_parameters=_rope(1000000.0))
    return MixtralConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=32768,
        rms_norm_eps=1e-5,
        rope_parameters=_rope(1000000.0),
    )


_TINY: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _build(
    architecture: Callable[[bool], Any], configuration: Configuration, device: torch.device, *, tiny: bool = False
) -> Step:
    """Infer: all logits of a batch of whole sequences. Prefill: what generation does with a prompt, into a new cache.

    Decode: one token for each sequence against a static cache that is full but for its last place. Train: the language
    model's loss, backward and AdamW.
    """
    import torch

    config = architecture(tiny)
    if configuration.layers:
        config.num_hidden_layers = configuration.layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: configuration.layers]
    model = build_model("AutoModelForCausalLM", config, configuration, device)
    if configuration.mode == "decode":
        return _decode(model, configuration, device)
    assert configuration.seq_len is not None
    shape = (configuration.batch, configuration.seq_len)
    tokens = torch.randint(model.config.vocab_size, shape, device=device, generator=generator(device, 1))
    samples = configuration.batch * configuration.seq_len
    if configuration.mode == "train":
        inputs = {"input_ids": tokens, "labels": tokens, "use_cache": False}
        return train_with_adamw(model, inputs, configuration, device, samples=samples)
    inputs = {"input_ids": tokens, "use_cache": False}
    if configuration.mode == "prefill":
        inputs = {"input_ids": tokens, "use_cache": True, "logits_to_keep": 1}
    model.eval()
    facts = force_routing(model, configuration, lambda: _forward(model, inputs, configuration, device))
    step = inference(model, inputs, configuration, device, samples=samples, extra=facts)
    return with_stock_masks(step, configuration, step.run)


def _forward(model: Any, inputs: dict[str, Any], configuration: Configuration, device: torch.device) -> object:
    import torch

    with torch.no_grad(), autocast(configuration, device):
        return model(**inputs)


def _decode(model: Any, configuration: Configuration, device: torch.device) -> Step:
    import torch
    from transformers import StaticCache

    assert configuration.cache_len is not None
    model.eval()
    cache = StaticCache(config=model.config, max_cache_len=configuration.cache_len)
    shape = (configuration.batch, 1)
    tokens = torch.randint(model.config.vocab_size, shape, device=device, generator=generator(device, 1))
    # transformers 5.20 or so renamed the argument.
    argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    inputs = {"input_ids": tokens, argument: cache, "use_cache": True}
    _allocate_cache(model, inputs, configuration, device)
    counters = _fill_cache(cache, configuration.cache_len - 1, device)

    def run() -> object:
        with torch.no_grad():
            with autocast(configuration, device):
                output = model(**inputs)
            # The cache counts on by itself; one place further would be past its end. One launch for all layers.
            torch._foreach_sub_(counters, 1)
        return output

    facts = force_routing(model, configuration, run)
    return Step(run=run, samples=configuration.batch, parameters=parameter_count(model), model=model, extra=facts)


def _allocate_cache(model: Any, inputs: dict[str, Any], configuration: Configuration, device: torch.device) -> None:
    """The cache takes its shape and dtype from the first tokens that it sees."""
    try:
        _forward(model, inputs, configuration, device)
    except RuntimeError as error:
        if configuration.dtype.startswith("amp-") and "same dtype" in str(error):
            raise AddrfracError(
                f"this version of transformers cannot fill a static cache under autocast; use --dtype "
                f"{configuration.dtype.removeprefix('amp-')}"
            ) from error
        raise


def _fill_cache(cache: Any, length: int, device: torch.device) -> list[torch.Tensor]:
    """Put random keys and values into every layer and say that `length` of them are there; the layers' counters."""
    source = generator(device, 2)
    for layer in cache.layers:
        layer.keys.normal_(generator=source)
        layer.values.normal_(generator=source)
        layer.cumulative_length.fill_(length)
    return [layer.cumulative_length for layer in cache.layers]


PREFILL = {"batch": 1, "seq_len": 2048}
DECODE = {"batch": 32, "cache_len": 1024}

GPT2_MEDIUM = Workload(
    name="gpt2-medium",
    about="GPT-2 medium, 355M (transformers); a step is one batch of sequences, in training with AdamW",
    build=partial(_build, _gpt2_medium),
    defaults={"batch": 8, "seq_len": 1024},
    modes=("infer", "train"),
    layers=24,
    options=frozenset({"seq_len", "layers"}),
    sample="tokens",
)
LLAMA3_8B = Workload(
    name="llama3-8b",
    about="Llama 3 8B (transformers); a step is one prompt batch, one token a sequence, or one AdamW step",
    build=partial(_build, _llama3_8b),
    defaults={"prefill": PREFILL, "decode": DECODE, "train": {"batch": 1, "seq_len": 2048}},
    modes=("prefill", "decode", "train"),
    layers=32,
    options=frozenset({"seq_len", "cache_len", "layers"}),
    sample="tokens",
)
LLAMA3_70B = Workload(
    name="llama3-70b",
    about="Llama 3 70B (transformers); a step is one prompt batch or one token a sequence",
    build=partial(_build, _llama3_70b),
    defaults={"prefill": PREFILL, "decode": DECODE},
    modes=("prefill", "decode"),
    layers=80,
    options=frozenset({"seq_len", "cache_len", "layers"}),
    sample="tokens",
)
QWEN3_8B = Workload(
    name="qwen3-8b",
    about="Qwen3 8B (transformers); a step is one prompt batch or one token a sequence",
    build=partial(_build, _qwen3_8b),
    defaults={"prefill": PREFILL, "decode": DECODE},
    modes=("prefill", "decode"),
    layers=36,
    options=frozenset({"seq_len", "cache_len", "layers"}),
    sample="tokens",
)
MIXTRAL_8X7B = Workload(
    name="mixtral-8x7b",
    about="Mixtral 8x7B, two of eight experts a token (transformers); a step is a prompt batch or one token a sequence",
    build=partial(_build, _mixtral_8x7b),
    defaults={"prefill": PREFILL, "decode": DECODE, "routing": "balanced"},
    modes=("prefill", "decode"),
    layers=32,
    options=frozenset({"seq_len", "cache_len", "layers", "routing"}),
    sample="tokens",
)
WORKLOAD = LLAMA3_8B
