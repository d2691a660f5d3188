"""The calls to etcd: their messages, and the part of protocol buffers that etcd's messages use.

A message is a table. One for writing (:class:`Outgoing`) maps a field's name to its number and kind; one for reading
(:class:`Incoming`) maps a field's tag to the place of its value, and skips the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from remuda.kube.encoding.varints import WORD, read_varint, write_varint

from ..store import StoreError

Obj = Mapping[str, Any]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# --- writing ----------------------------------------------------------------------------------------------------------------


class Outgoing:
    """A message for writing. `fields`: number and kind by name, where a kind is a type, the names of an enumeration, or a
    message; one in brackets is repeated."""

    def __init__(self, **fields: tuple[int, Any]) -> None:
        self._fields = {name: (number, _writer(number, kind)) for name, (number, kind) in fields.items()}

    def encode(self, message: Obj) -> bytes:
        out = bytearray()
        self.write(out, message)
        return bytes(out)

    def write(self, out: bytearray, message: Obj) -> None:
        fields = self._fields
        for name, value in message.items():
            fields[name][1](out, value)


_Writer = Callable[[bytearray, Any], None]


def _writer(number: int, kind: Any) -> _Writer:
    if isinstance(kind, list):
        once = _writer(number, kind[0])

        def each(out: bytearray, values: Any) -> None:
            for value in values:
                once(out, value)

        return each
    if isinstance(kind, Outgoing):
        return _message_writer(write_varint(number << 3 | _BYTES), kind)
    if kind is bytes:
        return _bytes_writer(write_varint(number << 3 | _BYTES))
    return _number_writer(write_varint(number << 3 | _VARINT), kind if isinstance(kind, dict) else None)


def _message_writer(tag: bytes, kind: Outgoing) -> _Writer:
    def write(out: bytearray, value: Obj) -> None:
        inner = bytearray()
        kind.write(inner, value)
        out += tag
        out += write_varint(len(inner))
        out += inner

    return write


def _bytes_writer(tag: bytes) -> _Writer:
    def write(out: bytearray, value: bytes) -> None:
        out += tag
        out += write_varint(len(value))
        out += value

    return write


def _number_writer(tag: bytes, names: Mapping[str, int] | None) -> _Writer:
    def write(out: bytearray, value: Any) -> None:
        out += tag
        out += write_varint(int(value) if names is None else names[value])

    return write


# --- reading ----------------------------------------------------------------------------------------------------------------


class Incoming:
    """A message for reading: `make` an empty one; then the function of each field, by number."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        numbers: Mapping[int, str] = {},
        identifiers: Mapping[int, str] = {},
        flags: Mapping[int, str] = {},
        data: Mapping[int, str] = {},
        texts: Mapping[int, str] = {},
        text_lists: Mapping[int, str] = {},
        messages: Mapping[int, tuple[str, Incoming]] = {},
        lists: Mapping[int, tuple[str, Incoming]] = {},
        choices: Mapping[int, tuple[str, tuple[str, ...]]] = {},
    ) -> None:
        self._make = make
        self._numbers = {number << 3: name for number, name in numbers.items()}
        # Without a sign.
        self._identifiers = {number << 3: name for number, name in identifiers.items()}
        self._flags = {number << 3: name for number, name in flags.items()}
        self._choices = {number << 3: found for number, found in choices.items()}
        self._data = {number << 3 | _BYTES: name for number, name in data.items()}
        self._texts = {number << 3 | _BYTES: name for number, name in texts.items()}
        self._text_lists = {number << 3 | _BYTES: name for number, name in text_lists.items()}
        self._messages = {number << 3 | _BYTES: found for number, found in messages.items()}
        self._lists = {number << 3 | _BYTES: found for number, found in lists.items()}

    def decode(self, data: bytes) -> Any:
        """Raises ValueError."""
        try:
            return self._read(data, 0, len(data))
        except IndexError:
            raise ValueError("a message is cut off") from None

    def _read(self, data: bytes, at: int, end: int) -> Any:
        made = self._make()
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1)
            kind = tag & 7
            if kind == _BYTES:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = read_varint(data, at - 1)
                after = at + size
                if after > end:
                    raise ValueError("a message is cut off")
                if name := self._data.get(tag):
                    setattr(made, name, data[at:after])
                elif found := self._lists.get(tag):
                    getattr(made, found[0]).append(found[1]._read(data, at, after))
                elif found := self._messages.get(tag):
                    setattr(made, found[0], found[1]._read(data, at, after))
                elif name := self._texts.get(tag):
                    setattr(made, name, data[at:after].decode(errors="replace"))
                elif name := self._text_lists.get(tag):
                    getattr(made, name).append(data[at:after].decode(errors="replace"))
                at = after
            elif kind == _VARINT:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = read_varint(data, at - 1)
                    value &= WORD
                self._number(made, tag, value)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(f"a message has a field of kind {kind}")
        if at != end:
            raise ValueError("a message is cut off")
        return made

    def _number(self, made: Any, tag: int, value: int) -> None:
        if name := self._numbers.get(tag):
            setattr(made, name, value - (1 << 64) if value >= 1 << 63 else value)
        elif name := self._identifiers.get(tag):
            setattr(made, name, value)
        elif name := self._flags.get(tag):
            setattr(made, name, value != 0)
        elif choice := self._choices.get(tag):
            if value >= len(choice[1]):
                raise ValueError(f"{choice[0]} is {value}, which there is not")
            setattr(made, choice[0], choice[1][value])


