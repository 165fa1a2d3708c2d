"""Other shapes of jagged inputs keep offsets and the rows that they cut together."""

import pytest
import torch

from addrfrac.verification.exam import Unverifiable
from addrfrac.verification.inputs import redraw_integers, zero_pattern
from addrfrac.verification.precision import truth_mode
from addrfrac.verification.reference import Arguments
from addrfrac.verification.shapes import begins_of_rows, is_offsets, resized
from addrfrac.verification.ties import selection_of


def _arguments(lengths: list[int], rows: int = 50) -> Arguments:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    total = int(offsets[-1])
    return Arguments(tree=None, tensors=[torch.randint(rows, (total,)), offsets, torch.randn(total, 3)])


@pytest.mark.parametrize("new", [1, 2, 7, 19, 21, 40, 81])
@pytest.mark.parametrize("lengths", [[5, 5, 5, 5], [1, 9, 0, 10]])
def test_more_or_fewer_ids_end_where_the_offsets_end(lengths, new):
    made = resized(_arguments(lengths), 20, new, torch.Generator().manual_seed(1)).tensors
    assert int(made[1][-1]) == len(made[0]) == len(made[2])
    assert int(made[1][0]) == 0
    assert bool((made[1].diff() >= 0).all())


@pytest.mark.parametrize("new", [2, 4, 6, 11, 21])
def test_more_or_fewer_bags_cut_the_same_rows(new):
    made = resized(_arguments([1, 9, 0, 10]), 5, new, torch.Generator().manual_seed(1)).tensors
    assert len(made[1]) == new
    assert int(made[1][-1]) == len(made[0]) == len(made[2])
    assert int(made[1].diff().max()) <= 10, "longer than any history of the problem's own"


def test_offsets_of_no_bag_are_refused():
    with pytest.raises(Unverifiable):
        resized(_arguments([5, 5, 5, 5]), 5, 1, torch.Generator().manual_seed(1))


def test_ids_are_no_offsets():
    tensors = _arguments([5, 5, 5, 5]).tensors
    assert not is_offsets(0, tensors)
    assert is_offsets(1, tensors)


def test_lengths_stay_within_a_shorter_history():
    arguments = Arguments(tree=None, tensors=[torch.randn(6, 9, 2), torch.tensor([9, 1, 3, 9, 4, 2])])
    made = resized(arguments, 9, 4, torch.Generator().manual_seed(1)).tensors
    assert made[0].shape == (6, 4, 2)
    assert int(made[1].max()) <= 4


def test_bits_read_as_halves_keep_their_width_where_all_else_is_fp64():
    head = torch.tensor([[1.5, -0.25]], dtype=torch.float16).view(torch.uint8)
    with truth_mode(torch.float32):
        read = head.view(torch.float16).float()
    assert read.dtype == torch.float64
    assert read.tolist() == [[1.5, -0.25]]


def test_draws_of_other_lengths_have_no_pattern_of_zeros_in_common():
    assert zero_pattern([torch.zeros(17, 4), torch.zeros(14, 4)]) is None
    half = torch.cat([torch.zeros(8, 4), torch.ones(8, 4)])
    assert zero_pattern([half, half]) is not None


@pytest.mark.parametrize("seed", range(8))
def test_redrawn_offsets_of_uneven_bags_have_none_longer_than_the_longest(seed):
    offsets = torch.tensor([0, 3, 0, 9, 9, 2, 4]).cumsum(0)
    made = redraw_integers([offsets], torch.Generator().manual_seed(seed), "ragged")[0]
    assert int(made[0]) == 0
    assert int(made[-1]) == int(offsets[-1])
    assert 0 <= int(made.diff().min()) <= int(made.diff().max()) <= 9


def test_counts_that_happen_to_point_at_extremes_select_nothing():
    source = torch.tensor([5, 1, 9, 9, 2])
    assert selection_of(torch.tensor([2, 2]), [source]) is None
    assert selection_of(torch.tensor([2, 3]), [source]) is not None


def tables_bags() -> Arguments:
    """Flat ids of three tables, and each table's offsets in a row of its own."""
    offsets = torch.tensor([[0, 2, 5, 7], [0, 0, 4, 4], [0, 3, 3, 8]])
    return Arguments(tree=None, tensors=[torch.randint(40, (19,)), offsets, torch.randn(40, 6)])


def test_rows_of_offsets_say_where_each_tables_ids_begin():
    tensors = tables_bags().tensors
    assert begins_of_rows(1, tensors) == [0, 7, 11, 19]
    assert begins_of_rows(0, tensors) == []
    assert begins_of_rows(1, [tensors[0][:-1], *tensors[1:]]) == []


def test_fewer_ids_than_rows_of_offsets_cut_are_refused():
    """A reference on a GPU reads what lies behind them and answers."""
    with pytest.raises(Unverifiable):
        resized(tables_bags(), 19, 18, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("new", [3, 5, 13])
def test_rows_of_offsets_still_rise_to_the_same_ends_with_other_bags(new):
    offsets = resized(tables_bags(), 4, new, torch.Generator().manual_seed(0)).tensors[1]
    assert offsets.shape == (3, new)
    assert bool((offsets.diff(dim=1) >= 0).all())
    assert offsets[:, 0].tolist() == [0, 0, 0]
    assert offsets[:, -1].tolist() == [7, 4, 8]
