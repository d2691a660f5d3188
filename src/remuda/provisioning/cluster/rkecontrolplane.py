"""The controller of RKEControlPlanes, except planning: the cluster's state for the planner, and deletion
(docs/reference/objects.md#rkecontrolplane).

A deleted control plane deletes its custom machines, since no other controller does: pool machines go with their
MachineDeployments. Its finalizer goes with the last of them. The planner writes the rest of the status.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from remuda.access.rancher_conditions import TRUE, UNKNOWN, is_true, with_condition, write_status
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import CLUSTER_NAME as CAPI_CLUSTER_NAME
from remuda.client.idempotent import remove
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
)
from remuda.kube.owners import has_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, synced

from ..well_known import CLUSTER_NAME, CONTROL_PLANE_ROLE

Obj = dict[str, Any]

CONTROLLER = "rkecontrolplane"
FINALIZER = "wrangler.cattle.io/rke-control-plane-remove"
_MISSING_SECONDS = 2.0
_AGAIN_SECONDS = 5.0
_BY_MANAGED, _BY_CONTROL_PLANE = "management cluster", "machines of a control plane"
# Set at deletion, so that no condition still looks in progress.
_ENDED = ("Updated", "Waiting", "Pending")


class RKEControlPlanes:
    controller = Controller(CONTROLLER, rke.RKE_CONTROL_PLANES)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        informers = manager.informers
        self._planes = informers.of(rke.RKE_CONTROL_PLANES)
        self._managed = informers.of(management.CLUSTERS)
        self._machines = informers.of(capi.MACHINES)
        self._planes.add_index(_BY_MANAGED, lambda plane: (_managed_name(plane),))
        self._machines.add_index(_BY_CONTROL_PLANE, _control_planes)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(management.CLUSTERS, self._of_managed, changed(lambda obj: is_true(obj, "Connected"))),
                Watch(capi.MACHINES, _control_planes, changed(is_being_deleted)),
            ),
            when=changed(_read),
            concurrency=4,
            lane=lambda key: key,
        )

    def _of_managed(self, managed: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._planes.indexed(_BY_MANAGED, name_of(managed))]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._planes, self._managed, self._machines)
        await self._manager.freshness.caught_up(who)
        plane = self._planes.get(*key)
        if plane is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_being_deleted(plane):
            return await self._remove(plane) if has_finalizer(plane, FINALIZER) else DONE
        if not has_finalizer(plane, FINALIZER):
            plane = await self._set_finalizers(plane, [*finalizers_of(plane), FINALIZER])
        return await self._observe(plane)

    async def _observe(self, plane: Obj) -> Result:
        managed = self._managed.get("", _managed_name(plane))
        after = with_path(plane, ("status", "observedGeneration"), int(metadata(plane).get("generation") or 0))
        if managed is not None:
            after = with_path(after, ("status", "agentConnected"), is_true(managed, "Connected"))
        await self._say(plane, after)
        if managed is not None:
            return DONE
        subject = Ref(rke.GROUP, "RKEControlPlane", *Key.of(plane))
        on = Ref(management.GROUP, "Cluster", "", _managed_name(plane))
        return Result(_MISSING_SECONDS, (Wait(Code.REFERENCE, subject, Actor.REMUDA, on, "there is no such cluster"),))

    async def _say(self, plane: Obj, after: Obj) -> Obj:
        written = await write_status(
            self._client, rke.RKE_CONTROL_PLANES, plane, after, subresource="status", field_manager=CONTROLLER
        )
        return plane if written is None else self._wrote(plane, written)

    def _wrote(self, plane: Obj, written: Obj) -> Obj:
        self._manager.freshness.wrote((CONTROLLER, Key.of(plane)), self._planes, written)
        return written

    async def _set_finalizers(self, plane: Obj, finalizers: list[str]) -> Obj:
        key = Key.of(plane)
        patch = {"metadata": {"resourceVersion": resource_version_of(plane), "finalizers": finalizers or None}}
        written = await self._client.patch(rke.RKE_CONTROL_PLANES, key.name, patch, key.namespace, field_manager=CONTROLLER)
        return self._wrote(plane, written)

    # --- deletion -------------------------------------------------------------------------------------------------------

    async def _remove(self, plane: Obj) -> Result:
        key = Key.of(plane)
        cluster = Key(key.namespace, dig(plane, "spec", "clusterName") or key.name)
        machines = sorted(self._machines.indexed(_BY_CONTROL_PLANE, cluster), key=name_of)
        for machine in machines:
            if _is_custom(machine) and not is_being_deleted(machine):
                await remove(self._client, capi.MACHINES, machine)
                self._manager.freshness.deleted((CONTROLLER, key), self._machines, machine)
        if not machines:
            await self._release(plane)
            return DONE
        machine = machines[0]
        evidence = f"waiting for machine [{name_of(machine)}] to delete"
        await self._say(plane, with_removal(plane, evidence, self._manager.clock.time()))
        subject, on = Ref(rke.GROUP, "RKEControlPlane", *key), Ref(capi.GROUP, "Machine", *Key.of(machine))
        return Result(_AGAIN_SECONDS, (Wait(Code.DELETION, subject, Actor.OTHER_CONTROLLER, on, evidence),))

    async def _release(self, plane: Obj) -> None:
        try:
            await self._set_finalizers(plane, [each for each in finalizers_of(plane) if each != FINALIZER])
        except ApiError as error:
            if not error.is_not_found:
                raise


def with_removal(plane: Obj, waiting_for: str, now: float) -> Obj:
    for kind in _ENDED:
        plane = with_condition(plane, kind, TRUE, now=now)
    return with_condition(plane, "Removed", UNKNOWN, "Waiting", waiting_for, now=now)


def _managed_name(plane: Obj) -> str:
    return str(dig(plane, "spec", "managementClusterName") or "")


def _control_planes(machine: Obj) -> Iterable[Key]:
    """The control planes of a machine by either label: old machines may lack Cluster API's."""
    labels = labels_of(machine)
    if CONTROL_PLANE_ROLE not in labels:
        return set()
    names = {labels.get(CAPI_CLUSTER_NAME), labels.get(CLUSTER_NAME)}
    return {Key(namespace_of(machine), name) for name in names if name}


def _is_custom(machine: Obj) -> bool:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    return (ref.get("apiGroup"), ref.get("kind")) == (rke.GROUP, "CustomMachine")


def _read(plane: Obj) -> tuple[Hashable, ...]:
    """The fields whose changes matter: not the rest of the status, which the planner writes often."""
    told = [dig(plane, "status", field) for field in ("observedGeneration", "agentConnected")]
    return metadata(plane).get("generation"), tuple(finalizers_of(plane)), is_being_deleted(plane), *told, _managed_name(plane)
