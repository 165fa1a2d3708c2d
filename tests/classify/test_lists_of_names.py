"""Plain lists of kernel names: read, labelled in order, written."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from addrfrac.classify import POLICIES, classify_rows, read_names, write_names
from addrfrac.classify.names import OUTPUT_COLUMNS, NamedKernel, launching_ops, parse_names
from addrfrac.errors import AddrfracError


def test_one_name_a_line_keeps_its_order_and_its_commas() -> None:
    text = "nvjet_tst_64x8\n\nvoid k<int, float>(int, float)\nMemset (Device)\n"
    assert [row.name for row in parse_names(text)] == [
        "nvjet_tst_64x8",
        "void k<int, float>(int, float)",
        "Memset (Device)",
    ]


def test_a_table_with_a_header_gives_names_and_launching_ops() -> None:
    text = "count\tkernel_name\tlaunching_op\n3\tvoid k<1, 2>(int)\taten::mm*297; aten::bmm*144\n1\tnvjet_x\t\n"
    rows = parse_names(text)
    assert rows[0] == NamedKernel(name="void k<1, 2>(int)", launching_op="aten::mm*297; aten::bmm*144")
    assert rows[1].launching_op == ""


def test_quoted_cells_of_csv_and_tsv_are_unquoted() -> None:
    assert parse_names('kernel_name,launching_op\n"void k<1, 2>(int)",aten::mm\n')[0].name == "void k<1, 2>(int)"
    assert parse_names('kernel_name\tlaunching_op\n"void k<1, 2>(int)"\taten::mm\n')[0].name == "void k<1, 2>(int)"


def test_the_tables_of_nsys_and_ncu_are_read_by_their_own_columns() -> None:
    nsys = '"Time (%)","Total Time (ns)","Name"\n61.5,1000,"void k<1, 2>(int)"\n'
    ncu = '"ID","Process ID","Kernel Name"\n0,1,"nvjet_x"\n'
    assert parse_names(nsys) == [NamedKernel(name="void k<1, 2>(int)")]
    assert parse_names(ncu) == [NamedKernel(name="nvjet_x")]
    assert parse_names("Name\n") == [NamedKernel(name="Name")]


def test_a_launching_op_alone_tells_a_backward_phase_and_no_forward_one() -> None:
    rows = [
        NamedKernel(name="ampere_sgemm_128x64_tn", launching_op="aten::mm"),
        NamedKernel(name="ampere_sgemm_128x64_tn", launching_op="aten::convolution_backward"),
        NamedKernel(name="void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(int)", launching_op="aten::mm"),
    ]
    assert [row["phase"] for row in classify_rows(rows)] == ["unknown", "backward", "backward"]


@pytest.mark.parametrize(
    ("cell", "ops"),
    [
        ("", []),
        ("aten::mm", [("aten::mm", 1)]),
        ("aten::mm*297; other*144", [("aten::mm", 297), ("other", 144)]),
        ("Torch-Compiled Region: 0/0*57", [("Torch-Compiled Region: 0/0", 57)]),
    ],
)
def test_a_launching_op_cell_is_read_with_its_counts(cell: str, ops: list[tuple[str, int]]) -> None:
    assert launching_ops(cell) == ops


def test_the_class_of_most_launches_wins() -> None:
    rows = [
        NamedKernel(name="volta_sgemm_64x64_nt", launching_op="aten::cudnn_convolution*240; aten::mm*10"),
        NamedKernel(name="volta_sgemm_64x64_nt", launching_op="aten::mm*300; aten::cudnn_convolution*240; aten::bmm*1"),
        NamedKernel(name="volta_sgemm_64x64_nt"),
    ]
    assert [row["op"] for row in classify_rows(rows)] == ["conv", "gemm", "gemm"]


def test_rows_come_back_in_the_given_order_with_both_rules_and_the_bound() -> None:
    rows = classify_rows(
        [NamedKernel(name="Memset (Device)"), NamedKernel(name="nvjet_x"), NamedKernel(name="nvjet_x")]
    )
    assert [row["kernel_name"] for row in rows] == ["Memset (Device)", "nvjet_x", "nvjet_x"]
    assert tuple(rows[1]) == OUTPUT_COLUMNS
    assert (rows[1]["op"], rows[1]["provider"], rows[1]["bound"]) == ("gemm", "cublas", "library")
    assert (rows[1]["op_rule"], rows[1]["provider_rule"]) == ("nvjet", "cublas")


def test_the_bound_is_that_of_the_asked_policy() -> None:
    batch_norm = NamedKernel(name="void cudnn::bn_bw_1C11_kernel_new<float, float, 512>(int)")
    assert classify_rows([batch_norm], policy=POLICIES["paper"])[0]["bound"] == "replaceable"
    assert classify_rows([batch_norm], policy=POLICIES["vendor"])[0]["bound"] == "library"


def test_json_is_a_list_and_the_tables_hold_the_same_rows() -> None:
    rows = classify_rows([NamedKernel(name="void k<1, 2>(int)"), NamedKernel(name="nvjet_x", launching_op="aten::mm")])
    assert json.loads(write_names(rows, "json")) == rows
    for output_format, delimiter in (("tsv", "\t"), ("csv", ",")):
        text = write_names(rows, output_format)
        assert list(csv.DictReader(io.StringIO(text), delimiter=delimiter)) == rows


def test_a_file_is_read_and_a_missing_or_empty_one_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("nvjet_x\n")
    assert read_names(str(file)) == [NamedKernel(name="nvjet_x")]
    file.write_text("\n")
    with pytest.raises(AddrfracError, match="no kernel names"):
        read_names(str(file))
    with pytest.raises(AddrfracError, match="cannot read"):
        read_names(str(tmp_path / "absent.txt"))


def test_standard_input_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("nvjet_x\n"))
    assert read_names("-") == [NamedKernel(name="nvjet_x")]


def test_an_unknown_format_is_one_line() -> None:
    with pytest.raises(AddrfracError, match="xml"):
        write_names([], "xml")
