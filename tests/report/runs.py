"""Synthetic runs whose accounts close, for the renderers: no number here was measured anywhere."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from addrfrac.records import (
    AccessFit,
    Accounts,
    Addressable,
    Applied,
    ArmTimes,
    Bound,
    BreakEven,
    Bucket,
    Ceiling,
    CeilingRow,
    Certainty,
    ClassTime,
    CollectiveRow,
    Configuration,
    Credit,
    DeviceModel,
    DeviceState,
    Difference,
    Environment,
    Extrapolation,
    FloorRow,
    Floors,
    Gain,
    GapKind,
    GapTime,
    Grade,
    Incumbent,
    KernelRow,
    Ladder,
    Loss,
    MatmulPeak,
    Op,
    Parity,
    Phase,
    PolicyShare,
    Projection,
    Range,
    RankRow,
    RankTable,
    Role,
    Run,
    Rung,
    Serving,
    Site,
    SiteDecision,
    StepAccount,
    Target,
    Times,
    TraceSource,
    Verdict,
    WaitingCause,
    Wall,
)

NOTHING = Range(low=None, high=None)
STEPS = 6
LIBRARY_OPS = {Op.GEMM, Op.CONV, Op.ATTENTION}
POLICIES = ("paper", "vendor", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One kernel of a made-up step."""

    name: str
    op: Op
    provider: str
    incumbent: Incumbent
    launches: int
    device_us: float
    launching_op: str
    phase: Phase = Phase.FORWARD
    certainty: Certainty = Certainty.AGREE
    fused_ops: tuple[str, ...] = ()
    role: Role = Role.MAIN


RESNET = (
    Spec(
        name="sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_"
        "execute_segment_k_off_kernel__5x_cudnn",
        op=Op.CONV,
        provider="cudnn",
        incumbent=Incumbent.CLOSED,
        launches=36,
        device_us=1006.4,
        launching_op="aten::cudnn_convolution",
    ),
    Spec(
        name="void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_64x3_nhwc_align8>"
        "(cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_64x3_nhwc_align8::Params)",
        op=Op.CONV,
        provider="cudnn",
        incumbent=Incumbent.CLOSED,
        launches=17,
        device_us=412.9,
        launching_op="aten::cudnn_convolution",
    ),
    Spec(
        name="void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, float, 4>"
        "(c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, float const*, float const*, "
        "c10::BFloat16*, int, int, bool)",
        op=Op.NORMALIZATION,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=37,
        device_us=700.9,
        launching_op="aten::native_batch_norm",
    ),
    Spec(
        name="void cudnn::bn_fw_inf_1C11_kernel_NCHW<__nv_bfloat16, float, true, 1>(float, float, cudnnTensorStruct, "
        "__nv_bfloat16 const*, cudnnTensorStruct, __nv_bfloat16*)",
        op=Op.NORMALIZATION,
        provider="cudnn",
        incumbent=Incumbent.CLOSED,
        launches=16,
        device_us=392.2,
        launching_op="aten::cudnn_batch_norm",
    ),
    Spec(
        name="void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
        "launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, at::native::detail::ClampLimits)"
        "::{lambda()#1}::operator()() const::{lambda()#10}::operator()() const::{lambda(c10::BFloat16)#1}, "
        "std::array<char*, 2ul> >(int, at::native::(anonymous namespace)::launch_clamp_scalar(...))",
        op=Op.ELEMENTWISE,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=49,
        device_us=587.2,
        launching_op="aten::clamp_min_",
    ),
    Spec(
        name="void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
        op=Op.ELEMENTWISE,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=16,
        device_us=401.7,
        launching_op="aten::add_",
    ),
    Spec(
        name="void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::BFloat16, int>(...)",
        op=Op.POOLING,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=1,
        device_us=58.4,
        launching_op="aten::max_pool2d_with_indices",
    ),
    Spec(
        name="nvjet_sm90_tst_64x8_64x16_4x1_v_bz_bias_TNN",
        op=Op.GEMM,
        provider="cublas",
        incumbent=Incumbent.CLOSED,
        launches=1,
        device_us=9.8,
        launching_op="aten::addmm",
    ),
    Spec(
        name="void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<...>>>",
        op=Op.REDUCTION,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=1,
        device_us=11.2,
        launching_op="aten::mean",
        certainty=Certainty.NAME,
    ),
    Spec(
        name="Memset (Device)",
        op=Op.MEMSET,
        provider="cuda_driver",
        incumbent=Incumbent.SYSTEM,
        launches=3,
        device_us=4.2,
        launching_op="aten::cudnn_convolution",
    ),
    Spec(
        name="triton_poi_fused_4",
        op=Op.FUSED_UNKNOWN,
        provider="unknown",
        incumbent=Incumbent.UNKNOWN,
        launches=2,
        device_us=71.5,
        launching_op="",
        certainty=Certainty.CONFLICT,
        fused_ops=("relu", "add"),
    ),
)

TRAINING = (
    *RESNET,
    Spec(
        name="sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn",
        op=Op.CONV,
        provider="cudnn",
        incumbent=Incumbent.CLOSED,
        launches=52,
        device_us=3100.0,
        launching_op="aten::convolution_backward",
        phase=Phase.BACKWARD,
    ),
    Spec(
        name="void at::native::batch_norm_backward_elemt_channels_last_kernel<c10::BFloat16, float>(...)",
        op=Op.NORMALIZATION,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=53,
        device_us=2210.0,
        launching_op="aten::native_batch_norm_backward",
        phase=Phase.BACKWARD,
    ),
    Spec(
        name="void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(...)",
        op=Op.OPTIMIZER,
        provider="aten",
        incumbent=Incumbent.GENERIC,
        launches=6,
        device_us=214.0,
        launching_op="aten::_fused_adamw_",
        phase=Phase.OPTIMIZER,
    ),
)


