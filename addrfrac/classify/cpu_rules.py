# ruff: noqa: E501
"""Whose code a CPU operator's own time is: an ordered table, first match wins.

In a CPU trace the operators stand for kernels. The self time of a wrapper (aten::conv2d, aten::to, a view, an allocation,
an autograd node) is dispatch: no kernel could be put in its place, so it counts as system.
"""

from __future__ import annotations

import re

from addrfrac.classify.rules import StackRule

_WRAPPERS = (
    r"aten::(?:linear|matmul|einsum|conv[123]d|conv_transpose[123]d|convolution|_convolution|_convolution_mode|convolution_backward_overrideable|batch_norm|_batch_norm_impl_index\w*|"
    r"layer_norm|group_norm|instance_norm|rms_norm|embedding|embedding_bag|embedding_backward|max_pool[123]d|adaptive_avg_pool[123]d|adaptive_max_pool[123]d|softmax|log_softmax|"
    r"cross_entropy_loss|nll_loss|nll_loss_nd|dropout|scaled_dot_product_attention|to|_to_copy|type|type_as|contiguous|clone|zeros|zeros_like|ones|ones_like|full|full_like|new_zeros|new_ones|new_full|"
    r"rand|randn|randint|rand_like|randn_like|scalar_tensor|arange_wrapper|index_select_wrapper|tensordot|outer|inner|stack|hstack|vstack|dstack|concat|concatenate|repeat|tile|pad|upsample|"
    r"binary_cross_entropy_with_logits|multi_head_attention_forward|_thnn_wrapper|lstm|gru|rnn_tanh|rnn_relu|conv_tbc|linalg_norm|norm_wrapper|true_divide|argsort|msort|"
    r"empty\w*|view\w*|_unsafe_view|reshape|_reshape_alias|as_strided\w*|expand|expand_as|transpose|t|permute|select|slice|narrow|squeeze|unsqueeze|flatten|unflatten|unbind|chunk|split|split_with_sizes|"
    r"unsafe_chunk|unsafe_split\w*|detach|alias|resize\w*|set|item|_local_scalar_dense|lift\w*|result_type|movedim|swapaxes|is_\w+|size|stride|numel|broadcast_\w+|meshgrid|atleast_\w+|resolve_\w+|"
    r"_conj|_neg_view|ravel|pin_memory|record_stream|_has_\w+|sym_\w+|tensor_split|hsplit|vsplit|numpy_T|mT|mH|_fused_sdp_choice|cudnn_is_acceptable|_nnpack_available|promote_types|can_cast|"
    r"values|indices|requires_grad_?|_version|data|retain_grad|rename_?|real|imag|swapdims|squeeze_|unsqueeze_|transpose_|detach_|resize_|t_|set_|as_strided_|_pack_padded_sequence|choose_qparams_optimized)"
)

CPU_RULES: tuple[tuple[str, str, str], ...] = (
    (
        "onednn",
        r"(?:aten::(?:_?mkldnn_\w+|\w*mkldnn\w*)|mkldnn::.*|mkldnn_prepacked::.*|onednn::.*|quantized::(?:conv|linear)\w*|torch_ipex::.*)",
        "onednn",
    ),
    ("mkl-linear", r"mkl::.*|aten::_?mkl_\w+", "mkl"),
    ("blas", r"aten::(?:mm|addmm|_addmm_activation|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|addr|ger)_?", "mkl"),
    (
        "lapack",
        r"aten::(?:_?linalg_(?!vector_norm|norm|cross|vecdot|diagonal|matrix_norm)\w+|triangular_solve\w*|cholesky\w*|_cholesky\w*|lu_\w+|_lu\w*|lstsq|geqrf|ormqr|orgqr|inverse|svd|qr|det|logdet|slogdet)",
        "mkl",
    ),
    ("mkl-fft", r"aten::_fft_\w+", "mkl"),
    (
        "fbgemm",
        r"fbgemm::.*|fb::.*|quantized::.*|aten::_?embedding_bag(?:_forward_only)?_?$|aten::_embedding_bag\w*|.*(?:SplitLookupFunction|split_embedding|IntNBit).*",
        "fbgemm",
    ),
    ("torchvision", r"torchvision::.*", "torchvision"),
    ("wrapper", _WRAPPERS + r"_?", "aten_dispatch"),
    (
        "frame",
        r"(?:autograd::engine::|torch::autograd::|Optimizer\.|ProfilerStep#|enumerate\(DataLoader\)|Torch-Compiled Region|CompiledFunction|## Call|Activity Buffer|TorchDynamo|Pregraph|Call ).*|\w+Backward\d*|\[memory\]",
        "aten_dispatch",
    ),
    ("aten", r"(?:aten|prims)::.*", "aten_cpu"),
)
"""(rule, pattern for the whole name, provider)."""

_COMPILED = tuple((name, re.compile(pattern), provider) for name, pattern, provider in CPU_RULES)


def cpu_provider(name: str, own: StackRule | None) -> tuple[str, str]:
    """(provider, rule) of an operator's own time; an op that says nothing itself is dispatch."""
    for rule, pattern, provider in _COMPILED:
        if pattern.fullmatch(name):
            if provider == "aten_cpu" and own is not None and own.op is None:
                return "aten_dispatch", "composite"
            return provider, rule
    if "::" not in name and (own is None or own.op is None):
        return "aten_dispatch", "not an operator"
    return "unknown", "no rule"
