"""Reading what there is of one machine, as far as it is for this reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from remuda.access.rancher_conditions import UNKNOWN
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.gateway.explain.cluster_reader import if_any, machines_of
from remuda.kube import conditions
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.machines.machineprovision.job_outcome import JobAttempt, JobEnd, attempts_of, outcome_of
from remuda.machines.machineprovision.machine_status import CREATE_JOB, DELETE_JOB, status_of
from remuda.machines.machineprovision.well_known import ATTEMPTS, CONFIG_MAPS, JOBS, LOG, attempts_name, job_name, log_name
from remuda.provisioning.well_known import CLUSTER_NAME, MACHINE_API_VERSION, MACHINE_GROUP, POOL_NAME, resource_of

from ..exit_codes import Code, Failure
from ..views.machine import MachineView

Obj = dict[str, Any]
_T = TypeVar("_T")

_LOG = "log"
_TEMPLATE = "cluster.x-k8s.io/cloned-from-name"


async def find(client: Client, namespace: str, name: str) -> Obj:
    """The Machine of this name, or that of the node or infrastructure of this name. Raises ApiError, and Failure."""
    try:
        return await client.get(capi.MACHINES, name, namespace)
    except ApiError as error:
        # Who sees some machines only, by their names, is not told that there is none of another name.
        if error.code not in (403, 404):
            raise
        forbidden = error if error.code == 403 else None
    here = [each for each in await _all_in(client, namespace) if name in _other_names(each)]
    if len(here) == 1:
        return dict(here[0])
    if here:
        raise Failure(f"{name} matches several machines: {_whose(here)}; name one of them", Code.CONFLICT)
    if forbidden is not None:
        raise forbidden
    elsewhere = [each for each in await _all_in(client, "") if name in (name_of(each), *_other_names(each))]
    if elsewhere:
        workspaces = " or ".join(sorted({f"-n {namespace_of(each)}" for each in elsewhere}))
        raise Failure(f"there is no machine {name} in the workspace {namespace}, but in another: {workspaces}", Code.NOT_FOUND)
    raise Failure(f"there is no machine {name} in the workspace {namespace}: remuda machine ls lists them", Code.NOT_FOUND)


async def _all_in(client: Client, namespace: str) -> list[Obj]:
    """All objects that this user may read."""
    return list((await if_any(client.list(capi.MACHINES, namespace)) or {}).get("items") or ())


def _other_names(machine: Obj) -> tuple[str, str]:
    return str(dig(machine, "status", "nodeRef", "name") or ""), _infrastructure(machine)


def _whose(machines: Iterable[Obj]) -> str:
    return ", ".join(sorted(f"{name_of(each)} of {cluster_of(each)}" for each in machines))


def cluster_of(machine: Obj) -> str:
    return str(dig(machine, "spec", "clusterName") or "")


async def every(client: Client, namespace: str = "") -> list[Obj]:
    """The machines of all clusters that one may see, of one workspace or of all. Who may not list them is given those of the
    clusters that they may. Raises ApiError."""
    try:
        found = list((await client.list(capi.MACHINES, namespace)).get("items") or ())
    except ApiError as error:
        if error.code != 403:
            raise
        clusters = (await client.list(provisioning.CLUSTERS, namespace)).get("items") or ()
        found = [each for wanted in clusters for each in await if_any(machines_of(client, wanted)) or ()]
    return sorted(found, key=lambda each: (namespace_of(each), cluster_of(each), name_of(each)))


async def look(client: Client, machine: Obj) -> MachineView:
    namespace, kind, name = namespace_of(machine), dig(machine, "spec", "infrastructureRef", "kind"), _infrastructure(machine)
    if dig(machine, "spec", "infrastructureRef", "apiGroup") != MACHINE_GROUP or not kind or not name:
        return MachineView(machine)
    infra = await if_any(client.get(resource_of(MACHINE_API_VERSION, kind), name, namespace))
    template_name = annotations_of(infra or {}).get(_TEMPLATE, "")
    resource = resource_of(MACHINE_API_VERSION, f"{kind}Template")
    template = await if_any(client.get(resource, template_name, namespace)) if template_name else None
    job = await if_any(client.get(JOBS, job_name(name), namespace))
    tried = await attempts(client, namespace, dig(machine, "spec", "clusterName") or "", labels_of(machine).get(POOL_NAME) or "")
    return MachineView(machine, infra, template, job, tuple(each for each in tried if each.machine == name_of(machine)))


async def attempts(client: Client, namespace: str, cluster: str, *pools: str) -> list[JobAttempt]:
    """The attempts to make machines of some pools of a cluster; the oldest first."""
    found = [await if_any(client.get(CONFIG_MAPS, attempts_name(cluster, pool), namespace)) for pool in pools]
    return _in_order(found)


async def all_attempts(client: Client, wanted: Obj) -> list[JobAttempt]:
    """The same for all pools of a cluster. Who may not list is given those of the pools that there are now, by name."""
    namespace, cluster = namespace_of(wanted), name_of(wanted)
    listed = await if_any(client.list(CONFIG_MAPS, namespace, labels=f"{ATTEMPTS}=true,{CLUSTER_NAME}={cluster}"))
    if listed is not None:
        return _in_order(listed.get("items") or ())
    pools = [str(each.get("name") or "") for each in dig(wanted, "spec", "rkeConfig", "machinePools") or ()]
    return await attempts(client, namespace, cluster, *pools)


def _in_order(found: Iterable[Obj | None]) -> list[JobAttempt]:
    tried = [each for config_map in found for each in attempts_of(config_map)]
    return sorted(tried, key=lambda each: each.ended or each.began)


async def log_of(client: Client, machine: Obj) -> str | None:
    """The output of the program that made the machine, or removes it; None when none is kept. Raises ApiError."""
    infra, namespace = _infrastructure(machine), namespace_of(machine)
    kept = await if_any(client.get(CONFIG_MAPS, log_name(infra), namespace))
    if kept is not None:
        return str(dig(kept, "data", _LOG) or "")
    pods = await if_any(client.list(_PODS, namespace, labels=f"batch.kubernetes.io/job-name={job_name(infra)}"))
    newest = sorted((pods or {}).get("items") or (), key=lambda pod: str(dig(pod, "metadata", "creationTimestamp") or ""))
    if not newest:
        return None
    try:
        return str(await client.raw("GET", f"/api/v1/namespaces/{namespace}/pods/{name_of(newest[-1])}/log"))
    except ApiError as error:
        # A pod whose program has not begun has no log yet.
        if error.code in (400, 404):
            return None
        raise


async def log_of_the_past(client: Client, namespace: str, name: str) -> str | None:
    """The same for a machine that is gone: its log stays for a while, under the name that its infrastructure had."""
    kept = await if_any(client.get(CONFIG_MAPS, log_name(name), namespace))
    return str(dig(kept, "data", _LOG) or "") if kept is not None and LOG in labels_of(kept) else None


async def is_worked_on(client: Client, machine: Obj) -> bool:
    """True if a Job that makes or removes the machine exists, or is about to. Raises ApiError."""
    ref, namespace = dig(machine, "spec", "infrastructureRef") or {}, namespace_of(machine)
    fresh = await if_any(client.get(capi.MACHINES, name_of(machine), namespace))
    if fresh is None or ref.get("apiGroup") != MACHINE_GROUP:
        return False
    infra_name = _infrastructure(machine)
    job = await if_any(client.get(JOBS, job_name(infra_name), namespace))
    if job is not None:
        return outcome_of(job).ended is JobEnd.NOT_YET
    infra = await if_any(client.get(resource_of(MACHINE_API_VERSION, str(ref.get("kind") or "")), infra_name, namespace))
    if infra is None:
        # It is gone; or it is not for this reader, and the Machine says enough.
        return is_being_deleted(fresh) or not conditions.is_true(fresh, "InfrastructureReady")
    kind = DELETE_JOB if is_being_deleted(infra) or is_being_deleted(fresh) else CREATE_JOB
    return status_of(infra, kind) in ("", UNKNOWN)


_PODS = GroupVersionResource("", "v1", "pods")


def _infrastructure(machine: Obj) -> str:
    return str(dig(machine, "spec", "infrastructureRef", "name") or "")


# --- log follow -----------------------------------------------------------------------------------------------------------
#
# Following a log that grows, and loses its oldest lines where it is too long: what is new in it is printed, until no program
# writes.
#
# A local Job's log is a ConfigMap that its runner writes every few seconds, a pod's is its own; both are read whole and
# compared.

PAUSE_SECONDS = 1.0
Reading = Callable[[], Awaitable[str | None]]
Going = Callable[[], Awaitable[bool]]


async def follow(read: Reading, going: Going, write: Callable[[str], None], warn: Callable[[str], None], clock: Clock) -> bool:
    """Follows the log until its writer ends; True if there was output. A server that is away is asked again. Raises ApiError."""
    before, trouble, anything = "", False, False
    while True:
        try:
            # In this order: what is said last is there before it is said that it is the last.
            more = await going()
            text = await read()
            trouble = False
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise
            if not trouble:
                warn(f"{error.message}; trying again")
            more, text, trouble = True, None, True
        if text is not None:
            anything = True
            if new := added(before, text):
                write(new)
            before = text
        if not more:
            return anything
        await clock.sleep(PAUSE_SECONDS)


def added(before: str, now: str) -> str:
    """The new lines: `now` begins with the rest of `before`, and that with one of its lines."""
    start = 0
    while start < len(before):
        if now.startswith(before[start:]):
            return now[len(before) - start :]
        start = before.find("\n", start) + 1 or len(before)
    return now


# --- machine deletion ------------------------------------------------------------------------------------------------------
#
# Taking a machine away: so that another takes its place, or so that its pool is smaller by one.

# Of a smaller pool Cluster API takes the machines first that say this.
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"


async def delete(client: Client, machine: Obj, *, shrink: bool) -> str:
    """A sentence about the removal that was done. Raises ApiError, and Failure."""
    pool, name, namespace = labels_of(machine).get(POOL_NAME) or "", name_of(machine), namespace_of(machine)
    if not shrink:
        await client.delete(capi.MACHINES, name, namespace, uid=uid_of(machine))
        return f"{name} goes" + (f"; the pool {pool} makes another" if pool else "")
    if not pool:
        raise Failure(f"{name} is not in a machine pool: omit --shrink", Code.USAGE)
    cluster = await client.get(provisioning.CLUSTERS, dig(machine, "spec", "clusterName") or "", namespace)
    pools = [dict(each) for each in dig(cluster, "spec", "rkeConfig", "machinePools") or ()]
    found = next((each for each in pools if each.get("name") == pool), None)
    quantity = found.get("quantity") if found is not None else None
    if found is None or not isinstance(quantity, int) or quantity < 1:
        raise Failure(f"the pool {pool} of {name_of(cluster)} has no quantity that can be reduced", Code.CONFLICT)
    # First whom to take, then how many to leave.
    marks = {"metadata": {"uid": uid_of(machine), "annotations": {DELETE_FIRST: "true"}}}
    await client.patch(capi.MACHINES, name, marks, namespace)
    found["quantity"] = quantity - 1
    patch = {"metadata": {"resourceVersion": resource_version_of(cluster)}, "spec": {"rkeConfig": {"machinePools": pools}}}
    await client.patch(provisioning.CLUSTERS, name_of(cluster), patch, namespace)
    return f"{name} is deleted; the pool {pool} has {quantity - 1} now"
