"""Errors, limits and classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from addrfrac.verification.closeness import judge, measure, print_of, yardstick
from addrfrac.verification.invariants import broken, find_invariants
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


@pytest.mark.parametrize(
    ("dtype", "wanted"), [(torch.float16, PrecisionClass.HALF), (torch.float32, PrecisionClass.FP32)]
)
def test_rounding_shows_by_the_pattern_of_its_errors_where_their_size_would_pass(dtype, wanted):
    truth = torch.randn(40, 50, generator=GENERATOR, dtype=torch.float64)
    stick = yardstick(
        truth,
        {PrecisionClass.FP32: [truth.float()], PrecisionClass.HALF: [truth.bfloat16()]},
        dtype="float32",
        reduction_length=4096.0,
        input_rms=1.0,
    )
    known = print_of(PrecisionClass.HALF, "answers rounded to float16", truth.half(), truth)
    output = truth.to(dtype).float()
    assert judge(output, stick).precision is PrecisionClass.FP32
    assert judge(output, replace(stick, prints=(known,))).precision is wanted


def test_an_invariant_is_what_every_truth_keeps_and_a_veto_for_who_breaks_it():
    inputs = [torch.randn(6, 30, generator=GENERATOR, dtype=torch.float64) for _ in range(3)]
    truths = [[torch.softmax(x, -1)] for x in inputs]
    found = {i.name: i for i in find_invariants(truths, [[x] for x in inputs])}
    assert set(found) == {"sums to one", "is never negative", "is at most one"}
    limits = {"precision": PrecisionClass.FP32, "dtype": "float32", "reduction_length": 30.0}
    right = truths[0][0].float()
    assert broken(found["sums to one"], right, right, [inputs[0]], **limits) is None
    assert broken(found["sums to one"], right * 1.01, right, [inputs[0]], **limits) is not None
    assert broken(found["is never negative"], right - 0.1, right, [inputs[0]], **limits) is not None


def test_a_print_finer_than_fp32_itself_tells_nothing():
    truth = torch.full((4096,), 1 + 2.0**-25, dtype=torch.float64)
    assert print_of(PrecisionClass.HALF, "answers rounded to bfloat16", truth.bfloat16(), truth) is None
    truth = 1 + torch.rand(4096, generator=GENERATOR, dtype=torch.float64)
    assert print_of(PrecisionClass.HALF, "answers rounded to bfloat16", truth.bfloat16(), truth) is not None
