"""A serving trace is cut at what its engine did, one row a kind of step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from addrfrac.analysis import Options, analyze
from addrfrac.attribute import attribute
from addrfrac.classify import POLICIES
from addrfrac.errors import AddrfracError
from addrfrac.records import Op
from addrfrac.serving import cut, serve
from addrfrac.weights import Weights

TRACES = Path(__file__).parents[1] / "../shared/traces"


@pytest.fixture
def built(trace_builder):
    return trace_builder()


@pytest.fixture
def kinds(label):
    return {
        "gemm": label(Op.GEMM, "cublas"),
        "attention": label(Op.ATTENTION, "flash_attn_2"),
        "norm": label(Op.NORMALIZATION, "aten"),
        "sample": label(Op.SAMPLING, "aten"),
    }


def served(built, steps_by, *, weights=None, steps=None):
    trace, labels = built.build(), built.labels()
    found = cut(trace, labels, steps_by, steps=steps)
    accounts = attribute(trace, labels, found.window, POLICIES, "paper")
    return serve(found, accounts.held, [step.launches for step in accounts.accounts.steps], weights)


def annotated(built, kinds, texts):
    """Engine steps of 10 us: a GEMM of 4 us, a norm of 1 us (prefill: 3), sampling of 0.5 us after the range."""
    for number, text in enumerate(texts):
        start = 10_000 * number
        built.range(text, start, start + 3_000)
        built.launched("gemm", start + 100, start + 1_000, start + 5_000, label=kinds["gemm"])
        norm = 3_000 if "_generation_0(" in text else 1_000
        built.launched("norm", start + 200, start + 5_000, start + 5_000 + norm, label=kinds["norm"])
        built.launched("sample", start + 3_500, start + 8_500, start + 9_000, label=kinds["sample"])


PREFILL = "execute_context_1(64)_generation_0(0)"
DECODE = "execute_context_0(0)_generation_{}({})"
TEXTS = [PREFILL, *(DECODE.format(n, n) for n in (17, 20, 32, 3))]


def test_each_kind_of_step_is_a_row(built, kinds):
    annotated(built, kinds, TEXTS)
    rows = {bucket.name: bucket for bucket in served(built, "annotation:execute_").buckets}
    assert {name: row.steps for name, row in rows.items()} == {
        "prefill 33-64 tokens": 1,
        "decode batch 17-32": 3,
        "decode batch 3-4": 1,
    }
    decode = rows["decode batch 17-32"]
    assert decode.phase == "decode"
    assert (decode.requests.low, decode.requests.high) == (17.0, 32.0)
    assert decode.busy_us == pytest.approx(5.5)
    assert decode.launches == 3.0
    assert decode.share_of_busy["paper"].low == pytest.approx(1.5 / 5.5)
    assert rows["prefill 33-64 tokens"].share_of_busy["paper"].low == pytest.approx(3.5 / 7.5)


def test_work_between_two_ranges_belongs_to_the_step_before(built, kinds):
    annotated(built, kinds, TEXTS)
    assert all(bucket.launches == 3.0 for bucket in served(built, "annotation:execute_").buckets)


def test_the_default_weight_is_busy_time_so_the_weighted_share_is_that_of_the_whole(built, kinds):
    annotated(built, kinds, TEXTS)
    found = served(built, "annotation:execute_")
    assert sum(bucket.weight for bucket in found.buckets) == pytest.approx(1.0)
    whole = (3.5 + 4 * 1.5) / (7.5 + 4 * 5.5)
    assert found.share_of_busy["paper"].low == found.share_of_busy["paper"].high == pytest.approx(whole)
    assert found.weighted_by == "busy time in the trace"


def test_the_users_weights_replace_it(built, kinds):
    annotated(built, kinds, TEXTS)
    weights = Weights(file="w.csv", by="time", of={"decode": 0.9, "prefill": 0.1})
    found = served(built, "annotation:execute_", weights=weights)
    assert found.share_of_busy["paper"].low == pytest.approx(0.9 * 1.5 / 5.5 + 0.1 * 3.5 / 7.5)
    assert "w.csv" in found.weighted_by


def test_a_bucket_without_weight_is_named(built, kinds):
    annotated(built, kinds, TEXTS)
    found = served(built, "annotation:execute_", weights=Weights(file="w", by="time", of={"prefill": 1.0}))
    assert found.share_of_busy["paper"].low == pytest.approx(3.5 / 7.5)
    assert any("decode batch 17-32" in note for note in found.notes)


def test_idle_time_between_steps_is_no_steps_own_but_it_is_told(built, kinds):
    annotated(built, kinds, TEXTS)
    found = served(built, "annotation:execute_")
    # Work ends 9 us into each step of 10 us, and the host begins the next at 10.
    assert found.between_us == pytest.approx(4 * 1.0 / 5)
    decode = next(bucket for bucket in found.buckets if bucket.name == "decode batch 17-32")
    assert decode.span_us == pytest.approx(9.0)
    assert decode.span_interval_us.low == pytest.approx(9.0)


def test_steps_can_be_chosen_of_the_cut(built, kinds):
    annotated(built, kinds, TEXTS)
    found = served(built, "annotation:execute_", steps="1:3")
    assert [bucket.steps for bucket in found.buckets] == [2]


def test_the_pattern_is_a_regular_expression_from_the_start_of_the_text(built, kinds):
    annotated(built, kinds, TEXTS)
    decode_only = served(built, r"annotation:execute_context_0\(")
    assert {bucket.phase for bucket in decode_only.buckets} == {"decode"}
    with pytest.raises(AddrfracError, match=re.escape(DECODE.format(17, 17))):
        served(built, "annotation:context")


@pytest.mark.parametrize(
    ("steps_by", "says"),
    [
        ("annotation:(", "not a regular expression"),
        ("annotation:nothing like it", "no annotation begins as"),
        ("graph-launch", "no graph was launched"),
        ("steps", "neither 'graph-launch' nor"),
    ],
)
def test_what_cannot_be_cut_at_is_refused_in_one_line(built, kinds, steps_by, says):
    annotated(built, kinds, TEXTS)
    with pytest.raises(AddrfracError, match=says):
        served(built, steps_by)


# --- graph launches -----------------------------------------------------------------------------------------


def replays(built, kinds, graphs, *, text=None, eager_attention=()):
    """Replays of 10 us; each graph is the names of its nodes, of 1 us each."""
    for number, names in enumerate(graphs):
        start = 10_000 * number
        if text is not None:
            built.range(text[number], start - 10, start + 3_000)
        call = built.call(start, start + 500, "cudaGraphLaunch", graph=True)
        for place, name in enumerate(names):
            begin = start + 600 + 1_000 * place
            built.kernel(f"{name} {place}", begin, begin + 1_000, launch=call, label=kinds[name])
        end = start + 600 + 1_000 * len(names)
        built.launched("sample", start + 700, end, end + 500, label=kinds["sample"])
        if number in eager_attention:
            built.launched("prefill attention", start + 800, end + 500, end + 2_500, label=kinds["attention"])


SMALL, LARGE = ("gemm", "attention"), ("gemm", "attention", "norm", "gemm")


def test_replays_of_one_graph_are_one_bucket(built, kinds):
    replays(built, kinds, [SMALL, LARGE, SMALL, SMALL])
    rows = {bucket.name: bucket.steps for bucket in served(built, "graph-launch").buckets}
    assert rows == {"graph A (2 nodes)": 3, "graph B (4 nodes)": 1}


def test_an_annotation_around_the_launch_names_the_step(built, kinds):
    texts = ["step[DECODE bs=8]", "step[DECODE bs=7]", "step[DECODE bs=1]"]
    replays(built, kinds, [SMALL, SMALL, LARGE], text=texts)
    rows = {bucket.name: bucket.steps for bucket in served(built, "graph-launch").buckets}
    assert rows == {"decode batch 5-8": 2, "decode batch 1": 1}


def test_a_prefill_before_the_next_replay_does_not_soil_the_decode_row(built, kinds):
    replays(built, kinds, [SMALL, SMALL, SMALL], eager_attention=(1,))
    rows = {bucket.name: bucket for bucket in served(built, "graph-launch").buckets}
    assert rows["graph A (2 nodes)"].steps == 2
    assert rows["graph A (2 nodes) and an eager pass"].steps == 1
    assert rows["graph A (2 nodes)"].busy_us == pytest.approx(2.5)


def test_graphs_that_look_like_pieces_of_a_step_are_told(built, kinds):
    replays(built, kinds, [("gemm", "norm")] * 3, eager_attention=(0, 1, 2))
    assert any("pieces of steps" in note for note in served(built, "graph-launch").notes)
    whole = type(built)()
    replays(whole, kinds, [SMALL] * 3)
    assert not served(whole, "graph-launch").notes


# --- options and real traces --------------------------------------------------------------------------------


def real(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{path.name} is not at hand")
    return path


@pytest.mark.parametrize(
    ("name", "steps_by", "bucket"),
    [
        ("b200_vllm_eager.json.gz", "annotation:execute_*", "prefill 513-1024 tokens"),
        ("mi300_vllm_decode_graph.json.gz", "annotation:execute_*", "decode batch 17-32"),
        ("mi300_vllm_decode_graph.json.gz", "graph-launch", "decode batch 17-32"),
        ("h200_qwen3_compiled_cudagraphs.json.gz", "graph-launch", "graph A (92 nodes)"),
    ],
)
def test_real_serving_traces_are_cut(name, steps_by, bucket):
    (run,) = analyze(real(name), Options(steps_by=steps_by))
    assert run.serving is not None
    assert [row.name for row in run.serving.buckets] == [bucket]
    assert run.accounts.residual_us == 0.0


def test_weights_without_a_cut_and_two_ways_to_choose_steps_are_refused(tmp_path):
    path = real("mi300_vllm_decode_graph.json.gz")
    weights = tmp_path / "w.csv"
    weights.write_text("decode,1")
    with pytest.raises(AddrfracError, match="--steps-by"):
        analyze(path, Options(weights=weights))
    with pytest.raises(AddrfracError, match="one of them"):
        analyze(path, Options(steps_by="graph-launch", annotation="execute_*"))
    (run,) = analyze(path, Options(steps_by="graph-launch", weights=weights))
    assert run.serving.weighted_by.startswith("w.csv")


def test_a_trace_that_is_not_asked_to_be_cut_has_no_buckets():
    (run,) = analyze(real("mi300_vllm_decode_graph.json.gz"), Options())
    assert run.serving is None
