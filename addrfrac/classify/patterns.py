"""Word lists in, patterns for normalised kernel names out; what keeps the rule tables readable.

All lists are words separated by white space; a word may itself be a regular expression without spaces.
"""

from __future__ import annotations

_ANONYMOUS = r"(?:\{anon\}::|legacy::|modern::)*"
ELEMENTWISE = (
    rf"^at::native::{_ANONYMOUS}(?:vectorized_|unrolled_|legacy_|templated_)*elementwise_kernel"
    r"(?:_manual_unroll|_helper|_strided|_for_multi_outputs)?\b"
)
"""The launchers of ATen's pointwise machinery; what they compute is in their functor."""


def any_of(words: str) -> str:
    """Any of the words, anywhere in the name, its template arguments included."""
    return f"(?:{'|'.join(words.split())})"


def inside(words: str) -> str:
    """Any of the words inside the function's own qualified name, before its template arguments."""
    return f"^[^<]*?{any_of(words)}"


def starts(words: str) -> str:
    """A name that starts with one of the words."""
    return f"^{any_of(words)}"


def whole(words: str) -> str:
    """A function whose whole qualified name is one of the words."""
    return f"^{any_of(words)}(?=<|$)"


def token(words: str) -> str:
    """Any of the words as a whole token of the function's own name: "gemm" does not match inside "fbgemm"."""
    return rf"^[^<]*?(?<![A-Za-z0-9]){any_of(words)}(?![A-Za-z0-9])"


def functor(words: str) -> str:
    """One of ATen's pointwise launchers with any of the words in its template arguments."""
    return f"{ELEMENTWISE}<.*?{any_of(words)}"


def either(*patterns: str) -> str:
    """Any of the patterns."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)
