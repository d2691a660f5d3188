"""The copies in clusters' buckets, listed by the server itself: also while no host of a cluster answers.

Clusters that share a folder and a credential share a list. :class:`.bucket_looks.ClusterBuckets` says which bucket a cluster may
use; the addresses that it may name are limited as for all connections on behalf of tenants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.kube.clock import Clock
from remuda.kube.objects import Key, dig

from .background_lists import Listed, Lists
from .bucket_looks import ClusterBuckets
from .inventory import Bucket
from .inventory import Place as Source
from .s3 import copies
from .s3.copies import Copy, Open
from .s3.place import Place, PlaceError
from .s3.signature import Keys
from .snapshot_reports import of_bucket

Obj = dict[str, Any]

_FIELDS = ("bucket", "cloudCredentialName", "endpoint", "endpointCA", "folder", "region")


@dataclass(frozen=True, slots=True)
class _Found:
    """`at` is when the list was begun."""

    at: float
    copies: tuple[Copy, ...]


class BucketInventory:
    """`done` is called with the key of each cluster whose bucket was listed."""

    def __init__(self, clock: Clock, buckets: ClusterBuckets, opened: Open, done: Callable[[Key], None]) -> None:
        self._clock = clock
        self._buckets = buckets
        self._open = opened
        self._lists: Lists[_Found] = Lists(clock, done)
        self._names: dict[Key, Hashable] = {}
        self.run = self._lists.run

    async def of(self, key: Key, wanted: Obj, cluster_id: str, nodes: frozenset[str]) -> tuple[Bucket | None, Listed[Any] | None]:
        """The bucket of a cluster, and its list; None if it has none."""
        s3: Obj | None = dig(wanted, "spec", "rkeConfig", "etcd", "s3")
        if not s3:
            self._names.pop(key, None)
            return None, None
        try:
            place, keys = await self._buckets.place(wanted, {})
        except PlaceError as error:
            why = str(error)
            listed = self._lists.of(("nowhere", key, why), key, _refused(error))
            return Bucket("s3://", Source(listed.heard, None, why)), listed
        name = self._names[key] = (place, _secret(keys))
        listed = self._lists.of(name, key, self._reader(place, keys))
        found = listed.value
        report = of_bucket(found.at, found.copies, described(s3, place), cluster_id, nodes) if found is not None else None
        return Bucket(f"s3://{place.bucket}/{place.prefix}", Source(listed.heard, report, listed.why)), listed

    def renew(self, key: Key, since: float | None = None) -> None:
        """The list is old, or it is if it was begun before `since`."""
        if key in self._names:
            self._lists.renew(self._names[key], since)

    def _reader(self, place: Place, keys: Keys) -> Callable[[_Found | None], Any]:
        async def read(before: _Found | None) -> _Found:
            at = self._clock.time()
            async with self._open(place, keys) as folder:
                found = await copies.listed(folder, before.copies if before is not None else ())
            return _Found(at, tuple(_sharing(found)))

        return read


def _refused(error: PlaceError) -> Callable[[_Found | None], Any]:
    async def read(before: _Found | None) -> _Found:
        raise error

    return read


def _sharing(found: list[Copy]) -> list[Copy]:
    """Most copies have the same metadata, which is large: kept once."""
    texts: dict[str, str] = {}

    def shared(metadata: Mapping[str, str]) -> dict[str, str]:
        return {name: texts.setdefault(value, value) for name, value in metadata.items()}

    return [replace(copy, metadata=shared(copy.metadata)) for copy in found]


def _secret(keys: Keys) -> str:
    """The credential as part of a name, without being it."""
    return hashlib.sha256(repr((keys.access_key, keys.secret_key)).encode()).hexdigest()


def described(s3: Mapping[str, Any], place: Place) -> Obj:
    """The bucket for a restore: what the spec leaves to the credential is written out, since the credential may change."""
    found = {field: s3.get(field) for field in _FIELDS}
    found |= {"bucket": place.bucket, "folder": place.folder, "endpoint": place.endpoint, "region": place.region}
    described = {field: value for field, value in found.items() if value}
    return {**described, "skipSSLVerify": True} if place.skip_verify else described
