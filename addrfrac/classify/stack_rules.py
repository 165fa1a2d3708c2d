"""What the ops that launched a kernel say it computes: an ordered table over single frames, first match wins.

A pattern must match a whole frame. `op=None` marks a frame that says nothing itself; `is_helper` an op that others are
built from; `encloses` what counts as this op wherever inside it was launched; `absorbs_*` kernels of other classes that
this op launches itself for its own sake.
"""

from __future__ import annotations

from addrfrac.classify.patterns import any_of, either
from addrfrac.classify.rules import StackRule
from addrfrac.records import Op

_GENERIC = frozenset({Op.ELEMENTWISE, Op.REDUCTION, Op.COPY_LAYOUT, Op.SOFTMAX, Op.GATHER_SCATTER, Op.FUSED_UNKNOWN})
_POINTWISE = frozenset({Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN})
_INDEXING = frozenset({Op.GATHER_SCATTER, Op.SORT_TOPK, Op.SCAN, Op.REDUCTION, Op.COPY_LAYOUT, Op.ELEMENTWISE})
_SERVANTS = frozenset({Op.SORT_TOPK, Op.SCAN, Op.REDUCTION, Op.GATHER_SCATTER, Op.ELEMENTWISE})

_NODE = "(?:autograd::engine::evaluate_function: )?"


def _aten(words: str) -> str:
    """Any of these ATen ops, in-place and out forms included."""
    return rf"(?:aten|prims|quantized|inductor)::{any_of(words)}_?(?:_out)?"


def _node(words: str) -> str:
    """Autograd nodes whose name holds any of the words, alone or as the engine's frame."""
    return rf"{_NODE}\w*{any_of(words)}\w*Backward\d*"


def _any(words: str) -> str:
    """Ops, functions and nodes of any namespace whose name holds any of the words; no free-text ranges."""
    return rf"{_NODE}[\w.:<>]*{any_of(words)}[\w.:<>]*"


REGIONS: tuple[StackRule, ...] = (
    StackRule(
        "compiled-region",
        any_of(
            r"""Torch-Compiled\sRegion.* CompiledFunction(?:Backward)? .*CompiledFxGraph.* AOTDispatcher.*
            TorchDynamo.*"""
        ),
        None,
        "Torch-Compiled Region: 0/0",
    ),
    StackRule(
        "optimizer-step",
        r"Optimizer\.(?:step|zero_grad)#.*",
        Op.OPTIMIZER,
        "Optimizer.step#AdamW.step",
        encloses=_GENERIC,
    ),
    StackRule("foreach-copy", _aten("_foreach_(?:copy|clone)"), Op.COPY_LAYOUT, "aten::_foreach_copy_", is_helper=True),
    StackRule("foreach-norm", _aten("_foreach_(?:norm|max)"), Op.REDUCTION, "aten::_foreach_norm", is_helper=True),
    StackRule(
        "foreach",
        _aten(r"_foreach_\w+ _fused_(?:adamw?|sgd|adagrad) _amp_\w+"),
        Op.OPTIMIZER,
        "aten::_foreach_addcdiv_",
        encloses=_POINTWISE | {Op.COPY_LAYOUT},
    ),
    StackRule(
        "fused-optimizer",
        _any("FusedAdam FusedLamb fused_adam multi_tensor_(?:adam|sgd|lamb|scale|l2norm) bitsandbytes::optimizer"),
        Op.OPTIMIZER,
        "apex::multi_tensor_adam",
        encloses=_GENERIC,
    ),
)

