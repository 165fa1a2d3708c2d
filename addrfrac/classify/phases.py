"""An op stack in, the phase of the step out."""

from __future__ import annotations

import re

from addrfrac.records import Phase

_BACKWARD = re.compile(
    r"autograd::engine::evaluate_function: .*|\w+Backward\w*|.*::\w+_backward(?:_\w+)?"
    r"|torch::autograd::(?:CppNode<.*|AccumulateGrad|GraphRoot|CopySlices|CopyBackwards).*"
)
_OPTIMIZER = re.compile(
    r"Optimizer\.(?:step|zero_grad)#.*|aten::_fused_(?:adamw?|sgd|adagrad)_?"
    r"|aten::_amp_foreach_non_finite_check_and_unscale_|aten::_foreach_(?!copy|clone)\w+"
)
_OP_OR_REGION = re.compile(r"\w+::|Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph")
_BACKWARD_NAME = re.compile(
    r"(?:^|[_:])(?:bwd|dgrad|wgrad|wrw)(?=_|\d|$)|[bB]ackward|_bw_|Bwd(?=[A-Z_0-9]|$)|dq_dk_dv|dot_do_o|convert_dq"
    r"|grad_input|GradInput|GammaBeta"
)
_OPTIMIZER_NAME = re.compile(
    r"FusedAdam|AdamFunctor|SGDFunctor|LAMBFunctor|kOptimizer|fused_adam|_amp_foreach_non_finite"
)


def phase_of(
    op_stack: tuple[str, ...], forward_stack: tuple[str, ...], *, was_launched: bool = False, is_replay: bool = False
) -> Phase:
    """The phase that the stack tells; unknown without one, unless the trace shows a plain launch outside every op.

    A graph replay says nothing unless the launch stood inside an op or a compiled region: a graph may hold a whole
    training step. A forward run again inside backward (activation checkpointing) is backward: its time is spent there.
    """
    if any(_OPTIMIZER.fullmatch(frame) for frame in op_stack) and not _has_backward_node(op_stack):
        return Phase.OPTIMIZER
    if forward_stack or any(_BACKWARD.fullmatch(frame) for frame in op_stack):
        return Phase.BACKWARD
    if is_replay:
        return Phase.FORWARD if any(_OP_OR_REGION.match(frame) for frame in op_stack) else Phase.UNKNOWN
    return Phase.FORWARD if op_stack or was_launched else Phase.UNKNOWN


def _has_backward_node(op_stack: tuple[str, ...]) -> bool:
    return any(frame.startswith("autograd::engine::evaluate_function: ") for frame in op_stack)


def phase_of_name(text: str) -> Phase:
    """What a normalised kernel name alone says of its phase; forward kernels say nothing."""
    if _OPTIMIZER_NAME.search(text):
        return Phase.OPTIMIZER
    return Phase.BACKWARD if _BACKWARD_NAME.search(text) else Phase.UNKNOWN
