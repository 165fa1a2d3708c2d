"""The measured ceiling without a GPU: recorded replays and graphs, a fake clock, and processes that die on purpose."""

from __future__ import annotations

import json
import pickle
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from addrfrac import analysis, ceiling, ceiling_process, ceiling_rows, registry, store
from addrfrac.analysis import Options
from addrfrac.ceiling import Asked, Kept, Told
from addrfrac.ceiling_process import Job
from addrfrac.ceiling_rows import Held, Profiled, Selection, Wanted
from addrfrac.classify import BUILT_IN, POLICIES, bound
from addrfrac.driver_graph import CapturedGraph, DriverCallFailed, demangled
from addrfrac.errors import AddrfracError
from addrfrac.graph_labels import Match, NodeLabel, label_nodes, replayed_rows
from addrfrac.graph_surgery import KERNEL, MEMSET, Edge, Graph, Node, Surgery
from addrfrac.parse import read_trace
from addrfrac.records import Bound, Ceiling, Op, Verdict
from addrfrac.workloads.step import Step

TRACES = Path(__file__).parent / "traces"
CAPTURE = TRACES / "h200_resnet50_graph_capture.json.gz"


@pytest.fixture(scope="module")
def profiled() -> Profiled:
    """Ten replays of ResNet-50 recorded on an H200, labelled by the eager trace beside them."""
    trace = read_trace(TRACES / "h200_resnet50_graph_trace.json.gz")
    account = analysis._account(trace, Options(capture=CAPTURE), {})
    return Profiled(
        trace=account.trace,
        labels=account.labels,
        window=account.window,
        timeline=account.found.timeline,
        kernels=account.found.kernels,
        bounds=tuple(bound(POLICIES["paper"], label) for label in account.labels.table),
    )


def order_of_launch(profiled: Profiled) -> list[str]:
    """Names of one replay in the order that the device ran them, which for a chain is that of its nodes."""
    rows = replayed_rows(profiled.trace, profiled.window)[0]
    return [profiled.trace.names[index] for index in profiled.trace.kernels.name[rows]]


def graph_of(names: list[str], streams: int = 1) -> Graph:
    """The graph of those kernels, dealt out in turn to streams that begin together."""
    nodes = tuple(
        Node(kind=MEMSET) if name.startswith("memset") else Node(kind=KERNEL, names=(f"_Z mangled {name}", name))
        for name in names
    )
    edges = tuple(Edge(before=index, after=index + streams) for index in range(len(names) - streams))
    return Graph(nodes=nodes, edges=edges)


def labelled(graph: Graph, profiled: Profiled) -> dict[int, NodeLabel]:
    return label_nodes(graph, profiled.trace, profiled.labels, profiled.window, BUILT_IN)


# --- which kernel is which node -----------------------------------------------------------------------------


def test_in_a_chain_every_kernel_node_gets_the_label_and_time_of_its_kernel(profiled: Profiled) -> None:
    names = order_of_launch(profiled)
    found = labelled(graph_of(names), profiled)
    assert len(names) == 295
    assert {known.match for known in found.values()} == {Match.ORDER}
    assert len(found) == sum(not name.startswith("memset") for name in names)
    kernels = profiled.trace.kernels
    replays = replayed_rows(profiled.trace, profiled.window)
    for node, known in found.items():
        rows = [replay[node] for replay in replays]
        assert known.label == profiled.labels.table[profiled.labels.of_kernel[rows[0]]]
        assert known.us == pytest.approx(np.median([(kernels.end_ns - kernels.start_ns)[row] for row in rows]) / 1e3)


def test_nodes_of_two_streams_are_labelled_where_all_kernels_of_a_name_agree(profiled: Profiled) -> None:
    found = labelled(graph_of(order_of_launch(profiled), streams=2), profiled)
    assert {known.match for known in found.values()} >= {Match.ORDER, Match.NAME}
    relu = [known for known in found.values() if "clamp_scalar" in known.name]
    assert len(relu) == 49
    for known in relu:
        assert known.match is Match.NAME
        assert known.label is not None
        assert known.label.op is Op.ELEMENTWISE
        assert known.us == pytest.approx(relu[0].us), "which is which is not known, so each has the mean"


