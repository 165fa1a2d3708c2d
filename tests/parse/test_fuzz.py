"""Damaged traces: no exception but AddrfracError; device time is what the undamaged events say, the rest is told."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addrfrac.errors import AddrfracError
from addrfrac.parse import read_trace
from addrfrac.records import Trace

HOST, THREAD = 100, 101
LEAVE_OUT = object()
HARMLESS = ["NaN", "-Infinity", '"bad \\x escape"', '"tab\there"', '"\\ud83d"', "1e999", "[]", '{"ph": 1}', "null"]
"""Values in an argument that nobody reads."""
NO_STAMPS = ["NaN", "Infinity", "null", '"soon"', "[]", "{}", "true", "1e999", "-5e20", "1e99999999"]
WRONG_ARGS = [
    "null",
    '"text"',
    "[1]",
    "{}",
    "NaN",
    "1.5",
    "true",
    "99999999999999999999",
    "-7",
    "1e99999999",
    "1e-99999999",
]


def event(cat: str, name: str, ts: float, dur: float, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps of ops that launch kernels; stamps small or too long for float64."""
    base = draw(st.sampled_from([0, 1_419_116_105_412, 1_712_195_495_505_582]))
    made: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(2, 7))):
        ts = base + 20 * number
        made.append(event("cpu_op", f"aten::op{number % 3}", ts, 9.5, HOST, THREAD, **{"Input Dims": [[number]]}))
        made.append(event("cuda_runtime", "cudaLaunchKernel", ts + 1, 2, HOST, THREAD, correlation=number))
        made.append(
            event("kernel", f"kernel{number % 4}", ts + 4, number, 0, 7, device=0, stream=7, correlation=number)
        )
        made.append(event("python_function", "file.py(1): f", ts, 5, HOST, THREAD, **{"Python id": number}))
        made.append({"ph": "s", "id": number, "pid": HOST, "tid": THREAD, "ts": ts, "cat": "ac2g", "name": "ac2g"})
    return made


def text_of(made: dict[str, Any], changed: dict[str, str]) -> str:
    """The event as JSON; `changed` puts raw text in place of a field ('args.x' for an argument)."""
    fields = {key: json.dumps(value) for key, value in made.items() if key != "args"}
    args = {key: json.dumps(value) for key, value in made.get("args", {}).items()}
    for key, raw in changed.items():
        (args if key.startswith("args.") else fields)[key.removeprefix("args.")] = raw
    if args:
        fields["args"] = "{" + ", ".join(f'"{key}": {raw}' for key, raw in args.items()) + "}"
    return "{" + ", ".join(f'"{key}": {raw}' for key, raw in fields.items()) + "}"


