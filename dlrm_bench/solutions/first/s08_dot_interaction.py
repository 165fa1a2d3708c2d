"""One program a sample: all vectors in registers, one product, the triangle stored where it belongs."""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p08_dot_interaction import Model


@triton.jit
def _interaction(dense, sparse, out, features, columns, width, VECTORS: tl.constexpr, BLOCK: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    vector = tl.arange(0, VECTORS)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    first = tl.load(dense + sample * columns + column, mask=inside, other=0.0)
    rest_at = sparse + (sample * features + vector[:, None] - 1) * columns + column[None, :]
    rest = tl.load(rest_at, mask=(vector[:, None] > 0) & (vector[:, None] <= features) & inside[None, :], other=0.0)
    values = tl.where(vector[:, None] == 0, first[None, :], rest)
    products = tl.dot(values, tl.trans(values), input_precision="ieee")
    i, j = vector[:, None], vector[None, :]
    place = columns + i * (i - 1) // 2 + j
    tl.store(out + sample * width + place, products.to(out.dtype.element_ty), mask=(j < i) & (i <= features))
    tl.store(out + sample * width + column, first, mask=inside)


class ModelNew(Model):
    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        dense, sparse = dense.contiguous(), sparse.contiguous()
        batch, features, columns = sparse.shape
        width = columns + (features + 1) * features // 2
        out = torch.empty(batch, width, dtype=dense.dtype, device=dense.device)
        _interaction[(batch,)](
            dense,
            sparse,
            out,
            features,
            columns,
            width,
            VECTORS=max(16, triton.next_power_of_2(features + 1)),
            BLOCK=max(16, triton.next_power_of_2(columns)),
            num_warps=4,
        )
        return out