def bound(spec: Spec, policy: str) -> Bound:
    if spec.incumbent is Incumbent.UNKNOWN:
        return Bound.UNKNOWN
    if spec.incumbent is Incumbent.SYSTEM:
        return Bound.SYSTEM
    library = {
        "paper": spec.op in LIBRARY_OPS,
        "vendor": spec.incumbent is Incumbent.CLOSED,
        "strict": spec.incumbent in (Incumbent.CLOSED, Incumbent.TUNED),
    }[policy]
    return Bound.LIBRARY if library else Bound.REPLACEABLE


def full(
    *,
    specs: tuple[Spec, ...] = RESNET,
    scale: float = 1.0,
    batch: int = 64,
    mode: str = "infer",
    gap_us: float = 164.3,
    wall: bool = True,
    wall_factor: float = 0.97,
) -> Run:
    """A complete GPU run: every optional part present, one class overlapping another."""
    specs = tuple(replace(spec, device_us=spec.device_us * scale) for spec in specs)
    accounts = _accounts(specs, gap_us, wall_factor if wall else None)
    times = _wall(accounts.span_us * wall_factor) if wall else None
    by_policy = {policy: _share(specs, policy, accounts, times) for policy in POLICIES}
    return Run(
        schema=1,
        kind="profile",
        created="2026-09-30T12:34:56Z",
        version="0.1.0",
        command=f"addrfrac profile resnet50 --batch {batch} --mode {mode}",
        title="resnet50",
        configuration=Configuration(
            workload="resnet50",
            mode=mode,
            batch=batch,
            dtype="bf16",
            layout="channels-last",
            execution="eager",
            device="cuda",
        ),
        environment=_environment(),
        source=_source(),
        grade=Grade(letter="A", losses=()),
        window="6 profiled steps (ProfilerStep#3 to #8), by the launches inside them",
        wall=times,
        samples_per_step=float(batch),
        sample_unit="images",
        accounts=accounts,
        addressable=Addressable(
            policy="paper",
            share_of_busy=by_policy["paper"].share_of_busy,
            share_of_wall=by_policy["paper"].share_of_wall,
            by_policy=by_policy,
        ),
        kernels=_kernels(specs, accounts),
        projection=_projection(specs, accounts),
        parameters=25_557_032,
        peak_memory_bytes=1_912_602_624,
        extra={"images_are": "random normal, fresh each step"},
        notes=("The classifier's bias is added inside its GEMM: no kernel of its own.",),
    )


def training() -> Run:
    return full(specs=TRAINING, mode="train")


def recorded() -> Run:
    return replace(full(), extra={"recorded": True})


def sweep() -> tuple[Run, ...]:
    """Three batch sizes of one configuration."""
    return tuple(full(batch=batch, scale=batch / 64 + 0.05) for batch in (1, 16, 64))


def grid() -> tuple[Run, ...]:
    """Two numbers that differ: batch and sequence length."""

    def point(batch: int, seq_len: int) -> Run:
        run = full(batch=batch, scale=batch * seq_len / 2048)
        assert run.configuration is not None
        return replace(run, configuration=replace(run.configuration, seq_len=seq_len))

    return tuple(point(batch, seq_len) for batch in (1, 4, 16) for seq_len in (128, 512))


def mixed() -> tuple[Run, ...]:
    """Runs of every kind side by side: nothing is common, some figures are absent."""
    return (full(), training(), cpu(), foreign(), empty())


def multi_policy() -> Run:
    """A fourth policy, read from a user's file, is the one that the run names."""
    run = full()
    own = replace(
        run.addressable.by_policy["vendor"],
        share_of_busy=Range(low=0.5, high=1.0),
        speedup_of_busy=Range(low=2.0, high=None),
    )
    return replace(
        run,
        addressable=replace(
            run.addressable,
            policy="my-policy.toml",
            share_of_busy=own.share_of_busy,
            by_policy={**run.addressable.by_policy, "my-policy.toml": own},
        ),
    )


def foreign() -> Run:
    """Somebody else's trace: no configuration, no environment, no wall, and losses."""
    run = full(wall=False)
    return replace(
        run,
        kind="analyze",
        title="worker0.1690000000.pt.trace.json.gz",
        command="addrfrac analyze worker0.1690000000.pt.trace.json.gz",
        configuration=None,
        environment=None,
        samples_per_step=None,
        sample_unit="",
        parameters=None,
        peak_memory_bytes=None,
        extra={},
        grade=Grade(
            letter="C",
            losses=(
                Loss(
                    what="operators without input shapes", count=3120, remedy="record with profile(record_shapes=True)"
                ),
                Loss(what="events cut off at the end of the file", count=1, remedy=""),
            ),
        ),
        notes=("The trace holds rank 0 of 16; communication waits count as communication.",),
    )


def cpu() -> Run:
    """Operators of this machine's CPU stand for kernels."""
    run = full()
    assert run.configuration is not None
    assert run.environment is not None
    return replace(
        run,
        configuration=replace(run.configuration, device="cpu"),
        environment=replace(
            run.environment,
            device="AMD EPYC 9654 96-Core Processor",
            device_kind="cpu",
            device_memory_bytes=None,
            multiprocessors=None,
            l2_bytes=None,
            driver="",
            states=(),
        ),
        source=replace(run.source, device_kind="cpu", device_names=("AMD EPYC 9654 96-Core Processor",)),
        accounts=replace(
            run.accounts, host_bound=None, host_bound_evidence="a CPU run has no separate device to starve"
        ),
        wall=replace(run.wall, device=None, graph=None, graph_note="CUDA graphs need a CUDA device")
        if run.wall
        else None,
    )


