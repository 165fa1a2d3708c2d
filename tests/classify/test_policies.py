"""What each policy makes of a label, and policies from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from addrfrac.classify import POLICIES, bound, classify_name, load_policy
from addrfrac.errors import AddrfracError
from addrfrac.records import Bound

LIBRARY, REPLACEABLE, SYSTEM, UNKNOWN = Bound.LIBRARY, Bound.REPLACEABLE, Bound.SYSTEM, Bound.UNKNOWN


@pytest.mark.parametrize(
    ("name", "launching_op", "paper", "vendor", "strict"),
    [
        ("ampere_sgemm_128x64_tn", "aten::mm", LIBRARY, LIBRARY, LIBRARY),
        ("triton_tem_fused_mm_7", None, LIBRARY, REPLACEABLE, REPLACEABLE),
        ("void pytorch_flash::flash_fwd_kernel<int>(int)", None, LIBRARY, REPLACEABLE, LIBRARY),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, 512>(int)", None, REPLACEABLE, LIBRARY, LIBRARY),
        ("void split_embedding_codegen_forward_unweighted_kernel<float>(int)", None, REPLACEABLE, REPLACEABLE, LIBRARY),
        ("void cudnn::ops::nchwToNhwcKernel<float>(int)", "aten::cudnn_convolution", LIBRARY, LIBRARY, LIBRARY),
        ("triton_poi_fused_add_relu_3", None, REPLACEABLE, REPLACEABLE, REPLACEABLE),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)", None, *[REPLACEABLE] * 3),
        ("chunk_fwd_kernel_o", None, REPLACEABLE, REPLACEABLE, LIBRARY),
        ("RNN_blockPersist_fp_GRU<f,f,f,128>", None, LIBRARY, LIBRARY, LIBRARY),
        ("Memcpy DtoD (Device -> Device)", "aten::cudnn_convolution", SYSTEM, SYSTEM, SYSTEM),
        ("Memset (Device)", "aten::addmm", SYSTEM, SYSTEM, SYSTEM),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", None, SYSTEM, SYSTEM, SYSTEM),
        ("triton__0d1d2d", None, UNKNOWN, UNKNOWN, UNKNOWN),
        ("frobnicate", None, UNKNOWN, UNKNOWN, UNKNOWN),
        # what it computes is known, whose it is not: a policy that asks for the owner cannot tell
        ("void some_rms_norm_of_somebody<int>(int)", None, REPLACEABLE, UNKNOWN, UNKNOWN),
    ],
)
def test_each_policy_has_its_say(
    name: str, launching_op: str | None, paper: Bound, vendor: Bound, strict: Bound
) -> None:
    label = classify_name(name, launching_op)
    assert {policy: bound(POLICIES[policy], label) for policy in ("paper", "vendor", "strict")} == {
        "paper": paper,
        "vendor": vendor,
        "strict": strict,
    }


def test_a_users_policy_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "paper"\nname = "mine"\nlibrary_ops = ["gemm", "normalization"]\n')
    policy = load_policy(file)
    assert policy.name == "mine"
    assert bound(policy, classify_name("triton_per_fused_add_native_layer_norm_9")) is Bound.LIBRARY
    assert bound(policy, classify_name("void pytorch_flash::flash_fwd_kernel<int>(int)")) is Bound.REPLACEABLE
    assert bound(policy, classify_name("Memset (Device)")) is Bound.SYSTEM


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('libary_ops = ["gemm"]', "libary_ops"),
        ('library_ops = ["gemn"]', "gemn"),
        ('library_ops = "gemm"', "list of strings"),
        ('library_incumbents = ["open"]', "open"),
        ('extends = "papper"', "papper"),
        ("library_ops = [", "not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_policy_is_said_in_one_line_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(AddrfracError, match=r"policy\.toml") as error:
        load_policy(file)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AddrfracError, match="cannot read"):
        load_policy(tmp_path / "absent.toml")
