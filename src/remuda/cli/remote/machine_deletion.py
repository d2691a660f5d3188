"""Taking a machine away: so that another takes its place, or so that its pool is smaller by one."""

from __future__ import annotations

from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.kube.objects import dig, labels_of, name_of, namespace_of, resource_version_of, uid_of
from remuda.provisioning.well_known import POOL_NAME

from ..exit_codes import Code, Failure

Obj = dict[str, Any]

# Of a smaller pool Cluster API takes the machines first that say this.
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"


async def delete(client: Client, machine: Obj, *, shrink: bool) -> str:
    """What was done, in words. Raises ApiError, and Failure."""
    pool, name, namespace = labels_of(machine).get(POOL_NAME) or "", name_of(machine), namespace_of(machine)
    if not shrink:
        await client.delete(capi.MACHINES, name, namespace, uid=uid_of(machine))
        return f"{name} goes" + (f"; the pool {pool} makes another" if pool else "")
    if not pool:
        raise Failure(f"{name} is of no machine pool: leave --shrink out", Code.USAGE)
    cluster = await client.get(provisioning.CLUSTERS, dig(machine, "spec", "clusterName") or "", namespace)
    pools = [dict(each) for each in dig(cluster, "spec", "rkeConfig", "machinePools") or ()]
    found = next((each for each in pools if each.get("name") == pool), None)
    quantity = found.get("quantity") if found is not None else None
    if found is None or not isinstance(quantity, int) or quantity < 1:
        raise Failure(f"the pool {pool} of {name_of(cluster)} has no quantity that could be less", Code.CONFLICT)
    # First whom to take, then how many to leave.
    marks = {"metadata": {"uid": uid_of(machine), "annotations": {DELETE_FIRST: "true"}}}
    await client.patch(capi.MACHINES, name, marks, namespace)
    found["quantity"] = quantity - 1
    patch = {"metadata": {"resourceVersion": resource_version_of(cluster)}, "spec": {"rkeConfig": {"machinePools": pools}}}
    await client.patch(provisioning.CLUSTERS, name_of(cluster), patch, namespace)
    return f"{name} goes; the pool {pool} has {quantity - 1} from now on"
