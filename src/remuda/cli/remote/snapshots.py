"""Reading the backups of clusters from a server, as far as they are for this reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, labels_of
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet, grouped
from remuda.provisioning.etcd.snapshot_specs import SnapshotSpecError, cluster_spec
from remuda.provisioning.well_known import CLUSTER_NAME, ETCD_ROLE, INIT_NODE, MACHINE_NAME

from ..exit_codes import Code, Failure

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


async def find(client: Client, namespace: str, name: str, cluster: str = "") -> SnapshotSet:
    """The backup of that name; also that of an ETCDSnapshot, or of a file. Raises ApiError, and Failure."""
    known = await (of_cluster(client, namespace, cluster) if cluster else every(client, namespace))
    found = [each for each in known if name in each.names()]
    if len(found) == 1:
        return found[0]
    if found:
        clusters = ", ".join(sorted({each.cluster for each in found}))
        raise Failure(f"{name} is a snapshot of several clusters: {clusters}; name one of its ETCDSnapshots", Code.CONFLICT)
    whose = f"cluster {cluster}" if cluster else f"the workspace {namespace}"
    raise Failure(f"there is no snapshot {name} of {whose}: remuda snapshot ls lists them", Code.NOT_FOUND)


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
