"""What no fixed pattern can say: all bags of a model into one launch. Each pass gives matches, as patterns do.

A pass is a row of `PASSES`: the name of the kernel that it needs and a function from a graph to matches and reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.fx

from addrfrac.substitution.patterns import Match
from addrfrac.substitution.pool import Kernel

Find = Callable[[torch.fx.Graph, Kernel], tuple[list[Match], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way of finding places for a kernel."""

    kernel: str
    """Name of the kernel that the places are for."""
    find: Find


PASSES: tuple[Pass, ...] = ()
