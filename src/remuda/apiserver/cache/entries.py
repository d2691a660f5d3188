"""One stored object as the cache holds it: its encoded bytes, and values computed from them on demand.

Bytes are kept without a resourceVersion, which is the store's revision: it is inserted when the object is sent. To make
that a cheap concatenation, every stored object begins with `{"kind":…,"apiVersion":…,"metadata":{`.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import Any, Protocol
from zlib import crc32

from remuda.kube.encoding import jsonio

from ..scheme import builtin_types, protobuf

Obj = dict[str, Any]

_METADATA = b'"metadata":{'
# Parsed objects are kept for this many encoded bytes, besides those of kinds that are followed in-process; parsed objects
# take two to four times as much.
PARSED_BYTES = 8 * 1024 * 1024


def prefix_of(api_version: str, kind: str) -> bytes:
    """The first bytes of every encoded object of a kind, up to and including the brace that opens its metadata."""
    return b'{"kind":' + jsonio.dumps(kind) + b',"apiVersion":' + jsonio.dumps(api_version) + b"," + _METADATA


def encode(obj: Obj) -> bytes:
    """An object as it is stored: canonical field order at the top level, no resourceVersion."""
    metadata = obj.get("metadata") or {}
    if "resourceVersion" in metadata or "selfLink" in metadata:
        metadata = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "selfLink")}
    ordered = {"kind": obj.get("kind", ""), "apiVersion": obj.get("apiVersion", ""), "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    # The encoder's result has half as much spare room again; these bytes are kept for long, so copy them without it.
    return bytes(memoryview(jsonio.dumps(ordered)))


def ensure_canonical(value: bytes) -> bytes:
    """`value` if it has the canonical beginning, else the same object encoded anew (another program wrote it)."""
    if value.startswith(protobuf.MAGIC):
        return _from_protobuf(value)
    # kube-apiserver's values end with a newline, which would end the event in a watch's frame.
    value = value.rstrip()
    head = value[:200]
    at = head.find(_METADATA)
    if head.startswith(b'{"kind":') and 0 < at < head.find(b"{", 1) + 1:
        return value
    return encode(jsonio.loads(value))


def _from_protobuf(value: bytes) -> bytes:
    """The object of a kube-apiserver that uses, or used, the same store: it stores built-in kinds as protobuf."""
    envelope = protobuf.read_envelope(value)
    group, _, version = envelope.api_version.rpartition("/")
    if builtin_types.type_of(group, version, envelope.kind) is None:
        # kube-apiserver's own bookkeeping, which is not served here: only its existence matters.
        return encode({"kind": envelope.kind, "apiVersion": envelope.api_version, "metadata": {}})
    return encode(protobuf.decode(value, max_bytes=len(value)))


class Home(Protocol):
    """The owner of an entry: a bucket of the cache."""

    keep_parsed: bool
    parsed: Parsed


class Parsed:
    """The entries that hold their parsed object: the newest ones, up to a limit of bytes."""

    __slots__ = ("_bytes", "_entries", "_limit")

    def __init__(self, limit: int = PARSED_BYTES) -> None:
        # Each with its counted size: a schema change may encode an entry anew.
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
        """Drop all parsed objects."""
        for entry, _ in self._entries:
            entry.forget()
        self._entries.clear()
        self._bytes = 0


class Entry:
    """An object at one revision. Immutable except for cached values."""

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
        # True when the stored value is sealed with an old key, or not at all: the next update writes it even if unchanged.
        self.stale = False
        # The bucket that the parsed object counts for; None for an entry that its caller drops soon.
        self.home: Home | None = None
        self._object: Obj | None = None
        # Small, and used by every list with a selector: kept although the object may be dropped.
        self._labels: dict[str, str] | None = None
        # Selectable fields, computed at first use by a field selector, with their version: versions may have different ones.
        self.fields: tuple[object, dict[str, str]] | None = None
        # The same object in other versions (encoded, without resourceVersion), if a webhook converted them. The key is the
        # version object, not its name: a changed CRD has new versions with the same names.
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
        if DETECTOR is not None:
            DETECTOR.track(self)
        home.parsed.add(self)

    def forget(self) -> None:
        self._object = None

    def held(self) -> Obj | None:
        """The parsed object if it is cached now; :meth:`object` parses it."""
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
        """The same state at another revision, for a deletion event."""
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


# --- the mutation detector ------------------------------------------------------------------------------------------------
#
# A check for tests: shared objects of the cache must not be changed.
#
# Watchers, controllers and verbs share the parsed objects; a change in place would
# affect all of them. With `REMUDA_CHECK_MUTATION` set, a checksum of each is taken when it is parsed and compared later: a few
# old ones each time a new one is added, each one when it is dropped, and all when the cache stops. There is no timer and no
# thread, so the checks are deterministic.
#
# `REMUDA_CHECK_MUTATION=1` logs an error; any other value names a file to which the error is written as well, so that a test
# session also sees errors of its child processes. Unset, the cost is one test of a global for each parsed object.


logger = logging.getLogger(__name__)

# The number of older objects that are checked whenever a new one is added.
_EACH_TIME = 2


class Holder(Protocol):
    """An entry of the cache, or a substitute."""

    key: str
    revision: int

    def held(self) -> Obj | None:
        """The shared object; None after it was dropped."""


class Detector:
    def __init__(self, report: str = "") -> None:
        self._report = report
        self._watched: deque[tuple[Holder, Obj, int]] = deque()
        self.violations: list[str] = []

    def track(self, holder: Holder) -> None:
        obj = holder.held()
        if obj is None:
            return
        for _ in range(min(_EACH_TIME, len(self._watched))):
            self._look(*self._watched.popleft())
        self._watched.append((holder, obj, _sum(obj)))

    def verify(self) -> None:
        """Check all watched objects now."""
        for _ in range(len(self._watched)):
            self._look(*self._watched.popleft())

    def _look(self, holder: Holder, obj: Obj, expected: int) -> None:
        """Check one object; it stays watched while its entry holds it."""
        if _sum(obj) != expected:
            self._tell(f"the cached object {holder.key} at revision {holder.revision} was changed in place")
        elif holder.held() is obj:
            self._watched.append((holder, obj, expected))

    def _tell(self, what: str) -> None:
        self.violations.append(what)
        logger.error("%s", what)
        if self._report:
            with open(self._report, "a", encoding="utf-8") as report:  # noqa: PTH123
                report.write(what + "\n")


def _sum(obj: Obj) -> int:
    return crc32(jsonio.dumps(obj))


def _from_environment() -> Detector | None:
    given = os.environ.get("REMUDA_CHECK_MUTATION", "")
    return Detector("" if given == "1" else given) if given else None


DETECTOR = _from_environment()
