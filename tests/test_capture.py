"""Capture end to end on the CPU: a workload, a user's own loop, and what must not be left behind."""

import contextlib
import gzip
import importlib
import json
import os
import subprocess
import sys
import threading
import types
import weakref

import pytest

import addrfrac
import addrfrac.loop
from addrfrac import clock, recorder, registry
from addrfrac.errors import AddrfracError, OutOfDeviceMemory
from addrfrac.records import Configuration, Workload

torch = pytest.importorskip("torch")
capture = importlib.import_module("addrfrac.capture")

EXAMPLE = """
import torch
from addrfrac.records import Workload

def build(configuration, device):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to(device)
    batch = torch.randn(configuration.batch, 64, device=device)
    return lambda: model(batch)

MLP = Workload(name="mlp", about="two layers", build=build, defaults={"batch": 32}, modes=("infer",))
"""


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def quiet(line: str) -> None:
    pass


def read(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def step_names(trace) -> list[str]:
    return sorted(e["name"] for e in trace["traceEvents"] if e.get("name", "").startswith("ProfilerStep#"))


def workload_of(build) -> Workload:
    return Workload(name="made-up", about="", build=build, defaults={"batch": 4, "device": "cpu"}, modes=("infer",))


def configured(workload: Workload, **asked: object) -> Configuration:
    return registry.configure(workload, **({"device": "cpu", "steps": 2, "warmup": 1} | asked))


# --- a workload ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captured")
    (folder / "mine.py").write_text(EXAMPLE)
    workload = registry.find_workload(f"{folder / 'mine.py'}:MLP")
    said: list[str] = []
    facts = capture.measure(workload, configured(workload, batch=16), folder / "run", progress=said.append)
    return facts, folder / "run", said


def test_a_user_s_ten_lines_become_a_trace_and_a_wall(captured):
    facts, folder, said = captured
    trace = read(folder / facts.trace)
    assert any(event.get("name") == "aten::addmm" for event in trace["traceEvents"])
    assert facts.wall.device is None
    assert len(facts.wall.host.samples_us) >= 20
    assert facts.wall.step_us > 0
    assert facts.samples_per_step == 16
    assert said


def test_one_lead_in_and_the_asked_steps_are_recorded(captured):
    facts, folder, _ = captured
    assert facts.lead_in
    assert len(step_names(read(folder / facts.trace))) == 1 + facts.profiled_steps == 3


def test_the_trace_alone_tells_all_that_was_measured(captured):
    facts, folder, _ = captured
    ours = read(folder / facts.trace)["addrfrac"]
    assert ours["wall"]["host_us"] == list(facts.wall.host.samples_us)
    assert ours["wall"]["graph_note"]
    assert ours["configuration"]["workload"] == "mlp"
    assert ours["environment"]["versions"]["torch"] == torch.__version__
    assert ours["device"] == "cpu"
    assert [state["when"] for state in ours["environment"]["states"]] == ["before", "after"]


def test_the_facts_stand_first_so_that_a_truncated_trace_still_has_them(captured):
    facts, folder, _ = captured
    assert gzip.decompress((folder / facts.trace).read_bytes()).startswith(b'{"addrfrac": {')


def test_nothing_but_the_trace_is_left_in_the_folder(captured):
    facts, folder, _ = captured
    assert [path.name for path in folder.iterdir()] == [facts.trace]


def test_a_step_that_fails_leaves_nothing_and_its_error_passes(tmp_path):
    calls = []

    def build(configuration, device):
        def run():
            calls.append(1)
            if len(calls) == 27:
                raise KeyError("in the profiled part")

        return run

    workload = workload_of(build)
    with pytest.raises(KeyError, match="in the profiled part"):
        capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)
    assert not (tmp_path / "run").exists()
    with torch.profiler.profile():  # the profiler was stopped and can be started again
        torch.ones(1)


def test_out_of_memory_is_one_line_that_says_what_was_asked_free_and_to_try(tmp_path):
    def build(configuration, device):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
            "5.31 GiB is free. Process 1 has 134.49 GiB memory in use."
        )

    workload = workload_of(build)
    with pytest.raises(OutOfDeviceMemory) as error:
        capture.measure(workload, configured(workload, batch=512), tmp_path / "run", progress=quiet)
    said = str(error.value)
    assert "\n" not in said
    for part in ("20.00 GiB", "5.31 GiB", "made-up infer b512", "a smaller --batch"):
        assert part in said
    assert error.value.__context__ is None, "the failed frames would keep the memory"
    assert not (tmp_path / "run").exists()


def test_the_host_s_out_of_memory_is_told_too(tmp_path):
    def build(configuration, device):
        return torch.empty(2**50)

    workload = workload_of(build)
    with pytest.raises(OutOfDeviceMemory, match="out of memory on cpu"):
        capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)