MATRIX: tuple[StackRule, ...] = (
    StackRule(
        "convolution",
        r"(?:aten|mkldnn|quantized|onednn|torch_ipex)::"
        + any_of(
            r"""_?convolution\w* conv[123]d conv_transpose[123]d cudnn_convolution\w* miopen_\w*convolution\w*
            mkldnn_\w*convolution\w* _?thnn_conv\w* _?slow_conv\w* _?conv_depthwise\w* _nnpack_spatial_convolution
            conv_tbc\w* mps_convolution\w* _deconvolution\w* deform_conv2d"""
        ),
        Op.CONV,
        "aten::cudnn_convolution",
        absorbs_main=frozenset({Op.GEMM, Op.FFT}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT, Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN}),
    ),
    StackRule("causal-conv", _any("causal_conv1d CausalConv1d"), Op.CONV, "CausalConv1dFn"),
    StackRule(
        "attention-composite",
        _aten(
            r"""scaled_dot_product_attention _scaled_dot_product_attention_math\w* _native_multi_head_attention
            _transformer_encoder_layer_fwd multi_head_attention\w*"""
        ),
        None,
        "aten::scaled_dot_product_attention",
    ),
    StackRule(
        "attention",
        either(
            r".*::"
            + any_of(
                r"""_?scaled_dot_product_\w+ _?flash_attention\w* _?efficient_attention\w* _cudnn_attention\w*
                unified_attention\w* unified_mla\w* paged_attention\w* flash_attn\w* _?varlen_attn\w*
                mha_(?:fwd|bwd|varlen)\w* fmha_\w+ batch_decode\w* batch_prefill\w* sparse_prefill\w*
                fwd_kvcache\w* mla_\w+ cutlass_mla\w* merge_attn_states wrapper_fmha\w* flex_attention\w*"""
            ),
            any_of(
                """flash_attn flash_attention _flash_attention FlashAttn FlashAttention FusedAttn SageAttn
                NeighborhoodAttention natten xformers XFormers MemoryEfficientAttention FlexAttention
                flex_attention"""
            )
            + r"\w*(?:::\w+)?(?:\s.*)?",
            r"(?:flash_attn_[234]|sgl_kernel|_vllm_fa\w*|_flashmla_C\w*)::(?:fwd|bwd|varlen_\w+|sparse_\w+|dense_\w+|get_mla\w*)\w*",
        ),
        Op.ATTENTION,
        "aten::_flash_attention_forward",
        absorbs_main=frozenset({Op.OTHER}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT, Op.ELEMENTWISE, Op.REDUCTION, Op.FUSED_UNKNOWN}),
    ),
    StackRule(
        "linear-attention",
        _any(
            """selective_scan mamba Mamba chunk_(?:gated|delta|gla|kda|scan) gated_delta gdn_attention linear_attention
            ChunkGatedDelta SelectiveScan fused_recurrent"""
        ),
        Op.LINEAR_ATTENTION,
        "vllm::gdn_attention",
    ),
    StackRule(
        "composite-linear",
        either(
            _aten("linear matmul einsum tensordot chain_matmul inner outer kron multi_dot bilinear _trilinear"),
            r".*(?:Linear|MatMul)\w*Function\w*",
        ),
        None,
        "aten::linear",
    ),
    StackRule(
        "gemm",
        either(
            _aten(
                r"""mm addmm _addmm_activation bmm baddbmm addbmm addmv mv dot vdot addr ger _scaled_mm\w*
                _scaled_grouped_mm\w* _grouped_mm\w* _int_mm _weight_int[48]pack_mm\w* _mixed_dtypes_linear
                _sparse_semi_structured\w* mkldnn_linear\w* _?mkl_linear linear_backward"""
            ),
            r"(?:mkldnn|mkl|onednn|quantized)::_?(?:mkl_)?(?:linear|qlinear)\w*",
            r".*::(?:\w*gemm\w*|\w*scaled_mm\w*|grouped_mm\w*|\w*_matmul\w*|moe_wna16\w*)",
        ),
        Op.GEMM,
        "aten::addmm",
        absorbs_aux=frozenset({Op.REDUCTION}),
        absorbs_main=frozenset({Op.CONV}),
    ),
    StackRule(
        "sparse-product",
        any_of(
            r"""aten::_?sparse\w*(?:mm|addmm|sum|mul|softmax)\w* aten::_?spmm\w* torch_sparse::.*
            aten::s(?:s|sp|h)?addmm aten::hspmm"""
        ),
        Op.SPARSE,
        "aten::_sparse_mm",
    ),
    StackRule(
        "linear-algebra",
        "aten::"
        + any_of(
            r"""_?linalg_(?!vector_norm|norm|cross|vecdot|matmul|multi_dot|diagonal|matrix_norm)\w+
            triangular_solve\w* _?cholesky\w* lu_\w+ _lu\w* lstsq geqrf ormqr orgqr inverse _?svd\w* _?symeig\w*
            eig qr det logdet slogdet pinverse matrix_exp"""
        ),
        Op.LINALG,
        "aten::linalg_lu_factor_ex",
        encloses=frozenset({Op.GEMM}),
        absorbs_main=frozenset({Op.GEMM, Op.ELEMENTWISE, Op.REDUCTION, Op.COPY_LAYOUT}),
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
        either(
            r"aten::(?:_?cudnn_rnn\w*|miopen_rnn\w*|_thnn_(?:fused_)?(?:lstm|gru)\w*|lstm\w*|gru\w*|rnn_\w+|mkldnn_rnn\w*)",
            _node("CudnnRnn MiopenRnn MkldnnRnn"),
        ),
        Op.RNN,
        "aten::_cudnn_rnn",
        encloses=frozenset({Op.GEMM}),
        absorbs_main=frozenset({Op.GEMM, Op.ELEMENTWISE, Op.CONV, Op.REDUCTION}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
    ),
)

