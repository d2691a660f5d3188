"""The unmanaged controller: hosts that a user registers by hand become machines of their cluster
(docs/reference/registration.md#objects-of-a-registered-host).

Reads a request (:mod:`.machine_request`), validates it (:mod:`.host_identity`), creates an RKEBootstrap, a CustomMachine and a
Machine of the same name, and labels the request with the Machine's name, for which the gateway waits. A refused request has the
reason as an annotation, which the gateway passes on. Either way the request is deleted after a minute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import rke_cattle_io as rke
from remuda.client.idempotent import find, make, remove
from remuda.kube.builtin_resources import SECRETS, SERVICE_ACCOUNTS
from remuda.kube.clock import time_of
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, is_being_deleted, labels_of, metadata, name_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, WARNING, Controller, Manager, Result, Retry, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..bootstrap.service_account_tokens import named_token
from ..cluster.mirror_caches import MirrorCaches as Clusters
from ..machine_caches import MachineCaches
from ..well_known import (
    MACHINE_ID,
    MACHINE_NAME,
    MACHINE_NAMESPACE,
    REFUSED,
    REGISTER_AGAIN,
    REQUEST_TYPE,
    is_administrated,
    plan_name,
)
from .host_identity import RefusalNotes, namesake, refusal
from .machine_request import LIFETIME, MachineRequest, RequestError, objects, parse

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "unmanaged-machine"
_FIELDS = f"type={REQUEST_TYPE}"
# Kubernetes' supported cluster size. A cluster's node token makes machines for as long as it is valid, and each is kept here.
MOST_MACHINES = 5000
_BY_ID = "machine id"


class Unmanaged:
    controller = Controller(CONTROLLER, SECRETS, fields=_FIELDS, transform=without_managed_fields)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._events = manager.recorder(CONTROLLER)
        self._requests = manager.informers.of(SECRETS, fields=_FIELDS, transform=without_managed_fields)
        self._views = MachineCaches(manager.informers)
        self._clusters = Clusters(manager.informers)
        self._managed = manager.informers.of(management.CLUSTERS)
        self._refusals = RefusalNotes(manager.client, manager.clock, CONTROLLER)
        self._views.machines.add_index(_BY_ID, lambda obj: filter(None, (labels_of(obj).get(MACHINE_ID),)))
        self.controller = replace(type(self).controller, concurrency=8, wait=5.0)

    async def reconcile(self, key: Key) -> Result:
        await self._views.synced()
        await synced(self._requests, *self._clusters.caches)
        await self._manager.freshness.caught_up((CONTROLLER, key))
        request = self._requests.get(*key)
        if request is None or is_being_deleted(request):
            self._manager.freshness.forget((CONTROLLER, key))
            return DONE
        left = (time_of(metadata(request).get("creationTimestamp")) or 0.0) + LIFETIME - self._clock.time()
        if left <= 0:
            await remove(self._client, SECRETS, request)
            return DONE
        if MACHINE_NAME in labels_of(request) or REFUSED in annotations_of(request):
            return Result(after=left)
        try:
            waits = await self._register(request)
        except RequestError as error:
            await self._refuse(request, str(error))
            return Result(after=left)
        return Result(after=min(left, 5.0) if waits else left, waits=waits)

    # --- one request -----------------------------------------------------------------------------------------------------

    async def _register(self, secret: Obj) -> tuple[Wait, ...]:
        request = parse(secret)
        wanted = self._wanted(secret)
        cluster = self._views.clusters.get(*Key.of(wanted))
        if cluster is None:
            on, ref = Ref(capi.GROUP, "Cluster", *Key.of(wanted)), Ref("", "Secret", *Key.of(secret))
            return (Wait(Code.REFERENCE, ref, Actor.REMUDA, on, "it is not there yet"),)
        if is_being_deleted(cluster):
            raise RequestError(f"the cluster {name_of(cluster)} is being deleted")
        known = await self._known(request, secret, Key.of(cluster))
        machine = known if known is not None else await self._make(request, secret, Key.of(cluster))
        await self._answer(secret, machine)
        if known is not None and REGISTER_AGAIN in annotations_of(known):
            # Valid once. It is removed after the answer: losing it unanswered would be worse than two admissions.
            once = {"metadata": {"uid": uid_of(known), "annotations": {REGISTER_AGAIN: None}}}
            await self._client.patch(capi.MACHINES, name_of(known), once, Key.of(cluster).namespace, field_manager=CONTROLLER)
        return ()

    def _wanted(self, secret: Obj) -> Obj:
        """The cluster that takes machines for the request's namespace."""
        managed = self._managed.get("", Key.of(secret).namespace)
        found = [] if managed is None else self._clusters.wanted_of(managed)
        if managed is None or is_being_deleted(managed) or len(found) != 1 or is_being_deleted(found[0]):
            raise RequestError("there is no such cluster, or it is being deleted")
        if not is_administrated(found[0]):
            raise RequestError(f"the cluster {name_of(found[0])} was imported: it takes no machines from here")
        return found[0]

    async def _known(self, request: MachineRequest, secret: Obj, cluster: Key) -> Obj | None:
        """The existing Machine of this host; raises RequestError if the host may not register as it."""
        machine = self._views.machines.get(cluster.namespace, name_of(secret))
        if machine is None:
            same = [
                each
                for each in self._views.machines.indexed(_BY_ID, request.machine_id)
                if Key.of(each).namespace == cluster.namespace and (each.get("spec") or {}).get("clusterName") == cluster.name
            ]
            machine = min(same, key=name_of) if same else None
        if machine is None:
            return None
        if (machine.get("spec") or {}).get("clusterName") != cluster.name:
            raise RequestError("this host is a machine of another cluster")
        plan, token = await self._given(machine)
        why = refusal(machine, secret, request.machine_id, plan, token)
        if why:
            if token is not None:
                await self._refusals.note(token, request.machine_id, why)
            raise RequestError(why)
        return machine

    async def _given(self, machine: Obj) -> tuple[Obj | None, Obj | None]:
        """The plan of a Machine, and the plan token that was given out. Read live: a moment may decide."""
        for key in self._views.bootstrap_of_machine(machine):
            name = plan_name(key.name)
            plan = await find(self._client, SECRETS, name, key.namespace)
            account = await find(self._client, SERVICE_ACCOUNTS, name, key.namespace)
            return plan, await named_token(self._client, account) if account is not None else None
        return None, None

    async def _make(self, request: MachineRequest, secret: Obj, cluster: Key) -> Obj:
        machines = self._views.machines_of_cluster(cluster)
        if len(machines) >= MOST_MACHINES:
            raise RequestError(f"the cluster {cluster.name} has {len(machines)} machines already, and takes no more")
        other = namesake(machines, request.node_name, request.machine_id)
        if other is not None:
            raise RequestError(
                f"another machine of the cluster, {name_of(other)}, is called {request.node_name}; "
                "delete it, or give this host another name with --node-name"
            )
        made = objects(request, secret, cluster)
        await self._ensure(rke.RKE_BOOTSTRAPS, made.bootstrap)
        await self._ensure(rke.CUSTOM_MACHINES, made.infrastructure)
        machine = await self._ensure(capi.MACHINES, made.machine)
        self._manager.freshness.wrote((CONTROLLER, Key.of(secret)), self._views.machines, machine)
        log.info("host %s became machine %s of cluster %s", request.node_name or "without a name", name_of(machine), cluster.name)
        return machine

    async def _ensure(self, resource: GroupVersionResource, wanted: Obj) -> Obj:
        """Created now, or earlier by this controller before a crash; never another host's."""
        written = await make(self._client, resource, wanted, CONTROLLER)
        if written is not None:
            return written
        found = await find(self._client, resource, name_of(wanted), Key.of(wanted).namespace)
        if found is None or is_being_deleted(found):
            raise Retry(f"{wanted['kind']} {name_of(wanted)} is going")
        if labels_of(found).get(MACHINE_ID) != labels_of(wanted)[MACHINE_ID]:
            raise RequestError(f"the {wanted['kind']} {name_of(wanted)} is another host's")
        return found

    # --- the answer ------------------------------------------------------------------------------------------------------

    async def _answer(self, secret: Obj, machine: Obj) -> None:
        namespace, name = Key.of(machine)
        await self._mark(secret, {"labels": {MACHINE_NAMESPACE: namespace, MACHINE_NAME: name}})

    async def _refuse(self, secret: Obj, why: str) -> None:
        log.info("a host was refused: %s", why)
        managed = self._managed.get("", Key.of(secret).namespace)
        if managed is not None:
            self._events.event(managed, WARNING, "MachineRefused", why)
        await self._mark(secret, {"annotations": {REFUSED: why}})

    async def _mark(self, secret: Obj, marks: Obj) -> None:
        seen = {"metadata": {**marks, "uid": uid_of(secret)}}
        written = await self._client.patch(SECRETS, name_of(secret), seen, Key.of(secret).namespace, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(secret)), self._requests, written)
