"""Ids sorted once; the first place of each run of equal ids sums its gradients and updates row and state in place."""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p16_bag_backward_adagrad import EPS, LEARNING_RATE, SHOWN, Model


@triton.jit
def _update(ids, bags, gradient, weight, momentum, count, columns, rate, eps, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    mine = tl.load(ids + place)
    before = tl.load(ids + place - 1, mask=place > 0, other=-1)
    if mine != before:
        column = tl.arange(0, BLOCK)
        inside = column < columns
        total = tl.zeros([BLOCK], tl.float32)
        run = place
        while run < count and tl.load(ids + run, mask=run < count, other=-1) == mine:
            bag = tl.load(bags + run)
            total += tl.load(gradient + bag * columns + column, mask=inside, other=0.0)
            run += 1
        state = tl.load(momentum + mine) + tl.sum(total * total, 0) / columns
        at = weight + mine * columns + column
        tl.store(at, tl.load(at, mask=inside, other=0.0) - rate * total / (tl.sqrt(state) + eps), mask=inside)
        tl.store(momentum + mine, state)


class ModelNew(Model):
    def forward(
        self, indices: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        indices, offsets, gradient = indices.long(), offsets.long(), gradient.contiguous()
        bag = torch.repeat_interleave(
            torch.arange(len(offsets) - 1, device=offsets.device), offsets[1:] - offsets[:-1], output_size=len(indices)
        )
        ids, order = indices.sort()
        columns = self.weight.shape[1]
        _update[(len(indices),)](
            ids,
            bag[order],
            gradient,
            self.weight,
            self.momentum,
            len(indices),
            columns,
            LEARNING_RATE,
            EPS,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=1,
        )
        shown = indices[:SHOWN]
        return self.weight[shown], self.momentum[shown]
