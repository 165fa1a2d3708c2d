"""No built-in rule is dead, and every table says what it should about itself."""

from __future__ import annotations

import pytest

from addrfrac.classify import BUILT_IN, classify_name
from addrfrac.classify.cpu_rules import CPU_RULES, cpu_provider
from addrfrac.classify.normalise import normalise
from addrfrac.classify.rules import OpRule, ProviderRule, StackRule
from addrfrac.records import Incumbent


@pytest.mark.parametrize("rule", BUILT_IN.ops, ids=lambda rule: rule.name)
def test_each_op_rule_is_the_first_to_match_its_own_example(rule: OpRule) -> None:
    assert rule.example
    assert BUILT_IN.op_rule(normalise(rule.example).text) is rule


@pytest.mark.parametrize("rule", BUILT_IN.providers, ids=lambda rule: rule.name)
def test_each_provider_rule_is_the_first_to_match_its_own_example(rule: ProviderRule) -> None:
    assert rule.example
    assert BUILT_IN.provider_rule(normalise(rule.example).text) is rule


@pytest.mark.parametrize("rule", BUILT_IN.stacks, ids=lambda rule: rule.name)
def test_each_stack_rule_is_the_first_to_match_its_own_example(rule: StackRule) -> None:
    assert rule.example
    assert BUILT_IN.stack_rule(rule.example) is rule


@pytest.mark.parametrize(
    "table", [BUILT_IN.ops, BUILT_IN.providers, BUILT_IN.stacks], ids=["ops", "providers", "stacks"]
)
def test_names_tell_the_rules_of_a_table_apart(table: tuple[OpRule | ProviderRule | StackRule, ...]) -> None:
    names = [rule.name for rule in table]
    assert len(set(names)) == len(names)


def test_every_provider_has_an_incumbent() -> None:
    named = {rule.provider for rule in BUILT_IN.providers} | {provider for _, _, provider in CPU_RULES}
    named |= {rule.provider for rule in BUILT_IN.stacks if rule.provider}
    assert {name for name in named if name not in BUILT_IN.incumbents} == set()
    assert Incumbent.UNKNOWN not in BUILT_IN.incumbents.values()


@pytest.mark.parametrize(
    ("op", "provider"),
    [
        ("aten::mkldnn_convolution", "onednn"),
        ("mkldnn::_linear_pointwise", "onednn"),
        ("mkl::_mkl_linear", "mkl"),
        ("aten::addmm", "mkl"),
        ("aten::linalg_solve_ex", "mkl"),
        ("aten::_fft_r2c", "mkl"),
        ("fbgemm::permute_2D_sparse_data", "fbgemm"),
        ("torchvision::nms", "torchvision"),
        ("aten::conv2d", "aten_dispatch"),
        ("autograd::engine::evaluate_function: MulBackward0", "aten_dispatch"),
        ("aten::native_batch_norm", "aten_cpu"),
    ],
)
def test_each_cpu_rule_has_a_use(op: str, provider: str) -> None:
    assert cpu_provider(op, BUILT_IN.stack_rule(op))[0] == provider


@pytest.mark.parametrize("piece", ["a", "fwd_", "at::native::", "<", "(", "kernel<", "_fusion", "gemm::", "attention_"])
def test_a_name_made_of_one_piece_a_thousand_times_is_answered(piece: str) -> None:
    """A pattern that repeats inside a repetition would never come back."""
    assert classify_name(piece * 1000).op_rule
