"""Numbers of as many bytes as they need: seven bits a byte, lowest first, the eighth says that there is more.

Protocol buffers have them, and so have the tunnel's messages. Readers differ in what they say of those that are no numbers, and
in what they make of more than 64 bits, so both are theirs to say.
"""

from __future__ import annotations

# The most bytes that 64 bits take.
LONGEST = 10
WORD = 0xFFFF_FFFF_FFFF_FFFF

_BITS = 7 * LONGEST
_SMALL = [bytes([value]) for value in range(0x80)]


class TooLong(ValueError):
    """It goes on after as many bytes as any number takes."""

    def __init__(self) -> None:
        super().__init__("a number is beyond 64 bits")


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number that begins at `at`, of up to 70 bits, and where what follows begins. Raises IndexError where `data` ends within
    it, and TooLong."""
    value = shift = 0
    while shift < _BITS:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    raise TooLong


def write_varint(value: int) -> bytes:
    """A number that is not negative, or, as protocol buffers have it, one that is: as if it were of 64 bits."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= WORD
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