def unknown_time() -> Run:
    """Most of the time belongs to kernels that no rule knew."""
    strange = Spec(
        name="kernel",
        op=Op.OTHER,
        provider="unknown",
        incumbent=Incumbent.UNKNOWN,
        launches=12,
        device_us=8000.0,
        launching_op="",
        certainty=Certainty.NAME,
    )
    return full(specs=(strange, *RESNET[:3]))


def long_names() -> Run:
    endless = replace(
        RESNET[0], name="void " + "at::native::very_long_template_instantiation<" * 60 + "float" + ">" * 60
    )
    return full(specs=(endless, *RESNET))


HOSTILE = (
    "<script>alert('x')</script>",
    "</script><img src=x onerror=alert(1)>",
    "a|b|c `code` *stars* [link](http://example.com) </details>",
    "two\nlines\r\nand\ta tab",
    "[bold red]markup[/] \x1b[31mescape\x1b[0m \x07bell",
    '=HYPERLINK("x"),"quoted"',
    "percent % dollar $title ${title} braces {title} \u2028 separator \u202e reversed",
)


def hostile() -> Run:
    """Every text that a trace or a user supplies tries to break out of its format."""
    specs = tuple(replace(spec, name=name, launching_op=name) for spec, name in zip(RESNET, HOSTILE, strict=False))
    run = full(specs=specs)
    everything = " ".join(HOSTILE)
    assert run.configuration is not None
    assert run.environment is not None
    return replace(
        run,
        title=everything,
        command=f"addrfrac analyze '{everything}'",
        window=everything,
        notes=HOSTILE,
        configuration=replace(run.configuration, workload=everything, layout=everything),
        environment=replace(run.environment, device=everything, versions={everything: everything}),
        grade=Grade(letter="B", losses=(Loss(what=everything, count=2, remedy=everything),)),
        source=replace(run.source, path=everything, device_names=(everything,)),
        extra={everything: everything},
    )


def empty() -> Run:
    """Nothing ran: no kernel, no time, every optional figure absent."""
    return Run(
        schema=1,
        kind="analyze",
        created="2026-09-30T12:34:56Z",
        version="0.1.0",
        command="addrfrac analyze empty.json",
        title="empty.json",
        configuration=None,
        environment=None,
        source=replace(_source(), path="empty.json", events=0, size_bytes=2, device_names=(), device_kind=""),
        grade=Grade(letter="D", losses=(Loss(what="no device events", count=0, remedy="add ProfilerActivity.CUDA"),)),
        window="the whole trace",
        wall=None,
        samples_per_step=None,
        sample_unit="",
        accounts=Accounts(
            span_us=0.0,
            busy_us=0.0,
            exclusive_us=0.0,
            overlap_us=0.0,
            residual_us=0.0,
            classes=(),
            gaps=(),
            steps=(),
            launches=0.0,
            host_calls=0.0,
            distortion=None,
            host_bound=None,
            host_bound_evidence="",
        ),
        addressable=Addressable(policy="paper", share_of_busy=NOTHING, share_of_wall=NOTHING, by_policy={}),
        kernels=(),
        projection=Projection(break_even=(), targets=()),
    )


def serving() -> Run:
    """A serving trace cut into steps of two kinds, one of them seen too seldom for an interval."""

    def bucket(name: str, phase: str, steps: int, weight: float, interval: Range) -> Bucket:
        return Bucket(
            name=name,
            phase=phase,
            steps=steps,
            requests=Range(low=17.0, high=32.0) if phase == "decode" else NOTHING,
            tokens=NOTHING,
            span_us=3784.5,
            span_interval_us=interval,
            busy_us=3618.0,
            launches=179.0,
            weight=weight,
            share_of_busy={policy: Range(low=0.14, high=0.153) for policy in POLICIES},
        )

    return replace(
        foreign(),
        serving=Serving(
            cut_at="graph launches",
            buckets=(
                bucket("decode batch 17-32", "decode", 411, 0.93, Range(low=3770.0, high=3799.0)),
                bucket("graph A (415 nodes) <b>|x|", "unknown", 2, 0.07, NOTHING),
            ),
            weighted_by="the trace's own busy time",
            share_of_busy={policy: Range(low=0.141, high=0.152) for policy in POLICIES},
            between_us=212.0,
            notes=("3 steps at the edge were left out",),
        ),
    )


def ranks() -> Run:
    """Two of sixteen ranks side by side."""

    def rank(number: int, waiting_us: float) -> RankRow:
        return RankRow(
            rank=number,
            span_us=9800.0,
            busy_us=9100.0,
            share_of_busy=Range(low=0.2, high=0.24),
            transfer_us=1200.0,
            waiting_us=waiting_us,
            exposed_waiting_us=waiting_us / 2,
            work_us=9100.0 - waiting_us / 2,
            came_last=3.5,
            caused_us=120.0,
            unmatched_us=0.0,
        )

    return replace(
        foreign(),
        ranks=RankTable(
            ranks=(rank(0, 640.0), rank(1, 12.0)),
            collectives=(
                CollectiveRow(
                    name="allreduce",
                    group="default_pg",
                    group_size=16,
                    ranks=2,
                    dtype="Float",
                    elements=25_557_032,
                    count=4.0,
                    transfer_us=1200.0,
                    waiting_us=326.0,
                ),
                CollectiveRow(
                    name="all_to_all <i>",
                    group="",
                    group_size=-1,
                    ranks=2,
                    dtype="",
                    elements=-1,
                    count=1.0,
                    transfer_us=80.0,
                    waiting_us=0.0,
                ),
            ),
            causes=(WaitingCause(what="gemm · cublas", us=300.0), WaitingCause(what="idle: host-starved", us=26.0)),
            straggler=1,
            work_spread=0.034,
        ),
    )


