"""Boundary shapes, other constructor arguments and other layouts, as far as the reference itself accepts them.

Sizes that are equal across inputs (and integer constructor arguments) are taken as one symbol and change together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from addrfrac.verification.exam import Construct, Maker, ModelState, Trial, Unverifiable, reduction_length
from addrfrac.verification.parameters import randomised
from addrfrac.verification.processes import WorkerFailure
from addrfrac.verification.reference import Arguments, ReferenceRaised

_MOST_TRIALS = 16
_MOST_NUMBERS = 4
_MOST_ELEMENTS = 1 << 23
"""Inputs are not made several times as large if they are larger than this then."""
LAYOUTS = ("transposed", "offset", "reversed", "misaligned", "stepped", "channels last", "spread")
ALONE = ("transposed", "stepped")
"""Layouts that also one argument alone is given: kernels take the others to lie alike."""


def make_shapes(maker: Maker, *, quick: bool) -> None:
    """Shape, construct, number and layout trials."""
    most = 3 if quick else _MOST_TRIALS
    made = 0
    symbols = _symbols(maker.exam.published[0])
    for wanted in _wanted(symbols):
        if made >= most:
            break
        again = 1 if made == 1 else 0  # one shape gets a second content: an answer may be kept by shape
        made += sum(_add(maker, _shape_trial, wanted) for _ in range(1 + again))
    if not maker.exam.text.promises:  # triangular, symmetric and diagonal matrices are square by contract
        for place in _square_places(maker.exam.published[0])[: 1 if quick else 4]:
            _add(maker, _oblong_trial, place)
    if not quick:
        for symbol in symbols[:3]:
            for new in (_prime_near(symbol * 3 // 4), symbol * 2):
                if maker.exam.constructs[0].entries or maker.exam.constructs[0].init.tree:
                    made += _add(maker, _construct_trial, (symbol, new))
    _number_trials(maker, quick=quick)
    at_last = [trial for trial in maker.exam.distributions if trial.state == _varied_state(maker)]
    for layout in _layouts(maker, quick=quick):
        _add(maker, _layout_trial, (at_last[-1], *layout))
        if layout == ("transposed", None):  # a second content: a copy may be kept by address
            _add(maker, _layout_trial, (at_last[0], *layout))


def _layouts(maker: Maker, *, quick: bool) -> list[tuple[str, int | None]]:
    """(layout, the one argument that it is for or None for all floating ones)."""
    found: list[tuple[str, int | None]] = [(how, None) for how in (LAYOUTS[:2] if quick else LAYOUTS)]
    if quick:
        return found
    tensors = maker.exam.published[0].tensors
    sized = [i for i, t in enumerate(tensors) if t.numel() > 1]
    if len(sized) > 1:
        found += [(how, i) for i in sized[:4] for how in ALONE if tensors[i].is_floating_point()]
    return found + [("stepped", i) for i in sized if not tensors[i].is_floating_point()][:2]


def _number_trials(maker: Maker, *, quick: bool) -> None:
    """Plain numbers among the arguments and the constructor's, each changed by itself."""
    for make, tree in (
        (_number_trial, maker.exam.published[1].tree),
        (_constructor_number_trial, maker.exam.constructs[0].init.tree),
    ):
        made = 0
        for path, number in numbers_in(tree):
            for new in _other_numbers(number):
                if made < (1 if quick else _MOST_NUMBERS) and _add(maker, make, (path, new)):
                    made += 1
                    break


def _add(maker: Maker, make: Any, wanted: Any) -> int:
    try:
        trial: Trial | None = make(maker, wanted)
    except (ReferenceRaised, Unverifiable, RuntimeError) as error:
        what = wanted[1:] if isinstance(wanted[0], Trial) else wanted
        maker.exam.refused_shapes.append(f"{what}: {str(error)[:80]}")
        maker.current = None
        if isinstance(error, ReferenceRaised) and error.of_the_device:  # nothing can be asked of that process any more
            maker.reference.reopen()
        return 0
    except WorkerFailure as failure:  # it read out of range: such a shape it has not accepted
        maker.exam.refused_shapes.append(f"{wanted}: the reference: {failure.reason[:60]}")
        maker.reference.reopen()
        maker.current = None
        return 0
    if trial is None:
        return 0
    maker.exam.trials.append(trial)
    return 1


