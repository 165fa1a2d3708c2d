"""Names of kernels that TorchInductor generated in, their kind and fused op list out.

Inductor joins the op names by underscores, which op names contain too: the list is cut by the longest known op
name at each place, so `_to_copy`, `native_layer_norm` and `_scaled_dot_product_flash_attention` stay whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent reduction",
    "tem": "template",
    "for": "foreach",
    "mix": "mixed-order reduction",
    "spl": "split scan",
    "unk": "unknown",
}
"""Kind letters of `triton_KIND_fused_...` and what they say in words."""

_NAME = re.compile(
    r"^triton_(?P<kind>poi|red|per|tem|for|mix|spl|unk)_fused_?(?P<ops>\w*?)(?:_(?P<counter>\d+))?(?:_0d1[0-9dec]*)?$"
)
_LIST_ONLY = re.compile(r"^triton_fused_(?P<ops>\w+?)(?:_\d+)?(?:_0d1[0-9dec]*)?$")
_BARE = re.compile(r"^triton_(?:_?\d[0-9dec]*|_0d1[0-9dec]*)?$")
_TEMPLATE = re.compile(
    r"^triton_(?P<ops>mm_plus_mm|mm|bmm|addmm|baddbmm|convolution(?:2d|3d)?|flex_attention(?:_backward)?|flex_decoding"
    r"|scaled_mm\w*?|grouped_mm\w*?)(?:_\d+)?(?:_0d1[0-9dec]*)?$"
)

# Op names with an underscore inside, as they occur in fused lists. A name missing here is cut into its words,
# which hides it from rules that ask for it; nothing else goes wrong.
_COMPOUND_OPS = re.split(
    r"\s+",
    """
    _adaptive_avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d adaptive_max_pool2d
    adaptive_max_pool2d_with_indices affine_grid_generator all_gather_into_tensor all_reduce arange_start_step
    as_strided as_strided_scatter _assert_async _assert_tensor_metadata avg_pool2d avg_pool2d_backward avg_pool3d
    binary_cross_entropy binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor broadcast_to _cdist_forward choose_qparams choose_qparams_per_token_asymmetric
    choose_qparams_token clamp_max clamp_max_ clamp_min clamp_min_ col2im _conj constant_pad_nd convert_element_type
    _convert_weight_to_int4pack convolution_backward copysign cross_entropy cudnn_batch_norm cudnn_batch_norm_backward
    _cudnn_rnn cumsum_backward dequantize_per_channel dequantize_per_tensor dequantize_per_token diagonal_copy
    diagonal_scatter div_mod dynamic_scaled_fp8_quant _efficient_attention_forward embedding_backward _embedding_bag
    embedding_bag _embedding_bag_forward_only embedding_dense_backward empty_like empty_strided _euclidean_dist
    expand_as exponential fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
    fill_scalar _flash_attention_forward flex_attention flex_attention_backward flex_decoding floor_divide
    _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_copy _foreach_div _foreach_lerp _foreach_mul _foreach_neg
    _foreach_norm _foreach_pow _foreach_reciprocal _foreach_sqrt _foreach_sub full_like _fused_adam _fused_adamw
    _fused_moving_avg_obs_fq_helper _fused_rms_norm _fused_rms_norm_backward _fused_sgd gelu_backward glu_backward
    grid_sampler_2d grid_sampler_3d _grouped_mm hardsigmoid_backward hardswish_backward hardtanh_backward huber_loss
    index_add index_copy index_fill index_put index_select inductor_force_stride_order inductor_lookup_seed
    inductor_randint inductor_random inductor_seeds inner_product _int_mm is_nonzero l1_loss layer_norm leaky_relu
    leaky_relu_backward lift_fresh linalg_vector_norm _local_scalar_dense log_sigmoid log_sigmoid_forward _log_softmax
    log_softmax _log_softmax_backward_data logical_and logical_not logical_or logical_xor
    _low_memory_max_pool2d_offsets_to_indices low_memory_max_pool2d_offsets_to_indices
    _low_memory_max_pool2d_with_offsets low_memory_max_pool2d_with_offsets _low_memory_max_pool_offsets_to_indices
    _low_memory_max_pool_with_offsets masked_fill _masked_scale masked_scatter masked_select max_pool2d
    max_pool2d_with_indices max_pool2d_with_indices_backward mean_backward miopen_batch_norm moe_forward
    moe_forward_shared mse_loss mse_loss_backward nan_to_num native_batch_norm native_batch_norm_backward
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_dropout
    native_dropout_backward native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward
    _native_multi_head_attention _neg_view new_empty new_empty_strided new_full new_ones new_zeros nll_loss
    nll_loss2d_forward nll_loss_backward nll_loss_forward one_hot ones_like online_softmax_prims _pdist_forward
    per_token_group_fp8_quant pixel_shuffle pixel_unshuffle _prelu_kernel _prelu_kernel_backward
    prepare_softmax_online prims_convert prod_dim quantize_per_channel quantize_per_tensor quantize_per_token
    quantized_decomposed rand_like randn_like reduce_scatter_tensor reflection_pad1d reflection_pad2d
    repeat_interleave replication_pad2d _reshape_alias _reshape_copy resize_as rms_norm rrelu_with_noise _safe_softmax
    scalar_tensor scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_fused_attention_overrideable _scaled_grouped_mm _scaled_mm scatter_add scatter_reduce
    segment_reduce select_backward select_scatter sigmoid_backward silu_backward slice_backward slice_scatter
    smooth_l1_loss soft_margin_loss _softmax _softmax_backward_data softplus_backward split_with_sizes
    split_with_sizes_copy squeeze_copy static_scaled_fp8_quant sum_to_size sym_size tanh_backward tensor_split
    threshold_backward _to_copy transpose_copy tril_indices _trilinear true_divide unified_attention
    unified_attention_with_output _unique2 unsafe_chunk _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate unsafe_split unsafe_split_with_sizes _unsafe_view unsqueeze_copy
    upsample_bicubic2d _upsample_bicubic2d_aa upsample_bilinear2d _upsample_bilinear2d_aa upsample_bilinear2d_backward
    upsample_nearest1d upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d upsample_trilinear3d
    value_selecting_reduction_backward var_mean vector_norm view_as view_as_complex view_as_real view_copy wait_tensor
    zeros_like
    """.strip(),
)
_WORDS_OF: dict[str, list[tuple[str, ...]]] = {}
for _op in _COMPOUND_OPS:
    _words = tuple(_op.split("_"))
    _WORDS_OF.setdefault(_words[0], []).append(_words)
for _candidates in _WORDS_OF.values():
    _candidates.sort(key=len, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class InductorName:
    """A generated kernel's name, taken apart."""

    kind: str
    """Kind letters, or 'bare' where the name has none."""
    ops: tuple[str, ...]

    @property
    def text(self) -> str:
        """The canonical spelling that rules match."""
        return f"inductor::{self.kind}<{', '.join(self.ops)}>"


def parse_inductor_name(name: str) -> InductorName | None:
    """Kind and op list of a generated kernel; None for any other name."""
    if not name.startswith("triton_"):
        return None
    if match := _NAME.match(name):
        return InductorName(kind=match["kind"], ops=split_ops(match["ops"]))
    if match := _TEMPLATE.match(name):
        return InductorName(kind="tem", ops=(match["ops"],))
    if match := _LIST_ONLY.match(name):
        return InductorName(kind="unk", ops=split_ops(match["ops"]))
    if _BARE.match(name):
        return InductorName(kind="bare", ops=())
    return None


def split_ops(joined: str) -> tuple[str, ...]:
    """The op names in a list joined by underscores, longest known name first at each place."""
    words = joined.split("_")
    ops: list[str] = []
    position = 0
    while position < len(words):
        known = next(
            (w for w in _WORDS_OF.get(words[position], ()) if tuple(words[position : position + len(w)]) == w), None
        )
        length = len(known) if known else 1
        op = "_".join(words[position : position + length])
        if op and not op.isdigit():
            ops.append(op)
        position += length
    return tuple(ops)
