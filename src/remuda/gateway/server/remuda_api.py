"""Answers below `/v1-remuda/`: waits of controllers about a cluster, its backups, and the Kubernetes versions with release data.

`/v1-remuda/waits` is for callers who may read that cluster. Waits are not stored (:mod:`remuda.kube.waits`); conditions have some
of them as text. This serves all of them, from the memory of the controllers in this process; when another server is the leader,
it is asked. If it does not answer, `complete` is false, `leader` names its host, as far as it is known, and the caller has only
conditions.

`/v1-remuda/versions` is for every user (`remuda versions`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import plan_cattle_io as plans
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.replicas.leadership import LEASE, LEASE_NAMESPACE
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.builtin_resources import CRDS, LEASES
from remuda.kube.errors import ApiError, bad_request, unavailable
from remuda.kube.objects import GroupVersionResource, Key, dig, name_of, namespace_of
from remuda.kube.redaction import redacted
from remuda.kube.waits import Ref, Wait
from remuda.provisioning.etcd.snapshot_sets import grouped
from remuda.provisioning.releases import distributions
from remuda.provisioning.releases.release_data import kept
from remuda.runtime.webhook_server import MUTATING, VALIDATING

from . import norman
from .dependencies import Services
from .routing import Access, RequestContext

Obj = dict[str, Any]
Source = Callable[[], Iterable[Wait]]

WAITS: Final = "/v1-remuda/waits"
# The question of servers to each other.
_WAITS_OF_CLUSTER: Final = "waits-of-cluster"


# Objects with a cluster's own name, in its workspace.
_CALLED_SO: Final = frozenset(
    {
        (provisioning.GROUP, "Cluster"),
        (capi.GROUP, "Cluster"),
        (rke.GROUP, "RKEControlPlane"),
        (rke.GROUP, "RKECluster"),
        (plans.GROUP, "Beacon"),
    }
)


# Other objects that an object of a cluster may wait for, with waits of their own. A closed list: a wait of a Secret in another
# workspace, for example, is not for readers of this cluster.
_SHARED: Final = frozenset(
    {
        ("batch", "Job"),
        (management.GROUP, "DynamicSchema"),
        (management.GROUP, "NodeDriver"),
        (management.GROUP, "Setting"),
    }
)
# Such objects may wait for each other: a schema for its driver.
_ROUNDS: Final = 3

# The kinds whose objects belong to the cluster that their label names, beside Machines.
_OF_POOLS: Final = (
    (capi.MACHINE_DEPLOYMENTS, "MachineDeployment"),
    (capi.MACHINE_SETS, "MachineSet"),
    (capi.MACHINE_HEALTH_CHECKS, "MachineHealthCheck"),
)

_WEBHOOK_CONFIGURATIONS: Final = (
    (VALIDATING, "ValidatingWebhookConfiguration"),
    (MUTATING, "MutatingWebhookConfiguration"),
)
_WEBHOOK: Final = re.compile(r'(?:failed calling webhook|admission webhook) "([^"]+)"')
_CONVERSION: Final = re.compile(r"conversion webhook for ([A-Za-z0-9.-]+)/[a-z0-9]+, Kind=([A-Za-z0-9]+) ")


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster: those with its name, those in the namespace of its id, and `others` of its machines and pools."""

    cluster: Key
    identifier: str
    others: Collection[Ref] = ()

    def holds(self, ref: Ref) -> bool:
        if self.identifier and self.identifier in (ref.namespace, "" if ref.namespace else ref.name):
            return True
        return ((ref.namespace, ref.name) == self.cluster and (ref.group, ref.kind) in _CALLED_SO) or ref in self.others

    def among(self, waits: Iterable[Wait]) -> list[Wait]:
        """The waits of the cluster: of its own objects, and of shared ones that these wait for, directly or through others."""
        everything = list(waits)
        reached: set[Ref] = set()
        for _ in range(_ROUNDS):
            found = [wait for wait in everything if self.holds(wait.subject) or wait.subject in reached]
            new = {wait.on for wait in found if wait.on is not None and self._may_share(wait.on)} - reached
            if not new:
                break
            reached |= new
        return [wait for wait in everything if self.holds(wait.subject) or wait.subject in reached]

    def _may_share(self, ref: Ref) -> bool:
        return (ref.group, ref.kind) in _SHARED and ref.namespace in ("", self.cluster.namespace)