def extrapolated() -> Run:
    """A model too deep for the device, from runs at three depths."""
    return replace(
        full(),
        extrapolation=Extrapolation(
            depths=(4, 8, 12),
            step_us=(4100.0, 7900.0, 11720.0),
            full_depth=80,
            full_step_us=76_400.0,
            full_share_of_busy=Range(low=0.081, high=0.094),
            held_out_depth=12,
            held_out_step_error=0.004,
            held_out_share_error=-0.003,
            full_busy_us=75_100.0,
            held_out_busy_error=0.002,
            full_graph_us=75_900.0,
            held_out_graph_error=0.001,
        ),
    )


# --- ladder, ceilings, floors -------------------------------------------------------------------------------


def ladder() -> Run:
    """A ladder of every kind of rung, measured ceilings above three arms, and floors."""
    run = full()
    return replace(run, kind="ladder", ladder=_ladder(run), floors=_floors(run))


def ceiling() -> Run:
    """One measured ceiling and nothing else."""
    run = full()
    return replace(run, kind="ceiling", ceiling=_ceiling(run, "eager", 4100.0))


def training_ladder() -> Run:
    """A step that cannot be captured: no graph, no parity for one rung, only Amdahl above it; nothing helped."""
    run = training()
    base = _arm("eager", (), "eager", 9200.0)
    unmeasured = replace(
        _ceiling(run, "eager", 9200.0),
        measured=False,
        why_not="the optimizer reads a loss scale on the host, so the step cannot be captured",
        step_us=None,
        rows=tuple(
            replace(row, deleted_us=None, full_us=None, reduced_us=None, gain=None, explanation="", note="not captured")
            for row in _ceiling(run, "eager", 9200.0).rows[:2]
        ),
    )
    return replace(
        run,
        kind="ladder",
        floors=replace(
            _floors(run), fused_us=NOTHING, absorbed_us=NOTHING, bandwidth_utilisation=NOTHING, flops_utilisation=None
        ),
        ladder=Ladder(
            base="eager",
            rungs=(
                _rung(run, "foreach-optimizer", base, (), 9200.0, kept=False, reason="same: 0.99–1.01x"),
                replace(
                    _rung(run, "cuda-graph", base, (), 0.0),
                    times=None,
                    gain=None,
                    parity=None,
                    kept=False,
                    share_of_busy={},
                    share_of_wall={},
                    reason="the optimizer synchronises with the host",
                ),
            ),
            best=(),
            best_launch="eager",
            arms=(base, replace(base, arm="best-library")),
            gains=(_gain("eager", "best-library", 9200.0, 9200.0),),
            noise_floor=None,
            ceilings=(unmeasured,),
        ),
    )


def hostile_ladder() -> Run:
    """Every text of ladder, ceiling and floors tries to break out of its format."""
    run, everything = ladder(), " ".join(HOSTILE)
    assert run.ladder is not None
    assert run.floors is not None
    rungs = tuple(replace(rung, name=everything, about=everything, reason=everything) for rung in run.ladder.rungs)
    ceilings = tuple(
        replace(
            each,
            notes=HOSTILE,
            rows=tuple(replace(row, what=everything, explanation=everything, note=everything) for row in each.rows),
        )
        for each in run.ladder.ceilings
    )
    floors = tuple(replace(row, name=everything, provider=everything, basis=everything) for row in run.floors.rows)
    return replace(
        run,
        ladder=replace(run.ladder, base=everything, best=HOSTILE, rungs=rungs, ceilings=ceilings, notes=HOSTILE),
        floors=replace(run.floors, rows=floors, notes=HOSTILE),
    )


def applied() -> Run:
    """Kernels in a model: some that pay, one that is refused, accounts that close."""
    run = full()
    decisions = (
        *(_site("residual_rmsnorm", "normalization", f"layers.{number}.norm", 41.0, True) for number in range(8)),
        *(_site("swiglu", "elementwise", f"layers.{number}.mlp", 55.5, True) for number in range(8)),
        *(_site("rope", "elementwise", f"layers.{number}.attention", -3.0, False) for number in range(8)),
    )
    arms = tuple(
        _arm(name, (), launch, us)
        for name, launch, us in (
            ("eager", "eager", 15_500.0),
            ("eager + graph", "graph", 14_900.0),
            ("compile + graph", "graph", 13_800.0),
            ("captured + graph", "graph", 14_880.0),
            ("substituted + graph", "graph", 14_130.0),
        )
    )
    ours = arms[-1]
    gains = tuple(_gain(each.arm, ours.arm, each.median_us, ours.median_us) for each in arms[:-1])
    stations = (arms[0], arms[1], arms[1], arms[3], ours)
    parts = ("launches removed", "re-routing to library calls", "capture", "kernels and their fusion")
    credits = tuple(_credit(part, a, b) for part, a, b in zip(parts, stations[:-1], stations[1:], strict=True))
    parted = (
        ("elementwise", 3_100.0, 2_655.0, 444.0),
        ("normalization", 700.0, 361.0, 328.0),
        ("gemm", 10_400.0, 10_440.0, None),
        ("overlap of classes", 0.0, 0.0, None),
    )
    differences = tuple(
        Difference(part=part, before_us=before, after_us=after, saved_us=before - after, projected_us=projected)
        for part, before, after, projected in parted
    )
    left = 750.0 - sum(each.saved_us for each in differences)
    last = Difference(part="gaps in the replay", before_us=None, after_us=None, saved_us=left, projected_us=None)
    return replace(
        run,
        kind="apply",
        applied=Applied(
            kernels=("rmsnorm", "swiglu"),
            base_switches=(),
            decisions=decisions,
            arms=arms,
            gains=gains,
            noise_floor=0.002,
            control="captured + graph",
            gain=gains[3],
            projected_us=Range(low=730.0, high=815.0),
            agrees=True,
            agreement="projected 772 us, measured 750 us: 22 us apart, 116 us allowed",
            credits=credits,
            reach=0.61,
            reach_note="+750 us of 1230 us above the fused floor",
            engagement="calls a step: residual_rmsnorm 8, swiglu 8",
            engaged=True,
            parity=None,
            conclusion="Kernels win 1.047-1.060x at 16 sites against captured + graph.",
            notes=("seconds of 210: capturing the model 25; verifying groups of sites 60",),
            differences=(*differences, last),
        ),
    )


