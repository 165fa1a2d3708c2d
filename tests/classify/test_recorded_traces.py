"""Recorded traces and the table of labelled names beside the checkout: unknown time, and the score of the labels."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from addrfrac.classify import classify
from addrfrac.classify.names import NamedKernel, classify_rows
from addrfrac.parse import read_trace

SHARED = Path(__file__).parents[2] / "../shared"
TRACES = sorted((SHARED / "traces").glob("*.json.gz"))
UNKNOWN_AT_MOST = 0.005
OLD_INDUCTOR = {"a100_recommender_rank0of16.json.gz", "a100_sam_compile_flash.json.gz"}
"""Recorded with Inductor kernels whose names carry neither kind nor op list: those alone may stay unknown there."""


@pytest.mark.parametrize("path", TRACES or [None], ids=lambda path: path.name if path else "none")
def test_unknown_time_is_small_or_only_of_kernels_that_say_nothing(path: Path | None, shared: Path) -> None:
    assert path is not None
    trace = read_trace(path)
    labels = classify(trace)
    duration_us = (trace.kernels.end_ns - trace.kernels.start_ns) / 1e3
    unknown = np.array([label.is_catch_all for label in labels.table])[labels.of_kernel]
    if path.name in OLD_INDUCTOR:
        rules = {labels.table[i].op_rule for i in labels.of_kernel[unknown]}
        assert rules == {"inductor-bare"}
    else:
        assert duration_us[unknown].sum() <= UNKNOWN_AT_MOST * duration_us.sum()


def test_no_kernel_of_the_recorded_traces_is_without_an_owner(shared: Path) -> None:
    nameless = Counter()
    for path in TRACES:
        trace = read_trace(path)
        labels = classify(trace)
        for i in np.unique(labels.of_kernel).tolist():
            if labels.table[i].provider == "unknown":
                nameless[path.name] += 1
    assert nameless == Counter()


@pytest.fixture(scope="module")
def table(shared: Path) -> list[dict[str, str]]:
    """Labelled names at high confidence."""
    csv.field_size_limit(1 << 24)
    with (shared / "kernels_labelled.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row for row in rows if row["confidence"] == "high"]


@pytest.mark.parametrize(("column", "field"), [("op_class", "op"), ("provider_family", "provider")])
def test_at_least_99_percent_of_confident_labels_agree(table: list[dict[str, str]], column: str, field: str) -> None:
    labelled = classify_rows(NamedKernel(name=row["kernel_name"], launching_op=row["launching_op"]) for row in table)
    wrong = [row["kernel_name"] for row, label in zip(table, labelled, strict=True) if row[column] != label[field]]
    assert len(wrong) <= 0.01 * len(table), wrong[:20]
