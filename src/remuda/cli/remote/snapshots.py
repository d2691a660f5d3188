"""Reading the backups of clusters from a server, as far as they are for this reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.gateway.explain.states import ClusterView
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, labels_of, name_of
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet, grouped
from remuda.provisioning.etcd.snapshot_specs import SnapshotSpecError, cluster_spec
from remuda.provisioning.well_known import CLUSTER_NAME, ETCD_ROLE, INIT_NODE, MACHINE_NAME

from ..exit_codes import Code, Failure
from ..views.restore_preview import no_way_back

Obj = dict[str, Any]

# Hosts report their files soon after an operation, if the cluster's API or their agents answer.
_EVERY, _REPORTED_WITHIN = 1.0, 30.0
_SCHEDULED: Final = "etcd-snapshot-"


async def of_cluster(client: Client, namespace: str, cluster: str) -> list[SnapshotSet]:
    """The newest first. Raises ApiError."""
    found = await client.list(rke.ETCD_SNAPSHOTS, namespace, labels=f"{CLUSTER_NAME}={cluster}")
    return grouped(found.get("items") or ())


async def every(client: Client, namespace: str = "") -> list[SnapshotSet]:
    """Those of all clusters, of one workspace or of all. Raises ApiError."""
    return grouped((await client.list(rke.ETCD_SNAPSHOTS, namespace)).get("items") or ())


async def find(client: Client, wanted: Obj, name: str) -> SnapshotSet:
    """The backup of a cluster by its name; also by that of an ETCDSnapshot, or of a file. Raises ApiError, and Failure."""
    key = Key.of(wanted)
    found = [each for each in await of_cluster(client, *key) if name in each.names()]
    if not found:
        raise Failure(f"there is no snapshot {name} of cluster {key.name}: remuda snapshot ls lists them", Code.NOT_FOUND)
    return found[0]


async def before_upgrade(client: Client, sight: ClusterView) -> SnapshotSet:
    """The backup from before the last change of the minor version. Raises ApiError, and Failure."""
    cluster, state = name_of(sight.wanted), dig(sight.plane or {}, "status", "upgradeSnapshot") or {}
    why = no_way_back(str(dig(sight.wanted, "spec", "kubernetesVersion") or ""), state)
    if why:
        raise Failure(f"cluster {cluster} can't go back: {why}", Code.CONFLICT)
    name = str(state.get("name") or "")
    found = [each for each in await of_cluster(client, *Key.of(sight.wanted)) if each.name.rpartition("-")[0] == name]
    if not found:
        why = f"snapshot {name} is not there any more: it was deleted, or its place keeps fewer (retention)"
        raise Failure(f"cluster {cluster} can't go back: {why}", Code.NOT_FOUND)
    return found[0]


async def init_machine(client: Client, namespace: str, cluster: str) -> str:
    """The name of the Machine that the others join; "" if there is none, or if this reader may not know."""
    try:
        found = await client.list(SECRETS, namespace, labels=f"{CLUSTER_NAME}={cluster},{INIT_NODE}=true", metadata_only=True)
    except ApiError as error:
        if error.code != 403:
            raise
        return ""
    return next((labels_of(each).get(MACHINE_NAME) or "" for each in found.get("items") or ()), "")


async def spec_of(client: Client, namespace: str, name: str) -> Obj | None:
    """The cluster's spec at the time of an ETCDSnapshot; None if it does not have it. Raises ApiError, and Failure."""
    try:
        return cluster_spec(await client.get(rke.ETCD_SNAPSHOTS, name, namespace))
    except SnapshotSpecError as error:
        raise Failure(f"ETCDSnapshot {name}: {error}") from None


async def names(client: Client, wanted: Obj) -> frozenset[str]:
    """The names of all ETCDSnapshots of a cluster."""
    return frozenset(copy.name for each in await of_cluster(client, *Key.of(wanted)) for copy in each.copies)


async def taken_since(
    client: Client, wanted: Obj, machines: Iterable[Obj], known: frozenset[str], clock: Clock = SYSTEM_CLOCK
) -> SnapshotSet | None:
    """The backup that was taken on request since `known` were all, once its copies are reported; None if none is in time."""
    members = sum(labels_of(machine).get(ETCD_ROLE) == "true" for machine in machines)
    expected = members * (2 if dig(wanted, "spec", "rkeConfig", "etcd", "s3") else 1)
    until = clock.monotonic() + _REPORTED_WITHIN
    while True:
        found = [
            each
            for each in await of_cluster(client, *Key.of(wanted))
            if not each.name.startswith(_SCHEDULED) and not any(copy.name in known for copy in each.copies)
        ]
        newest = found[0] if found else None
        if (newest is not None and len(newest.copies) >= expected) or clock.monotonic() >= until:
            return newest
        await clock.sleep(_EVERY)
