"""Kernels that Inductor generated: kind, op list, and what a list does and does not say."""

from __future__ import annotations

import pytest

from addrfrac.classify import POLICIES, bound, classify_name
from addrfrac.classify.inductor import parse_inductor_name, split_ops
from addrfrac.records import Bound, Incumbent, Op


@pytest.mark.parametrize(
    ("joined", "ops"),
    [
        ("_to_copy_add_native_layer_norm", ("_to_copy", "add", "native_layer_norm")),
        ("add__to_copy", ("add", "_to_copy")),
        ("_scaled_dot_product_flash_attention", ("_scaled_dot_product_flash_attention",)),
        ("add_mean_mul_pow_rsqrt", ("add", "mean", "mul", "pow", "rsqrt")),
        ("max_pool2d_with_indices_relu", ("max_pool2d_with_indices", "relu")),
        ("", ()),
    ],
)
def test_a_fused_list_is_cut_at_op_names(joined: str, ops: tuple[str, ...]) -> None:
    assert split_ops(joined) == ops


@pytest.mark.parametrize(
    ("name", "kind", "ops"),
    [
        ("triton_poi_fused_add_relu_3", "poi", ("add", "relu")),
        ("triton_red_fused__to_copy_mean_1_0d1d2d3de", "red", ("_to_copy", "mean")),
        ("triton_per_fused_add_native_layer_norm_9", "per", ("add", "native_layer_norm")),
        ("triton_tem_fused_addmm_relu_7", "tem", ("addmm", "relu")),
        ("triton_for_fused_0", "for", ()),
        ("triton_mm_12", "tem", ("mm",)),
        ("triton__0d1d2d3de", "bare", ()),
        ("triton_", "bare", ()),
    ],
)
def test_kind_and_list_are_read_from_the_name(name: str, kind: str, ops: tuple[str, ...]) -> None:
    parsed = parse_inductor_name(name)
    assert parsed is not None
    assert (parsed.kind, parsed.ops) == (kind, ops)


@pytest.mark.parametrize("name", ["triton_unified_attention_kernel", "trtllm_kernel", "fused_moe_kernel"])
def test_a_hand_written_kernel_is_not_taken_for_a_generated_one(name: str) -> None:
    assert parse_inductor_name(name) is None


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("triton_poi_fused_convolution_relu_3", Op.ELEMENTWISE),
        ("triton_poi_fused_addmm_gelu_view_19", Op.ELEMENTWISE),
        ("triton_red_fused_mm_sum_2", Op.REDUCTION),
        ("triton_tem_fused_mm_7", Op.GEMM),
        ("triton_tem_fused_mul_9", Op.GEMM),
        ("triton_tem_fused_convolution_0", Op.CONV),
        ("triton_tem_fused_flex_attention_0", Op.ATTENTION),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", Op.NORMALIZATION),
        ("triton_poi_fused__to_copy_clamp_div_round_4", Op.QUANTIZATION),
        ("triton_poi_fused_clone_transpose_21", Op.COPY_LAYOUT),
        ("triton_poi_fused_0", Op.FUSED_UNKNOWN),
    ],
)
def test_only_a_template_implements_the_matrix_product_in_its_list(name: str, op: Op) -> None:
    assert classify_name(name).op is op


def test_a_library_op_in_a_pointwise_list_is_told_as_provenance() -> None:
    label = classify_name("triton_poi_fused_addmm_gelu_3")
    assert label.fused_ops == ("addmm", "gelu")
    assert any("where its inputs come from" in fact for fact in label.evidence)


def test_kind_letters_without_a_list_are_enough_to_be_replaceable_and_a_bare_name_is_not() -> None:
    pointwise, bare = classify_name("triton_poi_fused_0"), classify_name("triton__0d1d2d")
    assert bound(POLICIES["paper"], pointwise) is Bound.REPLACEABLE
    assert bound(POLICIES["paper"], bare) is Bound.UNKNOWN
    assert any("neither kind nor op list" in fact for fact in bare.evidence)


def test_a_bare_name_launched_from_a_frame_with_the_full_name_is_known() -> None:
    label = classify_name("triton__0d1d2d3de", op_stack=("Torch-Compiled Region", "triton_red_fused_mean_23"))
    assert (label.op, label.is_catch_all) == (Op.REDUCTION, False)


def test_the_fraction_does_not_move_when_a_template_replaces_cublas() -> None:
    """The same product by cuBLAS and by a compiler's template has one bound under `paper`, whoever runs it."""
    cublas = classify_name("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "aten::mm")
    template = classify_name("triton_tem_fused_mm_7", op_stack=("Torch-Compiled Region: 0/0",))
    assert cublas.op is template.op is Op.GEMM
    assert bound(POLICIES["paper"], cublas) is bound(POLICIES["paper"], template) is Bound.LIBRARY
    assert (cublas.incumbent, template.incumbent) == (Incumbent.CLOSED, Incumbent.COMPILER)
    assert bound(POLICIES["vendor"], template) is Bound.REPLACEABLE
