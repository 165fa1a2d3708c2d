from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from addrfrac.parse.columns import Interner
from addrfrac.parse.inputs import NONE, InputReader

KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def raws(args: list[dict[str, Any]]) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(arg).encode()) for arg in args]


def texts(interner: Interner, number: int) -> list[Any]:
    found: Any = list(interner.ids)[number]
    return [json.loads(text) if text else None for text in found]


def test_ops_called_alike_share_a_number() -> None:
    interner = Interner()
    shapes = {"Concrete Inputs": [""], "Input type": ["float"], "Input Strides": [[1]], "Input Dims": [[3]]}
    args = [{"External id": n, **shapes, "Ev Idx": n} for n in range(5)]
    assert InputReader(interner).numbers(raws(args)) == [0] * 5
    assert len(interner.ids) == 1


def test_ops_without_inputs_have_none() -> None:
    assert InputReader(Interner()).numbers(raws([{"External id": 1}, {}])) == [NONE, NONE]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(KEYS), unique=True),
            st.lists(st.sampled_from(["External id", "Ev Idx", "Sequence number"]), unique=True),
            st.integers(0, 2),
            st.randoms(use_true_random=False),
        ),
        max_size=12,
    )
)
def test_whatever_the_order_of_the_keys_each_op_keeps_its_own_inputs(ops: list[Any]) -> None:
    args = []
    for keys, others, value, random in ops:
        pairs = [*((key, [[value, len(key)]]) for key in keys), *((key, random.randint(0, 99)) for key in others)]
        random.shuffle(pairs)
        args.append(dict(pairs))
    interner = Interner()
    numbers = InputReader(interner).numbers(raws(args))
    for arg, number in zip(args, numbers, strict=True):
        if "Input Dims" not in arg:
            assert number == NONE
        else:
            assert texts(interner, number) == [arg.get(key) for key in KEYS]
