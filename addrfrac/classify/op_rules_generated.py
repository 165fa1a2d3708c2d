"""What a compiler's own kernel names say they compute: Inductor (canonical spelling of `inductor.py`) and XLA.

Ops such as mm, convolution or attention in the list of a pointwise or reduction kernel only say where its inputs came
from; a template implements them, and its epilogue can hide them from the list.
"""

from __future__ import annotations

from addrfrac.classify.patterns import any_of, either
from addrfrac.classify.rules import OpRule
from addrfrac.records import Op

_POINTWISE = r"^inductor::(?:poi|for)<"
_REDUCING = r"^inductor::(?:red|per|mix|spl)<"
_ANY = r"^inductor::(?:poi|red|per|mix|for|spl|unk)<"


def _lists(words: str) -> str:
    """A kernel of any kind but a template whose list holds one of the ops."""
    return rf"{_ANY}.*\b{any_of(words)}\b"


_MOVES = any_of(
    r"""clone copy _?to_copy transpose permute t view _unsafe_view reshape _reshape_alias _reshape_copy view_copy
    view_as\w* stack cat slice select split split_with_sizes unsafe_split chunk unbind expand expand_as squeeze
    unsqueeze contiguous constant_pad_nd as_strided slice_scatter select_scatter as_strided_scatter flip roll
    unfold slice_backward select_backward transpose_copy permute_copy repeat tile alias detach
    convert_element_type broadcast_to _assert_tensor_metadata empty new_empty empty_like lift_fresh wait_tensor
    all_reduce _scaled_dot_product_\w+ scaled_dot_product_attention moe_forward moe_forward_shared
    unified_attention\w* mm bmm addmm _native_multi_head_attention"""
)
_INDEXES = any_of(
    """index _unsafe_index index_put _unsafe_index_put index_select gather scatter scatter_add scatter_reduce
    index_add index_copy"""
)

INDUCTOR: tuple[OpRule, ...] = (
    OpRule(
        "inductor-attention-template",
        r"^inductor::tem<.*(?:flex_attention|flex_decoding)",
        Op.ATTENTION,
        "triton_tem_fused_flex_attention_0",
    ),
    OpRule("inductor-conv-template", r"^inductor::tem<.*\bconvolution", Op.CONV, "triton_tem_fused_convolution_0"),
    OpRule("inductor-mm-template", r"^inductor::tem<", Op.GEMM, "triton_tem_fused_mul_7"),
    OpRule(
        "inductor-loss",
        _lists(r"nll_loss\w* cross_entropy\w* \w+_loss(?:_backward)? binary_cross_entropy\w*"),
        Op.LOSS,
        "triton_per_fused__log_softmax_nll_loss_forward_3",
    ),
    OpRule(
        "inductor-norm",
        _lists(
            r"""native_(?:layer|group|batch)_norm\w* _native_batch_norm_legit\w* layer_norm _?fused_rms_norm\w*
            rms_norm cudnn_batch_norm\w* miopen_batch_norm\w*"""
        ),
        Op.NORMALIZATION,
        "triton_per_fused_add_native_layer_norm_9",
    ),
    OpRule(
        "inductor-rmsnorm-parts",
        rf"{_ANY}.*\bmean\b.*\bpow\b.*\br?sqrt\b",
        Op.NORMALIZATION,
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
    ),
    OpRule(
        "inductor-norm-parts",
        rf"{_ANY}.*(?:\brsqrt\b.*\bvar(?:_mean)?\b|\bmean\b.*\br?sqrt\b.*\bsub\b)",
        Op.NORMALIZATION,
        "triton_per_fused_add_rsqrt_sub_var_mean_2",
    ),
    OpRule("inductor-log-softmax", _lists(r"_log_softmax\w*"), Op.LOSS, "triton_red_fused__log_softmax_1"),
    OpRule(
        "inductor-softmax",
        _lists(r"_softmax\w* softmax _safe_softmax prepare_softmax_online"),
        Op.SOFTMAX,
        "triton_per_fused__softmax_add_4",
    ),
    OpRule(
        "inductor-quantise",
        either(
            rf"{_ANY}(?!.*\b(?:gelu|silu)\b.*\bround\b).*(?:\bamax\b.*\bclamp\b|\bclamp\b.*\b(?:div|mul)\b.*\b(?:round|reciprocal)\b)",
            _lists(r"quantize_per\w* choose_qparams\w* \w+_fp8_quant"),
        ),
        Op.QUANTIZATION,
        "triton_poi_fused__to_copy_clamp_div_round_4",
    ),
    OpRule(
        "inductor-pool",
        _lists(r"_?(?:low_memory_)?(?:adaptive_)?(?:max|avg)_pool\w*"),
        Op.POOLING,
        "triton_poi_fused_max_pool2d_with_indices_5",
    ),
    OpRule(
        "inductor-resample",
        _lists(r"_?upsample_\w+ grid_sampler_\w+"),
        Op.RESAMPLE,
        "triton_poi_fused_upsample_nearest2d_3",
    ),
    OpRule(
        "inductor-embedding",
        rf"{_ANY}(?!.*\b(?:mean|sum|amax)\b).*\b_?embedding(?:_bag\w*|_dense_backward|_backward)?\b",
        Op.EMBEDDING,
        "triton_poi_fused_embedding_0",
    ),
    OpRule(
        "inductor-optimizer",
        _lists(r"_foreach_(?!copy|norm)\w+ _fused_(?:adamw?|sgd|adagrad)"),
        Op.OPTIMIZER,
        "triton_for_fused__foreach_mul_0",
    ),
    OpRule(  # rotate-half in its three usual spellings; cos with exp is a time step's embedding instead
        "inductor-rope",
        rf"{_POINTWISE}(?!.*\b(?:mean|exp|div)\b).*(?:\bcat\b.*\bindex\b.*\bmul\b.*\bsplit\b.*\bsub\b"
        r"|\bmul\b.*\bneg\b.*\b(?:slice|split)\b|\bmul\b.*\bstack\b.*\bsub\b.*\bunbind\b)",
        Op.ROPE,
        "triton_poi_fused_cat_index_mul_split_sub_3",
    ),
    OpRule(
        "inductor-scan",
        _lists("cumsum cumprod logcumsumexp cummax associative_scan"),
        Op.SCAN,
        "triton_spl_fused_cumsum_0",
    ),
    OpRule("inductor-sort", _lists("sort topk"), Op.SORT_TOPK, "triton_per_fused_sort_0"),
    OpRule(
        "inductor-rng",
        r"^inductor::\w+<(?:inductor_(?:lookup_seed|random|randint|seeds)|rand\w*|bernoulli|uniform|exponential|, )+>",
        Op.RNG,
        "triton_poi_fused_inductor_lookup_seed_inductor_random_0",
    ),
    # No list, yet the kind letters say pointwise or reduction: replaceable code of unknown content, no catch-all.
    OpRule("inductor-no-list", r"^inductor::(?:poi|red|per|mix|for|spl)<>", Op.FUSED_UNKNOWN, "triton_poi_fused_0"),
    OpRule("inductor-reduction", _REDUCING, Op.REDUCTION, "triton_red_fused_gt_sum_33"),
    OpRule(
        "inductor-index",
        rf"{_POINTWISE}(?:(?:{_MOVES}|{_INDEXES}|add)(?:, |(?=>)))*?{_INDEXES}(?:, (?:{_MOVES}|{_INDEXES}|add))*>",
        Op.GATHER_SCATTER,
        "triton_poi_fused_clone_index_3",
    ),
    OpRule(
        "inductor-move", rf"{_POINTWISE}{_MOVES}(?:, {_MOVES})*>", Op.COPY_LAYOUT, "triton_poi_fused_clone_transpose_21"
    ),
    OpRule("inductor-pointwise", _POINTWISE, Op.ELEMENTWISE, "triton_poi_fused_gelu_3"),
    OpRule(
        "inductor-list-without-kind", r"^inductor::unk<", Op.FUSED_UNKNOWN, "triton_fused_add_mul_2", is_catch_all=True
    ),
    # Inductor before 2.1, or with descriptive names off: may even be a template.
    OpRule("inductor-bare", r"^inductor::bare<", Op.FUSED_UNKNOWN, "triton__0d1d2d", is_catch_all=True),
)

