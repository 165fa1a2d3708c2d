"""Messages and tensors between processes: JSON text and raw bytes, never pickled objects.

Inputs travel in an `Arena`, shared memory that the trusted side made, sealed against resizing and can read back at
any time: what a candidate does to its inputs is seen in the bytes, whatever its process says. Outputs come back as
bytes in a memory file of the sender's, copied out with `pread` (a mapping could be pulled from under the reader).
"""

from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import secrets
import select
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

GUARD_BYTES = 512
GUARD_PATTERN = b"\xff"
"""NaN in every floating format; read as a neighbour it poisons the result."""
MAX_MESSAGE_BYTES = 190_000
_SEALS = 0x0001 | 0x0002 | 0x0004  # seal, shrink, grow: nobody can truncate what the trusted side maps
_ADD_SEALS = 1033


class ChannelError(Exception):
    """The other side closed, sent something malformed, or stayed silent."""


class ChannelClosed(ChannelError):
    """The other side is gone."""


class ChannelTimeout(ChannelError):
    """No message before the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where in a memory file a tensor's elements lie."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int
    """Bytes from the start to the lowest element."""
    span: int
    """Bytes from the lowest element to the end of the highest."""


DTYPES: dict[str, torch.dtype] = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}


def dtype_name(dtype: torch.dtype) -> str:
    """'float32' for torch.float32."""
    return str(dtype).removeprefix("torch.")


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message and descriptors with it."""
    body = json.dumps(message).encode()
    if len(body) > MAX_MESSAGE_BYTES:
        raise ChannelError(f"message of {len(body)} bytes is too long")
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([body], ancillary)
    except OSError as error:
        raise ChannelClosed(str(error)) from error


def receive(sock: socket.socket, timeout_s: float | None = None) -> tuple[bytes, list[int]]:
    """The next message as bytes, and the descriptors that came with it."""
    if timeout_s is not None and not select.select([sock], [], [], max(0.0, timeout_s))[0]:
        raise ChannelTimeout(f"no message in {timeout_s:.1f} s")
    fds = array.array("i")
    try:
        body, ancillary, _flags, _address = sock.recvmsg(MAX_MESSAGE_BYTES + 1000, socket.CMSG_LEN(8 * fds.itemsize))
    except OSError as error:
        raise ChannelClosed(str(error)) from error
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not body:
        for fd in fds:
            os.close(fd)
        raise ChannelClosed("end of file")
    return body, list(fds)


