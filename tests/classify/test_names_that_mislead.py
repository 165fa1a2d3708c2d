"""Kernel names whose words point to the wrong class, and what resolves them."""

from __future__ import annotations

import pytest

from addrfrac.classify import classify_name
from addrfrac.records import Certainty, Op, Role

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 2ul> >(int, {})"


@pytest.mark.parametrize(
    ("name", "op", "provider"),
    [
        # gemm
        (
            "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_execute_kernel__5x_cudnn",
            "conv",
            "cudnn",
        ),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", "gather_scatter", "fbgemm"),
        # nll
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x96x128_ONLL1_PGR2", "gemm", "hipblaslt"),
        # relu
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x4_tn", "gemm", "cublas"),
        ("cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1", "conv", "cudnn"),
        # elementwise
        (
            "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<int>>(int)",
            "gather_scatter",
            "aten",
        ),
        ("void at::native::_scatter_gather_elementwise_kernel<128, 4, int>(int)", "gather_scatter", "aten"),
        (
            ELEMENTWISE.format("at::native::mse_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}", "int"),
            "loss",
            "aten",
        ),
        (
            ELEMENTWISE.format("at::native::bfloat16_copy_kernel_cuda(int)::{lambda(float)#1}", "int"),
            "copy_layout",
            "aten",
        ),
        (
            "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(int)",
            "rng",
            "aten",
        ),
        # reduce
        ("void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)", "gemm", "cublas"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "nccl"),
        (
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)",
            "loss",
            "aten",
        ),
        # copy
        ("triton_poi_fused__to_copy_add_mul_12", "elementwise", "inductor"),
        # flash
        ("void flashinfer::norm::RMSNormKernel<8u, __half>(int)", "normalization", "flashinfer"),
        ("void flashinfer::sampling::TopPSamplingFromProbKernel<1024>(float*)", "sampling", "flashinfer"),
        ("reshape_and_cache_kernel_flash", "kv_cache", "triton"),
        # attention
        ("triton_poi_fused__scaled_dot_product_flash_attention_4", "copy_layout", "inductor"),
        # dot
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(int)", "attention", "flash_attn_2"),
        # cutlass
        (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<int>::Params)",
            "attention",
            "mem_efficient",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(int)",
            "attention",
            "flash_attn_3",
        ),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x64_32x3_nhwc_align4>(int)",
            "conv",
            "cudnn",
        ),
        (
            "kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16gm",
            "normalization",
            "flashinfer",
        ),
        # exp
        ("cudnn_infer_volta_scudnn_128x32_sliced1x4_ldg4_relu_exp_small_nhwc_tn_v1", "conv", "cudnn"),
        # norm: distribution_normal, lpnorm
        (
            ELEMENTWISE.format("at::native::templates::cuda::normal_kernel<float>(int)::{lambda()#1}", "int"),
            "rng",
            "aten",
        ),
        (
            "void at::native::multi_tensor_apply_kernel<T, at::native::LpNormFunctor<float>>(int)",
            "reduction",
            "aten",
        ),
        # index: cudnn's expanded index mode; conv: convertTensor; sort: TensorTransform
        ("void tensorTransformGeneric<__nv_bfloat16, float, true>(cudnnTensorTransformStruct)", "conv", "cudnn"),
        ("void cudnn::ops::convertTensor_kernel<float, float>(float)", "conv", "cudnn"),
        # embedding
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "rope", "vllm"),
        # adam
        ("void fast_hadamard_transform_kernel<int>(HadamardParamsBase)", "quantization", "unknown"),
        # functor traps
        (
            ELEMENTWISE.format(
                "at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", "int"
            ),
            "elementwise",
            "aten",
        ),
        (
            ELEMENTWISE.format(
                "at::native::(anonymous namespace)::GroupNormKernelImplInternal<float>(int)::{lambda()#1}", "int"
            ),
            "normalization",
            "aten",
        ),
        ("reduction_prod_kernel", "reduction", "aten"),
    ],
)
def test_a_misleading_word_does_not_decide(name: str, op: str, provider: str) -> None:
    label = classify_name(name)
    assert (label.op, label.provider, label.is_catch_all) == (op, provider, False)


@pytest.mark.parametrize(
    ("name", "launching_op", "op", "role"),
    [
        ("volta_sgemm_64x64_nt", "aten::cudnn_convolution", Op.CONV, Role.MAIN),
        ("volta_sgemm_64x64_nt", "aten::addmm", Op.GEMM, Role.MAIN),
        ("nvjet_sm90_hsh_128x96_64x7_2x1_v_bz_TNT", "aten::convolution_backward", Op.CONV, Role.MAIN),
        ("Cijk_Ailk_Bljk_BBS_BH_MT32x64x64_MI16x16x16x1", "aten::miopen_convolution", Op.CONV, Role.MAIN),
        ("void fft2d_r2c_32x32<float, false, 5u, true>(float2*)", "aten::cudnn_convolution", Op.CONV, Role.MAIN),
        ("void fft2d_r2c_32x32<float, false, 5u, true>(float2*)", "aten::_fft_r2c", Op.FFT, Role.MAIN),
        ("void cutlass::device_kernel<", "aten::_scaled_mm", Op.GEMM, Role.MAIN),
        ("void cutlass::device_kernel<", "flash_attn_3::fwd", Op.ATTENTION, Role.MAIN),
        ("void splitKreduce_kernel<32, 16, int, float>(int)", "aten::addmm", Op.GEMM, Role.AUX),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(int)", "aten::cudnn_convolution", Op.CONV, Role.AUX),
        (
            "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<int>(int)",
            "aten::nonzero",
            Op.GATHER_SCATTER,
            Role.MAIN,
        ),
        ("void cub::DeviceRadixSortOnesweepKernel<int>(int)", "aten::sort", Op.SORT_TOPK, Role.MAIN),
        (
            "void cub::DeviceRadixSortOnesweepKernel<int>(int)",
            "aten::embedding_dense_backward",
            Op.EMBEDDING,
            Role.MAIN,
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)",
            "aten::_softmax",
            Op.SOFTMAX,
            Role.MAIN,
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
            "aten::_log_softmax",
            Op.LOSS,
            Role.MAIN,
        ),
    ],
)
def test_the_launching_op_resolves_what_the_name_cannot(name: str, launching_op: str, op: Op, role: Role) -> None:
    label = classify_name(name, launching_op)
    assert (label.op, label.role) == (op, role)
    assert label.certainty in (Certainty.AGREE, Certainty.OP)


def test_a_cutlass_kernel_cut_before_its_first_argument_is_unknown_without_an_op() -> None:
    assert classify_name("void cutlass::device_kernel<").is_catch_all


def test_a_driver_copy_inside_a_library_op_stays_a_copy() -> None:
    label = classify_name("Memcpy DtoD (Device -> Device)", "aten::cudnn_convolution")
    assert (label.op, label.provider) == (Op.MEMCPY, "cuda_driver")


def test_a_vision_kernel_that_fits_no_class_is_known_all_the_same() -> None:
    label = classify_name("void vision::ops::(anonymous namespace)::nms_kernel_impl<float>(int)", "torchvision::nms")
    assert (label.op, label.provider, label.is_catch_all) == (Op.OTHER, "torchvision", False)
