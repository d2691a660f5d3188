"""The calls that the store makes, and their messages. What comes back are the values of :mod:`.messages`."""

from __future__ import annotations

from typing import Generic, TypeVar

from .messages import (
    Empty,
    Header,
    LeaseAnswer,
    OpAnswer,
    PutAnswer,
    RangeAnswer,
    TxnAnswer,
    WatchResult,
    WireEvent,
    WireKeyValue,
)
from .protobuf import Incoming, Outgoing

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

_HEADER = Incoming(Header, numbers={3: "revision"})
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
_EMPTY = Incoming(Empty)
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
COMPACT = Method("KV/Compact", _COMPACTION, Empty, _EMPTY)
WATCH = Method("Watch/Watch", _WATCH, WatchResult, _WATCH_RESULT)
GRANT = Method("Lease/LeaseGrant", _LEASE_GRANT, LeaseAnswer, _LEASE_ANSWER)
TIME_TO_LIVE = Method("Lease/LeaseTimeToLive", _LEASE_TIME_TO_LIVE, LeaseAnswer, _LEASE_ANSWER)
