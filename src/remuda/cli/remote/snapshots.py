"""Reading the backups of clusters from a server, as far as they are for this reader."""

from __future__ import annotations

from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet, grouped
from remuda.provisioning.well_known import CLUSTER_NAME

from ..exit_codes import Code, Failure


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
