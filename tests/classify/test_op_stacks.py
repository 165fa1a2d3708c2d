"""What the op stack adds to a name, where both disagree, and which phase it tells."""

from __future__ import annotations

import pytest

from addrfrac.classify import classify_name
from addrfrac.records import Certainty, Op, Phase, Role

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}> >(int)"
)
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)"
GATHER = "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"
LOG_SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, int)"
SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(int)"
MUL = ADD.replace(
    "CUDAFunctor_add<float>", "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
)


@pytest.mark.parametrize(
    ("name", "stack", "op"),
    [
        (ADD, ("aten::cross_entropy_loss", "aten::add"), Op.LOSS),
        (MEAN, ("aten::mse_loss", "aten::mean"), Op.LOSS),
        (LOG_SOFTMAX, ("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"), Op.LOSS),
        (LOG_SOFTMAX, ("aten::log_softmax", "aten::_log_softmax"), Op.SOFTMAX),
        (LOG_SOFTMAX, ("aten::_log_softmax",), Op.LOSS),
        (ADD, ("Optimizer.step#SGD.step", "aten::add_"), Op.OPTIMIZER),
        (MUL, ("Optimizer.step#Adam.step", "aten::_foreach_mul_", "aten::mul_"), Op.OPTIMIZER),
        (MUL, ("aten::dropout", "aten::native_dropout", "aten::mul"), Op.RNG),
        (MUL, ("vllm::rotary_embedding", "aten::mul"), Op.ROPE),
        (GATHER, ("aten::embedding", "aten::index_select"), Op.EMBEDDING),
        (GATHER, ("aten::index_select",), Op.GATHER_SCATTER),
        (
            SORT,
            ("autograd::engine::evaluate_function: EmbeddingBackward0", "aten::embedding_dense_backward"),
            Op.EMBEDDING,
        ),
        (SORT, ("aten::argsort", "aten::sort"), Op.SORT_TOPK),
        (ADD, ("aten::layer_norm", "aten::native_layer_norm", "aten::add"), Op.NORMALIZATION),
        (COPY, ("aten::linear", "aten::to", "aten::_to_copy", "aten::copy_"), Op.COPY_LAYOUT),
        (COPY, ("aten::conv2d", "aten::contiguous", "aten::clone", "aten::copy_"), Op.COPY_LAYOUT),
        (ADD, ("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph abc ##", "aten::add"), Op.ELEMENTWISE),
        (ADD, ("my own range: softmax and loss", "aten::add"), Op.ELEMENTWISE),
    ],
)
def test_what_stands_further_out_decides_for_building_blocks(name: str, stack: tuple[str, ...], op: Op) -> None:
    assert classify_name(name, op_stack=stack).op is op


def test_a_backward_kernel_belongs_to_what_its_forward_op_served() -> None:
    stack = ("autograd::engine::evaluate_function: MulBackward0", "MulBackward0", "aten::mul")
    inside_loss = classify_name(MUL, op_stack=stack, forward_stack=("aten::cross_entropy_loss", "aten::mul"))
    outside = classify_name(MUL, op_stack=stack, forward_stack=("aten::mul",))
    assert (inside_loss.op, inside_loss.phase) == (Op.LOSS, Phase.BACKWARD)
    assert (outside.op, outside.phase) == (Op.ELEMENTWISE, Phase.BACKWARD)


def test_a_helper_that_an_op_launches_itself_is_no_contradiction() -> None:
    label = classify_name(COPY, op_stack=("aten::linear", "aten::addmm"))
    assert (label.op, label.certainty) == (Op.COPY_LAYOUT, Certainty.NAME)
    assert any("launched by aten::addmm" in fact for fact in label.evidence)


def test_name_and_op_of_different_classes_are_a_conflict_and_both_are_told() -> None:
    label = classify_name("void pytorch_flash::flash_fwd_kernel<int>(int)", "aten::max_pool2d_with_indices")
    assert (label.op, label.certainty) == (Op.ATTENTION, Certainty.CONFLICT)
    assert any("attention" in fact and "pooling" in fact for fact in label.evidence)


def test_aux_kernels_keep_the_class_that_they_serve() -> None:
    label = classify_name("batched_transpose_32x32_half", "aten::miopen_convolution")
    assert (label.op, label.role, label.certainty) == (Op.CONV, Role.AUX, Certainty.AGREE)


def test_certainty_says_where_the_evidence_came_from() -> None:
    gemm = "ampere_sgemm_128x64_tn"
    assert classify_name(gemm).certainty is Certainty.NAME
    assert classify_name(gemm, "aten::addmm").certainty is Certainty.AGREE
    assert classify_name("frobnicate", "aten::native_batch_norm").certainty is Certainty.OP
    assert classify_name(gemm, op_stack=("Torch-Compiled Region: 0/0",)).certainty is Certainty.NAME


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        ((), Phase.UNKNOWN),
        (("aten::linear", "aten::addmm"), Phase.FORWARD),
        (("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm"), Phase.BACKWARD),
        (("CompiledFunctionBackward", "aten::mm"), Phase.BACKWARD),
        (("aten::convolution_backward",), Phase.BACKWARD),
        (("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>",), Phase.BACKWARD),
        (("Optimizer.step#AdamW.step", "aten::_fused_adamw_"), Phase.OPTIMIZER),
        (("aten::_foreach_addcdiv_",), Phase.OPTIMIZER),
        (("aten::_foreach_copy_",), Phase.FORWARD),
        # a forward run again for activation checkpointing: its time is spent in backward
        (
            ("autograd::engine::evaluate_function: CheckpointFunctionBackward", "aten::linear", "aten::addmm"),
            Phase.BACKWARD,
        ),
    ],
)
def test_the_stack_tells_the_phase(stack: tuple[str, ...], phase: Phase) -> None:
    assert classify_name("some_gemm_name", op_stack=stack).phase is phase


def test_without_a_stack_a_backward_name_tells_its_phase_and_a_forward_name_does_not() -> None:
    backward = classify_name("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<int>(int)")
    assert backward.phase is Phase.BACKWARD
    assert "phase read from the name" in backward.evidence
    assert classify_name("void pytorch_flash::flash_fwd_kernel<int>(int)").phase is Phase.UNKNOWN