MODEL: tuple[StackRule, ...] = (
    StackRule(
        "loss",
        either(
            r"aten::\w*"
            + any_of(
                """cross_entropy nll_loss mse_loss l1_loss smooth_l1 huber_loss kl_div ctc_loss hinge_embedding_loss
                margin_loss binary_cross_entropy cosine_embedding_loss gaussian_nll multi_margin"""
            )
            + r"\w*",
            _node("NllLoss MseLoss L1Loss SmoothL1 HuberLoss KlDiv CtcLoss BinaryCrossEntropy CrossEntropy MarginLoss"),
            _any("cross_entropy CrossEntropy"),
        ),
        Op.LOSS,
        "aten::cross_entropy_loss",
        encloses=_GENERIC | {Op.SCAN, Op.RNG},
        absorbs_main=_GENERIC,
    ),
    StackRule(  # called by itself it is no loss; a loss further out has the last word
        "log-softmax-called", "aten::log_softmax", Op.SOFTMAX, "aten::log_softmax", encloses=frozenset({Op.LOSS})
    ),
    StackRule(
        "log-softmax",  # where nothing but this op is known, a loss is the likelier caller
        either(r"aten::_log_softmax\w*", _node("LogSoftmax")),
        Op.LOSS,
        "aten::_log_softmax",
        absorbs_main=frozenset({Op.SOFTMAX, Op.ELEMENTWISE, Op.REDUCTION}),
    ),
    StackRule(
        "softmax",
        either(_aten(r"_?softmax\w* _masked_softmax\w* _safe_softmax"), _node("(?<!Log)Softmax")),
        Op.SOFTMAX,
        "aten::_softmax",
        absorbs_main=_POINTWISE,
    ),
    StackRule(
        "embedding",
        either(
            r"aten::_?embedding(?:_bag\w*|_dense_backward|_backward|_renorm|_sparse_backward)?_?",
            _node("Embedding"),
            _any("vocab_parallel_embedding"),
        ),
        Op.EMBEDDING,
        "aten::embedding_dense_backward",
        encloses=_SERVANTS | {Op.COPY_LAYOUT},
        absorbs_main=_SERVANTS,
    ),
    StackRule(
        "table-batched-embedding",
        _any(
            """SplitLookupFunction split_embedding embedding_bag_lookup int_nbit bounds_check_indices DenseLookup
            dense_embedding linearize_cache lxu_cache IntNBit transpose_embedding split_lookup"""
        ),
        Op.EMBEDDING,
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
        encloses=_SERVANTS,
        absorbs_main=_SERVANTS,
        provider="fbgemm",
    ),
    StackRule(
        "normalization",
        either(
            "aten::"
            + any_of(
                r"""_?native_(?:batch|layer|group)_norm\w* _?(?:cudnn|miopen)_batch_norm\w* batch_norm\w*
                _batch_norm_\w+ layer_norm group_norm instance_norm _?fused_rms_norm\w* rms_norm
                local_response_norm _weight_norm\w* renorm _native_batch_norm_legit\w* _fused_layer_norm\w*"""
            )
            + "_?",
            _node("LayerNorm BatchNorm GroupNorm RmsNorm RMSNorm InstanceNorm WeightNorm"),
            _any("rms_?norm layer_?norm group_?norm batch_?norm RMSNorm RmsNorm LayerNorm GroupNorm BatchNorm"),
        ),
        Op.NORMALIZATION,
        "aten::native_layer_norm",
        encloses=_POINTWISE | {Op.COPY_LAYOUT},
        absorbs_main=_POINTWISE | {Op.COPY_LAYOUT},
    ),
    StackRule(
        "rotary",
        _any("rotary Rotary apply_rope RoPE Rope _rope rope_"),
        Op.ROPE,
        "vllm::rotary_embedding",
        encloses=_GENERIC,
    ),
    StackRule(
        "kv-cache",
        _any("reshape_and_cache concat_and_cache kv_cache_ KVCache set_kv_buffer"),
        Op.KV_CACHE,
        "_C_cache_ops::reshape_and_cache",
        encloses=_GENERIC,
    ),
    StackRule(
        "dropout-backward",
        either("aten::(?:native_dropout_backward|_masked_scale)", _node("Dropout")),
        Op.ELEMENTWISE,
        "aten::native_dropout_backward",
    ),
    StackRule(
        "dropout",
        "aten::(?:native_dropout|_?fused_dropout|dropout|alpha_dropout|feature_dropout)_?",
        Op.RNG,
        "aten::native_dropout",
        encloses=frozenset({Op.ELEMENTWISE}),
        absorbs_main=frozenset({Op.ELEMENTWISE}),
    ),
    StackRule(
        "communication",
        either(
            r"record_param_comms|(?:c10d|nccl|symm_mem|_c10d_functional)::.*|nccl:.*|torch\.distributed.*",
            _any("all_?reduce all_?gather reduce_?scatter all_?to_?all All(?:Reduce|Gather|2All|ToAll) ReduceScatter"),
        ),
        Op.COMMUNICATION,
        "record_param_comms",
    ),
    StackRule("moe-composite", r".*::\w*moe\w*|.*(?:FusedMoE|fused_experts).*", None, "vllm::moe_forward"),
    StackRule(
        "quantise",
        _any(r"quantize fp8_quant _quant(?:_|\b) dequant Quantized FP8Rowwise FloatTo[A-Z]\w*FP8"),
        Op.QUANTIZATION,
        "_C::static_scaled_fp8_quant",
        encloses=_POINTWISE,
    ),
    StackRule(
        "gated-activation",
        r".*::(?:silu_and_mul|gelu_and_mul|gelu_tanh_and_mul|swiglu\w*|mul_and_silu)\w*|.*(?:SiLUMul|GELUMul|SwiGLU|GeGLU)\w*.*",
        Op.ELEMENTWISE,
        "_C::silu_and_mul",
    ),
    StackRule(
        "pooling",
        either(
            r"aten::\w*(?:max_pool|avg_pool|adaptive_max|adaptive_avg|max_unpool|fractional_max|lp_pool)\w*",
            _node("MaxPool AvgPool MaxUnpool"),
        ),
        Op.POOLING,
        "aten::max_pool2d_with_indices",
        absorbs_main=_POINTWISE | {Op.CONV},
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
    ),
    StackRule(
        "resample",
        either(
            r"aten::\w*(?:upsample|grid_sampler|interpolate|affine_grid|pixel_shuffle|pixel_unshuffle)\w*",
            r"torchvision::_?(?:ps_)?roi_align\w*",
            _node("Upsample GridSampler RoIAlign ROIAlign"),
        ),
        Op.RESAMPLE,
        "aten::upsample_bilinear2d",
        absorbs_main=_POINTWISE,
    ),
    StackRule("vision", r"torchvision::.*", Op.OTHER, "torchvision::nms", provider="torchvision"),
    StackRule(
        "sampling",
        either("aten::multinomial", _any("top_k_top_p topk_topp sampling_from penalties")),
        Op.SAMPLING,
        "aten::multinomial",
        encloses=frozenset({Op.ELEMENTWISE, Op.REDUCTION, Op.SCAN, Op.SORT_TOPK, Op.RNG}),
        absorbs_main=_SERVANTS,
    ),
)

