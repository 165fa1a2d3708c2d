"""Does a kernel do the work, and is it really faster? A target and a protocol in, a verdict out.

How the pieces fit, in the order that one verification goes through them:

- `sources` finds what to verify as text (nothing is imported); `protocols` says how, as data.
- `processes` starts `server`, which forks a worker for the reference and another for each candidate. A worker goes
  behind the layers of `isolation` first and then runs `worker`: load, build, call, hand back bytes over `channel`.
  Inputs lie in memory that the trusted side made and reads back; foreign code runs in `foreign.attempt` only.
- `exam` asks the reference's worker (`reference`) for all that a candidate will be asked: `inputs` (distributions),
  `parameters` (states), `probes`, `shapes`, gradients, each with its fp64 truth and, from `closeness`, what honest
  computation misses it by in each precision class. `decoys` says whether the problem can tell anything at all.
- `examine` puts a `candidate` through that exam, trial by trial, with `schema`, `tripwires` and `evidence`.
- `verdict` makes a status, labels and a credit line of the findings; `check` is the whole of it for one target.
- `inprocess` runs the published protocols as their harnesses have it, for comparison.
- `clock` and `speed` time what passed, on a GPU.
- `self_test` runs the `fixtures` (planted faults and honest kernels) and `mutants`; `corpora` the honest kernels of
  others.
- `side_by_side` sets one kernel's verdicts under several protocols beside each other; `render` and `page` show them.

A missing message, an exception, a timeout, an exit or a check that did not run is a failure with its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from addrfrac.verification.api import check_kernel as check_kernel
    from addrfrac.verification.api import verify as verify
    from addrfrac.verification.corpora import with_corpora as with_corpora
    from addrfrac.verification.page import page_of as page_of
    from addrfrac.verification.page import section as section
    from addrfrac.verification.page import write_page as write_page
    from addrfrac.verification.protocols import PROTOCOLS as PROTOCOLS
    from addrfrac.verification.render import render_terminal as render_terminal
    from addrfrac.verification.self_test import selftest as selftest
    from addrfrac.verification.side_by_side import by_case as by_case
    from addrfrac.verification.sources import pair as pair
    from addrfrac.verification.sources import pairs as pairs
    from addrfrac.verification.store import encode as encode
    from addrfrac.verification.store import load as load
    from addrfrac.verification.store import save as save

_EXPORTS = {
    "PROTOCOLS": "protocols",
    "by_case": "side_by_side",
    "encode": "store",
    "page_of": "page",
    "pairs": "sources",
    "with_corpora": "corpora",
    "check_kernel": "api",
    "verify": "api",
    "section": "page",
    "write_page": "page",
    "render_terminal": "render",
    "selftest": "self_test",
    "pair": "sources",
    "load": "store",
    "save": "store",
}


def __getattr__(name: str) -> Any:
    """Exports are loaded at first use: torch is not imported before something is verified."""
    if name in _EXPORTS:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
