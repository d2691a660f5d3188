"""The protobuf wire format: numbers, tags, lengths, and skipping unknown fields; `protobuf.py` interprets it.

Every read is checked against the end of its message, so that no input can make it read outside. The error texts are
those of Kubernetes' generated decoders, since clients see them.
"""

from __future__ import annotations

import struct

from remuda.kube.encoding import varints

VARINT = 0
FIXED64 = 1
BYTES = 2
GROUP_END = 4

_MAX_LENGTH = 0x7FFF_FFFF
_MAX_FIELD_NUMBER = 0x1FFF_FFFF


class ProtobufError(ValueError):
    """Bytes that are no message of the expected kind."""


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """An unsigned 64-bit number and the position after it."""
    try:
        value, after = varints.read_varint(data, position)
    except IndexError:
        raise ProtobufError("unexpected EOF") from None
    except varints.TooLong:
        cut = position + varints.LONGEST > end
        raise ProtobufError("unexpected EOF" if cut else "proto: integer overflow") from None
    if after > end:
        raise ProtobufError("unexpected EOF")
    return value & varints.WORD, after


def read_tag(data: bytes, position: int, end: int, message: str) -> tuple[int, int, int]:
    """Field number, wire type, and the position after the tag."""
    tag, position = read_varint(data, position, end)
    number, wire = tag >> 3, tag & 7
    if wire == GROUP_END:
        raise ProtobufError(f"proto: {message}: wiretype end group for non-group")
    if not 0 < number <= _MAX_FIELD_NUMBER:
        raise ProtobufError(f"proto: {message}: illegal tag {number} (wire type {tag})")
    return number, wire, position


def read_length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start and end of a length-delimited value."""
    length, position = read_varint(data, position, end)
    if length > _MAX_LENGTH:
        raise ProtobufError("proto: negative length found during unmarshaling")
    if position + length > end:
        raise ProtobufError("unexpected EOF")
    return position, position + length


def read_double(data: bytes, position: int, end: int) -> tuple[float, int]:
    """A 64-bit float and the position after it."""
    if position + 8 > end:
        raise ProtobufError("unexpected EOF")
    (value,) = struct.unpack_from("<d", data, position)
    return float(value), position + 8


def skip(data: bytes, position: int, end: int, wire: int) -> int:
    """The position after an unknown value of this wire type; groups may nest."""
    open_groups = 0
    while True:
        position, open_groups = _skip_one(data, position, end, wire, open_groups)
        if open_groups == 0:
            return position
        tag, position = read_varint(data, position, end)
        wire = tag & 7


def _skip_one(data: bytes, position: int, end: int, wire: int, open_groups: int) -> tuple[int, int]:
    match wire:
        case 0:
            _, position = read_varint(data, position, end)
        case 1 | 5:
            position += 8 if wire == FIXED64 else 4
            if position > end:
                raise ProtobufError("unexpected EOF")
        case 2:
            _, position = read_length(data, position, end)
        case 3:
            open_groups += 1
        case 4:
            open_groups -= 1
        case _:
            raise ProtobufError(f"proto: illegal wireType {wire}")
    return position, open_groups


def signed64(value: int) -> int:
    """A varint as Go's int64."""
    return value - (1 << 64) if value >> 63 else value


def signed32(value: int) -> int:
    """A varint as Go's int32: the low half."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value
