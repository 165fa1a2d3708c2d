"""Arguments of matrix products and attention in, their bytes and flops out.

Operands are counted apart; where a product's second operand has the extent of the first, transposed, it may be the same
tensor, and the low end counts it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from addrfrac.work.record import Facts, Rule, Work
from addrfrac.work.tensors import MATRIX_DTYPES, Argument, Tensor, flag, tensor


def _work(
    operands: Sequence[Tensor | None],
    out_bytes: float,
    flops: float,
    facts: Facts,
    *,
    left_out_of_low: float = 0.0,
    low_flops: float | None = None,
    basis: str,
) -> Work:
    """Every operand read once, the output written once; the first operand's element type decides the peak."""
    given = [operand for operand in operands if operand is not None]
    moved = sum(operand.bytes for operand in given) + out_bytes
    dtype = MATRIX_DTYPES.get(given[0].dtype, "")
    if dtype == "fp32" and facts.allows_tf32:
        dtype = "tf32"
    return Work(
        low_bytes=moved - left_out_of_low,
        high_bytes=moved,
        access="stream",
        basis=basis,
        low_flops=flops if low_flops is None else low_flops,
        high_flops=flops,
        dtype=dtype if flops else "",
    )


def _maybe_same(left: Tensor, right: Tensor) -> float:
    """Bytes of the second operand where it may be a transposed view of the first."""
    same = sorted(zip(left.shape, left.strides, strict=True)) == sorted(zip(right.shape, right.strides, strict=True))
    return right.bytes if same and left.dtype == right.dtype else 0.0


def product(
    arguments: Sequence[Argument], facts: Facts, *, left: int, right: int, added: int | None = None
) -> Work | None:
    """[..., M, K] x [..., K, N]; `added` is the place of a bias or of a matrix that is added."""
    a, b = tensor(arguments, left), tensor(arguments, right)
    if a is None or b is None or len(a.shape) < 1 or len(b.shape) < 1 or not a.shape[-1]:
        return None
    rows = a.elements // a.shape[-1]
    columns = b.shape[-1] if len(b.shape) > 1 else 1
    bias = tensor(arguments, added) if added is not None else None
    return _work(
        (a, b, bias),
        rows * columns * _out_bytes(a),
        2.0 * rows * a.shape[-1] * columns,
        facts,
        left_out_of_low=_maybe_same(a, b) if len(a.shape) == len(b.shape) else 0.0,
        basis="operands read once, product written once; 2 M N K flops",
    )


def _out_bytes(operand: Tensor) -> int:
    """Of an element of the product: fp8 operands give 16-bit results."""
    return 2 if MATRIX_DTYPES.get(operand.dtype) == "fp8" else operand.item_bytes


