"""One kernel's name and op stacks in, its label out: two independent verdicts, then what both together say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from addrfrac.classify.cpu_rules import cpu_provider
from addrfrac.classify.inductor import KINDS
from addrfrac.classify.normalise import NormalName, normalise
from addrfrac.classify.phases import phase_of, phase_of_name
from addrfrac.classify.rules import OpRule, RuleSet, StackRule
from addrfrac.records import KIND_KERNEL, KIND_MEMCPY, KIND_MEMSET, Certainty, Incumbent, Label, Op, Phase, Role

NO_RULE = "no rule"
UNKNOWN_PROVIDER = "unknown"

_BUILDING_BLOCKS = frozenset(
    {
        Op.ELEMENTWISE,
        Op.COPY_LAYOUT,
        Op.REDUCTION,
        Op.FUSED_UNKNOWN,
        Op.SORT_TOPK,
        Op.SCAN,
        Op.GATHER_SCATTER,
        Op.MEMCPY,
        Op.MEMSET,
        Op.RNG,
        Op.QUANTIZATION,
        Op.SCHEDULING,
    }
)
"""Classes that any op may launch on the side: no contradiction when the op is of another class."""

_PROVIDER_OF_NAMESPACE = {
    "vllm": "vllm",
    "_C": "vllm",
    "_C_cache_ops": "vllm",
    "_moe_C": "vllm",
    "_rocm_C": "vllm",
    "_vllm_fa2_C": "flash_attn_2",
    "_vllm_fa3_C": "flash_attn_3",
    "sgl_kernel": "sglang",
    "sglang": "sglang",
    "aiter": "aiter",
    "fbgemm": "fbgemm",
    "fb": "fbgemm",
    "torchvision": "torchvision",
    "flash_attn": "flash_attn_2",
    "flash_attn_2": "flash_attn_2",
    "flash_attn_3": "flash_attn_3",
    "flashinfer": "flashinfer",
    "_flashmla_C": "flashmla",
    "xformers": "xformers",
    "xformers_flash": "flash_attn_2",
    "trtllm": "trtllm",
    "tensorrt_llm": "trtllm",
    "tex": "transformer_engine",
    "transformer_engine_torch": "transformer_engine",
    "bitsandbytes": "bitsandbytes",
    "torch_sparse": "torch_sparse",
    "torch_scatter": "torch_sparse",
    "natten": "natten",
    "quack": "quack",
    "mamba": "mamba",
    "torchao": "torchao",
    "mlp_cuda": "apex",
    "apex": "apex",
    "liger": "liger",
}
"""Whose ops live in a namespace; asked only where the kernel's name does not tell its owner."""

_ATTENTION_IN_LIST = re.compile(
    r"^(?:mm|bmm|addmm|baddbmm|convolution\w*|_?scaled_dot_product_\w+|\w*attention\w*|moe_forward\w*|_scaled_mm)$"
)


