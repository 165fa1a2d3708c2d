"""A whole trace labelled: one label for each distinct key, replays by name, and by their capture's order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from addrfrac.classify import certainty_shares, classify, with_capture
from addrfrac.classify.replay import align
from addrfrac.records import KIND_MEMCPY, KIND_MEMSET, Certainty, Op, OpInputs, Phase

GEMM, NORM = "nvjet_tst_64x8_64x16_1x1_h_bz_TNT", "void vectorized_layer_norm_kernel<float>(int)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)> >(int)"
LINEAR, LAYER_NORM = ("aten::linear", "aten::addmm"), ("aten::layer_norm", "aten::native_layer_norm")


def test_equal_keys_share_one_label_and_different_stacks_do_not(trace_of, row) -> None:
    trace = trace_of([row(name=GEMM, op_stack=LINEAR), row(name=NORM), row(name=GEMM, op_stack=LINEAR), row(name=GEMM)])
    labels = classify(trace)
    assert labels.of_kernel[0] == labels.of_kernel[2]
    assert len(labels.table) == 3
    assert [labels.table[i].op for i in labels.of_kernel] == [Op.GEMM, Op.NORMALIZATION, Op.GEMM, Op.GEMM]
    assert labels.table[labels.of_kernel[0]].op_stack == LINEAR


def test_the_kind_of_an_event_makes_it_a_copy_or_a_set(trace_of, row) -> None:
    trace = trace_of(
        [
            row(name="Memcpy HtoD (Pinned -> Device)", kind=KIND_MEMCPY, op_stack=("aten::cudnn_convolution",)),
            row(name="Some new spelling", kind=KIND_MEMSET),
        ]
    )
    labels = classify(trace)
    first, second = (labels.table[i] for i in labels.of_kernel)
    assert (first.op, second.op) == (Op.MEMCPY, Op.MEMSET)
    assert first.provider == second.provider == "cuda_driver"


def test_a_trace_without_kernels_has_no_labels(trace_of) -> None:
    assert classify(trace_of([])).table == ()


def test_the_modules_of_a_label_are_told(trace_of, row) -> None:
    trace = trace_of([row(name=NORM, module=f"nn.Module: LlamaRMSNorm_{i}") for i in range(3)] + [row(name=GEMM)])
    labels = classify(trace)
    assert "in nn.Module LlamaRMSNorm" in labels.table[labels.of_kernel[0]].evidence
    assert not any("nn.Module" in fact for fact in labels.table[labels.of_kernel[3]].evidence)


def test_a_kernel_launched_outside_every_op_is_forward_only_where_the_trace_has_ops(trace_of, row) -> None:
    with_ops = classify(trace_of([row(name=GEMM), row(name=NORM, op_stack=LAYER_NORM)]))
    without = classify(trace_of([row(name=GEMM), row(name=NORM)]))
    assert with_ops.table[with_ops.of_kernel[0]].phase is Phase.FORWARD
    assert without.table[without.of_kernel[0]].phase is Phase.UNKNOWN


def test_a_graph_replay_is_labelled_by_name_and_says_so(trace_of, row) -> None:
    labels = classify(trace_of([row(name=GEMM, graph=1), row(name=NORM, graph=1)]))
    for label in labels.table:
        assert label.certainty is Certainty.NAME
        assert any("graph replay" in fact for fact in label.evidence)
        assert label.phase is Phase.UNKNOWN


CAPTURED = [
    (COPY, ("aten::copy_",)),
    (GEMM, LINEAR),
    (NORM, LAYER_NORM),
    (GEMM, ("aten::matmul", "aten::mm")),
    (COPY, ("aten::cat",)),
]


@pytest.fixture
def capture(trace_of, row):
    """A step run eagerly, between warm-up copies that the graph does not hold."""
    around = [row(name=COPY, op_stack=("aten::to", "aten::copy_"))] * 3
    return trace_of([*around, *(row(name=name, op_stack=stack) for name, stack in CAPTURED), *around])


def test_replays_take_their_stacks_from_the_capture_by_order(trace_of, row, capture) -> None:
    replay = trace_of([row(name=name, graph=turn) for turn in (1, 2) for name, _ in CAPTURED])
    labels = classify(replay, capture=capture)
    assert [labels.table[i].op_stack for i in labels.of_kernel] == [stack for _, stack in CAPTURED] * 2
    assert {labels.table[i].certainty for i in labels.of_kernel} == {Certainty.AGREE}
    assert all(any("recovered from the capture" in fact for fact in label.evidence) for label in labels.table)


def test_replays_take_their_shapes_from_the_capture_too(trace_of, row, capture) -> None:
    shapes = OpInputs(dims="[[64, 128]]", types="", strides="", concrete="")
    inputs = np.where(capture.kernels.op_stack == capture.op_stacks.index(LINEAR), 0, -1).astype(np.int32)
    capture = replace(capture, op_inputs=(shapes,), kernels=replace(capture.kernels, inputs=inputs))
    replay = trace_of([row(name=name, graph=1) for name, _ in CAPTURED])
    recovered = with_capture(replay, capture)
    assert [recovered.op_inputs[i].dims if i >= 0 else "" for i in recovered.kernels.inputs] == [
        "",
        "[[64, 128]]",
        "",
        "",
        "",
    ]
    assert recovered.kernels.start_ns is replay.kernels.start_ns


def test_a_replay_that_differs_a_little_is_aligned_all_the_same(trace_of, row, capture) -> None:
    names = [name for name, _ in CAPTURED]
    names[3] = "nvjet_tst_128x64_64x8_2x1_v_bz_TNN"  # another tile of the same product
    names.insert(2, "void extra_kernel_of_the_replay<1>(int)")
    labels = classify(trace_of([row(name=name, graph=1) for name in names]), capture=capture)
    stacks = [labels.table[i].op_stack for i in labels.of_kernel]
    assert stacks[:2] == [CAPTURED[0][1], CAPTURED[1][1]]
    assert stacks[2] == ()
    assert stacks[3:] == [CAPTURED[2][1], CAPTURED[3][1], CAPTURED[4][1]]


def test_kernels_outside_the_graph_keep_their_own_stacks(trace_of, row, capture) -> None:
    trace = trace_of([row(name=GEMM, op_stack=("aten::mm",)), row(name=GEMM, graph=1), row(name=NORM, graph=1)])
    labels = classify(trace, capture=capture)
    assert labels.table[labels.of_kernel[0]].op_stack == ("aten::mm",)


def test_the_gain_in_certainty_is_a_share_of_kernel_time(trace_of, row, capture) -> None:
    replay = trace_of([row(name=name, graph=1) for name, _ in CAPTURED] + [row(name="frobnicate", graph=1)])
    before = certainty_shares(replay, classify(replay))
    after = certainty_shares(replay, classify(replay, capture=capture))
    assert before == pytest.approx({"name only": 5 / 6, "unknown": 1 / 6})
    assert after == pytest.approx({"name and op agree": 5 / 6, "unknown": 1 / 6})


def test_a_capture_of_something_else_recovers_nothing(trace_of, row) -> None:
    other = trace_of([row(name=f"void other_{i}<1>(int)", op_stack=("aten::mm",)) for i in range(5)])
    replay = trace_of([row(name=name, graph=1) for name, _ in CAPTURED])
    labels = classify(replay, capture=other)
    assert {label.op_stack for label in labels.table} == {()}


@pytest.mark.parametrize(
    ("name", "op", "provider", "role"),
    [
        ("aten::mkldnn_convolution", "conv", "onednn", "main"),
        ("aten::addmm", "gemm", "mkl", "main"),
        ("aten::native_batch_norm", "normalization", "aten_cpu", "main"),
        ("aten::conv2d", "other", "aten_dispatch", "aux"),
        ("aten::empty", "other", "aten_dispatch", "aux"),
        ("autograd::engine::evaluate_function: MulBackward0", "other", "aten_dispatch", "aux"),
        ("aten::max_pool2d_with_indices", "pooling", "aten_cpu", "main"),
        ("aten::clamp_min_", "elementwise", "aten_cpu", "main"),
        ("fbgemm::permute_2D_sparse_data", "gather_scatter", "fbgemm", "main"),
    ],
)
def test_on_a_cpu_operators_stand_for_kernels(trace_of, row, name: str, op: str, provider: str, role: str) -> None:
    label = classify(trace_of([row(name=name)], device_kind="cpu")).table[0]
    assert (label.op, label.provider, label.role, label.is_catch_all) == (op, provider, role, False)


def test_on_a_cpu_the_stack_decides_as_on_a_gpu(trace_of, row) -> None:
    rows = [row(name="aten::mul", op_stack=("aten::cross_entropy_loss", "aten::mul")), row(name="mylib::new_op")]
    loss, unknown = (classify(trace_of(rows, device_kind="cpu")).table[i] for i in (0, 1))
    assert sorted([str(loss.op), str(unknown.op)]) == ["loss", "other"]
    assert sum(label.is_catch_all for label in (loss, unknown)) == 1


def test_extra_kernels_of_a_replay_do_not_shift_repeated_layers() -> None:
    layer = ["gemm", "norm", "gemm", "add", "norm", "gemm", "gelu", "gemm", "add"]
    captured = ["copy"] * 20 + layer * 300 + ["copy"] * 10
    replayed = list(captured[20:-10])
    truth = list(range(20, 20 + len(replayed)))
    for at in range(2500, 0, -83):
        replayed.insert(at, "extra")
        truth.insert(at, -1)
    assert align(tuple(replayed), captured).tolist() == truth
