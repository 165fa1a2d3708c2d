"""Errors, limits and classes."""

from __future__ import annotations

import math

import pytest
import torch

from addrfrac.verification.closeness import judge, measure, yardstick
from addrfrac.verification.precision import round_tensor
from addrfrac.verification.records import PrecisionClass

GENERATOR = torch.Generator().manual_seed(0)


def product(classes: bool = True):
    """A GEMM's truth with its yardstick."""
    a = torch.randn(48, 64, generator=GENERATOR, dtype=torch.float64)
    b = torch.randn(64, 40, generator=GENERATOR, dtype=torch.float64)
    a, b = a.float().double(), b.float().double()

    def rounded(how):
        return round_tensor(a, how, GENERATOR, "float32") @ round_tensor(b, how, GENERATOR, "float32")

    honest = {PrecisionClass.FP32: [a.float() @ b.float()]}
    if classes:
        honest |= {PrecisionClass.TF32: [rounded("tf32")], PrecisionClass.HALF: [rounded("half")]}
    return a, b, yardstick(a @ b, honest, dtype="float32", reduction_length=64.0, input_rms=1.0)


def test_a_skipped_row_of_small_magnitude_is_seen_by_the_worst_slice_alone():
    a, b, _ = product()
    gains = 10.0 ** (-6 * torch.arange(48, dtype=torch.float64) / 47)
    truth = (a @ b) * gains[:, None]
    stick = yardstick(
        truth, {PrecisionClass.FP32: [truth.float()]}, dtype="float32", reduction_length=64.0, input_rms=1.0
    )
    output = truth.clone()
    output[30:] = 1e-30
    found = measure(output, truth, stick.floor)
    assert found.relative_frobenius < 2e-2
    assert found.normalised_max < 5e-2
    assert found.worst_slice > 0.9
    assert judge(output, stick).precision is PrecisionClass.NONE


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("exact", PrecisionClass.FP32), ("tf32", PrecisionClass.TF32), ("half", PrecisionClass.HALF)],
)
def test_a_product_reaches_the_class_that_its_operands_were_rounded_to(how, wanted):
    a, b, stick = product()
    output = (round_tensor(a, how, GENERATOR, "float32") @ round_tensor(b, how, GENERATOR, "float32")).float()
    assert judge(output, stick).precision is wanted


def test_nan_never_passes_wherever_it_is():
    a, b, stick = product()
    output = (a @ b).float()
    output[0, 0] = math.nan
    assert judge(output, stick).precision is PrecisionClass.NONE


def test_zero_truth_accepts_zeros_and_nothing_else():
    truth = torch.zeros(8, 8, dtype=torch.float64)
    stick = yardstick(
        truth, {PrecisionClass.FP32: [truth.float()]}, dtype="float32", reduction_length=1.0, input_rms=1.0
    )
    assert judge(torch.zeros(8, 8), stick).precision is PrecisionClass.FP32
    assert judge(torch.full((8, 8), 1e-4), stick).precision is PrecisionClass.NONE


def test_integers_are_exact_but_for_near_ties():
    truth = torch.arange(10)
    tied = truth.clone()
    tied[3] = 4
    stick = yardstick(truth, {PrecisionClass.FP32: [tied]}, dtype="float32", reduction_length=1.0, input_rms=1.0)
    assert judge(tied, stick).precision is PrecisionClass.EXACT
    wrong = truth.clone()
    wrong[5] = 6
    assert judge(wrong, stick).precision is PrecisionClass.NONE


def test_the_checker_itself_does_not_overflow_on_large_values():
    truth = torch.full((4, 4), 3e38, dtype=torch.float64)
    assert measure(truth.float(), truth, 1.0).relative_frobenius < 1e-6
