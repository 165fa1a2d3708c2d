"""What ATen's own kernels compute: the functor inside the pointwise launchers decides, then the function's name.

Traps: div by a scalar launches MulFunctor, sub launches CUDAFunctor_add, threshold is relu's backward, GroupNorm and
batch-norm helpers and fake quantisation run inside elementwise launchers.
"""

from __future__ import annotations

from addrfrac.classify.patterns import ELEMENTWISE, functor, inside, whole
from addrfrac.classify.rules import OpRule
from addrfrac.records import Op

ANYTHING = frozenset(Op)

FUNCTORS: tuple[OpRule, ...] = (
    OpRule(
        "norm-functor",
        functor("Group_?Norm batch_norm layer_norm InstanceNorm weight_norm renorm"),
        Op.NORMALIZATION,
        "void at::native::elementwise_kernel_manual_unroll<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::(anonymous namespace)::GroupNormKernelImplInternal<float>(int)::{lambda(float)#1}> >(int)",
    ),
    OpRule(
        "loss-functor",
        functor(r"mse_\w+ huber smooth_l1 binary_cross_entropy bce_ kl_div l1_loss nll_loss hinge \w+_loss"),
        Op.LOSS,
        "void at::native::vectorized_elementwise_kernel<4, at::native::mse_kernel_cuda(at::TensorIteratorBase&)"
        "::{lambda()#1}, std::array<char*, 3> >(int)",
    ),
    OpRule(
        "quantise-functor",
        functor("fake_quant _fake_quantize quantize_ dequantize_"),
        Op.QUANTIZATION,
        "void at::native::vectorized_elementwise_kernel<4, at::native::fake_quantize_tensor_cachemask_kernel_cuda("
        "at::Tensor&)::{lambda()#1}, std::array<char*, 2ul> >(int)",
    ),
    OpRule(
        "copy-functor",
        functor(r"direct_copy_kernel \w*_copy_kernel copy_kernel flip_kernel roll_cuda Copy(?:Functor)?<"),
        Op.COPY_LAYOUT,
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
        "::{lambda()#2}, at::detail::Array<char*, 2> >(int)",
    ),
    OpRule(
        "rng-functor",
        functor(
            """bernoulli uniform normal_kernel exponential_kernel random_from_to cauchy geometric log_normal philox"""
        ),
        Op.RNG,
        "void at::native::vectorized_elementwise_kernel<4, at::native::templates::cuda::bernoulli_scalar_kernel<float>"
        "(int)::{lambda()#1}, std::array<char*, 2> >(int)",
    ),
    OpRule(
        "sort-functor",
        functor("searchsorted bucketize"),
        Op.SORT_TOPK,
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::bucketize_f<float>, "
        "std::array<char*, 2> >(int)",
    ),
    OpRule(
        "index-functor",
        functor(
            """index_(?:kernel|put|copy|fill|select) masked_scatter take_kernel put_kernel gather scatter jagged
            permute_[12]D"""
        ),
        Op.GATHER_SCATTER,
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::index_put_kernel(int)"
        "::{lambda()#1}> >(int)",
    ),
    OpRule(
        "rnn-functor",
        functor("lstm LSTM gru_ GRU"),
        Op.RNN,
        "void at::native::vectorized_elementwise_kernel<4, at::native::lstm_cell<float>, std::array<char*, 2> >(int)",
    ),
    OpRule(
        "resample-functor",
        functor("upsample grid_sampl affine_grid"),
        Op.RESAMPLE,
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::upsample_gen2d(int)"
        "::{lambda()#1}> >(int)",
    ),
    OpRule(
        "optimizer-functor",
        functor("_amp_ amp_non_finite adam sgd_"),
        Op.OPTIMIZER,
        "void at::native::vectorized_elementwise_kernel<4, at::native::_amp_update_scale(at::Tensor&)::{lambda()#1}, "
        "std::array<char*, 2> >(int)",
    ),
    OpRule(  # any other functor of ATen's: pointwise by construction
        "elementwise-functor",
        functor(r"(?:\{anon\}::|\w+::)+(?!gpu_kernel_impl|TensorIterator|[aA]rray|Load|Store)\w{3,}(?=[<(,>]|::\{)"),
        Op.ELEMENTWISE,
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >(int)",
    ),
    OpRule(  # cut before the functor, or a functor of somebody else's
        "elementwise-bare",
        ELEMENTWISE,
        Op.ELEMENTWISE,
        "void at::native::vectorized_elementwise_kernel<4, ",
        is_catch_all=True,
        could_be=ANYTHING,
    ),
)

_REDUCED_FOR = frozenset({Op.LOSS, Op.NORMALIZATION, Op.OPTIMIZER, Op.EMBEDDING, Op.GATHER_SCATTER})

NAMED: tuple[OpRule, ...] = (
    OpRule(
        "reduce",
        r"^at::native::(?:\{anon\}::)?(?:reduce_kernel|lpnorm\w*|lpmax\w*|_?aminmax\w*|[cp]dist\w*|\w*reduction\w*)\b",
        Op.REDUCTION,
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>"
        ", unsigned int, float, 4> >(int)",
        could_be=_REDUCED_FOR,
    ),
    OpRule(
        "cat",
        inside(
            r"""CatArrayBatchedCopy CatArr parallel_cat split_with_sizes chunk_cat fsdp_\w*copy concat_ Concat _cat_
            stack_kernel"""
        ),
        Op.COPY_LAYOUT,
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*)",
    ),
    OpRule(
        "pointwise-named",
        inside(
            r"""elementwise_kernel_with_index arange linspace triu_tril tril_indices triu_indices \bglu_backward
            rrelu_with_noise kernelPointwiseApply \bapply_kernel _elemwise_kernel transform_bias_rescale_qkv
            op_dense_esuhm cross_kernel transform_vals jagged_dense\w*elementwise polar checkForNaN _assert_async"""
        ),
        Op.ELEMENTWISE,
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>(int)",
    ),
    OpRule(
        "jitted-reduction",
        whole(r"reduction_\w+_kernel\w*"),
        Op.REDUCTION,
        "reduction_prod_kernel",
    ),
    OpRule(
        "jitted-pointwise",
        whole(r"\w+_kernel_vectorized\d* \w+_jitted \w+_kernel_dynamic"),
        Op.ELEMENTWISE,
        "erfcx_kernel_vectorized4",
    ),
)