INDEXING: tuple[StackRule, ...] = (
    StackRule(
        "sort",
        _aten("sort argsort topk msort kthvalue median nanmedian mode sort_stable searchsorted bucketize"),
        Op.SORT_TOPK,
        "aten::sort",
        absorbs_main=_INDEXING,
        is_helper=True,
    ),
    StackRule(
        "unique",
        _aten(r"_?unique\w* bincount histc histogram\w*"),
        Op.GATHER_SCATTER,
        "aten::_unique2",
        encloses=frozenset({Op.SORT_TOPK, Op.SCAN}),
        absorbs_main=_INDEXING,
    ),
    StackRule(
        "scan",
        either(
            _aten("cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper"),
            r"fbgemm::asynchronous_\w*cumsum",
        ),
        Op.SCAN,
        "aten::cumsum",
        is_helper=True,
        absorbs_main=frozenset({Op.REDUCTION, Op.GATHER_SCATTER}),
    ),
    StackRule(
        "select",
        _aten(r"nonzero\w* masked_select\w* repeat_interleave argwhere"),
        Op.GATHER_SCATTER,
        "aten::nonzero",
        absorbs_main=_INDEXING,
        is_helper=True,
    ),
    StackRule(
        "index",
        _aten(
            r"""index _index_put_impl index_put index_select index_add index_copy index_fill index_reduce gather
            scatter\w* take take_along_dim put masked_scatter segment_reduce _segment_\w+ index_select_backward
            _unsafe_index\w* _unsafe_masked_index\w*"""
        ),
        Op.GATHER_SCATTER,
        "aten::index_select",
        absorbs_main=frozenset({Op.SORT_TOPK, Op.SCAN, Op.ELEMENTWISE, Op.REDUCTION}),
        absorbs_aux=frozenset({Op.COPY_LAYOUT}),
        is_helper=True,
    ),
    StackRule(
        "sparse-features",
        either("fbgemm::.*|fb::.*", _any("PermuteMultiEmbedding PermutePooledEmbs JaggedIndex KeyedJagged")),
        Op.GATHER_SCATTER,
        "fbgemm::permute_2D_sparse_data",
        absorbs_main=_INDEXING,
        provider="fbgemm",
    ),
    StackRule(
        "rng",
        _aten(
            """normal uniform random bernoulli exponential randn rand randint randperm log_normal cauchy geometric
            poisson randn_like rand_like _standard_gamma"""
        ),
        Op.RNG,
        "aten::uniform_",
        absorbs_main=_POINTWISE | {Op.SORT_TOPK},
    ),
)

