"""What a kernel's name says it computes: an ordered table, first match wins.

Patterns are searched in the *normalised* name (see `normalise`) and written as word lists (see `patterns`). The order
follows the traps: what contains another class's word stands before that class, so an attention kernel built from
CUTLASS is attention, a `fbgemm_gpu::` kernel no GEMM, `rotary_embedding` no embedding.
"""

from __future__ import annotations

from addrfrac.classify import op_rules_aten, op_rules_generated
from addrfrac.classify.patterns import any_of, either, inside, starts, token, whole
from addrfrac.classify.rules import OpRule
from addrfrac.records import Op, Role

_AUX = Role.AUX
_SERVES = frozenset(
    {
        Op.EMBEDDING,
        Op.GATHER_SCATTER,
        Op.SORT_TOPK,
        Op.SCAN,
        Op.REDUCTION,
        Op.SAMPLING,
        Op.MOE_ROUTING,
        Op.RNG,
        Op.LOSS,
        Op.SPARSE,
    }
)
"""Whom sorts, scans and selections work for."""
_GEMM_SERVES = frozenset({Op.CONV, Op.ATTENTION, Op.RNN, Op.LINALG, Op.SPARSE})
"""GEMM kernels are called for convolutions (1x1, im2col, Winograd), RNNs and solvers too."""

DRIVER: tuple[OpRule, ...] = (
    OpRule(
        "memcpy",
        starts(
            r"""Memcpy memcpy(?!\w) \[?(?:CUDA|HIP)\smemcpy hipMemcpy cudaMemcpy Copy(?:Device|Host)To(?:Device|Host)"""
        ),
        Op.MEMCPY,
        "Memcpy HtoD (Pinned -> Device)",
    ),
    OpRule(
        "memset",
        starts(r"Memset memset(?!\w) \[?(?:CUDA|HIP)\smemset hipMemset cudaMemset"),
        Op.MEMSET,
        "Memset (Device)",
    ),
    OpRule("rocclr-copy", r"^__amd_rocclr_(?!fill|init)", Op.MEMCPY, "__amd_rocclr_copyBuffer"),
    OpRule("rocclr-fill", r"^__amd_rocclr_", Op.MEMSET, "__amd_rocclr_fillBufferAligned"),
)