_TRITON_NAME = re.compile(r"^(?:kernel_[a-z0-9_]+|[a-z][a-z0-9_]*_kernel(?:_[a-z0-9_]+)?)$")
_BARE_NAME_EVIDENCE = "owner read from the form of the name: bare and lower-case, as Triton's kernels are"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackVerdict:
    """What the ops that launched a kernel say."""

    inner: StackRule | None
    """Rule of the innermost frame that says anything."""
    inner_frame: str
    enclosing: tuple[tuple[StackRule, str], ...]
    """Rules of frames further out (and of the forward op) that claim what runs inside them, with the frame."""
    launching_op: str | None
    """Innermost frame that is an op at all."""
    provider: str
    """Who owns the innermost op's namespace; '' where that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    op: Op
    role: Role
    rule: str
    certainty: Certainty
    is_catch_all: bool = False
    evidence: tuple[str, ...] = ()


def is_op_frame(frame: str, rules: RuleSet) -> bool:
    """Whether a frame is an op rather than a range, a region or an autograd node."""
    if frame.startswith(
        ("autograd::engine::", "Torch-Compiled Region", "CompiledFunction", "## Call", "ProfilerStep#", "Optimizer.")
    ):
        return False
    return "::" in frame or rules.stack_rule(frame) is not None or normalise(frame).text.startswith("inductor::")


def stack_verdict(op_stack: tuple[str, ...], forward_stack: tuple[str, ...], rules: RuleSet) -> StackVerdict:
    """The verdict of a launching op stack and, for a backward kernel, of its forward op's stack (outermost first)."""
    inner: StackRule | None = None
    inner_frame, launching_op, provider = "", None, ""
    enclosing: list[tuple[StackRule, str]] = []
    for frame in reversed(op_stack):
        if launching_op is None and is_op_frame(frame, rules):
            launching_op = frame
        provider = provider or _PROVIDER_OF_NAMESPACE.get(frame.partition("::")[0], "")
        rule = rules.stack_rule(frame)
        if rule is None or rule.op is None:
            continue
        provider = provider or rule.provider
        if inner is None:
            inner, inner_frame = rule, frame
        if rule.encloses:
            enclosing.append((rule, frame))
    for frame in reversed(forward_stack):
        rule = rules.stack_rule(frame)
        if rule is not None and rule.op is not None and rule.encloses:
            enclosing.append((rule, frame))
    return StackVerdict(
        inner=inner, inner_frame=inner_frame, enclosing=tuple(enclosing), launching_op=launching_op, provider=provider
    )


def label_kernel(
    name: str,
    *,
    rules: RuleSet,
    op_stack: tuple[str, ...] = (),
    forward_stack: tuple[str, ...] = (),
    kind: int = KIND_KERNEL,
    was_launched: bool = False,
    is_graph_replay: bool = False,
    on_cpu: bool = False,
    stack: StackVerdict | None = None,
    evidence: tuple[str, ...] = (),
) -> Label:
    """The label of one distinct kernel; `stack` saves working out the same stack's verdict again."""
    if on_cpu:
        return _label_cpu_op(name, op_stack, forward_stack, rules)
    stack = stack or stack_verdict(op_stack, forward_stack, rules)
    normal = normalise(name)
    decision = _driver_decision(kind, normal, rules) or _decide(
        normal, rules.op_rule(normal.text), stack, rules, op_stack
    )
    provider, provider_rule, incumbent, provider_evidence = _provider(kind, normal, stack, rules)
    phase = phase_of(op_stack, forward_stack, was_launched=was_launched, is_replay=is_graph_replay)
    notes = [*evidence, *decision.evidence, *provider_evidence, *_inductor_evidence(normal)]
    if is_graph_replay:
        notes.append(
            "graph replay: labelled by name alone"
            if not op_stack
            else "graph replay: the op stack is that of the launch"
        )
    if phase is Phase.UNKNOWN and (by_name := phase_of_name(normal.text)) is not Phase.UNKNOWN:
        phase = by_name
        notes.append("phase read from the name")
    return Label(
        op=decision.op,
        provider=provider,
        role=decision.role,
        phase=phase,
        incumbent=incumbent,
        op_rule=decision.rule,
        provider_rule=provider_rule,
        certainty=decision.certainty,
        is_catch_all=decision.is_catch_all,
        launching_op=stack.launching_op,
        op_stack=op_stack,
        fused_ops=normal.fused_ops,
        evidence=tuple(dict.fromkeys(notes)),
    )


def _driver_decision(kind: int, normal: NormalName, rules: RuleSet) -> _Decision | None:
    """Copies and sets are the driver's by the kind of their event, whatever op caused them."""
    if kind == KIND_KERNEL:
        return None
    op = Op.MEMCPY if kind == KIND_MEMCPY else Op.MEMSET
    rule = rules.op_rule(normal.text)
    return _Decision(
        op=op,
        role=Role.MAIN,
        rule=rule.name if rule is not None and rule.op is op else "event kind",
        certainty=Certainty.NAME,
    )


