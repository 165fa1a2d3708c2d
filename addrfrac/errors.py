"""The one exception that a user can do something about."""


class AddrfracError(Exception):
    """What was wrong and what to do, in one line; the command line prints it and exits with 1."""


class UnreadableTrace(AddrfracError):
    """A trace file from which no whole event could be read, or which is no trace at all."""


class OutOfDeviceMemory(AddrfracError):
    """The workload does not fit on the device at the asked configuration."""