def read(text: bytes) -> Trace | None:
    """The trace; None where it is refused in one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(text)
        try:
            return read_trace(path)
        except AddrfracError as error:
            refusal = str(error)
    assert "\n" not in refusal
    return None


def document(parts: list[str], before: str = "", after: str = "") -> bytes:
    return ('{"schemaVersion": 1, "traceEvents": [' + ", ".join(parts) + "]}").encode("utf-8", "surrogatepass")


def device_us(made: list[dict[str, Any]]) -> int:
    return sum(each["dur"] for each in made if each["cat"] == "kernel")


def total_us(trace: Trace | None) -> float:
    return 0.0 if trace is None else float((trace.kernels.end_ns - trace.kernels.start_ns).sum()) / 1000


def is_told(trace: Trace | None) -> bool:
    """Whether the reader said that something is missing."""
    return trace is None or any(loss.count > 0 for loss in trace.source.losses)


many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(events(), st.randoms(use_true_random=False))
@many
def test_reordered_events_give_the_same_device_time_and_the_same_owners(
    made: list[dict[str, Any]], random: Any
) -> None:
    def facts(order: list[dict[str, Any]]) -> list[tuple[str, int, tuple[str, ...], str]]:
        trace = read(document([text_of(each, {}) for each in order]))
        assert trace is not None
        assert trace.source.losses == ()
        rows = zip(
            *(getattr(trace.kernels, column).tolist() for column in ("name", "end_ns", "op_stack", "inputs")),
            strict=True,
        )
        return [(trace.names[n], end, trace.op_stacks[s], trace.op_inputs[i].dims) for n, end, s, i in rows]

    shuffled = list(made)
    random.shuffle(shuffled)
    assert facts(shuffled) == facts(made)


@given(events(), st.data())
@many
def test_duplicated_events_count_once_and_are_told(made: list[dict[str, Any]], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(made), min_size=1))
    trace = read(document([text_of(each, {}) for each in made + again]))
    assert total_us(trace) == device_us(made)
    assert is_told(trace) == any(each["cat"] == "kernel" for each in again)


@given(events(), st.data())
@many
def test_a_cut_file_gives_its_whole_events_and_says_so(made: list[dict[str, Any]], data: st.DataObject) -> None:
    parts = [text_of(each, {}) for each in made]
    text = document(parts)
    end = data.draw(st.integers(0, len(text) - 2))
    position = len('{"schemaVersion": 1, "traceEvents": [')
    whole = []
    for each, part in zip(made, parts, strict=True):
        position += len(part)
        if position <= end:
            whole.append(each)
        position += 2
    trace = read(text[:end])
    assert total_us(trace) == device_us(whole)
    assert is_told(trace)


@given(events(), st.data())
@many
def test_odd_values_in_arguments_that_nobody_reads_cost_nothing(
    made: list[dict[str, Any]], data: st.DataObject
) -> None:
    odd = st.dictionaries(st.just("args.comment"), st.sampled_from(HARMLESS))
    trace = read(document([text_of(each, data.draw(odd)) for each in made]))
    assert trace is not None
    assert total_us(trace) == device_us(made)
    assert bool((trace.kernels.op_stack > 0).all())
    assert trace.source.losses == ()


@given(events(), st.data())
@many
def test_wrong_types_in_arguments_cost_owners_but_no_device_time(
    made: list[dict[str, Any]], data: st.DataObject
) -> None:
    keys = ["correlation", "device", "stream", "bytes", "Sequence number", "Fwd thread id", "Input Dims", "Seq"]
    wrong = st.dictionaries(st.sampled_from([f"args.{key}" for key in keys]), st.sampled_from(WRONG_ARGS), max_size=2)
    trace = read(document([text_of(each, data.draw(wrong)) for each in made]))
    assert trace is not None
    assert total_us(trace) == device_us(made)


@given(events(), st.data())
@many
def test_events_without_a_usable_stamp_are_left_out_and_counted(
    made: list[dict[str, Any]], data: st.DataObject
) -> None:
    wrong = st.dictionaries(st.sampled_from(["ts", "dur"]), st.sampled_from(NO_STAMPS), max_size=1)
    changes = [data.draw(wrong) for _ in made]
    trace = read(document([text_of(each, change) for each, change in zip(made, changes, strict=True)]))
    good = [each for each, change in zip(made, changes, strict=True) if not change]
    assert total_us(trace) == device_us(good)
    lost = [each for each, change in zip(made, changes, strict=True) if change and each["cat"] == "kernel"]
    assert not lost or is_told(trace)


@given(events(), st.data())
@many
def test_wrong_types_in_names_and_threads_cost_no_device_time(made: list[dict[str, Any]], data: st.DataObject) -> None:
    wrong = st.dictionaries(st.sampled_from(["name", "pid", "tid", "args"]), st.sampled_from(WRONG_ARGS), max_size=2)
    trace = read(document([text_of(each, data.draw(wrong)) for each in made]))
    assert trace is not None
    assert total_us(trace) == device_us(made)


@given(events(), st.data())
@many
def test_a_byte_changed_anywhere_raises_nothing_but_one_line(made: list[dict[str, Any]], data: st.DataObject) -> None:
    text = bytearray(document([text_of(each, {}) for each in made]))
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(text))


@given(events(), st.data())
@many
def test_rubbish_between_events_costs_no_other_event(made: list[dict[str, Any]], data: st.DataObject) -> None:
    rubbish = st.sampled_from(['{"ph": "X", "cat": "kernel", "name": "half', "17", '{"ph": "X", "args": {', "null"])
    parts = []
    for each in made:
        parts += [data.draw(rubbish)] if data.draw(st.booleans()) else []
        parts.append(text_of(each, {}))
    trace = read(document(parts))
    assert total_us(trace) == device_us(made)
    assert len(parts) == len(made) or is_told(trace)


@given(st.binary(max_size=300))
def test_noise_is_refused_in_one_line(noise: bytes) -> None:
    read(noise)
    read(b'{"traceEvents": [' + noise)
    read(b"\x1f\x8b" + noise)
    read(b"SQLite format 3\x00" + noise)
