"""The snapshots in a folder of a bucket, as k3s, RKE2 and the remuda distribution upload them (docs/reference/s3.md).

Each is an object, named as its file on the host; the metadata of the cluster is a JSON map in an object of the same name below
`.metadata`, and the host's in the object's own metadata. Several clusters may share a folder: `cluster_id` tells their snapshots
apart, where the distribution has written it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from remuda.kube.encoding import jsonio

from .answers import Object, S3Error, Why
from .bucket import SHA256
from .place import METADATA, Place, is_file_name
from .signature import Keys

T = TypeVar("T")
R = TypeVar("R")

# The names in an object's own metadata, after the distribution's.
CLUSTER_ID, NODE_NAME, TOKEN_HASH = "-cluster-id", "-node-name", "-token-hash"
COMPRESSED: Final = ".zip"
_TAKEN = re.compile(r"-(\d{1,12})$")
# What a control plane remembers of its cluster is smaller than the largest object of etcd.
_LARGEST_METADATA: Final = 4 * 2**20
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Copy:
    """A snapshot in a bucket. `created` is when it was taken, by its name, or else when it was uploaded. Fields that the
    distribution did not write are empty."""

    name: str
    size: int
    created: float
    location: str
    etag: str
    node: str = ""
    cluster_id: str = ""
    token_hash: str = ""
    sha256: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    metadata_etag: str = ""


class Folder(Protocol):
    """A connection to a folder of a bucket; each method raises S3Error."""

    @property
    def place(self) -> Place: ...

    async def listed(self, prefix: str) -> list[Object]: ...

    async def head(self, key: str) -> Object: ...

    async def read(self, key: str, largest: int) -> bytes: ...

    async def delete(self, key: str) -> None: ...

    def pieces(self, wanted: Object) -> AsyncIterator[bytes]: ...


# Connects the server to the folder of a cluster. Raises PlaceError.
Open = Callable[[Place, Keys], AbstractAsyncContextManager[Folder]]


async def listed(bucket: Folder, known: Iterable[Copy] = ()) -> list[Copy]:
    """All snapshots of the folder, by name. Objects that have not changed since `known` are not read again. Raises S3Error."""
    prefix = bucket.place.prefix
    objects = {name: found for name, found in _named(await bucket.listed(prefix), prefix) if found.size}
    remembered = _named(await bucket.listed(f"{prefix}{METADATA}/"), f"{prefix}{METADATA}/") if objects else ()
    metadata = {name: found for name, found in remembered if name in objects}
    before = {copy.name: copy for copy in known}

    async def current(name: str) -> Copy | None:
        found, beside = objects[name], metadata.get(name)
        told = beside.etag if beside is not None else ""
        old = before.get(name)
        if old is not None and (old.etag, old.size, old.metadata_etag) == (found.etag, found.size, told) and found.etag:
            return old
        return await _existing(lambda: _described(bucket, name, beside))

    copies = await _several(current, sorted(objects))
    return [copy for copy in copies if copy is not None]


async def checked(bucket: Folder, name: str, size: int = 0) -> Copy:
    """The snapshot of that name, without its metadata. Raises S3Error if it is missing or empty, or has another size."""
    if not is_file_name(name):
        raise S3Error(Why.NO_OBJECT, f"{name!r} can't be the name of a snapshot in {bucket.place}")
    found = await bucket.head(bucket.place.key(name))
    if not found.size or (size and found.size != size):
        wanted = f"{size} are expected" if size else "it is empty"
        raise S3Error(Why.CHANGED, f"the snapshot {bucket.place.location(name)} has {found.size} bytes, and {wanted}")
    return _copy(bucket, name, found)


async def described(bucket: Folder, name: str) -> Copy:
    """The snapshot of that name with its metadata. Raises S3Error if it is missing or empty."""
    copy = await checked(bucket, name)
    beside = await _existing(lambda: bucket.head(bucket.place.metadata_key(name)))
    return await _with_remembered(bucket, copy, beside)


def _named(objects: Iterable[Object], prefix: str) -> Iterator[tuple[str, Object]]:
    """The objects of a folder, without those of folders in it, by their names."""
    for each in objects:
        name = each.key.removeprefix(prefix)
        if each.key.startswith(prefix) and is_file_name(name):
            yield name, each


async def _described(bucket: Folder, name: str, beside: Object | None) -> Copy:
    return await _with_remembered(bucket, _copy(bucket, name, await bucket.head(bucket.place.key(name))), beside)


async def _with_remembered(bucket: Folder, copy: Copy, beside: Object | None) -> Copy:
    if beside is None:
        return copy
    content = await _existing(lambda: bucket.read(beside.key, _LARGEST_METADATA))
    return copy if content is None else _with_metadata(copy, content, beside.etag)


async def _existing(asked: Callable[[], Awaitable[T]]) -> T | None:
    """The object; None if it was deleted since it was listed."""
    try:
        return await asked()
    except S3Error as error:
        if error.why is Why.NO_OBJECT:
            return None
        raise


def _copy(bucket: Folder, name: str, found: Object) -> Copy:
    taken = _TAKEN.search(name.removesuffix(COMPRESSED))
    return Copy(
        name=name,
        size=found.size,
        created=float(taken[1]) if taken else found.modified,
        location=bucket.place.location(name),
        etag=found.etag,
        node=_told(found, NODE_NAME),
        cluster_id=_told(found, CLUSTER_ID),
        token_hash=_told(found, TOKEN_HASH),
        sha256=found.user_metadata.get(SHA256, ""),
    )


def _with_metadata(copy: Copy, content: bytes, etag: str) -> Copy:
    try:
        found = jsonio.loads(content)
    except jsonio.JsonError:
        found = None
    told = {str(key): value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
    return replace(copy, metadata=told, metadata_etag=etag)


def _told(found: Object, ending: str) -> str:
    """A value of an object's own metadata, whatever distribution wrote it."""
    return next((value for name, value in sorted(found.user_metadata.items()) if name.endswith(ending)), "")


async def _several(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """The results in the order of the items, a few at a time. The first error ends the rest."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> R:
        async with places:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
