"""What this version of Remuda would do to the machines of clusters that another version has managed: `remuda upgrade-check`
(docs/upgrades.md#plans-that-are-held).

Each cluster is rehearsed twice: as it is, for what comes by itself, and with the renderings of this version accepted, for what is
held until then. The clusters are read from a running server, before or after its upgrade, or from a backup of its store.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from remuda import __version__
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.apiserver.backup.format import Backup
from remuda.apiserver.backup.restore import restore
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.objects import Key, is_being_deleted
from remuda.lab.sim.provisioning_world import Surroundings
from remuda.provisioning.well_known import ACCEPT_RENDERING

from . import cluster_copy
from .changes import Patch
from .machine_outcomes import Judged, by_begin, judged
from .past_times import host_times, job_times
from .rehearsed import Start, rehearse
from .result import FieldChange, Outcome
from .scope import has_machines


class CheckedMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """`outcome` is what happens to it by itself, `accepted` what happens once the user has accepted it."""

    cluster: str
    name: str
    outcome: Outcome
    accepted: Outcome
    reasons: tuple[FieldChange, ...] = ()

    @property
    def is_held(self) -> bool:
        return self.accepted is not self.outcome


class UpgradeCheck(msgspec.Struct, frozen=True):
    """All machines that something happens to, by itself or once it is accepted."""

    version: str
    clusters: tuple[str, ...]
    machines: tuple[CheckedMachine, ...]


async def check(client: Client, surroundings: Surroundings, now: float) -> UpgradeCheck:
    """Raises ApiError."""
    listed = (await client.list(provisioning.CLUSTERS))["items"]
    keys = sorted(Key.of(each) for each in listed if has_machines(each) and not is_being_deleted(each))
    machines: list[CheckedMachine] = []
    for key in keys:
        copy = await cluster_copy.read(client, (accept(key),), (key,))
        times = host_times(copy.of(SECRETS)), job_times(copy.of(MACHINES))
        start = Start(copy.state(), copy.clusters, now, surroundings, None, *times)
        alone = await rehearse(start, (), first_seconds=0.0)
        accepted = await rehearse(start, (accept(key),), first_seconds=0.0)
        machines += compared(judged(alone.record), judged(accepted.record))
    return UpgradeCheck(__version__, tuple(map(str, keys)), tuple(machines))


def accept(cluster: Key) -> Patch:
    """The change with which a user accepts the renderings of this version."""
    patch = {"metadata": {"annotations": {ACCEPT_RENDERING: __version__}}}
    return Patch(provisioning.CLUSTERS, cluster.namespace, cluster.name, patch)


def compared(alone: list[Judged], accepted: list[Judged]) -> list[CheckedMachine]:
    """The machines to which something happens in one of the two."""
    by_key = {each.key: each for each in alone}
    found = []
    for each in by_begin(accepted):
        before = by_key.get(each.key, each)
        if Outcome.UNTOUCHED is before.outcome is each.outcome:
            continue
        reasons = each.reasons or before.reasons
        found.append(CheckedMachine(str(each.cluster), each.name, before.outcome, each.outcome, reasons))
    return found


@contextlib.asynccontextmanager
async def of_backup(backup: Backup, key: bytes) -> AsyncIterator[Client]:
    """The state in a backup, served to this process only. Raises BackupError."""
    with tempfile.TemporaryDirectory(prefix="remuda-upgrade-check-") as directory:
        data_dir = Path(directory) / "data"
        data_dir.mkdir(mode=0o700)
        restore(backup, key, data_dir, None, SYSTEM_CLOCK, Entropy(), force=False, progress=lambda done, of: None)
        server = await Server.open(Config(data_dir=data_dir))
        try:
            yield InProcessClient(server)
        finally:
            await server.close()