def test_a_measured_model_is_gone_afterwards(tmp_path):
    alive = []

    def build(configuration, device):
        model = torch.nn.Linear(4, 4)
        model.itself = [model]  # as hooks and replaced methods make them
        alive.append(weakref.ref(model))
        return lambda: model(torch.ones(1, 4))

    workload = workload_of(build)
    capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)
    assert alive[0]() is None


def test_other_runtime_errors_are_not_called_memory(tmp_path):
    def build(configuration, device):
        raise RuntimeError("shapes cannot be multiplied")

    workload = workload_of(build)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)


def test_a_missing_package_names_the_extra(tmp_path):
    def build(configuration, device):
        import no_such_package_of_any_kind

        return no_such_package_of_any_kind

    workload = workload_of(build)
    with pytest.raises(AddrfracError, match=r"pip install 'addrfrac\[models\]'"):
        capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)


def test_a_build_that_returns_nothing_to_run_is_told(tmp_path):
    workload = workload_of(lambda configuration, device: 3)
    with pytest.raises(AddrfracError, match="returned a int"):
        capture.measure(workload, configured(workload), tmp_path / "run", progress=quiet)


def test_a_graph_is_refused_on_the_cpu(tmp_path):
    workload = workload_of(lambda configuration, device: lambda: None)
    with pytest.raises(AddrfracError, match="CUDA graphs need a CUDA device"):
        capture.measure(workload, configured(workload, execution="graph"), tmp_path / "run", progress=quiet)


