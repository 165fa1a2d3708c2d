"""The one exception that a user can do something about, and other people's exceptions in a line."""

import re

_OUT_OF_MEMORY = re.compile(r"CUDA out of memory.*?Tried to allocate ([\d.]+ \w+).*?of which ([\d.]+ \w+) is free.*")


def brief(text: str) -> str:
    """The first line of an exception's text; of torch's long one on memory what was asked for and what was free."""
    first = next(iter(text.strip().splitlines()), "")
    return _OUT_OF_MEMORY.sub(r"out of memory, \1 asked for and \2 free", first)


class AddrfracError(Exception):
    """What was wrong and what to do, in one line; the command line prints it and exits with 1."""


class UnreadableTrace(AddrfracError):
    """A trace file from which no whole event could be read, or which is no trace at all."""


class OutOfDeviceMemory(AddrfracError):
    """The workload does not fit on the device at the asked configuration."""
