"""torchrec's DLRM and DLRM-DCNv2 over 26 tables, with nn.EmbeddingBag or FBGEMM lookups; new ids in every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Workload
from addrfrac.workloads.step import SEED, Step, autocast, generator, training, weight_dtype
from addrfrac.workloads.weights import load_checkpoint, randomise

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration

DENSE_FEATURES = 13
MLPERF_POOLING = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
"""Ids a bag of each feature in MLPerf's multi-hot Criteo (mlcommons/training, recommendation_v2)."""
ROWS_ON_GPU = 750_000
"""26 tables of it with 128 fp32 columns are 9.98 GB: two hundred times the L2 of an H200."""
ROWS_ON_CPU = 10_000
POOL_BYTES = 2_000_000_000
MOST_BATCHES = 16
"""Batches of ids made up front and taken in turn; the rows of so many do not survive in any cache."""
ZIPF_EXPONENT = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What tells the two models apart."""

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    cross_layers: int
    cross_rank: int
    dimension: int
    adagrad: bool
    """MLPerf's DCNv2 trains with Adagrad, DLRM with SGD."""


DLRM_SHAPE = _Shape(
    bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1), cross_layers=0, cross_rank=0, dimension=128, adagrad=False
)
DCNV2_SHAPE = _Shape(
    bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1), cross_layers=3, cross_rank=512, dimension=128, adagrad=True
)


def _tiny(shape: _Shape) -> _Shape:
    return _Shape(
        bottom=(16, 8),
        top=(16, 1),
        cross_layers=shape.cross_layers,
        cross_rank=4,
        dimension=8,
        adagrad=shape.adagrad,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batches:
    """Inputs of several steps on the device, all of one shape."""

    dense: list[torch.Tensor]
    ids: list[torch.Tensor]
    labels: list[torch.Tensor]
    lengths: torch.Tensor
    offsets: torch.Tensor
    pooling: tuple[int, ...]


def _build(shape: _Shape, configuration: Configuration, device: torch.device, *, tiny: bool = False) -> Step:
    """Infer: the logits of one batch. Train: binary cross entropy, backward, dense and embedding optimizers.

    Tables stay fp32 whatever the dtype, as recommenders keep them; the dense part and the pooled values take it.
    """
    shape = _tiny(shape) if tiny else shape
    rows = configuration.rows or (ROWS_ON_GPU if device.type == "cuda" else ROWS_ON_CPU)
    model = _model(shape, rows, configuration, device)
    batches = _batches(rows, configuration, device)
    step = _step(model, shape, batches, configuration, device)
    facts = _facts(shape, rows, batches, configuration)
    parameters = sum(parameter.numel() for parameter in _dense_parameters(model))
    return replace(
        step,
        parameters=parameters + rows * shape.dimension * len(batches.pooling),
        extra=facts,
        notes=(*step.notes, *_notes(rows, facts, configuration, device)),
    )


def _dense_parameters(model: Any) -> list[Any]:
    """All but what the tables hold, where FBGEMM counts its optimizer's state as parameters too."""
    return [parameter for name, parameter in model.named_parameters() if not name.startswith("sparse_arch")]


def _model(shape: _Shape, rows: int, configuration: Configuration, device: torch.device) -> Any:
    import torch

    embedding_tables = _torchrec()
    from torchrec.models.dlrm import DLRM, DLRM_DCN

    torch.manual_seed(SEED)
    dtype = weight_dtype(configuration)
    tables = embedding_tables.configurations(rows, shape.dimension)
    if configuration.embedding == "fbgemm":
        collection = embedding_tables.TableBatched(tables, dtype, device, rowwise_adagrad=shape.adagrad)
    else:
        sparse = configuration.mode == "train"
        collection = embedding_tables.Bags(tables, dtype, device, sparse_gradients=sparse)
    arguments = {
        "embedding_bag_collection": collection,
        "dense_in_features": DENSE_FEATURES,
        "dense_arch_layer_sizes": list(shape.bottom),
        "over_arch_layer_sizes": list(shape.top),
        "dense_device": device,
    }
    torch.manual_seed(SEED)  # the dense part is the same whichever operator holds the tables
    with device:
        if shape.cross_layers:
            model = DLRM_DCN(**arguments, dcn_num_layers=shape.cross_layers, dcn_low_rank_dim=shape.cross_rank)
        else:
            model = DLRM(**arguments)
    dense = [child for name, child in model.named_children() if name != "sparse_arch"]
    if configuration.weights == "random":
        for child in dense:  # tables are random already, and FBGEMM keeps its optimizer's state among them
            randomise(child, device)
    else:
        load_checkpoint(model, Path(configuration.weights))
    for child in dense:
        child.to(dtype=dtype)
    return model


def _torchrec() -> Any:
    """The module that needs torchrec. Raises AddrfracError where its native part does not load."""
    try:
        from addrfrac.workloads import embedding_tables
    except OSError as error:
        raise AddrfracError(
            f"FBGEMM does not load ({str(error).splitlines()[0]}); install a build for this torch and GPU, "
            "as pip install 'addrfrac[dlrm]' does"
        ) from error
    return embedding_tables


# --- inputs -------------------------------------------------------------------------------------------------


def pooling_sizes(pooling: str | None) -> tuple[int, ...]:
    """Ids a bag for each of the 26 features: the same number for all, or MLPerf's."""
    return MLPERF_POOLING if pooling == "mlperf" else (int(pooling or 1),) * len(MLPERF_POOLING)


def _batches(rows: int, configuration: Configuration, device: torch.device) -> _Batches:
    import torch

    pooling, batch = pooling_sizes(configuration.pooling), configuration.batch
    source = generator(device, 1)
    draw = _zipf(rows, source, device) if configuration.indices == "zipf" else _uniform(rows, source, device)
    count = max(2, min(MOST_BATCHES, POOL_BYTES // (8 * batch * sum(pooling))))
    lengths = torch.cat([torch.full((batch,), hot, dtype=torch.int64, device=device) for hot in pooling])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), lengths.cumsum(0)])
    dtype = weight_dtype(configuration)
    return _Batches(
        dense=[torch.rand(batch, DENSE_FEATURES, device=device, generator=source).to(dtype) for _ in range(count)],
        ids=[torch.cat([draw(batch * hot) for hot in pooling]) for _ in range(count)],
        labels=[torch.randint(2, (batch,), device=device, generator=source).to(torch.float32) for _ in range(count)],
        lengths=lengths,
        offsets=offsets,
        pooling=pooling,
    )