# --- messages -------------------------------------------------------------------------------------------------------------
#
# etcd's messages, as values. Methods below encode and decode them.


class Header(msgspec.Struct, gc=False):
    member_id: int = 0
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


class LeaseAnswer(msgspec.Struct, gc=False):
    id: int = 0
    ttl: int = 0


class Status(msgspec.Struct, gc=False):
    """A member's own view; `errors` are its alarms, and a missing leader."""

    header: Header = msgspec.field(default_factory=Header)
    version: str = ""
    leader: int = 0
    is_learner: bool = False
    errors: list[str] = []

    @property
    def leads(self) -> bool:
        return self.leader != 0 and self.leader == self.header.member_id


class Empty(msgspec.Struct, gc=False):
    pass


# 64 bits, in decimal.
_LONGEST_NUMBER = 20


def number(text: bytes) -> int:
    """A revision that was noted as a value; 0 when it is none."""
    return int(text) if text.isdigit() and len(text) <= _LONGEST_NUMBER else 0


# --- rpc ------------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class Method(Generic[T]):
    """One of etcd's calls."""

    def __init__(self, name: str, request: Outgoing, kind: type[T], answer: Incoming) -> None:
        self.path = f"/etcdserverpb.{name}"
        self.encode = request.encode
        self._answer = answer

    def decode(self, message: bytes) -> T:
        """Raises ValueError."""
        found: T = self._answer.decode(message)
        return found


_RESULTS = {"EQUAL": 0, "GREATER": 1, "LESS": 2, "NOT_EQUAL": 3}
_TARGETS = {"VERSION": 0, "CREATE": 1, "MOD": 2, "VALUE": 3, "LEASE": 4}

_RANGE = Outgoing(
    key=(1, bytes), range_end=(2, bytes), limit=(3, int), revision=(4, int), keys_only=(8, bool), count_only=(9, bool)
)
_PUT = Outgoing(key=(1, bytes), value=(2, bytes), lease=(3, int))
_DELETE_RANGE = Outgoing(key=(1, bytes), range_end=(2, bytes))
_COMPARE = Outgoing(
    result=(1, _RESULTS), target=(2, _TARGETS), key=(3, bytes), create_revision=(5, int), mod_revision=(6, int), value=(7, bytes)
)
_OP = Outgoing(request_range=(1, _RANGE), request_put=(2, _PUT), request_delete_range=(3, _DELETE_RANGE))
_TXN = Outgoing(compare=(1, [_COMPARE]), success=(2, [_OP]), failure=(3, [_OP]))
_COMPACTION = Outgoing(revision=(1, int), physical=(2, bool))
_WATCH_CREATE = Outgoing(
    key=(1, bytes), range_end=(2, bytes), start_revision=(3, int), progress_notify=(4, bool), prev_kv=(6, bool)
)
_WATCH = Outgoing(create_request=(1, _WATCH_CREATE))
_LEASE_GRANT = Outgoing(TTL=(1, int), ID=(2, int))
_LEASE_TIME_TO_LIVE = Outgoing(ID=(1, int), keys=(2, bool))

