# ruff: noqa: E501
"""What the ops that launched a kernel say it computes: an ordered table over single frames, first match wins.

A pattern must match a whole frame. `op=None` marks a frame that says nothing itself; `is_helper` an op that others
are built from, so that what stands further out is asked too; `encloses` what counts as this op wherever inside it was
launched; `absorbs_*` kernels of other classes that this op launches itself for its own sake.
"""

from __future__ import annotations

from addrfrac.classify.rules import StackRule
from addrfrac.records import Op

_GENERIC_WORK = frozenset(
    {Op.ELEMENTWISE, Op.REDUCTION, Op.COPY_LAYOUT, Op.SOFTMAX, Op.GATHER_SCATTER, Op.FUSED_UNKNOWN}
)
_POINTWISE_WORK = frozenset({Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN})
_INDEX_WORK = frozenset({Op.GATHER_SCATTER, Op.SORT_TOPK, Op.SCAN, Op.REDUCTION, Op.COPY_LAYOUT, Op.ELEMENTWISE})
_SERVANTS = frozenset({Op.SORT_TOPK, Op.SCAN, Op.REDUCTION, Op.GATHER_SCATTER, Op.ELEMENTWISE})

A = r"(?:aten|prims|quantized|_C|inductor)::"


def _aten(words: str) -> str:
    """A pattern for any of these ATen ops, their in-place and out forms included."""
    return rf"{A}(?:{words})_?(?:_out)?"


BACKWARD_NODE = r"(?:autograd::engine::evaluate_function: )?"