COMMUNICATION: tuple[OpRule, ...] = (
    OpRule(
        "norm-after-allreduce",
        inside("rmsNormLamport"),
        Op.NORMALIZATION,
        "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__nv_bfloat16, true>(int)",
    ),
    OpRule(
        "nccl",
        starts("nccl(?:Dev)?Kernel nccl mscclKernel msccl rccl"),
        Op.COMMUNICATION,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    OpRule(
        "expert-parallel-exchange",
        either(
            starts(r"(?:deep_ep|uccl|mori|pplx|flux|hybrid_ep)\w*:: nvshmem"),
            inside(
                """nvshmem EpDispatch EpCombine moeAll?[tT]o[aA]ll moe_all_?to_?all moeA2A moe_comm moe_a2a
                moeDispatch moeCombine"""
            ),
        ),
        Op.COMMUNICATION,
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
    ),
    OpRule(
        "collective",
        inside(
            """all_?reduce all_?gather reduce_?scatter all_?to_?all AllReduce AllGather ReduceScatter AllToAll
            cross_device_reduce quick_?reduce symm_mem multimem_ userbuffers one_shot_(?:all|reduce|p)
            two_shot_(?:all|reduce|p) oneShot twoShot lamport Lamport send_?recv SendRecv signal_pad barrier_kernel
            kernel_barrier put_signal wait_signal wait_for_signal lsa_get lsa_put mnnvl ^gloo::"""
        ),
        Op.COMMUNICATION,
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ),
)

ATTENTION: tuple[OpRule, ...] = (
    OpRule(
        "rope-fused",  # with a cache write, a norm or a quantisation: the rotation is the distinctive part
        either(
            inside(r"(?:rope|rotary|Rope|Rotary|RoPE|QKRope)\w*?(?:[cC]ache|_kv|KV|quant|Quant|fp8)"),
            inside(r"[nN]orm\w*?(?:rope|Rope|rotary|Rotary|RoPE)"),
        ),
        Op.ROPE,
        "_fused_qk_rope_reshape_and_cache_kernel",
    ),
    OpRule(
        "kv-cache",
        "^(?![^<]*(?:Attention|attention|attn|Prefill|Decode|fmha|Fmha))[^<]*?"
        + any_of(
            r"""reshape_and_cache reshapeAndCache concat_and_cache cp_gather_\w*cache gather_(?:and_\w+_)?cache
            indexer_\w*cache copy_blocks swap_blocks kv_?cache KVCache KvCache set_kv_buffer set_mla_kv
            append_paged AppendPaged store_kv store_cache transfer_kv move_kv cache_kernel convert_fp8 write_kv
            WriteKV kv_layout"""
        ),
        Op.KV_CACHE,
        "reshape_and_cache_kernel_flash",
    ),
    OpRule(
        "page-index",
        inside("flashinfer_kv_indices copy_page_indices kv_indices page_table block_table req_to_token"),
        Op.SCHEDULING,
        "create_flashinfer_kv_indices_triton",
    ),
    OpRule(
        "attention-combine",
        any_of(
            r"""FlashAttnFwdCombi splitkv_combine splitKvCombine mla_combine flash_fwd_\w*combine
            [aA]ttention[a-z_]{0,20}_combine MergeStates? merge_attn_states merge_state_
            FlashAttentionForwardCombine splitKvReduce fmhaReduction"""
        ),
        Op.ATTENTION,
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>, 4, 3>(flash::Flash_fwd_params)",
        _AUX,
    ),
    OpRule(
        "attention-backward-helper",
        any_of(
            """compute_dot_do_o bwd_dot_do_o convert_dq convert_dkv fmha_reduce_head FmhaBwdOGradDotO
            FmhaBwdConvertQGrad _bwd_preprocess FlashAttnBwdP(?:re|ost)process
            FlashAttentionBackwardP(?:re|ost)process bwd_postprocess attn_bwd_(?:pre|post)
            fmha_bwd_(?:dot|convert|sum_OdO)"""
        ),
        Op.ATTENTION,
        "void cudnn::fusion::compute_dot_do_o<true>(int)",
        _AUX,
    ),
    OpRule(
        "attention-schedule",
        any_of("flash::prepare_varlen prepare_varlen_num_blocks mla_metadata paged_mqa_logits_metadata"),
        Op.ATTENTION,
        "void flash::prepare_varlen_num_blocks_kernel<1, true>(int)",
        _AUX,
    ),
    OpRule(
        "flash-attention",
        any_of(
            r"""flash_(?:fwd|bwd) FlashAttn FlashAttention flash_attn flash_attention flashattn fmha FMHA Fmha
            \bflash::"""
        ),
        Op.ATTENTION,
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(pytorch_flash::Flash_fwd_params)",
    ),
    OpRule(
        "sdpa",
        any_of(r"sdpa_ _sdpa ^cudnn::fusion:: ^cudnn_generated_\w*(?:attention|mha)"),
        Op.ATTENTION,
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1",
    ),
    OpRule(
        "mem-efficient-attention",
        any_of(
            """PyTorchMemEffAttention AttentionKernel< AttentionBackwardKernel attention_kernel_(?:backward_)?batched"""
        ),
        Op.ATTENTION,
        "void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80>>(int)",
    ),
    OpRule(
        "serving-attention",
        any_of(
            """BatchDecode BatchPrefill SingleDecode SinglePrefill BatchMLA BatchPOD PODWithKVCache BatchAttention
            (?:Paged|Ragged)KVCacheKernel"""
        ),
        Op.ATTENTION,
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<4>(int)",
    ),
    OpRule(
        "mla",
        either(
            any_of(r"splitkv_mla sparse_attn_fwd flash_mla FlashMLA Sm100FmhaMla mlaKernel Mla[A-Z]\w*Kernel"),
            token(r"mla\w*(?:fwd|decode|prefill|attn|attention|stage|reduce)") + "(?!.*(?:cache|rope|quant))",
        ),
        Op.ATTENTION,
        "void sm90::fwd::sparse_attn_fwd_kernel<sm90::fwd::KernelTemplate<512, true>>(int)",
    ),
    OpRule(
        "paged-attention",
        inside(
            """paged_attention PagedAttention paged_attn pa_fwd pa_decode pa_prefill unified_attention mmha
            masked_multihead MaskedMultihead multi_?head_attention decode_attention prefill_attention
            context_attention varlen_prefill extend_attention flash_decode lightning_indexer mqa_logits"""
        ),
        Op.ATTENTION,
        "kernel_unified_attention_2d",
    ),
    OpRule(
        "triton-attention",
        whole(
            r"""reduce_segments attn_fwd\w* attn_bwd\w* _attn_(?:fwd|bwd)\w* bwd_kernel_(?:fuse|dk_dv|dq|dkdv)\w*
            _bwd_kernel_(?:dkdv|dq|one_col)\w* _fwd_(?:grouped_)?kernel_stage\w* _fwd_kernel_aligned\w*
            _bwd_(?:dkdv|dq|dk_dv)\w* parallel_(?:attn|nsa)\w* _attention_\w* attention_kernel\w*
            \w*rel_pos_attention\w* \w*attention_(?:fwd|bwd)\w* sage_(?:fwd|bwd|attn)\w* \w*sageattn\w*
            triton_(?:unified_)?attention\w* qk_int\w+_sv_\w+ _?\w*attention\w*_kernel"""
        ),
        Op.ATTENTION,
        "attn_fwd",
    ),
    OpRule(
        "attention-framework",
        any_of(
            r"""natten NeighborhoodAttention neighborhood_(?:attention|grad|qk) sparse_attn SageAttn qk_int\w*_sv
            [aA]ttention[A-Za-z]*Kernel XQA xqa_ kernel_mha \bmha_"""
        ),
        Op.ATTENTION,
        "void natten::cuda::na2d_forward<cutlass::half_t>(int)",
    ),
)

LINEAR_ATTENTION: tuple[OpRule, ...] = (
    OpRule(
        "ssm",
        inside(
            r"""selective_(?:scan|state) (?:\b|_)chunk_(?:scan|state|cumsum)(?:_fwd|_bwd|_varlen|_kernel)
            _state_passing _bmm_chunk mamba Mamba (?<![a-z])ssd_(?!embedding) ssm_ SSMScan SSDScan"""
        ),
        Op.LINEAR_ATTENTION,
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 4>>(SSMParamsBase)",
    ),
    OpRule(
        "chunked-linear-attention",
        inside(
            r"""chunk_(?:fwd|bwd|gated|delta|gla|kda|gdn|linear|simple|local|global|scaled_dot|transform|rwkv|retention|abc|hgrn|h_|o_)
            fused_(?:recurrent|chunk|gdn|kda|sigmoid_gating_delta) gated_delta GatedDelta delta_rule recompute_w_u
            solve_tril merge_16x16 wy_repr prepare_wy rwkv wkv lightning_attn linear_attn linear_attention
            retention hgrn gdn_ _gdn gla_ kda_ l2norm_(?:fwd|bwd) ^_?chunk_\w+_(?:fwd|bwd) fused_post_conv
            _causal_conv1d_\w+_kernel$"""
        ),
        Op.LINEAR_ATTENTION,
        "chunk_fwd_kernel_o",
        could_be=frozenset({Op.CONV}),
    ),
)

MOE: tuple[OpRule, ...] = (
    OpRule(
        "router-gemm",
        inside("router_gemm gate_gemm"),
        Op.GEMM,
        "void flashinfer::trtllm_dsv3_router_gemm::router_gemm_kernel<float>(float*)",
    ),
    OpRule(
        "moe-routing",
        inside(
            r"""moe::dev::(?:routing|finalize|permute|activation|convertsf)
            routing(?:Indices|Main|Renorm|Custom|DeepSeek|Llama|Init) moeTopK moe_?topk topkGating topk_gating
            TopkGating topk_?softmax topk_sigmoid topk_with_score fused_topk grouped_topk biased_grouped
            moe_fused_gate moe_align moe_sum moe_reduce moe_permute moe_unpermute moe_finalize moe_recover
            moe_?sort MoeSort moe_?gating moe_aux_loss moe_?rout count_and_sort_expert sort_expert finalizeMoe
            finalizeKernel expandInputRows
            [eE]xpert(?:PrefixSum|_?[oO]ffset|_token|_histogram|_count|_first|_bucket|_map|Kernel|_?blockscale|_ids)
            compute_expert _count_expert expert_kernel_?$ _unpermute_kernel \b_?permute_kernel$ sort_chunks
            make_chunk_sort row_id_map combined_routing _routing_ bitmatrix expt_data _reduce_grouped
            compute_problem_sizes get_group_gemm compute_arg_sorts shuffle_mul_sum shuffle_rows
            ep_(?:scatter|gather) _fwd_kernel_ep_ deepep_\w*permute compute_src2dst compute_seg_indptr
            (?:pre|post)_reorder gating_kernel moeSoftmax moeSigmoid router_topk _topk_forward topk_weights
            routing_kernel balance_?[eE]xpert fakeBalanceExpert unpermute_ permute_with_mask moe_pad prepareMoe
            computeStridesTma fusedBuildExpert sortKeysAndBuild buildExpertMaps fill_expert moe_lora_align"""
        ),
        Op.MOE_ROUTING,
        "void moe_align_block_size_kernel<int>(int const*)",
    ),
    OpRule(
        "moe-routing-in-arguments",
        any_of(r"\bMoeSorting\w* MoeDoActivation"),
        Op.MOE_ROUTING,
        "void ck_tile::kentry<2, ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblemEx<int, float>>>(int)",
    ),
    OpRule(
        "grouped-gemm-setup",
        inside(
            r"""(?:group|moe|Group)\w*(?:offset|problem|args|layout|setup|pointers|PreCompute) prepare_grouped_gemm
            \w*gemm_args"""
        ),
        Op.GEMM,
        "void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t*>(int)",
        _AUX,
        could_be=frozenset({Op.MOE_ROUTING}),
    ),
    OpRule(
        "moe-grouped-gemm",
        either(
            inside(
                r"""fused_moe \w*moe_(?:\w+_)?gemm moe_mmk moe_wna16 _?matmul_ogs _p_matmul_ogs grouped_?gemm
                GroupedGemm groupGemm group_gemm ptr_array_gemm ^moe_q\d_ MoeGemm moe_batched_mm
                (?:expert|batched)_triton_kernel grouped_matmul moe_kernel$ kernel_moe_ moe_2stages moe_stage
                \bfmoe_"""
            )
            + "(?![^<]*(?:offset|problem|arg_|args|layout|setup|pointer|quant|permute_cols|prepare|PreCompute))",
            r"^bmm_\w*?(?:Bfloat16|Fp16|E4m3|E2m1|E5m2|Fp32|Int)",
            any_of("kernel_moe_gemm MoeFlatmm FusedMoeGemm kernel_gemm_xdl_moe MoeGemmKernel"),
        ),
        Op.GEMM,
        "fused_moe_kernel",
    ),
)

QUANTISE: tuple[OpRule, ...] = (
    OpRule(
        "norm-and-quantise",
        inside(r"(?:rms_?norm|RMSNorm|RmsNorm|layer_?norm|LayerNorm)\w*(?:[qQ]uant|fp8|Fp8|FP8|fp4|int8)"),
        Op.NORMALIZATION,
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_",
    ),
    OpRule(
        "quantised-gemm-helper",
        inside(
            r"""(?:marlin|awq|gptq|qgemm|machete|wna16|fp8_gemm|mxfp8\w*gemm)\w*(?:_repack|permute_cols|_reorder|_pack|pad|prepack|shuffle_\dbit|reconstruct|make_sequential|preprocess)"""
        ),
        Op.QUANTIZATION,
        "void marlin::gptq_marlin_repack_kernel<256, 4, true>(int)",
    ),
    OpRule(
        "activation-and-quantise",
        inside(
            r"""(?:silu|gelu|swiglu|relu|\bact_|_act_|Silu|SiLU|Swiglu)\w*(?:[qQ]uant|fp8|Fp8|FP8|fp4|int8|nvfp4|mxfp)"""
        ),
        Op.ELEMENTWISE,
        "silu_and_mul_fp8_quant_kernel",
        could_be=frozenset({Op.QUANTIZATION}),
    ),
    OpRule(
        "quantised-gemm",
        inside(
            r"""k?gemm_4bit gemv_4bit kgemv awq_gemm gemm_forward_4bit gptq_gemm gemm_half_q_half exllama marlin
            Marlin machete wna16 w[48]a(?:8|16|4) w4a int[48]_gemm fp8_gemm scaled_mm block_?scaled_gemm q_gemm
            quantized_matmul qlinear mul_mat qgemm quant_gemm fpA_intB fp8_blockscale int_mm de?quant(?:ize)?_gemm
            gemm_a8w8 a8w8 a4w4 fp8\w*_(?:gemm|matmul) int8\w*_(?:gemm|matmul) gemm_(?:fp8|int8|afp4|a16) bit_gemm
            int4_gemm tinygemm_m16n8k16 weight_int8pack_mm _int4_mm"""
        )
        + "(?![^<]*(?:repack|permute_cols|reorder|_layout))",
        Op.GEMM,
        "void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int M, int N)",
    ),
    OpRule(
        "quantise",
        inside(
            r"""[qQ]uantiz [qQ]uantis _quant(?:_|\b|\d) \bquant_ fp8_quant Quant(?:Kernel|8|Fp8|FP4|Row) quantize
            DeQuant de?quant Dequant cvt_fp16_to_fp4 cvt_\w*fp[48] cast_\w*(?:fp8|e4m3|to_fp) fp8_cast to_fp8
            float_to_(?:fp8|bfloat16|hfp8|fp4) fp8_to_float qkv_(?:reduce|phase\d)_kernel per_token_group
            per_tensor_absmax FloatToFused FusedNBitRowwise Fused8BitRowwise _to_fused\w*rowwise
            fused\w*rowwise_to_ _to_padded_fp8 compute_scale scale_amax amax_kernel segmented_max_reduction
            block_scale_interleave hadamard mxfp4 nvfp4 mxfp8 swizzle_\w*scal transpose_\w*scale VectorQuant
            pack_scales fake_quant MovingAverageMinMax choose_qparams scale_ue8m0 _msfp mx4_ to_msfp hfp8
            bfloat16_to_float FP8rowwise \w*qparam_ Hadamard Amax(?!\w*Pool) block_scaling delayed_scaling
            (?<!amp_)update_scale amax_history compute_amax"""
        ),
        Op.QUANTIZATION,
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>(int)",
    ),
)

EMBEDDING: tuple[OpRule, ...] = (
    OpRule(
        "table-batched-embedding-helper",
        inside(
            r"""bounds_check_indices linearize_index linearize_cache lxu_cache lru_cache lfu_cache direct_mapped_
            generate_vbe delinearize_unique get_unique_indices reset_weight_momentum embedding_inplace_update
            transpose_embedding_input split_embedding_backward_count_unique cache_miss get_cache_indices
            lfu_update prune_indices pruned_indices pruned_and_inserted decay_row_utils get_util_
            get_pruning_lengths address_lookup get_infos_metadata masked_index_\w+ compact_indices"""
        ),
        Op.EMBEDDING,
        "void fbgemm_gpu::bounds_check_indices_kernel_v1<long, false>(int)",
        _AUX,
    ),
    OpRule(
        "table-batched-embedding",
        inside(
            r"""split_embedding embedding_codegen split_embeddings dense_embedding int_nbit_split
            batched_unary_embeddings \btbe_ TBE find_long_segments grad_mean\w*_kernel pruned_hashmap pruned_array
            ssd_\w*embedding uvm_ nbit_ embedding_forward_split embedding_backward_split
            intraining_embedding_pruning_"""
        ),
        Op.EMBEDDING,
        "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false, long, 1ul>(int)",
    ),
    OpRule(
        "sparse-features",
        inside(
            r"""permute_(?:1D|2D|pooled|indices|embeddings|multi|sequence|sparse|102|duplicate) block_bucketize
            bucketize_sparse recat_ (?:\b|_)jagged_(?!dense_\w*elementwise) keyed_jagged expand_into_jagged
            to_dense_representation offsets_range offsets_to_ranges invert_permute reorder_batched complete_cumsum
            segment_sum_csr histogram_binning lengths_range stacked_jagged batch_index_select pack_segments
            unpack_segments index_select_scalar group_index index_add_with_unique kt_regroup keyed_tensor
            multi_embs? regroup_ cat_reorder populate_bucketized zipf_kernel sum_pool_embedding faster_hash
            zero_collision sum_reduce_to_one dense_to_jagged"""
        ),
        Op.GATHER_SCATTER,
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
    ),
)

NORMALIZATION: tuple[OpRule, ...] = (
    OpRule(
        "norm",
        inside(
            r"""layer_?norm LayerNorm rms_?norm RMSNorm RmsNorm Rmsnorm batch_?norm BatchNorm group_?norm GroupNorm
            instance_?norm InstanceNorm GammaBeta cuComputeGradInput cuComputePart cuApply(?:Layer|RMS)
            ComputeFusedParams ComputeBackwardFusedParams ComputeInternalGradients Compute1dBackwardFusedParams
            RowwiseMoments \bbn_(?:fw|bw|fwd|bwd) bnorm ln_(?:fwd|bwd|parallel|gated)
            _norm_(?:fwd|bwd|forward|backward) qk_?norm QKNorm add_norm AddNorm normalization:: general_norm
            NormFwd NormBwd fused_norm with_norm local_response_norm \bLRN \blrn cross_map_lrn weight_norm
            _norm_kernel norm_kernel$ post_sum_div_kernel scale_add_residual DeviceNormalization"""
        ),
        Op.NORMALIZATION,
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)",
    ),
    OpRule(
        "norm-in-arguments",
        any_of(
            r"""Layernorm2d Rmsnorm2d RMSNormKernel LayerNormKernel \brmsnorm \blayernorm\w* NormForward
            batch_norm_\w+"""
        ),
        Op.NORMALIZATION,
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEE",
    ),
    OpRule(
        "welford",
        any_of("WelfordOps welford"),
        Op.REDUCTION,
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::WelfordOps<float, float, int>, "
        "unsigned int, float, 4> >(int)",
        could_be=frozenset({Op.NORMALIZATION}),
    ),
)