def _uniform(rows: int, source: torch.Generator, device: torch.device) -> Callable[[int], torch.Tensor]:
    import torch

    return lambda count: torch.randint(rows, (count,), device=device, generator=source)


def _zipf(rows: int, source: torch.Generator, device: torch.device) -> Callable[[int], torch.Tensor]:
    """Ids whose popularity falls as 1 / rank^1.05, the ranks strewn over the table."""
    import torch

    weights = torch.arange(1, rows + 1, dtype=torch.float64, device=device).pow(-ZIPF_EXPONENT)
    cumulative = weights.cumsum(0) / weights.sum()
    places = torch.randperm(rows, device=device, generator=source)

    def draw(count: int) -> torch.Tensor:
        chance = torch.rand(count, dtype=torch.float64, device=device, generator=source)
        return places[torch.searchsorted(cumulative, chance).clamp_(max=rows - 1)]

    return draw


# --- steps --------------------------------------------------------------------------------------------------


def _step(model: Any, shape: _Shape, batches: _Batches, configuration: Configuration, device: torch.device) -> Step:
    """A step on the next batch; under a graph the next batch is first copied to where the graph reads."""
    import torch

    from addrfrac.workloads.embedding_tables import jagged

    def features(ids: torch.Tensor) -> Any:
        return jagged(ids, batches.lengths, batches.offsets, configuration.batch, batches.pooling)

    turn = cycle(zip(batches.dense, batches.ids, batches.labels, strict=True))
    held = tuple(tensor.clone() for tensor in next(turn))
    current = list(held)

    def next_batch() -> None:
        current[:] = next(turn)

    def copy_next_batch() -> None:
        for place, tensor in zip(held, next(turn), strict=True):
            place.copy_(tensor)

    def forward() -> torch.Tensor:
        logits: torch.Tensor = model(dense_features=current[0], sparse_features=features(current[1]))
        return logits

    if configuration.mode == "infer":
        model.eval()

        def work() -> object:
            with torch.no_grad(), autocast(configuration, device):
                return forward()

        base = Step(run=work, samples=configuration.batch, parameters=0, model=model)
    else:
        base = _training(model, shape, forward, lambda: current[2], configuration, device)

    def run() -> object:
        next_batch()
        return base.run()

    def graph_run() -> object:
        current[:] = held
        return base.run()

    return Step(
        run=run,
        samples=configuration.batch,
        parameters=0,
        model=model,
        optimizer=base.optimizer,
        capturable=base.capturable,
        why_not=base.why_not,
        graph_run=graph_run,
        advance=copy_next_batch,
    )


