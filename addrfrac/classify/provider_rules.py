# ruff: noqa: E501
"""Whose code a kernel is, told from its name: an ordered table, first match wins; and how hard each owner is to beat.

Patterns are searched in the normalised name. `H` keeps a pattern before the template arguments.
"""

from __future__ import annotations

from addrfrac.classify.op_rules import H, T
from addrfrac.classify.rules import ProviderRule
from addrfrac.records import Incumbent

_CLOSED, _TUNED, _GENERIC = Incumbent.CLOSED, Incumbent.TUNED, Incumbent.GENERIC

PROVIDER_RULES: tuple[ProviderRule, ...] = (
    ProviderRule(
        "driver",
        r"^(?:Mem(?:cpy|set)|mem(?:cpy|set)\b|\[?(?:CUDA|HIP) mem|(?:hip|cuda)Mem|CopyDeviceToDevice|CopyHostToDevice|CopyDeviceToHost)",
        "cuda_driver",
        "Memset (Device)",
    ),
    ProviderRule(
        "rocclr", r"^__amd_rocclr_", "cuda_driver", "__amd_rocclr_copyBuffer", evidence="ROCm's own copy kernel"
    ),
    ProviderRule(
        "nccl",
        r"^(?:nccl|mscc?l)",
        "nccl",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    ProviderRule("rccl", r"^rccl", "rccl", "rcclGenericKernel<4>(int)"),
    ProviderRule("nvshmem", r"^nvshmem", "nvshmem", "nvshmemi_transfer_rma_block"),
    ProviderRule(
        "deep-ep", r"^deep_ep(?:_\w+)?::", "deep_ep", "void deep_ep::intranode::combine<__nv_bfloat16, 8>(int)"
    ),
    ProviderRule("inductor", r"^inductor::", "inductor", "triton_poi_fused_gelu_3"),
    ProviderRule(
        "xla",
        r"^(?:(?:nested_)?gemm_fusion|triton_gemm|triton_softmax|wrapped_|loop_|input_\w*fusion|\w*_fusion(?:[_.]\d+)*$|fusion(?:[_.]\d+)*$|__(?:triton|cublas|cudnn)\$?|threefry2x32|command_buffer)",
        "xla",
        "loop_add_fusion_7",
    ),
    ProviderRule(
        "cudnn-sdpa",
        r"^cudnn_generated_\w*(?:sdpa|mha|attention)|_sdpa_sm\d|^cudnn::fusion::|cudnn\w*_sdpa|cudnn\w*flash_[fb]prop",
        "cudnn_sdpa",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1",
    ),
    ProviderRule(
        "cudnn-named",
        r"cudnn|scudnn|^xmma__5x",
        "cudnn",
        "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, float>(int)",
    ),
    ProviderRule(
        "cudnn-engines",
        r"^sm\d+_xmma_(?:fprop|dgrad|wgrad)|(?:^|_)(?:fprop|dgrad|wgrad)_implicit_gemm|^(?:sm\d+_)?\w*(?:implicit_gemm|scudnn)\w*$|^(?:volta|turing|ampere|maxwell|pascal|kepler)\w*_(?:winograd|gcgemm|cf_conv|first_layer)|implicit_convolve|explicit_convolve|convolve_sgemm|convolve_common|\bDSE::|^fft[12]d_(?:r2c|c2r)|^flip_filter|pointwise_mult_and_sum_complex|nchwToNhwc|nhwcToNchw|foldedNhwc|FoldedNhwc|wgrad_alg|dgrad_alg|dgrad_engine|wgrad2d_|dgrad2d_|^conv2d_(?:c1_k1|grouped)|winograd_nonfused|winogradForward|winogradWgrad|generateWinogradTiles|^RNN_|elemWiseRNNcell|LSTM_elementWise|GRU_elementWise|^cask_|tensorTransformGeneric|^dgrad|^wgrad|^fprop|^\w*gcgemm\w*$|persistRNN",
        "cudnn",
        "maxwell_scudnn_128x128_relu",
    ),
    ProviderRule(
        "flash-attention-3",
        r"FlashAttnFwdSm90|FlashAttnBwdSm90|FlashAttnFwdCombine|FlashAttnFwdSm80|enable_sm90_or_later<|enable_sm90<flash|enable_sm80_to_sm89|enable_sm90_or_la|flash::prepare_varlen|flash::FlashAttnBwd(?:Pre|Post)|CollectiveMainloop(?:Fwd|Bwd)Sm90|FlashAttnBwdPreprocess|flash::prepare_scheduler|device_kernel<flash::",
        "flash_attn_3",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(int)",
    ),
    ProviderRule(
        "flash-attention-4",
        r"flash_attncute|FlashAttention(?:Forward|Backward|Combine)\w*Sm\d+|^kernel_cutlass_kernel_flash_attn|flash_attn_cute|FlashAttentionForward|FlashAttentionBackward",
        "flash_attn_4",
        "kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90FlashAttentionBackwardSm90_object_at__tensor0000o1",
    ),
    ProviderRule(
        "flashmla",
        rf"splitkv_mla|^sm(?:90|100)::(?:fwd|decode|prefill)|flash_mla|FlashMLA|flashmla|get_mla_metadata|sparse_attn_fwd|{H}smxx::",
        "flashmla",
        "void flash_fwd_splitkv_mla_kernel<int>(int)",
    ),
    ProviderRule(
        "flash-attention-2-bundled",
        r"\bpytorch_flash::",
        "flash_attn_2",
        "void pytorch_flash::flash_fwd_kernel<int>(pytorch_flash::Flash_fwd_params)",
        evidence="FlashAttention-2 as bundled in PyTorch",
    ),
    ProviderRule(
        "flash-attention-2",
        r"\bflash::|flash_(?:fwd|bwd)_(?:\w*kernel|dq|dot|convert|loop|splitkv)|Flash_(?:fwd|bwd)_kernel_traits|^fmha_(?:fwd|bwd|fprop|dgrad)_\w*(?:kernel|sm80)",
        "flash_attn_2",
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
        evidence="FlashAttention-2 from the flash-attn package or an old PyTorch",
    ),
    ProviderRule(
        "mem-efficient",
        r"^fmha_cutlass[FB]|PyTorchMemEffAttention|AttentionBackwardKernel|attention_kernel_(?:backward_)?batched|^xformers::",
        "mem_efficient",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
    ),
    ProviderRule(
        "trtllm-gen",
        r"^fmhaSm\d+|^bmm_\w*?(?:Bfloat16|Fp16|E4m3|E2m1|E5m2|Fp32|Int)|^gemm_(?:Bfloat16|Fp16|E4m3|E2m1)",
        "trtllm",
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_c1x1x1_rM_TN_transOut",
        incumbent=_CLOSED,
        evidence="a trtllm-gen binary",
    ),
    ProviderRule("deep-gemm", r"\bdeep_gemm::", "deep_gemm", "void deep_gemm::fp8_gemm_kernel<4096u>(float*)"),
    ProviderRule(
        "trtllm-in-flashinfer",
        r"trtllm_dsv3|^fused_a_gemm_kernel",
        "trtllm",
        "void flashinfer::trtllm_dsv3_router_gemm::router_gemm_kernel<float>(float*)",
    ),
    ProviderRule(
        "flashinfer",
        r"\bflashinfer::|^kernel_cutlass_kernel_flashinfer|flashinfer",
        "flashinfer",
        "void flashinfer::norm::RMSNormKernel<8, __half>(int)",
    ),
    ProviderRule(
        "trtllm",
        r"\btensorrt_llm::|^(?:trtllm|tensorrt_llm)|^moe::dev::|^fmha_v2_|\btrt_llm\w*|^batchedGemm::",
        "trtllm",
        "void moe::dev::routing::routingCustom::routingIndicesClusterKernel<int>(int)",
    ),
    ProviderRule(
        "torch-sparse",
        r"torch_sparse|torch_scatter|^spmm_kernel|^segment_csr_kernel|^scatter_kernel<",
        "torch_sparse",
        "void spmm_kernel<float, 0, true>(long const*)",
    ),
    ProviderRule(
        "transformer-engine-triton",
        r"^(?:_permute_kernel|_unpermute_kernel|_sort_chunks_by_map_kernel|_make_chunk_sort_map_kernel|_row_id_map_\w+_kernel|online_softmax_kernel)$",
        "triton",
        "_sort_chunks_by_map_kernel",
        evidence="a Triton kernel of Transformer Engine",
    ),
    ProviderRule(
        "transformer-engine",
        r"\btransformer_engine::|\bte::|\bnvte_",
        "transformer_engine",
        "void transformer_engine::cast_transpose_kernel<float>(float*)",
    ),
    ProviderRule(
        "natten",
        r"\bnatten::|NeighborhoodAttention|\bnatten",
        "natten",
        "void natten::cuda::na2d_forward<cutlass::half_t>(int)",
    ),
    ProviderRule(
        "fbgemm",
        r"\bfbgemm_gpu::|\bfbgemm::|split_embedding|embedding_codegen|split_embeddings|bounds_check_indices|permute_(?:1D|2D)_|permute_pooled_embs|permute_embeddings_kernel|permute_indices_weights|block_bucketize|recat_(?:copy|embedding)|jagged_|linearize_(?:index|cache)|lxu_cache|lru_cache_|lfu_cache|expand_into_jagged|invert_permute|dense_embedding_codegen|at::to_dense_representation|batched_unary_embeddings|reorder_batched|histogram_binning|\bfacebook::|\bfb::|\bnbit::|int_nbit_split|find_long_segments|delinearize_unique|keyed_jagged|multi_embs?_copy|segment_sum_csr|grad_mean\w*_kernel|pack_segments|unpack_segments|radix_sort_pairs_fb|triton_quantize_fp8|_kernel_quantize_fp8|_kernel_matmul_fp8",
        "fbgemm",
        "void split_embedding_codegen_forward_unweighted_kernel<float>(int)",
    ),
    ProviderRule("marlin", r"marlin|Marlin|machete", "marlin", "void marlin::Marlin<256, 4>(int4 const*)"),
    ProviderRule(
        "bitsandbytes",
        r"^k(?:gemm_4bit|gemv_4bit|Dequantize|Quantize|Optimizer|PreconditionOptimizer|PercentileClipping|EstimateQuantiles|gemm_\w+bit|Int8VectorQuant|dequant_mm_int32|spmm_csr_very|CompressMax|histogramScatter|DoubleRowColQuant|TransformRowToFormat)\w*|bitsandbytes",
        "bitsandbytes",
        "kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*)",
    ),
    ProviderRule(
        "apex",
        r"^multi_tensor_apply_kernel|^(?:cuApplyLayerNorm|cuComputeGradInput|cuComputePartGradGammaBeta|cuComputeGradGammaBeta|cuApplyRMSNorm)|\bapex::|^fmha_fprop|scaled_(?:masked_|upper_triang_masked_)?softmax_warp|^layer_norm::ln_|DistributedLamb|distributed_lamb|\bln_(?:fwd|bwd)_(?:tuned_|finalize_)?kernel|^softmax_xentropy|xentropy_kernel|generic_scaled_masked|MaybeCastFunctor|^multi_tensor_l2norm|^\w*welford_\w*kernel",
        "apex",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
    ),
    ProviderRule(
        "mamba",
        r"selective_scan_(?:fwd|bwd)|^causal_conv1d_|Selective_Scan|^_(?:chunk_(?:scan|state|cumsum)|state_passing|bmm_chunk)\w*|^_selective_scan_update|^_layer_norm_(?:fwd|bwd)_1pass",
        "mamba",
        "_state_passing_fwd_kernel",
    ),
    ProviderRule(
        "liger",
        r"^_?liger_|^(?:_rms_norm_(?:forward|backward)_kernel|_layer_norm_(?:forward|backward)_kernel|_group_norm_(?:forward|backward)_kernel|_swiglu_(?:forward|backward)_kernel|_geglu_tanh_(?:forward|backward)_kernel|_triton_(?:rope|qwen2vl_mrope|llama4_rope)|_jsd_kernel|_kldiv_kernel_(?:forward|backward)|_tv_distance_kernel|_dyt_\w+_kernel|_block_rms_norm\w*|_fused_add_rms_norm_(?:forward|backward)_kernel|_sparsemax_\w+|_softmax_(?:single|multi)_block_\w+_kernel|_selective_log_softmax_kernel|_grpo_loss_(?:fwd|bwd)_kernel)$|[lL]iger",
        "liger",
        "_rms_norm_forward_kernel",
    ),
    ProviderRule(
        "quack",
        r"\bquack|^kernel_cutlass_\w*quack",
        "quack",
        "kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensor",
    ),
    ProviderRule(
        "triton-fla",
        r"^(?:chunk_(?:gated|scaled|fwd|bwd|delta|local|global|gla|kda|gdn|simple|transform|linear|rwkv|retention|h_|o_)\w*|fused_(?:recurrent|chunk|gdn|sigmoid_gating_delta|kda)\w*|recompute_w_u\w*|solve_tril\w*|merge_16x16\w*|l2norm_(?:fwd|bwd)\w*|prepare_wy\w*|layer_norm_gated\w*|parallel_(?:attn|delta|nsa)\w*)$",
        "triton",
        "chunk_fwd_kernel_o",
        evidence="flash-linear-attention",
    ),
    ProviderRule(
        "tilelang",
        r"tilelang|_tl_kernel$|^tl_\w+_kernel|^main_kernel$",
        "tilelang",
        "mhc_pre_big_fuse_with_norm_tilelang_kernel",
    ),
    ProviderRule(
        "aiter",
        r"\baiter::|^aiter|^_?sage_(?:fwd|bwd)|sageattn|qk_int_sv|^(?:fmoe_|flatmm_|fmha_(?:fwd|bwd)_hd\d+_|mla_(?:stage|a8|dec|pfl)|f4gemm_|bf16gemm_|fp8gemm_|i8gemm_|fused_moe_gelu)|^asm_(?:moe|pa|mla|fmha|layernorm|topk)|pa_(?:bf16|fp8|fp16|a16w\d)_|dynamic_per_group_scaled_quant_kernel",
        "aiter",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_",
    ),
    ProviderRule(
        "aotriton",
        r"^(?:attn_fwd\w*|attn_bwd\w*|bwd_kernel_(?:fuse|dk_dv|dq|dkdv)\w*|bwd_preprocess\w*|debug_simulate_encoded_softmax|bare_attn_fwd\w*)$|aotriton",
        "aotriton",
        "attn_fwd",
    ),
    ProviderRule(
        "hipblaslt",
        r"^(?:Custom_)?Cijk_\w*UserArgs|^Custom_Cijk_|hipblaslt",
        "hipblaslt",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1",
    ),
    ProviderRule(
        "rocblas",
        r"^Cijk_|^rocblas_|\brocblas|Tensile",
        "rocblas",
        "Cijk_Ailk_Bljk_BBS_BH_MT32x64x64_MI16x16x16x1_SN_1LDSB0",
    ),
    ProviderRule(
        "miopen-ck",
        r"^ck::tensor_operation::\S*(?:grouped_conv|conv_|_conv)|^(?:ck::)\S*kernel_(?:grouped_conv|elementwise|batched_elementwise|batchnorm)\S*",
        "miopen",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmEEE",
        evidence="composable kernel inside MIOpen",
    ),
    ProviderRule(
        "ck",
        r"^ck(?:_tile)?::|^std::enable_if<[^>]*ck_tile::",
        "ck",
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEE",
    ),
    ProviderRule(
        "miopen",
        r"^(?:igemm_(?:fwd|bwd|wrw)|batched_transpose_\d|transpose_(?:NCHW|CNHW|NHWC)\w*|SubTensorOp\w*|Op[1-5]dTensor\w*|OpTensor\w*|MIOpen|miopen|mlopen|mloPooling|naive_conv|gcnAsm|sp3Asm|Im2Col|Im2d2Col|Col2Im\w*|im2d2col|Winograd|ConvBinWinograd|xform_|Softmax(?:Forward|Backward)|CastTensor|SetTensor|ScaleTensor|conv1x1u|SubSample|UpSample|Activ\w*(?:Fwd|Bwd)|BatchNorm\w+Spatial)",
        "miopen",
        "MIOpenBatchNormBwdSpatial",
    ),
    ProviderRule(
        "cusolver",
        r"\bcusolver|getrf|getrs|potr[fis]|ipiv_|geqr[f2]|syev|gesvd|ormtr|ormqr|orgqr|larf[tb]|laswp|trtri|syevj|sytrd|stedc|\blaset|_lu_batch|gesvdj|svdj",
        "cusolver",
        "void ipiv_lower_diag<float, 32>(int, void*, int, int*, int)",
    ),
    ProviderRule(
        "cusparse",
        r"\bcusparse|^(?:csrmm|csrmv|coomm|coomv|csr2|coo2|bsrmm|spmm|sddmm)\w*",
        "cusparse",
        "void cusparse::csrmm_v2_kernel<cusparse::CsrMMPolicy<int>, true>(int)",
    ),
    ProviderRule(
        "cufft",
        r"(?:composite|regular|vector|multi_bluestein)_\w*fft|^cufft|realComplex_postprocess|^\w+_bluestein_fft",
        "cufft",
        "void composite_2way_fft<unsigned int=384, unsigned int=8>(kernel_arguments_t<unsigned int>)",
    ),
    ProviderRule(
        "rocfft",
        r"^fft_(?:rtc_)?(?:fwd|back)|rocfft",
        "rocfft",
        "fft_rtc_fwd_len1024_factors_8_8_16_wgs_128_tpt_128_sp_ip_CI_unitstride_sbrr_C2C_dirReg",
    ),
    ProviderRule("magma", r"\bmagma(?!_sgemmEx)\w*", "magma", "void magma_slarf_kernel<32>(int)"),
    ProviderRule(
        "cublas",
        r"^nvjet_|^(?:volta|turing|ampere|maxwell|pascal|kepler|hopper|ada|gk\d+|sm\d+)_\w*gemm|^cutlass::Kernel2?<cutlass_\d|^cutlass3x_|^sm\d+_xmma_gemm|\bcublas|^(?:internal::)?gemvx::|^gemv\w*_kernel|^gemv[2N]|^gemmk1|^gemmSN|^gemm_kernel2x2|splitKreduce_kernel|^epilogue::impl|^dot_kernel|^reduce_1Block_kernel|^scal_kernel|^gemv|magma_sgemmEx|^asum_kernel|^axpy_kernel|^nrm2_kernel|^copy_kernel<|^trsm_\w*kernel|^syrk|^trsv|^ger_kernel|^sgemm|^gen_trmm|^internal::\w*gemm",
        "cublas",
        "volta_sgemm_128x64_nn",
    ),
    ProviderRule(
        "cutlass",
        r"^cutlass(?:_\w+)?::(?:Kernel2?|device_kernel)\b.*(?:GemmUniversal|gemm::|enable_3x_kernel|Gemm\b|cutlass_tensorop)",
        "cutlass",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEEEEE",
    ),
    ProviderRule(
        "aten-cutlass",
        r"\bat::cuda::detail::enable_\dx_kernel|at::native::\S*cutlass",
        "aten",
        "void at::native::f8f8bf16_cutlass<int>(int)",
    ),
    ProviderRule(
        "cub",
        r"^(?:at_cuda_detail::)?cub::|^thrust::|^at_cuda_detail::|^at::cuda::\S*cub",
        "cub",
        "void cub::DeviceRadixSortOnesweepKernel<int>(int)",
    ),
    ProviderRule(
        "rocprim",
        r"^rocprim::|^hipcub::|trampoline_kernel",
        "rocprim",
        "void rocprim::ROCPRIM_400001_NS::detail::onesweep_iteration_kernel<int>(int)",
    ),
    ProviderRule(
        "torchvision",
        r"^vision::ops::|^(?:roi_align|roi_pool|nms_kernel_impl|deformable_im2col)",
        "torchvision",
        "void vision::ops::(anonymous namespace)::nms_kernel_impl<float>(int)",
    ),
    ProviderRule(
        "vllm",
        r"\bvllm::|^(?:moe_sum_kernel|paged_attention_ll4mi\w*|paged_attention_v[12]\w*|wvSplitK\w*|LLGemm\w*|per_token_group_quant_8bit_kernel)$|^vllm|^paged_attention_ll4mi|^per_token_group_quant_8bit_kernel<c10",
        "vllm",
        "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)",
    ),
    ProviderRule(
        "vllm-or-sglang",
        r"^sgl_hip::|^moe_align_block_size|^cvt_fp16_to_fp4|^count_and_sort_expert_tokens|^topkGatingSoftmax|^moe_fused_gate|^(?:\{anon\}::)?topk(?:Gating|_softmax)",
        "vllm_or_sglang",
        "void moe_align_block_size_kernel<int>(int const*)",
    ),
    ProviderRule(
        "sglang",
        r"^sgl\w*::|^\{anon\}::(?:act_and_mul|resolve_future|per_token_group_quant|qk_norm|fused_)\w*|^moeTopK|^compute_expert_blockscale|^apply_shuffle_mul_sum|^per_token_quant_fp8|^(?:write_req_to_token|assign_req|assign_extend|assign_draft|get_last_loc)\w*|^fused_qknorm|^\w+_sglang_|sglang|^per_tensor_quant_fp8|^fast_topk|^device::\w+",
        "sglang",
        "void moeTopK<256>(float const*)",
    ),
    ProviderRule("awq", r"^awq_|^gemm_forward_4bit|^dequantize_weights", "vllm", "awq_gemm_kernel"),
    ProviderRule("rtp-llm", r"\brtp_llm::|rtp_llm", "rtp_llm", "void rtp_llm::rmsnorm<float>(float*)"),
    ProviderRule("llama-cpp", r"^ggml_|mul_mat_(?:vec_)?q", "ggml", "void mul_mat_vec_q<256, 32>(void const*)"),
    ProviderRule(
        "aten",
        r"\bat::native::|^at::cuda::|^\{anon\}::(?:softmax_warp|cunn_|elementwise_kernel_with_index|host_softmax|multimem_|one_shot|two_shot|\w*_kernel_impl|barrier|conv_depthwise|\w*symm_mem)|^at::|^c10::|^c10d::|_jitted$|^reduction_\w+_kernel$|^symm_mem|^torch::",
        "aten",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*)",
    ),
    ProviderRule(
        "triton-known",
        r"^(?:fused_moe_kernel\w*|_?matmul_ogs\w*|_p_matmul_ogs\w*|kernel_unified_attention\w*|reduce_segments|scaled_\w*matmul_kernel\w*|reshape_and_cache_kernel_flash|_fwd_(?:grouped_)?kernel_stage\w*|_fwd_kernel\w*|_combined_routing\w*|_topk_\w+|_penalties_kernel|_w8a8_\w+|create_flashinfer_kv_indices\w*|_copy_page_indices\w*|_causal_conv1d_\w+|_fused_\w+_kernel|cross_entropy_kernel|element_mul_kernel|qkv_reduce_kernel|_varlen_prefill_kernel|_\w*_kernel|\w+_triton(?:_kernel)?|\w+_kernel_triton|triton_\w+|_sum_bitmatrix\w*|_expt_data\w*|_compute_\w+|_bwd_\w+|_fwd_\w+|_attn_\w+|_gemma_\w+)$",
        "triton",
        "kernel_unified_attention_2d",
    ),
    ProviderRule(
        "cutlass-unnamed", r"^cutlass(?:_\w+)?::|^kernel_cutlass", "cutlass", "void cutlass::Kernel2<some_kernel>(int)"
    ),
    ProviderRule(
        "user-kernel",
        rf"^\w+_detail::|^{T('matmul_v[0-9]+')}_kernel",
        "user",
        "void matmul_v7_kernel_cutlass<256>(CUtensorMap_st)",
    ),
)
"""The built-in table, in the order in which it is tried."""