def test_a_name_whose_kernels_disagree_leaves_its_nodes_unlabelled_unless_they_run_in_order(profiled: Profiled) -> None:
    """The same library kernel once as a convolution, once under another operator: a policy might part them."""
    rows = replayed_rows(profiled.trace, profiled.window)
    names = order_of_launch(profiled)
    repeated = next(name for name in names if names.count(name) > 3 and "xmma" in name)
    strange = replace(profiled.labels.table[profiled.labels.of_kernel[rows[0][0]]], op=Op.POOLING)
    of_kernel = profiled.labels.of_kernel.copy()
    for replay in rows:  # the second kernel of that name, in every replay
        of_kernel[replay[[i for i, name in enumerate(names) if name == repeated][1]]] = len(profiled.labels.table)
    labels = replace(profiled.labels, table=(*profiled.labels.table, strange), of_kernel=of_kernel)
    one, two = (
        label_nodes(graph_of(names, streams), profiled.trace, labels, profiled.window, BUILT_IN) for streams in (1, 2)
    )
    in_order = [known for known in one.values() if known.name == repeated]
    assert [known.label.op for known in in_order if known.label is not None][:3] == [Op.CONV, Op.POOLING, Op.CONV]
    assert all(known.label is None for known in two.values() if known.name == repeated)
    assert {known.match for known in two.values() if known.name == repeated} == {Match.NONE}


