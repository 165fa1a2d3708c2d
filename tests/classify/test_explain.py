"""One kernel told in plain words."""

from __future__ import annotations

import pytest

from addrfrac.classify import classify, explain, load_policy
from addrfrac.classify.policies import POLICIES
from addrfrac.errors import AddrfracError

GEMM = "ampere_sgemm_128x64_tn"


@pytest.fixture
def trace(trace_of, row):
    """Two products under different ops, a fused kernel, a kernel that nobody knows."""
    return trace_of(
        [
            row(name=GEMM, op_stack=("aten::linear", "aten::addmm"), duration_ns=3000),
            row(name=GEMM, op_stack=("aten::conv2d", "aten::cudnn_convolution"), duration_ns=1000),
            row(name="triton_poi_fused_addmm_relu_3"),
            row(name="frobnicate"),
        ]
    )


def test_it_says_what_who_how_long_and_by_which_rules(trace) -> None:
    text = explain(trace, classify(trace), GEMM)
    for words in (
        "gemm, forward phase",
        "cublas: a vendor's own library",
        "3.0 us in 1 launches, 50.00 % of all kernel time",
        "by aten::linear > aten::addmm",
        "gemm-named, which found 'gemm'",
        "name and launching op agree",
        "paper: library",
        "strict: library",
    ):
        assert words in text


def test_each_op_stack_of_a_kernel_is_told_apart(trace) -> None:
    text = explain(trace, classify(trace), GEMM)
    assert text.count("launched   by") == 2
    assert "conv, forward phase" in text
    assert text.index("gemm, forward") < text.index("conv, forward")


def test_a_fused_list_and_what_it_does_not_mean_are_told(trace) -> None:
    text = explain(trace, classify(trace), "triton_poi")
    assert "fused      addmm, relu" in text
    assert "where its inputs come from" in text


def test_an_unknown_kernel_is_called_unknown(trace) -> None:
    text = explain(trace, classify(trace), "frobnicate")
    assert "unknown: only a catch-all matched" in text
    assert "paper: unknown" in text


def test_a_users_policy_is_told_too(trace, tmp_path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('library_ops = ["elementwise"]')
    text = explain(trace, classify(trace), "triton_poi", {**POLICIES, "mine": load_policy(file)})
    assert "mine: library" in text


def test_a_name_that_is_not_there_gets_close_names(trace) -> None:
    with pytest.raises(AddrfracError, match="ampere_sgemm") as error:
        explain(trace, classify(trace), "ampre_sgem_128x64")
    assert "\n" not in str(error.value)


def test_a_part_of_a_name_in_any_case_finds_it(trace) -> None:
    assert GEMM in explain(trace, classify(trace), "SGEMM")
