"""What serving engines write about their steps, as found in their traces, and the buckets it makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addrfrac.engine_steps import describe, like


@pytest.mark.parametrize(
    ("text", "phase", "requests", "tokens", "bucket"),
    [
        ("execute_context_1(64)_generation_0(0)", "prefill", 1, 64, "prefill 33-64 tokens"),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 1, 888, "prefill 513-1024 tokens"),
        ("execute_context_0(0)_generation_24(24)", "decode", 24, 24, "decode batch 17-32"),
        ("execute_context_2(500)_generation_24(24)", "mixed", 26, 524, "mixed 513-1024 tokens"),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            "decode",
            32,
            32,
            "decode batch 17-32",
        ),
        ("execute_context_0(0)_generation_0(0)", "idle", 0, 0, "idle"),
        ("execute_new_1_cached_0", "prefill", 1, None, "prefill batch 1"),
        ("execute_new_1_cached_7", "mixed", 8, None, "mixed batch 5-8"),
        ("execute_new_0_cached_7", "decode", 7, None, "decode batch 5-8"),
        ("step[DECODE bs=16]", "decode", 16, None, "decode batch 9-16"),
        ("step[EXTEND bs=2 toks=107]", "prefill", 2, 107, "prefill 65-128 tokens"),
        ("step[MIXED bs=2]", "mixed", 2, None, "mixed batch 2"),
        ("step[TARGET_VERIFY bs=4]", "unknown", 4, None, "step TARGET_VERIFY"),
        ("my decode loop, batch=3", "decode", 3, None, "decode batch 3-4"),
        ("Prefill num_tokens: 2048", "prefill", None, 2048, "prefill 1025-2048 tokens"),
        ("decode", "decode", None, None, "decode"),
        ("run_batch 17", "unknown", None, None, "run_batch #"),
    ],
)
def test_an_engines_words_tell_phase_and_size(text, phase, requests, tokens, bucket):
    step = describe(text)
    assert (step.phase, step.requests, step.tokens, step.bucket) == (phase, requests, tokens, bucket)


@given(st.integers(1, 1_000_000))
def test_every_size_lies_in_the_range_it_is_named_by(number):
    low, _, high = like(number).partition("-")
    assert int(low) <= number <= int(high or low)


@given(st.integers(1, 1_000_000))
def test_ranges_of_sizes_do_not_overlap(number):
    last = int(like(number).rpartition("-")[2])
    assert like(last) == like(number) != like(last + 1)