def test_tf32_is_allowed_for_tf32_only_and_put_back():
    matmul = torch.backends.cuda.matmul
    workload = workload_of(None)
    for dtype, allowed in (("tf32", True), ("fp32", False), ("bf16", False)):
        before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        with capture.numeric_settings(configured(workload, dtype=dtype)):
            assert matmul.allow_tf32 is allowed
            assert torch.backends.cudnn.allow_tf32 is allowed
        assert (matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_the_number_of_timed_steps_is_fixed_from_the_estimate():
    assert clock.step_count(10, 0.001) == 30
    assert clock.step_count(2, 0.001) == 20
    assert clock.step_count(10, 10.0) == 6
    assert clock.step_count(10, 1000.0) == clock.FEWEST_STEPS


def test_titles_say_what_was_run():
    llama = registry.find_workload("llama3-8b")
    assert capture.title(registry.configure(llama, mode="decode")) == "llama3-8b decode b32 cache 1024 bf16"
    assert capture.title(registry.configure(llama, layers=4, execution="graph", device="cpu")) == (
        "llama3-8b prefill b1 s2048 4 layers bf16 graph on the CPU"
    )


@pytest.mark.slow
def test_a_compiled_step_says_how_many_graphs_it_has(tmp_path):
    def build(configuration, device):
        model = torch.nn.Linear(8, 8)
        batch = torch.randn(4, 8)
        return capture.Step(run=lambda: model(batch), samples=4, parameters=72, model=model)

    workload = workload_of(build)
    facts = capture.measure(workload, configured(workload, execution="compiled"), tmp_path / "run", progress=quiet)
    assert facts.extra == {"compiled_graphs": 1, "graph_breaks": 0}


# --- CUDA paths that need no CUDA device -------------------------------------------------------------------


class FakeEvents:
    """Device events whose time stands still but for what steps add."""

    def __init__(self):
        self.now_ms = 0.0

    def event(self, enable_timing):
        assert enable_timing
        outer = self

        class Event:
            def record(self, stream):
                self.at_ms = outer.now_ms

            def elapsed_time(self, later):
                return later.at_ms - self.at_ms

        return Event()


def test_device_times_are_those_between_events_around_each_step(monkeypatch):
    events = FakeEvents()
    durations_ms = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(torch.cuda, "Event", events.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)

    def run():
        events.now_ms += next(durations_ms)

    watch = clock.time_steps(run, 3, torch.device("cuda", 0))
    times = watch.device_times("steps")
    assert times is not None
    assert times.samples_us == (1000.0, 2000.0, 3000.0)
    assert times.median_us == 2000.0
    assert "one synchronisation after the last" in watch.host_times("steps").method


class FakeGraph:
    def __init__(self, keep_graph=False):
        self.replays = 0

    def replay(self):
        self.replays += 1
        torch.ones(4) + 1


@pytest.fixture
def fake_gpu(monkeypatch):
    """torch.cuda as capture uses it, with the work on the CPU: shows the order of things, not their times."""
    log: list[str] = []
    events = FakeEvents()
    gpu = torch.device("cuda", 0)

    @contextlib.contextmanager
    def context(name):
        log.append(f"{name} begins")
        yield
        log.append(f"{name} ends")

    def synchronize(device=None):
        events.now_ms += 1.0

    class Stream:
        def __init__(self, device=None):
            pass

        def wait_stream(self, other):
            log.append("wait")

    fakes = {
        "Event": events.event,
        "Stream": Stream,
        "current_stream": lambda device=None: Stream(),
        "stream": lambda stream: context("side stream"),
        "set_stream": lambda stream: log.append("stream set back"),
        "synchronize": synchronize,
        "CUDAGraph": FakeGraph,
        "graph": lambda graph, stream: context("graph"),
        "set_device": lambda device: None,
        "reset_peak_memory_stats": lambda device: log.append("peak reset"),
        "max_memory_allocated": lambda device: 123,
        "empty_cache": lambda: None,
        "get_device_properties": lambda device: types.SimpleNamespace(
            name="a GPU of the tests", total_memory=1, multi_processor_count=2, L2_cache_size=3
        ),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(capture.environment, "torch_device", lambda name: gpu)
    monkeypatch.setattr(capture, "MOST_WARMUP", 3)
    return log


def on_gpu(tmp_path, build, **asked):
    workload = workload_of(build)
    return capture.measure(workload, configured(workload, device="cuda", **asked), tmp_path / "run", progress=quiet)


def test_on_a_gpu_the_step_is_timed_by_events_and_captured_last(tmp_path, fake_gpu):
    facts = on_gpu(tmp_path, lambda configuration, device: lambda: fake_gpu.append("step"))
    assert facts.wall.device is not None
    assert len(facts.wall.graph.samples_us) == 20
    assert facts.wall.graph_note == ""
    assert facts.peak_memory_bytes == 123
    assert facts.environment.device == "a GPU of the tests"
    graph = fake_gpu.index("graph begins")
    assert fake_gpu[graph:].count("step") == 1, "eager steps must not follow a capture"
    assert fake_gpu.index("peak reset") < graph


def test_a_step_that_cannot_be_captured_says_why(tmp_path, fake_gpu, monkeypatch):
    @contextlib.contextmanager
    def refuse(graph, stream):
        yield
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    facts = on_gpu(tmp_path, lambda configuration, device: lambda: None)
    assert facts.wall.graph is None
    assert facts.wall.graph_note == "capture failed: CUDA error: operation not permitted when stream is capturing"
    assert "stream set back" in fake_gpu


def test_a_step_marked_uncapturable_is_not_tried(tmp_path, fake_gpu):
    def build(configuration, device):
        return capture.Step(run=lambda: None, samples=1, parameters=0, capturable=False, why_not="it reads the host")

    facts = on_gpu(tmp_path, build)
    assert facts.wall.graph_note == "not captured: it reads the host"
    assert "graph begins" not in fake_gpu


def test_graph_execution_times_and_profiles_replays_and_keeps_an_eager_trace_to_name_them(tmp_path, fake_gpu):
    advanced = []

    def build(configuration, device):
        return capture.Step(
            run=lambda: fake_gpu.append("eager"),
            graph_run=lambda: fake_gpu.append("graph body"),
            advance=lambda: advanced.append(1),
            samples=1,
            parameters=0,
        )

    facts = on_gpu(tmp_path, build, execution="graph")
    assert (facts.trace, facts.eager_trace) == ("trace.json.gz", "capture.json.gz")
    assert len(step_names(read(tmp_path / "run" / facts.trace))) == 3
    assert step_names(read(tmp_path / "run" / facts.eager_trace))
    assert facts.wall.graph is not None
    assert facts.wall.graph.samples_us == facts.wall.device.samples_us
    replays = 20 + recorder.PROFILER_WARMUP + recorder.LEAD_IN + 2
    assert len(advanced) == replays
    assert fake_gpu.count("graph body") == clock.GRAPH_WARMUP + 1


# --- a user's own loop --------------------------------------------------------------------------------------


def loop(folder, iterations: int, **options: object) -> None:
    settings = {"steps": 2, "warmup": 1, "unprofiled": 3, "device": "cpu"} | options
    with addrfrac.capture(folder, **settings) as run:
        for _ in range(iterations):
            with run.phase("forward"):
                torch.ones(8, 8) @ torch.ones(8, 8)
            run.step()


def test_a_loop_is_recorded_with_its_phases_and_configuration(tmp_path):
    loop(tmp_path, 9, configuration={"learning_rate": 0.1}, samples=8, title="my loop")
    trace = read(tmp_path / "trace.json.gz")
    assert len(step_names(trace)) == 3
    assert sum(event.get("name") == "addrfrac.phase:forward" for event in trace["traceEvents"]) == 3
    ours = trace["addrfrac"]
    assert ours["extra"]["configuration"] == {"learning_rate": 0.1}
    assert ours["title"] == "my loop"
    assert ours["samples_per_step"] == 8
    assert len(ours["wall"]["host_us"]) == 3
    assert ours["notes"] == ["measured on the CPU: operators of this machine stand for kernels"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture.json", "trace.json.gz"]


def test_a_loop_longer_than_needed_runs_on_unrecorded(tmp_path):
    with addrfrac.capture(tmp_path, steps=1, warmup=0, unprofiled=1, device="cpu") as run:
        while not run.done:
            run.step()
        taken = run.total
        for _ in range(3):
            run.step()
    assert taken == 5
    assert len(step_names(read(tmp_path / "trace.json.gz"))) == 2


def test_a_loop_that_ends_early_keeps_the_whole_steps_and_says_so(tmp_path):
    loop(tmp_path, 8)
    trace = read(tmp_path / "trace.json.gz")
    assert len(step_names(trace)) == 2
    assert trace["addrfrac"]["profiled_steps"] == 1
    assert any("1 of 2 profiled steps" in note for note in trace["addrfrac"]["notes"])


@pytest.mark.parametrize("iterations", [0, 2, 5, 7])
def test_a_loop_too_short_for_one_profiled_step_says_how_many_it_needs(tmp_path, iterations):
    with pytest.raises(AddrfracError, match=f"ended after {iterations} steps and the capture needs 9"):
        loop(tmp_path / "run", iterations)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("failing", [1, 4, 7, 9])
def test_an_exception_of_the_loop_passes_and_leaves_nothing(tmp_path, failing):
    def fail():
        with addrfrac.capture(tmp_path / "run", steps=2, warmup=1, unprofiled=3, device="cpu") as run:
            for index in range(1, 10):
                if index == failing:
                    raise ZeroDivisionError
                run.step()

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not (tmp_path / "run").exists()
    with torch.profiler.profile():
        torch.ones(1)


def test_arguments_out_of_range_are_refused_before_anything_runs(tmp_path):
    for name in ("steps", "unprofiled"):
        with pytest.raises(ValueError, match=name):
            addrfrac.capture(tmp_path, **{name: 0})
    with pytest.raises(ValueError, match="warmup"):
        addrfrac.capture(tmp_path, warmup=-1)


def test_each_rank_writes_its_own_folder_and_rank_0_the_summary(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    loop(tmp_path, 9)
    monkeypatch.setenv("RANK", "0")
    loop(tmp_path, 9)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["world_size"] == 2
    assert summary["missing_ranks"] == []
    assert [rank["trace"] for rank in summary["ranks"]] == ["rank0/trace.json.gz", "rank1/trace.json.gz"]
    assert all(rank["step_us"] > 0 for rank in summary["ranks"])
    assert read(tmp_path / "rank1" / "trace.json.gz")["addrfrac"]["rank"] == 1


def test_a_rank_that_never_wrote_is_listed_as_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(addrfrac.loop, "RANKS_WAIT_S", 0.1)
    loop(tmp_path, 9)
    assert json.loads((tmp_path / "summary.json").read_text())["missing_ranks"] == [1]


def test_the_summary_waits_for_a_slower_rank(tmp_path):
    facts = {
        "trace": "trace.json.gz",
        "environment": {"device": "x"},
        "profiled_steps": 1,
        "wall": {"host_us": [1.0, 3.0, 2.0]},
        "peak_memory_bytes": None,
        "notes": [],
    }

    def write():
        (tmp_path / "rank0").mkdir()
        (tmp_path / "rank0" / "capture.json").write_text(json.dumps(facts))

    timer = threading.Timer(0.2, write)
    timer.start()
    summary = addrfrac.loop.summarise(tmp_path, 1, wait_s=10.0)
    timer.join()
    assert summary["missing_ranks"] == []
    assert summary["ranks"][0]["step_us"] == 2.0


@pytest.mark.parametrize(
    "imports",
    [
        "import addrfrac",
        "import addrfrac, addrfrac.capture",
        "import addrfrac.capture",
        "from addrfrac import capture; import addrfrac",
        "from addrfrac.capture import measure; import addrfrac",
    ],
)
def test_capture_can_be_called_and_is_a_module_in_whatever_order_it_is_imported(imports, tmp_path):
    code = (
        f"{imports}\n"
        f"assert addrfrac.capture({str(tmp_path)!r}, steps=1).__class__.__name__ == 'capture'\n"
        "assert callable(addrfrac.capture.measure)\n"
        "import addrfrac.capture as module\n"
        "assert module is addrfrac.capture\n"
        "import sys; assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