def _training(
    model: Any,
    shape: _Shape,
    forward: Callable[[], torch.Tensor],
    labels: Callable[[], torch.Tensor],
    configuration: Configuration,
    device: torch.device,
) -> Step:
    import torch

    fused = configuration.embedding == "fbgemm"
    dense = _dense_parameters(model)
    tables = [] if fused else list(model.sparse_arch.parameters())
    make = torch.optim.Adagrad if shape.adagrad else torch.optim.SGD
    optimizer = make([{"params": dense}, {"params": tables}] if tables else dense, lr=0.01)

    def loss() -> torch.Tensor:
        logits = forward().squeeze(-1).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels())

    rest: dict[str, Any] = {}
    if not fused:
        rest = {"capturable": False, "why_not": "the sizes of sparse gradients are read on the host in each step"}
    elif shape.adagrad:
        rest = {"capturable": False, "why_not": "torch's Adagrad keeps its step count on the host"}
    return training(model, loss, optimizer, configuration, device, samples=configuration.batch, **rest)


# --- facts --------------------------------------------------------------------------------------------------


def _facts(shape: _Shape, rows: int, batches: _Batches, configuration: Configuration) -> dict[str, Any]:
    """Sizes of the tables and of what one step reads of them; rows counted once where a batch repeats them."""
    import torch

    row_bytes = shape.dimension * 4
    per_feature = [configuration.batch * hot for hot in batches.pooling]
    parts: Any = torch.split(batches.ids[0], per_feature)
    distinct = sum(len(ids.unique()) for ids in parts)
    return {
        "table_rows": rows,
        "table_bytes": rows * row_bytes * len(batches.pooling),
        "table_dtype": "fp32",
        "pooling": list(batches.pooling),
        "ids_per_step": sum(per_feature),
        "distinct_rows_per_step": distinct,
        "row_bytes_per_step": sum(per_feature) * row_bytes,
        "distinct_row_bytes_per_step": distinct * row_bytes,
        "batches_in_rotation": len(batches.ids),
        "zipf_exponent": ZIPF_EXPONENT if configuration.indices == "zipf" else None,
    }


def _notes(rows: int, facts: dict[str, Any], configuration: Configuration, device: torch.device) -> tuple[str, ...]:
    import torch

    notes = []
    if configuration.dtype in ("bf16", "fp16"):
        notes.append(f"embedding tables are fp32, the dense part and the pooled values are {configuration.dtype}")
    if device.type == "cpu" and configuration.rows is None:
        notes.append(f"tables have {rows} rows on the CPU, {ROWS_ON_GPU} on a GPU")
    if device.type == "cuda":
        l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        if facts["table_bytes"] < 10 * l2_bytes:
            notes.append("the tables are under ten times the L2 cache, so lookups are faster than in a real model")
    return tuple(notes)


def _workload(name: str, about: str, shape: _Shape, **defaults: Any) -> Workload:
    return Workload(
        name=name,
        about=about,
        build=partial(_build, shape),
        defaults={"batch": 8192, "embedding": "bag", "indices": "uniform"} | defaults,
        modes=("infer", "train"),
        options=frozenset({"embedding", "indices", "pooling", "rows"}),
        extra="dlrm",
    )


DLRM = _workload(
    "dlrm", "DLRM (torchrec), 26 Criteo-like tables of 128 columns; a step is one batch", DLRM_SHAPE, pooling="1"
)
DLRM_DCNV2 = _workload(
    "dlrm-dcnv2",
    "DLRM-DCNv2 as in MLPerf (torchrec): multi-hot ids, low-rank cross network 3 x 512; a step is one batch",
    DCNV2_SHAPE,
    pooling="mlperf",
)
WORKLOAD = DLRM