def linear(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """input [..., K], weight [N, K], bias."""
    a, weight, bias = (tensor(arguments, place) for place in range(3))
    if a is None or weight is None or not a.shape or len(weight.shape) != 2 or not a.shape[-1]:
        return None
    rows, columns = a.elements // a.shape[-1], weight.shape[0]
    basis = "operands read once, product written once; 2 M N K flops"
    return _work(
        (a, weight, bias), rows * columns * _out_bytes(a), 2.0 * rows * a.shape[-1] * columns, facts, basis=basis
    )


def grouped(arguments: Sequence[Argument], facts: Facts, *, offsets: int) -> Work | None:
    """Products of groups of rows with a matrix each; weights of groups without rows need not be read."""
    a, b = tensor(arguments, 0), tensor(arguments, 1)
    if a is None or b is None:
        return None
    ends = tensor(arguments, offsets)
    groups = ends.elements if ends is not None else 1
    if len(a.shape) == 2 and len(b.shape) == 3:
        (rows, inner), columns = a.shape, b.shape[2]
        share = facts.expert_share if facts.expert_share is not None else 1.0 / max(b.shape[0], 1)
        moved, flops, unread = rows * columns * _out_bytes(a), 2.0 * rows * inner * columns, b.bytes * (1.0 - share)
    elif len(a.shape) == 3 and len(b.shape) == 2:
        (_, rows, inner), columns = a.shape, b.shape[1]
        moved, flops, unread = rows * columns * _out_bytes(a), 2.0 * rows * inner * columns, 0.0
    elif len(a.shape) == 2 and len(b.shape) == 2:
        (rows, inner), columns = a.shape, b.shape[1]
        moved, flops, unread = groups * rows * columns * _out_bytes(a), 2.0 * rows * inner * columns, 0.0
    elif len(a.shape) == 3 and len(b.shape) == 3:
        return product(arguments, facts, left=0, right=1)
    else:
        return None
    basis = "rows and the weights of groups that have rows read once, product written once; 2 M N K flops"
    return _work((a, b, ends), moved, flops, facts, left_out_of_low=unread, basis=basis)


# --- attention ----------------------------------------------------------------------------------------------

FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
"""Q K' and P V; in the backward pass Q K' again, dV, dP, dQ, dK."""


def _pairs(queries: int, keys: int, causal: bool) -> float:
    """(query, key) pairs that are not masked: under a causal mask each query sees the keys up to its own place."""
    if not causal:
        return float(queries) * keys
    seen = min(queries, keys)
    return seen * (seen + 1) / 2.0 + max(queries - keys, 0) * float(keys)


def attention(
    arguments: Sequence[Argument],
    facts: Facts,
    *,
    first: int,
    heads_first: bool,
    causal: int,
    mask: int | None = None,
    backward: bool = False,
    causal_is_type: bool = False,
) -> Work | None:
    """Query, key and value at `first` and after it, [B, H, S, D] or [B, S, H, D]; a backward pass has the gradient
    before them and the output after. An explicit mask may hide as much as a causal one."""
    q, k, v = (tensor(arguments, first + i) for i in range(3))
    if q is None or k is None or v is None or any(len(each.shape) not in (3, 4) for each in (q, k, v)):
        return None
    if any(len(each.shape) == 3 for each in (q, k, v)):  # sequences packed behind one another: lengths are not known
        return _packed(q, k, v, facts, backward=backward)
    seq, head = (2, 1) if heads_first else (1, 2)
    batch, heads, queries, keys = q.shape[0], q.shape[head], q.shape[seq], k.shape[seq]
    hides = tensor(arguments, mask) if mask is not None else None
    told = flag(arguments, causal)
    is_causal = told is True or (causal_is_type and _is_causal_type(arguments, causal))
    pairs = _pairs(queries, keys, is_causal)
    unknown = hides is not None or (told is None and not causal_is_type)
    least = min(pairs, _pairs(queries, keys, True)) if unknown else pairs
    depth = q.shape[3] + v.shape[3]
    scale = 2.0 * batch * heads * depth / 2.0 * (BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS)
    out = q.dense_bytes // max(q.shape[3], 1) * v.shape[3]
    # Backward: gradient and output read, the gradients of query, key and value written.
    moved = 2 * out + q.dense_bytes + k.dense_bytes + v.dense_bytes if backward else out
    words = (
        "half of the pairs (causal)" if is_causal else "at least half of the pairs (masked)" if unknown else "all pairs"
    )
    return _work(
        (q, k, v, hides),
        moved,
        scale * pairs,
        facts,
        low_flops=scale * least,
        basis=f"query, key, value and output moved once; flops of {words}"
        + ("; backward: five products" if backward else ""),
    )


def _packed(q: Tensor, k: Tensor, v: Tensor, facts: Facts, *, backward: bool) -> Work:
    """Without the sequences' lengths there are bytes and no flops."""
    moved = q.dense_bytes * (3 if backward else 1) + (k.dense_bytes + v.dense_bytes if backward else 0)
    basis = "query, key, value and output moved once; lengths of packed sequences are not recorded, so no flops"
    return _work((q, k, v), moved, 0.0, facts, basis=basis)


def _is_causal_type(arguments: Sequence[Argument], place: int) -> bool:
    """Memory-efficient attention: 0 no mask, 1 and 2 causal from the top left or the bottom right."""
    found = arguments[place] if place < len(arguments) else None
    return found in ("1", "2")


RULES: dict[str, Rule] = {
    "aten::mm": partial(product, left=0, right=1),
    "aten::bmm": partial(product, left=0, right=1),
    "aten::mv": partial(product, left=0, right=1),
    "aten::dot": partial(product, left=0, right=1),
    "aten::_int_mm": partial(product, left=0, right=1),
    "aten::addmm": partial(product, left=1, right=2, added=0),
    "aten::addmm_": partial(product, left=1, right=2, added=0),
    "aten::_addmm_activation": partial(product, left=1, right=2, added=0),
    "aten::baddbmm": partial(product, left=1, right=2, added=0),
    "aten::baddbmm_": partial(product, left=1, right=2, added=0),
    "aten::addmv": partial(product, left=1, right=2, added=0),
    "aten::_scaled_mm": partial(product, left=0, right=1, added=4),
    "aten::linear": linear,
    "aten::_grouped_mm": partial(grouped, offsets=2),
    "aten::_scaled_grouped_mm": partial(grouped, offsets=4),
    "aten::_flash_attention_forward": partial(attention, first=0, heads_first=False, causal=8),
    "aten::_efficient_attention_forward": partial(
        attention, first=0, heads_first=False, causal=9, mask=3, causal_is_type=True
    ),
    "aten::_cudnn_attention_forward": partial(attention, first=0, heads_first=True, causal=10, mask=3),
    "aten::_scaled_dot_product_flash_attention": partial(attention, first=0, heads_first=True, causal=4),
    "aten::_scaled_dot_product_efficient_attention": partial(attention, first=0, heads_first=True, causal=6, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": partial(attention, first=0, heads_first=True, causal=6, mask=3),
    "aten::_flash_attention_backward": partial(attention, first=1, heads_first=False, causal=11, backward=True),
    "aten::_efficient_attention_backward": partial(
        attention, first=1, heads_first=False, causal=14, mask=4, backward=True, causal_is_type=True
    ),
    "aten::_cudnn_attention_backward": partial(attention, first=1, heads_first=True, causal=14, mask=8, backward=True),
    "aten::_scaled_dot_product_flash_attention_backward": partial(
        attention, first=1, heads_first=True, causal=11, backward=True
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": partial(
        attention, first=1, heads_first=True, causal=11, mask=4, backward=True
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": partial(
        attention, first=1, heads_first=True, causal=14, mask=8, backward=True
    ),
}
