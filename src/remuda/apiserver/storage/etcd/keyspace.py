"""Keys in the API's form and in etcd's: with a prefix, as bytes."""

from __future__ import annotations

from typing import Any

from ..store import Event, KeyValue, after_prefix
from .rpc import WireEvent, WireKeyValue

Obj = dict[str, Any]

# The key where kube-apiserver, too, notes the compaction of etcd. Outside any prefix: all share one history.
COMPACTION_KEY = b"compact_rev_key"
# The keys where processes that lost an answer note that they did (:mod:`.transactions`).
EPOCHS = b"remuda_epochs/"
# etcd's notation for "to the end".
_END = b"\0"


def is_bookkeeping(stored: bytes) -> bool:
    return stored == COMPACTION_KEY or stored.startswith(EPOCHS)


class Keyspace:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._bytes = prefix.encode()

    def stored(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def bounds(self, prefix: str, start: str = "") -> Obj:
        """The range of the keys that begin with `prefix` and are >= `start`."""
        whole = self._prefix + prefix
        first = self._prefix + max(prefix, start)
        return {"key": first.encode() or b"\0", "range_end": after_prefix(whole).encode() if whole else _END}

    @staticmethod
    def watch_everything(start: int) -> Obj:
        request = {"key": b"\0", "range_end": _END, "start_revision": start, "prev_kv": True, "progress_notify": True}
        return {"create_request": request}

    def own(self, stored: bytes) -> str | None:
        """The key in the API's form; None for a key of another program."""
        if not stored.startswith(self._bytes) or is_bookkeeping(stored):
            return None
        try:
            return stored[len(self._bytes) :].decode()
        except UnicodeDecodeError:
            return None

    def kv(self, wire: WireKeyValue) -> KeyValue:
        """The value of a key that is our :meth:`own`."""
        key = wire.key[len(self._bytes) :].decode(errors="replace")
        return KeyValue(key, wire.value, wire.create_revision, wire.mod_revision)

    def event(self, wire: WireEvent) -> Event | None:
        key = self.own(wire.kv.key)
        if key is None:
            return None
        prev = None if wire.prev_kv is None else self.kv(wire.prev_kv)
        kv = None if wire.type == "DELETE" else KeyValue(key, wire.kv.value, wire.kv.create_revision, wire.kv.mod_revision)
        return Event(wire.kv.mod_revision, key, kv, prev)
