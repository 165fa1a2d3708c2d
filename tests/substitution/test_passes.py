"""All bags of a recommender as one launch: found, verified, swapped, engaged, restored; and where they must stay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from addrfrac import substitution  # noqa: E402
from addrfrac.substitution import operators, pairs, verdicts  # noqa: E402
from addrfrac.substitution.pool import find_kernels  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

TABLES, BATCH, POOLING, SIZE = 3, 4, 2, 8
ON_CPU = pytest.mark.skipif(torch.cuda.is_available(), reason="runs Triton's interpreter, which stands in for no GPU")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
    reason="Triton decides at import whether it interprets: test_passes_interpreted.py runs this file so",
)


class Recommender(torch.nn.Module):
    """A dense row, pooled tables as torchrec lays them out, and the interaction of all pairs."""

    def __init__(self, mode: str = "sum", sizes: tuple[int, ...] = (SIZE,) * TABLES) -> None:
        super().__init__()
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(20 + number, size, mode=mode, include_last_offset=True)
            for number, size in enumerate(sizes)
        )
        self.dense = torch.nn.Linear(5, SIZE)
        self.top = torch.nn.Linear(SIZE + TABLES * (TABLES + 1) // 2, 1)
        self.register_buffer("pairs", torch.triu_indices(TABLES + 1, TABLES + 1, offset=1))

    def pooled(self, ids: Any, lengths: Any) -> Any:
        lengths = lengths.view(TABLES, -1)
        offsets = torch.cat([lengths.new_zeros(TABLES, 1), lengths.cumsum(-1)], -1).unbind(0)
        parts = torch.split(ids, [BATCH * POOLING] * TABLES)
        pooled = torch.cat([bag(part, at) for bag, part, at in zip(self.bags, parts, offsets, strict=True)], dim=1)
        return torch.cat(torch.split(pooled, [SIZE] * TABLES, dim=1), dim=1)

    def forward(self, x: Any, ids: Any, lengths: Any) -> Any:
        sparse = self.pooled(ids, lengths).reshape(-1, TABLES, SIZE)
        dense = self.dense(x)
        features = torch.cat((dense.unsqueeze(1), sparse), dim=1)
        products = torch.bmm(features, torch.transpose(features, 1, 2))
        return self.top(torch.cat((dense, products[:, self.pairs[0], self.pairs[1]]), dim=1))


@pytest.fixture
def recommender() -> Any:
    torch.manual_seed(0)
    return Recommender()


@pytest.fixture
def inputs() -> tuple[Any, ...]:
    torch.manual_seed(1)
    lengths = torch.tensor([[1, 3, 0, 4]] * TABLES).flatten()
    return torch.randn(BATCH, 5), torch.randint(0, 20, (TABLES * BATCH * POOLING,)), lengths


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier passes everything: what is tested is what happens behind it."""

    def answered(questions: Any, device: str, **rest: Any) -> Any:
        return {each.group: verdicts.Answer(status="passed", reason="", cached=False) for each in questions}

    monkeypatch.setattr(verdicts, "asked", answered)


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[str, str], str]:
    """`planted(old, new)`: the kernel of all bags with a piece of its text exchanged, as a user's file."""

    def write(old: str, new: str) -> str:
        (kernel,) = find_kernels("all_bags")
        assert old in kernel.text
        path = tmp_path / "all_bags.py"
        path.write_text(kernel.text.replace(old, new))
        return str(path)

    return write


def places(model: Any, inputs: Any, kernels: str = "all_bags,pair_interaction") -> Session:
    session = Session(kernels=find_kernels(kernels))
    with installed(model, session):
        model(*inputs)
        session.notes += [f"found {place.site.kernel}" for place in session.places]
    return session


@ON_CPU
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_all_bags_become_one_launch_and_the_model_computes_the_same(inputs, passing, mode):
    torch.manual_seed(0)
    model = Recommender(mode)
    with torch.no_grad():
        expected = model(*inputs)
        with substitution.substituted(model, inputs, "all_bags,pair_interaction") as swap:
            found = swap.model(*inputs)
            decisions = swap.engaged(lambda: swap.model(*inputs))
            left = [str(node.target) for place in swap.session.chosen for node in _running(place).nodes]
    assert {each.site.kernel: each.engaged for each in decisions} == {"all_bags": 1.0, "pair_interaction": 1.0}
    assert not any("embedding_bag" in target or "bmm" in target for target in left)
    torch.testing.assert_close(found, expected)


def _running(place: Any) -> Any:
    from addrfrac.substitution.session import substituted_graph

    return substituted_graph(place.graph.whole, place.graph.chosen).graph


