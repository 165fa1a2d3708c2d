"""One eager step in, the ops it ran with the memory each read and wrote out, by torch's dispatcher."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addrfrac.dataflow import Access, Dataflow, OpFlow, as_facts, crossing
from addrfrac.work import PRODUCTS
from addrfrac.work.memory import ELEMENTWISE, OVERWRITES

if TYPE_CHECKING:
    import torch

CREATES = ("aten::empty", "aten::new_empty", "aten::_empty", "aten::resize_", "aten::set_")
"""Ops that hand out memory and write nothing."""
WHOLE_ROWS = frozenset({"aten::embedding", "aten::index_select", "aten::index", "aten::gather"})
"""Of their first operand they read as much as they write."""
BAGS = frozenset({"aten::_embedding_bag", "aten::_embedding_bag_forward_only"})
PUTS = frozenset(
    f"aten::{name}_" for name in ("index_copy", "index_put", "_index_put_impl", "scatter", "scatter_add", "index_add")
)
"""Of their first operand they write as much as their last tensor holds."""
TABLES = "fbgemm::"


class Unrecordable(ValueError):
    """The step holds an op whose bytes are not known."""


def record_dataflow(run: Callable[[], object], *, device_type: str, rows: Mapping[str, Any] | None = None) -> Dataflow:
    """The dataflow of one call of `run`: eager, any device; forward, backward and optimizer.

    `rows` is a workload's `extra`: `row_bytes_per_step` and `distinct_row_bytes_per_step` say what embedding bags read.
    Raises Unrecordable where an op reads an unknown part of its tables.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    recorder = _Recorder(device_type, rows or {})

    class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            recorder.note(func, args, kwargs or {}, result)
            return result

    with Recording():  # type: ignore[no-untyped-call]
        run()
    return recorder.finished()


