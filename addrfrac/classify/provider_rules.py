"""Whose code a kernel is, told from its name: an ordered table, first match wins; and how hard each owner is to beat.

Patterns are searched in the normalised name and written as word lists (see `patterns`).
"""

from __future__ import annotations

from addrfrac.classify.patterns import any_of, either, starts, whole
from addrfrac.classify.rules import ProviderRule
from addrfrac.records import Incumbent

_CLOSED, _TUNED, _GENERIC, _SYSTEM = Incumbent.CLOSED, Incumbent.TUNED, Incumbent.GENERIC, Incumbent.SYSTEM

DRIVER_AND_COMMUNICATION: tuple[ProviderRule, ...] = (
    ProviderRule(
        "driver",
        starts(
            r"""Mem(?:cpy|set) mem(?:cpy|set)(?!\w) \[?(?:CUDA|HIP)\smem (?:hip|cuda)Mem
            Copy(?:Device|Host)To(?:Device|Host)"""
        ),
        "cuda_driver",
        "Memset (Device)",
    ),
    ProviderRule(
        "rocclr",
        r"^__amd_rocclr_",
        "cuda_driver",
        "__amd_rocclr_copyBuffer",
        evidence="a copy or fill kernel of ROCm's runtime",
    ),
    ProviderRule(
        "nccl",
        starts("nccl msccl"),
        "nccl",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    ProviderRule("rccl", starts("rccl"), "rccl", "rcclGenericKernel<4>(int)"),
    ProviderRule("nvshmem", starts("nvshmem"), "nvshmem", "nvshmemi_transfer_rma_block"),
    ProviderRule(
        "deep-ep", starts(r"deep_ep\w*::"), "deep_ep", "void deep_ep::intranode::combine<__nv_bfloat16, 8>(int)"
    ),
)

COMPILERS: tuple[ProviderRule, ...] = (
    ProviderRule("inductor", r"^inductor::", "inductor", "triton_poi_fused_gelu_3"),
    ProviderRule(
        "xla",
        either(
            starts(
                r"""(?:nested_|triton_)?gemm_fusion triton_gemm triton_softmax wrapped_ loop_ input_\w*fusion
                __(?:triton|cublas|cudnn)"""
            ),
            r"^(?:\w+_)?fusion(?:__\d+)?(?:[_.]\d+)*$",
            starts("threefry2x32 command_buffer"),
        ),
        "xla",
        "loop_add_fusion_7",
    ),
)

ATTENTION: tuple[ProviderRule, ...] = (
    ProviderRule(
        "cudnn-sdpa",
        any_of(
            r"""^cudnn_generated_\w*(?:sdpa|mha|attention) _sdpa_sm\d ^cudnn::fusion:: cudnn\w*_sdpa
            cudnn\w*flash_[fb]prop"""
        ),
        "cudnn_sdpa",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1",
    ),
    ProviderRule(
        "flash-attention-3",
        any_of(
            r"""FlashAttn(?:Fwd|Bwd)Sm\d+ FlashAttnFwdCombi FlashAttnBwdP(?:re|ost)process enable_sm90_or_la
            device_kernel<flash:: flash::prepare_varlen flash::prepare_scheduler CollectiveMainloop(?:Fwd|Bwd)Sm90"""
        ),
        "flash_attn_3",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(int)",
    ),
    ProviderRule(
        "flash-attention-4",
        any_of(r"""flash_attncute flash_attn_cute FlashAttention(?:For|Back)ward ^kernel_cutlass_kernel_flash_attn"""),
        "flash_attn_4",
        "kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90FlashAttentionBackwardSm90_object_at__tensor0000o1",
    ),
    ProviderRule(
        "flashmla",
        any_of(
            r"""splitkv_mla ^(?:legacy::)?sm(?:90|100|xx)\w*:: flash_mla FlashMLA flashmla get_mla_metadata
            sparse_attn_fwd ^smxx::"""
        ),
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
        any_of(
            r"""\bflash::flash_ ^flash_(?:fwd|bwd)_ Flash_(?:fwd|bwd)_kernel_traits
            ^fmha_(?:fwd|bwd|fprop|dgrad)_\w*kernel"""
        ),
        "flash_attn_2",
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
        evidence="FlashAttention-2 of the flash-attn package (or of an old PyTorch)",
    ),
    ProviderRule(
        "mem-efficient",
        any_of(
            """^fmha_cutlass[FB] PyTorchMemEffAttention attention_kernel_(?:backward_)?batched ^AttentionKernel
            ^AttentionBackwardKernel"""
        ),
        "mem_efficient",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
    ),
    ProviderRule(
        "natten",
        any_of(r"\bnatten NeighborhoodAttention"),
        "natten",
        "void natten::cuda::na2d_forward<cutlass::half_t>(int)",
    ),
    ProviderRule(
        "xformers",
        any_of(r"\bxformers:: sparse24_ sparseNM_"),
        "xformers",
        "void xformers::sparse24_sparsify_both_ways_kernel<int>(int)",
    ),
    ProviderRule(
        "aotriton",
        whole(
            r"""(?:bare_)?attn_(?:fwd|bwd)\w* bwd_kernel_(?:fuse|dk_dv|dq|dkdv)\w* bwd_preprocess\w*
            debug_simulate_encoded_softmax"""
        ),
        "aotriton",
        "attn_fwd",
    ),
)

VENDOR: tuple[ProviderRule, ...] = (
    ProviderRule(
        "cudnn-named",
        any_of("(?<!unpack_)cudnn ^cask_"),
        "cudnn",
        "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, float>(int)",
    ),
    ProviderRule(
        "cudnn-engines",
        any_of(
            r"""^sm\d+_xmma_(?:fprop|dgrad|wgrad) (?:^|_)(?:fprop|dgrad|wgrad)_implicit_gemm
            ^\w*(?:implicit_gemm|scudnn)\w*$
            ^(?:volta|turing|ampere|maxwell|pascal|kepler|hopper)\w*_(?:winograd|gcgemm|cf_conv|first_layer)
            implicit_convolve explicit_convolve convolve_sgemm convolve_common ^DSE:: ^fft[12]d_(?:r2c|c2r)
            ^flip_filter pointwise_mult_and_sum_complex
            ^(?:nchw|nhwc|folded|nhwcToFolded|foldedNhwc)\w*To(?:Nhwc|Nchw|Folded) [wd]grad_alg [dw]grad_engine
            [wd]grad2d_ ^conv2d_(?:c1_k1|grouped) winograd_nonfused winogradForward winogradWgrad
            generateWinogradTiles tensorTransformGeneric ^\w*gcgemm\w*$ ^RNN_ elemWiseRNNcell LSTM_elementWise
            GRU_elementWise persistRNN ^(?:dgrad|wgrad|fprop)_ ^xmma__5x"""
        ),
        "cudnn",
        "void explicit_convolve_sgemm<float, int, 1024, 5, 5, 3>(int)",
    ),
    ProviderRule(
        "hipblaslt",
        any_of(r"^Custom_Cijk_ ^Cijk_\w*(?:UserArgs|_Bias|ScaleAlphaVec|_HAS?_) hipblaslt"),
        "hipblaslt",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1",
    ),
    ProviderRule(
        "rocblas", any_of(r"^Cijk_ \brocblas"), "rocblas", "Cijk_Ailk_Bljk_BBS_BH_MT32x64x64_MI16x16x16x1_SN_1LDSB0"
    ),
    ProviderRule(
        "miopen-ck",
        starts(
            r"""ck::\S*?(?:grouped_conv|_conv|conv_|Conv|bwd_weight|bwd_data|kernel_(?:batched_)?elementwise|batchnorm)"""
        ),
        "miopen",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmEEE",
        evidence="composable kernel inside MIOpen",
    ),
    ProviderRule(
        "miopen",
        starts(
            r"""igemm_(?:fwd|bwd|wrw) batched_transpose_\d transpose_(?:NCHW|CNHW|NHWC) SubTensorOp Op[1-5]dTensor
            OpTensor MIOpen miopen mlopen mloPooling naive_conv gcnAsm sp3Asm Im2Col Im2d2Col Col2Im im2d2col
            Winograd ConvBinWinograd xform_ CastTensor SetTensor ScaleTensor conv1x1u SubSample UpSample
            BatchNorm\w+(?:Spatial|PerAct) Softmax(?:Forward|Backward)$"""
        ),
        "miopen",
        "MIOpenBatchNormBwdSpatial",
    ),
    ProviderRule(
        "magma",
        any_of(
            r"""\bmagma(?!_[sh]gemmEx) ^i[sdcz]amax_ ^i?displace_pointers ^kernel_[sdcz]set_pointer
            ^(?:trsm|gemm)_template_batched
            ^[sdcz](?:getf2|getrf_batched|scal_|displace|trsv|gemm_batched_smallsq|computecolumn|lansy|lanhe|lascl|lacpy|laset)
            ^[sdcz](?:laswp|swap_kernel|symv_kernel|hemv_kernel|transpose_) gemv[nc]_kernel_batched"""
        ),
        "magma",
        "void magma_slarf_kernel<32>(int)",
    ),
    ProviderRule(
        "cusolver",
        any_of(
            r"""\bcusolver getrf getrs potr[fis] ipiv_ trf\d?_set_info geqr[f2] syev heev gesvd orm(?:tr|qr) orgqr
            larf[tb] \blaswp trtri sytrd stedc \blaset svdj"""
        ),
        "cusolver",
        "void ipiv_lower_diag<float, 32>(int, void*, int, int*, int)",
    ),
    ProviderRule(
        "cusparse",
        any_of(r"\bcusparse ^(?:csrmm|csrmv|coomm|coomv|csr2|coo2|bsrmm|bsrxmv)\w*"),
        "cusparse",
        "void cusparse::csrmm_v2_kernel<cusparse::CsrMMPolicy<int>, true>(int)",
    ),
    ProviderRule(
        "cufft",
        starts(r"(?:composite|regular|vector|multi_bluestein|bluestein)\w*_fft cufft realComplex_postprocess"),
        "cufft",
        "void composite_2way_fft<unsigned int=384, unsigned int=8>(kernel_arguments_t<unsigned int>)",
    ),
    ProviderRule(
        "rocfft", starts("fft_rtc_ rocfft"), "rocfft", "fft_rtc_fwd_len1024_factors_8_8_16_wgs_128_tpt_128_sp_ip_CI"
    ),
    ProviderRule(
        "cublas",
        either(
            starts(
                r"""nvjet_ (?:volta|turing|ampere|maxwell|pascal|kepler|hopper|ada|gk\d+|sm\d+)_\w*(?:gemm|gemv)
                cutlass::Kernel2?<cutlass_\d cutlass3x_ (?:internal::)?gemvx:: gemv gemmk1 gemmSN gemm_kernel2x2
                splitKreduce_kernel epilogue::impl dot_kernel reduce_1Block_kernel scal_kernel magma_[sh]gemmEx
                asum_kernel axpy_kernel nrm2_kernel copy_kernel< syrk trsm_batch_ ger_kernel gen_trmm
                internal::\w*gemm cublas"""
            ),
            any_of(r"\bcublas"),
        ),
        "cublas",
        "volta_sgemm_128x64_nn",
    ),
)

LIBRARIES: tuple[ProviderRule, ...] = (
    ProviderRule(
        "trtllm-gen",
        starts(r"fmhaSm\d+ bmm_\w*?(?:Bfloat16|Fp16|E4m3|E2m1|E5m2|Fp32|Int) gemm_(?:Bfloat16|Fp16|E4m3|E2m1)"),
        "trtllm",
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_c1x1x1_rM_TN_transOut",
        incumbent=_CLOSED,
        evidence="a trtllm-gen binary",
    ),
    ProviderRule("deep-gemm", r"\bdeep_gemm::", "deep_gemm", "void deep_gemm::fp8_gemm_kernel<4096u>(float*)"),
    ProviderRule(
        "trtllm-elsewhere",
        any_of("trtllm_dsv3 ^fused_a_gemm_kernel"),
        "trtllm",
        "void flashinfer::trtllm_dsv3_router_gemm::router_gemm_kernel<float>(float*)",
        evidence="TensorRT-LLM's kernel, shipped by another library",
    ),
    ProviderRule(
        "flashinfer-triton",
        whole(r"create_flashinfer_kv_indices\w*"),
        "triton",
        "create_flashinfer_kv_indices_triton",
    ),
    ProviderRule(
        "flashinfer",
        any_of("flashinfer"),
        "flashinfer",
        "void flashinfer::norm::RMSNormKernel<8, __half>(int)",
    ),
    ProviderRule(
        "trtllm",
        any_of(r"\btensorrt_llm:: ^trtllm ^tensorrt_llm ^moe::dev:: ^fmha_v2_ ^batchedGemm::"),
        "trtllm",
        "void moe::dev::routing::routingCustom::routingIndicesClusterKernel<int>(int)",
    ),
    ProviderRule(
        "transformer-engine-triton",
        whole(
            r"""_?permute_kernel _unpermute_kernel _sort_chunks_by_map_kernel _make_chunk_sort_map_kernel
            _row_id_map_\w+ online_softmax_kernel _unpermute_bwd_\w+ _permute_with_\w+"""
        ),
        "triton",
        "_sort_chunks_by_map_kernel",
        evidence="a Triton kernel of Transformer Engine",
    ),
    ProviderRule(
        "transformer-engine",
        any_of(
            r"""\btransformer_engine:: \bte:: \bnvte_ ^thd_ ^k?userbuffers ^moe_(?:un)?permute_(?:kernel|row_map)"""
        ),
        "transformer_engine",
        "void transformer_engine::cast_transpose_kernel<float>(float*)",
    ),
    ProviderRule(
        "fbgemm",
        any_of(
            r"""\bfbgemm_gpu:: \bfbgemm:: ^split_embedding embedding_codegen ^split_embeddings
            ^(?:\{anon\}::)?bounds_check_indices ^permute_(?:1D|2D|pooled|embeddings|indices|multi)_?\w*
            ^_?block_bucketize ^recat_ ^(?:\{anon\}::)?jagged_ linearize_(?:index|cache) lxu_cache ^lru_cache
            ^lfu_cache expand_into_jagged invert_permute ^dense_embedding at::to_dense_representation
            batched_unary_embeddings ^reorder_batched histogram_binning ^facebook:: ^fb:: \bnbit:: int_nbit_split
            find_long_segments delinearize_unique keyed_jagged ^multi_embs? segment_sum_csr ^grad_mean\w*_kernel
            ^pack_segments ^unpack_segments _kernel_quantize_fp8 _kernel_matmul_fp8 \bmslk:: ^embedding_ops::
            ^index_select:: batch_index_select_dim0 _mx4(?:_|$) ^(?:\{anon\}::)?(?:lru|lfu|direct_mapped)_
            ^split_rowwise generate_vbe_metadata reset_weight_momentum ^warp_per_row ^ssd_embedding ^mx4_ ^dram_kv"""
        ),
        "fbgemm",
        "void split_embedding_codegen_forward_unweighted_kernel<float>(int)",
    ),
    ProviderRule(
        "marlin", any_of("marlin Marlin machete Machete"), "marlin", "void marlin::Marlin<256, 4>(int4 const*)"
    ),
    ProviderRule(
        "bitsandbytes",
        starts(
            r"""kgemm_4bit kgemv_4bit gemm_4bit_ kDequantize kQuantize kOptimizer kPreconditionOptimizer
            kPercentileClipping kEstimateQuantiles kgemm_\w*bit kInt8VectorQuant kdequant_mm_int32 kspmm_csr_very
            kCompressMax kHistogramScatter kDoubleRowColQuant kTransformRowToFormat kExtractOutliers
            kgetColRowStats k_?func"""
        ),
        "bitsandbytes",
        "kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*)",
    ),
    ProviderRule(
        "apex",
        either(
            starts(
                r"""multi_tensor_apply_kernel cuApplyLayerNorm cuComputeGradInput cuComputePartGradGammaBeta
                cuComputeGradGammaBeta cuApplyRMSNorm layer_norm::ln_ layer_norm::rmsnorm ln_(?:fwd|bwd)_
                distributed_lamb cunn_SoftMaxXEntropy
                (?:\{anon\}::)?scaled_(?:masked_|upper_triang_masked_|aligned_causal_masked_)?softmax_warp
                fmha_(?:fprop|dgrad)"""
            ),
            any_of(r"\bapex:: \bDistributedLamb"),
        ),
        "apex",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
    ),
    ProviderRule(
        "mamba",
        either(
            starts(
                """selective_scan_(?:fwd|bwd) causal_conv1d_ _selective_scan_update
                _(?:chunk_(?:scan|state|cumsum)|state_passing|bmm_chunk)"""
            ),
            any_of("Selective_Scan Causal_conv1d"),
            whole("_layer_norm_(?:fwd|bwd)_1pass_kernel"),
        ),
        "mamba",
        "_state_passing_fwd_kernel",
    ),
    ProviderRule(
        "liger",
        either(
            any_of("^_?liger_ [lL]iger"),
            whole(
                r"""_(?:rms_norm|layer_norm|group_norm|swiglu|geglu|geglu_tanh|fused_add_rms_norm|poly_norm|tiled_\w+)_(?:forward|backward)_kernel
                _block_rms_norm_(?:forward|backward)_kernel
                _triton_(?:rope|qwen2vl_mrope|llama4_rope|multimodal_rope)\w* _jsd_kernel
                _kldiv_kernel_(?:forward|backward) _tv_distance_kernel _dyt_(?:fwd|bwd)_kernel
                _sparsemax_(?:forward|backward)_kernel _softmax_(?:single|multi)_block_(?:forward|backward)_kernel
                _selective_log_softmax_kernel _grpo_loss_(?:fwd|bwd)_kernel"""
            ),
        ),
        "liger",
        "_rms_norm_forward_kernel",
    ),
    ProviderRule(
        "quack",
        any_of(r"^quack ^kernel_cutlass_\w*quack"),
        "quack",
        "kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensor",
    ),
    ProviderRule(
        "flash-linear-attention",
        whole(
            r"""chunk_\w+_kernel\w* chunk_\w+_kernel_\w+ fused_(?:recurrent|chunk|gdn|kda|sigmoid_gating_delta)\w*
            recompute_w_u\w* solve_tril\w* merge_16x16\w* l2norm_(?:fwd|bwd)\w* prepare_wy\w* layer_norm_gated\w*
            parallel_(?:attn|delta|nsa)\w*"""
        ),
        "triton",
        "chunk_fwd_kernel_o",
        evidence="flash-linear-attention",
    ),
    ProviderRule(
        "tilelang",
        any_of(r"tilelang ^tl_\w+_kernel ^main_kernel$"),
        "tilelang",
        "mhc_pre_big_fuse_with_norm_tilelang_kernel",
    ),
    ProviderRule(
        "aiter",
        either(
            any_of(r"\baiter:: ^aiter sageattn"),
            starts(
                r"""_?sage_ fmoe_ flatmm_ fmha_(?:fwd|bwd)_hd\d+_ mla_(?:stage|a8|dec|pfl|a16)\w* f4gemm_ bf16gemm_
                fp8gemm_ i8gemm_ asm_(?:moe|pa|mla|fmha|layernorm|topk) pa_(?:bf16|fp8|fp16|a16w\d)_
                dynamic_per_group_scaled_quant_kernel"""
            ),
        ),
        "aiter",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_",
    ),
    ProviderRule(
        "ck",
        any_of("^ck(?:_tile)?:: ^std::enable_if<[^>]*ck_tile::"),
        "ck",
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEE",
    ),
    ProviderRule(
        "aten-cutlass",
        any_of(r"\bat::cuda::detail::enable_\dx_kernel ^at::native::\S*cutlass"),
        "aten",
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::Gemm>>(int)",
        evidence="CUTLASS instantiated by ATen",
    ),
    ProviderRule(
        "torch-sparse",
        either(
            any_of("torch_sparse torch_scatter"),
            starts("spmm_kernel segment_csr_kernel segment_coo_kernel scatter_kernel<"),
        ),
        "torch_sparse",
        "void spmm_kernel<float, 0, true>(long const*)",
    ),
    ProviderRule(
        "vllm",
        either(
            any_of(r"\bvllm:: ^vllm ^_?awq_ ^gemm_forward_4bit ^dequantize_weights"),
            starts(
                r"""paged_attention_ll4mi paged_attention_v[12]_ per_token_group_quant_8bit_kernel<c10::\w+,\sc10
                wvSplitK LLGemm"""
            ),
            whole("moe_sum_kernel"),
        ),
        "vllm",
        "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)",
    ),
    ProviderRule(
        "vllm-or-sglang",
        starts(
            r"""sgl_hip:: moe_align_block_size cvt_fp16_to_fp4 (?:block_scaled_)?cvt_fp16 count_and_sort_expert_tokens
            topkGatingSoftmax moe_fused_gate rotary_embedding_kernel< merge_attn_states_kernel moe_wna16_gemm
            __\w*get_group_gemm_starts get_group_gemm_starts (?:fp32_)?router_gemm_kernel compute_arg_sorts"""
        ),
        "vllm_or_sglang",
        "void moe_align_block_size_kernel<int>(int const*)",
    ),
    ProviderRule(
        "sglang",
        either(
            any_of(r"sglang ^sgl\w*:: ^expert_specialization::"),
            starts(
                r"""\{anon\}::(?:act_and_mul|resolve_future|clamp_position|per_token_group_quant|qk_?norm|fused_|all_reduce_\w*_p(?:ush|ull))
                per_token_group_quant_8bit_kernel moeTopK compute_expert_(?:offsets|blockscale)
                apply_shuffle_mul_sum per_token_quant_fp8 per_tensor_quant_fp8 per_tensor_absmax fast_topk
                fused_qknorm moe_sum_reduce_kernel tinygemm_kernel write_req_to_token assign_(?:req|extend|draft)
                get_last_loc compute_position compute_problem_sizes"""
            ),
            whole(r"(?:pre|post)_reorder_\w*triton\w* compute_src2dst\w* compute_seg_indptr\w* deepep_\w+"),
        ),
        "sglang",
        "void moeTopK<256>(float const*)",
    ),
    ProviderRule("gloo", starts("gloo::"), "gloo", "gloo::_Kernel_float_cudaSum(float*, float const*, int)"),
    ProviderRule("nvjpeg", starts("nvjpeg:: culj92::"), "nvjpeg", "nvjpeg::merge_yuv_to_yuy2_kernel(int)"),
    ProviderRule("rtp-llm", any_of("rtp_llm"), "rtp_llm", "void rtp_llm::rmsnorm<float>(float*)"),
    ProviderRule(
        "ggml",
        any_of(r"^ggml_ mul_mat_(?:vec_)?q ^moe_q\d_ ^dequantize_block_i?q\d ^quantize_q8"),
        "ggml",
        "void mul_mat_vec_q<256, 32>(void const*)",
    ),
    ProviderRule(
        "cutlass",
        starts(r"cutlass\w*:: kernel_cutlass"),
        "cutlass",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEEEEE",
    ),
    ProviderRule(
        "cub",
        any_of(r"^(?:\w+::)?cub:: ^thrust:: ^at_cuda_detail::"),
        "cub",
        "void cub::DeviceRadixSortOnesweepKernel<int>(int)",
    ),
    ProviderRule(
        "rocprim",
        starts("rocprim:: hipcub::"),
        "rocprim",
        "void rocprim::ROCPRIM_400001_NS::detail::onesweep_iteration_kernel<int>(int)",
    ),
    ProviderRule(
        "torchvision",
        starts(r"vision::ops:: (?:\{anon\}::)?(?:roi_align|roi_pool|ps_roi|nms_kernel_impl|deformable_im2col)"),
        "torchvision",
        "void vision::ops::(anonymous namespace)::nms_kernel_impl<float>(int)",
    ),
    ProviderRule(
        "aten",
        either(
            any_of(r"\bat::native:: ^at::(?:cuda::)? ^c10d?:: ^torch:: ^symm_mem"),
            starts(
                r"""\{anon\}::softmax_warp \{anon\}::cunn_ \{anon\}::elementwise_kernel_with_index \{anon\}::multimem_
                \{anon\}::one_shot \{anon\}::two_shot \{anon\}::barrier \{anon\}::conv_depthwise
                \{anon\}::indexing_backward \{anon\}::randperm \{anon\}::lpnorm compute_cuda_kernel"""
            ),
            whole(r"reduction_\w+_kernel\w* \w+_kernel_vectorized\d* \w+_jitted"),
        ),
        "aten",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*)",
    ),
    ProviderRule(
        "user-kernel",
        any_of(r"^\w+_detail:: ^matmul_v\d"),
        "user",
        "void matmul_v7_kernel_cutlass<256>(CUtensorMap_st)",
    ),
    ProviderRule(
        "triton-known",
        either(
            whole(
                r"""fused_moe_kernel\w* _?p?_?matmul_ogs\w* kernel_unified_attention\w* reduce_segments\w*
                scaled_\w*matmul_kernel\w* reshape_and_cache_kernel_flash cross_entropy_kernel element_mul_kernel
                qkv_(?:reduce|phase\d)_kernel"""
            ),
            any_of("_triton(?:_|$) ^triton_"),
        ),
        "triton",
        "kernel_unified_attention_2d",
    ),
    ProviderRule(
        "triton-style",
        r"^_[a-z]\w*$",
        "triton",
        "_some_private_function",
        evidence="a bare name with a leading underscore, as Python functions compiled by Triton have",
    ),
)

