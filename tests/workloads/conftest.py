"""Workloads at toy width on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from addrfrac import registry
from addrfrac.records import Configuration

torch = pytest.importorskip("torch")

RECOMMENDERS = ("dlrm", "dlrm-dcnv2")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_configuration(name: str, mode: str, **asked: Any) -> Configuration:
    """The configuration of a test: everything at its least, unless asked for."""
    workload = registry.find_workload(name)
    small: dict[str, Any] = {"batch": 2, "device": "cpu", "mode": mode, "dtype": "fp32"}
    if "seq_len" in workload.options and mode != "decode":
        small["seq_len"] = 16
    if mode == "decode":
        small["cache_len"] = 8
    if "rows" in workload.options:
        small["rows"] = 1000
    return registry.configure(workload, **(small | asked))


@pytest.fixture
def tiny_step() -> Callable[..., Any]:
    """`tiny_step("resnet50", "infer", dtype="bf16")`: the workload's step at toy width."""

    def build(name: str, mode: str, **asked: Any) -> Any:
        if name in RECOMMENDERS:
            pytest.importorskip("torchrec")
        configuration = small_configuration(name, mode, **asked)
        return registry.find_workload(name).build(configuration, torch.device("cpu"), tiny=True)

    return build


@pytest.fixture
def tensor_of() -> Callable[[Any], Any]:
    """The tensor that a step's output is about."""

    def take(output: Any) -> Any:
        for field in ("logits", "start_logits"):
            output = getattr(output, field, output)
        assert isinstance(output, torch.Tensor)
        return output

    return take