LOSS_SOFTMAX: tuple[OpRule, ...] = (
    OpRule(
        "loss",
        inside(
            r"""nll_loss cross_?entropy CrossEntropy ctc_loss CTCLoss softmax_xentropy xentropy SoftMaxXEntropy
            mse_loss l1_loss smooth_l1 bce_ focal_loss kl_div \b_?jsd_ kldiv MultiMargin _tv_distance
            _ce_(?:fwd|bwd|forward|backward) MultiLabelMargin multilabel_margin online_softmax_kernel triplet_
            dpo_loss grpo_loss tvd_ fused_linear_ce _loss_(?:fwd|bwd|forward|backward|kernel) SigmoidFocalLoss"""
        ),
        Op.LOSS,
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
    ),
    OpRule(
        "softmax",
        inside("softmax sparsemax SoftMax Softmax softMax"),
        Op.SOFTMAX,
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)",
        could_be=frozenset({Op.LOSS, Op.ATTENTION, Op.MOE_ROUTING, Op.SAMPLING, Op.SPARSE}),
    ),
    OpRule(
        "rope",
        inside("rotary Rotary RoPE (?<![a-z])m?rope(?![a-z]) Rope(?![a-z])"),
        Op.ROPE,
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
    ),
)

_MULTI_TENSOR = r"multi_tensor_apply_kernel\w*<.*?"