def _decide(
    normal: NormalName, rule: OpRule | None, stack: StackVerdict, rules: RuleSet, op_stack: tuple[str, ...]
) -> _Decision:
    """What name and stack together say: first the innermost op against the name, then what encloses both."""
    if (rule is None or rule.is_catch_all) and (described := _generated_frame(normal, op_stack, rules)) is not None:
        return described
    own = decision = _name_against_op(rule, stack)
    for enclosing, frame in stack.enclosing:  # the outermost has the last word
        if decision.op in enclosing.encloses and enclosing.op not in (None, decision.op):
            assert enclosing.op is not None
            decision = _Decision(
                op=enclosing.op,
                role=Role.MAIN,
                rule=f"{own.rule} inside {enclosing.name}",
                certainty=Certainty.OP if own.is_catch_all else Certainty.AGREE,
                evidence=(*own.evidence, f"{own.op} work inside {frame}"),
            )
    return own if decision.op is own.op and not own.is_catch_all else decision


def _name_against_op(rule: OpRule | None, stack: StackVerdict) -> _Decision:
    inner = stack.inner
    if rule is None or rule.is_catch_all:
        return _op_only(rule, stack)
    by_name = _Decision(op=rule.op, role=rule.role, rule=rule.name, certainty=Certainty.NAME)
    if inner is None or inner.op is None:
        return by_name
    if inner.op is rule.op:
        return replace(by_name, certainty=Certainty.AGREE)
    if rule.op in inner.absorbs_main:
        return _served(rule, stack, rule.role)
    if rule.op in inner.absorbs_aux:
        return _served(rule, stack, Role.AUX)
    if inner.op in rule.could_be:
        return _served(rule, stack, rule.role)
    if rule.op in _BUILDING_BLOCKS:
        return replace(by_name, evidence=(f"a {rule.op} kernel launched by {stack.inner_frame}",))
    return replace(
        by_name,
        certainty=Certainty.CONFLICT,
        evidence=(f"the name says {rule.op}, {stack.inner_frame} says {inner.op}; the name is followed",),
    )


def _served(rule: OpRule, stack: StackVerdict, role: Role) -> _Decision:
    """The op decides: kernels of this name serve several classes."""
    assert stack.inner is not None
    assert stack.inner.op is not None
    return _Decision(
        op=stack.inner.op,
        role=role,
        rule=f"{rule.name} under {stack.inner.name}",
        certainty=Certainty.AGREE,
        evidence=(f"a {rule.op} kernel by name, launched by {stack.inner_frame}",),
    )


def _op_only(rule: OpRule | None, stack: StackVerdict) -> _Decision:
    """Only the op can tell; without one, or where the name rules it out, the kernel stays unknown."""
    inner = stack.inner
    name = rule.name if rule is not None else NO_RULE
    if inner is not None and inner.op is not None and (rule is None or not rule.could_be or inner.op in rule.could_be):
        return _Decision(op=inner.op, role=Role.MAIN, rule=f"{name}; {inner.name} by op", certainty=Certainty.OP)
    op = rule.op if rule is not None else Op.OTHER
    return _Decision(op=op, role=Role.MAIN, rule=name, certainty=Certainty.NAME, is_catch_all=True)


def _generated_frame(normal: NormalName, op_stack: tuple[str, ...], rules: RuleSet) -> _Decision | None:
    """A bare generated kernel launched from a frame that carries its full descriptive name."""
    if not normal.text.startswith("inductor::") or not op_stack:
        return None
    frame = normalise(op_stack[-1])
    if not frame.text.startswith("inductor::") or frame.text == normal.text:
        return None
    rule = rules.op_rule(frame.text)
    if rule is None or rule.is_catch_all:
        return None
    return _Decision(
        op=rule.op,
        role=rule.role,
        rule=f"{rule.name} by launching frame",
        certainty=Certainty.OP,
        evidence=(f"described by the frame that launched it: {op_stack[-1]}",),
    )


