"""`/v1-remuda/waits`: the waits of controllers about a cluster, for callers who may read that cluster.

Waits are not stored (:mod:`remuda.kube.waits`); conditions have some of them as text. This serves all of them, from the memory of
the controllers in this process. When another server is the leader, it has them: then `complete` is false, `leader` names its
host, as far as it is known, and the caller has only conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import plan_cattle_io as plans
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.replicas.leadership import LEASE, LEASE_NAMESPACE
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.idempotent import find
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.builtin_resources import LEASES
from remuda.kube.errors import ApiError, bad_request
from remuda.kube.objects import Key, dig, name_of, namespace_of
from remuda.kube.redaction import redacted
from remuda.kube.waits import Ref, Wait

from . import norman
from .dependencies import Services
from .routing import RequestContext, Who

Obj = dict[str, Any]
Source = Callable[[], Iterable[Wait]]

PATH: Final = "/v1-remuda/waits"


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


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster: those with its name, those in the namespace of its id, and those of its machines."""

    cluster: Key
    identifier: str
    machines: Collection[Ref] = ()

    def holds(self, ref: Ref) -> bool:
        if self.identifier and self.identifier in (ref.namespace, "" if ref.namespace else ref.name):
            return True
        return ((ref.namespace, ref.name) == self.cluster and (ref.group, ref.kind) in _CALLED_SO) or ref in self.machines


class Waits:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._sources: list[Source] = []
        services.routes.add("GET", PATH, self.read, Who.USER, largest=0, quiet=True)

    def follow(self, source: Source) -> Callable[[], None]:
        """Add running controllers; call the result when they stop."""
        self._sources.append(source)
        return lambda: self._sources.remove(source)

    def of(self, belongings: ClusterObjects) -> list[Wait]:
        # The same manager may have been added twice.
        found = dict.fromkeys(wait for source in self._sources for wait in source())
        return [wait for wait in found if belongings.holds(wait.subject)]

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """The waits for `?cluster=NAMESPACE/NAME`, a provisioning Cluster."""
        said = norman.parameters_of(asked).get("cluster", "")
        namespace, slash, name = said.partition("/")
        if not (slash and namespace and name) or "/" in name:
            raise bad_request("cluster must be NAMESPACE/NAME")
        action = Action(asked.user, "get", *provisioning.CLUSTERS, namespace=namespace, name=name)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)
        found = self.of(await self._belongings(Key(namespace, name)))
        body: Obj = {"cluster": said, "complete": bool(self._sources), "waits": [shown(wait) for wait in found]}
        if not self._sources and (leader := await self._leader()):
            body["leader"] = leader
        return norman.shown(body)

    async def _leader(self) -> str:
        """The host on which the controllers run, by the Lease that servers of one store share."""
        try:
            lease = await find(self._services.client, LEASES, LEASE, LEASE_NAMESPACE)
        except ApiError:
            # On a foreign Kubernetes the Lease is elsewhere, or not readable.
            return ""
        return str(dig(lease or {}, "spec", "holderIdentity") or "").rpartition("_")[0]

    async def _belongings(self, cluster: Key) -> ClusterObjects:
        client = self._services.client
        wanted = await client.get(provisioning.CLUSTERS, cluster.name, cluster.namespace)
        try:
            listed = await client.list(capi.MACHINES, cluster.namespace, labels=f"{CLUSTER_NAME}={cluster.name}")
        except ApiError as error:
            # Cluster API may be absent.
            if not error.is_not_found:
                raise
            listed = {}
        machines = {ref for each in listed.get("items") or () for ref in _parts(each)}
        return ClusterObjects(cluster, str(dig(wanted, "status", "clusterName") or ""), machines)


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
