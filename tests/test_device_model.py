"""The fit of a device's times, the file it is kept in, and how timed launches are found in a trace."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from addrfrac import environment
from addrfrac.device_model import load_device_model, marked_us, measure_device, save_device_model, sizes
from addrfrac.errors import AddrfracError
from addrfrac.fits import fit_access, time_us
from addrfrac.records import AccessFit, DeviceModel, Environment, MatmulPeak
from addrfrac.report.device import device_lines


def noisy(t0_us: float, gb_per_s: float, noise: float, seed: int, repeats: int = 15) -> dict[int, list[float]]:
    rng = np.random.default_rng(seed)
    return {
        size: list((t0_us + size / gb_per_s / 1e3) * rng.lognormal(0.0, noise, repeats))
        for size in sizes(64 * 1024, 2 * 1024**3, 10)
    }


def fitted(samples: dict[int, list[float]]) -> AccessFit:
    return fit_access(access="stream", residency="cold", samples_us=samples, what="of the tests")


def model(**changes: Any) -> DeviceModel:
    plain = Environment(
        device="a GPU of the tests",
        device_kind="cuda",
        device_memory_bytes=None,
        multiprocessors=None,
        l2_bytes=50_000_000,
        driver="",
        host_cpu="",
        python="",
        platform="",
        versions={},
        settings={},
    )
    whole = DeviceModel(
        schema=1,
        created="2026-01-01T00:00:00+00:00",
        version="0",
        command="",
        environment=plain,
        fits=(fitted(noisy(1.5, 4000.0, 0.02, 1)),),
        peaks=(MatmulPeak(dtype="bf16", tflops=700.0, low_tflops=690.0, high_tflops=710.0, size=8192),),
        launch_us=3.5,
        graph_node_us=None,
    )
    return dataclasses.replace(whole, **changes)


def test_a_fit_finds_latency_and_bandwidth_under_noise() -> None:
    found = fitted(noisy(1.5, 4000.0, 0.02, 1))
    assert found.t0_us == pytest.approx(1.5, rel=0.05)
    assert found.gb_per_s == pytest.approx(4000.0, rel=0.02)
    assert found.largest_error < 0.03


def test_the_interval_of_a_bandwidth_holds_the_truth_in_most_draws() -> None:
    held = 0
    for seed in range(30):
        found = fitted(noisy(1.5, 4000.0, 0.03, seed))
        held += found.low_gb_per_s <= 4000.0 <= found.high_gb_per_s
    assert held >= 24


def test_one_disturbed_size_moves_a_fit_little_and_is_reported() -> None:
    samples = noisy(1.5, 4000.0, 0.005, 3)
    disturbed = sorted(samples)[4]
    samples[disturbed] = [time * 1.6 for time in samples[disturbed]]
    found = fitted(samples)
    assert found.gb_per_s == pytest.approx(4000.0, rel=0.04)
    assert found.largest_error > 0.25


def test_a_latency_is_never_negative() -> None:
    exact = {size: [size / 4000.0 / 1e3 - 0.01] for size in sizes(64 * 1024, 2**31, 10)}
    assert fitted(exact).t0_us == 0.0


def test_a_fit_of_two_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fitted({1024: [1.0], 2048: [2.0]})


def test_the_line_is_read_in_the_units_it_names() -> None:
    found = fitted({size: [2.0 + size / 1000.0 / 1e3] for size in (10**5, 10**6, 10**7)})
    assert time_us(found, 1e9) == pytest.approx(2.0 + 1e3, rel=1e-6)  # a gigabyte at a gigabyte a millisecond


def test_a_saved_device_model_comes_back_whole(tmp_path: Path) -> None:
    save_device_model(model(), tmp_path / "device.json")
    assert load_device_model(tmp_path / "device.json") == model()


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1}', "[1]", "\x00"])
def test_a_file_that_is_no_device_model_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "device.json").write_text(content)
    with pytest.raises(AddrfracError) as raised:
        load_device_model(tmp_path / "device.json")
    assert len(str(raised.value).splitlines()) == 1


def test_a_missing_or_newer_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AddrfracError, match="addrfrac device -o"):
        load_device_model(tmp_path / "none.json")
    save_device_model(model(schema=99), tmp_path / "newer.json")
    with pytest.raises(AddrfracError, match="upgrade"):
        load_device_model(tmp_path / "newer.json")


def test_without_a_gpu_measuring_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_cuda", lambda: False)
    with pytest.raises(AddrfracError, match="CUDA device") as raised:
        measure_device()
    assert len(str(raised.value).splitlines()) == 1


def test_only_kernels_launched_inside_a_mark_are_timed(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []

    def event(name: str, category: str, start: float, length: float, thread: int = 1, **arguments: Any) -> None:
        shape = {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length, "pid": 1, "tid": thread}
        events.append({**shape, "args": arguments})

    for i in range(3):
        began = 100 * i
        event("cudaLaunchKernel", "cuda_runtime", began + 2, 1, correlation=10 * i + 1)
        event("evict", "kernel", began + 10, 30, thread=7, device=0, stream=7, correlation=10 * i + 1)
        event(f"addrfrac device {i}", "user_annotation", began + 5, 20)
        for part in range(2):  # an op may need two kernels: both count
            event("cudaLaunchKernel", "cuda_runtime", began + 7 + 3 * part, 1, correlation=10 * i + 2 + part)
            lasts = 4 + i
            event(
                "add",
                "kernel",
                began + 50 + 20 * part,
                lasts,
                thread=7,
                device=0,
                stream=7,
                correlation=10 * i + 2 + part,
            )
    (tmp_path / "raw.json").write_text(json.dumps({"traceEvents": events}))
    assert marked_us(tmp_path / "raw.json") == {0: 8.0, 1: 10.0, 2: 12.0}


def test_a_device_model_renders_without_what_was_not_measured() -> None:
    text = "\n".join(device_lines(model(fits=(), peaks=(), launch_us=None)))
    assert "not measured" in text
    full = "\n".join(device_lines(model()))
    assert all(word in full for word in ("bf16", "stream", "GB/s"))
