"""The program of a child: loads one module, builds it, calls it, and hands bytes back.

The same program, on the same path, serves the reference and the candidate, the checks and the timing: there is no
phase for a candidate to detect. All that it uses is bound here, before foreign code is imported; what it says is
nevertheless only believed where the parent can see it in bytes or on its own clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch

from addrfrac.verification import channel, gpu, tripwires
from addrfrac.verification.foreign import Raised, attempt, load_named, load_source
from addrfrac.verification.isolation import enter
from addrfrac.verification.precision import round_tensor, truth_mode
from addrfrac.verification.targets import Loaded, adapt

_pointer = torch._C.TensorBase.data_ptr
_stride = torch._C.TensorBase.stride
_offset = torch._C.TensorBase.storage_offset
_getters: Any = torch._C.TensorBase
_clone = torch._C.TensorBase.clone
_equal = torch.equal
_storage = torch.Tensor.untyped_storage
_clock, _process_clock = time.monotonic, time.process_time
_dumps, _pwrite = json.dumps, os.pwrite
_seed_host = torch.default_generator.manual_seed
_HOST_ONLY = os.environ.get("CUDA_VISIBLE_DEVICES") == ""


class State:
    """What a worker holds between requests."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder = folder
        self.device = torch.device(device)
        self.problem: Any = None
        self.model: Any = None
        self.double: Any = None
        self.arenas: dict[str, gpu.Inputs] = {}
        self.held: list[torch.Tensor] = []
        self.last: list[torch.Tensor] = []
        self.functions = tripwires.functions()
        self.settings = tripwires.settings()
        self.module_file = ""
        self.block: Any = None
        self.variants: dict[str, Any] = {}


def main(sock: socket.socket, request: dict[str, Any]) -> None:
    """Go behind the layers, then answer requests until the parent closes."""
    folder = Path(str(request["folder"]))
    layers = enter(folder, int(request["uid"]), device=str(request["device"]), skip=frozenset(request["skip"]))
    _settle(folder)
    state = State(folder, str(request["device"]))
    while True:
        try:
            body, fds = channel.receive(sock)
        except channel.ChannelClosed:
            return
        message = json.loads(body)
        if message["op"] == "hello":
            answer, tensors = {"layers": [asdict(layer) for layer in layers]}, None
        else:
            result = attempt(_OPERATIONS[message["op"]], state, message, fds)
            answer, tensors = _as_answer(result)
        answer["nonce"] = message["nonce"]
        if tensors is None:
            channel.send(sock, answer)
        else:
            fd, answer["slots"] = tensors
            channel.send(sock, answer, (fd,))
            os.close(fd)


def _as_answer(result: Any) -> tuple[dict[str, Any], tuple[int, list[dict[str, Any]]] | None]:
    if isinstance(result, Raised):
        return {"raised": asdict(result)}, None
    if isinstance(result, tuple):
        return result
    return result, None


