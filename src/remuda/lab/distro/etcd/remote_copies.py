"""Copies of this host's snapshots in a bucket, as k3s has them: the `etcd-s3` settings, upload, deletion, retention, download.

A failed upload is no failure of the snapshot, which is on the host: it is recorded as one of the copy (:mod:`.snapshots`). Unlike
k3s', the retention leaves the snapshots of other clusters in the same folder alone, and no hash of the token is uploaded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.access.settings import validation
from remuda.client.proxies import proxy_for
from remuda.kube.clock import Clock, Rng
from remuda.provisioning.etcd.s3 import copies, place
from remuda.provisioning.etcd.s3.answers import S3Error, Why
from remuda.provisioning.etcd.s3.bucket import SHA256, Bucket
from remuda.provisioning.etcd.s3.copies import COMPRESSED, Copy
from remuda.provisioning.etcd.s3.place import Place, PlaceError
from remuda.provisioning.etcd.s3.signature import Keys

from ..config.arguments import number, truth
from ..config.settings import NAME, Settings
from .snapshots import Snapshot, SnapshotError, metadata_file

_DIRECT = "none"
_SECONDS = 300.0
_CLUSTER_ID, _NODE_NAME = f"{NAME}{copies.CLUSTER_ID}", f"{NAME}{copies.NODE_NAME}"


def place_of(settings: Settings) -> Place:
    """Raises SnapshotError."""
    if _text(settings, "config-secret"):
        raise SnapshotError("etcd-s3-config-secret is not supported: write the settings themselves")
    skip = _truth(settings, "skip-ssl-verify")
    try:
        return Place(
            bucket=_text(settings, "bucket"),
            folder=_text(settings, "folder"),
            endpoint=_text(settings, "endpoint") or place.ENDPOINT,
            region=_text(settings, "region") or place.REGION,
            authorities=b"" if skip else _authorities(_text(settings, "endpoint-ca")),
            skip_verify=skip,
            insecure=_truth(settings, "insecure"),
            lookup=_text(settings, "bucket-lookup-type").lower() or place.AUTO,
        )
    except PlaceError as error:
        raise SnapshotError(f"the etcd-s3 settings can't be used: {error}") from None


def retention(settings: Settings) -> int:
    said = settings.values.get("etcd-s3-retention")
    return settings.snapshots.retention if said in (None, "") else number(said, "etcd-s3-retention")


@asynccontextmanager
async def opened(settings: Settings, clock: Clock, rng: Rng) -> AsyncIterator[Bucket]:
    """The bucket of the settings. Raises SnapshotError, also for what fails inside of the block."""
    try:
        where = place_of(settings)
        bucket = Bucket(where, _keys(settings), clock, rng, proxy=_proxy(settings, where), seconds=_seconds(settings))
        async with bucket:
            yield bucket
    except (S3Error, PlaceError) as error:
        raise SnapshotError(str(error)) from None


async def upload(bucket: Bucket, settings: Settings, snapshot: Snapshot, cluster_id: str) -> None:
    """Upload a snapshot and its metadata. Raises S3Error and OSError."""
    digest = await asyncio.to_thread(_digest, snapshot.path)
    told = {_CLUSTER_ID: cluster_id, _NODE_NAME: settings.node_name}
    kind = "application/zip" if snapshot.name.endswith(COMPRESSED) else "application/octet-stream"
    await bucket.check()
    metadata = metadata_file(settings.snapshots.directory, snapshot.name)
    if metadata.exists():
        # First: a snapshot in a list has its metadata.
        content = metadata.read_bytes()
        await bucket.put(bucket.place.metadata_key(snapshot.name), content, "application/json", told)
    await bucket.upload(snapshot.path, bucket.place.key(snapshot.name), kind, {**told, SHA256: digest})


async def delete(bucket: Bucket, name: str) -> bool:
    """Delete a snapshot and its metadata; False if there was none. Raises S3Error."""
    if not place.is_file_name(name):
        return False
    key, there = bucket.place.key(name), True
    try:
        await bucket.head(key)
    except S3Error as error:
        if error.why is not Why.NO_OBJECT:
            raise
        there = False
    await bucket.delete(key)
    await bucket.delete(bucket.place.metadata_key(name))
    return there


async def prune(bucket: Bucket, prefix: str, keep: int, cluster_id: str) -> list[str]:
    """Delete all but the newest snapshots of one kind and of this cluster, of all its nodes; their names. Raises S3Error."""
    gone = surplus(await copies.listed(bucket), prefix, keep, cluster_id)
    for each in gone:
        await delete(bucket, each.name)
    return [each.name for each in gone]


def surplus(found: list[Copy], prefix: str, keep: int, cluster_id: str) -> list[Copy]:
    """The copies to delete; none without a limit, or if the cluster is not known."""
    if keep < 1 or not cluster_id:
        return []
    kind = [each for each in found if each.name.startswith(f"{prefix}-") and each.cluster_id == cluster_id]
    return sorted(kind, key=lambda each: (each.created, each.name))[:-keep]


async def fetch(bucket: Bucket, name: str, directory: Path) -> Path:
    """Download a snapshot and its metadata into the directory of snapshots. Raises S3Error and OSError."""
    await copies.checked(bucket, name)
    metadata = metadata_file(directory, name)
    for each in (directory, metadata.parent):
        _ensure_private(each)
    try:
        await bucket.download(bucket.place.metadata_key(name), metadata)
    except S3Error as error:
        if error.why is not Why.NO_OBJECT:
            raise
    await bucket.download(bucket.place.key(name), directory / name)
    return directory / name


# --- settings ---------------------------------------------------------------------------------------------------------------


def _text(settings: Settings, name: str) -> str:
    return str(settings.values.get(f"etcd-s3-{name}") or "").strip()


def _truth(settings: Settings, name: str) -> bool:
    return truth(settings.values.get(f"etcd-s3-{name}") or False, f"etcd-s3-{name}")


def _keys(settings: Settings) -> Keys:
    keys = Keys(_text(settings, "access-key"), _text(settings, "secret-key"), _text(settings, "session-token"))
    if not keys.access_key or not keys.secret_key:
        raise SnapshotError(
            "the etcd-s3 settings have no credential: set etcd-s3-access-key and etcd-s3-secret-key, "
            "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return keys


def _seconds(settings: Settings) -> float:
    text = _text(settings, "timeout")
    if not text:
        return _SECONDS
    if problem := validation.duration(text):
        raise SnapshotError(f"etcd-s3-timeout {problem}")
    return validation.seconds(text) or _SECONDS


def _proxy(settings: Settings, where: Place, environment: Mapping[str, str] = os.environ) -> str | None:
    said = _text(settings, "proxy")
    if said == _DIRECT:
        return None
    return said or proxy_for(where.url, environment)


def _authorities(said: str) -> bytes:
    """Certificates from files, or in base64, with blanks between them. Raises SnapshotError."""
    found = b""
    for each in said.split():
        try:
            content = base64.b64decode(each, validate=True)
        except (binascii.Error, ValueError):
            try:
                content = Path(each).read_bytes()
            except OSError as error:
                raise SnapshotError(f"etcd-s3-endpoint-ca can't be read from {each}: {error.strerror}") from None
        found += content.rstrip() + b"\n"
    return found


def _ensure_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
