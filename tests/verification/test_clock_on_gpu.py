"""The clock on a CUDA device; skipped elsewhere. Together under 90 s on an H200; figures are printed for a reader.

`python -m pytest -q -s tests/verification/test_clock_on_gpu.py`
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from addrfrac.environment import has_cuda
from addrfrac.verification.fixtures.fixture import PREAMBLE
from addrfrac.verification.fixtures.problems import PROBLEMS
from addrfrac.verification.records import Label, Status, Verdict
from addrfrac.verification.sources import Source, Target

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="no CUDA device here")]

GEMM = """
class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
"""
TF32_GEMM = """
class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
"""
SIDE_STREAM = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.matmul(a, b, out=out)
        return out
"""
SOFTMAX = """
from addrfrac.kernels.softmax import softmax

class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
"""
SYNCHRONISES = """
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        torch.cuda.synchronize()
        return y
"""


@pytest.fixture(scope="module")
def server() -> Iterator[object]:
    from addrfrac.verification.processes import start_server

    started = time.monotonic()
    with start_server("cuda") as running:
        print(f"\nserver after {time.monotonic() - started:.1f} s, left out: {sorted(running.skip) or 'nothing'}")
        yield running


def verify(server, problem, solution, *, quick=True, timing=True) -> Verdict:
    from addrfrac.verification.check import check_target

    target = Target(name="here", problem=Source(text=PROBLEMS[problem]), solution=Source(text=PREAMBLE + solution))
    verdict = check_target(server, target, quick=quick, timing=timing)
    speed = verdict.speed
    print(f"\n{problem}: {verdict.status}: {verdict.reason} ({verdict.seconds:.1f} s)")
    print(f"  {speed.verdict} {speed.speedup} [{speed.low}, {speed.high}] against {speed.best_baseline}; {speed.note}")
    print(f"  {speed.launch}; {speed.cold_us} us cold, {speed.warm_us} us warm, peak {speed.peak_gb_per_s} GB/s")
    for baseline in speed.baselines:
        print(f"  {baseline.name}: {baseline.before_us:.1f} before, {baseline.after_us:.1f} after; {baseline.note}")
    print(f"  own {speed.peak_persistent_bytes} kept, {speed.peak_transient_bytes} transient,", end=" ")
    print(f"device {speed.device_persistent_bytes} / {speed.device_transient_bytes};", end=" ")
    print(f"baseline {speed.baseline_persistent_bytes}, device {speed.baseline_device_persistent_bytes}")
    print(f"  {verdict.credit.line}; labels {[label.value for label in verdict.labels]}")
    for check in verdict.checks:
        if check.name in ("clock", "timed outputs", "traced output") or not check.passed:
            print(f"  {check.name}: {check.status}: {check.detail}")
    return verdict


def test_an_empty_window_is_short_and_a_flush_leaves_the_cache_cold():
    import torch

    from addrfrac.verification import timed

    device = torch.device("cuda")
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    x = torch.zeros(cache // 2 // 4, device=device)
    windows: dict[str, list[float]] = {"empty": [], "cold": [], "warm": []}
    for name in ("cold", "warm", "empty", "cold", "warm", "empty"):
        stamps = timed._Stamps(device)
        for _ in range(12):
            x.sum()
            timed.settle(device, cold=name == "cold", flush_bytes=4 * cache, hold_us=100.0)
            stamps.start()
            if name != "empty":
                x.sum()
            stamps.stop()
        torch.cuda.synchronize()
        windows[name] += stamps.microseconds()[2:]
    median = {name: statistics.median(us) for name, us in windows.items()}
    print(
        f"\ncache {cache >> 20} MiB; {median}; persisting reset {timed.forbid_persisting()} {timed.reset_persisting()}"
    )
    assert median["empty"] < 6.0
    assert median["cold"] - median["empty"] > 1.15 * (median["warm"] - median["empty"])


def test_the_peak_is_that_of_this_device(server):
    from addrfrac.verification.reference import Reference

    with Reference(server, Source(text=PROBLEMS["add"])) as reference:
        facts = reference.ask({"op": "time", "phase": "device", "variant": ""})
    print({name: facts[name] for name in ("cache_bytes", "peak_gb_per_s", "name", "persisting_reset")})
    assert facts["cache_bytes"] > 1 << 20
    assert facts["peak_gb_per_s"] > 200


def test_device_memory_of_a_process_can_be_read_or_all_of_it_together(server):
    from addrfrac.verification.device_memory import DeviceMemory
    from addrfrac.verification.reference import Reference

    memory = DeviceMemory()
    with Reference(server, Source(text=PROBLEMS["add"])) as reference:
        mine, together = memory.of(reference.worker.pid), memory.used()
    print(f"\nprocess {mine}, all {together}")
    assert together is not None


def test_an_honest_small_kernel_is_timed_in_an_unrolled_graph(server):
    verdict = verify(server, "softmax", SOFTMAX)
    assert verdict.status is Status.PASSED
    assert verdict.speed.launch.startswith("unrolled graph")
    assert verdict.speed.cold_us is not None
    assert 0.5 < verdict.speed.cold_us < 50
    assert verdict.credit.own_share is not None
    assert verdict.credit.own_share > 0.9


def test_an_honest_product_is_timed_call_by_call_and_equals_its_baseline(server):
    verdict = verify(server, "gemm_gpu", GEMM)
    assert verdict.status is Status.PASSED
    assert verdict.speed.launch.startswith("single calls")
    strict = next(b for b in verdict.speed.baselines if b.name == "eager-strict")
    assert verdict.speed.cold_us == pytest.approx(statistics.median(strict.samples_us), rel=0.15)
    assert Label.LIBRARY in verdict.labels


def test_tensor_cores_are_faster_than_the_strict_baseline_and_no_faster_than_their_own(server):
    verdict = verify(server, "gemm_gpu", TF32_GEMM)
    assert verdict.status is Status.PASSED
    assert verdict.speed.best_baseline != "eager-strict"


def test_a_call_that_cannot_be_captured_is_too_small_to_time(server):
    verdict = verify(server, "softmax", SYNCHRONISES)
    assert verdict.status is Status.TOO_SMALL_TO_TIME


def test_work_on_a_side_stream_is_caught(server):
    verdict = verify(server, "gemm_gpu", SIDE_STREAM)
    assert verdict.status in (Status.WRONG_VALUES, Status.UNSTABLE, Status.NOT_WRITTEN, Status.TIMING_DISAGREEMENT)


def test_a_full_verification_has_every_baseline_and_an_interval(server):
    verdict = verify(server, "softmax", SOFTMAX, quick=False)
    assert verdict.status is Status.PASSED
    names = {baseline.name for baseline in verdict.speed.baselines if baseline.samples_us}
    assert {"eager-strict", "eager-tf32", "compile"} <= names
    assert verdict.speed.low is not None
    assert verdict.speed.noise_floor is not None


def test_a_quick_verification_takes_few_seconds(server):
    from addrfrac.verification import breakdown
    from addrfrac.verification.sources import find_targets

    stages = breakdown.watched()
    target = find_targets(["rmsnorm"], "")[0]
    verdict, text = breakdown.verify_watched(stages, server, target, quick=True)
    print(
        f"\n{verdict.name}: {verdict.status}: {verdict.reason}; {verdict.speed.verdict}, {verdict.speed.launch}\n{text}"
    )
    assert verdict.status is Status.PASSED
    assert verdict.seconds < 15
