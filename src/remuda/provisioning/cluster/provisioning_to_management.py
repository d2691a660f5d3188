"""The controller of clusters.provisioning.cattle.io, one direction of the mirror: creates their management Clusters.

Order: a finalizer, the management Cluster, the status with its name, and a kubeconfig for controllers (for an imported
cluster once it is connected). The other direction is in :mod:`.management_to_provisioning`, the content of both in
:mod:`.mirror`.

Deletion (:class:`Removal`) deletes the management Cluster, the machines, the user, then the Cluster itself. Dependents are read
from the server, not from caches: a newly started cache knows no machines either. Only objects made for this cluster are deleted;
others of the same name stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.access.clusters.server_settings import ServerSettings
from remuda.access.clusters.well_known import is_cluster_id, is_legacy
from remuda.access.rancher_conditions import condition_of, write_status
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.cluster_x_k8s_io import GROUP as CAPI_GROUP
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.api.management_cattle_io import FEATURES
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.idempotent import find, make, remove
from remuda.client.server_side_apply import Applier, covers
from remuda.kube.clock import Entropy
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import has_finalizer, is_owned_by
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import OWNER_NAME, OWNER_NAMESPACE, origin_of
from remuda.runtime import DONE, WARNING, Controller, Manager, Result, Retry, Watch, changed, logger, synced

from ..well_known import (
    CONTROL_PLANES,
    DISPLAY_NAME,
    FROM_MANAGED,
    FROM_WANTED,
    MANAGED_FINALIZER,
    MANAGEMENT_NAME,
    WANTED_FINALIZER,
    belongs,
    cluster_id,
    is_administrated,
    managed_name_of,
)
from .kubeconfig import BeingWritten, Kubeconfigs
from .mirror import (
    imported_part,
    managed_of,
    minimal_management_cluster,
    with_client_secret,
    with_failure,
    with_managed,
    with_removal,
    workspace_of,
)
from .mirror_caches import MirrorCaches

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "provisioning-cluster"
_ATTEMPTS = 16
_TOLD = ("Connected", "AgentDeployed")


class InvalidSpec(Exception):
    """The spec can't be followed as it is; the text is for its user."""


