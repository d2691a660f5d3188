"""Buckets in memory, with the layout that distributions give theirs (docs/reference/s3.md): slow, away or refusing at will.

:meth:`SimulatedBuckets.opened` stands in for a connection of the server, as :data:`remuda.provisioning.etcd.s3.copies.Open`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.provisioning.etcd.s3.answers import Object, S3Error, Why
from remuda.provisioning.etcd.s3.bucket import SHA256
from remuda.provisioning.etcd.s3.copies import CLUSTER_ID, NODE_NAME
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys

from .saved_snapshots import SavedSnapshot


class SimulatedBucket:
    """`seconds` is how long each request of the server takes. While `trouble` is set, each request fails for that reason.
    `requests` counts all that were made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = 0.0
        self.trouble: Why | None = None
        self.requests = 0
        self.objects: dict[str, Object] = {}
        self._content: dict[str, bytes] = {}
        self._saved: dict[str, SavedSnapshot] = {}

    def upload(self, folder: str, file: str, saved: SavedSnapshot, *, node: str, cluster_id: str, now: float) -> None:
        """Raises S3Error."""
        self.check()
        place = Place(self.name, folder=folder)
        marks = {f"remuda{CLUSTER_ID}": cluster_id, f"remuda{NODE_NAME}": node}
        if saved.metadata:
            key, content = place.metadata_key(file), jsonio.dumps(dict(saved.metadata))
            self._content[key] = content
            self.objects[key] = Object(key, len(content), now, f"{now}", marks)
        key = place.key(file)
        self._saved[key] = saved
        self.objects[key] = Object(key, saved.size, now, saved.sha256, {**marks, SHA256: saved.sha256})

    def download(self, folder: str, file: str) -> SavedSnapshot:
        """Raises S3Error."""
        self.check()
        key = Place(self.name, folder=folder).key(file)
        if key not in self.objects:
            raise S3Error(Why.NO_OBJECT, f"there is no {key}")
        return self._saved[key]

    def remove(self, folder: str, file: str) -> None:
        """Remove a snapshot and its metadata."""
        place = Place(self.name, folder=folder)
        self.objects.pop(place.key(file), None)
        self.objects.pop(place.metadata_key(file), None)

    def move(self, folder: str, file: str, other: str) -> None:
        """Move a snapshot with its metadata to another folder."""
        before, after = Place(self.name, folder=folder), Place(self.name, folder=other)
        self._saved[after.key(file)] = self._saved[before.key(file)]
        for old, new in ((before.key(file), after.key(file)), (before.metadata_key(file), after.metadata_key(file))):
            if old in self.objects:
                self._content[new] = self.content(old)
                self.objects[new] = replace(self.objects.pop(old), key=new)

    def belongs_to(self, folder: str, file: str, cluster_id: str) -> None:
        """Have a snapshot be of another cluster."""
        key = Place(self.name, folder=folder).key(file)
        found = self.objects[key]
        self.objects[key] = replace(found, user_metadata={**found.user_metadata, f"remuda{CLUSTER_ID}": cluster_id})

    def content(self, key: str) -> bytes:
        return self._content.get(key, b"")

    def file(self, key: str) -> bytes:
        """The content of a snapshot."""
        return self._saved[key].content

    def check(self) -> None:
        """Raises S3Error while it is away."""
        self.requests += 1
        if self.trouble is not None:
            raise S3Error(self.trouble, f"the bucket {self.name} is away: {self.trouble}")


class SimulatedBuckets:
    """All buckets of a world, by name; one exists as soon as it is named."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, SimulatedBucket] = {}

    def of(self, name: str) -> SimulatedBucket:
        return self._buckets.setdefault(name, SimulatedBucket(name))

    @asynccontextmanager
    async def opened(self, place: Place, keys: Keys) -> AsyncIterator[_Connection]:
        yield _Connection(self.of(place.bucket), place, self._clock)


@dataclass(frozen=True, slots=True)
class _Connection:
    """Speaks like :class:`remuda.provisioning.etcd.s3.bucket.Bucket`."""

    bucket: SimulatedBucket
    place: Place
    clock: Clock

    async def listed(self, prefix: str, doing: str = "") -> list[Object]:
        await self._travel()
        below = {key: found for key, found in self.bucket.objects.items() if key.startswith(prefix)}
        return [_bare(found) for key, found in sorted(below.items()) if "/" not in key.removeprefix(prefix)]

    async def head(self, key: str, doing: str = "") -> Object:
        await self._travel()
        return self._object(key)

    async def read(self, key: str, largest: int, doing: str = "") -> bytes:
        await self._travel()
        self._object(key)
        return self.bucket.content(key)

    async def delete(self, key: str) -> None:
        await self._travel()
        self.bucket.objects.pop(key, None)

    async def pieces(self, wanted: Object) -> AsyncIterator[bytes]:
        await self._travel()
        self._object(wanted.key)
        yield self.bucket.file(wanted.key)

    def _object(self, key: str) -> Object:
        found: Mapping[str, Object] = self.bucket.objects
        if key not in found:
            raise S3Error(Why.NO_OBJECT, f"there is no {key} in {self.place}")
        return found[key]

    async def _travel(self) -> None:
        if self.bucket.seconds:
            await self.clock.sleep(self.bucket.seconds)
        self.bucket.check()


def _bare(found: Object) -> Object:
    """The object as in a list, without its own metadata."""
    return Object(found.key, found.size, found.modified, found.etag, {})