class Waits:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._sources: list[Source] = []
        services.others.tell(_WAITS_OF_CLUSTER, self._own)
        services.routes.add("GET", WAITS, self.read, Access.USER, largest=0, quiet=True)

    def follow(self, source: Source) -> Callable[[], None]:
        """Add running controllers; call the result when they stop."""
        self._sources.append(source)
        return lambda: self._sources.remove(source)

    def of(self, belongings: ClusterObjects) -> list[Wait]:
        # The same manager may have been added twice.
        found = dict.fromkeys(wait for source in self._sources for wait in source())
        return belongings.among(found)

    async def about(self, cluster: Key) -> list[Wait]:
        """The waits about a provisioning Cluster. Raises ApiError."""
        return await self._with_conversions(await self._with_webhooks(self.of(await self._belongings(cluster))))

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """The waits for `?cluster=NAMESPACE/NAME`, a provisioning Cluster."""
        cluster = cluster_of(asked)
        action = Action(asked.user, "get", *provisioning.CLUSTERS, namespace=cluster.namespace, name=cluster.name)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)
        return norman.shown({"cluster": str(cluster), **await self.known(cluster)})

    async def known(self, cluster: Key) -> Obj:
        """What the server knows that runs the controllers: this one, or one that it asks; else where that is."""
        if not self._sources:
            for answer in await self._services.others.ask(_WAITS_OF_CLUSTER, str(cluster)):
                if answer["complete"]:
                    return dict(answer)
        found = await self._own(str(cluster))
        leader = "" if found["complete"] else await self._leader()
        return found | ({"leader": leader} if leader else {})

    async def _own(self, cluster: str) -> Obj:
        namespace, _, name = cluster.partition("/")
        found = await self.about(Key(namespace, name))
        return {"complete": bool(self._sources), "waits": [shown(wait) for wait in found]}

    def subjects(self) -> set[Ref]:
        """All objects that wait for something."""
        return {wait.subject for source in self._sources for wait in source()}

    async def _leader(self) -> str:
        """The host on which the controllers run, by the Lease that servers of one store share."""
        try:
            lease = await find(self._services.client, LEASES, LEASE, LEASE_NAMESPACE)
        except ApiError:
            # On a foreign Kubernetes the Lease is elsewhere, or not readable.
            return ""
        return str(dig(lease or {}, "spec", "holderIdentity") or "").rpartition("_")[0]

    async def _belongings(self, cluster: Key) -> ClusterObjects:
        wanted = await self._services.client.get(provisioning.CLUSTERS, cluster.name, cluster.namespace)
        label = f"{CLUSTER_NAME}={cluster.name}"
        machines, *pools = await asyncio.gather(
            self._listed(capi.MACHINES, cluster.namespace, label),
            *(self._listed(resource, cluster.namespace, label) for resource, _ in _OF_POOLS),
        )
        others = {ref for each in machines for ref in _parts(each)}
        for (_, kind), found in zip(_OF_POOLS, pools, strict=True):
            others.update(Ref(capi.GROUP, kind, *Key.of(each)) for each in found)
        return ClusterObjects(cluster, str(dig(wanted, "status", "clusterName") or ""), others)

    async def _listed(self, resource: GroupVersionResource, namespace: str = "", labels: str = "") -> list[Obj]:
        try:
            return list((await self._services.client.list(resource, namespace, labels=labels)).get("items") or ())
        except ApiError as error:
            # Cluster API may be absent.
            if error.is_not_found:
                return []
            raise

    async def _readable(self, resource: GroupVersionResource) -> list[Obj]:
        """The objects of a resource that the gateway needs no right for; none without it."""
        try:
            return await self._listed(resource)
        except ApiError:
            return []

    async def _with_webhooks(self, waits: list[Wait]) -> list[Wait]:
        """The waits; those because of a webhook, which the API names in its message, on the configuration that has it."""
        if not any(_WEBHOOK.search(wait.evidence) for wait in waits):
            return waits
        by_name: dict[str, Ref] = {}
        for resource, kind in _WEBHOOK_CONFIGURATIONS:
            for found in await self._readable(resource):
                on = Ref(resource.group, kind, "", name_of(found))
                by_name |= {str(each.get("name")): on for each in found.get("webhooks") or ()}
        return [_on_webhook(wait, by_name) for wait in waits]

    async def _with_conversions(self, waits: list[Wait]) -> list[Wait]:
        """The waits; those because of a conversion webhook on the definition of the kind that it does not convert."""
        if not any(_CONVERSION.search(wait.evidence) for wait in waits):
            return waits
        by_kind: dict[tuple[str, str], Ref] = {}
        for found in await self._readable(CRDS):
            on = Ref(CRDS.group, "CustomResourceDefinition", "", name_of(found))
            by_kind[str(dig(found, "spec", "group")), str(dig(found, "spec", "names", "kind"))] = on
        return [_on_definition(wait, by_kind) for wait in waits]


