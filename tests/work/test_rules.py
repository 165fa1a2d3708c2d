"""Bytes and flops of single ops, counted by hand from what the profiler records."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.records import OpInputs
from addrfrac.work import FOREACH, PRODUCTS, RULES, Facts, Work, matrix, work_of
from addrfrac.work.tensors import contiguous

NO_FACTS = Facts()


def inputs(*arguments: Any) -> OpInputs:
    """Recorded inputs: a tensor is (type, shape) or (type, shape, strides), a list of shapes a TensorList, a text a
    number or list of numbers, None what was left out."""
    dims: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []
    concrete: list[str] = []
    for each in arguments:
        is_tensor, is_list = isinstance(each, tuple), isinstance(each, list)
        shape = each[1] if is_tensor else each if is_list else []
        laid_out = (each[2] if len(each) > 2 else list(contiguous(each[1]))) if is_tensor else []
        dims.append(shape)
        strides.append([list(contiguous(one)) for one in each] if is_list else laid_out)
        types.append(each[0] if is_tensor else "TensorList" if is_list else "Scalar" if each else "")
        concrete.append(each if isinstance(each, str) else "")
    return OpInputs(
        dims=json.dumps(dims), types=json.dumps(types), strides=json.dumps(strides), concrete=json.dumps(concrete)
    )


def counted(op: str, *arguments: Any, facts: Facts = NO_FACTS) -> Work:
    found = work_of(op, inputs(*arguments), facts)
    assert isinstance(found, Work), found
    return found


BF16, FP32, INT64 = "c10::BFloat16", "float", "long int"


# --- products -----------------------------------------------------------------------------------------------


def test_a_product_reads_both_operands_and_writes_one_result() -> None:
    found = counted("aten::mm", (BF16, [32, 4096]), (BF16, [4096, 14336], [1, 4096]))
    assert found.low_bytes == found.high_bytes == 2 * (32 * 4096 + 4096 * 14336 + 32 * 14336)
    assert found.low_flops == found.high_flops == 2 * 32 * 4096 * 14336
    assert found.dtype == "bf16"


def test_a_bias_is_read_where_it_is_stored() -> None:
    plain = counted("aten::mm", (BF16, [8, 16]), (BF16, [16, 4]))
    biased = counted("aten::addmm", (BF16, [4]), (BF16, [8, 16]), (BF16, [16, 4]), "1", "1")
    assert biased.low_bytes == plain.low_bytes + 2 * 4


def test_a_product_with_its_own_transpose_may_read_one_tensor() -> None:
    found = counted("aten::bmm", (BF16, [10, 27, 128]), (BF16, [10, 128, 27], [3456, 1, 128]))
    assert found.high_bytes - found.low_bytes == 2 * 10 * 27 * 128


def test_fp32_products_run_in_tf32_only_where_that_is_allowed() -> None:
    shapes = (FP32, [8, 16]), (FP32, [16, 4])
    assert counted("aten::mm", *shapes).dtype == "fp32"
    assert counted("aten::mm", *shapes, facts=Facts(allows_tf32=True)).dtype == "tf32"


def test_fp8_products_write_sixteen_bits() -> None:
    found = counted("aten::_scaled_mm", ("c10::Float8_e4m3fn", [8, 16]), ("c10::Float8_e4m3fn", [16, 4], [1, 16]))
    assert found.low_bytes == 8 * 16 + 16 * 4 + 2 * 8 * 4
    assert found.dtype == "fp8"


def test_weights_of_experts_without_tokens_need_not_be_read() -> None:
    arguments = (BF16, [64, 16]), (BF16, [8, 16, 32]), ("int", [8])
    unknown, half = (
        counted("aten::_grouped_mm", *arguments),
        counted("aten::_grouped_mm", *arguments, facts=Facts(expert_share=0.5)),
    )
    weights = 2 * 8 * 16 * 32
    assert unknown.high_bytes - unknown.low_bytes == weights * 7 / 8
    assert half.high_bytes - half.low_bytes == weights / 2
    assert unknown.high_flops == 2 * 64 * 16 * 32


def attention_inputs(causal: str, mask: Any = None) -> tuple[Any, ...]:
    shape = (BF16, [2, 4, 128, 64])
    return (shape, shape, shape, mask, None, None, "128", "128", "False", "0.", causal, "False", "0.1")


def test_attention_counts_all_pairs_and_a_causal_mask_half_of_them() -> None:
    full = counted("aten::_cudnn_attention_forward", *attention_inputs("False"))
    half = counted("aten::_cudnn_attention_forward", *attention_inputs("True"))
    assert full.low_flops == full.high_flops == 2 * 2 * 2 * 4 * 128 * 128 * 64
    assert half.high_flops == full.high_flops * (128 * 129 / 2) / 128**2
    assert full.low_bytes == 4 * 2 * 2 * 4 * 128 * 64  # query, key, value, output


def test_an_explicit_mask_leaves_the_pairs_open() -> None:
    found = counted("aten::_cudnn_attention_forward", *attention_inputs("False", (BF16, [2, 1, 128, 128])))
    assert found.low_flops < 0.51 * found.high_flops


def test_grouped_query_attention_reads_few_keys_and_multiplies_all_heads() -> None:
    q, kv = (BF16, [1, 2048, 32, 128]), (BF16, [1, 2048, 8, 128])
    found = counted("aten::_flash_attention_forward", q, kv, kv, None, None, "2048", "2048", "0.", "False", "False")
    assert found.low_bytes == 2 * 2048 * 128 * (32 + 8 + 8 + 32)
    assert found.high_flops == 4 * 32 * 2048 * 2048 * 128


def test_attention_s_backward_pass_has_five_products() -> None:
    shape = (BF16, [2, 4, 128, 64])
    rest = ((FP32, [2, 4, 128, 1]), None, None, None, None, None, "128", "128", "0.", "False", "0.1")
    found = counted("aten::_cudnn_attention_backward", shape, shape, shape, shape, shape, *rest)
    assert found.high_flops == 5 * 2 * 2 * 4 * 128 * 128 * 64


@pytest.mark.parametrize("op", sorted(name for name, rule in matrix.RULES.items() if "attention" in name))
def test_attention_rules_look_for_the_causal_flag_where_the_op_has_it(op: str) -> None:
    torch = pytest.importorskip("torch")
    packet = getattr(torch.ops.aten, op.removeprefix("aten::"), None)
    if packet is None:
        pytest.skip("this torch has no such op")
    names = [argument.name for argument in packet.default._schema.arguments]
    rule = matrix.RULES[op]
    assert isinstance(rule, partial)
    assert names[rule.keywords["causal"]] in ("is_causal", "custom_mask_type")
    assert names[rule.keywords["first"]] == "query"
    mask = rule.keywords.get("mask")
    assert mask is None or names[mask] in ("attn_bias", "bias")


# --- convolutions -------------------------------------------------------------------------------------------


def test_a_convolution_counts_taps_and_its_low_end_leaves_padding_out() -> None:
    arguments = (BF16, [64, 512, 7, 7]), (BF16, [512, 512, 3, 3])
    found = counted("aten::cudnn_convolution", *arguments, "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "False")
    assert found.high_flops == 2 * 64 * 512 * 512 * 9 * 49
    assert found.low_flops == 2 * 64 * 512 * 512 * 19 * 19
    assert found.low_bytes == 2 * (2 * 64 * 512 * 49 + 512 * 512 * 9)


def test_a_strided_pointwise_convolution_need_not_read_what_it_skips() -> None:
    arguments = (BF16, [1, 8, 56, 56]), (BF16, [16, 8, 1, 1])
    found = counted("aten::cudnn_convolution", *arguments, "[0, 0]", "[2, 2]", "[1, 1]", "1")
    assert found.high_bytes - found.low_bytes == 2 * 8 * 56 * 56 * 3 / 4


def test_a_grouped_convolution_multiplies_its_own_channels_only() -> None:
    found = counted(
        "aten::convolution",
        (FP32, [1, 32, 8, 8]),
        (FP32, [32, 1, 3, 3]),
        None,
        "[1, 1]",
        "[0, 0]",
        "[1, 1]",
        "False",
        "[0, 0]",
        "32",
    )
    assert found.high_flops == 2 * 32 * 9 * 36


def test_a_transposed_convolution_grows_its_input() -> None:
    found = counted(
        "aten::convolution",
        (FP32, [1, 4, 5, 5]),
        (FP32, [4, 2, 2, 2]),
        None,
        "[2, 2]",
        "[0, 0]",
        "[1, 1]",
        "True",
        "[0, 0]",
        "1",
    )
    assert found.low_bytes == 4 * (4 * 25 + 4 * 2 * 4 + 2 * 100)
    assert found.high_flops == 2 * 4 * 2 * 4 * 25


def test_epilogues_of_a_convolution_read_their_operands() -> None:
    plain = counted(
        "aten::cudnn_convolution_relu",
        (BF16, [1, 8, 4, 4]),
        (BF16, [8, 8, 1, 1]),
        (BF16, [8]),
        "[1, 1]",
        "[0, 0]",
        "[1, 1]",
        "1",
    )
    added = counted(
        "aten::cudnn_convolution_add_relu",
        (BF16, [1, 8, 4, 4]),
        (BF16, [8, 8, 1, 1]),
        (BF16, [1, 8, 4, 4]),
        "1",
        (BF16, [8]),
        "[1, 1]",
        "[0, 0]",
        "[1, 1]",
        "1",
    )
    assert added.low_bytes == plain.low_bytes + 2 * 8 * 16


def test_a_convolution_s_backward_pass_does_what_its_mask_asks() -> None:
    def backward(mask: str) -> Work:
        return counted(
            "aten::convolution_backward", (BF16, [2, 16, 8, 8]), (BF16, [2, 4, 8, 8]), (BF16, [16, 4, 3, 3]), "[0]",
            "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask,
        )  # fmt: skip

    both, weight = backward("[True, True, False]"), backward("[False, True, False]")
    assert both.high_flops == 2 * weight.high_flops
    assert weight.low_bytes == 2 * (2 * 16 * 64 + 2 * 4 * 64 + 16 * 4 * 9)


# --- memory -------------------------------------------------------------------------------------------------


def test_an_expanded_operand_is_read_where_it_is_stored() -> None:
    arguments = (BF16, [32, 8, 4, 1024, 128]), (BF16, [32, 8, 4, 1024, 128], [1048576, 131072, 0, 128, 1]), "False"
    found = counted("aten::copy_", *arguments)
    assert found.low_bytes == 2 * 32 * 8 * 1024 * 128 * (4 + 1)


def test_a_copy_that_turns_memory_around_is_a_transpose() -> None:
    assert counted("aten::copy_", (FP32, [4, 8]), (FP32, [4, 8], [1, 4])).access == "transpose"
    assert counted("aten::copy_", (FP32, [4, 8]), (BF16, [4, 8])).access == "stream"


def test_results_have_the_shape_and_type_that_broadcasting_gives() -> None:
    found = counted("aten::mul", (BF16, [4096]), (FP32, [1, 2048, 4096]))
    assert found.low_bytes == 2 * 4096 + 2 * 4 * 2048 * 4096
    wrapped = counted("aten::mul", (BF16, [100]), ("double", []))
    assert wrapped.low_bytes == 2 * 2 * 100 + 8
    compared = counted("aten::eq", (INT64, [100]), "0")
    assert compared.low_bytes == 8 * 100 + 100


def test_an_op_in_place_reads_and_writes_its_first_operand() -> None:
    assert counted("aten::add_", (BF16, [100]), (BF16, [100]), "1").low_bytes == 3 * 200


def test_a_masked_fill_may_write_nothing_or_everything() -> None:
    found = counted("aten::masked_fill_", (BF16, [100, 50]), ("bool", [100, 1]), "0.")
    assert (found.low_bytes, found.high_bytes) == (100, 100 + 2 * 2 * 5000)


def test_batch_norm_reads_its_input_twice_only_in_training() -> None:
    x, c = (BF16, [8, 16, 4, 4]), (FP32, [16])
    infer = counted("aten::native_batch_norm", x, c, c, c, c, "False", "0.1", "1e-5")
    train = counted("aten::native_batch_norm", x, c, c, c, c, "True", "0.1", "1e-5")
    assert infer.low_bytes == infer.high_bytes == 2 * 2 * 2048 + 4 * 64
    assert train.high_bytes - train.low_bytes == 2 * 2048


def test_pooling_writes_values_and_places() -> None:
    found = counted(
        "aten::max_pool2d_with_indices", (BF16, [64, 64, 112, 112]), "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"
    )
    assert found.low_bytes == 64 * 64 * (2 * 112 * 112 + 10 * 56 * 56)


def test_softmax_may_widen_its_result() -> None:
    assert counted("aten::_log_softmax", (BF16, [4, 10]), "1", "True").low_bytes == 40 * (2 + 4)
    assert counted("aten::_log_softmax", (BF16, [4, 10]), "1", "False").low_bytes == 40 * (2 + 2)


def test_a_reduction_writes_what_its_dimensions_leave() -> None:
    assert (
        counted("aten::sum", (FP32, [2048, 2, 4096]), "[1]", "False").low_bytes == 4 * 2048 * 2 * 4096 + 2 * 2048 * 4096
    )


CAT = "void CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 2, 64, 64>(...)"
ADDCDIV = (
    "void multi_tensor_apply_kernel<TensorListMetadata<3>, PointwiseOpScalarFunctor<float, 3, 3, 0>, std::divides>"
)


def test_the_kernel_s_name_tells_the_element_size_of_a_list() -> None:
    found = counted("aten::cat", [[32, 64], [32, 64]], "-1", facts=Facts(kernels=(CAT,)))
    assert found.low_bytes == 2 * 2 * 2 * 32 * 64
    assert isinstance(work_of("aten::cat", inputs([[32, 64]], "-1"), NO_FACTS), str)


def test_a_foreach_op_reads_and_writes_what_its_functor_says() -> None:
    lists = [[10, 10], [5]]
    found = counted(f"{FOREACH}addcdiv_", lists, lists, lists, "1", facts=Facts(kernels=(ADDCDIV,)))
    assert found.low_bytes == found.high_bytes == 4 * 105 * 4


def test_long_lists_are_not_recorded_and_hold_at_most_all_parameters() -> None:
    facts = Facts(kernels=(ADDCDIV,) * 18, parameters=1_000_000)
    recorded = OpInputs(
        dims="[[], [], [], []]", types='["TensorList", "TensorList", "TensorList", ""]', strides="", concrete=""
    )
    found = work_of(f"{FOREACH}addcdiv_", recorded, facts)
    assert isinstance(found, Work)
    assert (found.low_bytes, found.high_bytes) == (0, 4 * 4 * 1_000_000)
    assert "not recorded" in found.basis


# --- rows by index ------------------------------------------------------------------------------------------

BAG = (FP32, [750000, 128]), (INT64, [163840]), (INT64, [8193]), "False", "0", "False", None, "True", "-1"


def test_rows_of_a_bag_are_an_interval_unless_indices_were_captured() -> None:
    rest = 8 * (163840 + 8193) + 512 * 8192
    open_ended = counted("aten::_embedding_bag", *BAG)
    assert (open_ended.low_bytes, open_ended.high_bytes) == (rest + 512, rest + 512 * 163840)
    captured = counted("aten::_embedding_bag", *BAG, facts=Facts(distinct_row_share=0.9))
    assert captured.low_bytes == captured.high_bytes == pytest.approx(rest + 0.9 * 512 * 163840)


def test_no_more_rows_are_distinct_than_a_table_has() -> None:
    found = counted("aten::_embedding_bag", (FP32, [100, 128]), *BAG[1:])
    assert found.high_bytes == 8 * (163840 + 8193) + 512 * 8192 + 512 * 100


def test_table_batched_embedding_counts_ids_rows_and_bags() -> None:
    arguments = (
        (FP32, [2496000000]), (FP32, [0]), (FP32, [0, 0]), ("int", [26]), (INT64, [26]), ("int", [27]), "3328", "128",
        (INT64, [212992]), (INT64, [212993]), "0", ("int", [0]), ("int", [0]), "5", "False",
    )  # fmt: skip
    found = counted("fbgemm::split_embedding_codegen_forward_unweighted_cuda", *arguments)
    rest = 8 * (212992 + 212993) + 8192 * 3328 * 2
    assert (found.low_bytes, found.high_bytes) == (rest + 26 * 512, rest + 212992 * 512)
    assert found.access == "gather"


def test_a_cache_update_writes_its_rows_and_not_the_cache() -> None:
    found = counted("aten::index_copy_", (BF16, [32, 8, 1024, 128]), "2", (INT64, [1]), (BF16, [32, 8, 1, 128]))
    assert found.high_bytes == 2 * 2 * 32 * 8 * 128 + 8


# --- generated kernels --------------------------------------------------------------------------------------


def test_a_pointwise_kernel_with_one_tensor_of_its_points_works_in_place() -> None:
    arguments = (BF16, [64, 64]), (BF16, [64]), "4096"
    found = counted("triton_poi_fused_relu_2", *arguments)
    assert found.low_bytes == found.high_bytes == 2 * 2 * 4096 + 128


def test_a_generated_kernel_s_largest_tensor_may_be_in_place() -> None:
    found = counted("triton_poi_fused_add_relu_8", (BF16, [64, 64]), (BF16, [64]), (BF16, [64, 64]), "4096")
    assert (found.low_bytes, found.high_bytes) == (2 * 2 * 4096 + 128, 3 * 2 * 4096 + 128)


def test_a_generated_kernel_reads_no_more_of_a_table_than_it_has_points() -> None:
    found = counted("triton_poi_fused_embedding_0", (INT64, [32]), (BF16, [128256, 4096]), (BF16, [32, 4096]), "131072")
    assert found.high_bytes <= 8 * 32 + 3 * 2 * 32 * 4096


# --- what cannot be counted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "recorded", "said"),
    [
        (None, inputs((FP32, [4])), "no op"),
        ("aten::mm", None, "not recorded"),
        ("aten::index", inputs((FP32, [4])), "no rule"),
        ("aten::mm", inputs((FP32, [4])), "do not tell"),
        ("aten::mm", OpInputs(dims="{", types="", strides="", concrete=""), "not readable"),
        ("aten::mm", OpInputs(dims="[[4, 4]]", types="[]", strides="", concrete=""), "not readable"),
    ],
)
def test_what_cannot_be_counted_says_why(op: str | None, recorded: OpInputs | None, said: str) -> None:
    found = work_of(op, recorded, NO_FACTS)
    assert isinstance(found, str)
    assert said in found


@pytest.mark.parametrize("op", sorted(RULES))
def test_no_rule_survives_arguments_that_are_none(op: str) -> None:
    """An op recorded with fewer arguments than it has is not counted, and nothing is raised."""
    for recorded in (inputs(None), inputs("1"), inputs((BF16, [])), inputs((BF16, [0]), (BF16, [0]))):
        found = work_of(op, recorded, NO_FACTS)
        assert isinstance(found, str) or 0 <= found.low_bytes <= found.high_bytes


@pytest.mark.parametrize("op", sorted(name for name in RULES if name.startswith("aten::")))
def test_no_rule_is_dead(op: str) -> None:
    torch = pytest.importorskip("torch")
    assert hasattr(torch.ops.aten, op.removeprefix("aten::"))


SHAPES = st.lists(st.integers(1, 64), min_size=1, max_size=4)


@settings(deadline=None)
@given(
    shape=SHAPES,
    item=st.sampled_from([BF16, FP32, INT64, "bool"]),
    op=st.sampled_from(["relu", "add_", "copy_", "fill_", "sort"]),
)
def test_no_op_moves_less_than_it_writes(shape: list[int], item: str, op: str) -> None:
    found = counted(f"aten::{op}", (item, shape), (item, shape), "1")
    assert math.prod(shape) <= found.low_bytes <= found.high_bytes


@settings(deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300)), op=st.sampled_from(sorted(PRODUCTS))
)
def test_products_of_any_size_are_counted_or_refused(sizes: tuple[int, int, int], op: str) -> None:
    m, k, n = sizes
    found = work_of(op, inputs((BF16, [m, k]), (BF16, [k, n]), (BF16, [n])), NO_FACTS)
    if isinstance(found, Work):
        assert 0 <= found.low_flops <= found.high_flops
        assert 0 <= found.low_bytes <= found.high_bytes