class ProvisioningMirror:
    controller = Controller(CONTROLLER, provisioning.CLUSTERS)

    def __init__(self, manager: Manager, server: ServerSettings, entropy: Entropy) -> None:
        self._manager = manager
        self._client = manager.client
        self._server = server
        self._views = MirrorCaches(manager.informers)
        self._applier = Applier(manager.client, CONTROLLER, resumes=True)
        self._events = manager.recorder(CONTROLLER)
        self.kubeconfigs = Kubeconfigs(manager, server, entropy, CONTROLLER)
        self._lock = FeatureLock(manager, self._views)
        self._removal = Removal(manager, self._views, self.kubeconfigs, self._lock)
        # The last target written, to distinguish edits of it from changes of its source.
        self._said: dict[Key, Obj] = {}
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(management.CLUSTERS, self._of_managed, changed(_shown)),
                *self.kubeconfigs.watches,
                *server.watches(lambda _: list(self._views.wanted.keys())),
            ),
            concurrency=8,
            lane=lambda key: key,
        )

    def _of_managed(self, managed: Obj) -> Iterable[Key]:
        origin = origin_of(managed, FROM_WANTED)
        found = {Key.of(each) for each in self._views.wanted_of(managed)}
        return found if origin is None else {*found, origin}

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(*self._views.caches, *self.kubeconfigs.caches)
        await self._manager.freshness.caught_up(who)
        wanted = self._views.wanted.get(*key)
        if wanted is None:
            self._manager.freshness.forget(who)
            self._said.pop(key, None)
            return DONE
        if is_being_deleted(wanted):
            return await self._removal.proceed(wanted) if has_finalizer(wanted, WANTED_FINALIZER) else DONE
        if not has_finalizer(wanted, WANTED_FINALIZER) or not self._is_named(wanted):
            # Before any object is created for it, so that all of them are removed again.
            wanted = await self._prepare(wanted)
        try:
            return await self._mirror(wanted)
        except InvalidSpec as refused:
            await self._say(wanted, with_failure(wanted, str(refused), self._manager.clock.time()))
            ref = Ref(provisioning.GROUP, "Cluster", *key)
            return Result(waits=(Wait(Code.MALFORMED, ref, Actor.USER, None, str(refused)),))

    def _is_named(self, wanted: Obj) -> bool:
        """Clusters that existed in management first have their own display name."""
        name = name_of(wanted)
        return is_legacy(name) or annotations_of(wanted).get(DISPLAY_NAME) == name

    async def _prepare(self, wanted: Obj) -> Obj:
        meta: Obj = {"resourceVersion": resource_version_of(wanted)}
        if not has_finalizer(wanted, WANTED_FINALIZER):
            meta["finalizers"] = [*finalizers_of(wanted), WANTED_FINALIZER]
        if not self._is_named(wanted):
            meta["annotations"] = {DISPLAY_NAME: name_of(wanted)}
        return self._wrote(wanted, await self._patch(wanted, {"metadata": meta}))

    async def _patch(self, wanted: Obj, patch: Obj) -> Obj:
        key = Key.of(wanted)
        return await self._client.patch(provisioning.CLUSTERS, key.name, patch, key.namespace, field_manager=CONTROLLER)

    def _wrote(self, wanted: Obj, written: Obj) -> Obj:
        self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._views.wanted, written)
        return written

    # --- the management Cluster -----------------------------------------------------------------------------------------

    async def _mirror(self, wanted: Obj) -> Result:
        managed = await self._first(wanted) if is_legacy(name_of(wanted)) else await self._ensure_managed(wanted)
        if managed is None or is_being_deleted(managed):
            # Its deletion deletes this one, too.
            return DONE
        await self._lock.ensure(wanted)
        workspace = dig(managed, "spec", "fleetWorkspaceName") or Key.of(wanted).namespace
        after = with_managed(wanted, managed, workspace, self._manager.clock.time())
        wanted = await self._say(wanted, after)
        # A provisioned cluster has a kubeconfig from the beginning: its machines are looked up with it before it is ready.
        if dig(wanted, "status", "ready") or is_administrated(wanted):
            try:
                name = await self.kubeconfigs.ensure(wanted, name_of(managed))
            except BeingWritten as unsettled:
                return Result(unsettled.seconds)
            if name and dig(wanted, "status", "ready"):
                await self._say(wanted, with_client_secret(wanted, name))
        return DONE

    async def _say(self, wanted: Obj, after: Obj) -> Obj:
        written = await write_status(
            self._client, provisioning.CLUSTERS, wanted, after, subresource="status", field_manager=CONTROLLER
        )
        return wanted if written is None else self._wrote(wanted, written)

    async def _first(self, wanted: Obj) -> Obj | None:
        """The management Cluster that this one was made from."""
        name = name_of(wanted)
        managed = self._views.managed.get("", name) or await find(self._client, management.CLUSTERS, name)
        if managed is None:
            if origin_of(wanted, FROM_MANAGED) is not None:
                await remove(self._client, provisioning.CLUSTERS, wanted)
                return None
            raise InvalidSpec(f"metadata.name: {name} is the name of a management cluster that does not exist")
        if dig(managed, "spec", "fleetWorkspaceName") != Key.of(wanted).namespace:
            # It moved; the other direction of the mirror removes the old one.
            return None
        return managed

    async def _ensure_managed(self, wanted: Obj) -> Obj | None:
        facts = self._server.facts()
        name, managed = await self._existing_or_new(wanted)
        if managed is not None and is_being_deleted(managed):
            return managed
        workspace = workspace_of(wanted, managed, facts)
        imported = not is_administrated(wanted)
        target = managed_of(wanted, name, workspace, facts)
        if managed is None:
            made = target if imported else minimal_management_cluster(wanted, name, workspace)
            made = {**made, "metadata": {**made["metadata"], "finalizers": [MANAGED_FINALIZER]}}
            managed = await make(self._client, management.CLUSTERS, made, f"{CONTROLLER}-first")
            if managed is None:
                raise Retry(f"the management Cluster {name} has just been made")
            log.info("made the management Cluster %s", name)
            self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._views.managed, managed)
        if imported:
            target = imported_part(wanted, name, workspace)
        self._report_edits(wanted, managed, target)
        written = await self._applier.apply(management.CLUSTERS, target, managed)
        if written is None:
            return managed
        self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._views.managed, written)
        return written

    def _report_edits(self, wanted: Obj, managed: Obj, target: Obj) -> None:
        """Record an event that tells the user of an overwritten field where to change it."""
        key = Key.of(wanted)
        if self._said.get(key) == target and not covers(managed, target):
            message = f"edit clusters.provisioning.cattle.io {key.name} in namespace {key.namespace} instead; this was put back"
            self._events.event(managed, WARNING, "PutBack", message)
        self._said[key] = target

    async def _existing_or_new(self, wanted: Obj) -> tuple[str, Obj | None]:
        """The id of the cluster, existing or new, with its management Cluster if that exists.

        The server itself is asked if the cache has none: a cluster must never have two.
        """
        known = managed_name_of(wanted)
        made = self._views.managed_of(wanted)
        if not known and made:
            return name_of(made[0]), made[0]
        asked = annotations_of(wanted).get(MANAGEMENT_NAME, "")
        if not known and asked and (is_legacy(asked) or not is_cluster_id(asked)):
            raise InvalidSpec(
                f"metadata.annotations[{MANAGEMENT_NAME}]: {asked} can't be the id of a cluster; such as c-m-bcdfg245 can"
            )
        for attempt in range(_ATTEMPTS):
            name = known or asked or cluster_id(uid_of(wanted), attempt)
            found = self._views.managed.get("", name) or await find(self._client, management.CLUSTERS, name)
            if found is None or belongs(found, wanted):
                return name, found
            if known or asked:
                raise InvalidSpec(f"the management cluster {name} belongs to another cluster")
        raise Retry("no id is free")


def _shown(managed: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not health, which is written often and rarely shows here."""
    said = [(condition_of(managed, kind) or {}).get("status") for kind in _TOLD]
    return managed.get("spec"), labels_of(managed), annotations_of(managed), is_being_deleted(managed), said


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