def _site(kernel: str, op: str, where: str, saved: float, substituted: bool) -> SiteDecision:
    return SiteDecision(
        site=Site(
            key=f"{kernel}-1.0.{where}",
            group=f"{kernel}-1",
            kernel=kernel,
            source_sha256="0" * 64,
            op=op,
            where=where,
            inputs=("bfloat16[1, 2048, 4096]",),
            outputs=("bfloat16[1, 2048, 4096]",),
            calls=7,
            bytes_moved=None,
            trains=False,
        ),
        substituted=substituted,
        reason="verified and faster" if substituted else "verified, but no faster as it runs in the model",
        verdict="passed",
        error_ratio=0.98,
        before_us=100.0,
        after_us=100.0 - saved,
        saved_us=Range(low=saved - 1, high=saved + 1),
        engaged=1.0 if substituted else None,
        fallbacks=0.0 if substituted else None,
    )


def _credit(part: str, before: ArmTimes, after: ArmTimes) -> Credit:
    if before is after:
        return Credit(part=part, before=before.arm, after=after.arm, saved_us=Range(low=None, high=None), verdict=None)
    found = _gain(before.arm, after.arm, before.median_us, after.median_us)
    return Credit(part=part, before=before.arm, after=after.arm, saved_us=found.saved_us, verdict=found.verdict)


def ladders() -> tuple[Run, ...]:
    """A run with a ladder beside one with only a ceiling and one with neither."""
    first = ladder()
    assert first.configuration is not None
    return (
        replace(first, configuration=replace(first.configuration, batch=16)),
        ceiling(),
        full(batch=256, scale=4.0),
    )


def _arm(arm: str, switches: tuple[str, ...], launch: str, us: float) -> ArmTimes:
    noise = random.Random(len(switches) + int(us))
    blocks = tuple(tuple(tuple(us * (1 + noise.gauss(0, 0.003)) for _ in range(4)) for _ in range(3)) for _ in range(3))
    return ArmTimes(
        arm=arm,
        switches=switches,
        launch=launch,
        blocks_us=blocks,
        median_us=us,
        low_us=us * 0.996,
        high_us=us * 1.005,
        peak_memory_bytes=1_912_602_624 - 90_000_000 * len(switches),
        host_us=us * 0.6,
        method="device events around each block, blocks of both arms in turns A B B A, 3 processes",
    )


def _gain(before: str, after: str, before_us: float, after_us: float) -> Gain:
    factor = before_us / after_us
    low, high = factor * 0.993, factor * 1.006
    verdict = Verdict.FASTER if low > 1 else Verdict.SLOWER if high < 1 else Verdict.SAME
    saved = before_us - after_us
    return Gain(
        before=before,
        after=after,
        speedup=factor,
        low=low,
        high=high,
        saved_us=Range(low=saved - 0.006 * before_us, high=saved + 0.006 * before_us),
        verdict=verdict,
        noise_floor=0.002,
        least_detectable=0.004,
        processes=3,
    )


def _rung(
    run: Run,
    name: str,
    before: ArmTimes,
    switches: tuple[str, ...],
    us: float,
    *,
    launch: str = "eager",
    kept: bool = True,
    reason: str = "",
    share: float = 0.6,
    parity: bool | None = True,
) -> Rung:
    gain = _gain(before.arm, name, before.median_us, us or 1.0)
    return Rung(
        name=name,
        about=f"{name}: another call of the same library",
        switches=switches,
        launch=launch,
        kept=kept,
        reason=reason or f"{gain.verdict}: {gain.low:.2f} to {gain.high:.2f}x",
        times=_arm(name, switches, launch, us),
        gain=gain,
        parity=Parity(
            passed=parity,
            error_ratio=None if parity is None else 1.04 if parity else 7.3,
            base_error=4e-4,
            arm_error=4.1e-4,
            inputs=32,
            method="relative Frobenius error against a run in fp64, 32 inputs",
        ),
        share_of_busy={policy: Range(low=share - 0.01, high=share) for policy in POLICIES},
        share_of_wall={policy: Range(low=share - 0.05, high=share - 0.04) for policy in POLICIES},
        busy_us=us * 0.98,
    )


def _not_measured(run: Run, name: str, reason: str) -> Rung:
    rung = _rung(run, name, _arm("eager", (), "eager", 4760.0), (), 4760.0, kept=False, reason=reason)
    return replace(rung, times=None, gain=None, parity=None, share_of_busy={}, share_of_wall={}, busy_us=None)


