"""Names and texts that a trace supplied, made safe and short for one line."""

from __future__ import annotations

import re
import unicodedata

from addrfrac.classify.demangle import demangle

ELLIPSIS = "…"
_LAMBDA = re.compile(r"(?:::)?\{lambda\([^{}]*\)#\d+\}(?:::operator\(\)\([^()]*\)(?: const)?)?")
_NAMESPACE = re.compile(r"\b(?:\w+::)+(?=\w)")
_POINTERS = re.compile(r", (?:std::|at::detail::)?[Aa]rray<char ?\*, \d+(?:ul)?>")
"""The last argument of every ATen elementwise kernel: how many tensors it reads and writes."""
_RETURN = re.compile(r"^(?:void|static void|auto|int|float|bool) (?=\S)")


def one_line(text: str) -> str:
    """The text with line breaks, control and direction-changing characters shown as escapes, so that it stays one line.

    A kernel's name may hold anything: a terminal escape in it must not reach a terminal.
    """
    if text.isprintable():
        return text
    return "".join(character if _is_plain(character) else _escaped(character) for character in text)


def _is_plain(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def short_kernel(name: str) -> str:
    """What tells a kernel from its neighbours: no return type, arguments, namespaces or lambda numbers.

    'void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, ...>(int, ...)'
    -> 'vectorized_elementwise_kernel<4, CUDAFunctor_add<BFloat16>, ...>'.
    """
    text = one_line(demangle(name))
    text = _RETURN.sub("", text)
    text = text.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    text = _LAMBDA.sub("", text)
    text = _POINTERS.sub("", text)
    text = _without_arguments(text)
    text = _NAMESPACE.sub("", text)
    return re.sub(r"\s+(?=>)", "", text).strip() or one_line(name)


def _without_arguments(text: str) -> str:
    """The text without argument lists: every parenthesis that directly follows an identifier or '>'."""
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "(" and (depth or (kept and (kept[-1].isalnum() or kept[-1] in "_>"))):
            depth += 1
        elif character == ")" and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def clipped(text: str, width: int) -> str:
    """At most `width` characters, cut at the end."""
    return text if len(text) <= width else text[: max(0, width - 1)] + ELLIPSIS


def clipped_middle(text: str, width: int) -> str:
    """At most `width` characters, cut where generated names differ least: a third before the end."""
    if len(text) <= width:
        return text
    tail = width // 3
    return text[: width - tail - 1] + ELLIPSIS + text[len(text) - tail :]
