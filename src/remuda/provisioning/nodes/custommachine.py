"""The CustomMachine controller: infrastructure that exists from the beginning, since its host registered it
(docs/reference/registration.md#objects-of-a-registered-host).

It is ready at once, and provisioned when its node's identity is known (:mod:`.machinenodelookup` writes that). If the
RKECluster sets a time, a machine whose node is missing for longer is deleted, too, as change budgets allow: no other controller
would delete it. A
deleted one is gone at once, unless a user wants its host to uninstall first (:mod:`.host_uninstall`): then a finalizer holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.access.rancher_conditions import TRUE, with_condition, write_status
from remuda.access.settings.validation import duration, seconds
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.change_budget import Act
from remuda.capi.drain_count import DrainCount
from remuda.capi.machine_budgets import HELD_AGAIN, MachineBudgets
from remuda.capi.workload_clusters import Workloads
from remuda.client.idempotent import find, remove
from remuda.kube.builtin_resources import NODES, SECRETS
from remuda.kube.clock import time_of
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    finalizers_of,
    is_being_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
)
from remuda.kube.owners import has_finalizer, with_finalizer, without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..well_known import DELETE_MISSING_AFTER, UNINSTALL, plan_name
from . import host_uninstall

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "custom-machine"
_BY_INFRASTRUCTURE = "custom machine"


class CustomMachines:
    controller = Controller(CONTROLLER, rke.CUSTOM_MACHINES)

    def __init__(self, manager: Manager, workloads: Workloads, drains: DrainCount | None = None) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._workloads = workloads
        self._events = manager.recorder(CONTROLLER)
        self._infrastructure = manager.informers.of(rke.CUSTOM_MACHINES)
        self._rke_clusters = manager.informers.of(rke.RKE_CLUSTERS)
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        self._views = MachineCaches(manager.informers)
        counted = drains or DrainCount(manager.clock)
        self._budgets = MachineBudgets(manager.client, manager.clock, self._views.machines_of_cluster, counted)
        self._views.machines.add_index(_BY_INFRASTRUCTURE, _infrastructure_of)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(
                    capi.MACHINES,
                    _infrastructure_of,
                    changed(lambda obj: get(obj, "NodeHealthy"), ("metadata", "annotations", UNINSTALL)),
                ),
                Watch(provisioning.CLUSTERS, self._of_cluster, changed(("metadata", "annotations", UNINSTALL))),
                Watch(SECRETS, self._of_plan, fields=PLAN_FIELDS, transform=without_managed_fields),
                Watch(rke.RKE_CLUSTERS, self._of_cluster, changed(("metadata", "annotations", DELETE_MISSING_AFTER))),
            ),
            concurrency=8,
        )

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        found = self._views.machines_of_cluster(Key.of(cluster))
        return [key for machine in found for key in _infrastructure_of(machine)]

    def _of_plan(self, secret: Obj) -> Iterable[Key]:
        """Only while it is being uninstalled: plans change all the time."""
        for name in self._views.bootstrap_of_plan(secret):
            for machine in self._views.machines_with(name):
                for key in _infrastructure_of(machine):
                    if is_being_deleted(self._infrastructure.get(*key) or {}):
                        yield key

    async def reconcile(self, key: Key) -> Result:
        await self._views.synced()
        await synced(self._infrastructure, self._rke_clusters, self._wanted)
        await self._manager.freshness.caught_up((CONTROLLER, key))
        custom = self._infrastructure.get(*key)
        if custom is None:
            self._manager.freshness.forget((CONTROLLER, key))
            return DONE
        if is_being_deleted(custom):
            return await self._remove(custom)
        custom = await self._hold(custom)
        after = with_condition(custom, "Ready", TRUE, now=self._clock.time())
        if dig(custom, "spec", "providerID"):
            after = with_path(with_path(after, ("status", "ready"), True), ("status", "initialization", "provisioned"), True)
        written = await write_status(
            self._client, rke.CUSTOM_MACHINES, custom, after, subresource="status", field_manager=CONTROLLER
        )
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, key), self._infrastructure, written)
        return await self._delete_if_missing(key)

    # --- removal from the host --------------------------------------------------------------------------------------------

    def _machine_of(self, custom: Obj) -> Obj | None:
        machines = self._views.machines.indexed(_BY_INFRASTRUCTURE, Key.of(custom))
        return machines[0] if len(machines) == 1 else None

    def _is_to_uninstall(self, machine: Obj | None) -> bool:
        if machine is None:
            return False
        cluster = self._wanted.get(namespace_of(machine), dig(machine, "spec", "clusterName") or "")
        return host_uninstall.is_asked(machine, cluster)

    async def _hold(self, custom: Obj) -> Obj:
        """Keep the finalizer as long as its host is to uninstall; the object as it is then."""
        wanted = self._is_to_uninstall(self._machine_of(custom))
        if wanted == has_finalizer(custom, UNINSTALL):
            return custom
        return await self._set_finalizers(with_finalizer(custom, UNINSTALL) if wanted else without_finalizer(custom, UNINSTALL))

    async def _set_finalizers(self, after: Obj) -> Obj:
        said = {"resourceVersion": resource_version_of(after), "finalizers": finalizers_of(after) or None}
        key = Key.of(after)
        written = await self._client.patch(
            rke.CUSTOM_MACHINES, key.name, {"metadata": said}, key.namespace, field_manager=CONTROLLER
        )
        self._manager.freshness.wrote((CONTROLLER, key), self._infrastructure, written)
        return written

    async def _remove(self, custom: Obj) -> Result:
        if not has_finalizer(custom, UNINSTALL):
            return DONE
        machine = self._machine_of(custom)
        if self._is_to_uninstall(machine) and machine is not None:
            left = await self._uninstall(custom, machine)
            if left is not None:
                ref = Ref(capi.GROUP, "Machine", *Key.of(machine))
                return Result(left, (Wait(Code.PLAN, ref, Actor.MACHINE, evidence="its host is uninstalling"),))
        await self._set_finalizers(without_finalizer(custom, UNINSTALL))
        return DONE

    async def _uninstall(self, custom: Obj, machine: Obj) -> float | None:
        """The seconds until the next look; None at the end."""
        bootstrap = dig(machine, "spec", "bootstrap", "configRef", "name") or ""
        secret = await find(self._client, SECRETS, plan_name(bootstrap), namespace_of(machine)) if bootstrap else None
        found = host_uninstall.progress(secret, self._clock.time())
        if secret is not None and found.write is not None:
            meta, data = found.write["metadata"], found.write["data"]
            marks = {"resourceVersion": resource_version_of(secret), "annotations": meta.get("annotations")}
            # Members that the new plan does not have go.
            gone = dict.fromkeys(set(secret.get("data") or {}) - set(data))
            patch = {"metadata": marks, "data": {**gone, **data}}
            await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=CONTROLLER)
            log.info("the host of machine %s is told to uninstall", name_of(machine))
            return host_uninstall.ANSWER_SECONDS
        if found.again is not None:
            return found.again
        if found.problem:
            log.warning("deleting machine %s without its host: %s", name_of(machine), found.problem)
            self._events.event(machine, WARNING, "NotUninstalled", f"{found.problem}: what is on the host stays there")
        else:
            log.info("machine %s goes: %s", name_of(machine), found.text)
            self._events.event(machine, NORMAL, "Uninstalled", found.text)
        return None

    # --- missing nodes ----------------------------------------------------------------------------------------------------

    async def _delete_if_missing(self, key: Key) -> Result:
        """Delete the Machine if its node is missing for as long as the cluster's limit, and its change budgets allow it."""
        machines = self._views.machines.indexed(_BY_INFRASTRUCTURE, key)
        machine = machines[0] if len(machines) == 1 else None
        if machine is None or is_being_deleted(machine):
            return DONE
        cluster = Key(key.namespace, dig(machine, "spec", "clusterName") or "")
        due = missing_until(machine, self._rke_clusters.get(*cluster))
        if due is None:
            return DONE
        left = due - self._clock.time()
        if left > 0:
            return Result(after=left)
        if not await self._is_gone(cluster, dig(machine, "status", "nodeRef", "name") or ""):
            return Result(after=60.0)
        held = await self._budgets.claim(Act.DELETE, machine, self._wanted.get(*cluster) or self._views.cluster_of(machine), None)
        if held is not None:
            self._events.event(machine, WARNING, "ChangeBudget", f"its node was deleted, but the machine is kept: {held.why}")
            ref = Ref(capi.GROUP, "Machine", *Key.of(machine))
            return Result(HELD_AGAIN, (Wait(Code.BUDGET, ref, Actor.USER, evidence=held.why),))
        self._events.event(
            machine, WARNING, "NodeMissing", "its node was deleted and did not come back: the machine is deleted, too"
        )
        try:
            await remove(self._client, capi.MACHINES, machine)
        except ApiError:
            self._budgets.release(machine)
            raise
        log.info("deleting machine %s, whose node is gone", name_of(machine))
        return DONE

    async def _is_gone(self, cluster: Key, node: str) -> bool:
        """Reads the Node itself: neither a cache nor an unreachable cluster counts."""
        workload = self._workloads.get(cluster)
        if workload is None or not node:
            return False
        try:
            await workload.client.get(NODES, node)
        except ApiError as error:
            if error.is_not_found:
                return True
            raise
        return False


def missing_until(machine: Obj, cluster: Obj | None) -> float | None:
    """The time when a Machine whose node is missing is deleted; None if its node exists, or the cluster sets no limit."""
    said = annotations_of(cluster or {}).get(DELETE_MISSING_AFTER) or ""
    healthy = get(machine, "NodeHealthy")
    if not said or duration(said) or healthy is None:
        return None
    if healthy.get("status") != "False" or healthy.get("reason") != "NodeDeleted":
        return None
    since = time_of(healthy.get("lastTransitionTime"))
    return None if since is None else since + seconds(said)


def _infrastructure_of(machine: Obj) -> list[Key]:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    if ref.get("kind") != "CustomMachine" or ref.get("apiGroup") != rke.GROUP:
        return []
    return [Key(namespace_of(machine), ref.get("name") or "")]
