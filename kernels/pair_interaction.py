"""Dot interaction of DLRM with listed pairs: the dense row, then features_i . features_j for each pair (i, j).

features = (dense, sparse_1, ..., sparse_f), each of size d; pairs (2, p) as torchrec keeps them, any order, repeated or
not. Moves dense and sparse once, the pairs once and the output once: (1 + f) d + d + p elements a sample. One program a
sample: all products at once on the matrix unit, the pairs gathered from them on the chip; sums in fp32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

MOST_FEATURES, LARGEST_SIZE, MOST_PAIRS = 63, 512, 4096


@triton.jit
def _pair_interaction_kernel(  # type: ignore[no-untyped-def]
    dense, sparse, pairs, out, features, size, count,
    FEATURES: tl.constexpr, SIZE: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, FEATURES)
    lanes = tl.arange(0, SIZE)
    inside = lanes < size
    first = tl.load(dense + sample * size + lanes, mask=inside, other=0.0)
    tl.store(out + sample * (size + count) + lanes, first, mask=inside)
    at = sample * (features - 1) * size + (rows[:, None] - 1) * size + lanes[None, :]
    others = tl.load(sparse + at, mask=(rows[:, None] > 0) & (rows[:, None] < features) & inside[None, :], other=0.0)
    block = tl.where(rows[:, None] == 0, first[None, :], others)
    products = tl.dot(block, tl.trans(block), input_precision="ieee")
    numbers = tl.arange(0, PAIRS)
    here = numbers < count
    one = tl.load(pairs + numbers, mask=here, other=0).to(tl.int32)
    two = tl.load(pairs + count + numbers, mask=here, other=0).to(tl.int32)
    one = tl.where(one < 0, one + features, one)
    two = tl.where(two < 0, two + features, two)
    chosen = tl.gather(tl.reshape(products, (FEATURES * FEATURES,)), one * FEATURES + two, 0)
    tl.store(out + sample * (size + count) + size + numbers, chosen.to(out.dtype.element_ty), mask=here)


def pair_interaction(dense: torch.Tensor, sparse: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Dense and the pairs' products, a row a sample; dense (batch, size), sparse (batch, features, size), pairs (2, p).

    Contiguous, up to 62 features beside the dense one, of up to 512 elements, one dtype.
    """
    if dense.ndim != 2 or sparse.ndim != 3 or sparse.shape[0] != dense.shape[0] or sparse.shape[2] != dense.shape[1]:
        raise ValueError("dense (batch, size) and sparse (batch, features, size)")
    batch, size = dense.shape
    features = sparse.shape[1] + 1
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.is_floating_point() or not 0 < pairs.shape[1] <= MOST_PAIRS:
        raise ValueError(f"pairs (2, p) of whole numbers, 1 to {MOST_PAIRS} of them")
    if features > MOST_FEATURES or not 0 < size <= LARGEST_SIZE:
        raise ValueError(f"at most {MOST_FEATURES} features of 1 to {LARGEST_SIZE} elements")
    if dense.dtype != sparse.dtype or not all(each.is_contiguous() for each in (dense, sparse, pairs)):
        raise ValueError("contiguous inputs of one dtype")
    count = pairs.shape[1]
    out = torch.empty(batch, size + count, dtype=dense.dtype, device=dense.device)
    if batch:
        _pair_interaction_kernel[(batch,)](
            dense, sparse, pairs, out, features, size, count,
            FEATURES=max(16, triton.next_power_of_2(features)), SIZE=max(16, triton.next_power_of_2(size)),
            PAIRS=triton.next_power_of_2(count), num_warps=4,
        )  # fmt: skip
    return out


def reference(dense: torch.Tensor, sparse: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """As torchrec has it: one batched product, the pairs gathered, concatenated."""
    features = torch.cat((dense.unsqueeze(1), sparse), dim=1)
    products = torch.bmm(features, torch.transpose(features, 1, 2))
    return torch.cat((dense, products[:, pairs[0], pairs[1]]), dim=1)


def bytes_moved(dense: torch.Tensor, sparse: torch.Tensor, pairs: torch.Tensor) -> int:
    """The inputs once, the output once."""
    output = dense.numel() + dense.shape[0] * pairs.shape[1]
    return (dense.numel() + sparse.numel() + output) * dense.element_size() + pairs.numel() * pairs.element_size()


def _case(name: str, batch: int, features: int, size: int, pairs: int) -> Case:
    return Case(
        name=name,
        arguments=(
            TensorCase(shape=(batch, size)),
            TensorCase(shape=(batch, features, size)),
            TensorCase(shape=(2, pairs), kind="ids", high=features + 1, dtype="int64"),
        ),
    )


CASES = (_case("8x26x64", 8, 26, 64, 351), _case("5x7x33", 5, 7, 33, 11))
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="DLRM's dot interaction with torchrec's listed pairs in one Triton kernel: products, gather and concatenation",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=pair_interaction, reference=reference, op="gemm", bytes_moved=bytes_moved)
