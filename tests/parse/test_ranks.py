from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from addrfrac.errors import AddrfracError
from addrfrac.parse import read_ranks


@pytest.fixture
def write_rank(kineto: Any, tmp_path: Path) -> Callable[[str, int | None], Path]:
    """Writes a file of a rank into the folder."""
    kineto.launched("k", 1, 20, 5, 1)

    def write(name: str, rank: int | None) -> Path:
        kineto.top["distributedInfo"] = {} if rank is None else {"rank": rank, "world_size": 3}
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return kineto.write(tmp_path / name)

    return write


def test_ranks_come_in_their_order_whatever_the_files_are_called(write_rank: Any, tmp_path: Path) -> None:
    write_rank("a.json", 2)
    write_rank("b.json.gz", 0)
    write_rank("c.json", 1)
    assert [trace.source.rank for trace in read_ranks(tmp_path)] == [0, 1, 2]


def test_ranks_may_lie_in_folders_of_their_own_beside_our_own_files(write_rank: Any, tmp_path: Path) -> None:
    write_rank("rank0/trace.json.gz", 0)
    write_rank("rank1/trace.json.gz", 1)
    for name in ("rank0/capture.json", "summary.json", "run.json"):
        (tmp_path / name).write_text("{}")
    assert [trace.source.rank for trace in read_ranks(tmp_path)] == [0, 1]


def test_a_folder_of_one_trace_needs_no_rank(write_rank: Any, tmp_path: Path) -> None:
    write_rank("trace.json", None)
    (trace,) = read_ranks(tmp_path)
    assert trace.source.rank is None


def test_two_files_of_one_rank_are_refused(write_rank: Any, tmp_path: Path) -> None:
    write_rank("a.json", 1)
    write_rank("b.json", 1)
    with pytest.raises(AddrfracError, match=r"a\.json and b\.json .* both rank 1"):
        read_ranks(tmp_path)


def test_a_file_without_rank_among_others_is_named(write_rank: Any, tmp_path: Path) -> None:
    write_rank("a.json", 1)
    write_rank("b.json", None)
    with pytest.raises(AddrfracError, match=r"b\.json .* no rank"):
        read_ranks(tmp_path)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AddrfracError, match="holds no trace"):
        read_ranks(tmp_path)
    with pytest.raises(AddrfracError, match="no folder"):
        read_ranks(tmp_path / "nothing")
