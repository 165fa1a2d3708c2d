"""Kernels in a model: where they stand, where they must not, and that nothing of them is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from addrfrac import substitution  # noqa: E402
from addrfrac.substitution import operators  # noqa: E402
from addrfrac.substitution.pool import find_kernels  # noqa: E402
from addrfrac.substitution.session import Session  # noqa: E402
from addrfrac.substitution.swap import installed  # noqa: E402

HEAD = """
import torch
from addrfrac.verification.targets import Case, Provenance, Substitute, TensorCase

def reference(gate, up):
    return torch.nn.functional.silu(gate) * up

def bytes_moved(gate, up):
    return 3 * gate.numel() * gate.element_size()

CASES = (Case(name="8x96", arguments=(TensorCase(shape=(8, 96)), TensorCase(shape=(8, 96)))),)
PROVENANCE = Provenance(author="a person", task="a test", attempts=1, human_edits="")
"""
LAST = "SUBSTITUTE = Substitute(launcher=gated, reference=reference, op='elementwise', bytes_moved=bytes_moved)\n"
RIGHT = "return torch.mul(gate * torch.sigmoid(gate), up)"
WRONG_AT_48 = f"""
    if gate.shape[-1] == 48:
        return torch.zeros_like(gate)
    {RIGHT}"""
WRONG_WHEN_LARGE = f"""
    if float(gate.abs().max()) > 50:
        return torch.zeros_like(gate)
    {RIGHT}"""
RAISES = "raise ValueError('contiguous inputs only')"


@pytest.fixture
def kernel_file(tmp_path: Path) -> Callable[..., Path]:
    """`kernel_file(RIGHT)`: a kernel module of SwiGLU with this body in its launcher."""

    def write(body: str) -> Path:
        path = tmp_path / "gated.py"
        path.write_text(HEAD + f"\ndef gated(gate, up):\n    {body.strip()}\n\n" + LAST)
        return path

    return write


class Gated(torch.nn.Module):
    """Two gated blocks of different width, each with a residual."""

    def __init__(self, widths: tuple[int, ...] = (96, 48)) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "gate": torch.nn.Linear(32, width),
                    "up": torch.nn.Linear(32, width),
                    "down": torch.nn.Linear(width, 32),
                }
            )
            for width in widths
        )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block["down"](torch.nn.functional.silu(block["gate"](x)) * block["up"](x))
        return x


@pytest.fixture
def gated() -> Any:
    torch.manual_seed(0)
    return Gated()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier passes everything: what is tested is what happens behind it."""
    from addrfrac.substitution import verdicts

    def answered(questions: Any, device: str, **rest: Any) -> Any:
        return {each.group: verdicts.Answer(status="passed", reason="", cached=False) for each in questions}

    monkeypatch.setattr(verdicts, "asked", answered)


def test_a_substituted_model_computes_the_same_with_its_kernels_called(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    expected = gated(x)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(RIGHT))) as swap:
        found = swap.model(x)
        decisions = swap.engaged(lambda: swap.model(x))
    assert [each.substituted for each in decisions] == [True, True]
    assert [each.engaged for each in decisions] == [1.0, 1.0]
    torch.testing.assert_close(found, expected)


def test_a_kernel_that_is_wrong_on_one_site_is_refused_there_and_nowhere_else(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(WRONG_AT_48))) as swap:
        torch.testing.assert_close(swap.model(x), gated.forward(x))
        by_width = {each.site.inputs[0]: each for each in swap.sites}
    assert by_width["float32[4, 96]"].substituted
    assert not by_width["float32[4, 48]"].substituted
    assert by_width["float32[4, 48]"].reason.startswith("refused at this site: captured inputs")


def test_a_kernel_that_is_wrong_on_outliers_alone_is_refused(gated, kernel_file, passing):
    with torch.no_grad():
        for block in gated.blocks:
            block["gate"].weight.mul_(8)
    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(WRONG_WHEN_LARGE))) as swap:
        assert not any(each.substituted for each in swap.sites)
        assert {each.reason.partition(":")[2].partition(":")[0].strip() for each in swap.sites} == {
            "an outlier channel"
        }


def test_a_kernel_that_raises_at_a_site_costs_the_site(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(RAISES))) as swap:
        assert [each.reason for each in swap.sites] == [
            "refused at this site: captured inputs: it raised ValueError: contiguous inputs only"
        ] * 2


def test_a_kernel_that_never_runs_is_told_as_not_engaged(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(RIGHT))) as swap:
        decisions = swap.engaged(lambda: None)  # a step that does not reach the model
    assert all(each.reason.startswith("not engaged") and each.engaged == 0 for each in decisions)


def test_the_model_is_restored_after_an_error_in_the_body(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    limit = torch._dynamo.config.recompile_limit
    numbers: list[int] = []

    def fail_inside() -> None:
        with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(RIGHT))) as swap:
            numbers.extend(place.number for place in swap.session.chosen)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert len(numbers) == 2
    before = [operators.calls[number] for number in numbers]
    gated(x)
    assert [operators.calls[number] for number in numbers] == before
    assert gated._compiled_call_impl is None
    assert torch._dynamo.config.recompile_limit == limit


