"""Verdicts are of binaries: which ones ran is told, and a model that makes another falls back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from addrfrac.substitution import apply, binaries, operators  # noqa: E402
from addrfrac.substitution.pool import Kernel  # noqa: E402

TEXT = "@triton.jit\ndef _gate_kernel(x):\n    pass\n"


def kernel(*cubins: bytes, tuned: bool = False) -> Kernel:
    compiled = {number: SimpleNamespace(asm={"cubin": cubin}) for number, cubin in enumerate(cubins)}
    function: Any = SimpleNamespace(device_caches={0: (compiled, {}, "target", "backend", "binder")})
    names: dict[str, Any] = {"_gate_kernel": SimpleNamespace(fn=function) if tuned else function}
    exec("def gate(x): return x", names)
    return Kernel(
        name="gate",
        source="",
        text=TEXT,
        launcher=names["gate"],
        reference=names["gate"],
        op="elementwise",
        bytes_moved=None,
        examples=(),
    )


@pytest.mark.parametrize("tuned", [False, True])
def test_each_binary_that_triton_made_has_its_digest(tuned: bool) -> None:
    one, two = binaries.of_kernel(kernel(b"one", tuned=tuned)), binaries.of_kernel(kernel(b"one", b"two", tuned=tuned))
    assert len(one) == 1
    assert len(two) == 2
    assert set(one) < set(two)


def test_an_interpreted_kernel_has_none() -> None:
    def gate(x: Any) -> Any:
        return x

    found = Kernel(
        name="gate",
        source="",
        text=TEXT,
        launcher=gate,
        reference=gate,
        op="elementwise",
        bytes_moved=None,
        examples=(),
    )
    assert binaries.of_kernel(found) == ()


class Session:
    """Two sites of one kernel, as `hold_to_what_was_judged` sees them."""

    def __init__(self, made: Kernel) -> None:
        self.chosen: list[Any] = [
            SimpleNamespace(
                number=-number,
                site=SimpleNamespace(key=f"gate.0.{number}", kernel="gate"),
                match=SimpleNamespace(kernel=made),
            )
            for number in (1, 2)
        ]
        self.kept: list[str] | None = None

    def rebuild(self, value: Any) -> None:
        self.kept = [place.site.key for place in self.chosen if value(place.site) is not None]


def recipe(made: Kernel) -> apply.Recipe:
    return apply.Recipe(
        kernels=("gate",),
        worth={"gate.0.1": 1.0, "gate.0.2": 2.0},
        aligned={"gate.0.1": (True, False)},
        binaries={"gate": binaries.of_kernel(made)},
    )


def test_a_binary_that_was_not_judged_takes_the_kernel_s_sites_out() -> None:
    session: Any = Session(kernel(b"one", b"another"))
    assert apply.hold_to_what_was_judged(session, recipe(kernel(b"one"))) == {"gate": 2}
    assert session.kept == []


def test_binaries_that_were_judged_stay_and_hold_the_memory_they_were_judged_in() -> None:
    session: Any = Session(kernel(b"one"))
    try:
        assert apply.hold_to_what_was_judged(session, recipe(kernel(b"one", b"two"))) == {}
        assert session.kept is None
        assert operators.frozen[-1] == (True, False)
        assert -2 not in operators.frozen
    finally:
        operators.frozen.pop(-1, None)
