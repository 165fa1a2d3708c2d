"""Before and after foreign code: which functions of the process it replaced, which global settings it changed.

Nothing of value is in the candidate's process, so these decide little by themselves; they say *how* a candidate
tried to look good, and catch one that is right in value but has touched the clock.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import hashlib
import inspect
import json
import mmap
import os
import random
import select
import signal
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy
import torch
import torch.nn.functional
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

_WATCHED: tuple[Any, ...] = (
    builtins,
    time,
    statistics,
    gc,
    inspect,
    threading,
    os,
    json,
    ctypes,
    mmap,
    random,
    select,
    signal,
    socket,
    struct,
    hashlib,
    numpy,
    torch,
    torch.Tensor,
    torch._C.TensorBase,
    torch.nn.functional,
    torch.nn.Module,
    torch.testing,
    torch.linalg,
    torch.autograd,
    torch.cuda,
    torch.cuda.Event,
    torch.cuda.Stream,
    torch.random,
)
_OWN_PREFIX = "addrfrac.verification"
_PROCESS = "process"
_MOVES_BY_ITSELF = frozenset({"_", "__warningregistry__", "_initialized", "_queued_calls", "_cached_device_count"})

_TORCH = os.path.dirname(torch.__file__)
_COMPILER = tuple(
    os.path.join(_TORCH, folder, "")
    for folder in ("_dynamo", "_inductor", "_functorch", "fx", "export", "_export", "package", "utils")
)

Snapshot = dict[str, dict[str, int]]


def functions() -> Snapshot:
    """Identity of every callable in the watched namespaces and of the code of our own functions."""
    found: Snapshot = {}
    for space in _WATCHED:
        found[_name(space)] = {
            name: id(value)
            for name, value in vars(space).items()
            if name not in _MOVES_BY_ITSELF and (callable(value) or isinstance(value, (classmethod, staticmethod)))
        }
    ours = {name: module for name, module in sys.modules.items() if name.startswith(_OWN_PREFIX) and module is not None}
    for name, module in ours.items():
        found[name] = _own(name, vars(module))
    found["sys.modules"] = {name: id(module) for name, module in ours.items()}
    found[_PROCESS] = _run_by_the_interpreter()
    return found


_refused_hooks: list[str] = []


def refuse_audit_hooks() -> None:
    """From now on no hook is added that the interpreter would run whenever an address or a file is used."""

    folders = {sys.prefix, sys.base_prefix, os.path.dirname(_TORCH)}
    installed = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)

    def guard(event: str, _details: tuple[Any, ...]) -> None:
        if event == "sys.addaudithook":
            # refused to everybody; told of those that are no installed library, whose compilers may ask for one
            caller = os.path.realpath(sys._getframe(1).f_code.co_filename)
            if not caller.startswith(installed):
                _refused_hooks.append(caller)
            raise RuntimeError("no further hooks")  # the interpreter leaves the hook out and goes on

    sys.addaudithook(guard)


def _run_by_the_interpreter() -> dict[str, int]:
    """What runs without being called: signal handlers, timers, callbacks of the collector, hooks, modes left on."""
    handlers = {f"handler of {s.name}": id(signal.getsignal(s)) for s in signal.Signals}
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    modes = [mode for mode in stack if not isinstance(mode, DeviceContext)]
    return handlers | {
        "interval timer": sum(signal.getitimer(timer)[0] > 0 for timer in timers),
        "callbacks of the garbage collector": len(gc.callbacks),
        "audit hook": len(_refused_hooks),
        "torch function mode": len(modes),
        "torch dispatch mode": torch._C._len_torch_dispatch_stack(),
        "hooks of threads": sum(hook is not None for hook in (threading.getprofile(), threading.gettrace())),
    }


def _own(name: str, space: dict[str, Any]) -> dict[str, int]:
    """Callables of one of our modules, of its classes and of its tables."""
    found: dict[str, int] = {}
    for key, value in space.items():
        if key.startswith("__"):
            continue
        if isinstance(value, dict):
            members = value
        elif isinstance(value, type) and value.__module__ == name:
            members = dict(vars(value))
        else:
            members = {}
        found |= {f"{key}.{member}": _identity(entry) for member, entry in members.items() if callable(entry)}
        if callable(value):
            found[key] = _identity(value)
    return found


def _identity(value: Any) -> int:
    return id(value.__code__) if isinstance(value, FunctionType) else id(value)


def _name(space: Any) -> str:
    return f"{space.__module__}.{space.__qualname__}" if isinstance(space, type) else str(space.__name__)


def replaced(before: Snapshot) -> list[str]:
    """Names that hold something else now; additions are no replacement, nor is what torch's compiler puts in place."""
    now = functions()
    spaces = {_name(space): space for space in _WATCHED}
    return [
        name if space == _PROCESS else f"{space}.{name}"
        for space, names in before.items()
        for name, identity in names.items()
        if now.get(space, {}).get(name) != identity and not _by_compiler(spaces.get(space), name)
    ]


def _by_compiler(space: Any, name: str) -> bool:
    """Whether the new function's code lies in torch's compiler (it wraps a few methods when it is first imported)."""
    value = vars(space).get(name) if space is not None else None
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_COMPILER)


def settings() -> dict[str, str]:
    """The process-wide switches that change what torch computes or how fast."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    found = {
        "default_dtype": str(torch.get_default_dtype()),
        "grad_enabled": str(torch.is_grad_enabled()),
        "threads": str(torch.get_num_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "matmul_precision": _read(torch.get_float32_matmul_precision),
        "matmul_tf32": _read(lambda: matmul.allow_tf32),
        "cudnn_tf32": _read(lambda: cudnn.allow_tf32),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "cudnn_enabled": str(torch.backends.cudnn.enabled),
        "fp16_reduction": str(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "bf16_reduction": str(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "autocast_cpu": str(torch.is_autocast_enabled("cpu")),
        "autocast_cuda": str(torch.is_autocast_enabled("cuda")),
        "inference_mode": str(torch.is_inference_mode_enabled()),
        "forward_pre_hooks": str(len(torch.nn.modules.module._global_forward_pre_hooks)),
        "forward_hooks": str(len(torch.nn.modules.module._global_forward_hooks)),
        "flush_denormal": str(bool((torch.tensor(1e-40) * 1.0).item() == 0.0)),
        "trace": str(sys.gettrace() is not None or sys.getprofile() is not None),
        "switch_interval": str(sys.getswitchinterval()),
        "gc_enabled": str(gc.isenabled()),
    }
    return found


def _read(switch: Callable[[], Any]) -> str:
    """A switch's value; torch refuses to tell it where its old and its new interface were both used."""
    try:
        return str(switch())
    except RuntimeError as error:
        return f"unreadable: {str(error)[:60]}"


def settings_changed(before: dict[str, str]) -> list[str]:
    """'name: before -> now' for each switch that moved."""
    now = settings()
    return [f"{name}: {value} -> {now[name]}" for name, value in before.items() if now[name] != value]