OPTIMIZERS: tuple[OpRule, ...] = (
    OpRule(
        "foreach-norm",
        either(
            _MULTI_TENSOR + any_of("LpNorm LpMax L2Norm MaxNorm UnscaleL2Norm"),
            inside("lpnorm_cleanup lpmax_cleanup multi_tensor_l2norm"),
        ),
        Op.REDUCTION,
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, "
        "at::native::LpNormFunctor<float>, float*, int>(int)",
        could_be=frozenset({Op.OPTIMIZER}),
    ),
    OpRule(
        "foreach-copy",
        _MULTI_TENSOR + any_of("CopyFunctor at::native::Copy<"),
        Op.COPY_LAYOUT,
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<float>, "
        "at::native::Copy<int, long> >(int)",
        could_be=frozenset({Op.OPTIMIZER}),
    ),
    OpRule(
        "foreach",
        inside(r"multi_tensor_(?!transpose|pad)\w+"),
        Op.OPTIMIZER,
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        could_be=frozenset({Op.REDUCTION, Op.COPY_LAYOUT}),
    ),
    OpRule(
        "optimizer",
        either(
            token("[aA]dam[wW]? adagrad adafactor lamb LAMB lion rmsprop adadelta [sS]gd SGD muon lars")
            + "(?!.*embedding)",
            inside(
                """FusedAdam fused_adam kOptimizer kPreconditionOptimizer cpu_adam distributed_lamb amp_update_scale
                amp_non_finite"""
            ),
        ),
        Op.OPTIMIZER,
        "kOptimizerStatic8bit2StateBlockwise<float, ADAM, 256, 1>",
    ),
)