_HEADER = Incoming(Header, identifiers={2: "member_id"}, numbers={3: "revision"})
_KEY_VALUE = Incoming(
    lambda: WireKeyValue(b""),
    data={1: "key", 5: "value"},
    numbers={2: "create_revision", 3: "mod_revision", 6: "lease"},
)
_EVENT = Incoming(
    lambda: WireEvent(WireKeyValue(b"")),
    choices={1: ("type", ("PUT", "DELETE"))},
    messages={2: ("kv", _KEY_VALUE), 3: ("prev_kv", _KEY_VALUE)},
)
_RANGE_ANSWER = Incoming(
    RangeAnswer, messages={1: ("header", _HEADER)}, lists={2: ("kvs", _KEY_VALUE)}, flags={3: "more"}, numbers={4: "count"}
)
_PUT_ANSWER = Incoming(lambda: PutAnswer(Header()), messages={1: ("header", _HEADER)})
_OP_ANSWER = Incoming(OpAnswer, messages={1: ("response_range", _RANGE_ANSWER)})
_TXN_ANSWER = Incoming(
    lambda: TxnAnswer(Header()), messages={1: ("header", _HEADER)}, flags={2: "succeeded"}, lists={3: ("responses", _OP_ANSWER)}
)
_LEASE_ANSWER = Incoming(LeaseAnswer, numbers={2: "id", 3: "ttl"})
_STATUS = Incoming(
    Status,
    messages={1: ("header", _HEADER)},
    texts={2: "version"},
    identifiers={4: "leader"},
    flags={10: "is_learner"},
    text_lists={8: "errors"},
)
NOTHING = Outgoing()
EMPTY = Incoming(Empty)
_WATCH_RESULT = Incoming(
    WatchResult,
    messages={1: ("header", _HEADER)},
    flags={3: "created", 4: "canceled"},
    numbers={5: "compact_revision"},
    texts={6: "cancel_reason"},
    lists={11: ("events", _EVENT)},
)

RANGE = Method("KV/Range", _RANGE, RangeAnswer, _RANGE_ANSWER)
PUT = Method("KV/Put", _PUT, PutAnswer, _PUT_ANSWER)
DELETE = Method("KV/DeleteRange", _DELETE_RANGE, PutAnswer, _PUT_ANSWER)
TXN = Method("KV/Txn", _TXN, TxnAnswer, _TXN_ANSWER)
COMPACT = Method("KV/Compact", _COMPACTION, Empty, EMPTY)
WATCH = Method("Watch/Watch", _WATCH, WatchResult, _WATCH_RESULT)
GRANT = Method("Lease/LeaseGrant", _LEASE_GRANT, LeaseAnswer, _LEASE_ANSWER)
STATUS = Method("Maintenance/Status", NOTHING, Status, _STATUS)
TIME_TO_LIVE = Method("Lease/LeaseTimeToLive", _LEASE_TIME_TO_LIVE, LeaseAnswer, _LEASE_ANSWER)


# --- refusals -------------------------------------------------------------------------------------------------------------
#
# etcd's refusals.

# gRPC's codes.
DEADLINE, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE, UNAVAILABLE = 4, 5, 8, 11, 14
_DENIED = (7, 16)


class RequestRefused(StoreError):
    """etcd refused a request; `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def refusal(code: int, text: str) -> RequestRefused:
    if code == EXHAUSTED and "space" in text:
        text = f"{text}: compact and defragment it, raise its quota, then run etcdctl alarm disarm"
    elif code in _DENIED:
        text = f"etcd does not let us in: {text}"
    return RequestRefused(code, text)
