"""Arguments of ops that read or write rows by index in, their bytes out.

Shapes say how many ids there are, not how many of them differ: without captured indices the bytes are an interval from
one row to a row an id (at most the whole table).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from addrfrac.work.memory import moved
from addrfrac.work.record import Facts, Rule, Work
from addrfrac.work.tensors import Argument, Tensor, flag, number, tensor

OUTPUT_BYTES = {0: 4, 1: 2, 5: 2}
"""FBGEMM's SparseType of an output -> bytes of an element: FP32, FP16, BF16."""


def _rows(ids: float, row_bytes: float, table_rows: float, facts: Facts, fewest: float = 1.0) -> tuple[float, float]:
    """Bytes of the distinct rows behind `ids`: an interval, or a figure where the indices were captured."""
    if facts.distinct_row_share is not None:
        known = ids * facts.distinct_row_share * row_bytes
        return known, known
    return min(ids, fewest) * row_bytes, min(ids, table_rows) * row_bytes


def _basis(facts: Facts, rest: str) -> str:
    rows = "distinct rows of the captured indices" if facts.distinct_row_share is not None else "one row to a row an id"
    return f"{rows}; {rest}"


def embedding_bag(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """weight [rows, D], indices [N], offsets [B]: rows and ids read, one row a bag written."""
    table, ids, offsets = (tensor(arguments, place) for place in range(3))
    if table is None or ids is None or offsets is None or len(table.shape) != 2:
        return None
    bags = offsets.elements - (1 if flag(arguments, 7) else 0)
    row_bytes = table.shape[1] * table.item_bytes
    low, high = _rows(ids.elements, row_bytes, table.shape[0], facts)
    rest = ids.bytes + offsets.bytes + bags * row_bytes
    return moved(low + rest, high + rest, access="gather", basis=_basis(facts, "ids and offsets read, bags written"))


def table_batched(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """FBGEMM's forward: weights of all tables in one tensor, D_offsets [T + 1] at 5, total_D and max_D at 6 and 7,
    indices at 8, offsets [B T + 1] at 9, output type at 13."""
    weights, spans, ids, offsets = (tensor(arguments, place) for place in (0, 5, 8, 9))
    total, widest = number(arguments, 6), number(arguments, 7)
    if weights is None or spans is None or ids is None or offsets is None or not total or not widest:
        return None
    tables = max(spans.elements - 1, 1)
    batch = (offsets.elements - 1) // tables
    row_bytes = total / tables * weights.item_bytes  # the mean width: ids spread evenly over tables of several widths
    item = OUTPUT_BYTES.get(int(number(arguments, 13) or 0), weights.item_bytes)
    low, high = _rows(ids.elements, row_bytes, weights.bytes / row_bytes, facts, tables)
    rest = ids.bytes + offsets.bytes + batch * total * item
    return moved(low + rest, high + rest, access="gather", basis=_basis(facts, "ids and offsets read, bags written"))


def table_batched_backward(
    arguments: Sequence[Argument], facts: Facts, *, spans: int, ids: int, offsets: int
) -> Work | None:
    """FBGEMM's backward with its optimizer inside: gradient of the bags read, the touched rows read and written."""
    gradient, weights = tensor(arguments, 0), tensor(arguments, 1)
    widths, indices, ends = (tensor(arguments, place) for place in (spans, ids, offsets))
    if gradient is None or weights is None or widths is None or indices is None or ends is None:
        return None
    tables = max(widths.elements - 1, 1)
    row_bytes = gradient.shape[-1] / tables * weights.item_bytes
    low, high = _rows(indices.elements, row_bytes, weights.bytes / row_bytes, facts, tables)
    rest = gradient.bytes + indices.bytes + ends.bytes
    basis = _basis(
        facts, "bags' gradient, ids and offsets read, rows read and written (the optimizer's state not counted)"
    )
    return moved(2 * low + rest, 2 * high + rest, access="gather", basis=basis)


def checked_ids(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """FBGEMM's bounds check: ids and offsets read."""
    ids, offsets = tensor(arguments, 1), tensor(arguments, 2)
    if ids is None or offsets is None:
        return None
    return moved(ids.bytes + offsets.bytes, basis="ids and offsets read once")


def gather(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """index, gather: an element an index read and written; indices read where they are stored."""
    source, index = tensor(arguments, 0), tensor(arguments, 2)
    if source is None or index is None:
        return None
    written = index.elements * source.item_bytes
    read = min(written, source.bytes)
    rest = index.bytes + written
    return moved(rest, rest + read, access="gather", basis="indices read, elements written; distinct elements read")


def index_select(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """index_select(self, dim, index) and embedding(weight, indices): whole rows."""
    source = tensor(arguments, 0)
    index = next((each for each in arguments[1:] if isinstance(each, Tensor)), None)
    if source is None or index is None or not source.shape:
        return None
    dimension = int(number(arguments, 1) or 0) if not isinstance(arguments[1], Tensor) else 0
    if not -len(source.shape) <= dimension < len(source.shape) or not source.shape[dimension]:
        return None
    row_bytes = source.dense_bytes / source.shape[dimension]
    low, high = min(index.elements, 1) * row_bytes, min(index.elements, source.shape[dimension]) * row_bytes
    rest = index.bytes + index.elements * row_bytes
    return moved(low + rest, high + rest, access="gather", basis="ids read, rows written; one row to a row an id read")


def put(arguments: Sequence[Argument], facts: Facts, *, index: int, source: int, accumulates: bool) -> Work | None:
    """Values read and written by index; where they are added, the touched places are read too."""
    target, places, values = (tensor(arguments, place) for place in (0, index, source))
    if target is None or values is None:
        return None
    count = max(values.elements, places.elements if places is not None and index != source else 0)
    low, high = min(count, 1) * target.item_bytes, min(count * target.item_bytes, target.bytes)
    rest = values.bytes + (places.bytes if places is not None else 0)
    times = 2 if accumulates else 1
    return moved(
        rest + (low if accumulates else high if places is not None else low) * times,
        rest + high * times,
        access="gather",
        basis="values and indices read, values written" + (" where others stand" if accumulates else ""),
    )


def dense_gradient(arguments: Sequence[Argument], facts: Facts, *, index: int, rows: int) -> Work | None:
    """Gradient of an embedding's table: the rows' gradient read and added up, each touched row written once; zeroing
    the table is an op call of its own."""
    gradient, ids, count = tensor(arguments, 0), tensor(arguments, index), number(arguments, rows)
    if gradient is None or ids is None or count is None or not gradient.shape:
        return None
    row_bytes = gradient.shape[-1] * gradient.item_bytes
    read = gradient.bytes + ids.bytes
    low, high = min(ids.elements, 1) * row_bytes, min(ids.elements, count) * row_bytes
    return moved(read + low, read + high, access="gather", basis="gradient and ids read, touched rows written")


def histogram(arguments: Sequence[Argument], facts: Facts) -> Work | None:
    """histc, bincount: values read; few numbers written."""
    source = tensor(arguments, 0)
    return None if source is None else moved(source.bytes, access="reduce", basis="values read once")


RULES: dict[str, Rule] = {
    "aten::_embedding_bag": embedding_bag,
    "aten::_embedding_bag_forward_only": embedding_bag,
    "fbgemm::split_embedding_codegen_forward_unweighted_cuda": table_batched,
    "fbgemm::split_embedding_codegen_forward_weighted_cuda": table_batched,
    "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda": partial(
        table_batched_backward, spans=6, ids=11, offsets=12
    ),
    "fbgemm::split_embedding_backward_codegen_sgd_unweighted_exact_cuda": partial(
        table_batched_backward, spans=6, ids=11, offsets=12
    ),
    "fbgemm::bounds_check_indices": checked_ids,
    "aten::gather": gather,
    "aten::index_select": index_select,
    "aten::embedding": index_select,
    "aten::index_copy_": partial(put, index=2, source=3, accumulates=False),
    "aten::index_add_": partial(put, index=2, source=3, accumulates=True),
    "aten::index_add": partial(put, index=2, source=3, accumulates=True),
    "aten::scatter_": partial(put, index=2, source=3, accumulates=False),
    "aten::scatter_add_": partial(put, index=2, source=3, accumulates=True),
    "aten::_index_put_impl_": partial(put, index=1, source=2, accumulates=False),
    "aten::embedding_dense_backward": partial(dense_gradient, index=1, rows=2),
    "aten::_embedding_bag_dense_backward": partial(dense_gradient, index=1, rows=5),
    "aten::histc": histogram,
    "aten::bincount": histogram,
}
