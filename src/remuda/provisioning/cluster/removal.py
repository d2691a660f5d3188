"""Deletion of a clusters.provisioning.cattle.io: its management Cluster, its machines, its user, then itself.

Dependents are read from the server, not from caches: a newly started cache knows no machines either. Only objects made for
this cluster are deleted; others of the same name stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.access.clusters.well_known import is_legacy
from remuda.access.rancher_conditions import condition_of, write_status
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.cluster_x_k8s_io import GROUP as CAPI_GROUP
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.api.management_cattle_io import FEATURES
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.idempotent import find, remove
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, finalizers_of, is_being_deleted, name_of, resource_version_of
from remuda.kube.owners import is_owned_by
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import OWNER_NAME, OWNER_NAMESPACE
from remuda.runtime import DONE, Manager, Result, logger

from ..well_known import CONTROL_PLANES, WANTED_FINALIZER, belongs, is_administrated, managed_name_of
from .kubeconfig import Kubeconfigs
from .mirror import with_removal
from .mirror_caches import MirrorCaches

log = logger(__name__)

Obj = dict[str, Any]

_AGAIN_SECONDS = 5.0


class Removal:
    def __init__(self, manager: Manager, views: MirrorCaches, kubeconfigs: Kubeconfigs, lock: FeatureLock) -> None:
        self._manager = manager
        self._client = manager.client
        self._views = views
        self._kubeconfigs = kubeconfigs
        self._lock = lock

    async def proceed(self, wanted: Obj) -> Result:
        """Continue the deletion; the finalizer is removed when all dependents are gone."""
        managed = await self._managed(wanted)
        wait = await self._delete_managed(wanted, managed)
        if wait is None and is_administrated(wanted):
            wait = await self._delete_machines(wanted)
        said = await self._say(wanted, wait.evidence if wait is not None else "")
        if wait is not None:
            return Result(_AGAIN_SECONDS, (wait,))
        await self._kubeconfigs.forget(wanted, [name_of(each) for each in managed])
        await self._lock.release(wanted)
        await self._release(said)
        log.info("removed")
        return DONE

    async def _say(self, wanted: Obj, waiting_for: str) -> Obj:
        after = with_removal(wanted, self._manager.clock.time(), waiting_for)
        written = await write_status(self._client, provisioning.CLUSTERS, wanted, after, subresource="status")
        return written or wanted

    async def _release(self, wanted: Obj) -> None:
        left = [each for each in finalizers_of(wanted) if each != WANTED_FINALIZER]
        patch = {"metadata": {"resourceVersion": resource_version_of(wanted), "finalizers": left or None}}
        key = Key.of(wanted)
        try:
            await self._client.patch(provisioning.CLUSTERS, key.name, patch, key.namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise

    # --- the management Cluster -----------------------------------------------------------------------------------------

    async def _managed(self, wanted: Obj) -> list[Obj]:
        """Its management Clusters, including one that its status does not name yet."""
        found = {name_of(each): each for each in self._views.managed_of(wanted)}
        name = name_of(wanted) if is_legacy(name_of(wanted)) else managed_name_of(wanted)
        if name and name not in found:
            live = await find(self._client, management.CLUSTERS, name)
            if live is not None and (is_legacy(name) or belongs(live, wanted)):
                found[name] = live
        return list(found.values())

    async def _delete_managed(self, wanted: Obj, managed: list[Obj]) -> Wait | None:
        for each in managed:
            moved = dig(each, "spec", "fleetWorkspaceName") not in (None, "", Key.of(wanted).namespace)
            if moved and is_legacy(name_of(each)):
                # It moved to another workspace, where it has another provisioning Cluster; it stays.
                continue
            if not is_being_deleted(each):
                await remove(self._client, management.CLUSTERS, each)
            if is_legacy(name_of(each)):
                return self._waits(
                    wanted, management.GROUP, "Cluster", "", name_of(each), f"management cluster [{name_of(each)}]"
                )
        return None

    # --- objects made for it --------------------------------------------------------------------------------------------

    async def _delete_machines(self, wanted: Obj) -> Wait | None:
        key = Key.of(wanted)
        cluster = await find(self._client, CAPI_CLUSTERS, key.name, key.namespace)
        if cluster is not None and not _made_for(cluster, wanted):
            return None
        if cluster is not None and not is_being_deleted(cluster):
            await remove(self._client, CAPI_CLUSTERS, cluster)
        if (plane := await find(self._client, CONTROL_PLANES, key.name, key.namespace)) is not None:
            # Its condition may name the machines it waits for.
            told = (condition_of(plane, "Removed") or {}).get("message") or ""
            wait = self._waits(wanted, CONTROL_PLANES.group, "RKEControlPlane", *key, f"control plane [{key.name}]")
            return replace(wait, evidence=told) if told else wait
        if machines := await self._machines(key):
            machine = machines[0]
            return self._waits(
                wanted, CAPI_GROUP, "Machine", *Key.of(machine), f"machine [{name_of(machine)}]", _trouble(machine)
            )
        if cluster is not None:
            return self._waits(wanted, CAPI_GROUP, "Cluster", *key, f"cluster-api cluster [{key.name}]")
        return None

    async def _machines(self, key: Key) -> list[Obj]:
        try:
            found = await self._client.list(MACHINES, key.namespace, labels=f"{CLUSTER_NAME}={key.name}")
        except ApiError as error:
            if error.code == 404:
                return []
            raise
        return sorted(found["items"], key=name_of)

    def _waits(self, wanted: Obj, group: str, kind: str, namespace: str, name: str, called: str, trouble: str = "") -> Wait:
        subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
        evidence = f"waiting for {called} to delete{trouble}"
        return Wait(Code.DELETION, subject, Actor.OTHER_CONTROLLER, Ref(group, kind, namespace, name), evidence)


def _made_for(cluster: Obj, wanted: Obj) -> bool:
    said = dig(cluster, "metadata", "annotations") or {}
    marked = Key(said.get(OWNER_NAMESPACE) or "", said.get(OWNER_NAME) or "") == Key.of(wanted)
    return marked or is_owned_by(cluster, wanted)


def _trouble(machine: Obj) -> str:
    deleting = get(machine, "Deleting") or {}
    if deleting.get("status") != "True" or deleting.get("reason") != "InternalError":
        return ""
    return f": it can't be deleted by itself, delete it by hand: {deleting.get('message') or 'no reason was given'}"


# --- feature lock ---------------------------------------------------------------------------------------------------------
#
# The feature `rke2` can't be switched off while a provisioned cluster exists.

_FEATURE = "rke2"


class FeatureLock:
    def __init__(self, manager: Manager, views: MirrorCaches) -> None:
        self._client = manager.client
        self._features = manager.informers.of(FEATURES)
        self._views = views

    async def ensure(self, wanted: Obj) -> None:
        if is_administrated(wanted):
            await self._write(True)

    async def release(self, wanted: Obj) -> None:
        """`wanted` is being deleted; if it is the last one, the feature is unlocked."""
        if is_administrated(wanted) and not self._views.any_administrated(but=Key.of(wanted)):
            await self._write(None)

    async def _write(self, locked: bool | None) -> None:
        feature = self._features.get("", _FEATURE)
        if feature is None or dig(feature, "status", "lockedValue") == locked:
            return
        try:
            await self._client.patch(FEATURES, _FEATURE, {"status": {"lockedValue": locked}}, field_manager="cluster")
        except ApiError as error:
            if not error.is_not_found:
                raise
