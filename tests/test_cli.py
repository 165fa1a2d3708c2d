"""The command line as a user meets it: in a process of its own, by exit code, stdout and stderr."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
)
GEMM = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN"


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "addrfrac", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=180)


def failed(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    """One clear line on stderr, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def trace_events(steps: int = 6, add_us: float = 5.0) -> list[dict[str, object]]:
    """Steps of one GEMM under aten::mm and one addition under aten::add, on one stream."""
    events: list[dict[str, object]] = []
    for step in range(steps):
        t = 1000.0 + step * 100
        at = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**at, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": t, "dur": 90})
        for k, (op, kernel, length) in enumerate((("aten::mm", GEMM, 20.0), ("aten::add", ELEMENTWISE, add_us))):
            start = t + 10 + 30 * k
            correlation = 10 * step + k + 1
            events.append(
                {**at, "cat": "cpu_op", "name": op, "ts": start, "dur": 9, "args": {"External id": correlation}}
            )
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 3}
            events.append({**at, **launch, "args": {"correlation": correlation}})
            kernel_args = {"correlation": correlation, "device": 0, "stream": 7}
            kernel_event = {
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": start + 8,
                "dur": length + 0.1 * step,
            }
            events.append({"ph": "X", **kernel_event, "args": kernel_args})
    return events


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace.json", trace_events())


