"""The products stay with cuBLAS, the bias in the end of its own; all else of a layer is one pass, forward and backward.

By Claude (Anthropic). The passes are those of `addrfrac.kernels.low_rank_cross`, where they are explained. What no one
asks the gradient of is not computed.
"""

import torch

from addrfrac.dlrm_bench.p09_low_rank_cross import Model
from addrfrac.kernels.low_rank_cross import cross_gradients, crossed_with


class _CrossNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, down, up, bias):
        x, up, bias = x.contiguous(), up.contiguous(), bias.contiguous()
        crossed, kept = x, []
        for layer in range(down.shape[0]):
            low = crossed @ down[layer].T
            lifted = torch.addmm(bias[layer], low, up[layer].T)
            kept += [crossed, low, lifted if ctx.needs_input_grad[0] else None]
            out = torch.empty_like(x) if ctx.needs_input_grad[0] else lifted
            crossed = crossed_with(x, lifted, crossed, out)
        ctx.save_for_backward(x, down, up, bias, *kept)
        return crossed

    @staticmethod
    def backward(ctx, gradient):
        x, down, up, bias, *kept = ctx.saved_tensors
        wants_x, layers = ctx.needs_input_grad[0], down.shape[0]
        gradient = gradient.contiguous()
        into_x = torch.empty_like(x) if wants_x else None
        into_down, into_up, into_bias = torch.empty_like(down), torch.empty_like(up), torch.empty_like(bias)
        for layer in reversed(range(layers)):
            crossed, low, lifted = kept[3 * layer : 3 * layer + 3]
            turned, into_bias[layer] = cross_gradients(gradient, x, lifted, into_x, adds=layer < layers - 1)
            into_low = turned @ up[layer]
            torch.mm(turned.T, low, out=into_up[layer])
            torch.mm(into_low.T, crossed, out=into_down[layer])
            if layer == layers - 1:  # the gradient that came in belongs to autograd
                gradient = torch.addmm(gradient, into_low, down[layer])
            elif layer or wants_x:
                gradient.addmm_(into_low, down[layer])
        return into_x.add_(gradient) if wants_x else None, into_down, into_up, into_bias


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or self.up.dtype != torch.float32:
            raise ValueError("fp32 inputs and parameters")
        return _CrossNetwork.apply(x, self.down, self.up, self.bias)
