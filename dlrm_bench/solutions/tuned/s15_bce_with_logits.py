"""Loss and gradient in one pass, then one program that adds the partial sums.

By Claude (Anthropic). With w the weight and lw = 1 + (p - 1) y: loss = w ((1 - y) x + lw softplus(-x)) and its gradient
w ((1 - y) - lw sigmoid(-x)).
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p15_bce_with_logits import Model

BLOCK, WARPS = 2_048, 8
SUM_BLOCK = 1_024


@triton.jit
def _loss(logits, labels, weights, positive, partial, gradient, count, share, TASKS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(logits + place, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(labels + place, mask=inside, other=0).to(tl.float32)
    w = tl.load(weights + place, mask=inside, other=0.0).to(tl.float32)
    lw = 1.0 + (tl.load(positive + place % TASKS, mask=inside, other=1.0).to(tl.float32) - 1.0) * y
    small = tl.exp(-tl.abs(x))
    softplus = tl.log(1.0 + small) + tl.maximum(-x, 0.0)
    sigmoid_of_minus = tl.where(x >= 0, small, 1.0) / (1.0 + small)
    tl.store(partial + tl.program_id(0), tl.sum(w * ((1.0 - y) * x + lw * softplus), 0))
    slope = w * ((1.0 - y) - lw * sigmoid_of_minus) * share
    tl.store(gradient + place, slope.to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def _mean(partial, loss, blocks, share, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, blocks, BLOCK):
        place = first + tl.arange(0, BLOCK)
        total += tl.load(partial + place, mask=place < blocks, other=0.0)
    tl.store(loss, (tl.sum(total, 0) * share).to(loss.dtype.element_ty))


class ModelNew(Model):
    def forward(
        self, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits, labels, weights = logits.contiguous(), labels.contiguous(), weights.contiguous()
        count = logits.numel()
        blocks = triton.cdiv(count, BLOCK)
        gradient = torch.empty_like(logits)
        partial = torch.empty(blocks, dtype=torch.float32, device=logits.device)
        loss = torch.empty((), dtype=logits.dtype, device=logits.device)
        _loss[(blocks,)](
            logits,
            labels,
            weights,
            self.positive_weight.contiguous(),
            partial,
            gradient,
            count,
            1.0 / count,
            TASKS=logits.shape[1],
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
        _mean[(1,)](partial, loss, blocks, 1.0 / count, BLOCK=SUM_BLOCK, num_warps=8)
        return loss, gradient