_NUMBER = r"(?:[_.]\d+)*$"
_BEFORE = r"^(?:input_|loop_|wrapped_|row_|column_)?(?:\w+?_)?"

XLA: tuple[OpRule, ...] = (
    OpRule(
        "xla-gemm",
        r"^(?:triton_gemm_\w+|(?:nested_|triton_)?gemm_fusion\w*|__(?:cublas|triton_gemm|triton_nested_gemm)\S*)$",
        Op.GEMM,
        "gemm_fusion_dot_12",
    ),
    OpRule("xla-conv", r"^__cudnn\$conv\w*", Op.CONV, "__cudnn$convBiasActivationForward"),
    OpRule("xla-softmax", r"^triton_softmax\w*$", Op.SOFTMAX, "triton_softmax_5"),
    OpRule(
        "xla-reduce",
        rf"{_BEFORE}reduce(?:_\w*)?_fusion{_NUMBER}|^wrapped_reduce\w*$",
        Op.REDUCTION,
        "input_multiply_reduce_fusion_3",
    ),
    OpRule(
        "xla-scatter",
        rf"{_BEFORE}(?:scatter|gather|dynamic_slice|dynamic_update_slice)(?:_\w+)?_fusion{_NUMBER}"
        r"|^wrapped_(?:scatter|gather|dynamic_\w*slice)\w*$",
        Op.GATHER_SCATTER,
        "input_scatter_fusion_2",
    ),
    OpRule("xla-sort", rf"^(?:wrapped_)?sort{_NUMBER}|^topk_custom\w*", Op.SORT_TOPK, "wrapped_sort_1"),
    OpRule("xla-rng", rf"^(?:wrapped_|loop_)?(?:rng|threefry)\w*?(?:_fusion)?{_NUMBER}", Op.RNG, "threefry2x32"),
    OpRule(
        "xla-move",
        r"^(?:input_|loop_|wrapped_)?(?:(?:transpose|copy|concatenate|convert|pad|slice|bitcast|broadcast|reverse)_)+fusion"
        rf"{_NUMBER}|^wrapped_(?:transpose|copy|concatenate|convert|pad|slice|broadcast){_NUMBER}",
        Op.COPY_LAYOUT,
        "input_transpose_fusion_1",
    ),
    OpRule(
        "xla-loop",
        rf"^(?:loop_(?:\w+_)?fusion|wrapped_\w+?|\w+_(?:elementwise|add|multiply|select|exponential|tanh)_fusion){_NUMBER}",
        Op.ELEMENTWISE,
        "loop_add_fusion_7",
    ),
    OpRule(
        "xla-fusion",
        rf"^(?:input_)?(?:\w+_)?fusion(?:__\d+)?{_NUMBER}",
        Op.FUSED_UNKNOWN,
        "fusion_12",
        is_catch_all=True,
    ),
)
