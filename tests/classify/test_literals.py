"""The words that a pattern needs: never more than it needs, or a rule would be passed over that matches."""

from __future__ import annotations

import re

import pytest

from addrfrac.classify import BUILT_IN
from addrfrac.classify.literals import required_literals
from addrfrac.classify.normalise import normalise


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("^nvjet_", ("nvjet_",)),
        (r"^[^<]*?(?:gemm|foo\w*bar)", ("gemm", "foo")),
        ("(?<!fb)gemm", ("gemm",)),
        ("a?bcd", ("bcd",)),
        ("ab+?cde", ("cde",)),
        ("(?:x|yy)?long", ("long",)),
        ("^(?:Mem(?:cpy|set)|hip)", ("Mem", "hip")),
        ("foo{0,2}bar", ("bar",)),
        (r"\bflash::", ("flash::",)),
        (r"[^\]a]+tail", ("tail",)),
        ("gemm|", None),
        ("(?:a|b)*", None),
        (r"\w+", None),
        ("(?i)gemm", None),
        ("(?P<name>gemm)x", None),
    ],
)
def test_literals_are_read_off_a_pattern(pattern: str, literals: tuple[str, ...] | None) -> None:
    assert required_literals(pattern) == literals


def test_no_built_in_rule_is_passed_over_where_it_matches() -> None:
    texts = [normalise(rule.example).text for rule in (*BUILT_IN.ops, *BUILT_IN.providers)]
    texts += [rule.example for rule in BUILT_IN.stacks]
    for rule in (*BUILT_IN.ops, *BUILT_IN.providers, *BUILT_IN.stacks):
        literals = required_literals(rule.pattern)
        for text in texts:
            if literals is not None and re.search(rule.pattern, text):
                assert any(literal in text for literal in literals), (rule.name, text)
