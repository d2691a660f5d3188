"""Codec of remotedialer's messages (docs/reference/tunnel.md#messages).

A message is one binary websocket message: `id · stream · kind · [deadline] · body`, the numbers Go's signed varints. Readers
ignore the id, and also the deadline, which must still be present for Data and Connect. This module knows no sockets;
:mod:`.session` gives the messages their meaning.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from remuda.kube.encoding import varints

from .errors import FrameError


class Kind(IntEnum):
    DATA = 1
    CONNECT = 2
    ERROR = 3
    ADD_CLIENT = 4
    REMOVE_CLIENT = 5
    PAUSE = 6
    RESUME = 7
    SYNC_CONNECTIONS = 8
    # Ours only; Go ignores it. The server will end: the client opens another session beside this one.
    GOING_AWAY = 64


# The part of a body that the Go side reads; it silently cuts longer ones.
LONGEST_CONNECT = 266
LONGEST_ERROR = 100
# Between servers, which are ours on both sides: a cluster's name may have 253 characters, and so may a host's.
LONGEST_CLIENT = 320
LONGEST_RELAYED = 600
# Between a client's key and the network, in a Connect for a client of another server.
RELAY = "::"

EOF = "EOF"

_WORD = 1 << 64
_DEADLINE = b"\xb0\xea\x01"  # 15,000 ms, a constant since it lost its meaning
_ID_BYTES = 8


class Message(NamedTuple):
    """One message. `kind` is a plain number, since unknown kinds are ignored, not refused."""

    id: int
    stream: int
    kind: int
    body: memoryview


def varint(number: int) -> bytes:
    """A signed 64-bit number, zig-zag, seven bits a byte, lowest first."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} does not fit into 64 bits")
    return varints.write_varint((number << 1) ^ (number >> 63))


def read_varint(raw: memoryview, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and the position after it."""
    try:
        value, after = varints.read_varint(raw, at)
    except IndexError:
        raise FrameError("a message ends within a number") from None
    except varints.TooLong:
        value, after = _WORD, at
    if value >= _WORD:
        raise FrameError("a message holds a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), after


def encode(number: int, stream: int, kind: int, body: bytes = b"") -> bytes:
    """One message as bytes. `number` is its id, which wraps as Go's does."""
    head = varint((number + (1 << 63)) % _WORD - (1 << 63)) + varint(stream) + varint(kind)
    if kind in (Kind.DATA, Kind.CONNECT):
        return b"".join((head, _DEADLINE, body))
    return head + body


def decode(raw: bytes) -> Message:
    """The message in `raw`; its body is a view, not a copy."""
    view = memoryview(raw)
    number, at = read_varint(view, 0)
    stream, at = read_varint(view, at)
    kind, at = read_varint(view, at)
    if kind in (Kind.DATA, Kind.CONNECT):
        _, at = read_varint(view, at)
    return Message(number, stream, kind, view[at:])


def connect_body(network: str, address: str) -> bytes:
    """The body of a Connect. Too long an address is an error here, because the other side would dial a cut one."""
    if "/" in network:
        raise ValueError(f"a network has no slash in its name: {network!r}")
    body = f"{network}/{address}".encode()
    longest = LONGEST_RELAYED if RELAY in network else LONGEST_CONNECT
    if len(body) > longest:
        raise ValueError(f"the address is longer than the {longest} bytes that the protocol carries: {address[:80]}…")
    return body


def read_connect(body: memoryview) -> tuple[str, str]:
    """(network, address) of a Connect."""
    network, slash, address = _text(body, LONGEST_RELAYED).partition("/")
    if not slash:
        raise FrameError("failed to parse connect address")
    return network, address


def error_body(text: str) -> bytes:
    """The body of an Error, no longer than the other side reads, and never cut within a character."""
    return text.encode("utf-8", "replace")[:LONGEST_ERROR].decode("utf-8", "ignore").encode()


def read_error(body: memoryview) -> str:
    return _text(body, LONGEST_ERROR)


def client_body(key: str, session: int) -> bytes:
    """The body that announces a client to another server, or withdraws it."""
    return f"{key}/{session}".encode()


def read_client(body: memoryview) -> tuple[str, int]:
    """(client key, session key) that a peer announces or withdraws."""
    text = _text(body, LONGEST_CLIENT)
    key, slash, session = text.partition("/")
    sign, digits = (session[0], session[1:]) if session[:1] in ("-", "+") else ("", session)
    if not slash or not (digits.isascii() and digits.isdigit()):
        raise FrameError(f"invalid remote Session {text!r}")
    return key, int(sign + digits)


def sync_body(streams: list[int]) -> bytes:
    """The ids of all live streams, in order."""
    return b"".join((stream % _WORD).to_bytes(_ID_BYTES, "little") for stream in sorted(streams))


def read_sync(body: memoryview) -> frozenset[int]:
    if len(body) % _ID_BYTES:
        raise FrameError("decoding sync connections payload: incorrect data format")
    starts = range(0, len(body), _ID_BYTES)
    return frozenset(int.from_bytes(body[at : at + _ID_BYTES], "little", signed=True) for at in starts)


def _text(body: memoryview, longest: int) -> str:
    return bytes(body[:longest]).decode("utf-8", "replace")
