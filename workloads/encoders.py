"""BERT, T5 and Whisper from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from addrfrac.records import Workload
from addrfrac.workloads.step import Step, generator, inference, weight_dtype
from addrfrac.workloads.transformer import build_model, train_with_adamw, with_stock_masks

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration

T5_TARGET_SHARE = 4
"""T5's target is this many times shorter than its input, as in its span corruption and summarisation recipes."""
WHISPER_TOKENS = 128
"""Decoder positions in one forward pass of Whisper."""


def _bert_large(tiny: bool) -> Any:
    from transformers import BertConfig

    if tiny:
        return BertConfig(
            vocab_size=128,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
        )
    return BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)


def _build_bert(configuration: Configuration, device: torch.device, *, tiny: bool = False) -> Step:
    """Question answering as in SQuAD: a span's start and end over each sequence."""
    import torch

    config = _bert_large(tiny)
    if configuration.layers:
        config.num_hidden_layers = configuration.layers
    model = build_model("AutoModelForQuestionAnswering", config, configuration, device)
    assert configuration.seq_len is not None
    source = generator(device, 1)
    shape = (configuration.batch, configuration.seq_len)
    tokens = torch.randint(model.config.vocab_size, shape, device=device, generator=source)
    if configuration.mode == "infer":
        model.eval()
        step = inference(model, {"input_ids": tokens}, configuration, device, samples=configuration.batch)
        return with_stock_masks(step, configuration, step.run)
    ends = torch.randint(configuration.seq_len, (2, configuration.batch), device=device, generator=source)
    inputs = {"input_ids": tokens, "start_positions": ends[0], "end_positions": ends[1]}
    return train_with_adamw(model, inputs, configuration, device, samples=configuration.batch)


def _t5_base(tiny: bool) -> Any:
    from transformers import T5Config

    if tiny:
        return T5Config(
            vocab_size=128, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
        )
    return T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)


def _build_t5(configuration: Configuration, device: torch.device, *, tiny: bool = False) -> Step:
    """Sequence to sequence with teacher forcing."""
    import torch

    model = build_model("AutoModelForSeq2SeqLM", _t5_base(tiny), configuration, device)
    assert configuration.seq_len is not None
    source = generator(device, 1)
    vocabulary = model.config.vocab_size
    target_len = max(1, configuration.seq_len // T5_TARGET_SHARE)
    inputs = {
        "input_ids": torch.randint(
            1, vocabulary, (configuration.batch, configuration.seq_len), device=device, generator=source
        ),
        "labels": torch.randint(1, vocabulary, (configuration.batch, target_len), device=device, generator=source),
    }
    if configuration.mode == "train":
        return train_with_adamw(
            model, inputs | {"use_cache": False}, configuration, device, samples=configuration.batch
        )
    model.eval()
    step = inference(model, inputs | {"use_cache": False}, configuration, device, samples=configuration.batch)
    return with_stock_masks(step, configuration, step.run)


def _whisper_small(tiny: bool) -> Any:
    from transformers import WhisperConfig

    if tiny:
        return WhisperConfig(
            vocab_size=128,
            num_mel_bins=8,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=20,
            max_target_positions=WHISPER_TOKENS,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    return WhisperConfig(
        vocab_size=51865,
        num_mel_bins=80,
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        max_source_positions=1500,
        max_target_positions=448,
    )


def _build_whisper(configuration: Configuration, device: torch.device, *, tiny: bool = False) -> Step:
    """Thirty seconds of sound a sample: the encoder's 1500 positions and the decoder's logits for 128 tokens."""
    import torch

    model = build_model("AutoModelForSpeechSeq2Seq", _whisper_small(tiny), configuration, device)
    source = generator(device, 1)
    frames = 2 * model.config.max_source_positions
    shape = (configuration.batch, model.config.num_mel_bins, frames)
    inputs = {
        "input_features": torch.randn(shape, device=device, generator=source).to(weight_dtype(configuration)),
        "decoder_input_ids": torch.randint(
            model.config.vocab_size, (configuration.batch, WHISPER_TOKENS), device=device, generator=source
        ),
        "use_cache": False,
    }
    model.eval()
    step = inference(model, inputs, configuration, device, samples=configuration.batch)
    return with_stock_masks(step, configuration, step.run)


BERT_LARGE = Workload(
    name="bert-large",
    about="BERT-large with SQuAD's head (transformers); a step is one batch of sequences",
    build=_build_bert,
    defaults={"infer": {"batch": 32}, "train": {"batch": 16}, "seq_len": 384},
    modes=("infer", "train"),
    layers=24,
    options=frozenset({"seq_len", "layers"}),
    sample="sequences",
)
T5_BASE = Workload(
    name="t5-base",
    about="T5 base, target a quarter as long as the input (transformers); a step is one batch, in training with AdamW",
    build=_build_t5,
    defaults={"batch": 16, "seq_len": 512},
    modes=("train", "infer"),
    options=frozenset({"seq_len"}),
    sample="sequences",
)
WHISPER_SMALL = Workload(
    name="whisper-small",
    about="Whisper small, encoder and decoder (transformers); a step is one batch of 30 s of sound, 128 tokens each",
    build=_build_whisper,
    defaults={"batch": 16},
    modes=("infer",),
    sample="clips",
)
WORKLOAD = BERT_LARGE