BUILDING_BLOCKS: tuple[StackRule, ...] = (
    StackRule(
        "copy",
        _aten(
            r"""copy to _to_copy clone contiguous cat stack concat _cat hstack vstack repeat tile expand_copy roll
            flip pad constant_pad_nd reflection_pad\w* replication_pad\w* _reshape_copy unfold unfold_backward
            im2col col2im _copy_from narrow_copy split_with_sizes_copy _chunk_cat rot90 block_diag slice_backward
            unfold_copy view_copy _nested\w* nested_\w+ to_padded\w* type type_as channel_shuffle
            as_strided_scatter slice_scatter select_scatter diagonal_scatter"""
        ),
        Op.COPY_LAYOUT,
        "aten::copy_",
        is_helper=True,
    ),
    StackRule(
        "reduction",
        _aten(
            r"""sum mean max min amax amin aminmax prod any all argmax argmin norm linalg_vector_norm linalg_norm
            linalg_matrix_norm std\w* var\w* logsumexp count_nonzero trace nansum nanmean _?cdist\w* _?pdist\w*
            dist equal is_nonzero allclose isclose frobenius_norm sum_to_size native_norm cosine_similarity"""
        ),
        Op.REDUCTION,
        "aten::sum",
        is_helper=True,
        absorbs_main=frozenset({Op.ELEMENTWISE}),
    ),
    StackRule(
        "fill",
        _aten(
            """fill zero zeros ones full zeros_like ones_like full_like arange linspace eye new_zeros new_ones
            new_full one_hot range"""
        ),
        Op.ELEMENTWISE,
        "aten::fill_",
        is_helper=True,
    ),
    StackRule(
        "views",  # views, allocations, checks: no kernel of their own
        _aten(
            r"""(?:new_)?empty\w* view\w* _unsafe_view reshape\w* _reshape_alias as_strided expand expand_as transpose t
            permute select slice narrow squeeze unsqueeze flatten unflatten unbind chunk split split_with_sizes
            unsafe_chunk unsafe_split\w* detach alias resize\w* set item _local_scalar_dense lift\w* result_type
            can_cast movedim swapaxes numpy_T is_\w+ size stride numel broadcast_\w+ meshgrid atleast_\w+
            requires_grad _version data pin_memory record_stream _assert\w* sym_\w+ tensor_split hsplit vsplit
            resolve_\w+ _conj _neg_view adjoint mT mH ravel rename align\w* promote_types cudnn_is_acceptable
            _nnpack_available values indices crow_indices col_indices _fused_sdp_choice"""
        ),
        None,
        "aten::view",
    ),
    StackRule(
        "pointwise",
        _aten(
            r"""add sub mul div rsub true_divide floor_divide remainder fmod pow sqrt rsqrt exp exp2 expm1 log log2
            log10 log1p abs neg sign sgn sin cos tan sinh cosh tanh asin acos atan atan2 asinh acosh atanh sigmoid
            relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardsigmoid hardswish softplus softshrink
            hardshrink threshold prelu _prelu_kernel glu logsigmoid log_sigmoid\w* clamp\w* clip where masked_fill
            eq ne lt gt le ge logical_\w+ bitwise_\w+ __\w+__ maximum minimum fmax fmin ceil floor round trunc
            frac reciprocal square isnan isinf isfinite nan_to_num lerp addcmul addcdiv tril triu tril_indices
            triu_indices erf erfc erfinv lgamma digamma hypot copysign signbit complex polar real imag
            _?conj_physical conj angle xlogy xlog1py sinc logit special_\w+ gcd lcm heaviside ldexp nextafter
            \w+_backward logaddexp\w* isin cross linalg_cross diag\w* deg2rad rad2deg rrelu\w* isposinf isneginf
            positive diff scalar_tensor"""
        ),
        Op.ELEMENTWISE,
        "aten::mul",
        is_helper=True,
    ),
    StackRule(
        "autograd-node",
        r"autograd::engine::evaluate_function: .*|torch::autograd::.*|\w+Backward\d*",
        None,
        "autograd::engine::evaluate_function: MulBackward0",
    ),
)

STACK_RULES: tuple[StackRule, ...] = (*REGIONS, *MATRIX, *MODEL, *INDEXING, *BUILDING_BLOCKS)
"""The built-in table, in the order in which it is tried."""
