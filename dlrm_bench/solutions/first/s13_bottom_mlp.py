"""Each layer one product with bias and ReLU in its epilogue; TF32 where torch allows it. Backward by cuBLAS."""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p13_bottom_mlp import Model


@triton.jit
def _linear_relu(
    x,
    weight,
    bias,
    out,
    rows,
    outputs,
    inputs,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, inputs, K):
        inner = first + tl.arange(0, K)
        left_mask = (row < rows)[:, None] & (inner < inputs)[None, :]
        left = tl.load(x + row.to(tl.int64)[:, None] * inputs + inner[None, :], mask=left_mask, other=0.0)
        right_mask = (inner < inputs)[:, None] & (column < outputs)[None, :]
        right = tl.load(weight + column[None, :] * inputs + inner[:, None], mask=right_mask, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    total += tl.load(bias + column, mask=column < outputs, other=0.0).to(tl.float32)[None, :]
    total = tl.maximum(total, 0.0)
    mask = (row < rows)[:, None] & (column < outputs)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * outputs + column[None, :], total.to(out.dtype.element_ty), mask=mask)


class _LinearRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        x = x.contiguous()
        rows, inputs, outputs = x.shape[0], x.shape[1], weight.shape[0]
        out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        tile = 16 if inputs <= 16 else 32
        _linear_relu[(triton.cdiv(rows, 64), triton.cdiv(outputs, 64))](
            x, weight, bias, out, rows, outputs, inputs, M=64, N=64, K=tile, PRECISION=precision
        )
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, weight, out = ctx.saved_tensors
        gradient = gradient * (out > 0)
        return gradient @ weight, gradient.T @ x, gradient.sum(0)


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = _LinearRelu.apply(x, weight, bias)
        return x