def _settle(folder: Path) -> None:
    """A home, temporary folder and caches of its own; nothing of ours on argv or the standard streams."""
    os.chdir(folder)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR"):
        os.environ[name] = str(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    for name in ("LOGNAME", "USER"):  # its user id has no entry in the machine's list of users
        os.environ[name] = "user"
    tempfile.tempdir = str(folder)
    sys.argv = ["python"]
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)  # the server's; its name alone would tell of a check
    output = os.open(folder / "output.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)


# --- requests -----------------------------------------------------------------------------------------------


def _load(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Import the module and say what it offers."""
    if message["kind"] == "source":
        size = int(message["size"])
        text = bytes(channel.read_all(fds[0], size, 0)).decode()
        os.close(fds[0])
        module = load_source(text, state.folder, str(message["name"]))
    else:
        module = load_named(str(message["name"]))
    state.module_file = str(getattr(module, "__file__", ""))
    if message["role"] == "reference":  # its native answers set the limits of the class fp32
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
    state.problem = adapt(module, role=str(message["role"]), case=int(message.get("case", 0)))
    return {"names": state.problem.names, "cases": state.problem.cases, "trains": state.problem.trains}


def _probe(state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    """Whether the device works behind the layers of this worker."""
    value = torch.ones(4, device=state.device).sum()
    if state.device.type == "cuda":
        with contextlib.suppress(ImportError):  # half a second that every kernel of Triton's would else wait for
            import triton  # noqa: F401
    path = state.folder / "probe"
    path.write_text(str(float(value)))
    path.unlink()
    return {"ok": True}


def _inputs(state: State, message: dict[str, Any], _fds: list[int]) -> Any:
    """Fresh inputs of the problem's own generator under a seed, cast to a dtype."""
    seed_everything(int(message["seed"]))
    tree, tensors = flatten(state.problem.get_inputs())
    dtype = channel.DTYPES[message["dtype"]] if message.get("dtype") else None
    tensors = [t.to(dtype) if dtype is not None and t.is_floating_point() else t for t in tensors]
    return {"tree": tree}, channel.pack(tensors)


def _init_inputs(state: State, _message: dict[str, Any], _fds: list[int]) -> Any:
    """The constructor's arguments."""
    tree, tensors = flatten(state.problem.get_init_inputs())
    return {"tree": tree}, channel.pack(tensors)


def _build(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Construct the model under a seed; `reseed` lets constant initialisers draw random values instead."""
    from addrfrac.verification.parameters import random_constants

    tensors = channel.unpack(fds[0], message["slots_in"]) if fds else []
    arguments = unflatten(message["tree"], tensors)
    state.double = None
    state.model = None
    state.held, state.last = [], []
    dtype = channel.DTYPES[message["dtype"]]
    seed_everything(int(message["seed"]))
    started = _clock()
    with random_constants(message.get("reseed")):
        model = state.problem.build(*arguments)
    if isinstance(model, torch.nn.Module):
        model = model.to(state.device)
        if message.get("cast", True):
            model = model.to(dtype)
    state.model = model
    repack(state)  # what it packed at construction is neither on this device nor in this dtype
    return {"setup_s": _clock() - started, "training": bool(getattr(model, "training", False))}


def _state(state: State, _message: dict[str, Any], _fds: list[int]) -> Any:
    """Names, kinds and values of parameters and buffers."""
    entries = named_state(state.model)
    listing = [{"name": name, "kind": kind} for name, kind, _ in entries]
    return {"entries": listing}, channel.pack([tensor for _, _, tensor in entries])


def _set_state(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """New values for parameters and buffers: through `load_state_dict` or written in place."""
    values = channel.unpack(fds[0], message["slots_in"])
    mine = {name: tensor for name, _, tensor in named_state(state.model)}
    names = message["names"]
    state.double = None
    if message["how"] == "load":
        state.model.load_state_dict(
            {name: value.to(mine[name].dtype) for name, value in zip(names, values, strict=True)}, strict=False
        )
    else:
        for name, value in zip(names, values, strict=True):
            mine[name].data.copy_(value)
    return {"repacks": repack(state)}


def repack(state: State) -> bool:
    """Tell a model that its parameters changed, where it has a way to be told; whether it has."""
    repacks = callable(getattr(state.model, "repack", None))
    if repacks:
        state.model.repack()
    return repacks


def _arena(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Map a set of inputs."""
    shared = channel.map_arena(message["arena"], fds[0])
    state.arenas[message["arena"]["key"]] = gpu.Inputs(shared, state.device, message["tree"])
    return {}


def _drop_arena(state: State, message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    state.arenas.pop(message["key"], None)
    return {}


def _call(state: State, message: dict[str, Any], _fds: list[int]) -> Any:
    """One call; see `calls`."""
    if message.get("grad"):
        inputs = state.arenas[message["key"]]
        inputs.refresh()
        return _gradients(state, message, inputs)
    from addrfrac.verification import calls

    return calls.call(state, message)


def _traced(state: State, message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    """One call with the operations it used and the exceptions it swallowed."""
    from addrfrac.verification.evidence import observe

    inputs = state.arenas[message["key"]]
    inputs.refresh()
    seed_everything(int(message["seed"]), fast=True)
    arguments = unflatten(inputs.tree, inputs.tensors)
    return observe(state.model, arguments, state.module_file, state.device)


def _keep(state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    from addrfrac.verification import calls

    return calls.keep(state)


def _scribble(state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    from addrfrac.verification import calls

    return calls.scribble(state)


def _burst(state: State, message: dict[str, Any], _fds: list[int]) -> Any:
    from addrfrac.verification import calls

    return calls.burst(state, message)


def _again(state: State, _message: dict[str, Any], _fds: list[int]) -> Any:
    from addrfrac.verification import calls

    return calls.again(state)


def _memory(state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    """Bytes of tensors that are alive between calls, other than what this program itself holds."""
    ours = [t for inputs in state.arenas.values() for t in (*inputs.shared, *inputs.tensors, *inputs.buffers)]
    mine = {_pointer(t) for t in (*ours, *state.held, *state.last)}
    storages: dict[int, int] = {}
    for candidate in gc.get_objects():
        if type(candidate) in (torch.Tensor, torch.nn.Parameter) and candidate.layout == torch.strided:
            storage = _storage(candidate)
            if candidate.device.type == state.device.type and _pointer(candidate) not in mine:
                storages[storage.data_ptr()] = storage.nbytes()
    return {"live_bytes": sum(storages.values())}


def _cpu(_state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    return {"cpu_s": _process_clock(), "threads": threads_now()}


def _wires(state: State, _message: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
    """Functions replaced and settings changed since the worker began."""
    return {"replaced": tripwires.replaced(state.functions), "settings": tripwires.settings_changed(state.settings)}


def _truth(state: State, message: dict[str, Any], _fds: list[int]) -> Any:
    """The reference in fp64, for each of `hows`: inputs and parameters as they are, rounded to a class, or nudged."""
    inputs = state.arenas[message["key"]]
    inputs.refresh()
    outputs = [_exact_answer(state, inputs, how, message) for how in message["hows"]]
    return {"counts": [len(tensors) for tensors in outputs]}, channel.pack([t for tensors in outputs for t in tensors])


def _exact_answer(state: State, inputs: gpu.Inputs, how: str, message: dict[str, Any]) -> list[torch.Tensor]:
    import copy

    seed = int(message["seed"])
    generator = torch.Generator().manual_seed(seed)
    seed_everything(seed, fast=True)
    is_module = isinstance(state.model, torch.nn.Module)
    if state.double is None:
        state.double = copy.deepcopy(state.model).double() if is_module else state.model
    # a copy for each call: buffers that it updates must not move for the next one
    model = copy.deepcopy(state.double) if is_module else state.double
    if is_module:
        for parameter in model.parameters():
            parameter.data.copy_(round_tensor(parameter.data, how, generator, message["dtype"]))
        for buffer in model.buffers() if how == "nudged" else ():  # whoever folds statistics into weights rounds them
            buffer.data.copy_(round_tensor(buffer.data, how, generator, message["dtype"]))
    doubles = [
        round_tensor(t.double(), how, generator, message["dtype"]) if t.is_floating_point() else _clone(t)
        for t in inputs.tensors
    ]
    with truth_mode(channel.DTYPES[message["dtype"]]), torch.no_grad():
        return flatten(model(*unflatten(inputs.tree, doubles)))[1]


def _gradients(state: State, message: dict[str, Any], inputs: gpu.Inputs) -> Any:
    """Gradients of inputs (and parameters) for random cotangents drawn from the given seeds."""
    double = bool(message.get("double"))
    model = state.model
    if double and isinstance(model, torch.nn.Module):
        import copy

        model = copy.deepcopy(model).double()
    parameters: list[torch.Tensor] = []
    if isinstance(model, torch.nn.Module) and message.get("parameters"):
        by_name = dict(model.named_parameters())
        parameters = [by_name[name] for name in message["parameters"]]
    found: list[torch.Tensor] = []
    changed: set[int] = set()
    attached: list[bool] = []
    wanted: list[torch.Tensor] = []
    for seed in message["grad"]:  # each in a graph of its own: a kernel that trains may use up what it saved
        leaves = []
        for tensor in inputs.tensors:
            leaf = _clone(tensor).detach()
            if double and leaf.is_floating_point():
                leaf = leaf.double()
            leaves.append(leaf.requires_grad_(leaf.is_floating_point()))
        given = [_clone(leaf.detach()) for leaf in leaves]
        seed_everything(int(message["seed"]), fast=True)
        with torch.enable_grad():
            if double:
                with truth_mode(channel.DTYPES[message["dtype"]]):
                    output = model(*unflatten(inputs.tree, leaves))
            else:
                output = model(*unflatten(inputs.tree, leaves))
        outputs = [t for t in tensors_of(output) if t.is_floating_point()]
        attached = [t.requires_grad for t in outputs]
        wanted = [t for t in leaves if t.requires_grad] + parameters
        if not (all(attached) and outputs and wanted):
            break
        cotangents = [_cotangent(t, int(seed)) for t in outputs]
        gradients = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
        found += [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanted, strict=True)]
        changed |= {i for i, (leaf, was) in enumerate(zip(leaves, given, strict=True)) if not _equal(leaf, was)}
    return {"attached": attached, "wanted": len(wanted), "changed": sorted(changed)}, channel.pack(found)


def _cotangent(output: torch.Tensor, seed: int) -> torch.Tensor:
    """A random cotangent; for a negative seed one number for all, spread without memory as a sum's backward has it."""
    generator = torch.Generator().manual_seed(abs(seed))
    shape = output.shape if seed >= 0 else ()
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return drawn.to(output.dtype).to(output.device).expand(output.shape)


def _published(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """A published protocol as its harness has it: reference, candidate and comparison in this one process."""
    from addrfrac.verification.inprocess import run_published

    reference, candidate = _pair(state, message, fds)
    return run_published(reference, candidate, message["protocol"], state.device, str(message["dtype"]))


def _harness(state: State, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Every comparison of the published harnesses to the end, then their clock; see `harness`."""
    from addrfrac.verification import harness

    if message["phase"] == "times":
        return harness.naive_times(state.variants["harness"], int(message["trials"]), state.device)
    reference, candidate = _pair(state, message, fds)
    rows, state.variants["harness"] = harness.compare_to_the_end(
        reference, candidate, message["calls"], state.device, str(message["dtype"])
    )
    return {"rows": rows}


def _pair(state: State, message: dict[str, Any], fds: list[int]) -> list[Loaded]:
    """Reference and candidate as texts or by name, loaded into this process."""
    loaded = []
    for role, fd, size in zip(("reference", "candidate"), fds, message["sizes"], strict=True):
        text = bytes(channel.read_all(fd, size, 0)).decode()
        os.close(fd)
        if message["module"]:
            module = load_named(str(message["module"]))
        else:
            module = load_source(text, state.folder, f"{role}_module")
        loaded.append(adapt(module, role=role, case=int(message["case"])))
    return loaded


def _time(state: State, message: dict[str, Any], _fds: list[int]) -> Any:
    """One phase of timing; see `timed`."""
    from addrfrac.verification import timed

    return timed.PHASES[message["phase"]](state, message)


_OPERATIONS = {
    "probe": _probe,
    "time": _time,
    "published": _published,
    "harness": _harness,
    "load": _load,
    "inputs": _inputs,
    "init_inputs": _init_inputs,
    "build": _build,
    "state": _state,
    "set_state": _set_state,
    "arena": _arena,
    "drop_arena": _drop_arena,
    "call": _call,
    "again": _again,
    "keep": _keep,
    "scribble": _scribble,
    "burst": _burst,
    "cpu": _cpu,
    "memory": _memory,
    "wires": _wires,
    "traced": _traced,
    "truth": _truth,
}


# --- trees of arguments -------------------------------------------------------------------------------------


def flatten(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """A JSON tree with tensors replaced by their position, and the tensors; only plain types are allowed."""
    tensors: list[torch.Tensor] = []

    def walk(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append(node)
            return {"t": len(tensors) - 1}
        if isinstance(node, (list, tuple)):
            return {"l" if isinstance(node, list) else "u": [walk(item) for item in node]}
        if isinstance(node, dict):
            return {"d": [[walk(key), walk(item)] for key, item in node.items()]}
        if node is None or isinstance(node, (bool, int, float, str)):
            return {"v": node}
        if isinstance(node, torch.dtype):
            return {"y": channel.dtype_name(node)}
        if isinstance(node, torch.Size):
            return {"u": [walk(item) for item in node]}
        raise TypeError(f"{type(node).__name__} cannot travel between processes")

    return walk(value), tensors


def unflatten(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """The value that `flatten` took apart."""
    kind, body = next(iter(tree.items()))
    if kind == "t":
        return tensors[body]
    if kind == "l":
        return [unflatten(item, tensors) for item in body]
    if kind == "u":
        return tuple(unflatten(item, tensors) for item in body)
    if kind == "d":
        return {unflatten(key, tensors): unflatten(item, tensors) for key, item in body}
    if kind == "y":
        return channel.DTYPES[body]
    return body


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Tensors in plain containers, in order; anything else is left out."""
    if isinstance(value, torch.Tensor):
        return [value]
    if type(value) in (list, tuple):
        return [tensor for item in value for tensor in tensors_of(item)]
    if type(value) is dict:
        return [tensor for item in value.values() for tensor in tensors_of(item)]
    return []


# --- observation --------------------------------------------------------------------------------------------


def captured(output: Any, inputs: list[torch.Tensor], state: State) -> tuple[dict[str, Any], tuple[int, list[Any]]]:
    """Schema of an output, and its bytes read from memory without calling anything on the object itself."""
    infos: list[dict[str, Any]] = []
    regions: list[tuple[int, dict[str, Any]]] = []
    ranges = known_ranges(inputs, state)

    def walk(node: Any) -> Any:
        kind = type(node)
        if kind in (list, tuple):
            return {"l" if kind is list else "u": [walk(item) for item in node]}
        if kind is dict:
            return {"d": [[repr(key)[:80], walk(item)] for key, item in node.items()]}
        if isinstance(node, torch.Tensor):
            infos.append(_tensor_facts(node, regions, ranges, state))
            return {"t": len(infos) - 1}
        if node is None or kind in (bool, int, float, str):
            return {"v": node if not isinstance(node, str) else node[:200]}
        return {"other": kind.__name__[:80]}

    tree = walk(output)
    _mark_shared(infos, regions)
    total = sum((slot["span"] + 63) // 64 * 64 for _, slot in regions)
    fd = channel.memory_file(max(1, total), sealed=False)
    for start, slot in regions:
        if slot["span"]:
            done = 0
            while done < slot["span"]:
                length = min(slot["span"] - done, 1 << 30)
                done += _pwrite(fd, (ctypes.c_char * length).from_address(start + done), slot["offset"] + done)
    return {"tree": tree, "infos": infos}, (fd, [slot for _, slot in regions])


def _mark_shared(infos: list[dict[str, Any]], regions: list[tuple[int, dict[str, Any]]]) -> None:
    """Note in each output which earlier ones it shares memory with."""
    sized = [(i, info) for i, info in enumerate(infos) if info.get("slot") is not None]
    for position, (index, info) in enumerate(sized):
        start, span = regions[info["slot"]][0], regions[info["slot"]][1]["span"]
        for other, earlier in sized[:position]:
            low, length = regions[earlier["slot"]][0], regions[earlier["slot"]][1]["span"]
            if start < low + length and low < start + span:
                infos[index]["overlaps"].append(f"output {other}")


def _tensor_facts(
    tensor: torch.Tensor,
    regions: list[tuple[int, dict[str, Any]]],
    ranges: list[tuple[str, int, int]],
    state: State,
) -> dict[str, Any]:
    kind = type(tensor)
    facts: dict[str, Any] = {
        "type": kind.__name__ if kind in (torch.Tensor, torch.nn.Parameter) else f"{kind.__module__}.{kind.__name__}",
        "plain": kind in (torch.Tensor, torch.nn.Parameter),
        "slot": None,
    }
    if not facts["plain"]:
        return facts
    held = object.__getattribute__(tensor, "__dict__")
    facts["attributes"] = sorted(str(name) for name, value in held.items() if not _compilers_note(name, value))[:5]
    device = _getters.device.__get__(tensor)
    shape = tuple(int(n) for n in _getters.shape.__get__(tensor))
    dtype = _getters.dtype.__get__(tensor)
    facts |= {"device": device.type, "shape": shape, "dtype": channel.dtype_name(dtype)}
    facts |= {"requires_grad": bool(_getters.requires_grad.__get__(tensor))}
    if device.type != state.device.type or facts["dtype"] not in channel.DTYPES or tensor.layout != torch.strided:
        return facts
    strides = tuple(int(n) for n in _stride(tensor))
    itemsize = torch.empty((), dtype=dtype).element_size()
    numel = 1
    for n in shape:
        numel *= n
    span = (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * itemsize if numel else 0
    start = _pointer(tensor)
    storage = _storage(tensor)
    facts |= {
        "strides": strides,
        "storage_offset": int(_offset(tensor)),
        "storage_bytes": int(storage.nbytes()),
        "overlaps": [name for name, low, high in ranges if span and start < high and low < start + span],
        "conj": bool(torch.is_conj(tensor) or torch.is_neg(tensor)),
    }
    if facts["storage_bytes"] < span:
        return facts
    host = start if device.type == "cpu" else gpu.to_host(tensor, span)
    offset = sum((slot["span"] + 63) // 64 * 64 for _, slot in regions)
    slot = {"shape": shape, "strides": strides, "dtype": facts["dtype"], "offset": offset, "span": span}
    facts["slot"] = len(regions)
    regions.append((host, slot))
    return facts


def _compilers_note(name: str, value: Any) -> bool:
    """Whether an attribute is a note that torch's compiler leaves on its outputs: plain data, nothing that can act."""
    return name.startswith("_dynamo_") and type(value) in (set, frozenset, int, bool, dict, tuple, type(None))


def known_ranges(inputs: list[torch.Tensor], state: State) -> list[tuple[str, int, int]]:
    """Address ranges that an output must not lie in."""
    ranges = []
    for index, tensor in enumerate(inputs):
        ranges.append((f"input {index}", _pointer(tensor), _pointer(tensor) + channel.span_of(tensor)))
    for name, kind, tensor in named_state(state.model):
        ranges.append((f"{kind} {name}", _pointer(tensor), _pointer(tensor) + channel.span_of(tensor)))
    for index, tensor in enumerate(state.held):
        ranges.append((f"earlier output {index}", _pointer(tensor), _pointer(tensor) + channel.span_of(tensor)))
    return [entry for entry in ranges if entry[2] > entry[1]]


def named_state(model: Any) -> list[tuple[str, str, torch.Tensor]]:
    """(name, 'parameter' or 'buffer', tensor) in order of registration."""
    if not isinstance(model, torch.nn.Module):
        return []
    entries: list[tuple[str, str, torch.Tensor]] = [(n, "parameter", tensor) for n, tensor in model.named_parameters()]
    entries += [(name, "buffer", tensor) for name, tensor in model.named_buffers()]
    return [(name, kind, tensor) for name, kind, tensor in entries if not tensor.is_meta]


def rng_digest(device: torch.device) -> str:
    """Digest of the random state after a call."""
    digest = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8)
    if device.type == "cuda":
        digest.update(torch.cuda.get_rng_state().numpy().tobytes())
    return digest.hexdigest()


def seed_everything(seed: int, *, fast: bool = False) -> None:
    """The same random state for whoever draws next."""
    if _HOST_ONLY:  # torch's own would note a stack for each device that is not there: a millisecond a call
        _seed_host(seed)
    else:
        torch.manual_seed(seed)
    if not fast:
        random.seed(seed)
        numpy.random.seed(seed % (1 << 32))


def threads_now() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))
