"""Whose code a CPU operator's own time is: an ordered table, first match wins.

In a CPU trace the operators stand for kernels. The self time of a wrapper (aten::conv2d, aten::to, a view, an
allocation, an autograd node) is dispatch: no kernel could be put in its place, so it counts as system.
"""

from __future__ import annotations

import re

from addrfrac.classify.patterns import any_of
from addrfrac.classify.rules import StackRule

_LAPACK = any_of(
    r"""_?linalg_(?!vector_norm|norm|cross|vecdot|diagonal|matrix_norm)\w+ triangular_solve\w* _?cholesky\w* lu_\w+
    _lu\w* lstsq geqrf ormqr orgqr inverse svd qr det logdet slogdet"""
)
_WRAPPERS = any_of(
    r"""linear matmul einsum tensordot outer inner conv[123]d conv_transpose[123]d _?convolution _convolution_mode
    conv_tbc batch_norm _batch_norm_impl_index\w* layer_norm group_norm instance_norm rms_norm embedding
    embedding_bag embedding_backward max_pool[123]d adaptive_(?:avg|max)_pool[123]d softmax log_softmax
    cross_entropy_loss nll_loss nll_loss_nd binary_cross_entropy_with_logits dropout scaled_dot_product_attention
    multi_head_attention_forward _fused_sdp_choice lstm gru rnn_tanh rnn_relu linalg_norm to _to_copy type type_as
    contiguous clone zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full rand randn randint
    rand_like randn_like scalar_tensor stack hstack vstack dstack concat concatenate repeat tile pad upsample
    true_divide argsort msort arange linspace item"""
)

CPU_RULES: tuple[tuple[str, str, str], ...] = (
    (
        "onednn",
        r"aten::\w*mkldnn\w*|(?:mkldnn|mkldnn_prepacked|onednn|torch_ipex)::.*|quantized::(?:conv|linear)\w*",
        "onednn",
    ),
    ("mkl-linear", r"mkl::.*|aten::_?mkl_\w+", "mkl"),
    ("blas", r"aten::(?:mm|addmm|_addmm_activation|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|addr|ger)_?", "mkl"),
    ("lapack", f"aten::{_LAPACK}", "mkl"),
    ("mkl-fft", r"aten::_fft_\w+", "mkl"),
    (
        "fbgemm",
        r"(?:fbgemm|fb|quantized)::.*|aten::_embedding_bag\w*|.*(?:SplitLookupFunction|split_embedding|IntNBit).*",
        "fbgemm",
    ),
    ("torchvision", r"torchvision::.*", "torchvision"),
    ("wrapper", f"aten::{_WRAPPERS}_?", "aten_dispatch"),
    (
        "frame",
        r"(?:autograd::engine::|torch::autograd::|Optimizer\.|ProfilerStep#|enumerate\(DataLoader\)|Torch-Compiled).*"
        r"|(?:CompiledFunction|## Call|Activity Buffer|TorchDynamo|Pregraph).*|\w+Backward\d*|\[memory\]",
        "aten_dispatch",
    ),
    ("aten", r"(?:aten|prims)::.*", "aten_cpu"),
)
"""(rule, pattern for the whole name, provider)."""

_COMPILED = tuple((name, re.compile(pattern), provider) for name, pattern, provider in CPU_RULES)


def cpu_provider(name: str, own: StackRule | None) -> tuple[str, str]:
    """(provider, rule) of an operator's own time; an op that says nothing itself is dispatch."""
    says_nothing = own is None or own.op is None
    for rule, pattern, provider in _COMPILED:
        if pattern.fullmatch(name):
            if provider == "aten_cpu" and own is not None and own.op is None:
                return "aten_dispatch", "view or composite"
            return provider, rule
    if says_nothing and "::" not in name:
        return "aten_dispatch", "range, no operator"
    return "unknown", "no rule"