def test_a_node_that_the_replay_does_not_show_is_labelled_by_a_name_that_tells_alone(profiled: Profiled) -> None:
    names = [*order_of_launch(profiled), "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "kernel_that_nobody_knows"]
    found = labelled(graph_of(names), profiled)
    known, unknown = found[295], found[296]
    assert (known.match, known.us) == (Match.NAME, None)
    assert known.label is not None
    assert known.label.op is Op.GEMM
    assert (unknown.match, unknown.label) == (Match.NONE, None)


def test_a_node_too_few_makes_a_match_by_order_uncertain(profiled: Profiled) -> None:
    names = order_of_launch(profiled)
    names.remove(next(name for name in names if "clamp_scalar" in name))
    relu = [known for known in labelled(graph_of(names), profiled).values() if "clamp_scalar" in known.name]
    assert {(known.match, known.us) for known in relu} == {(Match.NAME, None)}


def test_names_are_demangled_as_the_profiler_does_it() -> None:
    assert demangled("_ZN3foo3barILi4EEEvPf") == "void foo::bar<4>(float*)"
    assert demangled("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert demangled("_Z_is_no_name") == "_Z_is_no_name"


# --- rows ---------------------------------------------------------------------------------------------------


def selected(profiled: Profiled, what: str, wanted: Wanted | None = None) -> Selection:
    return next(one for one in ceiling_rows.selections(profiled.kernels, wanted or Wanted()) if one.what == what)


def test_without_a_wish_there_is_a_row_for_all_for_the_complement_each_class_and_ten_kernels(
    profiled: Profiled,
) -> None:
    rows = list(ceiling_rows.selections(profiled.kernels, Wanted()))
    assert [row.kind for row in rows[:2]] == ["all", "complement"]
    classes = {row.what for row in rows if row.kind == "class"}
    assert classes == {f"class {row.op}" for row in profiled.kernels if row.bound is Bound.REPLACEABLE}
    assert sum(row.kind == "kernel" for row in rows) == ceiling_rows.TOP_KERNELS
    every = {row.what for row in ceiling_rows.selections(profiled.kernels, Wanted(all_classes=True))}
    assert {"class conv (library)", "class gemm (library)"} <= every - {row.what for row in rows}


def test_nodes_of_a_class_are_those_that_its_share_is_of(profiled: Profiled) -> None:
    names = order_of_launch(profiled)
    found = labelled(graph_of(names), profiled)
    norm = selected(profiled, "class normalization")
    nodes = ceiling_rows.chosen_nodes(norm, found, POLICIES["paper"])
    held = ceiling_rows.held(profiled, ceiling_rows.chosen_rows(norm, profiled))
    assert len(nodes) == 159
    assert sum(found[node].us or 0.0 for node in nodes) == pytest.approx(held.device_us, rel=0.02)
    assert held.device_us == pytest.approx(sum(r.device_us for r in profiled.kernels if r.op is Op.NORMALIZATION))
    assert 0 < held.gaps_us < held.alone_us <= held.touched_us <= held.busy_us


def test_all_and_complement_part_the_nodes_and_memsets_belong_to_neither(profiled: Profiled) -> None:
    names = order_of_launch(profiled)
    found = labelled(graph_of(names), profiled)
    all_, rest = (
        ceiling_rows.chosen_nodes(selected(profiled, what), found, POLICIES["paper"])
        for what in ("all replaceable", "library removed")
    )
    assert not all_ & rest
    assert all_ | rest <= found.keys()
    assert not any(names[node].startswith("memset") for node in all_ | rest)
    removed = ceiling_rows.chosen_rows(selected(profiled, "all replaceable"), profiled)
    memsets = [profiled.trace.names[i].startswith("memset") for i in profiled.trace.kernels.name[profiled.timeline.row]]
    assert not (removed & np.array(memsets)).any()


def test_a_site_is_found_by_its_operator(profiled: Profiled) -> None:
    found = labelled(graph_of(order_of_launch(profiled)), profiled)
    site = selected(profiled, "site max_pool2d", Wanted(sites=("max_pool2d",)))
    nodes = ceiling_rows.chosen_nodes(site, found, POLICIES["paper"])
    assert [found[node].label.op for node in nodes if found[node].label is not None] == [Op.POOLING]  # type: ignore[union-attr]


HELD = Held(device_us=100.0, alone_us=90.0, touched_us=100.0, gaps_us=20.0, busy_us=200.0, all_us=210.0)


def test_what_was_saved_beyond_the_kernels_own_time_is_laid_to_the_gaps() -> None:
    text = ceiling_rows.explain(20, 125.0, 100.0, HELD)
    assert text.startswith("saved 125 µs, 25.0 µs more than its 20 nodes ran (100 µs)")
    assert "gaps before them went too: 20.0 µs in the profiled replay, 1.00 µs a node" in text


def test_what_was_not_saved_is_laid_to_overlap_and_to_a_slower_rest() -> None:
    text = ceiling_rows.explain(20, 70.0, 100.0, HELD, kept_us=130.0, unmatched=2)
    assert "30.0 µs less" in text
    assert "2 nodes of them not found there" in text
    assert "for 10.0 µs of their time other kernels ran as well" in text
    assert "ran 130 µs instead of 110 µs, 20.0 µs slower" in text


def test_amdahl_stands_beside_what_was_measured() -> None:
    selection = Selection(what="all replaceable", kind="all", chosen=lambda *_: True)
    row = ceiling_rows.unmeasured(selection, 20, 100.0, HELD, 250.0, "")
    assert (row.amdahl_of_busy.low, row.amdahl_of_busy.high) == pytest.approx((1 / 0.55, 2.0))
    assert (row.amdahl_of_wall.low, row.amdahl_of_wall.high) == pytest.approx((1 / 0.64, 1 / 0.6))
    full, reduced = [[240.0, 250.0, 260.0]] * 8, [[99.0, 100.0, 101.0]] * 8
    done = ceiling_rows.measured(row, HELD, full, reduced, 0.002)
    assert (done.full_us, done.reduced_us) == (250.0, 100.0)
    assert done.gain is not None
    assert done.gain.speedup == pytest.approx(2.5)
    assert done.gain.low < 2.5 < done.gain.high, "no interval is narrower than the noise floor"
    assert done.gain.verdict is Verdict.FASTER
    assert done.amdahl_of_busy == row.amdahl_of_busy


# --- the measurement, with a fake clock and a fake driver ---------------------------------------------------


class FakeExecutable:
    """A graph that takes what its kept nodes took in the recorded replay, and a microsecond a node."""

    def __init__(self, nodes_us: dict[int, float], surgery: Surgery | None) -> None:
        gone = set(surgery.deleted) if surgery is not None else set()
        self.us = sum(us + 1.0 for node, us in nodes_us.items() if node not in gone)
        self.deleted = gone
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def measure(profiled: Profiled, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Told]]:
    """Runs the measurement on the recorded graph; `fails` says for a set of deleted nodes how the driver fails."""
    graph = graph_of(order_of_launch(profiled))
    labels = labelled(graph, profiled)
    nodes_us = {node: labels[node].us or 0.0 if node in labels else 1.0 for node in range(len(graph.nodes))}
    made: list[FakeExecutable] = []
    launched: list[FakeExecutable] = []

    def run(asked: Asked, fails: Callable[[set[int]], Exception | None] = lambda _: None) -> list[Told]:
        made.clear()
        launched.clear()

        def instantiate(_: Any, surgery: Surgery | None = None) -> FakeExecutable:
            made.append(FakeExecutable(nodes_us, surgery))
            error = fails(made[-1].deleted)
            if isinstance(error, DriverCallFailed):
                raise error
            return made[-1]

        def time_block(launch: Any, steps: int, _: Any) -> list[float]:
            launched.append(launch)
            error = fails(launch.deleted)
            if error is not None:
                raise error
            noise = 1.0 + 0.001 * (len(launched) % 3)
            return [launch.us * noise] * steps

        monkeypatch.setattr(ceiling.driver_graph, "instantiate", instantiate)
        monkeypatch.setattr(ceiling, "_launcher", lambda executable, *_: executable)
        monkeypatch.setattr(ceiling, "time_block", time_block)
        monkeypatch.setattr(ceiling.capture, "warm_up", lambda *_: 0.004)
        monkeypatch.setattr(ceiling._Bench, "_kept_us", lambda self, launch, _: launch.us)
        captured = CapturedGraph(graph=graph, handle=None, nodes=(), edge_data={})
        kept = Kept(graph=None, captured=captured, run=None)  # type: ignore[arg-type]
        step = Step(run=lambda: None, samples=64, parameters=0)
        device: Any = None
        told = list(ceiling._measured(step, kept, profiled, None, device, asked, lambda _: None))  # type: ignore[arg-type]
        faulted = told[-1].kind == "fault"
        turns = 2 * ceiling.BLOCKS
        assert faulted or all(executable.closed for executable in made if not fails(executable.deleted))
        ends = [*launched[::turns], *launched[turns - 1 :: turns]]
        assert faulted or all(not each.deleted for each in ends), "the whole graph runs before and after each"
        return told

    return run


def rows_of(told: list[Told]) -> dict[str, Any]:
    return {one.row.what: one.row for one in told if one.kind == "row" and one.row is not None}


def test_every_row_is_measured_in_turns_with_the_whole_graph(measure: Callable[..., list[Told]]) -> None:
    told = measure(Asked())
    header, rows = told[0].ceiling, rows_of(told)
    assert header is not None
    assert (header.nodes, header.edges, header.branches) == (295, 294, False)
    assert header.kernel_nodes == header.labelled_nodes == 293
    assert header.noise_floor is not None
    assert header.noise_floor < 0.005
    all_ = rows["all replaceable"]
    assert all_.gain.verdict is Verdict.FASTER
    assert all_.full_us - all_.reduced_us == pytest.approx(all_.deleted_us + all_.nodes, rel=0.01)
    assert all_.gain.low <= all_.full_us / all_.reduced_us <= all_.gain.high
    assert all_.amdahl_of_busy.low is not None
    assert "more than its" in all_.explanation
    assert all(row.note == "" for row in rows.values())
    begun = [one.row.what for one in told if one.kind == "begin" and one.row is not None]
    assert begun == list(rows), "each row is announced before it is tried"
    saved = msgspec.json.encode(replace(header, rows=tuple(rows.values())))
    assert msgspec.json.decode(saved, type=Ceiling) == pickle.loads(
        pickle.dumps(replace(header, rows=(*rows.values(),)))
    )


def test_rows_already_measured_are_skipped(measure: Callable[..., list[Told]]) -> None:
    first = list(rows_of(measure(Asked())))
    again = rows_of(measure(Asked(skip=frozenset(first[:3]))))
    assert list(again) == first[3:]


def test_a_reduced_graph_that_the_driver_will_not_make_costs_its_row_only(
    measure: Callable[..., list[Told]],
) -> None:
    def fails(deleted: set[int]) -> Exception | None:
        return DriverCallFailed("cuGraphInstantiate: CUDA_ERROR_INVALID_VALUE") if len(deleted) == 159 else None

    rows = rows_of(measure(Asked(), fails))
    assert "CUDA_ERROR_INVALID_VALUE" in rows["class normalization"].note
    assert rows["class normalization"].gain is None
    assert rows["class elementwise"].gain is not None


def test_a_fault_ends_the_measurement_and_says_at_which_row(measure: Callable[..., list[Told]]) -> None:
    def fails(deleted: set[int]) -> Exception | None:
        return RuntimeError("CUDA error: an illegal memory access\nmore") if len(deleted) == 159 else None

    told = measure(Asked(), fails)
    assert told[-1].kind == "fault"
    assert told[-1].row is not None
    assert told[-1].row.what == "class normalization"
    assert told[-1].row.note == "the reduced graph failed: CUDA error: an illegal memory access"
    assert told[-1].row.amdahl_of_busy.low is not None


def test_turns_begin_and_end_with_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(ceiling, "time_block", lambda launch, steps, _: order.append(launch()) or [1.0] * steps)
    device: Any = None
    a, b = ceiling.in_turns(lambda: "A", lambda: "B", 4, device)  # type: ignore[arg-type, return-value]
    assert "".join(order) == "ABBA" * (ceiling.BLOCKS // 2)
    assert len(a) == len(b) == ceiling.BLOCKS


def test_blocks_hold_few_long_steps_and_not_endlessly_many_short_ones() -> None:
    assert ceiling.block_steps(100_000.0) == ceiling.FEWEST_STEPS
    assert ceiling.block_steps(4_000.0) == 10
    assert ceiling.block_steps(10.0) == ceiling.MOST_STEPS


# --- where there is no graph --------------------------------------------------------------------------------


def test_without_a_graph_there_are_amdahl_s_intervals_labelled_as_such(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU())
    inputs = torch.randn(32, 64)
    configuration = registry.configure(registry.find_workload("bert-large"), device="cpu", dtype="fp32", steps=3)
    step = Step(run=lambda: model(inputs), samples=32, parameters=0, model=model)
    found = ceiling.measure_ceiling(
        step, configuration, torch.device("cpu"), Asked(), directory=tmp_path / "new" / "run", progress=lambda _: None
    )
    assert not found.measured
    assert found.why_not == "CUDA graphs need a CUDA device"
    assert found.step_us is not None
    norm = next(row for row in found.rows if row.what == "class normalization")
    assert (norm.gain, norm.reduced_us, norm.nodes) == (None, None, 0)
    assert norm.note.startswith("Amdahl only")
    assert norm.amdahl_of_busy.high is not None
    assert norm.amdahl_of_busy.high > 1
    folder = tmp_path / "new" / "run"
    run = ceiling_process._run(folder, Options())
    assert run.kind == "ceiling"
    store.save(replace(run, ceiling=found), folder / "run.json")
    assert store.load(folder / "run.json").ceiling == found
    assert {file.name for file in folder.iterdir()} == {"trace.json.gz", "run.json"}


def test_integer_tensors_are_kept_through_a_captured_call() -> None:
    torch = pytest.importorskip("torch")
    import gc
    import weakref

    seen: list[Any] = []

    def run() -> Any:
        index = torch.arange(10) + 1
        weights = torch.ones(3) * 2
        seen[:] = [weakref.ref(index), weakref.ref(weights)]
        return weights.sum()

    held = ceiling.holding_indices(run)
    assert float(held()) == 6.0  # type: ignore[arg-type]
    gc.collect()
    index, weights = (reference() for reference in seen)
    assert index is not None, "memory of indices is not given away"
    assert weights is None, "nothing else is kept"


# --- processes ----------------------------------------------------------------------------------------------

PLANTED = """
    import json, os, time
    from dataclasses import replace
    from pathlib import Path
    from addrfrac.ceiling import Told
    from addrfrac.errors import AddrfracError
    from addrfrac.records import Ceiling, CeilingRow, Range

    NONE = Range(low=None, high=None)

    def row(what):
        return CeilingRow(what=what, kind="kernel", nodes=1, deleted_us=1.0, full_us=None, reduced_us=None, gain=None,
                          amdahl_of_busy=NONE, amdahl_of_wall=NONE, explanation="")

    def note(job):
        log = Path(__file__).with_name("log.jsonl")
        with log.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "hold": job.asked.hold_indices, "why_not": job.asked.why_not,
                                   "directory": str(job.directory)}) + "\\n")

    def measure(job, tell, fails):
        note(job)
        tell(Told(kind="ceiling", ceiling=Ceiling(
            arm=job.asked.arm, switches=(), measured=not job.asked.why_not, why_not=job.asked.why_not, nodes=3,
            kernel_nodes=3, labelled_nodes=3, edges=2, branches=False, step_us=10.0, noise_floor=0.001, policy="paper",
            rows=(), notes=(f"held: {job.asked.hold_indices}",))))
        for what in ("one", "two", "three"):
            if what in job.asked.skip:
                continue
            tell(Told(kind="begin", row=row(what)))
            if what == "two":
                told = fails(job)
                if told is not None:
                    tell(told)
                    return
            tell(Told(kind="row", row=replace(row(what), full_us=10.0, reduced_us=9.0)))

    def faults(job, tell):
        measure(job, tell, lambda job: Told(kind="fault", row=replace(row("two"), note="an illegal memory access")))

    def faults_once(job, tell):
        measure(job, tell, lambda job: None if job.asked.hold_indices else
                Told(kind="fault", row=replace(row("two"), note="an illegal memory access")))

    def dies(job, tell):
        measure(job, tell, lambda job: os._exit(7))

    def hangs(job, tell):
        measure(job, tell, lambda job: time.sleep(600))

    def uncaptured(job, tell):
        if not job.asked.why_not:
            note(job)
            tell(Told(kind="uncaptured", why_not="capture failed: a host sync"))
            return
        measure(job, tell, lambda job: None)

    def refuses(job, tell):
        raise AddrfracError("out of patience; ask later")

    def dies_at_once(job, tell):
        os._exit(3)
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[Ceiling, list[Any]]]]:
    (tmp_path / "planted_ceilings.py").write_text(textwrap.dedent(PLANTED))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ceiling_process, "ROW_PATIENCE_S", 3.0)
    configuration = registry.configure(registry.find_workload("resnet50"))

    def measured(name: str, hold_indices: bool = False) -> tuple[Ceiling, list[Any]]:
        import importlib

        module = importlib.import_module("planted_ceilings")
        job = Job(
            workload="resnet50",
            configuration=configuration,
            asked=Asked(hold_indices=hold_indices),
            directory=tmp_path / "run",
            target=getattr(module, name),
        )
        found = ceiling_process.isolated(job, lambda _: None)
        return found, [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]

    yield measured
    import sys

    sys.modules.pop("planted_ceilings", None)


def test_a_fault_costs_one_process_and_its_row_is_tried_once_more_with_indices_held(planted: Any) -> None:
    found, processes = planted("faults_once")
    assert [row.what for row in found.rows] == ["one", "two", "three"]
    assert all(row.reduced_us == 9.0 for row in found.rows)
    assert [each["hold"] for each in processes] == [False, True]
    assert processes[0]["pid"] != processes[1]["pid"]
    assert processes[1]["directory"] == "None", "the traces of the first process stay"
    assert found.notes == ("held: False", "held: True")


def test_a_row_that_always_faults_says_why_and_the_others_are_measured(planted: Any) -> None:
    found, processes = planted("faults")
    one, two, three = found.rows
    assert (one.reduced_us, three.reduced_us) == (9.0, 9.0)
    assert (two.reduced_us, two.note) == (None, "an illegal memory access")
    assert len(processes) == 3


def test_a_process_that_dies_at_a_row_costs_that_row(planted: Any) -> None:
    found, _ = planted("dies", hold_indices=True)
    assert found.rows[1].note == "the process ended with exit code 7"
    assert found.rows[2].reduced_us == 9.0


def test_a_reduced_graph_that_never_ends_is_ended(planted: Any) -> None:
    found, _ = planted("hangs", hold_indices=True)
    assert "said nothing for 3 s" in found.rows[1].note
    assert found.rows[2].reduced_us == 9.0


def test_a_step_that_cannot_be_captured_is_profiled_in_a_fresh_process(planted: Any) -> None:
    found, processes = planted("uncaptured")
    assert not found.measured
    assert found.why_not == "capture failed: a host sync"
    assert len(processes) == 2


def test_what_a_user_can_mend_is_handed_on_as_one_line(planted: Any) -> None:
    with pytest.raises(AddrfracError, match="out of patience; ask later"):
        planted("refuses")
    with pytest.raises(AddrfracError, match="exit code 3"):
        planted("dies_at_once")


# --- what was asked for -------------------------------------------------------------------------------------


def test_best_library_is_what_a_ladder_found(tmp_path: Path) -> None:
    assert ceiling_process.switches_of("eager", None) == ()
    with pytest.raises(AddrfracError, match="--ladder"):
        ceiling_process.switches_of("best-library", None)
    with pytest.raises(AddrfracError, match="choose eager, compile, best-library"):
        ceiling_process.switches_of("fastest", None)


def test_an_unknown_class_is_refused_before_anything_is_built() -> None:
    with pytest.raises(AddrfracError, match="no such class"):
        ceiling_process._check_classes(("normalisation",))