SOLVERS: tuple[OpRule, ...] = (
    OpRule(
        "rnn",
        inside(r"RNN_ RNN LSTM \blstm_ ::lstm_ GRU ::gru_ \bgru_ elemWiseRNN persistRNN _cudnn_rnn"),
        Op.RNN,
        "RNN_blockPersist_bp_LSTM_HMMA<__half, __half, float, 128>",
    ),
    OpRule(
        "sparse",
        inside(
            """^cusparse:: csrmm csrmv coomm coomv csr2 coo2 csrgemm spmm SpMM sddmm SDDMM spmv rocsparse hipsparse
            bsrmm bsrxmv _csr_ csr_to_coo coo_to_csr sparse_csr sparse_coo sparseElementwise coalesceValues
            sparse_mask _bsr_ spgemm _sparse_sum sparse_semi_structured compressed_to crow_indices
            _intersection_kernel convert_indices_from"""
        ),
        Op.SPARSE,
        "void cusparse::csrmm_v2_kernel<cusparse::CsrMMPolicy<int, float>, true>(int)",
    ),
    OpRule(
        "linalg",
        inside(
            r"""getrf getrs getri potr[fis] trsm trsv trtri trf\d?_set_info geqr[f2] getf2 ge2tr orgqr ormqr unmqr
            larf[tbg]? laswp laset sy(?:evd|evj|trd|tr2) ges(?:vd|dd) syev heev stedc steqr ipiv_ triangular
            cholesky lu_(?:factor|solve) batched_lu cusolver magma_(?!sgemmEx|hgemmEx) rocsolver
            ^[sdcz](?:lansy|lanhe|lascl|lacpy|swap|symv|hemv|transpose|gemv|ger|scal|amax|copy)_?\w*(?:_kernel\w*|_(?:full|lower|upper)|_inplace\w*)$
            ^i[sdcz]amax_ ^i?displace_pointers ^kernel_[sdcz]set_pointer householder svdj gesvdj lapack ldlt
            _lu_unpack unpack_pivots lu_unpack [sdcz](?:scal_|displace_|computecolumn|gemm_batched_smallsq)
            pivots? linalg_ trmm lacpy transpose_inplace_even setup_pivinfo zdotc adjust_ipiv"""
        ),
        Op.LINALG,
        "void ipiv_lower_diag<float, 32>(int, void*, int, int*, int)",
    ),
    OpRule(
        "fft",
        either(
            starts(r"composite_\w*fft regular_\w*fft vector_fft"),
            inside(
                r"""cufft rocfft fft_rtc fft_(?:fwd|back|forward|inverse) (?<![a-z])_?fft_r2c \b_fft_ bluestein
                realComplex_postprocess VkFFT"""
            ),
        ),
        Op.FFT,
        "void composite_2way_fft<unsigned int=384, unsigned int=8>(kernel_arguments_t<unsigned int>)",
        could_be=frozenset({Op.CONV}),
    ),
)

