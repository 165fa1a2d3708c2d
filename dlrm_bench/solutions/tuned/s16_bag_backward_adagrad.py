"""No sort: ids are counted by row, lone rows updated bag by bag, shared ones summed first; new values in one launch.

By Claude (Anthropic). Gradients of shared rows are added in no fixed order. A count of four bytes a row is kept beside
the table; it holds zeros between steps.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p16_bag_backward_adagrad import EPS, LEARNING_RATE, SHOWN, Model
from addrfrac.kernels.embedding_bag_backward import update_rows


@triton.jit
def _shown(ids, weight, momentum, rows_out, states_out, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + place).to(tl.int64)
    column = tl.arange(0, BLOCK)
    wanted = column < columns
    values = tl.load(weight + row * columns + column, mask=wanted)
    tl.store(rows_out + place * columns + column, values, mask=wanted)
    tl.store(states_out + place, tl.load(momentum + row))


class ModelNew(Model):
    def __init__(self, rows: int, dimension: int) -> None:
        super().__init__(rows, dimension)
        self.counts: torch.Tensor | None = None  # scratch, and no part of the model's state

    def forward(
        self, indices: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if indices.is_floating_point():
            indices, offsets = indices.long(), offsets.long()
        ids, offsets, gradient = indices.contiguous(), offsets.contiguous(), gradient.contiguous()
        if self.counts is None or self.counts.device != self.weight.device:
            self.counts = torch.zeros(self.weight.shape[0], dtype=torch.int32, device=self.weight.device)
        update_rows(self.weight, self.momentum, ids, offsets, gradient, self.counts, LEARNING_RATE, EPS)
        shown, columns = min(SHOWN, ids.numel()), self.weight.shape[1]
        rows, states = self.weight.new_empty(shown, columns), self.momentum.new_empty(shown)
        if shown:
            block = triton.next_power_of_2(columns)
            _shown[(shown,)](ids, self.weight, self.momentum, rows, states, columns, BLOCK=block, num_warps=1)
        return rows, states
