"""A folder of rank files in, one Trace a rank out."""

from __future__ import annotations

from pathlib import Path

from addrfrac.errors import AddrfracError
from addrfrac.records import Trace

SUFFIXES = (".json", ".json.gz", ".sqlite")
NOT_TRACES = frozenset({"run.json", "capture.json", "capture.json.gz", "summary.json"})
"""What addrfrac's own recorder writes beside a trace."""


def rank_files(folder: Path) -> list[Path]:
    """The trace files of a folder and of folders in it called rank<r>, by name."""
    nested = [path for inner in folder.glob("rank*") if inner.is_dir() for path in inner.iterdir()]
    return sorted(
        path
        for path in (*folder.iterdir(), *nested)
        if path.is_file()
        and path.name.endswith(SUFFIXES)
        and path.name not in NOT_TRACES
        and not path.name.startswith(".")
    )


def in_rank_order(folder: Path, traces: list[Trace]) -> tuple[Trace, ...]:
    """Traces sorted by rank; one line of error where a file names no rank or two name the same."""
    if len(traces) == 1:
        return (traces[0],)
    unknown = [trace.source.path for trace in traces if trace.source.rank is None]
    if unknown:
        raise AddrfracError(
            f"{unknown[0]} in {folder.name} names no rank (distributedInfo); analyze it as a single file instead"
        )
    by_rank: dict[int, Trace] = {}
    for trace in traces:
        rank = trace.source.rank
        assert rank is not None
        if rank in by_rank:
            raise AddrfracError(
                f"{by_rank[rank].source.path} and {trace.source.path} in {folder.name} are both rank {rank}; keep one"
            )
        by_rank[rank] = trace
    return tuple(by_rank[rank] for rank in sorted(by_rank))