CONV: tuple[OpRule, ...] = (
    OpRule(
        "causal-conv",
        any_of("causal_conv1d Causal_conv1d"),
        Op.CONV,
        "void causal_conv1d_channellast_fwd_kernel<Causal_conv1d_channellast_fwd_kernel_traits<128>>(int)",
        could_be=frozenset({Op.LINEAR_ATTENTION}),
    ),
    OpRule(
        "conv-layout",
        inside(
            r"""nchwToNhwc nhwcToNchw nchwToFoldedNhwc foldedNhwc FoldedNhwc nchwAddPadding nhwcAddPadding
            AddPaddingKernel convertTensor_kernel tensorTransform TensorTransform scalePackedTensor
            kern_precompute_indices compute\w*OffsetsKernel batched_transpose_\d transpose_(?:NCHW|CNHW|NHWC)
            SubTensorOp Op[1-5]dTensor OpTensor reorderFilter flip_filter flipFilter im2col col2im Im2Col Im2col
            Im2d2Col Col2Im vol2col col2vol vol2im CastTensor xform_filter xform_data SetTensor cudnn::ops::
            setTensor\w*[kK]ernel addTensor subsample_strided SubSample padded_\w*filter winograd_\w*filter_trans"""
        ),
        Op.CONV,
        "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, float, false, (cudnnKernelDataType_t)0>(int)",
        _AUX,
        could_be=frozenset({Op.NORMALIZATION, Op.POOLING, Op.RNN, Op.ATTENTION, Op.SOFTMAX}),
    ),
    OpRule(
        "conv",
        any_of(
            r"""scudnn s\d+cudnn ^\w*cudnn_\w*(?:relu|small|medium|large|interior) implicit_gemm implicit_convolve
            _convolve_ convolve_sgemm convolve_common winograd Winograd (?:^|_)(?:fprop|dgrad|wgrad)(?:_|\d)
            cutlass_\w*(?:fprop|dgrad|wgrad|conv2d|conv3d) [dw]grad_(?:alg\d|engine|\w*engine) [dw]grad2d
            conv_?depthwise depthwise Depthwise DepthWise conv2d_c1_k1 conv2d_grouped grouped_?[cC]onv GroupedConv
            ^igemm_(?:fwd|bwd|wrw) ^naive_conv [mM][iI][oO]penConv MIOpenCv miopenSp3Asm mlopenConv gcnAsmConv
            ConvFwd ConvBwd kernel_grouped_conv bwd_weight bwd_data DeviceConv DeviceGroupedConv
            conv_(?:bwd|fwd|implicit|direct|kernel) _conv[23]d conv[123]d_ Conv[123]d convolution Convolution
            slow_conv fft_conv gcgemm DSE:: ^fft[12]d_(?:r2c|c2r) pointwise_mult_and_sum_complex cf_conv
            direct_group deform_conv deformable cudnn_generated_fort_native_conv mma_conv sp3AsmConv
            xmma_(?:fprop|dgrad|wgrad) convolveNd first_layer_ dwconv cudnn::cnn:: strided_dgrad"""
        ),
        Op.CONV,
        "cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1",
        could_be=frozenset({Op.FFT}),
    ),
)

GEMM: tuple[OpRule, ...] = (
    OpRule(
        "gemm-helper",  # split-K reductions, epilogues, dot products in two stages
        any_of(
            r"""splitK_?[rR]educe split_?[kK]_?reduce SplitKReduce reduceSplitK ReduceSplitK Cijk_\w*PostGSU
            cublasLt::epilogue epilogue::impl::globalKernel reduce_1Block_kernel \bscal_kernel scal_64addr
            cublasScal StreamK_?[rR]educe streamk_reduce copy_kernel<.*cublas gemmSNReduce cublasLt::transform
            _split_k_reduce deep_gemm::\w*(?:transpose|layout|clean_logits) smxx_clean_logits splitK_gemm_reduce
            gemm_splitk_reduce _to_m16n8k16_Bint4_layout"""
        ),
        Op.GEMM,
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        _AUX,
        could_be=_GEMM_SERVES,
    ),
    OpRule("nvjet", r"^nvjet_", Op.GEMM, "nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", could_be=_GEMM_SERVES),
    OpRule(
        "tensile",
        r"^(?:Custom_)?Cijk_",
        Op.GEMM,
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1",
        could_be=_GEMM_SERVES,
    ),
    OpRule(
        "gemm-named",
        either(
            any_of(
                r"""(?<!fb)gemm (?<!FB)Gemm (?<!fb)GEMM gemv GEMV MatMul Matmul matmul enable_3x_kernel_for_sm9x
                \bdot_kernel< cublasDot ^deep_gemm:: batched_mm flatmm FlatMM FlatmmKernel wvSplitK LLMM1 skinny_"""
            ),
            token("mm bmm addmm baddbmm linear_kernel syrk mmk smm trmm symm"),
        ),
        Op.GEMM,
        "volta_sgemm_128x64_nn",
        could_be=_GEMM_SERVES,
    ),
    OpRule(
        "cutlass-unnamed",  # cut before the template argument that tells
        starts(r"cutlass\w*::(?:Kernel2?|device_kernel)\b kernel_cutlass"),
        Op.OTHER,
        "void cutlass::device_kernel<",
        could_be=_GEMM_SERVES | {Op.GEMM, Op.NORMALIZATION},
        is_catch_all=True,
    ),
)