def memory_file(size: int, *, sealed: bool) -> int:
    """A descriptor of `size` zero bytes of shared memory."""
    fd = os.memfd_create("m" + secrets.token_hex(4), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if sealed:
        fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
    return fd


def write_all(fd: int, data: Any, offset: int) -> None:
    """Write a buffer at an offset, whole."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        written = os.pwrite(fd, view[: 1 << 30], offset)
        view, offset = view[written:], offset + written


def read_all(fd: int, size: int, offset: int) -> bytearray:
    """Read exactly `size` bytes."""
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        count = os.preadv(fd, [view[done : done + (1 << 30)]], offset + done)
        if count <= 0:
            raise ChannelError(f"wanted {size} bytes, got {done}")
        done += count
    return data


def span_of(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last (strides are never negative)."""
    if tensor.numel() == 0:
        return 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def misalignment(tensor: torch.Tensor) -> int:
    """Bytes by which a tensor misses the 64-byte grid within its storage."""
    return int(tensor.storage_offset()) * tensor.element_size() % 64


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor less what it repeats without memory: of a dimension of stride 0 the first index."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def from_bytes(data: Any, slot: Slot, offset: int = 0) -> torch.Tensor:
    """A tensor over a buffer, laid out as its slot says."""
    dtype = DTYPES[slot.dtype]
    itemsize = torch.empty((), dtype=dtype).element_size()
    if slot.span == 0:
        return torch.empty(slot.shape, dtype=dtype)
    flat = torch.frombuffer(data, dtype=torch.uint8, count=slot.span, offset=offset)
    return flat.view(dtype).as_strided(slot.shape, slot.strides) if itemsize else flat


def pack(tensors: list[torch.Tensor]) -> tuple[int, list[dict[str, Any]]]:
    """A memory file of the sender's with the tensors' bytes, and where each lies."""
    slots, offset, parts = [], 0, []
    for tensor in tensors:
        tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
        span = span_of(tensor)
        flat = torch.as_strided(tensor, (span // max(1, tensor.element_size()),), (1,)) if span else tensor.flatten()
        slots.append(
            asdict(
                Slot(
                    shape=tuple(tensor.shape),
                    strides=tuple(tensor.stride()),
                    dtype=dtype_name(tensor.dtype),
                    offset=offset,
                    span=span,
                )
            )
        )
        parts.append((offset, flat))
        offset += (span + 63) // 64 * 64
    fd = memory_file(max(offset, 1), sealed=False)
    for start, flat in parts:
        if flat.numel():
            write_all(fd, flat.contiguous().view(torch.uint8).numpy(), start)
    return fd, slots


def unpack(fd: int, slots: list[dict[str, Any]], limit_bytes: int = 1 << 36) -> list[torch.Tensor]:
    """The tensors of a memory file that another process sent, copied out; the descriptor is closed."""
    try:
        tensors = []
        for raw in slots:
            slot = checked_slot(raw, limit_bytes)
            tensors.append(from_bytes(read_all(fd, slot.span, slot.offset), slot))
        return tensors
    finally:
        os.close(fd)


def checked_slot(raw: dict[str, Any], limit_bytes: int) -> Slot:
    """A slot from untrusted JSON: sizes that fit together and a known dtype, or an error."""
    try:
        slot = Slot(
            shape=tuple(int(n) for n in raw["shape"]),
            strides=tuple(int(n) for n in raw["strides"]),
            dtype=str(raw["dtype"]),
            offset=int(raw["offset"]),
            span=int(raw["span"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ChannelError(f"malformed slot: {error}") from error
    if slot.dtype not in DTYPES or len(slot.shape) != len(slot.strides) or min((*slot.shape, *slot.strides, 0)) < 0:
        raise ChannelError("malformed slot")
    numel = 1
    for n in slot.shape:
        numel *= n
    itemsize = torch.empty((), dtype=DTYPES[slot.dtype]).element_size()
    reach = sum((n - 1) * s for n, s in zip(slot.shape, slot.strides, strict=True)) + 1 if numel else 0
    if reach * itemsize != slot.span or slot.span > limit_bytes or slot.offset < 0:
        raise ChannelError("slot and span disagree")
    return slot


class Arena:
    """Shared memory of the trusted side that holds one set of inputs, each between guard bands."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.slots: list[Slot] = []
        offset = GUARD_BYTES
        for tensor in tensors:
            span = span_of(tensor)
            start = offset + misalignment(tensor)
            self.slots.append(
                Slot(
                    shape=tuple(tensor.shape),
                    strides=tuple(tensor.stride()),
                    dtype=dtype_name(tensor.dtype),
                    offset=start,
                    span=span,
                )
            )
            offset = (start + span + 63) // 64 * 64 + GUARD_BYTES
        self.size = offset
        self.fd = memory_file(self.size, sealed=True)
        self.map = mmap.mmap(self.fd, self.size)
        self.map[:] = GUARD_PATTERN * self.size
        self.tensors = [from_bytes(self.map, slot, slot.offset) for slot in self.slots]
        self.key = secrets.token_hex(6)
        self.write(tensors)

    def write(self, tensors: list[torch.Tensor]) -> None:
        """New content in the same storage; no version counter moves in any process."""
        for mine, theirs in zip(self.tensors, tensors, strict=True):
            if mine.numel():
                distinct(mine).copy_(distinct(theirs))
        self.expected = self.digest()

    def digest(self) -> bytes:
        """All bytes as they are now, guard bands included."""
        return bytes(self.map)

    def changed(self) -> list[int]:
        """Inputs whose bytes differ from what was written last; -1 for a guard band."""
        now = self.digest()
        if now == self.expected:
            return []
        found = []
        for index, slot in enumerate(self.slots):
            part = slice(slot.offset, slot.offset + slot.span)
            if now[part] != self.expected[part]:
                found.append(index)
        return found or [-1]

    def guards_changed(self) -> bool:
        """Whether anything was written between or around the inputs."""
        now, position = self.digest(), 0
        for slot in self.slots:
            if now[position : slot.offset] != self.expected[position : slot.offset]:
                return True
            position = slot.offset + slot.span
        return now[position:] != self.expected[position:]

    def describe(self) -> dict[str, Any]:
        """What the other side needs to map it."""
        return {"key": self.key, "size": self.size, "slots": [asdict(slot) for slot in self.slots]}

    def close(self) -> None:
        """Drop the descriptor; mappings live on until their tensors go."""
        os.close(self.fd)


def map_arena(description: dict[str, Any], fd: int) -> list[torch.Tensor]:
    """The other side's view of an arena: tensors with storages of their own over the shared bytes."""
    shared = mmap.mmap(fd, int(description["size"]))
    os.close(fd)
    return [
        from_bytes(shared, slot, slot.offset)
        for slot in (
            Slot(
                shape=tuple(raw["shape"]),
                strides=tuple(raw["strides"]),
                dtype=raw["dtype"],
                offset=raw["offset"],
                span=raw["span"],
            )
            for raw in description["slots"]
        )
    ]


def deadline_after(seconds: float) -> float:
    """A moment on the trusted clock."""
    return time.monotonic() + seconds