def _on_webhook(wait: Wait, by_name: Mapping[str, Ref]) -> Wait:
    named = _WEBHOOK.search(wait.evidence)
    on = by_name.get(named[1]) if named else None
    return wait if on is None else replace(wait, on=on)


def _on_definition(wait: Wait, by_kind: Mapping[tuple[str, str], Ref]) -> Wait:
    named = _CONVERSION.search(wait.evidence)
    on = by_kind.get((named[1], named[2])) if named else None
    return wait if on is None else replace(wait, on=on)


def shown(wait: Wait) -> Obj:
    """The wait as callers read it; its evidence may quote a host or a provider."""
    found: Obj = {"code": str(wait.code), "actor": str(wait.actor), "subject": _ref(wait.subject)}
    if wait.on is not None:
        found["on"] = _ref(wait.on)
    return {**found, "evidence": redacted(wait.evidence), "since": wait.since}


def _ref(ref: Ref) -> Obj:
    return {"group": ref.group, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _parts(machine: Obj) -> Iterable[Ref]:
    namespace = namespace_of(machine)
    yield Ref(capi.GROUP, "Machine", namespace, name_of(machine))
    for path in (("spec", "bootstrap", "configRef"), ("spec", "infrastructureRef")):
        found = dig(machine, *path) or {}
        yield Ref(found.get("apiGroup") or "", found.get("kind") or "", namespace, found.get("name") or "")


SNAPSHOTS: Final = "/v1-remuda/snapshots"


class Snapshots:
    """Backups of a cluster, each with its copies, read with the caller's own permissions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        services.routes.add("GET", SNAPSHOTS, self.read, Access.USER, largest=0, quiet=True)

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """Those of `?cluster=NAMESPACE/NAME`, the newest first."""
        cluster = cluster_of(asked)
        client = acting_client(self._services, asked)
        label = f"{CLUSTER_NAME}={cluster.name}"
        found = (await client.list(rke.ETCD_SNAPSHOTS, cluster.namespace, labels=label)).get("items") or ()
        return norman.shown({"cluster": str(cluster), "snapshots": [each.data() for each in grouped(found)]})


def cluster_of(asked: RequestContext) -> Key:
    """The provisioning Cluster that `?cluster=NAMESPACE/NAME` names."""
    namespace, slash, name = norman.parameters_of(asked).get("cluster", "").partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise bad_request("cluster must be NAMESPACE/NAME")
    return Key(namespace, name)


def acting_client(services: Services, asked: RequestContext) -> Client:
    if services.acting is None:
        raise unavailable("this server can't act for its users: use the command remuda with a kubeconfig of its API", 0)
    return services.acting.client(asked.user)


VERSIONS: Final = "/v1-remuda/versions"


class Versions:
    def __init__(self, services: Services) -> None:
        self._client = services.client
        services.routes.add("GET", VERSIONS, self.read, Access.USER, largest=0, quiet=True)

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """The versions by distribution, the oldest first."""
        releases = await kept(self._client)
        return norman.shown({"versions": {each.name: list(releases.versions(each)) for each in distributions.ALL}})