def _provider(
    kind: int, normal: NormalName, stack: StackVerdict, rules: RuleSet
) -> tuple[str, str, Incumbent, tuple[str, ...]]:
    if kind in (KIND_MEMCPY, KIND_MEMSET):
        return "cuda_driver", "event kind", rules.incumbents.get("cuda_driver", Incumbent.SYSTEM), ()
    rule = rules.provider_rule(normal.text)
    if rule is not None:
        incumbent = rule.incumbent or rules.incumbents.get(rule.provider, Incumbent.UNKNOWN)
        return rule.provider, rule.name, incumbent, (rule.evidence,) if rule.evidence else ()
    if stack.provider:
        incumbent = rules.incumbents.get(stack.provider, Incumbent.UNKNOWN)
        return stack.provider, "namespace of the launching op", incumbent, ()
    if normal.is_bare and _TRITON_NAME.match(normal.text):
        return "triton", "bare name", rules.incumbents.get("triton", Incumbent.UNKNOWN), (_BARE_NAME_EVIDENCE,)
    return UNKNOWN_PROVIDER, NO_RULE, Incumbent.UNKNOWN, ()


def _inductor_evidence(normal: NormalName) -> tuple[str, ...]:
    if not normal.text.startswith("inductor::"):
        return ()
    kind = normal.text[len("inductor::") :].partition("<")[0]
    if kind == "bare":
        return ("generated by Inductor; the name carries neither kind nor op list",)
    notes = [f"generated by Inductor: {KINDS.get(kind, kind)} kernel"]
    if kind != "tem" and (origins := [op for op in normal.fused_ops if _ATTENTION_IN_LIST.match(op)]):
        notes.append(f"{', '.join(origins)} in its list: where its inputs come from, not what it runs")
    return tuple(notes)


def _label_cpu_op(name: str, op_stack: tuple[str, ...], forward_stack: tuple[str, ...], rules: RuleSet) -> Label:
    """The label of a CPU operator's own time: its op by the stack table, its owner by the CPU table."""
    frames = op_stack if op_stack and op_stack[-1] == name else (*op_stack, name)
    stack = stack_verdict(frames, forward_stack, rules)
    own = rules.stack_rule(name)
    provider, provider_rule = cpu_provider(name, own)
    op_rule, op, role, certainty, is_catch_all = NO_RULE, Op.OTHER, Role.MAIN, Certainty.OP, False
    notes: tuple[str, ...] = ()
    if provider == "aten_dispatch":
        op_rule, role = "dispatch", Role.AUX
        notes = ("dispatch on the host: no kernel of its own",)
    elif own is not None and own.op is not None:
        decision = _Decision(op=own.op, role=Role.MAIN, rule=own.name, certainty=Certainty.OP)
        for enclosing, frame in stack.enclosing:
            if decision.op in enclosing.encloses and enclosing.op is not None and enclosing.op is not decision.op:
                decision = replace(
                    decision,
                    op=enclosing.op,
                    rule=f"{own.name} inside {enclosing.name}",
                    evidence=(f"{own.op} work inside {frame}",),
                )
                break
        op_rule, op, notes = decision.rule, decision.op, decision.evidence
    else:
        is_catch_all = True
    return Label(
        op=op,
        provider=provider,
        role=role,
        phase=phase_of(frames, forward_stack, was_launched=True),
        incumbent=rules.incumbents.get(provider, Incumbent.UNKNOWN),
        op_rule=op_rule,
        provider_rule=provider_rule,
        certainty=certainty,
        is_catch_all=is_catch_all,
        launching_op=name,
        op_stack=frames,
        evidence=notes,
    )
