"""What is saved comes back whole, or not at all."""

from __future__ import annotations

import json
import os
import stat

import pytest

from addrfrac import store
from addrfrac.errors import AddrfracError
from addrfrac.records import Op


@pytest.fixture
def run(trace_builder, label, run_of, wall):
    built = trace_builder(rank=1, world_size=4, metadata={"distributedInfo": {"rank": 1}, "odd": [1, None, "x"]})
    for number in range(3):
        built.step(number, 1000 * number, 1000 * number + 999)
        built.launched(
            "gemm", 1000 * number + 10, 1000 * number + 50, 1000 * number + 300, label=label(Op.GEMM, "cublas")
        )
        built.launched(
            "norm", 1000 * number + 20, 1000 * number + 400, 1000 * number + 900, label=label(Op.NORMALIZATION)
        )
    return run_of(built, wall=wall(1.0, 1.1, 1.2, device=True, graph_us=0.9))


def test_a_run_comes_back_as_it_was(run, tmp_path):
    store.save(run, tmp_path / "run.json")
    assert store.load(tmp_path / "run.json") == run


def test_a_folder_stands_for_the_run_in_it(run, tmp_path):
    store.save(run, tmp_path / "deep" / "er" / "run.json")
    assert store.load(tmp_path / "deep" / "er") == run


def test_a_saved_run_is_plain_json_that_others_can_read(run, tmp_path):
    store.save(run, tmp_path / "run.json")
    read = json.loads((tmp_path / "run.json").read_text())
    assert read["schema"] == store.SCHEMA
    assert read["addressable"]["share_of_busy"] == {"low": 2 / 3, "high": 2 / 3}
    assert read["kernels"][0]["bounds"] == {"paper": "replaceable", "vendor": "replaceable", "strict": "replaceable"}


def test_a_figure_that_was_not_measured_is_null(trace_builder, run_of, tmp_path):
    built = trace_builder()
    built.kernel("one", 0, 10)
    store.save(run_of(built), tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["addressable"]["share_of_wall"] == {
        "low": None,
        "high": None,
    }


def test_several_runs_are_a_list(run):
    assert [one["title"] for one in json.loads(store.encode([run, run]))] == ["built", "built"]


def test_a_save_that_fails_leaves_the_old_file_and_no_litter(run, tmp_path, monkeypatch):
    store.save(run, tmp_path / "run.json")
    before = (tmp_path / "run.json").read_bytes()

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(KeyboardInterrupt):
        store.save(run, tmp_path / "run.json")
    assert (tmp_path / "run.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_saved_file_has_the_permissions_of_any_other(run, tmp_path):
    store.save(run, tmp_path / "run.json")
    (tmp_path / "other").write_text("")
    mode = stat.S_IMODE((tmp_path / "run.json").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_a_place_that_cannot_be_written_is_one_clear_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AddrfracError, match=r"cannot write .*-o"):
        store.save(run, tmp_path / "file" / "run.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a saved run"),
        (b"{", "not a saved run"),
        (b"[]", "not a saved run"),
        (b'"run"', "not a saved run"),
        (b"\xff\xfe", "not a saved run"),
        (b'{"traceEvents": []}', "addrfrac analyze"),
        (b'{"schema": 1}', "not a saved run"),
        (b'{"schema": "one"}', "not a saved run"),
    ],
)
def test_a_file_that_is_no_run_is_refused_in_one_line(tmp_path, content, says):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(AddrfracError, match=says) as caught:
        store.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_run_is_refused(run, tmp_path):
    store.save(run, tmp_path / "run.json")
    content = (tmp_path / "run.json").read_bytes()
    (tmp_path / "run.json").write_bytes(content[: len(content) // 2])
    with pytest.raises(AddrfracError, match="not a saved run"):
        store.load(tmp_path)


def test_a_small_run_is_read_from_its_folder_and_equal_runs_give_equal_bytes(run, tmp_path):
    (tmp_path / "run.json.gz").write_bytes(store.encode_small(run))
    assert store.load(tmp_path) == run
    assert store.encode_small(run) == store.encode_small(store.load(tmp_path))


@pytest.mark.parametrize("kept", [8, 100, -4])
def test_a_small_run_that_was_cut_or_changed_is_refused_in_one_line(run, tmp_path, kept):
    (tmp_path / "run.json.gz").write_bytes(store.encode_small(run)[:kept])
    with pytest.raises(AddrfracError, match="damaged") as caught:
        store.load(tmp_path)
    assert "\n" not in str(caught.value)
    content = bytearray(store.encode_small(run))
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "run.json.gz").write_bytes(content)
    with pytest.raises(AddrfracError):
        store.load(tmp_path)


def test_a_run_from_a_newer_version_is_refused_with_what_to_do(run, tmp_path):
    newer = {**json.loads(store.encode(run)), "schema": store.SCHEMA + 1, "kernels": "now something else"}
    (tmp_path / "run.json").write_text(json.dumps(newer))
    with pytest.raises(AddrfracError, match=r"newer addrfrac \(schema 2.*upgrade"):
        store.load(tmp_path)


def test_a_field_that_a_later_writer_added_is_passed_over(run, tmp_path):
    wider = {**json.loads(store.encode(run)), "something new": 1}
    (tmp_path / "run.json").write_text(json.dumps(wider))
    assert store.load(tmp_path) == run


def test_a_missing_run_is_refused(tmp_path):
    with pytest.raises(AddrfracError, match="cannot read"):
        store.load(tmp_path / "nowhere")
