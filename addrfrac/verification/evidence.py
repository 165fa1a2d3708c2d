"""Who did the work, as seen inside the candidate's process: library operations, kernels, swallowed exceptions."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver
from torch.utils._python_dispatch import TorchDispatchMode

LIBRARY_OPERATIONS = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "convolution", "matmul", "linear", "_softmax", "native_layer_norm", "einsum"}
    | {"native_group_norm", "native_batch_norm", "scaled_dot_product_attention", "cumsum", "cumprod", "sort", "topk"}
    | {"_scaled_dot_product_flash_attention_for_cpu", "_embedding_bag", "embedding", "lstm", "_fused_rms_norm"}
)
MATMUL_OPERATIONS = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "convolution", "mv", "dot", "addmv", "_cdist_forward", "lstm", "gru", "linear"}
    | {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "convolution_overrideable",
    }
    | {"_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention", "_trilinear", "mkldnn_rnn_layer"}
    | {"_scaled_dot_product_attention_math", "_thnn_fused_lstm_cell", "_grouped_mm", "grouped_mm", "mkldnn_linear"}
)
_CREATION = frozenset(
    {"empty", "empty_like", "empty_strided", "clone", "copy_", "contiguous", "lift_fresh", "to", "_to_copy", "zeros"}
    | {"alias", "as_strided", "reshape", "numpy_T", "resolve_conj", "resolve_neg", "detach_", "unbind", "narrow"}
    | {"empty.memory_format", "view_as", "_unsafe_view", "fill_", "zero_", "ones", "full"}
)
_VIEWS = frozenset({"view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "slice", "detach"})


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, tuple[Any, ...], int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
        self.calls.append((name, shapes, output.numel() if isinstance(output, torch.Tensor) else 0))
        return output


def observe(model: Any, arguments: Any, module_file: str, device: torch.device) -> dict[str, Any]:
    """One call with its operations in order, and exceptions raised in the module's own frames."""
    swallowed: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        written_here = frame.f_code.co_filename == module_file or frame.f_code.co_filename.startswith("<")
        if module_file and (not written_here or _of_the_interpreter(frame.f_globals)):
            return None
        if event == "exception" and argument[0] not in (StopIteration, GeneratorExit):
            swallowed.append(f"{argument[0].__name__}: {str(argument[1])[:120]}")
        return trace

    unwatched = _recorded_below(model, arguments)
    recorder = _Recorder()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with torch.no_grad(), recorder:
            model(*arguments)
    finally:
        sys.settrace(before)
    work = [(name, shapes) for name, shapes, _ in recorder.calls if name not in _VIEWS]
    counts = Counter(name for name, _ in work)
    return {
        "operations": [f"{name} x{count}" if count > 1 else name for name, count in counts.most_common(40)],
        "sequence": [f"{name}{list(shapes)}" for name, shapes in work][:400],
        "elements": sum(numel for _, _, numel in recorder.calls),
        "library": sorted((set(counts) | unwatched) & LIBRARY_OPERATIONS),
        "computes": bool((set(counts) | unwatched) - _VIEWS - _CREATION),
        "matmul": bool(set(counts) & MATMUL_OPERATIONS),
        "swallowed": swallowed[:5],
        "kernels": [],  # those of a device are traced in a process of its own
    }


def _of_the_interpreter(names: dict[str, Any]) -> bool:
    """Whether a frame's globals are those of a module of the standard library: `<frozen os>` is nobody's source."""
    name = str(getattr(names.get("__spec__"), "name", ""))  # a module may give itself another `__name__`
    module = sys.modules.get(name)
    return name.partition(".")[0] in sys.stdlib_module_names - {"__main__"} and getattr(module, "__dict__", 0) is names


def _recorded_below(model: Any, arguments: Any) -> set[str]:
    """Operations of one call in every thread, recorded where the module cannot see that it is watched."""
    path = Path("observed.json")
    try:
        observer = ExecutionTraceObserver()
        observer.register_callback(str(path.absolute()))
    except (AttributeError, RuntimeError):
        return set()
    with torch.no_grad():
        observer.start()
        model(*arguments)
        observer.stop()
    observer.unregister_callback()
    try:
        nodes = json.loads(path.read_text())["nodes"]
    except (OSError, ValueError, KeyError):
        return set()
    path.unlink()
    names = {str(node.get("name", "")) for node in nodes}
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


_TRACED_CALLS = 3
_MAKES_NOTHING = ("empty", "view", "as_strided", "detach", "alias", "resize")


def device_kernels(once: Callable[[], Any], again: Callable[[], None]) -> tuple[dict[str, Any], Any]:
    """Device kernels of the shortest of a few isolated calls, largest first, and the output of the last.

    `span_us` is the time in which at least one stream was at work: gaps between launches are the host's, and a call
    that is queued behind other work has none.
    """
    from torch.profiler import ProfilerActivity, profile

    best: dict[str, Any] = {"kernels": [], "span_us": None, "launches": 0, "within": {}}
    output: Any = None
    with torch.no_grad():
        for _ in range(10):  # clocks settle
            once()
        for _ in range(_TRACED_CALLS):
            again()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
                output = once()
                torch.cuda.synchronize()
            found = _shown(profiled.events())
            if best["span_us"] is None or (found["span_us"] or 0.0) < best["span_us"]:
                best = found
    return best, output


def _shown(events: Any) -> dict[str, Any]:
    """What the events of one profiled call show of the device."""
    times: Counter[str] = Counter()
    intervals = []
    within: dict[str, str] = {}
    for event in events:
        if event.device_type == torch._C._autograd.DeviceType.CUDA:
            if event.time_range.elapsed_us() > 0:
                times[event.name[:200]] += round(event.time_range.elapsed_us(), 3)
                intervals.append((event.time_range.start, event.time_range.end))
        elif event.name.startswith("aten::") and not event.name[6:].startswith(_MAKES_NOTHING):
            within |= {kernel.name[:200]: event.name for kernel in event.kernels}
    return {
        "kernels": [[name, us] for name, us in times.most_common(40)],
        "span_us": busy_us(intervals) if intervals else None,
        "launches": len(intervals),
        "within": within,
    }


def busy_us(intervals: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, -float("inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
