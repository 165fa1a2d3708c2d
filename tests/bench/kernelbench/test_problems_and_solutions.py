"""Checkouts, folders and JSON files become problems and solutions; what is none is told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from addrfrac.bench.kernelbench.problems import choose, find_problems
from addrfrac.bench.kernelbench.records import Problem
from addrfrac.bench.kernelbench.solutions import find_solutions, kind_of
from addrfrac.errors import AddrfracError


def write(folder: Path, *places: str) -> Path:
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {place}\n")
    return folder


def many(*counts: int) -> list[Problem]:
    """So many problems of level 1, 2, ..."""
    return [
        Problem(level=level, number=number, title="", text="")
        for level, count in enumerate(counts, 1)
        for number in range(1, count + 1)
    ]


def test_a_checkout_is_read_by_level_and_number(checkout: Path) -> None:
    assert [(one.place, one.title) for one in find_problems(checkout)] == [((1, 1), "swish"), ((2, 7), "linear_scale")]
    assert [one.place for one in find_problems(checkout / "KernelBench", (2,))] == [(2, 7)]
    assert [one.place for one in find_problems(checkout / "KernelBench" / "level2")] == [(2, 7)]


def test_objects_one_after_the_other_lines_and_lists_are_read_alike(rows: Path, tmp_path: Path) -> None:
    found = find_problems(rows)
    assert [(one.place, one.title) for one in found] == [
        ((1, 1), "Swish of a matrix."),
        ((2, 7), "A linear layer and a scale."),
    ]
    objects = [{"level": one.level, "problem_id": one.number, "ref_code": one.text} for one in found]
    (tmp_path / "list.json").write_text(json.dumps(objects))
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, objects)))
    assert find_problems(tmp_path / "list.json") == find_problems(tmp_path / "lines.jsonl") == found


def test_a_row_without_a_kernel_is_no_solution_and_what_was_published_is_kept(rows: Path) -> None:
    (one,) = find_solutions(rows, find_problems(rows))
    assert (one.level, one.number, one.name, one.sample, one.published_speedup) == (1, 1, "card", 0, 1.5)


def test_files_are_told_apart_by_their_names(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "model",
        "level1/3_x.py",
        "level2/04/sample_2.py",
        "level2/04/sample_0.py",
        "level_3_problem_5_sample_1_kernel.py",
        "level1/_shared.py",
        "level1/notes.py",
    )
    found = find_solutions(folder, many(3, 4, 5))
    assert [(one.level, one.number, one.sample) for one in found] == [(1, 3, 0), (2, 4, 0), (2, 4, 2), (3, 5, 1)]
    assert {one.name for one in found} == {"model"}


def test_without_a_level_a_number_is_of_the_only_level_chosen(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "2/sample_0.py", "2/sample_1.py")
    assert [(one.level, one.number) for one in find_solutions(folder, many(0, 2))] == [(2, 2), (2, 2)]
    with pytest.raises(AddrfracError, match="no solution in model"):
        find_solutions(folder, many(2, 2))


def test_samples_without_a_number_get_the_next_that_is_free(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "1/a.py", "1/b.py", "1/sample_0.py")
    assert [(one.sample, Path(one.path).name) for one in find_solutions(folder, many(1))] == [
        (0, "sample_0.py"),
        (1, "a.py"),
        (2, "b.py"),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import triton\n\n@triton.jit\ndef kernel(): ...\n", "triton"),
        ('source = """__global__ void kernel() {}"""\n', "cuda"),
        ("# faster than triton\nclass ModelNew: ...\n", "pytorch"),
    ],
)
def test_a_solution_is_of_the_kind_that_it_brings(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_a_limit_is_spread_over_levels_in_proportion_and_evenly_over_numbers() -> None:
    chosen, said = choose(many(100, 100, 50), (), 10)
    assert [one.place for one in chosen if one.level == 3] == [(3, 13), (3, 38)]
    assert [sum(one.level == level for one in chosen) for level in (1, 2, 3)] == [4, 4, 2]
    assert "4 of 100 of level 1, 4 of 100 of level 2, 2 of 50 of level 3" in said
    assert chosen == choose(many(100, 100, 50), (), 10)[0]


def test_a_limit_never_takes_more_or_fewer_than_it_says() -> None:
    problems = many(7, 5, 3)
    for limit in range(1, 16):
        chosen, _ = choose(problems, (), limit)
        assert len(chosen) == len({one.place for one in chosen}) == limit


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JSON after row 0"),
        ("", "is empty"),
        ("[1]", "row 1 is no object"),
        ('{"level": 1, "number": 2}', "row 1 has no reference"),
        ('{"ref_code": "x = 1", "level": 1}', "row 1 names no problem"),
    ],
)
def test_a_file_that_holds_no_problems_is_told_by_row(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "rows.json").write_text(content)
    with pytest.raises(AddrfracError, match=said):
        find_problems(tmp_path / "rows.json")


def test_a_number_that_occurs_twice_is_told(checkout: Path) -> None:
    (checkout / "KernelBench/level1/1_again.py").write_text("x = 1\n")
    with pytest.raises(AddrfracError, match="level 1 problem 1 twice"):
        find_problems(checkout)
