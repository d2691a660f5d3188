"""The controller that cleans up in a removed cluster: the agent, its namespace, our roles and bindings.

Only objects marked as made for this cluster are removed (:mod:`remuda.access.agent_objects`), and a namespace only if no other
workload runs in it. The service account that does all this is removed last: its binding becomes the owner of everything that it
needs, so that the cluster's own garbage collection removes them together.

Removal waits a minute for a cluster that can't be reached. Then it goes on, and an event says what was left. A cluster that we
provisioned ourselves is deleted with its machines, and needs no cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.idempotent import find, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import deadline, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    finalizers_of,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Manager, Result, changed, logger, synced

from ..agent_objects import (
    ADMIN_BINDING,
    ADMIN_ROLE,
    AGENT,
    AGGREGATION_SECRET,
    BY_AGENT,
    IMPERSONATION_NAMESPACE,
    MADE_BY,
    MADE_FOR,
    NAMESPACE,
    SERVICE_ACCOUNT,
)
from ..downstreams import Downstreams, while_working
from .cluster_conditions import is_administrated, is_internal

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "cluster-removal"
FINALIZER: Final = "remuda.dev/downstream-cleanup"
PATIENCE: Final = 60.0
_SECONDS: Final = 30.0
_AGAIN: Final = 3.0
_WRITES: Final = 5

_RBAC = "rbac.authorization.k8s.io"

BINDINGS = GroupVersionResource(_RBAC, "v1", "clusterrolebindings")
ROLES = GroupVersionResource(_RBAC, "v1", "clusterroles")
PRIORITIES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS = GroupVersionResource("", "v1", "secrets")
SERVICES = GroupVersionResource("", "v1", "services")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
DAEMON_SETS = GroupVersionResource("apps", "v1", "daemonsets")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
# Workloads of others that may run beside ours.
_WORKLOADS = (
    DEPLOYMENTS,
    GroupVersionResource("apps", "v1", "statefulsets"),
    DAEMON_SETS,
    GroupVersionResource("batch", "v1", "cronjobs"),
    GroupVersionResource("batch", "v1", "jobs"),
)


@dataclass(slots=True)
class RemainingObjects:
    """Descriptions of the objects that still exist."""

    things: list[str] = field(default_factory=list)

    def add(self, resource: GroupVersionResource, name: str, why: str) -> None:
        self.things.append(f"{resource.group_resource} {name} ({why})")


class Removal:
    def __init__(self, manager: Manager, downstreams: Downstreams) -> None:
        self.controller = Controller(CONTROLLER, CLUSTERS, when=_change, concurrency=8, timeout=120.0, lane=lambda key: key)
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._downstreams = downstreams
        self._clusters = manager.informers.of(CLUSTERS)
        self._events = manager.recorder(CONTROLLER)
        self._cleaned: set[str] = set()
        while_working(manager, lambda: downstreams.on_change(self._look))

    def _look(self, cluster: str) -> None:
        working = self._manager.working(CONTROLLER)
        found = self._clusters.get("", cluster)
        if working is not None and found is not None and is_being_deleted(found):
            working.queue.add(Key("", cluster))

    async def reconcile(self, key: Key) -> Result:
        await synced(self._clusters)
        cluster = self._clusters.get(*key)
        if cluster is None:
            return DONE
        if not is_being_deleted(cluster):
            await self._bind(cluster)
            return DONE
        if FINALIZER not in finalizers_of(cluster):
            return DONE
        return await self._clean(cluster)

    async def _bind(self, cluster: Obj) -> None:
        """After the first contact, the cluster may contain objects to clean up."""
        contacted = dig(cluster, "status", "apiEndpoint") and not is_internal(cluster) and not is_administrated(cluster)
        if contacted and FINALIZER not in finalizers_of(cluster):
            await self._write(cluster, lambda before: [*before, FINALIZER] if FINALIZER not in before else before)

    async def _write(self, cluster: Obj, change: Callable[[list[str]], list[str]]) -> None:
        """Change the finalizers of the object as it is now: others write it all the time."""
        found: Obj | None = cluster
        for attempt in range(_WRITES):
            if found is None or uid_of(found) != uid_of(cluster):
                return
            patch = {"metadata": {"resourceVersion": resource_version_of(found), "finalizers": change(finalizers_of(found))}}
            try:
                await self._client.patch(CLUSTERS, name_of(found), patch, field_manager=CONTROLLER)
                return
            except ApiError as error:
                if error.is_not_found:
                    return
                if not error.is_conflict or attempt == _WRITES - 1:
                    raise
            found = await find(self._client, CLUSTERS, name_of(cluster))

    async def _clean(self, cluster: Obj) -> Result:
        name = name_of(cluster)
        if uid_of(cluster) in self._cleaned:
            # The account that cleaned up was removed too: the cluster can't be inspected again.
            return await self._let_go(cluster)
        problem = "it needs no cleaning" if is_administrated(cluster) else "its agent is not connected"
        downstream = None if is_administrated(cluster) else self._downstreams.get(name)
        if downstream is not None:
            left = RemainingObjects()
            try:
                async with deadline(self._clock, _SECONDS):
                    await clean(downstream.client, name, left)
            except TimeoutError:
                problem = f"it took longer than {_SECONDS:.0f} s"
            except (ApiError, OSError) as error:
                problem = error.message if isinstance(error, ApiError) else str(error) or type(error).__name__
            else:
                self._cleaned.add(uid_of(cluster))
                self._tell(cluster, left)
                return await self._let_go(cluster)
        began = time_of(metadata(cluster).get("deletionTimestamp")) or 0.0
        if not is_administrated(cluster) and self._clock.time() < began + PATIENCE:
            log.info("not cleaned yet: %s", problem)
            return Result(after=_AGAIN)
        if not is_administrated(cluster):
            self._events.event(
                cluster,
                WARNING,
                "DownstreamNotCleaned",
                f"the cluster was removed, but our objects in it were left there, since {problem}: namespaces {NAMESPACE} and "
                f"{IMPERSONATION_NAMESPACE}, and cluster roles and bindings with the annotation {MADE_FOR}={name}",
            )
            log.warning("removed without cleaning: %s", problem)
        return await self._let_go(cluster)

    def _tell(self, cluster: Obj, left: RemainingObjects) -> None:
        if left.things:
            listed = ", ".join(left.things)
            self._events.event(cluster, WARNING, "DownstreamPartlyCleaned", f"what was left in the cluster: {listed}")
        else:
            self._events.event(cluster, NORMAL, "DownstreamCleaned", "everything that we made in the cluster was removed")

    async def _let_go(self, cluster: Obj) -> Result:
        await self._write(cluster, lambda before: [each for each in before if each != FINALIZER])
        self._cleaned.discard(uid_of(cluster))
        return DONE


# --- in the cluster -------------------------------------------------------------------------------------------------------


def is_ours(obj: Obj, cluster: str) -> bool:
    annotations = annotations_of(obj)
    made_for = annotations.get(MADE_FOR)
    return made_for == cluster or (made_for is None and annotations.get(MADE_BY) == BY_AGENT)


async def clean(client: Client, cluster: str, left: RemainingObjects) -> None:
    """Remove our objects. If it is interrupted, it can start again: every step is repeatable."""
    last = {(BINDINGS, ADMIN_BINDING), (ROLES, ADMIN_ROLE)}
    for resource in (BINDINGS, ROLES, PRIORITIES, CRDS):
        for obj in await _ours(client, resource, cluster):
            if (resource, name_of(obj)) not in last:
                await remove(client, resource, obj)
    await _clean_impersonation(client, cluster, left)
    namespace = await find(client, NAMESPACES, NAMESPACE)
    binding = await find(client, BINDINGS, ADMIN_BINDING)
    role = await find(client, ROLES, ADMIN_ROLE)
    if binding is not None and not is_ours(binding, cluster):
        left.add(BINDINGS, ADMIN_BINDING, "it was not made for this cluster")
    elif binding is not None and role is not None and is_ours(role, cluster):
        await _hand_over(client, ROLES, role, binding)
    if namespace is not None and not is_being_deleted(namespace):
        await _clean_namespace(client, cluster, namespace, binding, left)
    if binding is None or not is_ours(binding, cluster):
        return
    await remove(client, BINDINGS, binding, propagation="Background")


async def _ours(client: Client, resource: GroupVersionResource, cluster: str, namespace: str = "") -> Iterable[Obj]:
    listed = await client.list(resource, namespace, metadata_only=True)
    return [obj for obj in listed["items"] if is_ours(obj, cluster)]


async def _hand_over(client: Client, resource: GroupVersionResource, obj: Obj, owner: Obj) -> None:
    """Let garbage collection delete the object with its new owner."""
    reference = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "name": name_of(owner), "uid": uid_of(owner)}
    patch = {"metadata": {"ownerReferences": [reference]}}
    await client.patch(resource, name_of(obj), patch, namespace_of(obj), field_manager=CONTROLLER)


async def _clean_impersonation(client: Client, cluster: str, left: RemainingObjects) -> None:
    namespace = await find(client, NAMESPACES, IMPERSONATION_NAMESPACE)
    if namespace is None:
        return
    for account in await _ours(client, ACCOUNTS, cluster, IMPERSONATION_NAMESPACE):
        await remove(client, ACCOUNTS, account)
    others = [
        name_of(account)
        for account in (await client.list(ACCOUNTS, IMPERSONATION_NAMESPACE, metadata_only=True))["items"]
        if name_of(account) != "default" and not is_being_deleted(account)
    ]
    if others:
        left.add(NAMESPACES, IMPERSONATION_NAMESPACE, f"it has service accounts of others, such as {others[0]}")
    elif not is_being_deleted(namespace):
        await remove(client, NAMESPACES, namespace)


async def _clean_namespace(client: Client, cluster: str, namespace: Obj, binding: Obj | None, left: RemainingObjects) -> None:
    others = await _others(client, cluster)
    if is_ours(namespace, cluster) and not others:
        if binding is not None and is_ours(binding, cluster):
            # If deleted now, its account would be lost before the work is done.
            await _hand_over(client, NAMESPACES, namespace, binding)
        else:
            await remove(client, NAMESPACES, namespace)
        return
    why = f"{others[0]} runs in it" if others else "it was not made for this cluster"
    left.add(NAMESPACES, NAMESPACE, why)
    for resource in (SERVICES, BUDGETS, SECRETS, DEPLOYMENTS, DAEMON_SETS, ACCOUNTS):
        for obj in await _ours(client, resource, cluster, NAMESPACE):
            if (resource, name_of(obj)) != (ACCOUNTS, SERVICE_ACCOUNT):
                await remove(client, resource, obj, propagation="Background")
    aggregation = await find(client, SECRETS, AGGREGATION_SECRET, NAMESPACE)
    if aggregation is not None:
        await remove(client, SECRETS, aggregation)
    account = await find(client, ACCOUNTS, SERVICE_ACCOUNT, NAMESPACE)
    if account is not None and is_ours(account, cluster) and binding is not None and is_ours(binding, cluster):
        await _hand_over(client, ACCOUNTS, account, binding)


async def _others(client: Client, cluster: str) -> list[str]:
    found = []
    for resource in _WORKLOADS:
        try:
            listed = await client.list(resource, NAMESPACE, metadata_only=True)
        except ApiError as error:
            if error.code != 404:
                raise
            continue
        found += [
            f"{resource.group_resource} {name_of(obj)}"
            for obj in listed["items"]
            if name_of(obj) != AGENT and not is_ours(obj, cluster) and not metadata(obj).get("ownerReferences")
        ]
    return found


_change = changed(is_being_deleted, finalizers_of, lambda cluster: bool(dig(cluster, "status", "apiEndpoint")))