INDEXING: tuple[OpRule, ...] = (
    OpRule(
        "embedding",
        inside(
            r"""EmbeddingBag embedding_bag embedding_?[bB]ack embedding_dense embedding_renorm embedding_grad
            embedding_f(?:or)?wa?r?d embedding_lookup vocab_parallel_embedding compute_grad_weight krn_partial
            sum_and_scatter \b_?embedding_kernel compute_num_of_partial_segments write_num_of_segments
            EmbeddingLookup \brenorm_kernel LookupTable lookup_kernel"""
        ),
        Op.EMBEDDING,
        "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)",
    ),
    OpRule(
        "sampling",
        inside(
            """[sS]ampling TopPSampl TopKSampl MinPSampl top_?p_ topk_topp TopPRenorm TopKRenorm TopKMask penalt
            Penalt gumbel rejection_ RejectionSampl min_p_ logit_bias logits_process multinomial Multinomial
            renorm_prob (?<![a-z])sample_ greedy_sample bad_words token_bitmask bitmask repetition_ _temperature_
            temperature_kernel LogitsBias sampleTopP TopPSort"""
        ),
        Op.SAMPLING,
        "void flashinfer::sampling::TopPSamplingFromProbKernel<1024>(float*)",
    ),
    OpRule(
        "sort",
        either(
            inside(
                """RadixSort radix_sort radixSort Onesweep onesweep bitonic MergeSort merge_sort mergeSort BlockSort
                block_sort SegmentedSort segmented_sort topKPerRow mbtopk sbtopk gatherTopK TopK topk top_k
                radixFindKth computeBlockDigit gatherKthValue computeDigitCumSum gatherMedian compute_mode kthvalue
                searchsorted bucketize fill_index_and_segment fill_reverse_indices sort_postprocess sortKeyValue
                RadixSelect WarpSortFilter"""
            ),
            token("sort argsort Sort msort"),
            r"_kernel_agent<.*?__(?:merge_sort|radix_sort)",
            r"^rocprim::[^<]*trampoline[^<]*<.*?(?:radix_sort|merge_sort|onesweep|block_sort|segmented_sort)",
        ),
        Op.SORT_TOPK,
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
        could_be=_SERVES,
    ),
    OpRule(
        "scan",
        either(
            inside(
                """DeviceScan tensor_kernel_scan cumsum cumprod cum_?max logcumsumexp prefix_?[sS]um lookback_scan
                scan_kernel inclusive_scan exclusive_scan DeviceCompactInit block_scan partition_kernel ScanKernel
                final_scan calc_block_sums"""
            ),
            r"^rocprim::[^<]*trampoline[^<]*<.*?wrapped_scan|_kernel_agent<.*?__scan",
        ),
        Op.SCAN,
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*)",
        could_be=_SERVES,
    ),
    OpRule(
        "by-key",
        inside(
            """DeviceReduceByKey DeviceRunLengthEncode reduce_by_key UniqueByKey run_length unique_ Unique
            DeviceHistogram histogram Histogram bincount adjacent_difference AdjacentDifference"""
        ),
        Op.GATHER_SCATTER,
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>::Policy, long*>(int)",
        could_be=_SERVES,
    ),
    OpRule(
        "select",
        either(
            inside(
                r"""DeviceSelect DeviceCompact DevicePartition DeviceThreeWay nonzero NonZero masked_select
                masked_scatter write_indices \bflag_kernel transform_kernel renormRows"""
            ),
            r"^rocprim::[^<]*trampoline[^<]*<.*?(?:partition|select|transform)|_kernel_agent<.*?__(?:unique|copy_if|partition|set_op)",
        ),
        Op.GATHER_SCATTER,
        "void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::DispatchSelectIf<long>>(int)",
        could_be=_SERVES,
    ),
    OpRule(
        "scheduling",
        inside(
            r"""resolve_future_token clamp_position write_req_to_token assign_(?:req|draft|extend) get_last_loc
            compute_position alloc_\w+_kernel create_extend build_tree build_eagle_tree verify_tree VerifyTree
            reconstruct_indices slot_mapping _prepare_\w+_kernel prepare_inputs
            prepare_\w*(?:prefill|decode|inputs) update_(?:positions|req|seq|token) advance_?[sS]tep
            convert_req_index seqlens cu_seqlens pos_ids update_decode draft_decode eagle_ spec_decode
            copy_and_expand _num_tokens post_update_kernel expand_batch segment_packbits packbits
            thd_\w*(?:indices|get) convert_vertical_slash"""
        ),
        Op.SCHEDULING,
        "void (anonymous namespace)::resolve_future_token_ids_kernel<long>(long*)",
    ),
    OpRule(
        "pooling",
        inside(
            """max_?pool avg_?pool MaxPool AvgPool adaptive_?(?:max|avg|average) atomic_?adaptive pooling_(?:fw|bw)
            mloPooling fractional_max pool[23]d roi_pool ROIPool RoIPool max_unpool MaxUnpool lp_pool
            cudnn::pooling Pooling_? ps_roi_pool"""
        ),
        Op.POOLING,
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
    ),
    OpRule(
        "resample",
        inside(
            """upsample UpSample grid_?sampl roi_align ROIAlign RoIAlign interpolat affine_grid
            resize_(?:bilinear|nearest|bicubic) pixel_shuffle bilinear2d nearest2d bicubic"""
        ),
        Op.RESAMPLE,
        "void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<double, double>(int)",
    ),
    OpRule(
        "vision-boxes",
        either(starts("vision::ops::"), inside("nms_kernel batched_nms gather_keep_from_mask box_iou iou_rotated")),
        Op.OTHER,
        "void vision::ops::(anonymous namespace)::nms_kernel_impl<float>(int)",
    ),
    OpRule(
        "index",
        either(
            inside(
                r"""index_elementwise_kernel index_kernel indexSelect indexFunc
                index_?(?:put|add|copy|fill|select|reduce) indexing_backward IndexSelect IndexPut _?scatter_gather
                vectorized_gather vectorized_scatter gather_kernel scatter_kernel scatter_add scatter_reduce
                take_along repeat_interleave \bcompute_cuda_kernel one_hot segment_reduce _segment_ gatherKernel
                scatterKernel select_rows masked_gather put_along unfold_backward_elementwise gather_rows"""
            ),
            token("gather scatter take put Gather Scatter"),
        ),
        Op.GATHER_SCATTER,
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
        "at::native::OpaqueType<4> > > >(int)",
        could_be=frozenset(
            {Op.EMBEDDING, Op.KV_CACHE, Op.RNG, Op.MOE_ROUTING, Op.SORT_TOPK, Op.LOSS, Op.REDUCTION, Op.COPY_LAYOUT}
        ),
    ),
    OpRule(
        "rng",
        inside(
            r"""distribution_(?:elementwise|nullary|binary|unary) philox curand rocrand dropout Dropout randperm
            random_\w*kernel bernoulli uniform_kernel normal_kernel rand_kernel generate_seed poisson_
            exponential_kernel standard_gamma dirichlet"""
        ),
        Op.RNG,
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16, float, 1, 8, bool>(int)",
    ),
)

