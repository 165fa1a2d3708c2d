"""A row a program, read once; the backward recomputes what it needs by torch's own operators."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p19_swish_layer_norm import Model


@triton.jit
def _swish_norm(x, weight, bias, out, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, values - tl.sum(values, 0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(centred * scale * gain + shift)
    tl.store(out + row + column, (values * gate).to(out.dtype.element_ty), mask=inside)


class _SwishNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        x = x.contiguous()
        out = torch.empty_like(x)
        width = x.shape[-1]
        _swish_norm[(x.numel() // width,)](x, weight, bias, out, width, 1e-5, BLOCK=triton.next_power_of_2(width))
        ctx.save_for_backward(x, weight, bias)
        return out

    @staticmethod
    def backward(ctx, gradient):
        leaves = [tensor.detach().requires_grad_(True) for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            x, weight, bias = leaves
            again = x * torch.sigmoid(F.layer_norm(x, x.shape[-1:], weight, bias))
        return torch.autograd.grad(again, leaves, gradient)


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _SwishNorm.apply(x, self.weight, self.bias)
