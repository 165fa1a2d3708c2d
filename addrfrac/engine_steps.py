"""What a serving engine wrote about one of its steps in, phase and size of the step out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from addrfrac.records import Range

PREFILL, DECODE, MIXED, IDLE, UNKNOWN = "prefill", "decode", "mixed", "idle", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStep:
    """One step as its engine described it."""

    phase: str
    name: str
    """Of the bucket where the phase is unknown."""
    requests: int | None = None
    tokens: int | None = None

    @property
    def bucket(self) -> str:
        """Steps of one phase and like size go together: decode by requests, all others by tokens, where known."""
        if self.phase in (UNKNOWN, IDLE):
            return self.name if self.phase == UNKNOWN else IDLE
        by_requests = f"{self.phase} batch {like(self.requests)}" if self.requests is not None else ""
        by_tokens = f"{self.phase} {like(self.tokens)} tokens" if self.tokens is not None else ""
        first, second = (by_requests, by_tokens) if self.phase == DECODE else (by_tokens, by_requests)
        return first or second or self.phase


# vLLM: requests in context and generation with their tokens, '888_788544' with the sum of squares, 'sq32sk55086...'
# with sums of query and key lengths; before, new and cached requests without tokens.
VLLM = re.compile(
    r"execute_(?:\d+_)?context_(?P<context>\d+)\((?:sq)?(?P<context_tokens>\d+)[^)]*\)"
    r"_generation_(?P<generation>\d+)\((?:sq)?(?P<generation_tokens>\d+)[^)]*\)"
)
VLLM_OLD = re.compile(r"execute_new_(?P<context>\d+)_cached_(?P<generation>\d+)")
# SGLang: 'step[DECODE bs=16]', 'step[EXTEND bs=2 toks=107]'.
SGLANG = re.compile(r"step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?")
SGLANG_MODES = {"EXTEND": PREFILL, "PREFILL": PREFILL, "DECODE": DECODE, "MIXED": MIXED, "IDLE": IDLE}
WORDS = (
    (re.compile(r"(?i)mixed"), MIXED),
    (re.compile(r"(?i)prefill|(?<![a-z])extend|context.?phase"), PREFILL),
    (re.compile(r"(?i)decode|generation"), DECODE),
)
REQUESTS = re.compile(r"(?i)(?<![a-z])(?:bs|batch(?:_?size)?|num_?reqs|requests)\s*[=:]?\s*(\d+)")
TOKENS = re.compile(r"(?i)(?<![a-z])(?:toks|(?:num_?)?tokens)\s*[=:]?\s*(\d+)")


def describe(text: str) -> EngineStep:
    """What an annotation tells of its step. Numbers in a text that is not understood make no buckets of their own."""
    if found := VLLM.match(text):
        context, generation = int(found["context"]), int(found["generation"])
        tokens = int(found["context_tokens"]) + int(found["generation_tokens"])
        return EngineStep(phase=_phase(context, generation), name=text, requests=context + generation, tokens=tokens)
    if found := VLLM_OLD.match(text):
        context, generation = int(found["context"]), int(found["generation"])
        return EngineStep(phase=_phase(context, generation), name=text, requests=context + generation)
    if found := SGLANG.match(text):
        phase = SGLANG_MODES.get(found["mode"].upper(), UNKNOWN)
        return EngineStep(
            phase=phase,
            name=f"step {found['mode']}",
            requests=_number(found["requests"]),
            tokens=_number(found["tokens"]),
        )
    for pattern, phase in WORDS:
        if pattern.search(text):
            return EngineStep(phase=phase, name=text, requests=_found(REQUESTS, text), tokens=_found(TOKENS, text))
    return EngineStep(phase=UNKNOWN, name=re.sub(r"\d+", "#", text))


def _phase(context: int, generation: int) -> str:
    if context and generation:
        return MIXED
    if context:
        return PREFILL
    return DECODE if generation else IDLE


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return None if found is None else int(found[1])


def like(number: int) -> str:
    """The range between powers of two that a number lies in: '1', '2', '3-4', '5-8', ..."""
    high = 1 << max(number - 1, 0).bit_length()
    low = high // 2 + 1
    return str(high) if low >= high else f"{low}-{high}"


def range_of(numbers: Sequence[int | None]) -> Range:
    """Least and most of what is known."""
    known = [number for number in numbers if number is not None]
    return Range(low=float(min(known)), high=float(max(known))) if known else Range(low=None, high=None)
