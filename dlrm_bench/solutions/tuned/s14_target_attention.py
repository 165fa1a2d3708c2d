"""Programs that stay take user after user: the unit's weights are read once a program, the history once.

By Claude (Anthropic). first([q, k, q - k, q * k]) = (Wq + Wd) q + (Wk - Wd + Wp q) k with the four blocks of the first
weight; the second bracket is made of weights in registers for each user. Hidden columns come as 64 and 16, or what is
least for the sizes, so that 80 need not be padded to 128.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p14_target_attention import Model

ITEMS, WARPS = 32, 4
PROGRAMS = 792
"""Six for each of an H200's processors."""


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _attention(
    query,
    history,
    lengths,
    of_query,
    key_weight,
    product_weight,
    second_weight,
    second_bias,
    last_weight,
    last_bias,
    out,
    users,
    items,
    columns,
    first,
    second,
    D: tl.constexpr,
    F: tl.constexpr,
    G: tl.constexpr,
    S: tl.constexpr,
    ITEMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    d, f, g, s = tl.arange(0, D), tl.arange(0, F), F + tl.arange(0, G), tl.arange(0, S)
    f_mask = (d < columns)[:, None] & (f < first)[None, :]
    g_mask = (d < columns)[:, None] & (g < first)[None, :]
    f_at, g_at = f[None, :] * columns + d[:, None], g[None, :] * columns + d[:, None]
    key_f = tl.load(key_weight + f_at, mask=f_mask, other=0.0)
    key_g = tl.load(key_weight + g_at, mask=g_mask, other=0.0)
    product_f = tl.load(product_weight + f_at, mask=f_mask, other=0.0)
    product_g = tl.load(product_weight + g_at, mask=g_mask, other=0.0)
    f_middle = (f < first)[:, None] & (s < second)[None, :]
    g_middle = (g < first)[:, None] & (s < second)[None, :]
    middle_f = tl.load(second_weight + s[None, :] * first + f[:, None], mask=f_middle, other=0.0)
    middle_g = tl.load(second_weight + s[None, :] * first + g[:, None], mask=g_middle, other=0.0)
    middle_bias = tl.load(second_bias + s, mask=s < second, other=0.0)
    closing = tl.load(last_weight + s, mask=s < second, other=0.0)
    closing_bias = tl.load(last_bias)
    for user in range(tl.program_id(0).to(tl.int64), users, tl.num_programs(0)):
        q = tl.load(query + user * columns + d, mask=d < columns, other=0.0)
        unit_f = key_f + q[:, None] * product_f
        unit_g = key_g + q[:, None] * product_g
        base_f = tl.load(of_query + user * first + f, mask=f < first, other=0.0)
        base_g = tl.load(of_query + user * first + g, mask=g < first, other=0.0)
        length = tl.minimum(tl.load(lengths + user), items)
        total = tl.zeros([D], tl.float32)
        for begin in range(0, length, ITEMS):
            item = begin + tl.arange(0, ITEMS)
            used = item < length
            at = (user * items + item)[:, None] * columns + d[None, :]
            keys = tl.load(history + at, mask=used[:, None] & (d < columns)[None, :], other=0.0)
            hidden_f = _sigmoid(tl.dot(keys, unit_f, input_precision=PRECISION) + base_f[None, :])
            hidden_g = _sigmoid(tl.dot(keys, unit_g, input_precision=PRECISION) + base_g[None, :])
            hidden = tl.dot(hidden_f, middle_f, input_precision=PRECISION)
            hidden = tl.dot(hidden_g, middle_g, hidden, input_precision=PRECISION)
            hidden = _sigmoid(hidden + middle_bias[None, :])
            score = tl.sum(hidden * closing[None, :], 1) + closing_bias
            total += tl.sum(keys * tl.where(used, score, 0.0)[:, None], 0)
        tl.store(out + user * columns + d, total, mask=d < columns)


def halves(first: int) -> tuple[int, int]:
    """Two powers of two, the larger first, that together hold so many columns."""
    whole = max(32, triton.next_power_of_2(first))
    large = whole // 2
    return large, max(16, triton.next_power_of_2(max(first - large, 1)))


class ModelNew(Model):
    def forward(self, query: torch.Tensor, history: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if query.dtype != torch.float32 or history.dtype != torch.float32:
            raise ValueError("fp32 inputs")
        query, history, lengths = query.contiguous(), history.contiguous(), lengths.long().contiguous()
        columns, first, second = query.shape[1], self.first.out_features, self.second.out_features
        of_q, of_k, of_difference, of_product = self.first.weight.view(first, 4, columns).unbind(1)
        of_query = torch.addmm(self.first.bias, query, (of_q + of_difference).T)
        out = torch.empty_like(query)
        large, small = halves(first)
        _attention[(min(PROGRAMS, query.shape[0]),)](
            query,
            history,
            lengths,
            of_query,
            of_k - of_difference,
            of_product.contiguous(),
            self.second.weight,
            self.second.bias,
            self.last.weight,
            self.last.bias,
            out,
            query.shape[0],
            history.shape[1],
            columns,
            first,
            second,
            D=max(16, triton.next_power_of_2(columns)),
            F=large,
            G=small,
            S=max(16, triton.next_power_of_2(second)),
            ITEMS=ITEMS,
            PRECISION="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
            num_warps=WARPS,
        )
        return out
