"""The arguments of many ops as JSON text in, for each the number of its recorded inputs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from addrfrac.parse.columns import Interner

NOTHING = msgspec.Raw()
KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
PART_OF_KEYS = b"nput"
"""Found outside the stretch it tells that the stretch may not hold all four."""
NONE, IRREGULAR = -1, -2


class InputTexts(msgspec.Struct, gc=False):
    """The four texts that describe an op's inputs."""

    dims: msgspec.Raw = msgspec.field(default=NOTHING, name=KEYS[0])
    types: msgspec.Raw = msgspec.field(default=NOTHING, name=KEYS[1])
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name=KEYS[2])
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name=KEYS[3])


TEXTS_DECODER = msgspec.json.Decoder(InputTexts)
KEYS_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True)
class InputReader:
    """Numbers recorded inputs by the stretch of text that holds them, so that few ops are decoded.

    A recorder writes the four keys side by side and in one order; the ids around them differ from op to op.
    """

    inputs: Interner
    known: dict[bytes, int] = field(default_factory=dict)
    """Stretch -> number; IRREGULAR where the stretch does not hold it all."""
    first: bytes = b""
    """The key that opens the stretch; empty until an op with inputs was seen."""
    after: bytes = b""
    """The key that follows it; empty where the stretch reaches to the end."""

    def numbers(self, args: Sequence[msgspec.Raw]) -> list[int]:
        """For each op the number of its inputs; NONE where none were recorded."""
        texts = [bytes(arg) for arg in args]
        if not self.first and not any(self._learn(text) for text in texts):
            return [NONE] * len(texts)
        known, first, after = self.known, self.first, self.after
        found: list[int] = []
        for text in texts:
            begin = text.find(first)
            end = text.rfind(after) if after else len(text) - 1
            if begin < 0 or text.find(PART_OF_KEYS, 0, begin) >= 0 or text.find(PART_OF_KEYS, end) >= 0:
                found.append(self._decoded(text))
                continue
            stretch = text[begin:end]
            number = known.get(stretch)
            if number is None:
                number = self._new(stretch)
            found.append(number if number != IRREGULAR else self._decoded(text))
        return found

    def _learn(self, text: bytes) -> bool:
        """Where the four keys stand; False for an op without inputs."""
        if b'"Input Dims"' not in text:
            return False
        keys = list(KEYS_DECODER.decode(text))
        places = [place for place, key in enumerate(keys) if key in KEYS]
        following = keys[places[-1] + 1 :]
        self.first = f'"{keys[places[0]]}"'.encode()
        self.after = f'"{following[0]}"'.encode() if following else b""
        return True

    def _new(self, stretch: bytes) -> int:
        """The number of a stretch seen for the first time."""
        try:
            texts = TEXTS_DECODER.decode(b"{" + stretch.rstrip(b", \t\r\n") + b"}")
        except msgspec.DecodeError:
            number = IRREGULAR
        else:
            number = self._number(texts) if texts.dims is not NOTHING else IRREGULAR
        self.known[stretch] = number
        return number

    def _decoded(self, text: bytes) -> int:
        """The number of inputs that stand where no other op has them."""
        if b'"Input Dims"' not in text:
            return NONE
        texts = TEXTS_DECODER.decode(text)
        return self._number(texts) if texts.dims is not NOTHING else NONE

    def _number(self, texts: InputTexts) -> int:
        return self.inputs.id_of((bytes(texts.dims), bytes(texts.types), bytes(texts.strides), bytes(texts.concrete)))
