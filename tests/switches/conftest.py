"""Tiny workloads with and without switches, run side by side on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from addrfrac import registry
from addrfrac.records import Configuration
from addrfrac.switches import Stage, find_switch

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_configuration(name: str, mode: str, **asked: Any) -> Configuration:
    workload = registry.find_workload(name)
    small: dict[str, Any] = {"batch": 2, "device": "cpu", "mode": mode, "dtype": "fp32"}
    if "seq_len" in workload.options and mode != "decode":
        small["seq_len"] = 16
    if mode == "decode":
        small["cache_len"] = 8
    if "rows" in workload.options:
        small["rows"] = 200
    return registry.configure(workload, **(small | asked))


@pytest.fixture
def configured() -> Callable[..., Configuration]:
    return small_configuration


@pytest.fixture
def build() -> Callable[..., Any]:
    """`build("resnet50", "infer", "fold-bn", dtype="bf16")`: the tiny step with these switches on."""

    def make(name: str, mode: str, *switches: str, **asked: Any) -> Any:
        if name.startswith("dlrm"):
            pytest.importorskip("torchrec")
        elif name not in ("resnet50", "convnext-base", "vit-l16"):
            pytest.importorskip("transformers")
        configuration = small_configuration(name, mode, **asked)
        for switch in switches:
            configuration = find_switch(switch).configure(configuration)
        step = registry.find_workload(name).build(configuration, torch.device("cpu"), tiny=True)
        for switch in switches:
            if find_switch(switch).stage is not Stage.CONFIGURATION:
                step = find_switch(switch).apply(step, configuration)
        return step

    return make


@pytest.fixture
def why_not(build: Callable[..., Any]) -> Callable[..., str]:
    """`why_not("fold-bn", "vit-l16", "infer")`: what the switch says of the tiny step."""

    def ask(switch: str, name: str, mode: str, **asked: Any) -> str:
        return find_switch(switch).why_not(build(name, mode, **asked), small_configuration(name, mode, **asked))

    return ask


def output_of(step: Any) -> Any:
    torch.manual_seed(7)
    output = step.run()
    for field in ("logits", "start_logits"):
        output = getattr(output, field, output)
    return output.detach().clone()


@pytest.fixture
def relative_error(build: Callable[..., Any]) -> Callable[..., float]:
    """Of the third step's output with the switches on, against the same workload without: state has moved by then."""

    def measure(name: str, mode: str, *switches: str, **asked: Any) -> float:
        base, switched = build(name, mode, **asked), build(name, mode, *switches, **asked)
        for _ in range(3):
            expected, result = output_of(base), output_of(switched)
        assert result.shape == expected.shape
        assert float(expected.float().norm()) > 0
        return float((result.float() - expected.float()).norm() / expected.float().norm())

    return measure


@pytest.fixture
def operators() -> Callable[[Callable[[], object]], Counter[str]]:
    """How often a run calls each ATen operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Counter[str] = Counter()

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            self.calls[function.overloadpacket.__name__] += 1
            return function(*arguments, **(named or {}))

    def count(run: Callable[[], object]) -> Counter[str]:
        with Count() as counting:
            run()
        return counting.calls

    return count


@pytest.fixture
def step_of() -> Callable[..., Any]:
    """A user's own model as an inference step."""
    from addrfrac.workloads.step import Step

    def make(model: Any, *inputs: Any) -> Any:
        model.eval()

        def run() -> object:
            with torch.no_grad():
                return model(*inputs)

        return Step(run=run, samples=1, parameters=0, model=model)

    return make
