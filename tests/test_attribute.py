"""The accounts close, the share is an interval, and every policy stands beside the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.attribute import attribute
from addrfrac.classify import POLICIES, classify
from addrfrac.records import Bound, GapKind, Op, Phase, Times, Wall
from addrfrac.window import find_window


@pytest.fixture
def built(trace_builder):
    return trace_builder()


@pytest.fixture
def gemm(label):
    return label(Op.GEMM, "cublas")


@pytest.fixture
def norm(label):
    return label(Op.NORMALIZATION, "aten")


@pytest.fixture
def unsure(label):
    return label(Op.ELEMENTWISE, "aten", catch_all=True)


def account(built, *, policy="paper", wall_us=None, graph_us=None, **window):
    trace = built.build()
    return attribute(trace, built.labels(), find_window(trace, **window), POLICIES, policy, wall_of(wall_us, graph_us))


def wall_of(wall_us, graph_us=None):
    if wall_us is None:
        return None
    host, graph = (
        us and Times(samples_us=(us,), median_us=us, low_us=us, high_us=us, method="") for us in (wall_us, graph_us)
    )
    return Wall(device=None, host=host, graph=graph, graph_note="")


def ends(interval):
    return interval.low, interval.high


# --- closing ------------------------------------------------------------------------------------------------

WORK = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 40), st.integers(0, 40), st.integers(7, 9), st.integers(0, 3), st.booleans()
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(WORK, st.booleans())
def test_the_parts_of_every_step_sum_to_its_span(trace_builder, label, work, with_steps):
    kinds = [
        label(Op.GEMM, "cublas"),
        label(Op.NORMALIZATION, "aten"),
        label(Op.ELEMENTWISE, "aten", catch_all=True),
        label(Op.COMMUNICATION, "nccl"),
    ]
    built = trace_builder()
    if with_steps:
        for number in range(3):
            built.step(number, 100 * number, 100 * number + 99)
    for called, delay, length, stream, kind, has_launch in work:
        launch = built.call(called, called + 2, sync=False) if has_launch else None
        built.kernel("kernel", called + delay, called + delay + length, launch=launch, stream=stream, label=kinds[kind])
    built.launched("always", 5, 6, 9, label=kinds[0])
    found = account(built).accounts
    assert found.residual_us == 0
    for step in found.steps:
        assert step.residual_us == 0
        assert step.busy_us + step.gap_us == pytest.approx(step.span_us)
        assert sum(step.gaps_us.values()) == pytest.approx(step.gap_us)
        assert step.replaceable_exclusive_us <= step.replaceable_union_us <= step.busy_us + 1e-9
    gaps = sum(gap.us for gap in found.gaps)
    assert found.exclusive_us + found.overlap_us + gaps == pytest.approx(found.span_us)
    assert sum(row.even_us for row in found.classes) == pytest.approx(found.busy_us)
    assert sum(row.exclusive_us for row in found.classes) == pytest.approx(found.exclusive_us)


def test_means_are_over_the_steps(built, gemm, norm):
    for number, length in enumerate((1000, 3000)):
        start = 10_000 * number
        built.step(number, start, start + 9_999)
        built.launched("gemm", start + 10, start + 1000, start + 1000 + length, label=gemm)
        built.launched("norm", start + 20, start + 5000, start + 5500, label=norm)
    found = account(built)
    rows = {row.name: row for row in found.kernels}
    assert rows["gemm"].device_us == 2.0
    assert rows["gemm"].device_us_by_step == (1.0, 3.0)
    assert rows["norm"].device_us_by_step == (0.5, 0.5)
    assert rows["gemm"].launches == 1.0
    assert found.accounts.launches == 2.0
    assert found.accounts.host_calls == 2.0
    assert [step.launches for step in found.accounts.steps] == [2, 2]
    assert found.accounts.busy_us == 2.5


def test_the_kernels_of_one_graph_launch_are_one_host_call(built, gemm):
    call = built.call(0, 5, "cudaGraphLaunch", graph=True)
    for number in range(4):
        built.kernel("node", 10 * number + 10, 10 * number + 18, launch=call, label=gemm)
    found = account(built).accounts
    assert (found.launches, found.host_calls) == (4.0, 1.0)


def test_classes_are_told_apart_by_op_provider_phase_and_bound(built, label):
    built.launched("one", 0, 10, 20, label=label(Op.GEMM, "cublas"))
    built.launched("two", 1, 20, 30, label=label(Op.GEMM, "cublas", phase=Phase.BACKWARD))
    built.launched("three", 2, 30, 40, label=label(Op.GEMM, "inductor"))
    built.launched("four", 3, 40, 50, label=label(Op.GEMM, "cublas", op_stack=("aten::mm",)))
    found = account(built)
    assert sorted((row.op, row.provider, row.phase, row.launches) for row in found.accounts.classes) == [
        (Op.GEMM, "cublas", Phase.BACKWARD, 1.0),
        (Op.GEMM, "cublas", Phase.FORWARD, 2.0),
        (Op.GEMM, "inductor", Phase.FORWARD, 1.0),
    ]
    assert len(found.kernels) == 4, "a kernel launched by another op is a row of its own"


def test_queued_gaps_are_charged_to_the_kernel_that_follows(built, gemm, norm):
    built.launched("first", 0, 10, 2010, label=gemm)
    built.launched("second", 5, 3510, 4010, label=norm)
    rows = {row.name: row for row in account(built).kernels}
    assert rows["second"].queued_gap_us == 1.5
    assert rows["first"].queued_gap_us == 0.0


def test_under_dependent_launch_busy_time_is_not_counted_twice(built, gemm, norm):
    built.launched("first", 0, 1000, 2000, label=gemm)
    built.launched("second", 1, 1800, 3000, label=norm)  # same stream, waits for the first
    found = account(built)
    assert found.accounts.busy_us == 2.0
    assert found.accounts.overlap_us == 0.0
    assert {row.name: row.device_us for row in found.kernels} == {"first": 1.0, "second": 1.2}, "as recorded"
    assert ends(found.addressable.share_of_busy) == (0.5, 0.5)


# --- the share ----------------------------------------------------------------------------------------------


def test_overlap_gives_an_interval_from_alone_to_union(built, gemm, norm):
    built.launched("gemm", 0, 1000, 9000, stream=7, label=gemm)
    built.launched("norm", 1, 8000, 11000, stream=8, label=norm)
    # Busy 10 us; the norm ran alone for 2 and in all for 3.
    assert ends(account(built).addressable.share_of_busy) == (0.2, 0.3)


def test_unknown_time_widens_the_interval_to_all_library_and_all_replaceable(built, gemm, norm, unsure):
    built.launched("gemm", 0, 1000, 7000, label=gemm)
    built.launched("norm", 1, 7000, 9000, label=norm)
    built.launched("what", 2, 9000, 11000, label=unsure)
    for policy in POLICIES:
        assert ends(account(built, policy=policy).addressable.share_of_busy) == (0.2, 0.4)
    assert account(built).addressable.by_policy["paper"].unknown_us == 2.0


def test_policies_stand_side_by_side_and_the_headline_repeats_one(built, label):
    built.launched("mm", 0, 1000, 2000, label=label(Op.GEMM, "cublas"))
    built.launched("template", 1, 2000, 4000, label=label(Op.GEMM, "inductor"))
    built.launched("batch norm", 2, 4000, 7000, label=label(Op.NORMALIZATION, "cudnn"))
    built.launched("table", 3, 7000, 11000, label=label(Op.EMBEDDING, "fbgemm"))
    found = account(built, policy="vendor").addressable
    assert {name: ends(share.share_of_busy) for name, share in found.by_policy.items()} == {
        "paper": (0.7, 0.7),
        "vendor": (0.6, 0.6),
        "strict": (0.2, 0.2),
    }
    assert found.policy == "vendor"
    assert ends(found.share_of_busy) == (0.6, 0.6)


def test_every_kernel_carries_its_bound_under_every_policy(built, label):
    built.launched("batch norm", 0, 1000, 2000, label=label(Op.NORMALIZATION, "cudnn"))
    row = account(built, policy="strict").kernels[0]
    assert row.bound is Bound.LIBRARY
    assert row.bounds == {"paper": Bound.REPLACEABLE, "vendor": Bound.LIBRARY, "strict": Bound.LIBRARY}


def test_copies_by_the_driver_are_not_addressable(built, label, norm):
    built.launched("copy", 0, 1000, 2000, label=label(Op.MEMCPY, "cuda"))
    built.launched("norm", 1, 2000, 3000, label=norm)
    found = account(built).addressable
    assert ends(found.share_of_busy) == (0.5, 0.5)
    assert found.by_policy["paper"].system_us == 1.0


def test_without_a_wall_nothing_is_said_of_it(built, gemm, norm):
    built.launched("gemm", 0, 1000, 2000, label=gemm)
    built.launched("norm", 1, 2000, 3000, label=norm)
    found = account(built)
    assert ends(found.addressable.share_of_wall) == (None, None)
    assert ends(found.addressable.by_policy["vendor"].speedup_of_wall) == (None, None)
    assert found.accounts.distortion is None


def test_shares_of_wall_are_of_the_unprofiled_step(built, gemm, norm):
    built.launched("gemm", 0, 1000, 4000, label=gemm)
    built.launched("norm", 1, 4000, 5000, label=norm)
    found = account(built, wall_us=5.0)
    assert ends(found.addressable.share_of_wall) == (0.2, 0.2)
    assert found.addressable.by_policy["paper"].speedup_of_wall.high == pytest.approx(1.25)
    assert found.accounts.distortion == pytest.approx(4 / 5)


def test_a_share_of_one_has_no_finite_ceiling(built, norm):
    built.launched("norm", 0, 1000, 2000, label=norm)
    found = account(built).addressable.by_policy["paper"]
    assert ends(found.share_of_busy) == (1.0, 1.0)
    assert ends(found.speedup_of_busy) == (None, None)


def test_the_ceiling_is_amdahls_at_both_ends(built, gemm, norm, unsure):
    built.launched("gemm", 0, 1000, 3000, label=gemm)
    built.launched("norm", 1, 3000, 4000, label=norm)
    built.launched("what", 2, 4000, 5000, label=unsure)
    found = account(built).addressable.by_policy["paper"]
    assert ends(found.share_of_busy) == (0.25, 0.5)
    assert ends(found.speedup_of_busy) == (pytest.approx(4 / 3), pytest.approx(2.0))


CUBLAS = (
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
)
TEMPLATES = ("triton_tem_fused_mm_1", "triton_tem_fused_addmm_relu_4", "triton_tem_fused__to_copy_mm_t_view_9")
REST = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, cutlass::bfloat16_t>>"
    "(pytorch_flash::Flash_fwd_params)",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3",
    "triton_poi_fused_mul_silu_5",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)",
)


def a_model(built, gemms):
    now = 1000
    for layer in range(12):
        for name, length in zip((*gemms, *REST), (900, 1100, 500, 700, 120, 150, 90), strict=True):
            built.launched(name, layer, now, now + length)
            now += length + 3
    trace = built.build()
    labels = classify(trace)
    return attribute(trace, labels, find_window(trace), POLICIES, "paper").addressable.by_policy


def test_the_paper_share_stays_when_a_compilers_templates_replace_cublas(trace_builder):
    before, after = a_model(trace_builder(), CUBLAS), a_model(trace_builder(), TEMPLATES)
    for end in ("low", "high"):
        moved = getattr(after["paper"].share_of_busy, end) - getattr(before["paper"].share_of_busy, end)
        assert abs(moved) < 0.01
    assert before["paper"].share_of_busy.high < 0.2, "the GEMMs were library to begin with"
    assert after["vendor"].share_of_busy.low - before["vendor"].share_of_busy.low > 0.5, "by owner it does move"


def test_three_steps_have_a_sampling_interval_and_two_have_none(trace_builder, gemm, norm):
    def steps(count):
        built = trace_builder()
        for number in range(count):
            start = 10_000 * number
            built.step(number, start, start + 9_999)
            built.launched("gemm", start + 10, start + 1000, start + 3000 + 100 * number, label=gemm)
            built.launched("norm", start + 20, start + 5000, start + 5500, label=norm)
        return account(built).addressable.by_policy["paper"]

    assert ends(steps(2).sampling_of_busy) == (None, None)
    three = steps(3)
    assert three.sampling_of_busy.low < three.share_of_busy.low < three.sampling_of_busy.high


# --- what is not on the timeline ----------------------------------------------------------------------------


def test_of_several_devices_the_busiest_is_accounted_and_the_rest_named(built, gemm):
    built.launched("mine", 0, 1000, 5000, device=1, label=gemm)
    built.launched("other", 1, 1000, 2000, device=0, stream=8, label=gemm)
    built.launched("late", 2, 6000, 7000, device=0, stream=8, label=gemm)
    found = account(built)
    assert found.accounts.busy_us == 4.0
    assert found.accounts.residual_us == 0.0
    assert found.accounts.gaps[0].kind is GapKind.DEPENDENCY, "the step goes on elsewhere"
    assert any("device 1" in note and "device 0 (2 launches)" in note for note in found.notes)


def test_work_of_no_step_beside_an_annotation_is_told(built, gemm):
    built.range("batch", 0, 900)
    built.launched("first", 10, 1000, 2000, label=gemm)
    built.launched("second", 20, 6000, 7000, label=gemm)
    built.launched("foreign", 950, 3000, 5000, stream=8, label=gemm)
    found = account(built, annotation="batch")
    assert any("33.3 % of the span" in note and "none of the steps" in note for note in found.notes)


# --- host-bound ---------------------------------------------------------------------------------------------


def late_launches(built, label):
    for number in range(4):
        built.launched("kernel", 10_000 * number, 10_000 * number + 5_000, 10_000 * number + 8_000, label=label)


def test_a_step_that_waits_for_launches_is_host_bound(built, gemm):
    late_launches(built, gemm)
    found = account(built).accounts
    assert found.host_bound is True
    assert "no unprofiled wall" in found.host_bound_evidence


def test_the_unprofiled_wall_can_clear_a_step_whose_profiled_gaps_were_the_profilers(built, gemm):
    late_launches(built, gemm)
    found = account(built, wall_us=12.5).accounts
    assert found.host_bound is False
    assert "12" in found.host_bound_evidence


def test_a_wall_well_above_the_devices_work_is_host_bound(built, gemm):
    late_launches(built, gemm)
    assert account(built, wall_us=30.0).accounts.host_bound is True


def test_a_busy_device_is_not_host_bound(built, gemm):
    for number in range(4):
        built.launched("kernel", number, 1000 * number + 10, 1000 * number + 1000, label=gemm)
    assert account(built).accounts.host_bound is False


def test_without_launch_events_nobody_can_tell_who_held_the_device_up(built, gemm):
    built.kernel("one", 0, 1000, label=gemm)
    built.kernel("two", 5000, 6000, label=gemm)
    found = account(built).accounts
    assert found.host_bound is None
    assert "no launch events" in found.host_bound_evidence


def test_a_wall_shorter_than_the_profiled_work_is_said_not_hidden(built, gemm):
    built.launched("kernel", 0, 1000, 11_000, label=gemm)
    assert "the other way" in account(built, wall_us=8.0).accounts.host_bound_evidence


def test_a_graph_replay_time_stands_in_the_evidence(built, gemm):
    built.launched("kernel", 0, 1000, 11_000, label=gemm)
    assert "as a CUDA graph 9.00 µs" in account(built, wall_us=12.0, graph_us=9.0).accounts.host_bound_evidence
