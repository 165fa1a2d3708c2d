"""What kernels are worth: tables that close, credit that adds up, reach only where it is defined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from addrfrac.records import (
    Accounts,
    ArmTimes,
    Bound,
    ClassTime,
    GapKind,
    GapTime,
    Op,
    Phase,
    Range,
    Site,
    SiteDecision,
)
from addrfrac.substitution import accounts


def arm(name: str, us: float, launch: str = "graph") -> ArmTimes:
    blocks = tuple(
        tuple((us * (1 + 0.0004 * ((block + process) % 3 - 1)),) * 3 for block in range(4)) for process in range(3)
    )
    return ArmTimes(
        arm=name,
        switches=(),
        launch=launch,
        blocks_us=blocks,
        median_us=us,
        low_us=us * 0.999,
        high_us=us * 1.001,
        peak_memory_bytes=None,
        host_us=None,
        method="made up",
    )


def decision(op: str, saved: float, key: str = "a.0.0") -> SiteDecision:
    site = Site(
        key=key,
        group=key.split(".")[0],
        kernel="rmsnorm",
        source_sha256="",
        op=op,
        where="layers.0",
        inputs=(),
        outputs=(),
        calls=6,
        bytes_moved=None,
        trains=False,
    )
    return SiteDecision(
        site=site,
        substituted=True,
        reason="verified and faster",
        verdict="passed",
        error_ratio=1.0,
        before_us=100.0,
        after_us=100.0 - saved,
        saved_us=Range(low=saved - 2, high=saved + 2),
        engaged=1.0,
        fallbacks=0.0,
    )


def applied(arms: list[ArmTimes], headline: str, *, compiled: bool = False, launch: str = "graph") -> Any:
    return accounts.applied(
        kernels=("auto",),
        switches=(),
        decisions=(decision("normalization", 80.0),),
        arms=arms,
        headline=headline,
        launch=launch,
        compiled=compiled,
        noise_floor=0.0,
        traced={},
        judged=None,
        notes=(),
    )


COMPILED = (
    ("eager", 15_000.0, "eager"),
    ("eager + graph", 14_000.0, "graph"),
    ("re-routed + graph", 12_000.0, "graph"),
    ("best-library", 10_500.0, "graph"),
    ("captured + graph", 10_400.0, "graph"),
    ("compile + kernels + graph", 10_320.0, "graph"),
)


def test_the_compiler_s_fusion_is_not_credited_to_kernels() -> None:
    found = applied([arm(*each) for each in COMPILED], "compile + kernels + graph", compiled=True)
    saved = {each.part: (each.saved_us.low + each.saved_us.high) / 2 for each in found.credits}
    assert saved == pytest.approx(
        {
            "launches removed": 1_000,
            "re-routing to library calls": 2_000,
            "capture": 1_600,
            "kernels and their fusion": 80,
        },
        abs=1,
    )
    assert sum(saved.values()) == pytest.approx(15_000 - 10_320, abs=2)


def test_projected_is_compared_with_the_arm_that_the_sites_were_timed_in() -> None:
    arms = [arm(*each) for each in COMPILED if each[0] != "eager + graph"]
    found = applied([*arms, arm("eager + graph", 10_330.0)], "compile + kernels + graph", compiled=True)
    assert found.control == "eager + graph"  # a control that no site was timed in
    assert found.agrees is True
    assert "projected 80" in found.agreement
    assert "measured 80" in found.agreement


def floors(us: float) -> Any:
    class Known:
        fused_us = Range(low=us - 10, high=us + 10)

    return Known()


def test_reach_counts_what_the_kernels_saved_alone() -> None:
    found = applied([arm(*each) for each in COMPILED], "compile + kernels + graph", compiled=True)
    reached = accounts.with_reach(found, floors(10_200.0))
    assert reached.control == "captured + graph"
    assert reached.reach == pytest.approx(80 / 200, rel=0.05)


def test_reach_is_undefined_where_less_is_left_than_can_be_detected() -> None:
    found = applied([arm(*each) for each in COMPILED], "compile + kernels + graph", compiled=True)
    assert accounts.with_reach(found, floors(10_399.0)).reach is None
    assert accounts.with_reach(found, floors(11_000.0)).reach is None


def test_reach_is_undefined_between_steps_launched_one_by_one() -> None:
    arms = [arm("eager", 15_000.0, "eager"), arm("captured", 14_900.0, "eager"), arm("substituted", 14_800.0, "eager")]
    reached = accounts.with_reach(applied(arms, "substituted", launch="eager"), floors(10_000.0))
    assert reached.reach is None
    assert "between graphs only" in reached.reach_note


def profiled(normalization: float, gemm: float, starved: float) -> Accounts:
    def of(op: Op, us: float) -> ClassTime:
        return ClassTime(
            op=op,
            provider="aten",
            bound=Bound.REPLACEABLE,
            phase=Phase.FORWARD,
            launches=1.0,
            device_us=us,
            exclusive_us=us,
            union_us=us,
            even_us=us,
        )

    busy = normalization + gemm
    return Accounts(
        span_us=busy + starved + 3,
        busy_us=busy,
        exclusive_us=busy,
        overlap_us=0.0,
        residual_us=3.0,
        classes=(of(Op.NORMALIZATION, normalization), of(Op.GEMM, gemm)),
        gaps=(GapTime(kind=GapKind.HOST_STARVED, us=starved, count=2.0),),
        steps=(),
        launches=2.0,
        host_calls=2.0,
        distortion=None,
        host_bound=None,
        host_bound_evidence="",
    )


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_the_table_of_differences_closes_on_what_was_measured(launch: str) -> None:
    rows = accounts.differences(
        profiled(200, 1_000, 50),
        profiled(130, 1_004, 41),
        Range(low=60.0, high=80.0),
        (decision("normalization", 80.0),),
        launch,
    )
    assert sum(each.saved_us for each in rows) == pytest.approx(70)
    assert sum(each.projected_us or 0.0 for each in rows) == pytest.approx(80)
    by_part = {each.part: each for each in rows}
    assert by_part["normalization"].saved_us == pytest.approx(70)
    assert by_part["normalization"].projected_us == pytest.approx(80)
    assert by_part["gemm"].saved_us == pytest.approx(-4)
    assert ("host-starved gaps" in by_part) is (launch == "eager")  # a replay has none of the host's gaps
    assert rows[-1].before_us is None


def test_nothing_is_explained_that_was_not_measured() -> None:
    nothing = Range(low=None, high=None)
    assert accounts.differences(profiled(1, 1, 0), profiled(1, 1, 0), nothing, (), "graph") == ()


def test_a_site_that_was_not_timed_leaves_the_projection_open() -> None:
    untimed = replace(decision("normalization", 80.0), saved_us=Range(low=None, high=None))
    assert accounts.projection((untimed,)).low is None


def test_what_library_calls_save_at_sites_is_not_credited_to_kernels() -> None:
    kernel = decision("normalization", 80.0)
    call = replace(decision("attention", 300.0, "b.0.0"), site=replace(kernel.site, key="b.0.0", library=True))
    arms = [arm(*each) for each in COMPILED[:5]]
    arms += [arm("captured + library calls + graph", 10_100.0), arm("substituted + graph", 10_020.0)]
    found = accounts.applied(
        kernels=("auto",),
        switches=(),
        decisions=(kernel, call),
        arms=arms,
        headline="substituted + graph",
        launch="graph",
        compiled=False,
        noise_floor=0.0,
        traced={},
        judged=None,
        notes=(),
    )
    saved = {each.part: (each.saved_us.low + each.saved_us.high) / 2 for each in found.credits}
    assert saved["re-routing to library calls, at sites"] == pytest.approx(300, abs=1)
    assert saved["kernels and their fusion"] == pytest.approx(80, abs=1)
    assert sum(saved.values()) == pytest.approx(15_000 - 10_020, abs=2)
    assert found.agrees is True
    assert "projected 380" in found.agreement


def test_where_library_calls_won_every_site_kernels_get_no_credit() -> None:
    call = decision("attention", 300.0)
    call = replace(call, site=replace(call.site, library=True))
    times = {each.arm: each for each in (arm("captured", 1_000.0), arm("substituted", 700.0))}
    station = accounts.station_of_library_calls((call,), "substituted", "")
    *_, library, kernels = accounts.credit(times, "substituted", "", 0.0, station)
    assert library.saved_us.low == pytest.approx(300, abs=2)
    assert kernels.saved_us.low is None
