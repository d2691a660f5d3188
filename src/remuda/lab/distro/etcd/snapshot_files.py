"""The snapshots of this host and of the bucket as objects of the cluster, for its manager: ETCDSnapshotFiles, as k3s has them.

The directory and the bucket are the truth; failures are objects, too. A snapshot's metadata is stored beside it, so that it
survives a restore. Every server reports its own files, and any of them what is in the bucket. :mod:`.taking` takes snapshots.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.names import dns_subdomain_problems
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.kube.private_files import write_private
from remuda.provisioning.etcd.s3 import copies
from remuda.provisioning.etcd.s3.copies import Copy
from remuda.provisioning.etcd.s3.place import Place

from ..config.arguments import ConfigError
from ..config.settings import NAME, Settings
from ..crds import SNAPSHOT_FILES
from . import remote_copies, snapshots
from .snapshots import LOCAL, REMOTE, Failure, Snapshot, SnapshotError
from .taking import EXTRA

Obj = dict[str, Any]
log = logging.getLogger(__name__)

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
STORAGE: Final = f"etcd.{NAME}.cattle.io/snapshot-storage"
_LOOK_SECONDS = 2.0
_RESYNC_SECONDS = 60.0
# Lists of a bucket cost money: one is read after a change that this host knows of, and seldom otherwise.
_REMOTE_SECONDS = 900.0


def object_name(name: str, created: float, node: str, location: str, storage: str = LOCAL) -> str:
    """k3s' way: the file's name, and a few digits of a hash of its location."""
    digits = hashlib.sha256(f"{node}{location}".encode()).hexdigest()[:6]
    found = f"{storage}-{name.lower()}-{digits}"
    return found if not dns_subdomain_problems(found) else f"{storage}-etcd-snapshot-{int(created)}-{digits}"


def local_object(snapshot: Snapshot, node: str, extra: Mapping[str, str]) -> Obj:
    name = object_name(snapshot.name, snapshot.created, node, snapshot.location)
    spec = {"snapshotName": snapshot.name, "nodeName": node, "location": snapshot.location}
    return _object(name, LOCAL, spec, extra, _ready(snapshot.size, snapshot.created))


def remote_object(copy: Copy, place: Place) -> Obj:
    node = copy.node or REMOTE
    name = object_name(copy.name, copy.created, node, copy.location, REMOTE)
    spec = {"snapshotName": copy.name, "nodeName": node, "location": copy.location, "s3": _bucket_of(place)}
    return _object(name, REMOTE, spec, copy.metadata, _ready(copy.size, copy.created))


def failed_object(failure: Failure, node: str, place: Place | None = None) -> Obj:
    name = object_name(failure.name, failure.time, node, "", failure.storage)
    spec: Obj = {"snapshotName": failure.name, "nodeName": node, "location": ""}
    if failure.storage == REMOTE:
        spec["s3"] = _bucket_of(place) if place is not None else {}
    when = rfc3339(failure.time)
    error = {"time": when, "message": failure.message}
    return _object(name, failure.storage, spec, {}, {"size": "0", "creationTime": when, "readyToUse": False, "error": error})


def _object(name: str, storage: str, spec: Obj, extra: Mapping[str, str], status: Obj) -> Obj:
    if extra:
        spec = {**spec, "metadata": dict(extra)}
    metadata = {"name": name, "labels": {STORAGE: storage}}
    return {"apiVersion": "k3s.cattle.io/v1", "kind": "ETCDSnapshotFile", "metadata": metadata, "spec": spec, "status": status}


def _ready(size: int, created: float) -> Obj:
    return {"size": str(size), "creationTime": rfc3339(created), "readyToUse": True}


def _bucket_of(place: Place) -> Obj:
    """The fields of k3s' `spec.s3`; the credential is not among them."""
    found = {
        "endpoint": place.endpoint,
        "bucket": place.bucket,
        "region": place.region,
        "prefix": place.folder,
        "skipSSLVerify": place.skip_verify,
        "insecure": place.insecure,
    }
    return {field: value for field, value in found.items() if value}