STACK_RULES: tuple[StackRule, ...] = (
    # --- composites: they say nothing, what they call does
    StackRule(
        "compiled-region",
        r"Torch-Compiled Region.*|CompiledFunction(?:Backward)?|CompiledFxGraph.*|## Call CompiledFxGraph.*|.*CompiledFxGraph.*|AOTDispatcher.*|TorchDynamo.*|ProfilerStep#.*",
        None,
        "Torch-Compiled Region: 0/0",
    ),
    StackRule(
        "optimizer-step",
        r"Optimizer\.(?:step|zero_grad)#.*|.*\bOptimizer\.step\b.*|_?multi_tensor_adam.*",
        Op.OPTIMIZER,
        "Optimizer.step#AdamW.step",
        encloses=_GENERIC_WORK,
    ),
    StackRule(
        "foreach-copy", _aten(r"_foreach_(?:copy|clone)"), Op.COPY_LAYOUT, "aten::_foreach_copy_", is_helper=True
    ),
    StackRule("foreach-norm", _aten(r"_foreach_(?:norm|max)"), Op.REDUCTION, "aten::_foreach_norm", is_helper=True),
    StackRule(
        "foreach",
        _aten(r"_foreach_\w+|_fused_(?:adamw?|sgd|adagrad)|_amp_\w+|_multi_tensor\w*"),
        Op.OPTIMIZER,
        "aten::_foreach_addcdiv_",
        encloses=_POINTWISE_WORK | {Op.COPY_LAYOUT},
    ),
    StackRule(
        "fused-optimizer",
        r".*(?:FusedAdam|FusedLamb|fused_adam|multi_tensor_(?:adam|sgd|lamb|scale|l2norm)|bitsandbytes::optimizer).*",
        Op.OPTIMIZER,
        "apex::multi_tensor_adam",
        encloses=_GENERIC_WORK,
    ),
    # --- convolution
    StackRule(
        "convolution",
        BACKWARD_NODE
        + r"(?:aten|mkldnn|quantized|xla|prims|torch_ipex)::(?:\w*_)?(?:conv(?:olution)?(?:[123]d)?|convolution_overrideable|convolution_backward\w*|cudnn_convolution\w*|miopen_\w*convolution\w*|mkldnn_convolution\w*|thnn_conv\w*|slow_conv\w*|_slow_conv\w*|conv_depthwise\w*|_conv_depthwise\w*|conv_transpose[123]d|_convolution|_convolution_mode|convolution_pointwise\w*|_convolution_transpose_pointwise)(?:_backward\w*|_forward\w*|_out|_relu|_add_relu|_transpose)?_?",
        Op.CONV,
        "aten::cudnn_convolution",
        absorbs_main=frozenset({Op.GEMM, Op.FFT}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT, Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN}),
        provider="",
    ),
    StackRule(
        "convolution-node",
        BACKWARD_NODE + r"(?:\w*Convolution\w*Backward\d*|ThnnConv\w*Backward\d*|SlowConv\w*Backward\d*)",
        None,
        "ConvolutionBackward0",
    ),
    StackRule("causal-conv", r".*causal_conv1d.*|CausalConv1d\w*", Op.CONV, "CausalConv1dFn"),
    # --- attention
    StackRule(
        "attention",
        r".*::(?:_?scaled_dot_product_(?!attention_math)\w*|_?flash_attention\w*|_?efficient_attention\w*|_cudnn_attention\w*|_fill_mem_eff\w*|unified_attention\w*|unified_mla\w*|paged_attention\w*|flash_attn\w*|_?varlen_attn\w*|mha_(?:fwd|bwd|varlen)\w*|fmha_\w+|batch_decode\w*|batch_prefill\w*|sparse_prefill\w*|fwd_kvcache\w*|mla_\w+|efficient_attention\w*|cutlass_mla\w*|merge_attn_states|wrapper_fmha\w*|_masked_scale_dot_product\w*)"
        r"|(?:flash_attn|flash_attention|_flash_attention|FlashAttn|FlashAttention|FusedAttn|SageAttn|NeighborhoodAttention|natten|xformers|XFormers|_fMHA|MemoryEfficientAttention|FlexAttention)\w*(?:::\w+)?|(?:flash_attn_[234]|sgl_kernel|_vllm_fa\w*|_flashmla_C\w*)::(?:fwd|bwd|varlen_fwd|varlen_bwd|sparse_\w+|dense_\w+|get_mla\w*)\w*"
        r"|flex_attention\w*|higher_order::flex_attention\w*",
        Op.ATTENTION,
        "aten::_flash_attention_forward",
        absorbs_main=frozenset({Op.OTHER}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT, Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN}),
    ),
    StackRule(
        "attention-composite",
        _aten(
            r"scaled_dot_product_attention|_scaled_dot_product_attention_math\w*|_native_multi_head_attention|_transformer_encoder_layer_fwd|multi_head_attention\w*"
        ),
        None,
        "aten::scaled_dot_product_attention",
    ),
    StackRule(
        "linear-attention",
        r".*(?:selective_scan|mamba|Mamba|chunk_(?:gated|delta|gla|kda|scan)|gated_delta|gdn_attention|linear_attention|ChunkGatedDelta|SelectiveScan|MambaSplitConv|mamba_mixer|fused_recurrent).*",
        Op.LINEAR_ATTENTION,
        "vllm::gdn_attention",
    ),
    # --- losses, before softmax and the generic ops
    StackRule(
        "loss",
        BACKWARD_NODE
        + r"(?:aten::\w*(?:cross_entropy|nll_loss|mse_loss|l1_loss|smooth_l1|huber_loss|kl_div|ctc_loss|bce|binary_cross_entropy|hinge_embedding_loss|margin_loss|multilabel_margin|multi_margin|cosine_embedding_loss|triplet_margin|poisson_nll|gaussian_nll|soft_margin)\w*"
        r"|\w*(?:NllLoss|MseLoss|L1Loss|SmoothL1|HuberLoss|KlDiv|CtcLoss|BinaryCrossEntropy|CrossEntropy|LinearCrossEntropy|MarginLoss|SoftmaxCrossEntropy|VocabParallelCrossEntropy)\w*|.*cross_entropy.*)",
        Op.LOSS,
        "aten::cross_entropy_loss",
        encloses=_GENERIC_WORK | {Op.LOSS, Op.SCAN, Op.RNG},
        absorbs_main=_GENERIC_WORK,
    ),
    StackRule(
        "log-softmax",
        BACKWARD_NODE + r"aten::_?log_softmax\w*|(?:autograd::engine::evaluate_function: )?LogSoftmaxBackward\d*",
        Op.LOSS,
        "aten::_log_softmax",
        absorbs_main=frozenset({Op.SOFTMAX, Op.ELEMENTWISE, Op.REDUCTION}),
    ),
    StackRule(
        "softmax",
        _aten(r"_?softmax\w*|_masked_softmax\w*|_safe_softmax|_sparse_softmax\w*"),
        Op.SOFTMAX,
        "aten::_softmax",
        absorbs_main=_POINTWISE_WORK,
    ),
    # --- embedding
    StackRule(
        "embedding",
        BACKWARD_NODE
        + r"(?:aten::_?embedding(?:_bag\w*|_dense_backward|_backward|_renorm_?|_sparse_backward)?|\w*Embedding(?:Bag)?\w*Backward\d*|.*(?:vocab_parallel_embedding).*)",
        Op.EMBEDDING,
        "aten::embedding_dense_backward",
        encloses=_SERVANTS | {Op.COPY_LAYOUT},
        absorbs_main=_SERVANTS,
    ),
    StackRule(
        "table-batched-embedding",
        BACKWARD_NODE
        + r".*(?:SplitLookupFunction|split_embedding|embedding_bag_lookup|int_nbit|bounds_check_indices|DenseLookup|dense_embedding|linearize_cache|lxu_cache|IntNBit|tbe_|TBE|transpose_embedding|split_lookup).*",
        Op.EMBEDDING,
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
        encloses=_SERVANTS,
        absorbs_main=_SERVANTS,
        provider="fbgemm",
    ),
    # --- normalisation
    StackRule(
        "normalization",
        BACKWARD_NODE
        + r"(?:aten::(?:_?native_(?:batch|layer|group)_norm\w*|_?(?:cudnn|miopen)_batch_norm\w*|batch_norm\w*|_batch_norm_\w+|layer_norm|group_norm|instance_norm|_?fused_rms_norm\w*|rms_norm|local_response_norm|_weight_norm\w*|renorm|_native_batch_norm_legit\w*|_fused_layer_norm\w*)_?|.*(?:rms_?norm|RMSNorm|RmsNorm|layer_?norm|LayerNorm|group_?norm|GroupNorm|batch_?norm|BatchNorm).*)",
        Op.NORMALIZATION,
        "aten::native_layer_norm",
        encloses=_POINTWISE_WORK | {Op.COPY_LAYOUT},
        absorbs_main=_POINTWISE_WORK | {Op.COPY_LAYOUT},
    ),
    StackRule(
        "rotary",
        r".*(?:rotary|Rotary|apply_rope|RoPE|Rope|_rope|rope_).*",
        Op.ROPE,
        "vllm::rotary_embedding",
        encloses=_GENERIC_WORK,
    ),
    StackRule(
        "kv-cache",
        r".*(?:reshape_and_cache|concat_and_cache|kv_cache|KVCache|set_kv_buffer).*",
        Op.KV_CACHE,
        "_C_cache_ops::reshape_and_cache",
        encloses=_GENERIC_WORK,
    ),
    StackRule(
        "dropout",
        BACKWARD_NODE
        + r"(?:aten::(?:native_dropout|_fused_dropout|fused_dropout|dropout|alpha_dropout|feature_dropout)_?)",
        Op.RNG,
        "aten::native_dropout",
        encloses=frozenset({Op.ELEMENTWISE}),
        absorbs_main=frozenset({Op.ELEMENTWISE}),
    ),
    StackRule(
        "dropout-backward",
        BACKWARD_NODE
        + r"(?:aten::(?:native_dropout_backward|_masked_scale)|NativeDropoutBackward\d*|FusedDropoutBackward\d*)",
        Op.ELEMENTWISE,
        "aten::native_dropout_backward",
    ),
    # --- matrix products
    StackRule(
        "composite-linear",
        _aten(r"linear|matmul|einsum|tensordot|chain_matmul|inner|outer|kron|multi_dot|bilinear|_trilinear")
        + r"|.*(?:Linear|MatMul)\w*Function\w*",
        None,
        "aten::linear",
    ),
    StackRule(
        "gemm",
        _aten(
            r"mm|addmm|_addmm_activation|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|addr|ger|_scaled_mm\w*|_scaled_grouped_mm\w*|_grouped_mm\w*|_int_mm|_weight_int4pack_mm\w*|_weight_int8pack_mm\w*|_mixed_dtypes_linear|_sparse_semi_structured\w*|addmm_impl_\w*|mkldnn_linear\w*|mkl_linear|_mkl_linear|_linear_pointwise|linear_backward|mkldnn_linear_backward\w*|_fused_linear\w*"
        )
        + r"|(?:mkldnn|mkl)::_?(?:mkl_)?linear\w*|quantized::linear\w*|.*::(?:\w*gemm\w*|\w*scaled_mm\w*|grouped_mm\w*|\w*_matmul\w*|moe_wna16\w*|tgemm\w*)",
        Op.GEMM,
        "aten::addmm",
        absorbs_aux=frozenset({Op.REDUCTION}),
        absorbs_main=frozenset({Op.CONV}),
    ),
    StackRule(
        "sparse-product",
        r"aten::_?sparse\w*(?:mm|addmm|sum|mul|softmax)\w*|aten::_?spmm\w*|torch_sparse::.*|aten::_sparse_\w+|aten::smm|aten::sspaddmm|aten::hspmm",
        Op.SPARSE,
        "aten::_sparse_mm",
    ),
    StackRule(
        "linear-algebra",
        r"aten::(?:_?linalg_(?!vector_norm|norm|cross|vecdot|matmul|multi_dot|diagonal|matrix_norm)\w+|triangular_solve\w*|cholesky\w*|_cholesky\w*|lu_\w+|_lu\w*|lstsq|geqrf|ormqr|orgqr|inverse|svd|_svd\w*|symeig|_symeig\w*|eig|qr|det|logdet|slogdet|pinverse|matrix_exp|_det_lu\w*)",
        Op.LINALG,
        "aten::linalg_lu_factor_ex",
        encloses=frozenset({Op.GEMM}),
        absorbs_main=frozenset({Op.GEMM, Op.ELEMENTWISE, Op.REDUCTION}),
    ),
    StackRule(
        "fft",
        r"aten::_?(?:fft|rfft|irfft|ifft|stft|istft|hfft)\w*",
        Op.FFT,
        "aten::_fft_r2c",
        absorbs_main=frozenset({Op.CONV}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT, Op.ELEMENTWISE}),
    ),
    StackRule(
        "rnn",
        BACKWARD_NODE
        + r"aten::(?:_?cudnn_rnn\w*|miopen_rnn\w*|_thnn_(?:fused_)?(?:lstm|gru)\w*|lstm\w*|gru\w*|rnn_\w+|mkldnn_rnn\w*)|CudnnRnnBackward\d*",
        Op.RNN,
        "aten::_cudnn_rnn",
        encloses=frozenset({Op.GEMM}),
        absorbs_main=frozenset({Op.GEMM, Op.ELEMENTWISE, Op.CONV, Op.REDUCTION}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
    ),
    # --- communication
    StackRule(
        "communication",
        r"record_param_comms|(?:c10d|nccl|symm_mem|_c10d_functional|torch\.distributed)(?:::|\.).*|nccl:.*|.*(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|AllReduce|AllGather|ReduceScatter|All2All|AllToAll).*",
        Op.COMMUNICATION,
        "record_param_comms",
    ),
    # --- mixture of experts
    StackRule("moe-composite", r".*::(?:\w*moe\w*)|.*FusedMoE.*|.*fused_experts.*", None, "vllm::moe_forward"),
    StackRule(
        "quantise",
        r".*(?:quantize|_quant\b|_quant_|fp8_quant|dequant).*",
        Op.QUANTIZATION,
        "_C::static_scaled_fp8_quant",
        encloses=_POINTWISE_WORK,
    ),
    StackRule(
        "activation-op",
        r".*::(?:silu_and_mul|gelu_and_mul|gelu_tanh_and_mul|swiglu\w*|mul_and_silu)\w*|.*(?:SiLUMul|GELUMul|SwiGLU|GeGLU)\w*Function.*",
        Op.ELEMENTWISE,
        "_C::silu_and_mul",
    ),
    # --- pooling, resampling, sorting, indexing
    StackRule(
        "pooling",
        BACKWARD_NODE
        + r"aten::\w*(?:max_pool|avg_pool|adaptive_max|adaptive_avg|max_unpool|fractional_max|lp_pool)\w*|(?:autograd::engine::evaluate_function: )?\w*Pool[123]?D?\w*Backward\d*",
        Op.POOLING,
        "aten::max_pool2d_with_indices",
        absorbs_main=_POINTWISE_WORK | {Op.CONV},
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
    ),
    StackRule(
        "resample",
        BACKWARD_NODE
        + r"aten::\w*(?:upsample|grid_sampler|interpolate|affine_grid|pixel_shuffle|pixel_unshuffle)\w*|torchvision::(?:_?roi_\w+|_?ps_roi\w+)|\w*(?:Upsample|GridSampler|RoIAlign|ROIAlign)\w*Backward\d*",
        Op.RESAMPLE,
        "aten::upsample_bilinear2d",
        absorbs_main=_POINTWISE_WORK,
    ),
    StackRule("vision", r"torchvision::.*", Op.OTHER, "torchvision::nms", provider="torchvision"),
    StackRule(
        "sampling",
        r"aten::multinomial|.*(?:top_k_top_p|topk_topp|sampling_from|penalties).*",
        Op.SAMPLING,
        "aten::multinomial",
        encloses=frozenset({Op.ELEMENTWISE, Op.REDUCTION, Op.SCAN, Op.SORT_TOPK, Op.RNG}),
        absorbs_main=_SERVANTS,
    ),
    StackRule(
        "sort",
        _aten(r"sort|argsort|topk|msort|kthvalue|median|nanmedian|mode|sort_stable"),
        Op.SORT_TOPK,
        "aten::sort",
        encloses=frozenset(),
        absorbs_main=_INDEX_WORK,
        is_helper=True,
    ),
    StackRule(
        "unique",
        _aten(r"unique\w*|_unique\w*|unique_consecutive|bincount|histc|histogram\w*|searchsorted|bucketize"),
        Op.GATHER_SCATTER,
        "aten::_unique2",
        encloses=frozenset({Op.SORT_TOPK, Op.SCAN}),
        absorbs_main=_INDEX_WORK,
    ),
    StackRule(
        "scan",
        _aten(
            r"cumsum|cumprod|cummax|cummin|logcumsumexp|_cumsum|_cummax_helper|_cummin_helper|asynchronous_complete_cumsum"
        )
        + r"|fbgemm::asynchronous_\w*cumsum",
        Op.SCAN,
        "aten::cumsum",
        is_helper=True,
        absorbs_main=frozenset({Op.REDUCTION, Op.GATHER_SCATTER}),
    ),
    StackRule(
        "select",
        _aten(r"nonzero\w*|masked_select\w*|repeat_interleave|argwhere|_local_scalar_dense_select"),
        Op.GATHER_SCATTER,
        "aten::nonzero",
        absorbs_main=_INDEX_WORK,
        is_helper=True,
    ),
    StackRule(
        "index",
        _aten(
            r"index|_index_put_impl|index_put|index_select|index_add|index_copy|index_fill|index_reduce|gather|scatter\w*|take|take_along_dim|put|masked_scatter|gather_backward|embedding_gather|segment_reduce|_segment_\w+|select_backward|index_select_backward|_unsafe_index\w*|_unsafe_masked_index\w*"
        ),
        Op.GATHER_SCATTER,
        "aten::index_select",
        absorbs_main=frozenset({Op.SORT_TOPK, Op.SCAN, Op.ELEMENTWISE, Op.REDUCTION}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
        is_helper=True,
    ),
    StackRule(
        "fbgemm-features",
        r"fbgemm::.*|fb::.*|.*(?:PermuteMultiEmbedding|PermutePooledEmbs|JaggedIndex|KeyedJagged)\w*.*",
        Op.GATHER_SCATTER,
        "fbgemm::permute_2D_sparse_data",
        absorbs_main=_INDEX_WORK,
        provider="fbgemm",
    ),
    StackRule(
        "rng",
        _aten(
            r"normal|uniform|random|bernoulli|exponential|randn|rand|randint|randperm|log_normal|cauchy|geometric|poisson|randn_like|rand_like|_standard_gamma|trunc_normal"
        ),
        Op.RNG,
        "aten::uniform_",
        absorbs_main=_POINTWISE_WORK | {Op.SORT_TOPK},
    ),
    # --- generic ops: what others are built from
    StackRule(
        "copy",
        _aten(
            r"copy|to|_to_copy|clone|contiguous|cat|stack|concat|_cat|hstack|vstack|repeat|tile|expand_copy|roll|flip|pad|constant_pad_nd|reflection_pad\w*|replication_pad\w*|_reshape_copy|unfold|unfold_backward|im2col|col2im|_copy_from|narrow_copy|split_with_sizes_copy|_chunk_cat|rot90|block_diag|slice_backward|unfold_copy|view_copy|_pack_padded_sequence|_nested\w*|nested_\w+|to_padded\w*|type|type_as|half|float|bfloat16|channel_shuffle|_conj_physical|as_strided_scatter|slice_scatter|select_scatter|diagonal_scatter|tril_copy"
        ),
        Op.COPY_LAYOUT,
        "aten::copy_",
        is_helper=True,
    ),
    StackRule(
        "reduction",
        _aten(
            r"sum|mean|max|min|amax|amin|aminmax|prod|any|all|argmax|argmin|norm|linalg_vector_norm|linalg_norm|linalg_matrix_norm|std\w*|var\w*|logsumexp|count_nonzero|trace|nansum|nanmean|cdist\w*|_cdist\w*|_pdist\w*|dist|equal|is_nonzero|allclose|isclose|frobenius_norm|sum_to_size|std_mean|var_mean|native_norm|cosine_similarity"
        ),
        Op.REDUCTION,
        "aten::sum",
        is_helper=True,
        absorbs_main=frozenset({Op.ELEMENTWISE}),
    ),
    StackRule(
        "fill",
        _aten(
            r"fill|zero|zeros|ones|full|zeros_like|ones_like|full_like|arange|linspace|eye|scalar_tensor|new_zeros|new_ones|new_full|one_hot|range"
        ),
        Op.ELEMENTWISE,
        "aten::fill_",
        is_helper=True,
    ),
    StackRule(
        "pointwise",
        _aten(
            r"add|sub|mul|div|rsub|add_relu|true_divide|floor_divide|remainder|fmod|pow|sqrt|rsqrt|exp|exp2|expm1|log|log2|log10|log1p|abs|neg|sign|sgn|sin|cos|tan|sinh|cosh|tanh|asin|acos|atan|atan2|asinh|acosh|atanh|sigmoid|relu|relu6|gelu|silu|mish|elu|selu|celu|"
            r"leaky_relu|hardtanh|hardsigmoid|hardswish|softplus|softshrink|hardshrink|threshold|prelu|_prelu_kernel|glu|logsigmoid|log_sigmoid\w*|clamp\w*|clip|where|masked_fill|eq|ne|lt|gt|le|ge|logical_\w+|bitwise_\w+|__\w+__|maximum|minimum|fmax|fmin|ceil|floor|round|trunc|frac|reciprocal|square|isnan|isinf|isfinite|nan_to_num|"
            r"lerp|addcmul|addcdiv|tril|triu|tril_indices|triu_indices|erf|erfc|erfinv|lgamma|digamma|hypot|copysign|signbit|complex|polar|real|imag|conj_physical|conj|angle|view_as_complex|softplus|xlogy|xlog1py|sinc|logit|special_\w+|gcd|lcm|heaviside|ldexp|nextafter|threshold_backward|\w+_backward|logaddexp\w*|addr_elementwise|bucketize_elementwise|isin|_masked_scale|cross|linalg_cross|diag\w*|deg2rad|rad2deg|_fused_sdp_choice|rrelu\w*|dequantize_pointwise|isposinf|isneginf|cumulative_trapezoid|positive|diff|addmm_pointwise|_test_\w+"
        ),
        Op.ELEMENTWISE,
        "aten::mul",
        is_helper=True,
    ),
    # --- CPU dispatch, views, allocations: host work without a kernel
    StackRule(
        "dispatch",
        _aten(
            r"empty\w*|view\w*|_unsafe_view|reshape\w*|_reshape_alias|as_strided\w*|expand|expand_as|transpose|t|permute|select|slice|narrow|squeeze|unsqueeze|flatten|unflatten|unbind|chunk|split|split_with_sizes|unsafe_chunk|unsafe_split\w*|detach|alias|resize\w*|set|item|_local_scalar_dense|lift\w*|result_type|can_cast|movedim|swapaxes|numpy_T|is_\w+|size|stride|storage_offset|numel|broadcast_to|broadcast_tensors|meshgrid|atleast_\w+|requires_grad|_version|data|retain_grad|output_nr|_has_\w+|pin_memory|record_stream|_assert\w*|_debug\w*|sym_\w+|infer_size|dropout_identity|tensor_split|hsplit|vsplit|positive|resolve_conj|resolve_neg|_conj|_neg_view|real_view|unfold_view|adjoint|mT|mH|matrix_H|T|H|ravel|view_as\w*|tensor|_make_dual\w*|rename|align\w*|promote_types|cudnn_is_acceptable|_nnpack_available|_use_cudnn\w*|to_dense_backward|values|indices|crow_indices|col_indices"
        ),
        None,
        "aten::view",
    ),
    StackRule(
        "autograd-node",
        r"autograd::engine::evaluate_function: .*|torch::autograd::.*|\w+Backward\d*",
        None,
        "autograd::engine::evaluate_function: MulBackward0",
    ),
)
"""The built-in table, in the order in which it is tried."""