INCUMBENTS: dict[str, Incumbent] = {
    # What runs is the vendor's precompiled library. AMD and Intel publish the source of theirs; it is still the vendor's
    # library that a replacement has to beat, so one word covers the three vendors.
    **dict.fromkeys(
        (
            "cublas",
            "cudnn",
            "cudnn_sdpa",
            "cusolver",
            "cusparse",
            "cufft",
            "rocblas",
            "hipblaslt",
            "miopen",
            "rocfft",
            "mkl",
            "onednn",
        ),
        _CLOSED,
    ),
    **dict.fromkeys(
        (
            "flash_attn_2",
            "flash_attn_3",
            "flash_attn_4",
            "flashmla",
            "mem_efficient",
            "xformers",
            "natten",
            "aotriton",
            "fbgemm",
            "cutlass",
            "ck",
            "cub",
            "rocprim",
            "trtllm",
            "deep_gemm",
            "flashinfer",
            "vllm",
            "sglang",
            "vllm_or_sglang",
            "aiter",
            "marlin",
            "bitsandbytes",
            "apex",
            "mamba",
            "liger",
            "quack",
            "triton",
            "tilelang",
            "transformer_engine",
            "torch_sparse",
            "magma",
            "rtp_llm",
            "ggml",
            "torchao",
        ),
        _TUNED,
    ),
    "inductor": Incumbent.COMPILER,
    "xla": Incumbent.COMPILER,
    **dict.fromkeys(("aten", "aten_cpu", "torchvision", "user"), _GENERIC),
    **dict.fromkeys(("cuda_driver", "nccl", "rccl", "nvshmem", "deep_ep", "aten_dispatch"), Incumbent.SYSTEM),
}
"""How hard each provider is to beat; a provider that is not named is unknown."""
