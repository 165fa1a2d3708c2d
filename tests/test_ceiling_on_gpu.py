"""The measured ceiling on a CUDA device; skipped elsewhere. When it was last run is said in reports/README.md."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from addrfrac import ceiling_process, clock, driver_graph, registry, store
from addrfrac.analysis import Options
from addrfrac.ceiling import Asked
from addrfrac.ceiling_process import Job
from addrfrac.ceiling_rows import Wanted
from addrfrac.environment import has_cuda
from addrfrac.graph_surgery import KERNEL, Surgery, reduced, remove
from addrfrac.records import Verdict

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="no CUDA device here")]

SLEEP_CYCLES = 4_000_000
"""About two milliseconds: longer than anything that does not wait for it."""


class Branches:
    """Two branches of a captured step, joined by events and forked again, with kernels to delete at every seam.

    Kept kernels add and copy, deleted ones are cosines. `one` grows after a long sleep in the first branch, `two` at
    once in the second. Behind the join `seen_one` and `seen_two` copy `one`, on different streams: only an order kept
    through the deleted kernels makes them see the new value.
    """

    def __init__(self) -> None:
        import torch

        self.device = torch.device("cuda")
        names = ("one", "two", "seen_one", "seen_two", "total", "junk_one", "junk_two", "junk_join")
        self.of = {name: torch.zeros(1024, device=self.device) for name in names}
        self.stream = torch.cuda.Stream()
        captured = clock.capture_graph(self.step, None, self.device, keep=True)
        assert not isinstance(captured, str), captured
        self.graph = captured
        self.captured = driver_graph.read(captured.owner.raw_cuda_graph())
        self.deleted = frozenset(
            index
            for index, node in enumerate(self.captured.graph.nodes)
            if node.kind == KERNEL and any("cos" in name for name in node.names)
        )

    def step(self) -> None:
        import torch

        of, main = self.of, torch.cuda.current_stream()
        of["junk_join"].cos_()
        self.stream.wait_stream(main)
        torch.cuda._sleep(SLEEP_CYCLES)
        of["one"].add_(1)
        of["junk_one"].cos_()
        with torch.cuda.stream(self.stream):
            of["two"].add_(1)
            of["junk_two"].cos_()
        main.wait_stream(self.stream)
        of["junk_join"].cos_()
        self.stream.wait_stream(main)
        of["seen_one"].copy_(of["one"])
        with torch.cuda.stream(self.stream):
            torch.add(of["one"], 0, out=of["seen_two"])
        main.wait_stream(self.stream)
        torch.add(of["seen_one"], of["seen_two"], out=of["total"])

    def launched(self, surgery: Surgery | None, times: int) -> dict[str, float]:
        """First elements after a few launches of the graph, whole or reduced."""
        import torch

        executable = driver_graph.instantiate(self.captured, surgery)
        for _ in range(times):
            executable.launch(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        executable.close()
        return {name: float(tensor[0]) for name, tensor in self.of.items()}


def test_kept_kernels_of_two_branches_run_in_the_order_they_had() -> None:
    branches = Branches()
    graph = branches.captured.graph
    assert graph.branches
    assert len(branches.deleted) == 4, [node.names for node in graph.nodes]
    whole = branches.launched(None, 3)
    assert whole["total"] == 2 * whole["one"]

    surgery = remove(graph, branches.deleted)
    copy = driver_graph.instantiate(branches.captured, surgery)
    read = driver_graph.read(int(copy.graph)).graph
    assert len(read.nodes) == len(graph.nodes) - 4
    assert len(read.edges) == len(reduced(graph, surgery))
    copy.close()

    after = branches.launched(surgery, 5)
    assert after["one"] == whole["one"] + 5
    assert after["two"] == whole["two"] + 5
    assert after["seen_one"] == after["seen_two"] == after["one"], (
        "copies behind the join waited for the sleeping branch"
    )
    assert after["total"] == 2 * after["one"]
    untouched = ("junk_one", "junk_two", "junk_join")
    assert [after[name] for name in untouched] == [whole[name] for name in untouched], "deleted kernels do not run"

    again = branches.launched(None, 1)
    assert again["junk_join"] != after["junk_join"], "the captured graph is whole"


def test_without_the_new_edges_the_order_is_lost() -> None:
    """The proof above can fail: with the nodes deleted and nothing joined, a copy overtakes the sleeping branch."""
    branches = Branches()
    surgery = remove(branches.captured.graph, branches.deleted)
    assert surgery.added
    lost = branches.launched(Surgery(deleted=surgery.deleted, added=(), upgraded=()), 1)
    assert lost["seen_one"] < lost["one"] or lost["seen_two"] < lost["one"]


FAULTING = """
    import torch
    from addrfrac.records import Workload
    from addrfrac.workloads.step import Step

    def build(configuration, device):
        table = torch.randn(1000, 256, device=device)
        base = torch.randint(0, 1000, (4096,), device=device)
        indices = torch.zeros(4096, dtype=torch.int64, device=device)
        garbage = torch.full((4096,), 1 << 40, device=device)
        weights = torch.randn(256, 256, device=device)
        rows = torch.empty(4096, 256, device=device)

        def run():
            torch.add(base, 0, out=indices)                 # elementwise: without it the indices are garbage
            torch.index_select(table, 0, indices, out=rows)  # gather: faults on garbage
            indices.copy_(garbage)                           # a copy, which stays in every reduced graph
            return torch.relu(rows @ weights)

        return Step(run=run, samples=4096, parameters=0)

    FAULTING = Workload(name="faulting", about="reads by indices that only a kernel makes valid", build=build,
                        defaults={"dtype": "fp32"}, modes=("infer",))
