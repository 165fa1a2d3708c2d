"""Dot interaction of DLRM: the dense row, then the products of every pair of features, one row a sample.

features = (dense, sparse_1, ..., sparse_f), each of size d; out = (dense, features_i . features_j for j < i in order of
i, j). Moves dense and sparse once and the output once: (1 + f) d + d + (f + 1) f / 2 elements a sample. One program a
sample: all products at once on the matrix unit, only the triangle is stored; sums in fp32. Where torch allows TF32,
products of fp32 are made of three TF32 ones, as exact as fp32's own and many times as fast.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

MOST_FEATURES, LARGEST_SIZE = 127, 512
CHUNK = 64
"""Columns in registers at a time."""


@triton.jit
def _interaction_kernel(  # type: ignore[no-untyped-def]
    dense, sparse, out, features, size, width,
    FEATURES: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, FEATURES)
    products = tl.zeros([FEATURES, FEATURES], tl.float32)
    for begin in range(0, size, CHUNK):
        lanes = begin + tl.arange(0, CHUNK)
        inside = lanes < size
        first = tl.load(dense + sample * size + lanes, mask=inside, other=0.0)
        tl.store(out + sample * width + lanes, first, mask=inside)
        at = (sample * (features - 1) + rows[:, None] - 1) * size + lanes[None, :]
        there = (rows[:, None] > 0) & (rows[:, None] < features) & inside[None, :]
        others = tl.load(sparse + at, mask=there, other=0.0)
        block = tl.where(rows[:, None] == 0, first[None, :], others)
        products = tl.dot(block, tl.trans(block), products, input_precision=PRECISION)
    below = (rows[None, :] < rows[:, None]) & (rows[:, None] < features)
    place = rows[:, None] * (rows[:, None] - 1) // 2 + rows[None, :]
    tl.store(out + sample * width + size + place, products.to(out.dtype.element_ty), mask=below)


def interaction(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    """Dense and triangle, a row a sample; dense (batch, size) and sparse (batch, features, size) contiguous.

    Up to 127 features of up to 512 elements, one dtype.
    """
    if dense.ndim != 2 or sparse.ndim != 3 or sparse.shape[0] != dense.shape[0] or sparse.shape[2] != dense.shape[1]:
        raise ValueError("dense (batch, size) and sparse (batch, features, size)")
    batch, size = dense.shape
    features = sparse.shape[1] + 1
    if sparse.shape[1] > MOST_FEATURES or not 0 < size <= LARGEST_SIZE:
        raise ValueError(f"at most {MOST_FEATURES} features of 1 to {LARGEST_SIZE} elements")
    if dense.dtype != sparse.dtype or not (dense.is_contiguous() and sparse.is_contiguous()):
        raise ValueError("contiguous inputs of one dtype")
    width = size + features * (features - 1) // 2
    out = torch.empty(batch, width, dtype=dense.dtype, device=dense.device)
    if batch:
        _interaction_kernel[(batch,)](
            dense, sparse, out, features, size, width,
            FEATURES=max(16, triton.next_power_of_2(features)), CHUNK=min(CHUNK, max(16, triton.next_power_of_2(size))),
            PRECISION="tf32x3" if torch.backends.cuda.matmul.allow_tf32 else "ieee", num_warps=4,
        )  # fmt: skip
    return out


def reference(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    """As DLRM has it: one batched product, the lower triangle gathered, concatenated."""
    features = torch.cat((dense.unsqueeze(1), sparse), dim=1)
    products = torch.bmm(features, features.transpose(1, 2))
    i, j = torch.tril_indices(features.shape[1], features.shape[1], offset=-1, device=dense.device)
    return torch.cat((dense, products[:, i, j]), dim=1)


def bytes_moved(dense: torch.Tensor, sparse: torch.Tensor) -> int:
    """Both inputs once, the output once."""
    features = sparse.shape[1] + 1
    output = dense.numel() + dense.shape[0] * features * (features - 1) // 2
    return (dense.numel() + sparse.numel() + output) * dense.element_size()


CASES = (
    Case(name="8x26x64", arguments=(TensorCase(shape=(8, 64)), TensorCase(shape=(8, 26, 64)))),
    Case(name="5x7x33", arguments=(TensorCase(shape=(5, 33)), TensorCase(shape=(5, 7, 33)))),
)
PROVENANCE = Provenance(
    author="Claude (Anthropic)",
    task="DLRM's dot interaction in one Triton kernel: products, triangle and concatenation",
    attempts=1,
    human_edits="",
)
SUBSTITUTE = Substitute(launcher=interaction, reference=reference, op="gemm", bytes_moved=bytes_moved)
