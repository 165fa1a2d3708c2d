"""What is being done right now, on stderr; results stay on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable


def progress(quiet: bool) -> Callable[[str], None]:
    """A function to call with each new stage: a spinner in a terminal, plain lines in a log, nothing when quiet."""
    if quiet:
        return lambda stage: None
    if not sys.stderr.isatty():
        return lambda stage: print(f"… {stage}", file=sys.stderr, flush=True)
    import atexit

    from rich.console import Console

    status = Console(stderr=True).status("starting")
    status.start()
    atexit.register(status.stop)
    return status.update