PROVIDER_RULES: tuple[ProviderRule, ...] = (
    *DRIVER_AND_COMMUNICATION,
    *COMPILERS,
    *ATTENTION,
    *VENDOR,
    *LIBRARIES,
)
"""The built-in table, in the order in which it is tried."""

INCUMBENTS: dict[str, Incumbent] = {
    # What runs is the vendor's precompiled library. AMD and Intel publish the source of theirs; it is still the
    # vendor's library that a replacement has to beat, so one word covers the three vendors.
    **dict.fromkeys(("cublas", "cudnn", "cudnn_sdpa", "cusolver", "cusparse", "cufft", "nvjpeg"), _CLOSED),
    **dict.fromkeys(("rocblas", "hipblaslt", "miopen", "rocfft", "mkl", "onednn"), _CLOSED),
    **dict.fromkeys(("flash_attn_2", "flash_attn_3", "flash_attn_4", "flashmla", "mem_efficient", "xformers"), _TUNED),
    **dict.fromkeys(("natten", "aotriton", "fbgemm", "cutlass", "ck", "cub", "rocprim", "trtllm", "deep_gemm"), _TUNED),
    **dict.fromkeys(
        ("flashinfer", "vllm", "sglang", "vllm_or_sglang", "aiter", "marlin", "bitsandbytes", "apex"), _TUNED
    ),
    **dict.fromkeys(("mamba", "liger", "quack", "triton", "tilelang", "transformer_engine", "torch_sparse"), _TUNED),
    **dict.fromkeys(("magma", "rtp_llm", "ggml", "torchao"), _TUNED),
    **dict.fromkeys(("inductor", "xla"), Incumbent.COMPILER),
    **dict.fromkeys(("aten", "aten_cpu", "torchvision", "user"), _GENERIC),
    **dict.fromkeys(("cuda_driver", "nccl", "rccl", "gloo", "nvshmem", "deep_ep", "aten_dispatch"), _SYSTEM),
}
"""How hard each provider is to beat; a provider that is not named is unknown."""
