"""Scores the classifier on a table of labelled kernel names and lists every disagreement.

    python tests/benchmarks/label_score.py --labels kernels_labelled.tsv [--half first|second|all]

The table needs the columns kernel_name, launching_op, op_class, name_only_class, provider_family and confidence. A
stable hash of the name splits it in two halves, so that rules can be written on one and scored on the other.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from collections import Counter
from pathlib import Path

from addrfrac.classify.names import NamedKernel, classify_name, classify_rows

# Where the table and the rules part, and what is believed of it: (part of the name, part of the launching op, why).
# Every disagreement is listed, with a reason or without.
REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "indexSelect",
        "aten::index_select",
        "embedding by its op stack (aten::embedding), which the launching op alone hides",
    ),
    (
        "LogSoftMaxForward",
        "_log_softmax",
        "log_softmax outside a loss: the launching op alone is that of a loss elsewhere in the table",
    ),
    ("at::native::Identity", "_foreach_copy_", "table inconsistent: its other _foreach_copy_ kernels are copy_layout"),
    ("triton__0d1d", "triton_", "the launching frame carries the full descriptive name, which the table does not use"),
    ("kattr_no_packed_fp32_ops", "", "the kernel's own name is lost; the table knows it from elsewhere"),
    ("index_put_kernel_impl", "_index_put_impl_", "the table knows from the model that it writes a KV cache"),
    (
        "FlashAttentionBackwardP",
        "",
        "before and after the backward pass itself: aux, as dot_do_o and convert_dq are in the table",
    ),
    ("FmhaBwdOGradDotO", "", "aux, as dot_do_o is elsewhere in the table"),
    ("prepare_varlen_num_blocks", "", "a scheduler: aux in one row of the table and main in another"),
    ("reduce_1Block_kernel", "", "second stage of a dot product: aux, as split-K reductions are"),
    ("batched_transpose_", "", "without an op: aux of a MIOpen convolution, the only owner of such kernels"),
    ("SubTensorOp", "", "without an op: aux of a MIOpen convolution, the only owner of such kernels"),
    ("transpose_CNHW", "", "without an op: aux of a MIOpen convolution, the only owner of such kernels"),
    ("cudnn::", "", "without an op: a layout kernel of cuDNN is aux of a convolution"),
    ("oldedNhwc", "", "without an op: a layout kernel of cuDNN is aux of a convolution"),
    ("tensorTransformGeneric", "", "without an op: a layout kernel of cuDNN is aux of a convolution"),
    (
        "r2c_32",
        "",
        "cuDNN's own FFT kernels: by name a convolution's; torch.fft runs cuFFT's, which are named otherwise",
    ),
    ("gcgemm", "", "complex GEMM inside cuDNN's FFT convolution"),
    ("epilogue::impl", "", "an epilogue helper of cuBLASLt, elementwise by its form"),
)


def half_of(name: str) -> str:
    """'first' or 'second', by a hash that no Python version changes."""
    return "first" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "second"


def read_table(path: Path, half: str) -> list[dict[str, str]]:
    """The rows of the asked half."""
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row for row in rows if half in ("all", half_of(row["kernel_name"]))]


def score(rows: list[dict[str, str]], wanted: str, got: list[str], confidence: str) -> tuple[int, int]:
    """(right, all) among rows of one confidence ('' for every one)."""
    pairs = [
        (row[wanted], value)
        for row, value in zip(rows, got, strict=True)
        if not confidence or row["confidence"] == confidence
    ]
    return sum(a == b for a, b in pairs), len(pairs)


def print_scores(title: str, rows: list[dict[str, str]], wanted: str, got: list[str]) -> None:
    """One line for each confidence, then one for each class that is not all right."""
    print(f"\n{title}")
    for confidence in ("high", "med", "low", ""):
        right, total = score(rows, wanted, got, confidence)
        if total:
            print(f"  {confidence or 'all':5s} {right:5d} / {total:5d} = {100 * right / total:6.2f} %")
    by_class: dict[str, Counter[bool]] = {}
    for row, value in zip(rows, got, strict=True):
        if row["confidence"] == "high":
            by_class.setdefault(row[wanted], Counter())[row[wanted] == value] += 1
    for name, counts in sorted(by_class.items(), key=lambda item: -item[1].total()):
        print(f"    {name:20s} {counts[True]:5d} / {counts.total():5d}")


def print_disagreements(rows: list[dict[str, str]], columns: list[tuple[str, list[str]]]) -> None:
    """Every row in which any scored column differs from the table."""
    print("\ndisagreements")
    for index, row in enumerate(rows):
        for wanted, got in columns:
            if row[wanted] != got[index]:
                print(f"  [{row['confidence']}] {wanted}: table {row[wanted]}, here {got[index]}  {reason_for(row)}")
                print(f"      {row['kernel_name'][:150]}  | {row['launching_op'][:70]}")


def reason_for(row: dict[str, str]) -> str:
    """What is believed of a disagreement; '' where nothing is."""
    reasons = (why for name, op, why in REASONS if name in row["kernel_name"] and op in row["launching_op"])
    return next(reasons, "")


def main() -> int:
    """Prints scores and disagreements; 1 when a score at high confidence is under the asked one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--half", choices=("first", "second", "all"), default="all")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail under this percentage at high confidence")
    arguments = parser.parse_args()
    rows = read_table(arguments.labels, arguments.half)
    labelled = classify_rows(NamedKernel(name=row["kernel_name"], launching_op=row["launching_op"]) for row in rows)
    op = [row["op"] for row in labelled]
    provider = [row["provider"] for row in labelled]
    role = [row["role"] for row in labelled]
    by_name = [str(classify_name(row["kernel_name"]).op) for row in rows]
    print(f"{len(rows)} names ({arguments.half})")
    print_scores("op, launching op given", rows, "op_class", op)
    print_scores("provider_family", rows, "provider_family", provider)
    print_scores("op by name alone, against name_only_class", rows, "name_only_class", by_name)
    print_scores("role", rows, "role", role)
    print_disagreements(
        rows, [("op_class", op), ("provider_family", provider), ("name_only_class", by_name), ("role", role)]
    )
    worst = min(
        100 * right / total
        for right, total in (score(rows, "op_class", op, "high"), score(rows, "provider_family", provider, "high"))
    )
    return int(worst < arguments.at_least)


if __name__ == "__main__":
    sys.exit(main())