COPIES: tuple[OpRule, ...] = (
    OpRule(
        "copy",
        either(
            inside(
                r"""[cC]opy_?[kK]ernel \w*[tT]ranspose(?!_?conv) reflection_pad replication_pad constant_pad roll_cuda
                flip_kernel rot90 shuffle_channel channel_shuffle unfold_backward device_copy memcpy_kernel
                padding nested_tensor nested_\w+ elementwise_copy _fft_conjugate_copy split_qkv merge_heads
                split_heads"""
            ),
            token(
                """copy Copy transpose permute pad unpad roll flip cast unpack pack memcpy contiguous tile unfold
                stack slice"""
            ),
        ),
        Op.COPY_LAYOUT,
        "void at::native::(anonymous namespace)::reflection_pad2d_out_kernel<float>(float const*)",
    ),
)

NAMED_LAST: tuple[OpRule, ...] = (
    OpRule(
        "activation",
        inside(
            """act_and_mul silu SiLU Silu gelu GELU Gelu geglu GeGLU swiglu SwiGLU Swiglu relu ReLU ReLu Relu swish
            sigmoid tanh [aA]ctivation glu_(?:fwd|bwd|forward|backward) gated_act dgated ActiveBwd ActiveFwd
            MIOpenNeuron dyt_ act_kernel gated_kernel cgated_act dact_"""
        ),
        Op.ELEMENTWISE,
        "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*)",
    ),
    OpRule(
        "elementwise-named",
        either(
            inside(
                """elementwise pointwise Elementwise ElementWise Pointwise BiasAdd bias_add biasAdd AddBias fused_add
                scale_kernel element_mul DeviceFor DeviceTransform for_each::static_kernel parallel_for fill_kernel
                _memset mhc_ hyper_connection ^kfunc"""
            ),
            r"_kernel_agent<.*?__(?:parallel_for|transform|uninitialized)",
            token(
                """add mul sub div bias scale scal fill zero zeros ones mask exp where arange axpy clamp residual lerp
                logsigmoid"""
            ),
        ),
        Op.ELEMENTWISE,
        "element_mul_kernel",
        could_be=frozenset(Op),
    ),
    OpRule(
        "reduction-named",
        either(
            inside(
                """DeviceReduce DeviceSegmentedReduce block_reduce rowsum colsum row_sum col(?:umn)?_sum reduce_kernel
                ReduceSum"""
            ),
            token("reduce sum mean max min amax argmax argmin reduction Reduce Reduction"),
            r"^rocprim::[^<]*<.*?wrapped_reduce|_kernel_agent<.*?__(?:reduce|extrema)",
        ),
        Op.REDUCTION,
        "reduce_row_sum_kernel",
        could_be=frozenset(Op),
    ),
    OpRule(
        "image-decoding",
        starts("nvjpeg:: culj92::"),
        Op.OTHER,
        "nvjpeg::merge_yuv_to_yuy2_kernel(int)",
    ),
    OpRule(
        "expert-named",
        inside(r"moe_ Moe(?![a-z]) \bmoe::"),
        Op.MOE_ROUTING,
        "void tensorrt_llm::kernels::moe::someHelper<int>(int)",
        could_be=frozenset({Op.GEMM, Op.ELEMENTWISE, Op.QUANTIZATION}),
    ),
    OpRule(
        "aten-other",
        starts(r"at::(?:native|cuda):: \{anon\}::"),
        Op.OTHER,
        "void at::native::(anonymous namespace)::frobnicate_kernel<float>(float*)",
        is_catch_all=True,
        could_be=frozenset(Op),
    ),
)

OP_RULES: tuple[OpRule, ...] = (
    *DRIVER,
    *op_rules_generated.INDUCTOR,
    *op_rules_generated.XLA,
    *COMMUNICATION,
    *ATTENTION,
    *LINEAR_ATTENTION,
    *MOE,
    *QUANTISE,
    *EMBEDDING,
    *NORMALIZATION,
    *LOSS_SOFTMAX,
    *OPTIMIZERS,
    *SOLVERS,
    *CONV,
    *GEMM,
    *INDEXING,
    *op_rules_aten.FUNCTORS,
    *op_rules_aten.NAMED,
    *COPIES,
    *NAMED_LAST,
)
"""The built-in table, in the order in which it is tried."""
