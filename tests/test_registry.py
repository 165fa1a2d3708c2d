"""Names to workloads, options to configurations, and one clear line where either is wrong."""

import pytest

from addrfrac import registry
from addrfrac.errors import AddrfracError
from addrfrac.records import Workload

EXAMPLE = """
import torch
from addrfrac.records import Workload

def build(configuration, device):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to(device)
    batch = torch.randn(configuration.batch, 64, device=device)
    return lambda: model(batch)

MLP = Workload(name="mlp", about="two layers", build=build, defaults={"batch": 32}, modes=("infer",))
"""


@pytest.fixture
def example(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(EXAMPLE)
    return path


def refuse(match: str, name: str = "llama3-8b", **asked: object) -> None:
    with pytest.raises(AddrfracError, match=match) as error:
        registry.configure(registry.find_workload(name), **asked)
    assert "\n" not in str(error.value)


def test_a_misspelt_name_gets_the_nearest_one():
    with pytest.raises(AddrfracError, match="did you mean resnet50"):
        registry.find_workload("resnet-50")
    with pytest.raises(AddrfracError, match="did you mean llama3-8b"):
        registry.find_workload("Llama3_8b")


def test_a_name_like_no_other_gets_the_list():
    with pytest.raises(AddrfracError, match=r"there are: .*resnet50") as error:
        registry.find_workload("quicksort")
    assert "\n" not in str(error.value)


def test_a_user_s_file_is_a_workload_in_ten_lines(example):
    workload = registry.find_workload(f"{example}:MLP")
    assert isinstance(workload, Workload)
    assert workload.name == "mlp"
    assert len(EXAMPLE.strip().splitlines()) <= 10


def test_the_example_in_the_documentation_is_the_one_that_is_tested():
    import addrfrac.workloads

    assert addrfrac.workloads.__doc__ is not None
    documented = [line.removeprefix("    ") for line in addrfrac.workloads.__doc__.splitlines()]
    assert all(line in documented for line in EXAMPLE.strip().splitlines())


def test_a_file_without_that_name_lists_the_workloads_it_has(example):
    with pytest.raises(AddrfracError, match="its workloads: MLP"):
        registry.find_workload(f"{example}:MPL")


def test_a_name_in_a_file_that_is_no_workload_is_said(example):
    with pytest.raises(AddrfracError, match=r"build is a function, not an addrfrac\.records\.Workload"):
        registry.find_workload(f"{example}:build")


def test_a_file_without_a_name_a_missing_and_a_broken_one_are_one_line_each(tmp_path, example):
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    needy = tmp_path / "needy.py"
    needy.write_text("import no_such_package_of_any_kind\n")
    for name, match in (
        (str(example), "say which workload"),
        (f"{tmp_path}/gone.py:X", "no file"),
        (f"{broken}:X", "line 1"),
        (f"{needy}:X", "no_such_package_of_any_kind, which is not installed"),
    ):
        with pytest.raises(AddrfracError, match=match) as error:
            registry.find_workload(name)
        assert "\n" not in str(error.value)


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch):
    entry = registry.EntryPoint(name="theirs", value="no_such_module:W", group=registry.WORKLOAD_GROUP)
    monkeypatch.setattr(registry, "_entries", lambda group: iter([entry]))
    with pytest.raises(AddrfracError, match="theirs = no_such_module:W"):
        registry.workloads()


def test_an_entry_point_may_name_a_tuple(monkeypatch, example):
    workload = registry.find_workload(f"{example}:MLP")
    monkeypatch.setattr(registry, "_records", lambda entry: (workload, registry.find_workload(f"{example}:MLP")))
    assert list(registry.workloads()) == ["mlp"]


def test_a_mode_has_defaults_of_its_own():
    llama = registry.find_workload("llama3-8b")
    prefill, decode = registry.configure(llama), registry.configure(llama, mode="decode")
    assert (prefill.mode, prefill.seq_len, prefill.cache_len) == ("prefill", 2048, None)
    assert (decode.batch, decode.cache_len, decode.seq_len) == (32, 1024, None)
    assert prefill.dtype == "bf16"


def test_what_was_asked_wins_and_none_is_not_asked():
    configuration = registry.configure(registry.find_workload("resnet50"), batch=3, dtype="fp16", layout=None)
    assert (configuration.batch, configuration.dtype, configuration.layout) == (3, "fp16", "channels-last")


def test_impossible_options_are_one_clear_line():
    refuse("--batch 0", batch=0)
    refuse("--seq-len -1", seq_len=-1)
    refuse("--warmup -1", warmup=-1)
    refuse("--steps 0", steps=0)
    refuse("--layers 33: llama3-8b has 32", layers=33)
    refuse("--mode dance", mode="dance")
    refuse("--dtype int3", dtype="int3")
    refuse("--cache-len means nothing in mode prefill; use --mode decode", cache_len=8)
    refuse("has no --pooling", pooling="3")
    refuse("--pooling x: give a whole number from 1, or mlperf", name="dlrm", pooling="x")
    refuse("--pooling 0", name="dlrm", pooling="0")
    refuse("--indices gauss", name="dlrm", indices="gauss")
    refuse("has no --layout", name="bert-large", layout="contiguous")


def _kernel_entries(monkeypatch, *values: str) -> None:
    entries = [
        registry.EntryPoint(name=value.partition(":")[0], value=value, group=registry.KERNEL_GROUP) for value in values
    ]
    monkeypatch.setattr(registry, "_entries", lambda group: iter(entries))


def test_a_kernel_entry_point_names_its_module_or_the_record_in_it(monkeypatch, tmp_path):
    (tmp_path / "a_kernel_of_the_tests.py").write_text("SUBSTITUTE = 'the record'\n")
    monkeypatch.syspath_prepend(tmp_path)
    _kernel_entries(monkeypatch, "a_kernel_of_the_tests")
    assert registry.kernels() == {"a_kernel_of_the_tests": "the record"}
    _kernel_entries(monkeypatch, "a_kernel_of_the_tests:SUBSTITUTE")
    assert registry.kernels() == {"a_kernel_of_the_tests": "the record"}


def test_kernels_are_listed_by_name_where_torch_is_missing(monkeypatch, tmp_path):
    (tmp_path / "needs_torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    monkeypatch.syspath_prepend(tmp_path)
    _kernel_entries(monkeypatch, "needs_torch")
    assert registry.kernels() == {"needs_torch": None}


def test_a_kernel_that_cannot_be_loaded_is_named(monkeypatch):
    _kernel_entries(monkeypatch, "no_such_kernel_anywhere")
    with pytest.raises(AddrfracError, match="no_such_kernel_anywhere = no_such_kernel_anywhere"):
        registry.kernels()
