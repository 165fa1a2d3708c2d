"""Names in, the workloads and kernels that are installed or in a user's file out; torch is never imported here."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import product
from pathlib import Path
from typing import Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Configuration, Workload

WORKLOAD_GROUP, KERNEL_GROUP = "addrfrac.workloads", "addrfrac.kernels"

DTYPES = ("bf16", "fp16", "tf32", "fp32", "amp-bf16", "amp-fp16")
LAYOUTS = ("channels-last", "contiguous")
EXECUTIONS = ("eager", "graph", "compiled")
EMBEDDINGS = ("bag", "fbgemm")
INDICES = ("uniform", "zipf")
ROUTINGS = ("balanced", "zipf")

OPTIONAL_FIELDS = ("seq_len", "cache_len", "layers", "embedding", "indices", "pooling", "rows", "routing", "layout")
"""Fields of a configuration that only the workloads that name them in `options` understand."""


def workloads() -> dict[str, Workload]:
    """Every installed workload by name, built-in ones and those of other packages."""
    found: dict[str, Workload] = {}
    for entry in _entries(WORKLOAD_GROUP):
        for record in _records(entry):
            if not isinstance(record, Workload):
                raise AddrfracError(
                    f"entry point {entry.name} = {entry.value} names a {type(record).__name__}, not a Workload; "
                    "correct it or uninstall its package"
                )
            found[record.name] = record
    return dict(sorted(found.items()))


def kernels() -> dict[str, Any]:
    """Every installed kernel's SUBSTITUTE record by its entry point's name.

    None stands for a record that cannot be had here: kernel modules import torch and triton. An entry point names the
    module, or the record in it.
    """
    found = {}
    for entry in sorted(_entries(KERNEL_GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "triton"):
                raise AddrfracError(_unloadable(entry, error)) from error
            loaded = None
        except (ImportError, AttributeError) as error:
            raise AddrfracError(_unloadable(entry, error)) from error
        found[entry.name] = getattr(loaded, "SUBSTITUTE", loaded)
    return found


def find_workload(name: str) -> Workload:
    """The workload called `name`, or the one that `path/to/file.py:NAME` holds.

    Raises AddrfracError with the nearest known name where there is none.
    """
    path, separator, attribute = name.rpartition(":")
    if separator and path.endswith(".py"):
        return _workload_from_file(Path(path), attribute)
    if name.endswith(".py"):
        raise AddrfracError(f"{name}: say which workload of the file is meant, as {name}:NAME")
    known = workloads()
    if name not in known:
        raise AddrfracError(f"unknown workload {name!r}; {_suggestion(name, list(known))}")
    return known[name]


def configurations(
    workload: Workload, batches: Sequence[int], seq_lens: Sequence[int], **asked: Any
) -> list[Configuration]:
    """One configuration a batch size and length asked for; the workload's own where none is. Raises as `configure`."""
    return [
        configure(workload, batch=batch, seq_len=length, **asked)
        for batch, length in product(batches or (None,), seq_lens or (None,))
    ]


def configure(workload: Workload, **asked: Any) -> Configuration:
    """The configuration that a workload runs with: what was asked, else its defaults, else the general ones.

    A field that is None counts as not asked. Raises AddrfracError for a value that is out of range, a mode that the
    workload does not have or an option that means nothing to it.
    """
    asked = {key: value for key, value in asked.items() if value is not None}
    mode = asked.get("mode", workload.defaults.get("mode", workload.modes[0]))
    _one_of("--mode", mode, workload.modes, workload.name)
    general = {"batch": 1, "dtype": "bf16", "layout": "", "execution": "eager", "device": "cuda"}
    own = {key: value for key, value in workload.defaults.items() if not isinstance(value, dict)}
    fields = general | own | workload.defaults.get(mode, {}) | asked | {"workload": workload.name, "mode": mode}
    _one_of("--dtype", fields["dtype"], DTYPES, workload.name)
    _one_of("--execution", fields["execution"], EXECUTIONS, workload.name)
    for key, values in (("layout", LAYOUTS), ("embedding", EMBEDDINGS), ("indices", INDICES), ("routing", ROUTINGS)):
        if key in asked:
            _one_of(f"--{key}", asked[key], values, workload.name)
    for key in OPTIONAL_FIELDS:
        if key in asked and key not in workload.options:
            raise AddrfracError(f"{workload.name} has no --{key.replace('_', '-')}; leave it out")
        meant_in = [other for other in workload.modes if key in workload.defaults.get(other, {})]
        if key in asked and meant_in and mode not in meant_in:
            raise AddrfracError(f"--{key.replace('_', '-')} means nothing in mode {mode}; use --mode {meant_in[0]}")
    _positive(fields)
    if fields.get("pooling") not in (None, "mlperf") and not (
        str(fields["pooling"]).isdecimal() and int(fields["pooling"])
    ):
        raise AddrfracError(f"--pooling {fields['pooling']}: give a whole number from 1, or mlperf")
    if workload.layers and (fields.get("layers") or 0) > workload.layers:
        raise AddrfracError(f"--layers {fields['layers']}: {workload.name} has {workload.layers}")
    return Configuration(**fields)


def _positive(fields: dict[str, Any]) -> None:
    for key in ("batch", "seq_len", "cache_len", "layers", "rows", "steps"):
        value = fields.get(key)
        if value is not None and value < 1:
            raise AddrfracError(f"--{key.replace('_', '-')} {value}: give a whole number from 1")
    if fields.get("warmup", 0) < 0:
        raise AddrfracError(f"--warmup {fields['warmup']}: give a whole number from 0")


def _one_of(option: str, value: str, values: tuple[str, ...], name: str) -> None:
    if value not in values:
        raise AddrfracError(f"{option} {value} is not among those of {name}: {', '.join(values)}")


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}? (`addrfrac workloads` lists all; your own is path/to/file.py:NAME)"
    return f"there are: {', '.join(known) or 'none'}; your own is path/to/file.py:NAME"


def _entries(group: str) -> Iterator[EntryPoint]:
    yield from entry_points(group=group)


def _records(entry: EntryPoint) -> tuple[Any, ...]:
    """What an entry point names, one record or a tuple of them."""
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise AddrfracError(_unloadable(entry, error)) from error
    return loaded if isinstance(loaded, tuple) else (loaded,)


def _unloadable(entry: EntryPoint, error: Exception) -> str:
    return f"entry point {entry.name} = {entry.value} cannot be loaded ({error}); reinstall or uninstall its package"


def _workload_from_file(path: Path, attribute: str) -> Workload:
    module = _load_file(path)
    found = getattr(module, attribute, None)
    if isinstance(found, Workload):
        return found
    names = [key for key, value in vars(module).items() if isinstance(value, Workload)]
    if found is not None:
        raise AddrfracError(f"{path}:{attribute} is a {type(found).__name__}, not an addrfrac.records.Workload")
    raise AddrfracError(f"{path} has no {attribute!r}; its workloads: {', '.join(names) or 'none'}")


def _load_file(path: Path) -> Any:
    """The module that a user's file makes, with its folder importable while it loads and runs."""
    if not path.is_file():
        raise AddrfracError(f"no file {path}; give the path of the Python file that holds your workload")
    spec = importlib.util.spec_from_file_location(f"addrfrac_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise AddrfracError(f"{path}, line {error.lineno}: {error.msg}; correct the file") from error
    except ModuleNotFoundError as error:
        raise AddrfracError(f"{path} imports {error.name}, which is not installed here; install it") from error
    return module
