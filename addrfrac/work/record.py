"""What one op call must move and compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from addrfrac.work.tensors import Argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Bytes and flops of one op call, whatever kernels it launches."""

    low_bytes: float
    """That no implementation can avoid: each input read once, each output written once."""
    high_bytes: float
    """The same where shapes leave open how much is read (rows of a table, masks, a second pass)."""
    access: str
    """Which of a device model's fits applies: 'stream', 'write', 'gather', 'reduce' or 'transpose'."""
    basis: str
    """In words: how it was counted."""
    low_flops: float = 0.0
    high_flops: float = 0.0
    dtype: str = ""
    """Of the matrix units: 'bf16', 'fp16', 'fp32', 'fp8', 'fp64'; '' without a product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a call besides its op's arguments."""

    kernels: tuple[str, ...] = ()
    """Names of the kernels it launched: they tell the element type of lists of tensors."""
    distinct_row_share: float | None = None
    """Distinct rows / ids, in an embedding's captured indices."""
    expert_share: float | None = None
    """Share of a mixture's experts that got any token."""
    parameters: int | None = None
    """Of the model."""
    allows_tf32: bool | None = None
    """Whether fp32 products may run in TF32; None where the trace does not tell."""


Rule = Callable[[Sequence[Argument], Facts], Work | None]
"""None where the arguments do not tell."""