def write_trace(path: Path, events: list[dict[str, object]]) -> Path:
    properties = [{"id": 0, "name": "NVIDIA H200"}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    return path


def modules_after(*arguments: str) -> set[str]:
    """What a command left imported."""
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['addrfrac', *{list(arguments)!r}]\n"
        "try:\n    from addrfrac.cli import main; main()\nexcept SystemExit: pass\n"
        "print('\\n' + ' '.join(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return set(done.stderr.splitlines()[-1].split())


def test_help_and_version_load_no_heavy_library() -> None:
    for arguments in (["--help"], ["profile", "--help"], ["--version"]):
        loaded = modules_after(*arguments)
        assert "typer" in loaded
        assert not loaded & {"torch", "numpy", "pandas", "plotly", "triton", "msgspec"}


def test_analyze_as_json_loads_neither_torch_nor_tables_nor_figures(trace: Path) -> None:
    loaded = modules_after("analyze", str(trace), "--format", "json")
    assert "addrfrac.attribute" in loaded
    assert not loaded & {"torch", "pandas", "plotly"}


def test_json_on_stdout_is_the_run_record_and_nothing_else(trace: Path) -> None:
    done = run("analyze", str(trace), "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    share = record["addressable"]["share_of_busy"]
    assert 0.15 < share["low"] == share["high"] < 0.25  # 5 of 25 us, and no overlap
    assert record["addressable"]["share_of_wall"] == {"low": None, "high": None}
    assert set(record["addressable"]["by_policy"]) == {"paper", "vendor", "strict"}
    by_name = {row["name"]: row for row in record["kernels"]}
    assert by_name[GEMM]["op"] == "gemm"
    assert by_name[GEMM]["bound"] == "library"
    assert by_name[GEMM]["launching_op"] == "aten::mm"
    assert by_name[ELEMENTWISE]["bound"] == "replaceable"
    wanted = "op provider role phase incumbent bound op_rule provider_rule launching_op launches device_us"
    assert set(wanted.split()) <= set(by_name[GEMM])
    assert record["accounts"]["residual_us"] == 0.0


def test_a_wall_given_by_the_user_makes_shares_of_wall(trace: Path) -> None:
    record = json.loads(run("analyze", str(trace), "--format", "json", "--wall-ms", "0.1").stdout)
    share = record["addressable"]["share_of_wall"]["low"]
    assert share == pytest.approx(record["addressable"]["by_policy"]["paper"]["replaceable_us"]["low"] / 100)


def test_the_output_extension_picks_the_format(trace: Path, tmp_path: Path) -> None:
    for name, sign in (("r.md", "|"), ("r.csv", "device_us"), ("r.html", "<html"), ("r.json", '"schema"')):
        done = run("analyze", str(trace), "-o", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert sign in (tmp_path / name).read_text()
    failed(run("analyze", str(trace), "-o", str(tmp_path / "r.xyz")), "r.xyz", "--format")


def test_the_terminal_report_fits_eighty_columns(trace: Path) -> None:
    done = run("analyze", str(trace))
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "paper" in done.stdout


def test_steps_choose_the_window(trace: Path) -> None:
    record = json.loads(run("analyze", str(trace), "--format", "json", "--steps", "2:4").stdout)
    assert [step["name"] for step in record["accounts"]["steps"]] == ["ProfilerStep#2", "ProfilerStep#3"]
    failed(run("analyze", str(trace), "--steps", "9:12"), "--steps 9:12", "0:6")
    failed(run("analyze", str(trace), "--steps", "x"), "--steps")
    failed(run("analyze", str(trace), "--annotation", "forward"), "forward", "annotation")


def test_unreadable_traces_are_one_clear_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("")
    failed(run("analyze", str(empty)), "empty.json")
    prose = tmp_path / "prose.json"
    prose.write_text("this is no trace")
    failed(run("analyze", str(prose)), "prose.json")
    failed(run("analyze", str(tmp_path / "missing.json")), "missing.json")
    host_only = [event for event in trace_events() if event["cat"] != "kernel"]
    failed(run("analyze", str(write_trace(tmp_path / "host.json", host_only))), "host.json")


def test_a_truncated_trace_is_used_as_far_as_it_is_whole(trace: Path, tmp_path: Path) -> None:
    whole = trace.read_text()
    cut = tmp_path / "cut.json"
    cut.write_text(whole[: int(len(whole) * 0.7)])
    done = run("analyze", str(cut), "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert any("breaks off" in loss["what"] for loss in record["source"]["losses"])
    packed = tmp_path / "cut.json.gz"
    packed.write_bytes(gzip.compress(whole.encode())[:-200])
    assert run("analyze", str(packed), "--format", "json").returncode == 0


def test_a_failed_command_leaves_nothing_behind(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    failed(run("profile", "resnet50", "--batch", "0", "-o", str(out)), "--batch 0")
    assert not out.exists()


def test_an_unknown_workload_is_answered_with_a_suggestion() -> None:
    failed(run("profile", "resnet5"), "resnet50")


def test_options_that_mean_nothing_for_a_workload_are_refused() -> None:
    failed(run("profile", "resnet50", "--cache-len", "7", "--device", "cpu"), "--cache-len", "resnet50")
    failed(run("profile", "resnet50", "--mode", "decode", "--device", "cpu"), "decode", "infer")


def test_usage_errors_exit_with_two() -> None:
    assert run("profile", "resnet50", "--batch", "many").returncode == 2
    assert run("profile", "resnet50", "--dtype", "int3").returncode == 2
    assert run("nonsense").returncode == 2


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a CUDA device is here, so nothing recorded is shown")
def test_without_a_gpu_an_unrecorded_configuration_lists_the_recorded_ones() -> None:
    failed(run("profile", "resnet50", "--batch", "7"), "recorded", "resnet50", "--device cpu")


def test_two_runs_are_compared_and_a_sure_slowdown_exits_with_three(tmp_path: Path) -> None:
    for name, add_us in (("fast", 5.0), ("slow", 25.0)):
        made = write_trace(tmp_path / f"{name}.trace.json", trace_events(steps=8, add_us=add_us))
        assert run("analyze", str(made), "-o", str(tmp_path / f"{name}.json")).returncode == 0
    fast, slow = str(tmp_path / "fast.json"), str(tmp_path / "slow.json")
    done = run("diff", fast, slow)
    assert done.returncode == 0, done.stderr
    assert "elementwise" in done.stdout
    assert run("diff", fast, slow, "--format", "json").returncode == 0
    assert run("diff", fast, fast, "--fail-above", "1").returncode == 0
    few = str(tmp_path / "few.json")
    run("analyze", str(tmp_path / "slow.trace.json"), "--steps", "0:3", "-o", few)
    done = run("diff", fast, few, "--fail-above", "1")
    assert done.returncode == 0, "three steps prove nothing"
    assert "inconclusive" in done.stdout


def test_what_if_is_answered_from_a_saved_run(trace: Path, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    run("analyze", str(trace), "-o", str(saved))
    done = run("project", str(saved), "--speedup", "elementwise=2", "--format", "json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert row["saved_us"]["low"] == pytest.approx(row["device_us"] / 2)
    failed(run("project", str(saved), "--speedup", "rmsnorm=2"), "rmsnorm")
    assert run("project", str(saved), "--speedup", "elementwise").returncode == 2


def test_saved_runs_render_again_and_traces_are_sent_to_analyze(trace: Path, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    run("analyze", str(trace), "-o", str(saved))
    assert run("report", str(saved)).returncode == 0
    assert run("report", str(saved), str(saved), "--format", "markdown").returncode == 0
    failed(run("report", str(trace)), "analyze")


def test_names_are_classified_in_the_order_given(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text(f"{ELEMENTWISE}\n{GEMM}\nnever_seen_before\n")
    rows = json.loads(run("classify", str(names), "--format", "json").stdout)
    assert [row["op"] for row in rows[:2]] == ["elementwise", "gemm"]
    assert rows[2]["bound"] == "unknown"


def test_what_is_unknown_is_said_with_its_reason_and_widens_the_share(tmp_path: Path) -> None:
    events = [
        event | {"name": "never_seen_before"} if event["name"] == ELEMENTWISE else event for event in trace_events()
    ]
    for event in events:
        if event["name"] == "aten::add":
            event["name"] = "mine::thing"
    record = json.loads(run("analyze", str(write_trace(tmp_path / "own.json", events)), "--format", "json").stdout)
    share = record["addressable"]["share_of_busy"]
    assert share["low"] == 0
    assert 0.15 < share["high"] < 0.25
    assert any(note.startswith("unknown: ") and "never_seen_before" in note for note in record["notes"])


def test_a_kernel_is_explained_in_words(trace: Path) -> None:
    done = run("explain", str(trace), "nvjet")
    assert done.returncode == 0, done.stderr
    for word in ("cublas", "gemm", "aten::mm"):
        assert word in done.stdout
    failed(run("explain", str(trace), "no_such_kernel"), "no_such_kernel")


def test_a_users_own_model_is_profiled_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = tmp_path / "mine.py"
    source.write_text(re.search(r"```python\n(# mine\.py\n.*?)```", (ROOT / "README.md").read_text(), re.S)[1])
    out = tmp_path / "run"
    done = run("profile", f"{source}:MLP", "--device", "cpu", "--steps", "5", "-o", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in out.iterdir()} == {"run.json", "trace.json.gz", "report.html"}
    assert "CPU" in done.stdout
    assert "addrfrac report" in done.stdout.splitlines()[-1]
    record = json.loads((out / "run.json").read_text())
    assert record["wall"]["host"]["median_us"] > 0
    assert record["addressable"]["share_of_wall"]["high"] > 0
    again = json.loads(run("analyze", str(out / "trace.json.gz"), "--format", "json").stdout)
    assert again["accounts"] == record["accounts"]
    assert again["wall"] == record["wall"]


def test_every_command_and_option_in_the_readme_exists() -> None:
    commands = re.findall(r"^\$ addrfrac (\S+)(.*)$", (ROOT / "README.md").read_text(), re.M)
    assert commands
    helps: dict[str, str] = {}
    for word, rest in commands:
        command = f"{word} {rest.split()[0]}" if word == "bench" else word
        if command not in helps:
            helps[command] = run(*command.split(), "--help", COLUMNS="200").stdout
        assert helps[command], f"README names {command}"
        for option in re.findall(r"(?<=\s)(--[a-z-]+)", rest):
            assert option in helps[command], f"README names {option} of {command}"
