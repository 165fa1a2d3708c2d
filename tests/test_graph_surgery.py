"""Bookkeeping on recorded graphs: what is deleted, and that the order of the rest is just what it was."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addrfrac.graph_surgery import KERNEL, MEMSET, Edge, Graph, Node, Surgery, descendants, reduced, remove
from addrfrac.graph_surgery import topological_order as order_of


def graph(count: int, *pairs: tuple[int, int], programmatic: frozenset[tuple[int, int]] = frozenset()) -> Graph:
    nodes = tuple(Node(kind=KERNEL, names=(f"k{index}",)) for index in range(count))
    edges = tuple(Edge(before=a, after=b, full=(a, b) not in programmatic) for a, b in pairs)
    return Graph(nodes=nodes, edges=edges)


def chain(count: int) -> Graph:
    return graph(count, *((index, index + 1) for index in range(count - 1)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, frozenset[int]]:
    """A graph without circles, listed in any order, some of its edges programmatic, and what to delete of it."""
    count = draw(st.integers(1, 12))
    label = draw(st.permutations(range(count)))
    pairs = draw(st.sets(st.sampled_from(list(combinations(range(count), 2)) or [(0, 0)]), max_size=30))
    pairs = {(label[a], label[b]) for a, b in pairs if a != b}
    early = draw(st.sets(st.sampled_from(sorted(pairs)))) if pairs else set()
    deleted = draw(st.frozensets(st.integers(0, count - 1)))
    return graph(count, *sorted(pairs), programmatic=frozenset(early)), deleted


def reached(count: int, pairs: frozenset[tuple[int, int]] | set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Every (before, after) that edges order, found the slow way."""
    found = set(pairs)
    for middle in range(count):
        found |= {(a, d) for a, b in found if b == middle for c, d in found if c == middle}
    return found


@settings(max_examples=150, deadline=None)
@given(cases())
def test_kept_nodes_are_ordered_exactly_as_before(case: tuple[Graph, frozenset[int]]) -> None:
    whole, deleted = case
    surgery = remove(whole, deleted)
    before = {
        pair
        for pair in reached(len(whole.nodes), {(edge.before, edge.after) for edge in whole.edges})
        if not deleted.intersection(pair)
    }
    assert reached(len(whole.nodes), reduced(whole, surgery)) == before
    assert surgery.deleted == tuple(sorted(deleted))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_no_edge_is_added_twice_or_beside_one_that_is_there(case: tuple[Graph, frozenset[int]]) -> None:
    whole, deleted = case
    surgery = remove(whole, deleted)
    there = {(edge.before, edge.after) for edge in whole.edges}
    assert len(set(surgery.added)) == len(surgery.added)
    assert not there.intersection(surgery.added)
    assert not deleted.intersection(node for pair in (*surgery.added, *surgery.upgraded) for node in pair)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_what_waited_for_all_of_a_kernel_still_does(case: tuple[Graph, frozenset[int]]) -> None:
    """An edge that lets the later kernel begin early orders ends no more than the edges it stands for did."""
    whole, deleted = case
    surgery = remove(whole, deleted)
    full_before = {(edge.before, edge.after) for edge in whole.edges if edge.full}
    full_after = {pair for pair in full_before if not deleted.intersection(pair)}
    full_after.update(surgery.added, surgery.upgraded)
    waited = {pair for pair in reached(len(whole.nodes), full_before) if not deleted.intersection(pair)}
    assert waited <= reached(len(whole.nodes), full_after)


def test_in_a_chain_the_neighbours_of_a_run_of_deleted_nodes_are_joined() -> None:
    assert remove(chain(6), frozenset({2, 3})) == Surgery(deleted=(2, 3), added=((1, 4),), upgraded=())


def test_ends_of_a_chain_leave_nothing_to_join() -> None:
    assert remove(chain(4), frozenset({0, 1, 3})).added == ()


def test_deleting_nothing_changes_nothing() -> None:
    surgery = remove(chain(4), frozenset())
    assert (surgery.deleted, surgery.added) == ((), ())
    assert reduced(chain(4), surgery) == {(0, 1), (1, 2), (2, 3)}


def test_deleting_everything_leaves_no_edge() -> None:
    whole = graph(4, (0, 1), (0, 2), (1, 3), (2, 3))
    assert reduced(whole, remove(whole, frozenset(range(4)))) == frozenset()


def test_a_deleted_join_hands_every_branch_to_every_follower() -> None:
    # Two branches, 0 and 1, joined by 2, from which 3 and 4 fork.
    whole = graph(5, (0, 2), (1, 2), (2, 3), (2, 4))
    assert set(remove(whole, frozenset({2})).added) == {(0, 3), (0, 4), (1, 3), (1, 4)}


def test_a_deleted_branch_leaves_no_edge_that_the_other_branch_implies() -> None:
    # 0 forks into 1 and 2, which join in 3. Without 1 the order 0 before 3 is already there by way of 2.
    whole = graph(4, (0, 1), (0, 2), (1, 3), (2, 3))
    assert remove(whole, frozenset({1})).added == ()


def test_an_early_start_becomes_a_full_wait_where_a_deleted_kernel_made_it_one() -> None:
    whole = graph(3, (0, 1), (1, 2), (0, 2), programmatic=frozenset({(0, 2)}))
    assert remove(whole, frozenset({1})) == Surgery(deleted=(1,), added=(), upgraded=((0, 2),))


def test_early_starts_between_kept_kernels_stay() -> None:
    whole = graph(4, (0, 1), (1, 2), (2, 3), programmatic=frozenset({(0, 1)}))
    assert remove(whole, frozenset({2})) == Surgery(deleted=(2,), added=((1, 3),), upgraded=())


def test_a_chain_has_no_branches_and_a_fork_or_a_second_root_has() -> None:
    assert not chain(5).branches
    assert not chain(1).branches
    assert graph(3, (0, 1), (0, 2)).branches
    assert graph(3, (0, 2), (1, 2)).branches
    assert graph(2).branches


def test_nodes_come_in_the_driver_s_order_where_the_edges_allow_it() -> None:
    assert order_of(graph(4, (3, 0), (0, 1))) == [2, 3, 0, 1]
    with pytest.raises(ValueError, match="circle"):
        order_of(graph(2, (0, 1), (1, 0)))


def test_descendants_are_all_that_comes_after() -> None:
    whole = graph(4, (0, 1), (1, 2))
    assert descendants(whole) == [0b0110, 0b0100, 0, 0]
    assert Node(kind=MEMSET).names == ()
