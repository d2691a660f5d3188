"""One direction of the mirror: objects and status that follow from a management Cluster.

A management Cluster that existed first (`c-xxxxx`, `local`) gets its clusters.provisioning.cattle.io, in its workspace.
Deleting a management Cluster deletes that one, too, and waits for it unless the management Cluster existed first. The fields
that cluster lists show are written to its status.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.access.clusters.well_known import is_legacy
from remuda.access.rancher_conditions import write_status
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.idempotent import remove
from remuda.client.server_side_apply import Applier
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
)
from remuda.kube.owners import has_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import origin_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, synced

from ..well_known import FROM_MANAGED, FROM_WANTED, MANAGED_FINALIZER, managed_name_of
from .mirror import wanted_of, with_info
from .mirror_caches import MirrorCaches

Obj = dict[str, Any]

CONTROLLER = "cluster-management"
_AGAIN_SECONDS = 5.0


class ManagementMirror:
    controller = Controller(CONTROLLER, management.CLUSTERS)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._views = MirrorCaches(manager.informers)
        self._applier = Applier(manager.client, CONTROLLER, resumes=True)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(provisioning.CLUSTERS, _managed_of, changed(_shown)),
                Watch(management.FLEET_WORKSPACES, self._in_workspace, lambda new, old: old is None or new is None),
            ),
            when=changed(_read),
            concurrency=8,
            lane=lambda key: key,
        )

    def _in_workspace(self, workspace: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._views.in_workspace(name_of(workspace)) if is_legacy(name_of(each))]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(*self._views.caches)
        await self._manager.freshness.caught_up(who)
        managed = self._views.managed.get(*key)
        if managed is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_being_deleted(managed):
            return await self._remove(managed)
        if not has_finalizer(managed, MANAGED_FINALIZER):
            managed = await self._set_finalizers(managed, [*finalizers_of(managed), MANAGED_FINALIZER])
        wait = await self._ensure_wanted(managed) if is_legacy(key.name) else None
        await self._show(managed)
        return DONE if wait is None else Result(waits=(wait,))

    async def _set_finalizers(self, managed: Obj, finalizers: list[str]) -> Obj:
        patch = {"metadata": {"resourceVersion": resource_version_of(managed), "finalizers": finalizers or None}}
        written = await self._client.patch(management.CLUSTERS, name_of(managed), patch, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(managed)), self._views.managed, written)
        return written

    # --- management Clusters that existed first -------------------------------------------------------------------------

    async def _ensure_wanted(self, managed: Obj) -> Wait | None:
        workspace = dig(managed, "spec", "fleetWorkspaceName")
        if not workspace:
            return None
        name = name_of(managed)
        for other in self._views.wanted_of(managed):
            if namespace_of(other) != workspace and origin_of(other, FROM_MANAGED) == Key("", name):
                # The cluster was in another workspace before.
                await remove(self._client, provisioning.CLUSTERS, other)
        if self._views.workspaces.get("", workspace) is None:
            subject, on = Ref(management.GROUP, "Cluster", "", name), Ref(management.GROUP, "FleetWorkspace", "", workspace)
            return Wait(Code.REFERENCE, subject, Actor.USER, on, "there is no such workspace")
        found = self._views.wanted.get(workspace, name)
        if found is not None and is_being_deleted(found):
            return None
        written = await self._applier.apply(provisioning.CLUSTERS, wanted_of(managed), found)
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key.of(managed)), self._views.wanted, written)
        return None

    async def _show(self, managed: Obj) -> None:
        for wanted in self._views.wanted_of(managed):
            if is_being_deleted(wanted):
                continue
            written = await write_status(
                self._client, management.CLUSTERS, managed, with_info(managed, wanted), field_manager=CONTROLLER
            )
            if written is not None:
                self._manager.freshness.wrote((CONTROLLER, Key.of(managed)), self._views.managed, written)
            return

    # --- deletion -------------------------------------------------------------------------------------------------------

    async def _remove(self, managed: Obj) -> Result:
        if not has_finalizer(managed, MANAGED_FINALIZER):
            return DONE
        left = self._views.wanted_of(managed)
        for each in left:
            if not is_being_deleted(each):
                await remove(self._client, provisioning.CLUSTERS, each)
        if left and not is_legacy(name_of(managed)):
            subject = Ref(management.GROUP, "Cluster", "", name_of(managed))
            on = Ref(provisioning.GROUP, "Cluster", *Key.of(left[0]))
            wait = Wait(Code.DELETION, subject, Actor.REMUDA, on, "what it was made from has to go first")
            return Result(_AGAIN_SECONDS, (wait,))
        try:
            await self._set_finalizers(managed, [each for each in finalizers_of(managed) if each != MANAGED_FINALIZER])
        except ApiError as error:
            if not error.is_not_found:
                raise
        return DONE


def _managed_of(wanted: Obj) -> Iterable[Key]:
    origin = origin_of(wanted, FROM_MANAGED)
    names = {managed_name_of(wanted), name_of(wanted) if is_legacy(name_of(wanted)) else "", origin.name if origin else ""}
    return [Key("", name) for name in names - {""}]


def _shown(wanted: Obj) -> tuple[Any, ...]:
    meta = wanted.get("metadata") or {}
    return wanted.get("spec"), meta.get("labels"), meta.get("annotations"), is_being_deleted(wanted), managed_name_of(wanted)


def _read(managed: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not conditions, which change most often."""
    status = managed.get("status") or {}
    told = [status.get(field) for field in ("info", "provider", "version", "nodeCount")]
    meta = managed.get("metadata") or {}
    return (
        managed.get("spec"),
        meta.get("labels"),
        annotations_of(managed),
        finalizers_of(managed),
        is_being_deleted(managed),
        told,
        origin_of(managed, FROM_WANTED),
    )