def _ladder(run: Run) -> Ladder:
    eager = _arm("eager", (), "eager", 4760.0)
    graph = _arm("eager + graph", (), "graph", 4243.0)
    compiled = _arm("compile + graph", ("compile",), "graph", 2585.0)
    best_switches = ("fold-batch-norm", "cudnn-convolution-epilogues")
    best = _arm("best-library", best_switches, "graph", 1967.0)
    return Ladder(
        base="eager",
        rungs=(
            _rung(run, "channels-last", eager, ("channels-last",), 4762.0, kept=False, reason="same: the base has it"),
            _rung(run, "tf32", eager, ("tf32",), 4750.0, kept=False, parity=None, reason="no fp32 product in the step"),
            _rung(run, "cuda-graph", eager, (), 4243.0, launch="graph", share=0.617),
            _rung(run, "fold-batch-norm", graph, best_switches[:1], 3310.0, launch="graph", share=0.447),
            _rung(run, "cudnn-convolution-epilogues", graph, best_switches, 1967.0, launch="graph", share=0.118),
            _rung(run, "compile", best, (*best_switches, "compile"), 2140.0, launch="graph", kept=False, share=0.151),
            _rung(
                run,
                "compile-max-autotune",
                best,
                (*best_switches, "compile-max-autotune"),
                1890.0,
                launch="graph",
                kept=False,
                parity=False,
                share=0.13,
                reason="faster, but the error is 7.3 times the base's",
            ),
            _not_measured(run, "grouped-mm", "no experts in this model"),
            _not_measured(run, "fbgemm", "no embedding bags in this model"),
            _not_measured(run, "gqa-attention", "no attention in this model"),
            _not_measured(run, "freezing", "failed: RuntimeError: mutated constant in the frozen graph"),
        ),
        best=best_switches,
        best_launch="graph",
        arms=(eager, graph, compiled, best),
        gains=tuple(_gain(arm.arm, "best-library", arm.median_us, 1967.0) for arm in (eager, graph, compiled)),
        noise_floor=0.0021,
        ceilings=(
            _ceiling(run, "eager", 4243.0, share=0.617, free=0.345),
            _ceiling(run, "compile", 2585.0, share=0.418, free=0.56),
            _ceiling(run, "best-library", 1967.0, share=0.118, free=0.873),
        ),
        notes=("Arms took turns on one device, 3 processes each.",),
    )


def _ceiling(run: Run, arm: str, step_us: float, *, share: float = 0.617, free: float = 0.35) -> Ceiling:
    def row(what: str, kind: str, nodes: int, part: float, left: float) -> CeilingRow:
        f = share * part
        return CeilingRow(
            what=what,
            kind=kind,
            nodes=nodes,
            deleted_us=step_us * f,
            full_us=step_us,
            reduced_us=step_us * left,
            gain=_gain("whole", what, step_us, step_us * left),
            amdahl_of_busy=Range(low=1 / (1 - f * 0.99), high=1 / (1 - f)),
            amdahl_of_wall=Range(low=1 / (1 - f * 0.93), high=1 / (1 - f * 0.95)),
            explanation=f"{nodes} gaps of 1.2 µs went with the nodes; the clock stood at 1,980 MHz in both",
        )

    loss = 1 - free
    kernels = [each for each in run.kernels if each.bound is Bound.REPLACEABLE][:4]
    return Ceiling(
        arm=arm,
        switches=(),
        measured=True,
        why_not="",
        nodes=179,
        kernel_nodes=176,
        labelled_nodes=176,
        edges=178,
        branches=False,
        step_us=step_us,
        noise_floor=0.0012,
        policy="paper",
        rows=(
            row("all replaceable", "all", 122, 1.0, free),
            row("class normalization", "class", 53, 0.48, 1 - loss * 0.46),
            row("class elementwise", "class", 65, 0.46, 1 - loss * 0.47),
            row("class pooling", "class", 1, 0.03, 1 - loss * 0.02),
            *(
                row(f"kernel {each.name}", "kernel", int(each.launches), 0.1 * (4 - n), 1 - loss * 0.1 * (4 - n))
                for n, each in enumerate(kernels)
            ),
            replace(
                row("kernel behind an event", "kernel", 1, 0.01, 1.0),
                gain=None,
                reduced_us=None,
                full_us=None,
                explanation="",
                note="the reduced graph faulted: invalid argument",
            ),
            row("library removed", "complement", 54, 0.6, 0.68),
        ),
        notes=("Outputs of a reduced graph were not used.",),
    )


FLOOR_SHARES = (0.62, 0.7, 0.41, 0.55, 0.5, 0.58, 0.3, 0.12, 0.2, 0.9, 0.0)


def _floors(run: Run) -> Floors:
    rows = []
    for each, share in zip(run.kernels, itertools.cycle(FLOOR_SHARES), strict=False):
        known = share > 0
        is_product = each.op in (Op.CONV, Op.GEMM)
        floor_us = each.device_us * share
        size = floor_us * 4.3e6 * (0.3 if is_product else 0.9)
        rows.append(
            FloorRow(
                name=each.name,
                op=each.op,
                provider=each.provider,
                bound=each.bound,
                launching_op=each.launching_op,
                launches=each.launches,
                device_us=each.device_us,
                bytes=Range(low=size * 0.9, high=size) if known else NOTHING,
                flops=(floor_us * 5e8 if is_product else size / 2) if known else None,
                access="stream" if known else "",
                floor_us=Range(low=floor_us * 0.9, high=floor_us) if known else NOTHING,
                headroom_us=Range(low=each.device_us - floor_us, high=each.device_us - floor_us * 0.9)
                if known
                else NOTHING,
                basis="bytes of inputs and output from their recorded shapes" if known else "no shapes recorded",
            )
        )
    rows.sort(key=lambda row: -(row.headroom_us.high or 0.0))
    return Floors(
        device_model=_device_model(),
        rows=tuple(rows),
        covered_share=0.98,
        standalone_us=Range(low=2900.0, high=3050.0),
        fused_us=Range(low=1720.0, high=1810.0),
        absorbed_us=Range(low=1430.0, high=1460.0),
        step_floor_us=Range(low=1980.0, high=2110.0),
        bandwidth_utilisation=Range(low=0.37, high=0.41),
        flops_utilisation=0.164,
        notes=("Two kernels of an unknown op have no floor.",),
    )


