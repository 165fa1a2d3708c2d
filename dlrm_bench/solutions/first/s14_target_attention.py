"""One program a user: the unit's first layer split so that nothing of width 4 d is ever made, the history read once.

first([q, k, q - k, q * k]) = (Wq + Wd) q + (Wk - Wd) k + Wp (q * k), with the four blocks of the first weight.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p14_target_attention import Model


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
    items,
    columns,
    first,
    second,
    D: tl.constexpr,
    F: tl.constexpr,
    S: tl.constexpr,
    ITEMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    user = tl.program_id(0).to(tl.int64)
    d, f, s = tl.arange(0, D), tl.arange(0, F), tl.arange(0, S)
    q = tl.load(query + user * columns + d, mask=d < columns, other=0.0)
    weight_mask = (d < columns)[:, None] & (f < first)[None, :]
    weight_at = f[None, :] * columns + d[:, None]
    unit = tl.load(key_weight + weight_at, mask=weight_mask, other=0.0)
    unit += q[:, None] * tl.load(product_weight + weight_at, mask=weight_mask, other=0.0)
    base = tl.load(of_query + user * first + f, mask=f < first, other=0.0)
    second_mask = (f < first)[:, None] & (s < second)[None, :]
    middle = tl.load(second_weight + s[None, :] * first + f[:, None], mask=second_mask, other=0.0)
    middle_bias = tl.load(second_bias + s, mask=s < second, other=0.0)
    closing = tl.load(last_weight + s, mask=s < second, other=0.0)
    closing_bias = tl.load(last_bias)
    length = tl.load(lengths + user)
    total = tl.zeros([D], tl.float32)
    for begin in range(0, length, ITEMS):
        item = begin + tl.arange(0, ITEMS)
        used = item < length
        at = (user * items + item)[:, None] * columns + d[None, :]
        keys = tl.load(history + at, mask=used[:, None] & (d < columns)[None, :], other=0.0)
        hidden = tl.sigmoid(tl.dot(keys, unit, input_precision=PRECISION) + base[None, :])
        hidden = tl.sigmoid(tl.dot(hidden, middle, input_precision=PRECISION) + middle_bias[None, :])
        score = tl.sum(hidden * closing[None, :], 1) + closing_bias
        total += tl.sum(keys * tl.where(used, score, 0.0)[:, None], 0)
    tl.store(out + user * columns + d, total, mask=d < columns)


class ModelNew(Model):
    def forward(self, query: torch.Tensor, history: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        query, history, lengths = query.contiguous(), history.contiguous(), lengths.long()
        columns, first, second = query.shape[1], self.first.out_features, self.second.out_features
        of_q, of_k, of_difference, of_product = self.first.weight.view(first, 4, columns).unbind(1)
        of_query = torch.addmm(self.first.bias, query, (of_q + of_difference).T)
        out = torch.empty_like(query)
        _attention[(query.shape[0],)](
            query,
            history,
            lengths,
            of_query,
            (of_k - of_difference).contiguous(),
            of_product.contiguous(),
            self.second.weight,
            self.second.bias,
            self.last.weight,
            self.last.bias,
            out,
            history.shape[1],
            columns,
            first,
            second,
            D=max(16, triton.next_power_of_2(columns)),
            F=max(16, triton.next_power_of_2(first)),
            S=max(16, triton.next_power_of_2(second)),
            ITEMS=32,
            PRECISION="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
        )
        return out