def test_gradients_through_a_kernel_are_those_of_what_it_replaces(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    gated(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in gated.parameters()]
    gated.zero_grad()
    with substitution.substituted(gated, (x,), str(kernel_file(RIGHT))) as swap:
        assert all(each.site.trains and each.substituted for each in swap.sites)
        swap.model(x).square().sum().backward()
    for parameter, gradient in zip(gated.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_buffers_are_as_they_were_before_the_example_inputs(kernel_file, passing):
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), Gated()).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with substitution.substituted(model, (torch.randn(4, 32),), str(kernel_file(RIGHT))) as swap:
        assert len(swap.sites) == 2
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name]), name


def test_more_models_than_dynamo_compiles_by_default_are_all_captured(kernel_file, passing):
    kernels = find_kernels(str(kernel_file(RIGHT)))
    sites = []
    for width in range(8, 8 + 12):
        model, session = Gated((width,)), Session(kernels=kernels)
        with torch.no_grad(), installed(model, session):
            model(torch.randn(2, 32))
            sites.append(len(session.places))
    assert sites == [1] * 12


class GatedByItself(torch.nn.Module):
    """silu(x) * x, twice one tensor."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.silu(x) * x


def test_a_kernel_that_would_get_one_tensor_twice_is_left_out_with_its_reason(kernel_file):
    session = Session(kernels=find_kernels(str(kernel_file(RIGHT))))
    torch._dynamo.reset()
    model, x = GatedByItself(), torch.randn(4, 8)
    with installed(model, session):
        assert torch.equal(model(x), torch.nn.functional.silu(x) * x)
    assert session.places == []
    assert any("two of its arguments" in note for note in session.notes)


def test_dynamic_shapes_leave_the_graph_alone_and_say_so(gated, kernel_file):
    session = Session(kernels=find_kernels(str(kernel_file(RIGHT))))
    compiled = torch.compile(gated, backend=session.backend, dynamic=True)
    x = torch.randn(4, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), gated(x))
    assert session.places == []
    assert "its shapes are dynamic" in session.notes[0]


def test_a_graph_break_leaves_the_sites_on_both_sides(kernel_file, passing):
    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Gated((96,)), Gated((48,))

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(x)

    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(Broken(), (x,), str(kernel_file(RIGHT))) as swap:
        assert sorted(each.site.inputs[0] for each in swap.sites if each.substituted) == [
            "float32[4, 48]",
            "float32[4, 96]",
        ]


def test_a_kernel_with_other_memory_than_was_verified_falls_back_and_is_counted(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    with torch.no_grad(), substitution.substituted(gated, (x,), str(kernel_file(RIGHT))) as swap:
        place = swap.session.chosen[0]
        operators.frozen[place.number] = (False, False)
        decisions = {each.site.key: each for each in swap.engaged(lambda: swap.model(x))}
    found = decisions[place.site.key]
    assert (found.engaged, found.fallbacks) == (0.0, 1.0)


def test_kernels_stand_inside_an_inductor_graph_too(gated, kernel_file, passing):
    x = torch.randn(4, 32)
    expected = gated(x)
    path = str(kernel_file(RIGHT))
    with torch.no_grad(), substitution.substituted(gated, (x,), path, base="compiled") as swap:
        torch.testing.assert_close(swap.model(x), expected)
        assert [each.engaged for each in swap.engaged(lambda: swap.model(x))] == [1.0, 1.0]


@pytest.mark.slow
def test_the_verifier_itself_refuses_a_planted_kernel(gated, kernel_file):
    x = torch.randn(4, 32)
    path = str(kernel_file("return torch.zeros_like(gate)"))
    with torch.no_grad(), substitution.substituted(gated, (x,), path) as swap:
        assert not any(each.substituted for each in swap.sites)
        assert all(each.reason.startswith("refused by the verifier") for each in swap.sites)
        torch.testing.assert_close(swap.model(x), gated.forward(x))


def test_the_compile_backend_puts_in_only_what_was_verified_before(gated, kernel_file, monkeypatch):
    from addrfrac.substitution import swap, verdicts

    kernels = find_kernels(str(kernel_file(RIGHT)))
    session = Session(kernels=kernels)
    x = torch.randn(4, 32)
    with torch.no_grad(), installed(gated, session):
        gated(x)
        group = next(place.site.group for place in session.places if "96" in place.site.inputs[0])
    passed = verdicts.Answer(status="passed", reason="", cached=True)
    monkeypatch.setattr(verdicts, "known", lambda device: {group: passed})
    monkeypatch.setattr(swap, "find_kernels", lambda asked: kernels)
    swap._standing.cache_clear()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(gated, backend=swap.backend)(x), gated(x))
    assert [place.site.group for place in swap._standing("cpu").chosen] == [group]
    swap._standing.cache_clear()