def _symbols(arguments: Arguments) -> list[int]:
    sizes: dict[int, int] = {}
    for tensor in arguments.tensors:
        for size in tensor.shape:
            if size > 1:
                sizes[size] = sizes.get(size, 0) + 1
    return sorted(sizes, reverse=True)


def _wanted(symbols: list[int]) -> list[tuple[int, int]]:
    """(size, new size) pairs: one, one less, one more, a prime; turn about between the symbols."""
    columns = [
        [(s, s - 1) for s in symbols],
        [(s, 1) for s in symbols],
        [(s, s + 1) for s in symbols],
        [(s, _prime_near(2 * s)) for s in symbols],
        [(s, 2 * s) for s in symbols],
        [(s, 3) for s in symbols],
        [(s, 2) for s in symbols],
        [(s, 4 * s + 1) for s in symbols],
    ]
    return [pair for column in columns for pair in column if pair[1] >= 1 and pair[0] != pair[1]]


def _prime_near(size: int) -> int:
    candidate = max(2, size)
    while any(candidate % d == 0 for d in range(2, int(candidate**0.5) + 1)):
        candidate -= 1
    return candidate


def resized(arguments: Arguments, symbol: int, new: int, generator: torch.Generator) -> Arguments:
    """Every dimension of size `symbol` becomes `new`; values are drawn from the old ones.

    Integers that could point into a dimension of that size are kept within the new one. Raises Unverifiable where
    offsets could not be made to fit: a reference on a device reads out of range then and says nothing.
    """
    tensors = []
    for original in arguments.tensors:
        tensor = _in_range(original, symbol, new)
        shape = tuple(new if size == symbol else size for size in tensor.shape)
        if shape == tuple(tensor.shape):
            tensors.append(tensor.clone())
            continue
        count = 1
        for size in shape:
            count *= size
        flat = tensor.reshape(-1)
        drawn = flat[torch.randint(flat.numel(), (count,), generator=generator)]
        if not tensor.is_floating_point() and flat.numel() > 1 and bool((flat[1:] >= flat[:-1]).all()):
            drawn = drawn.sort().values
            drawn[0] = flat[0]
        elif tensor.is_floating_point():
            drawn = drawn * torch.where(torch.rand(count, generator=generator) < 0.5, 1.0, -1.0).to(tensor.dtype)
        tensors.append(_ordered_like(original, drawn.view(shape)))
    for index, offsets in enumerate(arguments.tensors):
        if is_offsets(index, arguments.tensors):
            _keep_consistent(index, offsets, arguments.tensors, tensors, symbol, new)
        elif places := begins_of_rows(index, arguments.tensors):
            if tensors[index].shape[0] != offsets.shape[0] or tensors[index].shape[1] < 2 or symbol == places[-1]:
                raise Unverifiable("rows of offsets end where what they cut begins and ends")
            rising = tensors[index].clamp(min=0).minimum(offsets[:, -1:]).sort(1).values
            rising[:, 0], rising[:, -1] = 0, offsets[:, -1]
            tensors[index] = rising
    return Arguments(tree=arguments.tree, tensors=tensors)


def is_offsets(index: int, tensors: list[torch.Tensor]) -> bool:
    """Whether it rises from 0 to the number of rows of another tensor: where bags or sequences begin and end."""
    tensor = tensors[index]
    if tensor.ndim != 1 or tensor.numel() < 2 or tensor.is_floating_point() or tensor.dtype == torch.bool:
        return False
    rising = bool((tensor[1:] >= tensor[:-1]).all()) and int(tensor[0]) == 0 < int(tensor[-1])
    rows = {other.shape[0] for place, other in enumerate(tensors) if place != index and other.ndim}
    return rising and int(tensor[-1]) in rows


