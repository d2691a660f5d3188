"""Integers of variable length: seven bits a byte, lowest first, the eighth bit marks that more follow.

Protocol buffers and the tunnel's messages use them. Readers differ in their errors for invalid numbers, and
in their handling of more than 64 bits, so both are left to them.
"""

from __future__ import annotations

# The most bytes that 64 bits take.
LONGEST = 10
WORD = 0xFFFF_FFFF_FFFF_FFFF

_BITS = 7 * LONGEST
_SMALL = [bytes([value]) for value in range(0x80)]


class TooLong(ValueError):
    """The number is longer than any valid one."""

    def __init__(self) -> None:
        super().__init__("a number is beyond 64 bits")


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, of up to 70 bits, and the position after it. Raises IndexError where `data` ends within
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
    """A non-negative number or, as in protocol buffers, a negative one in 64 bits."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= WORD
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
