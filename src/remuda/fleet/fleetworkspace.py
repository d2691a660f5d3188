"""The FleetWorkspace controller: each workspace is a namespace of the same name.

A namespace that was made for a workspace is deleted with it. An older namespace is used as it is and stays: a user who may name
workspaces must not be able to delete arbitrary namespaces. The default workspace of clusters, and the one of `local`, always
exist. A workspace with the annotation `provisioning.cattle.io/managed: "false"` gets its namespace from another party.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.access.clusters.server_settings import ServerSettings
from remuda.access.clusters.well_known import FLEET_LOCAL
from remuda.access.default_objects import DefaultObjects
from remuda.api.management_cattle_io import API_VERSION, FLEET_WORKSPACES, GROUP
from remuda.client.idempotent import make
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import Key, annotations_of, is_being_deleted, labels_of, name_of
from remuda.kube.owners import reference
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import marks, without_marks
from remuda.runtime import DONE, Controller, Manager, Result, Watch, created_or_deleted, synced

Obj = dict[str, Any]

CONTROLLER = "fleetworkspace"
MANAGED = "provisioning.cattle.io/managed"
_SET = "workspace"
_NOT_COPIED = ("kubectl.kubernetes.io/", "field.cattle.io/creatorId")


class FleetWorkspaces:
    controller = Controller(CONTROLLER, FLEET_WORKSPACES)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._workspaces = manager.informers.of(FLEET_WORKSPACES)
        self._namespaces = manager.informers.of(NAMESPACES)
        self.controller = replace(
            type(self).controller,
            watches=(Watch(NAMESPACES, self._known, created_or_deleted),),
            concurrency=4,
            lane=lambda key: key,
        )

    def _known(self, namespace: Obj) -> Iterable[Key]:
        key = Key("", name_of(namespace))
        return (key,) if self._workspaces.get(*key) is not None else ()

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._workspaces, self._namespaces)
        await self._manager.freshness.caught_up(who)
        workspace = self._workspaces.get(*key)
        if workspace is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_being_deleted(workspace) or annotations_of(workspace).get(MANAGED) == "false":
            return DONE
        found = self._namespaces.get(*key)
        if found is None:
            made = await make(self._client, NAMESPACES, _namespace(workspace), CONTROLLER)
            if made is not None:
                self._manager.freshness.wrote(who, self._namespaces, made)
            return DONE
        if is_being_deleted(found):
            subject, on = Ref(GROUP, "FleetWorkspace", *key), Ref("", "Namespace", *key)
            evidence = f"namespace {key.name} is being deleted, then it is created again"
            return Result(waits=(Wait(Code.DELETION, subject, Actor.OTHER_CONTROLLER, on, evidence),))
        return DONE


def _namespace(workspace: Obj) -> Obj:
    labels, annotations = marks(_SET, workspace)
    copied = {name: value for name, value in without_marks(annotations_of(workspace)).items() if not name.startswith(_NOT_COPIED)}
    metadata = {
        "name": name_of(workspace),
        "labels": {**labels_of(workspace), **labels},
        "annotations": {**copied, **annotations},
        "ownerReferences": [reference(workspace)],
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def workspace(name: str) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "FleetWorkspace", "metadata": {"name": name}}


def standing(manager: Manager, server: ServerSettings) -> DefaultObjects:
    """The controller that keeps the required workspaces in place."""

    def wanted() -> Mapping[str, Obj]:
        return {name: workspace(name) for name in (FLEET_LOCAL, server.facts().workspace)}

    return DefaultObjects(manager, "fleetworkspace-default", FLEET_WORKSPACES, wanted, server.watches)