def begins_of_rows(index: int, tensors: list[torch.Tensor]) -> list[int]:
    """Where the pieces begin, and the last ends, that rows of offsets cut another tensor into; [] where it is no such.

    Each row rises from 0, and together they end where the other tensor does: tables' bags, one table after another.
    """
    tensor = tensors[index]
    if tensor.ndim != 2 or tensor.shape[1] < 2 or tensor.is_floating_point() or tensor.dtype == torch.bool:
        return []
    if bool((tensor[:, 1:] < tensor[:, :-1]).any()) or bool((tensor[:, 0] != 0).any()):
        return []
    ends = [0, *tensor[:, -1].cumsum(0).tolist()]
    rows = {other.shape[0] for place, other in enumerate(tensors) if place != index and other.ndim}
    return ends if ends[-1] in rows and ends[-1] else []


def _keep_consistent(
    index: int, offsets: torch.Tensor, before: list[torch.Tensor], after: list[torch.Tensor], symbol: int, new: int
) -> None:
    """Offsets that end where the rows that they cut end, with no piece longer than the problem's where those differ.

    Without that a reference reads out of range. Raises Unverifiable where no offsets fit.
    """
    total = int(offsets[-1])
    cut = [place for place, tensor in enumerate(before) if place != index and tensor.ndim and len(tensor) == total]
    lengths, count, rows = offsets.diff().tolist(), len(after[index]) - 1, len(after[cut[0]])
    if count < 1:
        raise Unverifiable("no offsets are left")
    made = [lengths[place % len(lengths)] for place in range(count)]
    longest = max(lengths) if len(set(lengths)) > 1 else max(max(lengths), -(-rows // count))
    longest = min(longest, new) if new < symbol and max(lengths) <= symbol else longest
    made = [min(length, longest) for length in made]
    rows = min(rows, count * longest)
    missing = rows - sum(made)
    while missing:
        for place in range(count):
            step = min(missing, longest - made[place]) if missing > 0 else max(missing, -made[place])
            made[place] += step
            missing -= step
    for place in cut:
        after[place] = after[place][:rows]
    after[index] = torch.tensor([0, *made], dtype=offsets.dtype).cumsum(0).to(offsets.dtype)


def _ordered_like(original: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with its dimensions in memory in the order that the problem's own has them."""
    if original.is_contiguous() or 0 in original.stride():
        return tensor
    order = sorted(range(original.ndim), key=lambda dim: original.stride()[dim], reverse=True)
    return torch.empty_permuted(tensor.shape, order, dtype=tensor.dtype).copy_(tensor)


def _in_range(tensor: torch.Tensor, symbol: int, new: int) -> torch.Tensor:
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.numel() == 0 or new >= symbol:
        return tensor
    flat = tensor.flatten()
    if bool((flat[1:] >= flat[:-1]).all()) and int(flat.max()) <= symbol:
        return tensor.clamp_max(new)
    if int(flat.min()) >= 0 and int(flat.max()) == symbol:  # lengths, not places
        return tensor.clamp_max(new)
    return tensor % new if int(flat.min()) >= 0 and int(flat.max()) < symbol else tensor


def _shape_trial(maker: Maker, wanted: tuple[int, int]) -> Trial | None:
    symbol, new = wanted
    if new >= 2 * symbol and sum(t.numel() for t in maker.exam.published[1].tensors) * new // symbol > _MOST_ELEMENTS:
        return None
    arguments = resized(maker.exam.published[1], symbol, new, maker.generator)
    if all(a.shape == b.shape for a, b in zip(arguments.tensors, maker.exam.published[0].tensors, strict=True)):
        return None
    state = _varied_state(maker)
    length = reduction_length(maker, arguments, state) if new < 4 and maker.exam.reduction_length > 64 else None
    return maker.trial(f"shape {symbol} -> {new}", "shape", arguments, 0, state, length=length)


def _varied_state(maker: Maker) -> int:
    """The state that distributions stand at last."""
    return maker.exam.distributions[-1].state


def _construct_trial(maker: Maker, wanted: tuple[int, int]) -> Trial | None:
    symbol, new = wanted
    exam = maker.exam
    base = exam.constructs[0]
    tree = _replaced(base.init.tree, symbol, new)
    if tree == base.init.tree:
        return None
    init = Arguments(tree=tree, tensors=base.init.tensors)
    arguments = resized(exam.published[1], symbol, new, maker.generator)
    return _built_trial(maker, init, f"built with {new} for {symbol}", arguments)


def _built_trial(maker: Maker, init: Arguments, name: str, arguments: Arguments) -> Trial:
    exam = maker.exam
    maker.current = None
    maker.reference.build(init, seed=exam.build_seed, dtype=exam.dtype)
    entries = maker.reference.entries()
    states = [ModelState(name="initial", how="initial", values=[])]
    if entries and not exam.reseeded:
        states.append(ModelState(name="random", how="load", values=randomised(entries, maker.generator)))
    exam.constructs.append(Construct(name=name, init=init, entries=entries, states=states))
    index = len(exam.constructs) - 1
    try:
        return maker.trial(name, "construct", arguments, index, len(states) - 1)
    except (ReferenceRaised, Unverifiable):
        exam.constructs.pop()
        raise


def numbers_in(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], int | float]]:
    """Paths and values of the plain numbers and switches in a tree of arguments."""
    if isinstance(tree, dict):
        value = tree.get("v")
        if "v" in tree:
            return [(path, value)] if isinstance(value, (int, float)) else []
        return [entry for key, child in tree.items() for entry in numbers_in(child, (*path, key))]
    if isinstance(tree, list):
        return [entry for index, child in enumerate(tree) for entry in numbers_in(child, (*path, index))]
    return []


def _number_at(tree: Any, path: tuple[Any, ...]) -> Any:
    """What numbers_in found at a path."""
    for key in path:
        tree = tree[key]
    return tree["v"]


def _with_number(tree: Any, path: tuple[Any, ...], new: int | float) -> Any:
    if not path:
        return {"v": new}
    if isinstance(tree, dict):
        return {key: _with_number(child, path[1:], new) if key == path[0] else child for key, child in tree.items()}
    return [_with_number(child, path[1:], new) if index == path[0] else child for index, child in enumerate(tree)]


def _other_numbers(number: int | float) -> list[int | float]:
    if isinstance(number, bool):
        return [not number]
    if isinstance(number, int):
        return [number + 1, number * 2, number - 1]
    return [number * 1.5 + 0.125, number * 0.5]


def _number_trial(maker: Maker, wanted: tuple[tuple[Any, ...], int | float]) -> Trial | None:
    """The same tensors with another plain number among the arguments."""
    path, new = wanted
    start = next((t for t in maker.exam.distributions if t.name == "signs"), maker.exam.distributions[-1])
    tensors = start.arguments.tensors
    replaced = _number_at(start.arguments.tree, path)
    if not isinstance(replaced, bool) and any(replaced in begins_of_rows(i, tensors) for i in range(len(tensors))):
        return None  # it says where a piece begins: another place would be out of range
    arguments = Arguments(tree=_with_number(start.arguments.tree, path, new), tensors=start.arguments.tensors)
    trial = maker.trial(f"number {new:g} among the arguments", "shape", arguments, 0, start.state)
    return trial if _answers_differ(start, trial) else None


def _constructor_number_trial(maker: Maker, wanted: tuple[tuple[Any, ...], int | float]) -> Trial | None:
    """A model built with another number, on inputs as they were."""
    path, new = wanted
    base = maker.exam.constructs[0].init
    init = Arguments(tree=_with_number(base.tree, path, new), tensors=base.tensors)
    return _built_trial(maker, init, f"built with the number {new:g}", maker.exam.published[1])


def _answers_differ(one: Trial, other: Trial) -> bool:
    return any(
        a.truth.shape != b.truth.shape or not torch.equal(a.truth, b.truth)
        for a, b in zip(one.sticks, other.sticks, strict=True)
    )


def _square_places(arguments: Arguments) -> list[tuple[int, int]]:
    """(tensor, dimension) of square matrices: their two sizes may be equal by chance."""
    return [
        (index, dim)
        for index, tensor in enumerate(arguments.tensors)
        if tensor.ndim == 2 and tensor.shape[0] == tensor.shape[1] > 1
        for dim in (0, 1)
    ]


def _oblong_trial(maker: Maker, place: tuple[int, int]) -> Trial | None:
    """One dimension of one square matrix longer than the other."""
    index, dim = place
    base = maker.exam.published[1]
    tensor = base.tensors[index]
    longer = torch.cat([tensor, tensor.flip(0, 1).narrow(dim, 0, min(9, tensor.shape[dim]))], dim)
    arguments = Arguments(tree=base.tree, tensors=[*base.tensors[:index], longer, *base.tensors[index + 1 :]])
    return maker.trial(f"shape {tuple(longer.shape)} of argument {index}", "shape", arguments, 0, _varied_state(maker))


def _replaced(tree: Any, symbol: int, new: int) -> Any:
    if isinstance(tree, dict):
        if "v" in tree and tree["v"] == symbol and not isinstance(tree["v"], bool):
            return {"v": new}
        return {key: _replaced(value, symbol, new) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replaced(item, symbol, new) for item in tree]
    return tree


def _layout_trial(maker: Maker, wanted: tuple[Trial, str, int | None]) -> Trial | None:
    """The same values in memory of another order, in the middle of wider rows, or off the grid of addresses."""
    start, how, alone = wanted
    tensors, changed = [], False
    for index, tensor in enumerate(start.arguments.tensors):
        asked = tensor.is_floating_point() if alone is None else index == alone
        laid = _laid_out(tensor, how) if asked and tensor.numel() else tensor
        changed = changed or laid is not tensor
        tensors.append(laid)
    if not changed:
        return None
    arguments = Arguments(tree=start.arguments.tree, tensors=tensors)
    name = f"layout {how}" + ("" if alone is None else f" of argument {alone}")
    return maker.trial(name, "layout", arguments, 0, start.state)


def _laid_out(tensor: torch.Tensor, how: str) -> torch.Tensor:
    """The tensor laid out anew, or itself where it cannot be."""
    make = _LAID_OUT[how]
    return make(tensor) if tensor.ndim >= _LEAST_DIMENSIONS.get(how, 1) else tensor


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    order = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(order).contiguous().permute(order)


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros((*tensor.shape[:-1], tensor.shape[-1] + 3), dtype=tensor.dtype)
    wide[..., 1:-2] = tensor
    return wide[..., 1:-2]


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    wide[1:] = tensor.reshape(-1)
    return wide[1:].view(tensor.shape)


def _stepped(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of wider rows."""
    wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]), dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """The first of its rows for all, without memory of their own."""
    return tensor[:1].expand(tensor.shape) if tensor.shape[0] > 1 else tensor


_LAID_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": _transposed,
    "reversed": _reversed,
    "offset": _offset,
    "misaligned": _misaligned,
    "stepped": _stepped,
    "spread": _spread,
    "channels last": lambda tensor: (
        tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
    ),
}
_LEAST_DIMENSIONS = {"transposed": 2, "reversed": 3, "offset": 2, "spread": 2, "channels last": 4}