class Telling:
    """Reports this host's files and its failures."""

    def __init__(self, settings: Settings, client: Client, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._told: tuple[list[Snapshot], list[Failure]] | None = None
        self._told_at = 0.0

    async def run(self) -> None:
        while True:
            found = (
                snapshots.listed(self._settings.snapshots.directory),
                snapshots.failures(self._settings.paths, self._clock.time()),
            )
            now = self._clock.monotonic()
            if found != self._told or now - self._told_at >= _RESYNC_SECONDS:
                try:
                    await self.tell(*found)
                    self._told, self._told_at = found, now
                except ApiError as error:
                    log.debug("the cluster can't be told of snapshots: %s", error)
            await self._clock.sleep(_LOOK_SECONDS)

    async def tell(self, found: list[Snapshot], failed: list[Failure]) -> None:
        node = self._settings.node_name
        listed = (await self._client.list(SNAPSHOT_FILES))["items"]
        own = {name_of(each): each for each in listed if dig(each, "spec", "nodeName") == node and not _is_copy(each)}
        wanted = {}
        for snapshot in found:
            name = object_name(snapshot.name, snapshot.created, node, snapshot.location)
            told = own.get(name, {})
            # Its metadata doesn't change, so it is read only once.
            wanted[name] = told if told.get("status") else local_object(snapshot, node, await self._extra(snapshot))
        place = _place(self._settings) if any(failure.storage == REMOTE for failure in failed) else None
        for failure in failed:
            made = failed_object(failure, node, place)
            wanted[name_of(made)] = made
        await _replace(self._client, own, wanted)

    async def _extra(self, snapshot: Snapshot) -> dict[str, str]:
        """The stored metadata, or else the current one."""
        path = snapshots.metadata_file(self._settings.snapshots.directory, snapshot.name)
        if path.exists():
            return {str(key): str(value) for key, value in dict(jsonio.loads(path.read_bytes())).items()}
        try:
            found = (await self._client.get(CONFIG_MAPS, EXTRA, "kube-system")).get("data") or {}
        except ApiError as error:
            if not error.is_not_found:
                raise
            found = {}
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, jsonio.dumps(found))
        return dict(found)


class RemoteTelling:
    """Reports the content of the bucket, from any uploader."""

    def __init__(self, settings: Settings, client: Client, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._rng = rng
        self._known: list[Copy] = []
        self._said = ""

    async def run(self) -> None:
        changed, told_at = -1.0, 0.0
        while True:
            now, last = self._clock.monotonic(), _changed(self._settings)
            if last != changed or now - told_at >= _REMOTE_SECONDS:
                changed, told_at = last, now
                try:
                    await self.tell()
                    self._said = ""
                except ApiError as error:
                    log.debug("the cluster can't be told of copies: %s", error)
                    changed = -1.0
                except (SnapshotError, ConfigError) as error:
                    if str(error) != self._said:
                        self._said = str(error)
                        log.warning("copies of snapshots are not reported: %s", error)
            await self._clock.sleep(_LOOK_SECONDS)

    async def tell(self) -> None:
        # The objects first: what is in the bucket since then is not missing in them.
        listed = (await self._client.list(SNAPSHOT_FILES, labels=f"{STORAGE}={REMOTE}"))["items"]
        async with remote_copies.opened(self._settings, self._clock, self._rng) as bucket:
            place = bucket.place
            self._known = await copies.listed(bucket, self._known)
        wanted = {name_of(made): made for made in (remote_object(copy, place) for copy in self._known)}
        here = f"s3://{place.bucket}/{place.prefix}"
        own = {name_of(each): each for each in listed if _folder(str(dig(each, "spec", "location") or "")) == here}
        await _replace(self._client, own, wanted)


def _folder(location: str) -> str:
    return location[: location.rfind("/") + 1]


def _is_copy(obj: Obj) -> bool:
    """True for a copy in the bucket; a failed one has no location, and belongs to its host."""
    return dig(obj, "metadata", "labels", STORAGE) == REMOTE and bool(dig(obj, "spec", "location"))


def _place(settings: Settings) -> Place | None:
    try:
        return remote_copies.place_of(settings)
    except (SnapshotError, ConfigError):
        return None


def _changed(settings: Settings) -> float:
    try:
        return settings.paths.remote_snapshots_changed.stat().st_mtime
    except OSError:
        return 0.0


async def _replace(client: Client, there: Mapping[str, Obj], wanted: Mapping[str, Obj]) -> None:
    """Create the missing objects and delete the others."""
    for name in there:
        if name not in wanted:
            try:
                await client.delete(SNAPSHOT_FILES, name)
            except ApiError as error:
                if not error.is_not_found:
                    raise
    for name, made in wanted.items():
        if name not in there or there[name].get("status") != made["status"]:
            await _ensure(client, made)


async def _ensure(client: Client, wanted: Obj) -> None:
    try:
        found = await client.create(SNAPSHOT_FILES, {key: value for key, value in wanted.items() if key != "status"})
    except ApiError as error:
        if not error.is_already_exists:
            raise
        # Another server has made it, or this one before it was killed.
        found = await client.get(SNAPSHOT_FILES, name_of(wanted))
    if found.get("status") != wanted["status"]:
        await client.update(SNAPSHOT_FILES, {**found, "status": wanted["status"]}, subresource="status")
