"""Taking a snapshot, from etcd to the last surplus copy: on the schedule, and on demand by `etcd-snapshot save`.

The order is k3s': the file, its metadata, the retention on this host, the upload, the retention in the bucket (also when the
upload failed, since the bucket may be full). What fails is recorded; only a missing file is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, Rng
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig
from remuda.kube.private_files import write_private
from remuda.provisioning.etcd.s3.answers import S3Error

from ..config.arguments import ConfigError
from ..config.settings import NAME, Settings
from . import host_commands, remote_copies, snapshots
from .client import EtcdClient
from .cron import BadSchedule, Schedule
from .snapshots import Failure, Snapshot, SnapshotError

log = logging.getLogger(__name__)

EXTRA: Final = f"{NAME}-etcd-snapshot-extra-metadata"
_EXTRA_KEY: Final = f"/registry/configmaps/kube-system/{EXTRA}"
_SYSTEM_KEY: Final = "/registry/namespaces/kube-system"


@dataclass(frozen=True, slots=True)
class Taken:
    snapshot: Snapshot
    # The s3:// location of the copy; "" without one.
    copied: str
    pruned: tuple[str, ...]


class Taking:
    """One host's snapshots. `etcd` is the host's member."""

    def __init__(self, settings: Settings, etcd: EtcdClient, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._etcd = etcd
        self._clock = clock
        self._rng = rng

    async def take(self, name: str) -> Taken:
        """Raises SnapshotError."""
        settings, options = self._settings, self._settings.snapshots
        begun = self._clock.time()
        try:
            snapshot = await snapshots.save(self._etcd, options, name, settings.node_name, self._clock)
        except SnapshotError as error:
            self._note(f"{name}-{settings.node_name}-{int(begun)}", snapshots.LOCAL, begun, str(error))
            raise
        await self._remember(snapshot)
        pruned = snapshots.prune(options, name, settings.node_name)
        if not options.s3:
            return Taken(snapshot, "", tuple(pruned))
        copied, gone = await self._copy(snapshot, name, begun)
        return Taken(snapshot, copied, (*pruned, *gone))

    async def prune_copies(self, name: str) -> list[str]:
        """Delete surplus copies of one kind from the bucket; their names. Raises SnapshotError, ConfigError and StoreError."""
        cluster_id = await self.cluster_id()
        async with remote_copies.opened(self._settings, self._clock, self._rng) as bucket:
            gone = await remote_copies.prune(bucket, name, remote_copies.retention(self._settings), cluster_id)
        self._settings.paths.remote_snapshots_changed.touch()
        return gone

    async def keep_schedule(self) -> None:
        """Take a snapshot whenever it is due, and no command of an operation runs on this host."""
        options = self._settings.snapshots
        try:
            schedule = Schedule(options.schedule)
        except BadSchedule as error:
            log.warning("there will be no scheduled snapshots: %s", error)
            return
        while (due := schedule.after(self._clock.time())) is not None:
            # In small steps: the wall clock may be changed meanwhile.
            while (left := due - self._clock.time()) > 0:
                await self._clock.sleep(min(left, 60.0))
            await host_commands.ended(self._settings.paths, self._clock)
            try:
                await self.take(options.name)
            except SnapshotError as error:
                log.warning("%s", error)

    # --- parts ----------------------------------------------------------------------------------------------------------

    async def _remember(self, snapshot: Snapshot) -> None:
        """Write the cluster's metadata beside the snapshot; it is usable without."""
        try:
            found = await self._stored(_EXTRA_KEY)
            path = snapshots.metadata_file(self._settings.snapshots.directory, snapshot.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(path, jsonio.dumps(found.get("data") or {}))
        except (StoreError, OSError) as error:
            log.warning("the snapshot %s has no metadata: %s", snapshot.name, error)

    async def _copy(self, snapshot: Snapshot, name: str, begun: float) -> tuple[str, list[str]]:
        """The location of the copy, "" if it failed, and the names of surplus ones that were deleted."""
        settings, copied = self._settings, ""
        gone: list[str] = []
        try:
            cluster_id = await self.cluster_id()
            async with remote_copies.opened(settings, self._clock, self._rng) as bucket:
                try:
                    await remote_copies.upload(bucket, settings, snapshot, cluster_id)
                    copied = bucket.place.location(snapshot.name)
                    log.info("uploaded the snapshot to %s", copied)
                except (S3Error, OSError) as error:
                    self._failed(snapshot.name, begun, error)
                try:
                    gone = await remote_copies.prune(bucket, name, remote_copies.retention(settings), cluster_id)
                except S3Error as error:
                    log.warning("surplus snapshots stay in the bucket: %s", error)
        except (ConfigError, SnapshotError, StoreError) as error:
            self._failed(snapshot.name, begun, error)
        settings.paths.remote_snapshots_changed.touch()
        return copied, gone

    async def cluster_id(self) -> str:
        """The uid of kube-system, by which k3s tells clusters apart; "" for a cluster that has none yet. Raises StoreError."""
        return str(dig(await self._stored(_SYSTEM_KEY), "metadata", "uid") or "")

    async def _stored(self, key: str) -> Mapping[str, Any]:
        """An object as the API server stored it, which also works on a server without an API."""
        found = await self._etcd.get(key)
        if found is None:
            return {}
        try:
            return dict(jsonio.loads(found.value))
        except ValueError:
            return {}

    def _failed(self, name: str, begun: float, error: Exception) -> None:
        log.warning("the snapshot %s is on this host only: %s", name, error)
        self._note(name, snapshots.REMOTE, begun, str(error))

    def _note(self, name: str, storage: str, when: float, message: str) -> None:
        try:
            snapshots.note_failure(self._settings.paths, Failure(name, storage, when, message))
        except OSError as error:
            log.warning("the failure can't be recorded: %s", error)
