"""Owners and classes of kernels from libraries, compilers and GPU generations beyond the labelled table."""

from __future__ import annotations

import re

import pytest

from addrfrac.classify import BUILT_IN, classify_name
from addrfrac.records import Incumbent


@pytest.mark.parametrize(
    ("name", "op", "provider"),
    [
        # newer vendor names
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "gemm", "cublas"),
        ("nvjet_sm120_tst_mma_64x64x64_6_32x16x64_tmaAB_alignCD4_splitK_NTNN", "gemm", "cublas"),
        ("cutlass3x_sm100_bstensorop_s256x256x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32", "gemm", "cublas"),
        (
            "sm90_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel__5x_cudnn",
            "conv",
            "cudnn",
        ),
        ("cudnn_generated_fort_native_sdpa_sm100_flash_bprop_f16_knob_1_128x128_cga2x1x1", "attention", "cudnn_sdpa"),
        # communication
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "communication", "nccl"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(int)", "communication", "aten"),
        ("void deep_ep::internode_ll::combine<false, 7168, 9, 8>(void*)", "communication", "deep_ep"),
        ("nvshmemi_transfer_rmem_block", "communication", "nvshmem"),
        # serving engines
        (
            "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(int)",
            "elementwise",
            "vllm",
        ),
        ("void moe_sum_reduce_kernel_warp_token_topk<c10::Half, 8, 4>(c10::Half const*)", "moe_routing", "sglang"),
        ("void tensorrt_llm::kernels::fusedQKNormRopeKernel<128>(int)", "rope", "trtllm"),
        (
            "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128PersistentContext",
            "attention",
            "trtllm",
        ),
        ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<int>(int)", "attention", "flashinfer"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168u, 4096u>(float*)", "gemm", "deep_gemm"),
        ("void marlin::Marlin<256, 1, 8, 8, 4, 8>(int4 const*)", "gemm", "marlin"),
        # training libraries
        ("_rms_norm_forward_kernel", "normalization", "liger"),
        ("_swiglu_forward_kernel", "elementwise", "liger"),
        ("liger_cross_entropy_kernel", "loss", "liger"),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "linear_attention", "triton"),
        (
            "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 4>>(SSMParamsBase)",
            "linear_attention",
            "mamba",
        ),
        ("kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>", "quantization", "bitsandbytes"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)", "optimizer", "apex"),
        ("void transformer_engine::fused_rope_forward_kernel<float>(float*)", "rope", "transformer_engine"),
        (
            "void transformer_engine::detail::cast_transpose_fused_kernel_notaligned<int>(int)",
            "copy_layout",
            "transformer_engine",
        ),
        ("kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensor", "normalization", "quack"),
        ("void xformers::sp24::sparse24_sparsify_both_ways_kernel<int>(int)", "other", "xformers"),
        ("void split_embedding_codegen_forward_unweighted_kernel<float, float>(int)", "embedding", "fbgemm"),
        # ROCm
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1_SN_1LDSB0", "gemm", "rocblas"),
        (
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmEEE",
            "conv",
            "miopen",
        ),
        ("_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE.kd", "attention", "aiter"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8", "conv", "miopen"),
        ("__amd_rocclr_copyBuffer", "memcpy", "cuda_driver"),
        ("__amd_rocclr_fillBufferAligned.kd", "memset", "cuda_driver"),
        # XLA
        ("loop_add_fusion_7", "elementwise", "xla"),
        ("input_multiply_reduce_fusion_3", "reduction", "xla"),
        ("gemm_fusion_dot_12", "gemm", "xla"),
        ("MemcpyD2D", "memcpy", "cuda_driver"),
        # spellings of copies
        ("[CUDA memcpy HtoD]", "memcpy", "cuda_driver"),
        ("Memcpy PtoP (Device -> Device)", "memcpy", "cuda_driver"),
        ("[CUDA memset]", "memset", "cuda_driver"),
    ],
)
def test_a_family_has_its_class_and_owner(name: str, op: str, provider: str) -> None:
    label = classify_name(name)
    assert label.provider == provider
    assert label.op == op
    assert label.incumbent is not Incumbent.UNKNOWN


def test_flash_attention_in_pytorch_and_from_pip_are_one_provider_told_apart_by_evidence() -> None:
    bundled = classify_name("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>(int)")
    package = classify_name("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(flash::Flash_fwd_params)")
    assert bundled.provider == package.provider == "flash_attn_2"
    assert any("bundled in PyTorch" in fact for fact in bundled.evidence)
    assert not any("bundled in PyTorch" in fact for fact in package.evidence)


def test_a_trtllm_gen_binary_is_closed_and_its_open_kernels_are_not() -> None:
    assert classify_name("bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128_s8_et64x8_m64x8x32").incumbent is Incumbent.CLOSED
    assert classify_name("void moe::dev::finalize::finalizeKernel<int>(int)").incumbent is Incumbent.TUNED


@pytest.mark.parametrize(
    "name", ["kernel", "frobnicate", "void (anonymous namespace)::mystery<3>(int)", "CompletelyUnknownThing"]
)
def test_an_unknown_name_is_not_guessed(name: str) -> None:
    label = classify_name(name)
    assert label.is_catch_all
    assert label.op_rule in ("no rule", "aten-other")


def test_an_unknown_aten_kernel_is_rescued_by_its_op() -> None:
    name = "void at::native::(anonymous namespace)::frobnicate_kernel<float>(float*)"
    assert classify_name(name).is_catch_all
    rescued = classify_name(name, "aten::native_layer_norm")
    assert (rescued.op, rescued.is_catch_all) == ("normalization", False)


def test_a_bare_elementwise_launcher_is_unknown_until_an_op_says_what_it_computes() -> None:
    bare = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl"
    assert classify_name(bare).is_catch_all
    assert classify_name(bare, "aten::add").is_catch_all is False


def test_the_namespace_of_a_custom_op_tells_the_owner_that_the_name_does_not() -> None:
    label = classify_name(
        "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16>(int)", "aiter::_groupnorm_run"
    )
    assert (label.op, label.provider, label.provider_rule) == (
        "normalization",
        "aiter",
        "namespace of the launching op",
    )


def test_every_provider_of_the_labelled_families_exists() -> None:
    families = """aten inductor cublas trtllm cudnn hipblaslt miopen triton fbgemm vllm flashinfer cub flash_attn_2
    sglang aiter rocprim mem_efficient cudnn_sdpa ck rocblas cuda_driver flash_attn_3 flash_attn_4 nccl deep_gemm
    vllm_or_sglang cusolver marlin deep_ep cusparse mamba flashmla bitsandbytes apex aotriton user tilelang cufft
    cutlass torchvision torch_sparse transformer_engine rtp_llm"""
    assert set(re.split(r"\s+", families)) <= set(BUILT_IN.incumbents)
