"""A user's weights: what may be written, and each mistake in one clear line."""

from __future__ import annotations

import pytest

from addrfrac.errors import AddrfracError
from addrfrac.weights import STEPS, TIME, load_weights

PHASES = {"decode batch 1": "decode", "decode batch 2": "decode", "prefill 33-64 tokens": "prefill"}
COUNTS = {"decode batch 1": 30, "decode batch 2": 10, "prefill 33-64 tokens": 5}
BUSY = {"decode batch 1": 300.0, "decode batch 2": 200.0, "prefill 33-64 tokens": 500.0}


@pytest.fixture
def load(tmp_path):
    def of(text, name="weights.csv"):
        path = tmp_path / name
        path.write_text(text)
        return load_weights(path)

    return of


@pytest.mark.parametrize(
    ("name", "text", "by"),
    [
        ("w.csv", "decode batch 1,0.7\nprefill 33-64 tokens, 0.3\n", TIME),
        ("w.csv", "bucket,weight\ndecode batch 1,0.7\nprefill 33-64 tokens,0.3\n", TIME),
        ("w.tsv", "bucket\tsteps\ndecode batch 1\t0.7\n\n# a note\nprefill 33-64 tokens\t0.3", STEPS),
        ("w.txt", '"decode batch 1",0.7\n"prefill 33-64 tokens",0.3\n', TIME),
        ("w.toml", '"decode batch 1" = 0.7\n"prefill 33-64 tokens" = 0.3\n', TIME),
        ("w.toml", '[steps]\n"decode batch 1" = 0.7\n"prefill 33-64 tokens" = 0.3\n', STEPS),
        ("w.toml", '[time]\n"decode batch 1" = 0.7\n"prefill 33-64 tokens" = 0.3\n', TIME),
    ],
)
def test_weights_are_a_table_or_toml(load, name, text, by):
    found = load(text, name)
    assert found.of == {"decode batch 1": 0.7, "prefill 33-64 tokens": 0.3}
    assert found.by == by
    assert name in found.words


def test_weights_by_time_are_taken_as_they_are(load):
    found = load("decode batch 1,2\nprefill 33-64 tokens,1").of_buckets(PHASES, COUNTS, BUSY)
    assert found == {"decode batch 1": 2.0, "decode batch 2": 0.0, "prefill 33-64 tokens": 1.0}


def test_weights_by_steps_count_each_step_with_its_busy_time(load):
    found = load("bucket,steps\ndecode batch 1,90\nprefill 33-64 tokens,10").of_buckets(PHASES, COUNTS, BUSY)
    assert found["decode batch 1"] == 90 * 10.0
    assert found["prefill 33-64 tokens"] == 10 * 100.0


def test_the_weight_of_a_phase_is_divided_as_the_trace_has_it(load):
    by_time = load("decode,1\nprefill,1").of_buckets(PHASES, COUNTS, BUSY)
    assert by_time == {"decode batch 1": 0.6, "decode batch 2": 0.4, "prefill 33-64 tokens": 1.0}
    by_steps = load("bucket,steps\ndecode,4").of_buckets(PHASES, COUNTS, BUSY)
    assert by_steps["decode batch 1"] == pytest.approx(3 * 10.0)
    assert by_steps["decode batch 2"] == pytest.approx(1 * 20.0)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("w.csv", "", "holds no weights"),
        ("w.csv", "bucket,weight\n", "holds no weights"),
        ("w.csv", "decode,1,2", "line 1: 3 columns"),
        ("w.csv", "decode,1\nprefill", "line 2: 1 columns"),
        ("w.csv", "decode,1\nprefill,much", "line 2: 'much' is not a number"),
        ("w.csv", "decode,-1", "-1 of 'decode' is not a number of 0 or more"),
        ("w.csv", "decode,nan", "nan of 'decode'"),
        ("w.csv", "decode,1\ndecode,2", "names 'decode' twice"),
        ("w.toml", "decode = ", "is not TOML"),
        ("w.toml", 'decode = "1"', "'decode' is no weight"),
        ("w.toml", "decode = true", "'decode' is no weight"),
        ("w.toml", "[other]\ndecode = 1", "'other' is no weight"),
    ],
)
def test_a_mistake_in_the_file_is_named(load, name, text, says):
    with pytest.raises(AddrfracError, match=says) as caught:
        load(text, name)
    assert "\n" not in str(caught.value).replace("(at end of document)", "")


def test_a_bucket_that_the_trace_does_not_have_is_named_with_those_it_has(load):
    with pytest.raises(AddrfracError, match=r"no bucket 'decode batch 64'.*decode batch 1, decode batch 2"):
        load("decode batch 64,1").of_buckets(PHASES, COUNTS, BUSY)


def test_weights_that_are_all_zero_are_refused(load):
    with pytest.raises(AddrfracError, match="weight 0"):
        load("decode,0").of_buckets(PHASES, COUNTS, BUSY)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(AddrfracError, match="cannot read"):
        load_weights(tmp_path / "none.csv")
    (tmp_path / "w.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AddrfracError, match="not text"):
        load_weights(tmp_path / "w.csv")