def _device_model() -> DeviceModel:
    def fit(access: str, residency: str, rate: float, t0: float) -> AccessFit:
        sizes = (1 << 20, 8 << 20, 64 << 20)
        return AccessFit(
            access=access,
            residency=residency,
            t0_us=t0,
            gb_per_s=rate,
            low_gb_per_s=rate * 0.99,
            high_gb_per_s=rate * 1.01,
            largest_error=0.04,
            sizes_bytes=sizes,
            times_us=tuple(t0 + size / rate / 1e3 for size in sizes),
            what=f"a {access} kernel",
        )

    return DeviceModel(
        schema=1,
        created="2026-09-30T12:00:00Z",
        version="0.1.0",
        command="addrfrac device -o device.json",
        environment=_environment(),
        fits=(
            fit("stream", "cold", 4290.0, 2.1),
            fit("stream", "l2", 7900.0, 1.9),
            fit("gather", "cold", 3100.0, 2.4),
            fit("reduce", "cold", 4010.0, 3.0),
        ),
        peaks=(
            MatmulPeak(dtype="bf16", tflops=788.0, low_tflops=780.0, high_tflops=791.0, size=8192),
            MatmulPeak(dtype="tf32", tflops=402.0, low_tflops=398.0, high_tflops=404.0, size=8192),
            MatmulPeak(dtype="fp32", tflops=51.0, low_tflops=50.8, high_tflops=51.2, size=8192),
        ),
        launch_us=3.9,
        graph_node_us=1.1,
    )


def _accounts(specs: tuple[Spec, ...], gap_us: float, wall_factor: float | None) -> Accounts:
    total = sum(spec.device_us for spec in specs)
    overlap = 0.01 * total
    first, second = specs[0], specs[-1]
    classes: dict[tuple[Op, str, Bound, Phase], list[Spec]] = {}
    for spec in specs:
        classes.setdefault((spec.op, spec.provider, bound(spec, "paper"), spec.phase), []).append(spec)
    rows = []
    for (op, provider, which, phase), members in classes.items():
        device = sum(spec.device_us for spec in members)
        shared = overlap if first in members or second in members else 0.0
        rows.append(
            ClassTime(
                op=op,
                provider=provider,
                bound=which,
                phase=phase,
                launches=float(sum(spec.launches for spec in members)),
                device_us=device,
                exclusive_us=device - shared,
                union_us=device,
                even_us=device - shared / 2,
            )
        )
    rows.sort(key=lambda row: -row.device_us)
    exclusive = sum(row.exclusive_us for row in rows)
    residual = 0.4
    gaps = (
        GapTime(kind=GapKind.QUEUED, us=gap_us * 0.8, count=170.0),
        GapTime(kind=GapKind.HOST_STARVED, us=gap_us * 0.2, count=4.5),
    )
    busy = exclusive + overlap
    span = busy + gap_us + residual
    noise = random.Random(3)
    shares = _share_us(specs, "paper")
    steps = tuple(
        StepAccount(
            name=f"ProfilerStep#{number + 3}",
            span_us=span * factor,
            busy_us=busy * factor,
            gap_us=gap_us * factor,
            gaps_us={gap.kind: gap.us * factor for gap in gaps},
            overlap_us=overlap * factor,
            residual_us=residual * factor,
            replaceable_exclusive_us=shares[0] * factor,
            replaceable_union_us=shares[1] * factor,
            launches=sum(spec.launches for spec in specs),
        )
        for number, factor in enumerate(1 + noise.uniform(-0.01, 0.01) for _ in range(STEPS))
    )
    return Accounts(
        span_us=span,
        busy_us=busy,
        exclusive_us=exclusive,
        overlap_us=overlap,
        residual_us=residual,
        classes=tuple(rows),
        gaps=gaps,
        steps=steps,
        launches=float(sum(spec.launches for spec in specs)),
        host_calls=float(sum(spec.launches for spec in specs)),
        distortion=1 / wall_factor if wall_factor else None,
        host_bound=False,
        host_bound_evidence="4.5 of 179 gaps a step wait for the host, 0.9 % of the profiled span",
    )


def _share_us(specs: tuple[Spec, ...], policy: str) -> tuple[float, float]:
    replaceable = sum(spec.device_us for spec in specs if bound(spec, policy) is Bound.REPLACEABLE)
    unknown = sum(spec.device_us for spec in specs if bound(spec, policy) is Bound.UNKNOWN)
    return replaceable * 0.99, replaceable + unknown


