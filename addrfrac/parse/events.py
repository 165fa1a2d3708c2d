"""Kineto's events as typed records, and the decoders that make them; fields that nobody reads stay undecoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

NOTHING = msgspec.Raw()
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]

OP, ANNOTATION, PYTHON, CALL = "op", "annotation", "python", "call"
KERNEL, MEMCPY, MEMSET = "kernel", "memcpy", "memset"
CATEGORIES: dict[str, str] = {
    "cpu_op": OP,
    "operator": OP,  # until 2022
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "hip_runtime": CALL,
    "hip_driver": CALL,
    "runtime": CALL,
    "kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
}
OTHER_ACCELERATOR = re.compile(r"^(xpu|mtia|hpu|glow|privateuse1)(_|$)")
MODULE_PREFIX = "nn.Module: "


class Event(msgspec.Struct, gc=False):
    """An event whose stamps fit a float64."""

    cat: str = ""
    name: str = ""
    pid: Whole | str = 0
    tid: Whole | str = 0
    ts: float = float("nan")
    dur: float = float("nan")
    args: msgspec.Raw = NOTHING


class LongEvent(msgspec.Struct, gc=False):
    """An event whose stamps must be read digit by digit."""

    cat: str = ""
    name: str = ""
    pid: Whole | str = 0
    tid: Whole | str = 0
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: msgspec.Raw = NOTHING


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of a runtime or driver call."""

    correlation: Whole = -1


class CollectiveArgs(msgspec.Struct, gc=False):
    """Arguments by which a launcher describes a collective."""

    collective: str = msgspec.field(default="", name="Collective name")
    group: str = msgspec.field(default="", name="Process Group Name")
    group_size: Whole = msgspec.field(default=-1, name="Group size")
    dtype: str = ""
    elements: Whole = msgspec.field(default=-1, name="In msg nelems")
    order: Whole = msgspec.field(default=-1, name="Seq")


class DeviceArgs(CollectiveArgs, gc=False):
    """Arguments of a kernel, copy or set."""

    correlation: Whole = -1
    device: Whole = -1
    stream: Whole = -1
    bytes: Whole = -1
    node: Whole = msgspec.field(default=-1, name="graph node id")


class FrameArgs(CollectiveArgs, gc=False):
    """Arguments of an op or annotation, less its inputs."""

    sequence: Whole = msgspec.field(default=-1, name="Sequence number")
    forward: Whole = msgspec.field(default=0, name="Fwd thread id")


class CheckedArgs(DeviceArgs, gc=False):
    """All arguments that any of the above reads."""

    sequence: Whole = msgspec.field(default=-1, name="Sequence number")
    forward: Whole = msgspec.field(default=0, name="Fwd thread id")


class CheckedEvent(msgspec.Struct, gc=False):
    """An event of which every field that is read has the type expected."""

    ph: str
    name: str
    cat: str = ""
    pid: Whole | str = 0
    tid: Whole | str = 0
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: CheckedArgs | None = None


AnyEvent = Event | LongEvent

# Not strict: a number may stand in quotes, as ROCm's recorder writes the bytes of a copy.
FLOAT_DECODER = msgspec.json.Decoder(list[Event], strict=False)
TEXT_DECODER = msgspec.json.Decoder(list[LongEvent], strict=False)
CHECKED_DECODER = msgspec.json.Decoder(CheckedEvent, strict=False)
CALL_ARGS = msgspec.json.Decoder(list[CallArgs], strict=False)
DEVICE_ARGS = msgspec.json.Decoder(list[DeviceArgs], strict=False)
FRAME_ARGS = msgspec.json.Decoder(list[FrameArgs], strict=False)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def args_text(events: Sequence[AnyEvent]) -> bytes:
    """The arguments of many events as one JSON list."""
    return b"[" + b",".join([event.args or b"{}" for event in events]) + b"]"


def decodes(fragment: bytes) -> bool:
    """Whether a single event decodes as it stands."""
    try:
        CHECKED_DECODER.decode(fragment)
    except UNREADABLE:
        return False
    return True
