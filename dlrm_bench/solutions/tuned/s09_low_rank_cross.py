"""The second product of a layer ends in the cross itself, forward and backward; the other products stay with cuBLAS.

By Claude (Anthropic). Forward: x * (low up' + bias) + crossed leaves the product's registers once. Backward: the
gradient of the layer before and its product with x, with the bias's partial sums, likewise. What no one asks the
gradient of is not computed.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p09_low_rank_cross import Model

TILE = {"M": 128, "N": 128, "K": 32, "num_warps": 8, "num_stages": 3}
STRICT_TILE = {"M": 32, "N": 64, "K": 32, "num_warps": 4, "num_stages": 2}
"""Without TF32 the product is of ordinary multiply-adds."""
GROUP = 8
SCALE_ROWS, SCALE_COLUMNS = 64, 128


def tile() -> dict:
    """Tile and precision of a product of fp32."""
    if torch.backends.cuda.matmul.allow_tf32:
        return {**TILE, "PRECISION": "tf32"}
    return {**STRICT_TILE, "PRECISION": "ieee"}


@triton.jit
def _cross(
    low,
    weight,
    bias,
    x,
    crossed,
    out,
    product,
    parts,
    rows,
    width,
    rank,
    BACKWARD: tl.constexpr,
    GROUP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Forward: out = x * (low weight' + bias) + crossed. Backward: out = low weight' + crossed, product = out * x."""
    down, across = tl.cdiv(rows, M), tl.cdiv(width, N)
    group = tl.program_id(0) // (GROUP * across)
    high = tl.minimum(down - group * GROUP, GROUP)
    inner = tl.program_id(0) % (GROUP * across)
    block_row, block_column = group * GROUP + inner % high, inner // high
    row = block_row * M + tl.arange(0, M)
    column = block_column * N + tl.arange(0, N)
    place = tl.arange(0, K)
    left = low + (row % rows).to(tl.int64)[:, None] * rank + place[None, :]
    right = weight + (column % width)[None, :] * rank + place[:, None]
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, rank, K):
        there = place < rank - first
        a = tl.load(left + first, mask=there[None, :], other=0.0)
        b = tl.load(right + first, mask=there[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    multiplier = tl.load(x + at, mask=mask, other=0.0)
    before = tl.load(crossed + at, mask=mask, other=0.0)
    if BACKWARD:
        total += before
        tl.store(out + at, total, mask=mask)
        total *= multiplier
        tl.store(product + at, total, mask=mask)
        sums = tl.sum(tl.where(mask, total, 0.0), 0)
        tl.store(parts + block_row.to(tl.int64) * width + column, sums, mask=column < width)
    else:
        shift = tl.load(bias + column, mask=column < width, other=0.0)
        tl.store(out + at, multiplier * (total + shift[None, :]) + before, mask=mask)


@triton.jit
def _scale(gradient, x, product, parts, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """product = gradient * x, with its partial sums down the columns."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    value = tl.load(gradient + at, mask=mask, other=0.0) * tl.load(x + at, mask=mask, other=0.0)
    tl.store(product + at, value, mask=mask)
    tl.store(parts + tl.program_id(0).to(tl.int64) * width + column, tl.sum(value, 0), mask=column < width)


def crossed_with(low, weight, bias, x, crossed):
    """x * (low weight' + bias) + crossed."""
    out, how = torch.empty_like(x), tile()
    (rows, width), rank = x.shape, low.shape[1]
    grid = (triton.cdiv(rows, how["M"]) * triton.cdiv(width, how["N"]),)
    _cross[grid](low, weight, bias, x, crossed, out, out, out, rows, width, rank, BACKWARD=False, GROUP=GROUP, **how)
    return out


def crossed_back(into_low, weight, gradient, x):
    """(into_low weight' + gradient, that * x, the latter's sum down the columns)."""
    out, product, how = torch.empty_like(x), torch.empty_like(x), tile()
    (rows, width), rank = x.shape, into_low.shape[1]
    blocks = triton.cdiv(rows, how["M"])
    parts = torch.empty(blocks, width, dtype=torch.float32, device=x.device)
    grid = (blocks * triton.cdiv(width, how["N"]),)
    _cross[grid](
        into_low, weight, x, x, gradient, out, product, parts, rows, width, rank, BACKWARD=True, GROUP=GROUP, **how
    )
    return out, product, parts.sum(0)


def scaled(gradient, x):
    """(gradient * x, its sum down the columns)."""
    (rows, width), product = x.shape, torch.empty_like(x)
    blocks = triton.cdiv(rows, SCALE_ROWS)
    parts = torch.empty(blocks, width, dtype=torch.float32, device=x.device)
    grid = (blocks, triton.cdiv(width, SCALE_COLUMNS))
    _scale[grid](gradient, x, product, parts, rows, width, ROWS=SCALE_ROWS, COLUMNS=SCALE_COLUMNS, num_warps=8)
    return product, parts.sum(0)


class _CrossNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, down, up, bias):
        x, up, bias = x.contiguous(), up.contiguous(), bias.contiguous()
        crossed, kept = x, []
        for layer in range(down.shape[0]):
            low = crossed @ down[layer].T
            kept += [crossed, low]
            crossed = crossed_with(low, up[layer], bias[layer], x, crossed)
        ctx.save_for_backward(x, down, up, bias, *kept)
        return crossed

    @staticmethod
    def backward(ctx, gradient):
        x, down, up, bias, *kept = ctx.saved_tensors
        wants_x = ctx.needs_input_grad[0]
        gradient = gradient.contiguous()
        into_x = torch.zeros_like(x) if wants_x else None
        into_down, into_up, into_bias = torch.empty_like(down), torch.empty_like(up), torch.empty_like(bias)
        into_lifted, column_sums = scaled(gradient, x)
        for layer in reversed(range(down.shape[0])):
            crossed, low = kept[2 * layer : 2 * layer + 2]
            into_low = into_lifted @ up[layer]
            torch.mm(into_lifted.T, low, out=into_up[layer])
            torch.mm(into_low.T, crossed, out=into_down[layer])
            into_bias[layer] = column_sums
            if wants_x:
                into_x.addcmul_(gradient, torch.addmm(bias[layer], low, up[layer].T))
            if layer:
                gradient, into_lifted, column_sums = crossed_back(into_low, down[layer].T.contiguous(), gradient, x)
            elif wants_x:
                into_x += torch.addmm(gradient, into_low, down[layer])
        return into_x, into_down, into_up, into_bias


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or self.up.dtype != torch.float32:
            raise ValueError("fp32 inputs and parameters")
        return _CrossNetwork.apply(x, self.down, self.up, self.bias)
