"""Rules from a user's TOML: before the built-in ones, in the place of one, and what is wrong in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from addrfrac.classify import BUILT_IN, classify_name, load_rules
from addrfrac.errors import AddrfracError
from addrfrac.records import Incumbent, Op, Role

RULES = """
[[op]]
name = "my-norm"
pattern = "^my_rms"
value = "normalization"
example = "my_rms_gemm_kernel"

[[op]]
name = "my-reduce"
pattern = "^my_split"
value = "gemm"
role = "aux"

[[provider]]
name = "my-library"
pattern = "^my_"
value = "my_library"
incumbent = "tuned"
evidence = "ours"

[[stack]]
name = "my-op"
pattern = "mylib::loss.*"
value = "loss"
encloses = ["elementwise"]
"""


@pytest.fixture
def written(tmp_path: Path):
    """`written(text)`: the path of a rules file with this text."""

    def write(text: str) -> Path:
        file = tmp_path / "rules.toml"
        file.write_text(text)
        return file

    return write


def test_new_rules_stand_before_the_built_in_ones(written) -> None:
    rules = load_rules(written(RULES))
    label = classify_name("my_rms_gemm_kernel", rules=rules)
    assert (label.op, label.provider, label.incumbent) == (Op.NORMALIZATION, "my_library", Incumbent.TUNED)
    assert (label.op_rule, label.provider_rule) == ("my-norm", "my-library")
    assert "ours" in label.evidence
    assert classify_name("my_split_kernel", rules=rules).role is Role.AUX
    assert classify_name("my_rms_gemm_kernel").op is Op.GEMM


def test_a_rule_of_a_known_name_replaces_that_rule_where_it_stands(written) -> None:
    text = '[[op]]\nname = "nvjet"\npattern = "^nvjet_(?!special)"\nvalue = "gemm"\n'
    rules = load_rules(written(text))
    assert [rule.name for rule in rules.ops] == [rule.name for rule in BUILT_IN.ops]
    assert classify_name("nvjet_special_64x8", rules=rules).is_catch_all
    assert classify_name("nvjet_tst_64x8", rules=rules).op is Op.GEMM


def test_a_stack_rule_claims_what_runs_inside_its_frame(written) -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>(int)"
    )
    stack = ("mylib::loss_forward", "aten::fill_")
    assert classify_name(name, op_stack=stack, rules=load_rules(written(RULES))).op is Op.LOSS
    assert classify_name(name, op_stack=stack).op is Op.ELEMENTWISE


def test_an_incumbent_can_be_changed(written) -> None:
    rules = load_rules(written('[incumbents]\ncublas = "tuned"\n'))
    assert classify_name("ampere_sgemm_128x64_tn", rules=rules).incumbent is Incumbent.TUNED


def test_a_new_provider_without_an_incumbent_is_generic(written) -> None:
    rules = load_rules(written('[[provider]]\nname = "x"\npattern = "^x_"\nvalue = "xlib"\n'))
    assert classify_name("x_kernel", rules=rules).incumbent is Incumbent.GENERIC


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[op]]\nname = "bad"\npattern = "("\nvalue = "gemm"', ("bad", "no regular expression")),
        ('[[op]]\nname = "bad"\npattern = "x"\nvalue = "gemn"', ("bad", "gemn")),
        ('[[op]]\nname = "bad"\npattern = "x"\nvalue = "gemm"\nrole = "side"', ("bad", "side")),
        ('[[op]]\nname = "bad"\npatern = "x"\nvalue = "gemm"', ("bad", "patern")),
        ('[[op]]\nname = "bad"\nvalue = "gemm"', ("bad", "pattern")),
        ('[[op]]\npattern = "x"\nvalue = "gemm"', ("rule 1", "name")),
        ('[[provider]]\nname = "bad"\npattern = "x"\nvalue = "y"\nincumbent = "closd"', ("bad", "closd")),
        ('[[stack]]\nname = "bad"\npattern = "x"\nvalue = "loss"\nencloses = ["elementwize"]', ("bad", "elementwize")),
        ('[[rule]]\nname = "bad"', ("rule", "[[op]]")),
        ('[op]\nname = "bad"', ("[[op]]",)),
        ('[incumbents]\ncublas = "hard"', ("cublas", "hard")),
        (
            '[[op]]\nname = "a"\npattern = "x"\nvalue = "gemm"\n[[op]]\nname = "a"\npattern = "y"\nvalue = "gemm"',
            ("'a'",),
        ),
        ('[[op]]\nname = "bad"\npattern = "^void x"\nvalue = "gemm"\nexample = "void x(int)"', ("bad", "example")),
        ("[[op", ("not valid TOML",)),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line_with_file_and_rule(
    written, text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(AddrfracError, match=r"rules\.toml") as error:
        load_rules(written(text))
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_rules_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AddrfracError, match="cannot read"):
        load_rules(tmp_path / "absent.toml")
