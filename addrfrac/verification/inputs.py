"""Distributions of inputs: each takes fresh base tensors of the problem's generator and makes something else of them.

Only floating inputs are changed; ids, targets and masks are redrawn by the generator itself, in range. What the
generator always does (a triangular zero pattern that the problem's text promises) is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a distribution may use besides the base tensor."""

    generator: torch.Generator
    strength: float
    breakpoints: tuple[float, ...] = ()
    """Constants of the problem's text and the usual turning points of activations."""
    others: tuple[torch.Tensor, ...] = field(default=())
    """Floating inputs already made for the same call."""
    gains: dict[int, torch.Tensor] = field(default_factory=dict)
    """Size of a dimension -> gains along it, shared by the inputs of a call."""

    def randn(self, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
        """Standard normal, fp64."""
        return torch.randn(tuple(shape), generator=self.generator, dtype=torch.float64)

    def rand(self, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
        """Uniform in 0..1, fp64."""
        return torch.rand(tuple(shape), generator=self.generator, dtype=torch.float64)

    def index(self, high: int) -> int:
        """A random integer below `high`."""
        return int(torch.randint(max(1, high), (1,), generator=self.generator))


Make = Callable[[torch.Tensor, Context], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A way to make inputs, from hard to mild: the hardest that the reference itself survives is used."""

    name: str
    make: Make
    strengths: tuple[float, ...] = (1.0,)
    why: str = ""


def _rms(base: torch.Tensor) -> float:
    value = float(base.double().square().mean().sqrt()) if base.numel() else 1.0
    return value if math.isfinite(value) and value > 0 else 1.0


def _spikes(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Small noise with rare large values, one of them at the very end."""
    out = 0.05 * c.randn(base.shape)
    flat = out.view(-1)
    count = max(2, flat.numel() // 256)
    where = torch.randint(flat.numel(), (count,), generator=c.generator)
    flat[where] += c.strength * c.randn((count,)).sign() * (0.5 + c.rand((count,)))
    flat[-1] += c.strength
    return out


def _tiles(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Gains over decades, one for each tile along every dimension."""
    out = c.randn(base.shape)
    for dim, size in enumerate(base.shape):
        tiles = max(2, size // 16) if size > 1 else 1
        gains = 10.0 ** (c.strength * (c.rand((tiles,)) - 0.5))
        positions = (torch.arange(size) * tiles // max(1, size)).clamp_max(tiles - 1)
        shape = [1] * base.ndim
        shape[dim] = size
        out = out * gains[positions].view(shape)
    return out


def _balanced(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Gains over decades that a later input of the same size undoes: no tile of a product matters less for its size."""
    out = c.randn(base.shape)
    for dim, size in enumerate(base.shape):
        if size < 4:
            continue
        first = size not in c.gains
        if first:
            tiles = max(2, size // 8)
            steps = torch.round(c.strength * (c.rand((tiles,)) - 0.5) / 0.30103)  # powers of two: products stay exact
            positions = (torch.arange(size) * tiles // size).clamp_max(tiles - 1)
            c.gains[size] = 2.0 ** steps[positions]
        shape = [1] * base.ndim
        shape[dim] = size
        out = out * (c.gains[size] if first else 1 / c.gains[size]).view(shape)
    return out


def _breakpoints(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Values at, just below and just above the turning points."""
    points = torch.tensor([p for p in c.breakpoints if abs(p) <= c.strength] or [0.0], dtype=torch.float64)
    chosen = points[torch.randint(len(points), tuple(base.shape), generator=c.generator)]
    nudge = torch.tensor([0.0, 1e-3, -1e-3, 0.25, -0.25], dtype=torch.float64)
    return chosen + nudge[torch.randint(5, tuple(base.shape), generator=c.generator)]


def _sorted(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Normal values rising through the whole tensor: no part is like another."""
    return (c.randn(base.shape).view(-1).sort().values * c.strength).view(base.shape) if base.numel() else base


def _offset(base: torch.Tensor, c: Context) -> torch.Tensor:
    """A mean that dwarfs the spread."""
    return c.strength + c.randn(base.shape)


def _outlier_channels(base: torch.Tensor, c: Context) -> torch.Tensor:
    """A few channels of one dimension far above the rest."""
    out = c.randn(base.shape)
    for dim, size in enumerate(base.shape):
        if size > 3 and (dim == base.ndim - 1 or dim == 1):
            channel = c.index(size)
            out.select(dim, channel).mul_(c.strength)
    return out


def _ties(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Few distinct values, and whole rows of one value."""
    out = (c.randn(base.shape) * 2).round() / 2
    if base.ndim > 1 and base.shape[0] > 2:
        out[c.index(base.shape[0])] = 0.5
    return out


def _zero_slices(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Whole slices at zero, others at a thousandth."""
    out = c.randn(base.shape)
    for dim, size in enumerate(base.shape):
        if size > 3:
            out.select(dim, c.index(size)).zero_()
            out.select(dim, c.index(size)).mul_(1e-3)
    return out


def _mixed(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Begins like the published generator, goes on with other signs and scales."""
    out = base.double().clone().reshape(-1)
    start = max(1, out.numel() // 8)
    rest = out.numel() - start
    out[start:] = c.strength * _rms(base) * c.randn((rest,)) * 10.0 ** (2 * c.rand((rest,)) - 1)
    return out.view(base.shape)


def _signs(base: torch.Tensor, c: Context) -> torch.Tensor:
    """The published magnitudes with a sign that has nothing to do with position."""
    share = 0.05 + 0.9 * float(c.rand((1,)))
    return base.double() * torch.where(c.rand(base.shape) < share, -1.0, 1.0)


def _keep_alive(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Factors around 1, so that long products neither vanish nor overflow."""
    return torch.exp(c.strength * c.randn(base.shape)) * torch.where(c.rand(base.shape) < 0.1, -1.0, 1.0)


def _cancellation(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Large values of both signs that cancel and leave small ones."""
    out = c.randn(base.shape)
    size = base.shape[-1] if base.ndim else 0
    half = size // 4
    if half:
        order = torch.randperm(size, generator=c.generator)
        big = c.strength * (1 + c.rand((*base.shape[:-1], half)))
        out[..., order[:half]] += big
        out[..., order[half : 2 * half]] -= big
    return out


def _aligned(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Later inputs of the same shape repeat the first in another order, so that each row finds its own partner."""
    for other in c.others:
        if other.shape == base.shape and base.ndim >= 2:
            order = torch.randperm(base.shape[-2], generator=c.generator)
            return other.double().index_select(base.ndim - 2, order)
    return c.strength * c.randn(base.shape)


def _range_power(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Within the published range, crowded at its lower end."""
    low, high = float(base.min()), float(base.max())
    return low + (high - low) * c.rand(base.shape) ** c.strength


def _range_rows(base: torch.Tensor, c: Context) -> torch.Tensor:
    """Within the published range, every row in a part of it of its own."""
    low, high = float(base.min()), float(base.max())
    row = c.rand((*base.shape[:-1], 1)) if base.ndim else c.rand(())
    return low + (high - low) * (row * 0.8 + 0.2 * c.rand(base.shape))


def _permuted(base: torch.Tensor, c: Context) -> torch.Tensor:
    """The published rows in another order along every leading dimension."""
    out = base
    for dim in range(base.ndim):
        out = out.index_select(dim, torch.randperm(base.shape[dim], generator=c.generator))
    return out.double()


DISTRIBUTIONS: dict[str, Distribution] = {
    d.name: d
    for d in (
        Distribution(name="published", make=lambda b, c: b, why="as the problem draws them"),
        Distribution(name="x3", make=lambda b, c: b.double() * 3),
        Distribution(name="x0.01", make=lambda b, c: b.double() * 0.01),
        Distribution(name="small", make=lambda b, c: b.double() * c.strength, strengths=(1e-5, 1e-3)),
        Distribution(name="negated", make=lambda b, c: -b.double()),
        Distribution(name="normal8", make=lambda b, c: c.strength * c.randn(b.shape), strengths=(8.0, 2.0, 1.0)),
        Distribution(name="signs", make=_signs, why="no element's sign tells another's"),
        Distribution(name="spikes", make=_spikes, strengths=(64.0, 8.0), why="estimates miss rare values"),
        Distribution(name="tiles", make=_tiles, strengths=(4.0, 2.0), why="a sample of tiles is not the whole"),
        Distribution(name="balanced", make=_balanced, strengths=(8.0, 4.0), why="a small tile is no small part"),
        Distribution(
            name="large", make=lambda b, c: c.strength * c.randn(b.shape), strengths=(3000.0, 200.0, 20.0, 5.0)
        ),
        Distribution(name="offset", make=_offset, strengths=(1000.0, 100.0, 10.0), why="unstable variances cancel"),
        Distribution(name="breakpoints", make=_breakpoints, strengths=(1e3, 30.0, 4.0), why="every branch is taken"),
        Distribution(name="sorted", make=_sorted, strengths=(3.0, 1.0), why="no part is like another"),
        Distribution(name="outlier-channels", make=_outlier_channels, strengths=(1000.0, 30.0)),
        Distribution(name="ties", make=_ties, why="equal values and constant rows"),
        Distribution(name="zero-slices", make=_zero_slices, why="norms of nothing"),
        Distribution(name="mixed", make=_mixed, strengths=(8.0, 1.0), why="the head does not tell the tail"),
        Distribution(name="keep-alive", make=_keep_alive, strengths=(0.05, 0.01), why="recurrences stay alive"),
        Distribution(name="cancellation", make=_cancellation, strengths=(1e5, 1e3, 30.0), why="lost low bits"),
        Distribution(name="aligned", make=_aligned, strengths=(8.0, 3.0, 1.0), why="attention picks single keys"),
        Distribution(name="redrawn-ids", make=_permuted, why="integers and rows in another arrangement"),
        Distribution(name="ragged", make=_permuted, why="groups of unequal size, empty ones among them"),
        Distribution(name="range-power", make=_range_power, strengths=(4.0,)),
        Distribution(name="range-rows", make=_range_rows),
        Distribution(name="permuted", make=_permuted),
    )
}
COARSE = Distribution(
    name="coarse", make=lambda b, c: (4 * c.randn(b.shape)).round() / 4, why="rounding to TF32 changes nothing"
)
RESERVE = ("range-power", "range-rows", "permuted")
"""Stand-ins that stay within the published range, for problems that accept nothing else."""
USUAL_BREAKPOINTS = (0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0, 88.0, 100.0)


def breakpoints_of(constants: tuple[float, ...]) -> tuple[float, ...]:
    """The usual turning points of activations and the constants of the problem's text, both signs."""
    points = {*USUAL_BREAKPOINTS, *(abs(c) for c in constants if math.isfinite(c) and abs(c) < 1e4)}
    return tuple(sorted({sign * p for p in points for sign in (1.0, -1.0)}))


def vary(
    base: list[torch.Tensor],
    distribution: Distribution,
    strength: float,
    generator: torch.Generator,
    breakpoints: tuple[float, ...],
    only: int | None = None,
    patterns: tuple[torch.Tensor | None, ...] = (),
) -> list[torch.Tensor]:
    """Inputs of a distribution, in the base tensors' dtypes; with `only`, one input is changed and the rest stay."""
    made: list[torch.Tensor] = []
    gains: dict[int, torch.Tensor] = {}
    for index, tensor in enumerate(base):
        if not tensor.is_floating_point() or (only is not None and index != only) or tensor.numel() == 0:
            made.append(tensor.clone())
            continue
        floats = tuple(t for t in made if t.is_floating_point())
        context = Context(generator=generator, strength=strength, breakpoints=breakpoints, others=floats, gains=gains)
        value = distribution.make(tensor.contiguous(), context)
        if patterns and patterns[index] is not None:
            value = torch.where(patterns[index], value, 0.0)  # type: ignore[arg-type]
        made.append(torch.empty_like(tensor).copy_(value))  # as the problem lays it out
    return made


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor (a clone is one) as a line that can be written, in the order of memory."""
    return torch.as_strided(tensor, (tensor.numel(),), (1,))


def zero_pattern(draws: list[torch.Tensor]) -> torch.Tensor | None:
    """Where the generator's draws are never zero, if the rest (over a tenth) is zero in every draw."""
    first = draws[0]
    if not first.is_floating_point() or first.numel() < 16 or any(d.shape != first.shape for d in draws):
        return None  # rows of jagged draws are of another number each time
    always = torch.stack([d == 0 for d in draws]).all(0)
    return ~always if 0.1 < float(always.double().mean()) < 0.999 else None


def redraw_integers(tensors: list[torch.Tensor], generator: torch.Generator, how: str) -> list[torch.Tensor]:
    """Integer inputs arranged anew: 'spread' redraws ids and rising sequences in range, 'ragged' keeps sums.

    Rows of a mask differ in how much of it is true; with 'ragged' one has nothing and one all.
    Only what adds up to a size of a floating input is taken for lengths of groups; ids must stay in range.
    """
    sizes = {size for tensor in tensors if tensor.is_floating_point() for size in tensor.shape}
    made = []
    for tensor in tensors:
        if tensor.dtype == torch.bool and tensor.ndim and tensor.numel() > 1:
            made.append(_redraw_mask(tensor, generator, how))
            continue
        if tensor.is_floating_point() or tensor.numel() < 2:
            made.append(tensor.clone())
            continue
        flat = tensor.flatten().long()
        rising = bool((flat[1:] >= flat[:-1]).all()) and int(flat[-1]) > int(flat[0])
        low, high = int(flat.min()), int(flat.max())
        if rising:
            inner = torch.randint(low, high + 1, (flat.numel(),), generator=generator).sort().values
            inner[0], inner[-1] = flat[0], flat[-1]
            new = _no_longer(inner, flat)
        elif how == "ragged" and int(flat.sum()) in sizes and low >= 0:
            total = int(flat.sum())
            cuts = torch.randint(0, total + 1, (flat.numel() - 1,), generator=generator).sort().values
            ends = torch.cat([torch.tensor([0]), cuts, torch.tensor([total])])
            new = ends[1:] - ends[:-1]
        else:
            new = torch.randint(low, high + 1, (flat.numel(),), generator=generator)
            new[: flat.numel() // 4] = new[0]  # duplicates
        made.append(new.to(tensor.dtype).view(tensor.shape))
    return made


def _no_longer(made: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """A rising sequence whose pieces are no longer than the longest given, where those differ: it may be a limit."""
    lengths, pieces = given.diff(), made.diff()
    longest = int(lengths.max())
    if int(lengths.min()) == longest or int(pieces.max()) <= longest:
        return made
    kept = pieces.clamp_max(longest)
    excess = int((pieces - kept).sum())
    room = (longest - kept).cumsum(0)  # filled from the first piece on
    filled = (room.clamp_max(excess)).diff(prepend=room.new_zeros(1))
    return torch.cat([made[:1], made[0] + (kept + filled).cumsum(0)])


def _redraw_mask(tensor: torch.Tensor, generator: torch.Generator, how: str) -> torch.Tensor:
    share = torch.rand((*tensor.shape[:-1], 1), generator=generator)
    mask = torch.rand(tensor.shape, generator=generator) < share
    rows = mask.view(-1, tensor.shape[-1])
    if how == "ragged":
        rows[0], rows[-1] = True, False
    else:
        rows[:, 0] = True
    return torch.empty_like(tensor).copy_(mask)
