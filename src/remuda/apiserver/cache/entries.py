"""One stored object as the cache holds it: its encoded bytes, and what is worked out from them on demand.

Bytes are kept without a resourceVersion, which is the store's revision: it is spliced in when the object leaves. To make
that a cheap concatenation every stored object begins with `{"kind":…,"apiVersion":…,"metadata":{`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from remuda.kube.encoding import jsonio

from ..scheme import builtin_types, protobuf
from . import mutation_detector

Obj = dict[str, Any]

_METADATA = b'"metadata":{'
# Parsed objects are kept, beyond those of kinds that are followed in-process, for this many encoded bytes; parsed they take
# two to four times as much.
PARSED_BYTES = 8 * 1024 * 1024


def prefix_of(api_version: str, kind: str) -> bytes:
    """How every encoded object of a kind begins, up to and including the brace that opens its metadata."""
    return b'{"kind":' + jsonio.dumps(kind) + b',"apiVersion":' + jsonio.dumps(api_version) + b"," + _METADATA


def encode(obj: Obj) -> bytes:
    """An object as it is stored: canonical order at the top, no resourceVersion."""
    metadata = obj.get("metadata") or {}
    if "resourceVersion" in metadata or "selfLink" in metadata:
        metadata = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "selfLink")}
    ordered = {"kind": obj.get("kind", ""), "apiVersion": obj.get("apiVersion", ""), "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    # The encoder leaves its spare room in what it returns, half as much again; these bytes are kept for long, so without it.
    return bytes(memoryview(jsonio.dumps(ordered)))


def ensure_canonical(value: bytes) -> bytes:
    """`value` if it has the canonical beginning, else the same object encoded anew (somebody else wrote it)."""
    if value.startswith(protobuf.MAGIC):
        return _from_protobuf(value)
    # kube-apiserver ends what it stores with a newline, which in a watch's frame would look like the end of the event.
    value = value.rstrip()
    head = value[:200]
    at = head.find(_METADATA)
    if head.startswith(b'{"kind":') and 0 < at < head.find(b"{", 1) + 1:
        return value
    return encode(jsonio.loads(value))


def _from_protobuf(value: bytes) -> bytes:
    """A kube-apiserver works, or has worked, on the same store: it keeps built-in kinds so."""
    envelope = protobuf.read_envelope(value)
    group, _, version = envelope.api_version.rpartition("/")
    if builtin_types.type_of(group, version, envelope.kind) is None:
        # Its own bookkeeping, which is not served here: that it is there is all that has to be known of it.
        return encode({"kind": envelope.kind, "apiVersion": envelope.api_version, "metadata": {}})
    return encode(protobuf.decode(value, max_bytes=len(value)))


class Home(Protocol):
    """Where an entry lives: a bucket of the cache."""

    keep_parsed: bool
    parsed: Parsed


class Parsed:
    """Which entries hold their parsed object: the newest ones, as many as there is room for."""

    __slots__ = ("_bytes", "_entries", "_limit")

    def __init__(self, limit: int = PARSED_BYTES) -> None:
        # With the size each was counted with: a change of schema may encode an entry anew.
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0
        self._limit = limit

    def add(self, entry: Entry) -> None:
        self._entries.append((entry, len(entry.stored)))
        self._bytes += len(entry.stored)
        while self._bytes > self._limit:
            old, size = self._entries.popleft()
            self._bytes -= size
            if not old.keep_parsed:
                old.forget()

    def forget(self) -> None:
        """All of them."""
        for entry, _ in self._entries:
            entry.forget()
        self._entries.clear()
        self._bytes = 0


class Entry:
    """An object at one revision. Immutable but for what it remembers of itself."""

    __slots__ = (
        "_labels",
        "_object",
        "converted",
        "epoch",
        "fields",
        "home",
        "key",
        "name",
        "namespace",
        "revision",
        "stale",
        "stored",
    )

    def __init__(self, key: str, namespace: str, name: str, revision: int, stored: bytes) -> None:
        self.key = key
        self.namespace = namespace
        self.name = name
        self.revision = revision
        self.stored = stored
        self.epoch = 0
        # In the store it is sealed with an old key, or not at all: the next update writes it even if nothing changes.
        self.stale = False
        # Whose room the parsed object takes; None for an entry that its caller drops soon.
        self.home: Home | None = None
        self._object: Obj | None = None
        # Small and asked for by every list with a selector: kept although the object may be forgotten.
        self._labels: dict[str, str] | None = None
        # Selectable fields, worked out when a field selector first asks, and for which version: others may select by others.
        self.fields: tuple[object, dict[str, str]] | None = None
        # The same object in other versions (encoded, without resourceVersion), when a webhook had to make them. By the
        # version itself and not its name: a changed CRD has other versions of the same names.
        self.converted: dict[object, bytes] | None = None

    def object(self) -> Obj:
        """The parsed object with its resourceVersion: shared, read-only."""
        found = self._object
        if found is None:
            found = self._object = self.parse()
            if self.home is not None:
                self._cached(self.home)
        return found

    def parse(self) -> Obj:
        obj: Obj = jsonio.loads(self.stored)
        if self.revision:
            obj["metadata"]["resourceVersion"] = str(self.revision)
        return obj

    def remember(self, obj: Obj) -> None:
        """Keep `obj`, from which `stored` was encoded, instead of parsing it again."""
        metadata = dict(obj["metadata"])
        metadata.pop("resourceVersion", None)
        if self.revision:
            metadata["resourceVersion"] = str(self.revision)
        self._object = {**obj, "metadata": metadata}
        if self.home is not None:
            self._cached(self.home)

    def _cached(self, home: Home) -> None:
        if mutation_detector.DETECTOR is not None:
            mutation_detector.DETECTOR.track(self)
        home.parsed.add(self)

    def forget(self) -> None:
        self._object = None

    def held(self) -> Obj | None:
        """The parsed object if there is one just now; :meth:`object` makes it."""
        return self._object

    @property
    def parsed(self) -> bool:
        return self._object is not None

    @property
    def keep_parsed(self) -> bool:
        return self.home is not None and self.home.keep_parsed

    @property
    def labels(self) -> dict[str, str]:
        found = self._labels
        if found is None:
            found = self._labels = self.object()["metadata"].get("labels") or {}
        return found

    def body(self, prefix: bytes, revision: int | None = None) -> bytes:
        """The encoded object, beginning with `prefix` (which ends inside the metadata), at its own or another revision."""
        return splice(self.stored, prefix, self.revision if revision is None else revision)

    def at(self, revision: int) -> Entry:
        """The same state under another revision, as a deletion event shows it."""
        twin = Entry(self.key, self.namespace, self.name, revision, self.stored)
        twin.epoch = self.epoch
        twin.fields = self.fields
        twin.converted = self.converted
        if self._object is not None:
            twin.remember(self._object)
        return twin


def splice(stored: bytes, prefix: bytes, revision: int) -> bytes:
    start = stored.find(_METADATA) + 12
    if not revision:
        return prefix + stored[start:]
    separator = b'"' if stored[start : start + 1] == b"}" else b'",'
    return b'%s"resourceVersion":"%d%s%s' % (prefix, revision, separator, stored[start:])
