"""etcd's messages, as values. :mod:`.rpc` says how they go over the wire; some come from its JSON gateway.

There bytes are base64, 64-bit numbers are texts, and whatever is zero is left out. msgspec reads all three as they are meant.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# What reading an answer of the gateway may raise: it is no JSON, or not ours, or not even text, or has no end of brackets.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Header(msgspec.Struct, gc=False):
    revision: int = 0


class WireKeyValue(msgspec.Struct, gc=False):
    key: bytes
    create_revision: int = 0
    mod_revision: int = 0
    value: bytes = b""
    lease: int = 0


class RangeAnswer(msgspec.Struct, gc=False):
    header: Header = msgspec.field(default_factory=Header)
    kvs: list[WireKeyValue] = []
    more: bool = False
    count: int = 0


class PutAnswer(msgspec.Struct, gc=False):
    header: Header


class OpAnswer(msgspec.Struct, gc=False):
    response_range: RangeAnswer | None = None


class TxnAnswer(msgspec.Struct, gc=False):
    header: Header
    succeeded: bool = False
    responses: list[OpAnswer] = []


class WireEvent(msgspec.Struct, gc=False):
    kv: WireKeyValue
    type: str = "PUT"
    prev_kv: WireKeyValue | None = None


class WatchResult(msgspec.Struct, gc=False):
    header: Header = msgspec.field(default_factory=Header)
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[WireEvent] = []


class GatewayError(msgspec.Struct, gc=False):
    """`code` is gRPC's; a stream that breaks calls it `grpc_code`."""

    code: int = 2
    grpc_code: int = 0
    message: str = ""
    error: str = ""


class LeaseAnswer(msgspec.Struct, gc=False):
    id: int = msgspec.field(name="ID", default=0)
    ttl: int = msgspec.field(name="TTL", default=0)


class VersionAnswer(msgspec.Struct, gc=False):
    etcdserver: str = ""


class Empty(msgspec.Struct, gc=False):
    pass


# 64 bits, in decimal.
_LONGEST_NUMBER = 20


def number(text: bytes) -> int:
    """A revision that was noted as a value; 0 when it is none."""
    return int(text) if text.isdigit() and len(text) <= _LONGEST_NUMBER else 0


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return found


def encode(message: Any) -> bytes:
    return msgspec.json.encode(message)