def _share(specs: tuple[Spec, ...], policy: str, accounts: Accounts, wall: Wall | None) -> PolicyShare:
    low, high = _share_us(specs, policy)
    of_busy = Range(low=low / accounts.busy_us, high=min(1.0, high / accounts.busy_us))
    of_wall = Range(low=low / wall.step_us, high=min(1.0, high / wall.step_us)) if wall else NOTHING
    middle = (of_busy.low + of_busy.high) / 2  # type: ignore[operator]
    return PolicyShare(
        share_of_busy=of_busy,
        share_of_wall=of_wall,
        sampling_of_busy=Range(low=middle - 0.004, high=middle + 0.004),
        replaceable_us=Range(low=low, high=high),
        library_us=sum(spec.device_us for spec in specs if bound(spec, policy) is Bound.LIBRARY),
        system_us=sum(spec.device_us for spec in specs if bound(spec, policy) is Bound.SYSTEM),
        unknown_us=sum(spec.device_us for spec in specs if bound(spec, policy) is Bound.UNKNOWN),
        speedup_of_busy=_amdahl(of_busy),
        speedup_of_wall=_amdahl(of_wall),
    )


def _amdahl(share: Range) -> Range:
    def ceiling(f: float | None) -> float | None:
        return None if f is None or f >= 1 else 1 / (1 - f)

    return Range(low=ceiling(share.low), high=ceiling(share.high))


def _kernels(specs: tuple[Spec, ...], accounts: Accounts) -> tuple[KernelRow, ...]:
    noise = random.Random(5)
    rows = (
        KernelRow(
            name=spec.name,
            op=spec.op,
            provider=spec.provider,
            role=spec.role,
            phase=spec.phase,
            incumbent=spec.incumbent,
            bound=bound(spec, "paper"),
            bounds={policy: bound(spec, policy) for policy in POLICIES},
            op_rule=f"{spec.op}-by-name",
            provider_rule=f"{spec.provider}-prefix",
            certainty=spec.certainty,
            launching_op=spec.launching_op or None,
            op_stack=("nn.Module: ResNet_0", spec.launching_op) if spec.launching_op else (),
            fused_ops=spec.fused_ops,
            evidence=(f"launched by {spec.launching_op}",) if spec.launching_op else (),
            launches=float(spec.launches),
            device_us=spec.device_us,
            median_launch_us=spec.device_us / spec.launches,
            share_of_busy=spec.device_us / accounts.busy_us,
            queued_gap_us=1.2 * spec.launches,
            device_us_by_step=tuple(spec.device_us * (1 + noise.uniform(-0.02, 0.02)) for _ in range(STEPS)),
            inputs="[[64, 256, 56, 56], [256], [256]]",
        )
        for spec in specs
    )
    return tuple(sorted(rows, key=lambda row: -row.device_us))


def _projection(specs: tuple[Spec, ...], accounts: Accounts) -> Projection:
    by_op: dict[Op, float] = {}
    for spec in specs:
        if bound(spec, "paper") is Bound.REPLACEABLE:
            by_op[spec.op] = by_op.get(spec.op, 0.0) + spec.device_us
    break_even = []
    for op, device in by_op.items():
        share = device / accounts.busy_us
        for gain in (0.01, 0.05, 0.1):
            remaining = 1 / (1 + gain) - (1 - share)
            break_even.append(
                BreakEven(
                    op=op,
                    device_us=device,
                    share_of_busy=Range(low=share * 0.99, high=share),
                    for_gain=gain,
                    class_speedup=share / remaining if remaining > 0 else None,
                )
            )
    targets = tuple(
        Target(
            name=op.value,
            op=op,
            provider="aten",
            device_us=device,
            share_of_busy=device / accounts.busy_us,
            speedup_if_free=1 / (1 - device / accounts.busy_us),
            launches=20.0,
        )
        for op, device in sorted(by_op.items(), key=lambda item: -item[1])
    )
    return Projection(break_even=tuple(break_even), targets=targets)


def _wall(step_us: float) -> Wall:
    def times(center: float, method: str, seed: int) -> Times:
        noise = random.Random(seed)
        samples = tuple(center * (1 + noise.gauss(0, 0.004)) for _ in range(30))
        ordered = sorted(samples)
        return Times(samples_us=samples, median_us=ordered[15], low_us=ordered[11], high_us=ordered[19], method=method)

    return Wall(
        device=times(step_us, "CUDA events around each step", 1),
        host=times(step_us * 1.01, "perf_counter around step and synchronise", 2),
        graph=times(step_us * 0.91, "CUDA events around each replay", 3),
        graph_note="",
    )


def _environment() -> Environment:
    return Environment(
        device="NVIDIA H200",
        device_kind="cuda",
        device_memory_bytes=150_754_820_096,
        multiprocessors=132,
        l2_bytes=62_914_560,
        driver="580.95.05",
        host_cpu="Intel(R) Xeon(R) Platinum 8558",
        python="3.12.3",
        platform="Linux-6.8.0-x86_64-with-glibc2.39",
        versions={
            "addrfrac": "0.1.0",
            "torch": "2.11.0+cu130",
            "cuda": "13.0",
            "cudnn": "9.13.0",
            "triton": "3.6.0",
            "torchvision": "0.26.0",
        },
        settings={"allow_tf32": "False", "cudnn.benchmark": "True", "float32_matmul_precision": "highest"},
        states=(
            DeviceState(
                when="before",
                sm_clock_mhz=1980,
                memory_clock_mhz=3201,
                temperature_c=36,
                power_w=118.4,
                throttle_reasons=(),
                other_processes=0,
            ),
            DeviceState(
                when="after",
                sm_clock_mhz=1965,
                memory_clock_mhz=3201,
                temperature_c=44,
                power_w=402.0,
                throttle_reasons=("sw_power_cap",),
                other_processes=None,
            ),
        ),
    )


def _source() -> TraceSource:
    return TraceSource(
        path="trace.json.gz",
        format="kineto",
        size_bytes=1_843_200,
        events=21_455,
        device_kind="cuda",
        device_names=("NVIDIA H200",),
        rank=None,
        world_size=None,
        metadata={},
        losses=(),
    )
