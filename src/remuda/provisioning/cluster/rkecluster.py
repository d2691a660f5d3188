"""The controller of RKEClusters: existing infrastructure, in the form Cluster API expects (docs/reference/objects.md#rkecluster).

An RKECluster only holds the address of the cluster's API. As a rule that is `localhost:6443`, since every node has its own
proxy to the servers. A user with a load balancer sets it in the RKECluster, at any time; it is kept, and the Cluster follows.
An invalid endpoint is reported and left alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from remuda.access.rancher_conditions import ERROR, FALSE, conditions_of, with_condition, write_status
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.phases import is_paused, pause_wait
from remuda.kube.names import dns_subdomain_problems
from remuda.kube.objects import (
    GroupVersion,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
    with_path,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "rkecluster"
PORT = 6443
_HIGHEST_PORT = 65535
_OWNER_SECONDS = 10.0
_PROVISIONED = ("status", "initialization", "provisioned")


class ApiEndpoint(NamedTuple):
    host: str
    port: int

    @classmethod
    def of(cls, obj: Obj) -> ApiEndpoint:
        found = dig(obj, "spec", "controlPlaneEndpoint") or {}
        return cls(found.get("host") or "", found.get("port") or 0)


DEFAULT = ApiEndpoint("localhost", PORT)
NONE = ApiEndpoint("", 0)


class Malformed(ValueError):
    """The given endpoint is invalid; the text says why."""


def endpoint_of(infra: Obj, cluster: Obj) -> ApiEndpoint:
    """The address of the cluster's API: from the RKECluster, else from its Cluster, else the default. The port defaults
    to 6443. Raises Malformed."""
    given = ApiEndpoint.of(infra)
    if given == NONE:
        given = ApiEndpoint.of(cluster)
        if given == NONE or problem_of(given):
            return DEFAULT
    if given.host and not given.port:
        given = given._replace(port=PORT)
    if problem := problem_of(given):
        raise Malformed(f"spec.controlPlaneEndpoint: {problem}")
    return given


def problem_of(endpoint: ApiEndpoint) -> str:
    """The reason why it can't be connected to; "" if it can."""
    host, port = endpoint
    if not host:
        return "host must be set"
    if not 0 < port <= _HIGHEST_PORT:
        return f"port {port} is not between 1 and {_HIGHEST_PORT}"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if dns_subdomain_problems(host.lower()):
            return f"host {host} is neither a host name nor an IP address (without scheme, brackets or port)"
    return ""


def owner_of(infra: Obj, clusters: Iterable[Obj]) -> Obj | None:
    """The Cluster that owns it, as controller or not: not every Cluster API sets `controller`."""
    uids = {each.get("uid") for each in owner_references_of(infra) if _is_cluster(each)}
    return next((each for each in clusters if uid_of(each) in uids), None)


def _is_cluster(owner: Obj) -> bool:
    return owner.get("kind") == "Cluster" and GroupVersion.parse(owner.get("apiVersion") or "").group == capi.GROUP


class RKEClusters:
    controller = Controller(CONTROLLER, rke.RKE_CLUSTERS)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._infras = manager.informers.of(rke.RKE_CLUSTERS)
        self._clusters = manager.informers.of(capi.CLUSTERS)
        self.controller = replace(
            type(self).controller,
            watches=(Watch(capi.CLUSTERS, _infrastructure, changed("spec", annotations_of)),),
            concurrency=4,
            lane=lambda key: key,
        )

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._infras, self._clusters)
        await self._manager.freshness.caught_up(who)
        infra = self._infras.get(*key)
        if infra is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_being_deleted(infra):
            return DONE
        subject = Ref(rke.GROUP, "RKECluster", *key)
        cluster = self._owner(infra)
        if cluster is None:
            wait = Wait(Code.REFERENCE, subject, Actor.OTHER_CONTROLLER, None, "no Cluster owns it yet")
            return Result(_OWNER_SECONDS, (wait,))
        if is_paused(cluster, infra):
            return Result(waits=(pause_wait(subject, infra, cluster),))
        try:
            endpoint = endpoint_of(infra, cluster)
        except Malformed as malformed:
            told = with_condition(infra, "Ready", FALSE, ERROR, str(malformed), now=self._manager.clock.time())
            await self._say(infra, told)
            return Result(waits=(Wait(Code.MALFORMED, subject, Actor.USER, None, str(malformed)),))
        infra = await self._ensure_endpoint(infra, endpoint)
        await self._copy_endpoint(infra, cluster, endpoint)
        told = with_path(infra, _PROVISIONED, True)
        if conditions_of(infra):
            # Earlier errors are resolved.
            told = with_path(told, ("status", "conditions"), [])
        await self._say(infra, told)
        return DONE

    def _owner(self, infra: Obj) -> Obj | None:
        names = [each.get("name") or "" for each in owner_references_of(infra) if _is_cluster(each)]
        found = [self._clusters.get(namespace_of(infra), name) for name in names]
        return owner_of(infra, [each for each in found if each is not None])

    async def _ensure_endpoint(self, infra: Obj, endpoint: ApiEndpoint) -> Obj:
        if ApiEndpoint.of(infra) == endpoint:
            return infra
        patch = {"spec": {"controlPlaneEndpoint": endpoint._asdict()}}
        key = Key.of(infra)
        written = await self._client.patch(rke.RKE_CLUSTERS, key.name, patch, key.namespace, field_manager=CONTROLLER)
        return self._wrote(infra, written)

    async def _copy_endpoint(self, infra: Obj, cluster: Obj, endpoint: ApiEndpoint) -> None:
        """Update the Cluster: Cluster API copies an endpoint only once, so later changes are copied here."""
        if ApiEndpoint.of(cluster) in (NONE, endpoint) or is_being_deleted(cluster):
            return
        key = Key.of(cluster)
        patch = {"spec": {"controlPlaneEndpoint": endpoint._asdict()}}
        written = await self._client.patch(capi.CLUSTERS, key.name, patch, key.namespace, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(infra)), self._clusters, written)
        log.info("the cluster's API is now found at %s:%s", *endpoint)

    async def _say(self, infra: Obj, after: Obj) -> None:
        written = await write_status(self._client, rke.RKE_CLUSTERS, infra, after, subresource="status", field_manager=CONTROLLER)
        if written is not None:
            self._wrote(infra, written)

    def _wrote(self, infra: Obj, written: Obj) -> Obj:
        self._manager.freshness.wrote((CONTROLLER, Key.of(infra)), self._infras, written)
        return written


def _infrastructure(cluster: Obj) -> Iterable[Key]:
    ref = dig(cluster, "spec", "infrastructureRef") or {}
    if (ref.get("apiGroup"), ref.get("kind")) != (rke.GROUP, "RKECluster"):
        return ()
    return (Key(namespace_of(cluster), ref.get("name") or name_of(cluster)),)