def dataflow_facts(
    run: Callable[[], object], *, device_type: str, extra: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """({'dataflow': ...} for a capture's `extra`, '') or ({}, why there is none)."""
    try:
        flow = record_dataflow(run, device_type=device_type, rows=extra)
    except (Unrecordable, NotImplementedError, RuntimeError) as error:
        return {}, f"no fused floor: the step's data flow was not recorded ({str(error).splitlines()[0][:120]})"
    return {"dataflow": as_facts(crossing(flow))}, ""


class _Recorder:
    """Numbers storages and keeps the ops."""

    def __init__(self, device_type: str, rows: Mapping[str, Any]) -> None:
        self.device_type = device_type
        self.rows = rows
        self.ops: list[OpFlow] = []
        self.sizes: dict[int, float] = {}
        self.known: dict[int, tuple[Any, int]] = {}
        """Address of a storage's record -> (weak reference that keeps the address from use again, number)."""
        self.views: dict[tuple[Any, ...], int] = {}

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        schema = func._schema
        op = str(schema.name)
        if op.startswith(CREATES):
            return
        inputs = [
            (found, argument)
            for argument, value in _paired(schema.arguments, args, kwargs)
            for found in _tensors(value)
            if found.device.type == self.device_type
        ]
        outputs = [found for found in _tensors(result) if found.device.type == self.device_type]
        mutated = [found for found, argument in inputs if _is_written(argument)]
        mine = {self._storage(found) for found, _ in inputs}
        fresh = [found for found in outputs if self._storage(found) not in mine]
        if not mutated and not fresh:
            return  # a view, or nothing on this device
        read = [
            found
            for found, argument in inputs
            if not (_is_written(argument) and (op in OVERWRITES or _is_out(argument)))
        ]
        self.ops.append(
            OpFlow(
                op=op,
                reads=tuple(self._reads(op, read, [*fresh, *mutated])),
                writes=tuple(self._writes(op, [found for found, _ in inputs], mutated, fresh)),
                is_library=op in PRODUCTS or op.startswith("flash_attn"),
                is_elementwise=op in ELEMENTWISE or _is_plain_batch_norm(op, schema, args),
            )
        )

    def _reads(self, op: str, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> Iterator[Access]:
        for place, each in enumerate(read):
            whole = float(_stored_bytes(each))
            if place == 0 and op in WHOLE_ROWS:
                most = min(whole, float(sum(_stored_bytes(out) for out in written)))
                yield self._access(each, min(most, _row_bytes(each)), most)
            elif place == 0 and op in BAGS and len(read) > 1:
                most = min(whole, read[1].numel() * _row_bytes(each))
                share = self._distinct_share()
                yield self._access(each, _row_bytes(each) if share is None else most * share, most)
            elif op.startswith(TABLES) and "lookup" in op and whole > float(self._row_bytes("row_bytes_per_step")):
                yield self._access(
                    each, self._row_bytes("distinct_row_bytes_per_step"), self._row_bytes("row_bytes_per_step")
                )
            elif not (place == 0 and op in PUTS):
                yield self._access(each, whole, whole)

    def _writes(
        self, op: str, inputs: Sequence[torch.Tensor], mutated: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor]
    ) -> Iterator[Access]:
        for each in mutated:
            whole = float(_stored_bytes(each))
            values = float(_stored_bytes(inputs[-1])) if op in PUTS and len(inputs) > 1 else whole
            yield self._access(each, min(values, whole), min(values, whole))
        for each in fresh:
            whole = float(_stored_bytes(each))
            yield self._access(each, whole, whole)

    def _row_bytes(self, name: str) -> float:
        found = self.rows.get(name)
        if found is None:
            raise Unrecordable("which rows of its tables an embedding lookup reads is not known")
        return float(found)

    def _distinct_share(self) -> float | None:
        every, distinct = self.rows.get("row_bytes_per_step"), self.rows.get("distinct_row_bytes_per_step")
        return distinct / every if every and distinct else None

    def _access(self, each: torch.Tensor, low: float, high: float) -> Access:
        storage = self._storage(each)
        place = (storage, each.storage_offset(), tuple(each.shape), tuple(each.stride()), each.dtype)
        return Access(
            storage=storage, view=self.views.setdefault(place, len(self.views)), low_bytes=low, high_bytes=high
        )

    def _storage(self, each: torch.Tensor) -> int:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = each.untyped_storage()
        address = storage._cdata
        if address not in self.known:
            number = len(self.sizes)
            self.known[address] = StorageWeakRef(storage), number  # type: ignore[no-untyped-call]
            self.sizes[number] = float(storage.nbytes())
        return self.known[address][1]

    def finished(self) -> Dataflow:
        kept = frozenset(number for reference, number in self.known.values() if not reference.expired())
        return Dataflow(ops=tuple(self.ops), kept=kept, sizes=dict(self.sizes))


def _paired(arguments: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Each argument of the schema with its value, where it was given."""
    for place, argument in enumerate(arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The strided tensors in a value, also in lists of them."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.device.type != "meta":
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_out(argument: Any) -> bool:
    return bool(argument.kwarg_only) and _is_written(argument)


def _is_plain_batch_norm(op: str, schema: Any, args: Sequence[Any]) -> bool:
    """A batch norm by running statistics: a scale and a shift a channel."""
    if "batch_norm" not in op or "backward" in op:
        return False
    if op.endswith("_no_training"):
        return True
    places = [place for place, argument in enumerate(schema.arguments) if argument.name == "training"]
    return bool(places) and places[0] < len(args) and args[places[0]] is False


def _stored_bytes(each: torch.Tensor) -> int:
    """As `work.tensors.Tensor.bytes`."""
    if not each.numel():
        return 0
    pairs = list(zip(each.shape, each.stride(), strict=True))
    stored = math.prod(size for size, stride in pairs if stride)
    return min(stored, 1 + sum((size - 1) * abs(stride) for size, stride in pairs)) * each.element_size()


def _row_bytes(each: torch.Tensor) -> float:
    return (
        float(each.numel() // max(each.shape[0], 1) * each.element_size()) if each.dim() else float(each.element_size())
    )