"""


def test_a_reduced_graph_that_faults_costs_its_row_and_one_process(tmp_path: Path) -> None:
    source = tmp_path / "faulting.py"
    source.write_text(textwrap.dedent(FAULTING))
    name = f"{source}:FAULTING"
    said: list[str] = []
    asked = Asked(options=Options(), wanted=Wanted(classes=("elementwise", "gather_scatter")))
    configuration = registry.configure(registry.find_workload(name), device="cuda", steps=3, warmup=2)
    found = ceiling_process.isolated(
        Job(workload=name, configuration=configuration, asked=asked, directory=None), said.append
    )
    rows = {row.what: row for row in found.rows}
    assert found.measured
    faulted = rows["class elementwise"]
    print(f"\nfaulted as planned: {faulted.note}")
    assert faulted.gain is None
    assert "failed" in faulted.note or "exit code" in faulted.note
    assert faulted.amdahl_of_busy.high is not None
    for what in ("all replaceable", "class gather_scatter"):
        assert rows[what].note == ""
        assert rows[what].gain is not None
    assert sum("fresh process" in line for line in said) == 2, "its second try, with indices held, faulted too"


def test_resnet50_without_its_replaceable_kernels(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "addrfrac", "ceiling", "resnet50", "--batch", "64", "--dtype", "fp16"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "-o", str(tmp_path), "--quiet"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    print(f"\n{done.stdout}\n{time.monotonic() - began:.0f} s")
    run = store.load(tmp_path)
    found = run.ceiling
    assert found is not None
    assert found.measured, found.why_not
    for row in found.rows:
        print(_line(row))
    for note in found.notes:
        print(f"note: {note}")
    rows = {row.what: row for row in found.rows}
    all_, rest = rows["all replaceable"], rows["library removed"]
    assert found.labelled_nodes >= 0.99 * found.kernel_nodes
    assert all(row.note == "" for row in found.rows)
    for row in (all_, rest):
        assert row.gain is not None
        assert row.gain.verdict is Verdict.FASTER
        assert row.full_us is not None
        assert row.reduced_us is not None
        assert 0.15 * row.full_us < row.reduced_us < 0.85 * row.full_us
    assert found.step_us == pytest.approx(all_.full_us, rel=0.05)
    assert run.wall is not None
    assert run.wall.step_us == pytest.approx(found.step_us, rel=0.1), "our instance and torch's of the same graph"
    assert (tmp_path / "report.html").is_file()


def _line(row: Any) -> str:
    interval = f"{row.gain.low:.3f} to {row.gain.high:.3f}" if row.gain is not None else row.note
    amdahl = [f"{low:.3f}" if low else "-" for low in (row.amdahl_of_busy.low, row.amdahl_of_wall.low)]
    figures = f"{row.full_us or 0:.1f} -> {row.reduced_us or 0:.1f} us, {interval}"
    return f"{row.what[:70]}: {row.nodes} nodes, {figures}; Amdahl {' '.join(amdahl)}; {row.explanation}"