@ON_CPU
def test_tables_that_moved_are_read_where_they_are_now(recommender, inputs, passing):
    with torch.no_grad(), substitution.substituted(recommender, inputs, "all_bags") as swap:
        swap.model(*inputs)
        for bag in recommender.bags:
            bag.weight.data = bag.weight.detach().clone() + 1.0
        torch.testing.assert_close(swap.model(*inputs), recommender.forward(*inputs))
        (decision,) = swap.engaged(lambda: swap.model(*inputs))
    assert decision.engaged == 1.0


@ON_CPU
def test_the_verifier_passes_the_kernel_of_all_bags_at_its_site(recommender, inputs):
    with torch.no_grad(), substitution.substituted(recommender, inputs, "all_bags") as swap:
        assert [(each.verdict, each.substituted) for each in swap.sites] == [("passed", True)]


@ON_CPU
def test_a_bag_kernel_that_drops_the_last_table_is_refused_at_its_site(recommender, inputs, passing, planted):
    wrong = planted(
        "    return out\n\n\ndef _told_apart", "    out[:, -size:] = 0\n    return out\n\n\ndef _told_apart"
    )
    with torch.no_grad(), substitution.substituted(recommender, inputs, wrong) as swap:
        (decision,) = swap.sites
        torch.testing.assert_close(swap.model(*inputs), recommender.forward(*inputs))
    assert not decision.substituted
    assert decision.reason.startswith("refused at this site: captured inputs: its error is")


@ON_CPU
def test_bags_that_never_run_are_told_as_not_engaged(recommender, inputs, passing):
    with torch.no_grad(), substitution.substituted(recommender, inputs, "all_bags") as swap:
        (decision,) = swap.engaged(lambda: None)
    assert decision.reason.startswith("not engaged")


@ON_CPU
def test_a_recommender_is_restored_after_an_error(recommender, inputs, passing):
    numbers: list[int] = []

    def fail_inside() -> None:
        with torch.no_grad(), substitution.substituted(recommender, inputs, "all_bags") as swap:
            numbers.extend(place.number for place in swap.session.chosen)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    (number,) = numbers
    before = operators.calls[number]
    recommender(*inputs)
    assert operators.calls[number] == before


@ON_CPU
@pytest.mark.parametrize(("mode", "sparse"), [("sum", True), ("mean", False), ("mean", True)])
def test_tables_get_the_gradients_that_they_had(inputs, passing, mode, sparse):
    torch.manual_seed(0)
    model = Recommender(mode)
    for bag in model.bags:
        bag.sparse = sparse
    model(*inputs).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with substitution.substituted(model, inputs, "all_bags,pair_interaction") as swap:
        assert [(each.site.trains, each.substituted) for each in swap.sites] == [(True, True)] * 2
        swap.model(*inputs).square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad.is_sparse == gradient.is_sparse
        torch.testing.assert_close(parameter.grad.to_dense(), gradient.to_dense())


@pytest.mark.parametrize(
    ("sizes", "reason"), [((SIZE, SIZE, SIZE + 1), "differ in dtype or columns"), ((SIZE,) * TABLES, "maximum")]
)
def test_bags_that_one_launch_cannot_do_stay(inputs, sizes, reason):
    class Pooled(Recommender):
        def forward(self, x: Any, ids: Any, lengths: Any) -> Any:
            lengths = lengths.view(TABLES, -1)
            offsets = torch.cat([lengths.new_zeros(TABLES, 1), lengths.cumsum(-1)], -1).unbind(0)
            parts = torch.split(ids, [BATCH * POOLING] * TABLES)
            return torch.cat([bag(part, at) for bag, part, at in zip(self.bags, parts, offsets, strict=True)], dim=1)

    model = Pooled("max" if reason == "maximum" else "sum", sizes)
    with torch.no_grad():
        session = places(model, inputs)
    assert not any(note.startswith("found") for note in session.notes)
    assert any(reason in note for note in session.notes)


def test_a_problem_of_huge_tables_is_written_with_low_ones(recommender, inputs, monkeypatch):
    session = Session(kernels=find_kernels("all_bags"))
    with torch.no_grad(), installed(recommender, session):
        recommender(*inputs)
        (place,) = session.places
        graph = pairs.site_graph(place.match)
    offsets = torch.tensor([[0, 1, 4, 4, 8]] * TABLES)
    values = [inputs[1], offsets, *(bag.weight.detach() for bag in recommender.bags)]
    monkeypatch.setattr(pairs, "MOST_TABLE_ELEMENTS", 5 * 3 * SIZE)
    text = pairs.problem_text(graph, values, "a test")
    assert text.count(f"[{(5 * 3 * SIZE) // (3 * SIZE + 5)}, {SIZE}]") == TABLES
    made: dict[str, Any] = {}
    exec(text, made)
    ids, drawn, *tables = made["get_inputs"]()
    assert int(ids.max()) < tables[0].shape[0]
    assert drawn[:, -1].tolist() == [BATCH * POOLING] * TABLES
    assert made["Model"]()(ids, drawn, *tables).shape == (BATCH, TABLES * SIZE)
