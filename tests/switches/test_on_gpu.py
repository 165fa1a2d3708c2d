"""Each switch on the real layers, on the device: equal output, and a CUDA graph that computes it. Under 90 s in all.

`python -m pytest -s tests/switches/test_on_gpu.py` also prints what each switch alone makes of the step as a graph.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from addrfrac import capture, clock, registry
from addrfrac.environment import has_cuda
from addrfrac.records import Configuration
from addrfrac.switches import Stage, find_switch

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="no CUDA device here")]

HALF = 5e-3
"""Relative error of outputs in fp16, whose folded weights and fused sums are rounded at other places."""
BRAIN = 5e-2
"""Same for bf16, whose roundings are eight times as large."""

INFERENCE: list[tuple[str, dict[str, Any], float, tuple[tuple[str, ...], ...]]] = [
    (
        "resnet50",
        {"mode": "infer", "batch": 16, "dtype": "fp16"},
        HALF,
        (("fold-bn",), ("cudnn-epilogues",), ("fold-bn", "cudnn-epilogues", "cudnn-benchmark")),
    ),
    ("resnet50", {"mode": "infer", "batch": 4, "dtype": "bf16"}, BRAIN, (("cudnn-epilogues",),)),
    ("resnet50", {"mode": "infer", "batch": 4, "dtype": "fp32", "layout": "contiguous"}, 1e-4, (("channels-last",),)),
    ("resnet50", {"mode": "infer", "batch": 4, "dtype": "fp32"}, 1e-2, (("tf32",),)),
    (
        "llama3-8b",
        {"mode": "decode", "batch": 32, "cache_len": 1024, "layers": 2, "dtype": "bf16"},
        BRAIN,
        (
            ("sdpa-gqa",),
            ("sdpa-packed",),
            ("sdpa-gqa", "sdpa-flash"),
            ("sdpa-gqa", "sdpa-efficient"),
            ("fused-rmsnorm",),
            ("merged-qkv",),
            ("merged-gate-up",),
            ("sdpa-gqa", "fused-rmsnorm", "merged-qkv", "merged-gate-up"),
        ),
    ),
    (
        "llama3-8b",
        {"mode": "prefill", "batch": 1, "seq_len": 1024, "layers": 2, "dtype": "bf16"},
        BRAIN,
        (("fused-rmsnorm",), ("merged-qkv",), ("merged-gate-up",), ("sdpa-flash",), ("sdpa-cudnn",)),
    ),
    ("bert-large", {"mode": "infer", "batch": 8, "layers": 2, "dtype": "bf16"}, BRAIN, (("merged-qkv",),)),
    (
        "gpt2-medium",
        {"mode": "infer", "batch": 2, "layers": 2, "dtype": "bf16"},
        BRAIN,
        (("native-gelu",), ("addmm-activation",), ("aligned-linears",), ("native-gelu", "addmm-activation")),
    ),
    (
        "mixtral-8x7b",
        {"mode": "prefill", "batch": 1, "seq_len": 512, "layers": 1, "dtype": "bf16"},
        BRAIN,
        (("grouped-mm-lean",), ("merged-qkv",)),
    ),
]
RECOMMENDER: tuple[tuple[str, ...], ...] = (
    ("fbgemm",),
    ("fbgemm", "fbgemm-no-bounds-check"),
    ("fbgemm", "aligned-linears"),
    ("fbgemm", "addmm-activation"),
    ("fbgemm", "aligned-linears", "addmm-activation"),
)


@pytest.fixture(autouse=True)
def _memory_given_back() -> Iterator[None]:
    yield
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def configured(name: str, asked: dict[str, Any]) -> Configuration:
    return registry.configure(registry.find_workload(name), **({"device": "cuda"} | asked))


def built(name: str, configuration: Configuration, switches: tuple[str, ...], **options: Any) -> tuple[Any, Any]:
    """The step with the switches on, and the configuration it was built from. A switch that does not apply fails."""
    device = torch.device("cuda", 0)
    build = registry.find_workload(name).build
    for switch in map(find_switch, switches):
        configuration = switch.configure(configuration)
    step = build(configuration, device, **options)
    for switch in map(find_switch, switches):
        if switch.stage is not Stage.CONFIGURATION:
            assert switch.why_not(step, configuration) == "", switch.name
            step = switch.apply(step, configuration)
    return step, configuration


def tensor_of(output: Any) -> Any:
    for field in ("logits", "start_logits"):
        output = getattr(output, field, output)
    return output


def eager_and_captured(step: Any, configuration: Configuration) -> tuple[Any, Any, float]:
    """The output of an eager run, of a replay, and the median time of a replay in us."""
    held: list[Any] = [None]

    def run() -> None:
        held[0] = tensor_of((step.graph_run or step.run)())

    device = torch.device("cuda", 0)
    with capture.numeric_settings(configuration):
        run()
        eager = held[0].detach().clone()
        graph = clock.capture_graph(run, None, device)
        assert not isinstance(graph, str), graph
        captured = held[0]
        captured.zero_()  # so that what is read afterwards was computed by the replay
        graph.owner.replay()
        torch.cuda.synchronize()
        replayed = captured.detach().clone()
        watch = clock.time_steps(graph.owner.replay, 20, device)
    times = watch.device_times("replays")
    assert times is not None
    return eager, replayed, times.median_us


def relative_error(result: Any, expected: Any) -> float:
    assert result.shape == expected.shape
    return float((result.double() - expected.double()).norm() / expected.double().norm())


def check(name: str, asked: dict[str, Any], tolerance: float, combinations: tuple[tuple[str, ...], ...]) -> None:
    configuration = configured(name, asked)
    expected, _, base_us = eager_and_captured(*built(name, configuration, ()))
    print(f"\n{capture.title(configuration)}: {base_us:.1f} us as a graph")
    failed = []
    for switches in combinations:
        if switches == ("grouped-mm-lean",) and find_switch("grouped-mm-lean").why_not(
            built(name, configuration, ())[0], configuration
        ):
            continue  # by a transformers that leaves the masks out itself
        eager, replayed, median_us = eager_and_captured(*built(name, configuration, switches))
        errors = relative_error(eager, expected), relative_error(replayed, expected)
        print(f"  {' + '.join(switches):60} {median_us:9.1f} us  errors {errors[0]:.1e} {errors[1]:.1e}")
        if not max(errors) <= tolerance:
            failed.append((switches, errors))
        gc.collect()
        torch.cuda.empty_cache()
    assert not failed, f"beyond {tolerance}: {failed}"


@pytest.mark.parametrize(
    ("name", "asked", "tolerance", "combinations"),
    INFERENCE,
    ids=[f"{name}-{asked['mode']}-{asked['dtype']}-{number}" for number, (name, asked, *_) in enumerate(INFERENCE)],
)
def test_a_switch_gives_the_same_eagerly_and_as_a_cuda_graph(
    name: str, asked: dict[str, Any], tolerance: float, combinations: tuple[tuple[str, ...], ...]
) -> None:
    if name != "resnet50":
        pytest.importorskip("transformers")
    check(name, asked, tolerance, combinations)


def test_a_recommender_s_switches_give_the_same_eagerly_and_as_a_cuda_graph() -> None:
    pytest.importorskip("torchrec")
    asked = {"mode": "infer", "dtype": "bf16", "batch": 2048, "rows": 100_000, "embedding": "bag"}
    check("dlrm", asked, BRAIN, RECOMMENDER)


@pytest.mark.parametrize(
    "switches",
    [("aligned-linears",), ("native-gelu",), ("optimizer-fused",), ("optimizer-capturable", "optimizer-fused")],
    ids="+".join,
)
def test_gpt2_trains_as_before(switches: tuple[str, ...]) -> None:
    """The third loss, after two updates; dropout draws the same, because the same calls draw it."""
    pytest.importorskip("transformers")
    asked = {"mode": "train", "dtype": "amp-bf16", "batch": 2, "seq_len": 256, "layers": 2}
    configuration = configured("gpt2-medium", asked)
    losses = []
    for names in ((), switches):
        step, _ = built("gpt2-medium", configuration, names)
        for seed in range(3):
            torch.manual_seed(seed)
            loss = float(step.run())
        losses.append(loss)
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
    if "optimizer-capturable" in switches:
        graph = clock.capture_graph(step.graph_run or step.run, None, torch.device("cuda", 0))
        assert not isinstance(graph, str), graph


@pytest.mark.parametrize(
    ("name", "asked", "switches"),
    [
        ("resnet50", {"mode": "infer", "batch": 2, "dtype": "fp16"}, ("fold-bn", "cudnn-epilogues", "compile")),
        (
            "llama3-8b",
            {"mode": "decode", "batch": 4, "cache_len": 64, "dtype": "bf16"},
            ("sdpa-gqa", "merged-qkv", "merged-gate-up", "compile"),
        ),
    ],
    ids=["resnet50", "llama3-8b"],
)
def test_what_is_compiled_on_top_gives_the_same_as_a_cuda_graph(
    name: str, asked: dict[str, Any], switches: tuple[str, ...]
) -> None:
    """At toy width, because it is Inductor's strides and not the time that may go wrong."""
    if name != "resnet50":
        pytest.importorskip("transformers")
    configuration = configured(name, asked)
    expected, _, _ = eager_and_captured(*built(name, configuration, (), tiny=True))
    last = find_switch(switches[-1])
    step, compiled_from = built(name, last.configure(configuration), switches[:-1], tiny=True)
    step = last.apply(step, compiled_from)
    eager, replayed, _ = eager_and_captured(step, configuration)
    assert step.extra["graph_breaks"] == 0
    assert relative_error(eager, expected) < BRAIN
    assert relative_error(replayed, expected) < BRAIN
