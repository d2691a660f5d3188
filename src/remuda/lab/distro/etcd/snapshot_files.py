"""The snapshots of this host as objects of the cluster, for its manager: ETCDSnapshotFiles.

The directory is the truth. A snapshot's extra metadata (the ConfigMap `remuda-etcd-snapshot-extra-metadata`, as it was when the
snapshot was first seen) is stored beside it, so that it survives a restore. Scheduled snapshots are taken here, too.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.names import dns_subdomain_problems
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.kube.private_files import write_private

from ..config.settings import Settings
from ..crds import SNAPSHOT_FILES
from . import snapshots
from .client import EtcdClient
from .cron import BadSchedule, Schedule
from .snapshots import Snapshot, SnapshotError

Obj = dict[str, Any]
log = logging.getLogger(__name__)

CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
EXTRA: Final = "remuda-etcd-snapshot-extra-metadata"
STORAGE: Final = "etcd.remuda.cattle.io/snapshot-storage"
_LOOK_SECONDS = 2.0
_RESYNC_SECONDS = 60.0


def object_name(snapshot: Snapshot, node: str) -> str:
    """k3s' way: its name, and a few digits of a hash of its location."""
    digits = hashlib.sha256(f"{node}{snapshot.location}".encode()).hexdigest()[:6]
    name = f"local-{snapshot.name.lower()}-{digits}"
    return name if not dns_subdomain_problems(name) else f"local-etcd-snapshot-{int(snapshot.created)}-{digits}"


def object_of(snapshot: Snapshot, node: str, extra: Mapping[str, str]) -> Obj:
    spec: Obj = {"snapshotName": snapshot.name, "nodeName": node, "location": snapshot.location}
    if extra:
        spec["metadata"] = dict(extra)
    return {
        "apiVersion": "k3s.cattle.io/v1",
        "kind": "ETCDSnapshotFile",
        "metadata": {"name": object_name(snapshot, node), "labels": {STORAGE: "local"}},
        "spec": spec,
    }


class Telling:
    def __init__(self, settings: Settings, client: Client, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._told: list[Snapshot] | None = None
        self._told_at = 0.0

    async def run(self) -> None:
        while True:
            found = snapshots.listed(self._settings.snapshots.directory)
            now = self._clock.monotonic()
            if found != self._told or now - self._told_at >= _RESYNC_SECONDS:
                try:
                    await self.tell(found)
                    self._told, self._told_at = found, now
                except ApiError as error:
                    log.debug("the cluster can't be told of snapshots: %s", error)
            await self._clock.sleep(_LOOK_SECONDS)

    async def tell(self, found: list[Snapshot]) -> None:
        node = self._settings.node_name
        listed = (await self._client.list(SNAPSHOT_FILES, labels=f"{STORAGE}=local"))["items"]
        there = {name_of(each): each for each in listed if dig(each, "spec", "nodeName") == node}
        for snapshot in found:
            if there.pop(object_name(snapshot, node), None) is None:
                await self._create(snapshot)
        for name in there:
            try:
                await self._client.delete(SNAPSHOT_FILES, name)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    async def _create(self, snapshot: Snapshot) -> None:
        made = await self._client.create(
            SNAPSHOT_FILES, object_of(snapshot, self._settings.node_name, await self._extra(snapshot))
        )
        status = {"size": str(snapshot.size), "creationTime": rfc3339(snapshot.created), "readyToUse": True}
        await self._client.update(SNAPSHOT_FILES, {**made, "status": status}, subresource="status")

    async def _extra(self, snapshot: Snapshot) -> dict[str, str]:
        """The stored metadata, or else the current one."""
        directory = self._settings.snapshots.directory.parent / ".metadata"
        if (kept := _kept(directory / snapshot.name)) is not None:
            return kept
        try:
            found = (await self._client.get(CONFIG_MAPS, EXTRA, "kube-system")).get("data") or {}
        except ApiError as error:
            if not error.is_not_found:
                raise
            found = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        write_private(directory / snapshot.name, jsonio.dumps(found))
        return dict(found)


def _kept(path: Path) -> dict[str, str] | None:
    if not path.exists():
        return None
    return {str(key): str(value) for key, value in dict(jsonio.loads(path.read_bytes())).items()}


async def keep_schedule(settings: Settings, etcd: EtcdClient, clock: Clock) -> None:
    """Save a snapshot whenever it is due, and remove surplus ones."""
    options = settings.snapshots
    try:
        schedule = Schedule(options.schedule)
    except BadSchedule as error:
        log.warning("there will be no snapshots by themselves: %s", error)
        return
    while (due := schedule.after(clock.time())) is not None:
        # In small steps: the wall clock may be changed meanwhile.
        while (left := due - clock.time()) > 0:
            await clock.sleep(min(left, 60.0))
        try:
            await snapshots.save(etcd, options, options.name, settings.node_name, clock)
            snapshots.prune(options, options.name, settings.node_name)
        except SnapshotError as error:
            log.warning("%s", error)
