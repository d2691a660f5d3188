"""The reconciler of clusters.provisioning.cattle.io with `rkeConfig`: creates the objects that such a cluster consists of.

It begins when the mirror (:mod:`remuda.provisioning.cluster`) has given the cluster an id and a finalizer, so that every
object is also deleted. It copies the control plane's conditions to both Clusters. A deleted cluster keeps its finalizer until
its control plane is gone; Cluster API and the mirror delete the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.access.rancher_conditions import FALSE, TRUE, condition_of, tell_status, write_status
from remuda.access.roles.role_names import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from remuda.access.settings.settings import Features
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.idempotent import find
from remuda.kube.authorization.users import service_account_name
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, finalizers_of, is_being_deleted, labels_of, name_of, resource_version_of
from remuda.kube.owners import has_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import origin_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, synced

from ..cluster.mirror_caches import MirrorCaches
from ..etcd.snapshot_specs import SnapshotSpecError
from ..references import Access, References
from ..references.authorization import authors_of
from ..well_known import FINALIZER, FROM_WANTED, belongs, is_administrated, managed_name_of
from . import Unrenderable, graph_of, upgrade_snapshot
from .apply import ObjectGraphs, is_made_for
from .cluster_status import (
    NO_PRE_BOOTSTRAP,
    managed_with_control_plane,
    managed_with_removal,
    with_control_plane,
    with_graph,
    with_refusal,
    with_support,
    with_wait,
    without_effect,
)
from .generated import why_not_applied
from .machine_pools import why_roles_are_missing
from .referenced_objects import MachineConfigs, Missing, PodSecurityTemplates
from .restored_spec import held, snapshot_to_read, with_restore, with_restored

Obj = dict[str, Any]

CONTROLLER = "provisioningcluster"
_AGAIN_SECONDS = 5.0
_BY_AUTHOR = "authors of references"
# Objects whose deletion was refused wait for other machines to come up.
_REFUSED_AGAIN = 15.0
_PRE_BOOTSTRAP = "provisioningprebootstrap"


class ProvisioningClusters:
    controller = Controller(CONTROLLER, provisioning.CLUSTERS)

    def __init__(self, manager: Manager, access: Access, environment: Mapping[str, str] | None = None) -> None:
        self._manager = manager
        self._environment = environment or {}
        self._client = manager.client
        self._views = MirrorCaches(manager.informers)
        self._features = manager.informers.of(management.FEATURES)
        self._graphs = ObjectGraphs(manager, CONTROLLER)
        self._references = References(manager.client, access)
        self._configs = MachineConfigs(manager, CONTROLLER, self._views.wanted, self._references)
        self._views.wanted.add_index(_BY_AUTHOR, authors_of)
        self._templates = PodSecurityTemplates(manager, self._views.wanted)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(management.CLUSTERS, _of_managed, changed(_read_of_managed)),
                Watch(management.FEATURES, lambda _: list(self._views.wanted.keys()), changed("spec", names=(_PRE_BOOTSTRAP,))),
                self._templates.watch(),
                *(Watch(each, self._of_subjects, _taken_away) for each in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)),
                *self._graphs.watches(),
            ),
            when=_change,
            concurrency=8,
            lane=lambda key: key,
        )

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(*self._views.caches, self._features, self._templates.cache, *self._graphs.caches.values())
        await self._manager.freshness.caught_up(who)
        wanted = self._views.wanted.get(*key)
        if wanted is None:
            self._manager.freshness.forget(who)
            self._graphs.forget(key)
            return DONE
        if is_being_deleted(wanted):
            return await self._remove(wanted) if has_finalizer(wanted, FINALIZER) else DONE
        if not is_administrated(wanted):
            if has_finalizer(wanted, FINALIZER):
                await self._release(wanted)
            return DONE
        managed = self._managed(wanted)
        if managed is None or not finalizers_of(wanted):
            # The mirror is not done yet; it reports that itself, and its writes trigger this reconciler.
            return DONE
        if not has_finalizer(wanted, FINALIZER):
            wanted = await self._set_finalizers(wanted, [*finalizers_of(wanted), FINALIZER])
        return await self._make(wanted, managed)

    def _managed(self, wanted: Obj) -> Obj | None:
        """Its management Cluster, and never another cluster's that it only names."""
        created = condition_of(wanted, "Created") or {}
        found = self._views.managed.get("", managed_name_of(wanted))
        if found is None or created.get("status") == FALSE or is_being_deleted(found) or not belongs(found, wanted):
            return None
        return found

    # --- making ---------------------------------------------------------------------------------------------------------

    async def _make(self, wanted: Obj, managed: Obj) -> Result:
        now = self._manager.clock.time()
        wanted, unbound = await self._bind(wanted)
        try:
            wanted = await self._keep_schemas(wanted)
            plane = self._graphs.control_plane(wanted)
            wanted = await self._write_changes(wanted, with_restore(wanted, plane))
            wanted = await self._bring_back(wanted, plane)
            configs = await self._configs.read(wanted)
            made = upgrade_snapshot.held(held(wanted, plane), plane)
            graph = graph_of(made, name_of(managed), configs, self._templates.of(made))
            waits = await self._graphs.ensure(wanted, graph)
        except Missing as missing:
            await self._say(wanted, with_wait(wanted, missing.wait.evidence, now))
            # A kind may not be served yet, and credentials and schemas are not watched: try again soon.
            return Result(_AGAIN_SECONDS, (missing.wait,))
        except SnapshotSpecError as error:
            name = dig(wanted, "spec", "rkeConfig", "etcdSnapshotRestore", "name")
            return await self._refuse(wanted, f"spec.rkeConfig.etcdSnapshotRestore: ETCDSnapshot {name}: {error}", now)
        except Unrenderable as refused:
            return await self._refuse(wanted, str(refused), now)
        except ApiError as error:
            if error.code not in (400, 403, 422):
                raise
            # The server's message says why it rejects the object.
            return await self._refuse(wanted, error.message, now)
        kept = [] if waits else (await self._graphs.prune(wanted, graph))[1]
        plane = self._graphs.control_plane(wanted)
        told = with_wait(wanted, waits[0].evidence, now) if waits else with_control_plane(with_graph(wanted, now), plane, now)
        told = with_support(told, plane, now, pre_bootstrap=self._pre_bootstrap())
        wanted = await self._say(wanted, told)
        if plane is not None and not is_being_deleted(plane):
            await self._report_to_management(wanted, managed, plane)
        # The planner waits for the references of hosts; they are polled here, since Secrets are not watched.
        notes = (*_missing_in_pools(wanted, plane), *_notes(wanted, pre_bootstrap=self._pre_bootstrap()))
        return Result(_AGAIN_SECONDS if unbound else _REFUSED_AGAIN if kept else None, (*waits, *unbound, *kept, *notes))

    async def _bind(self, wanted: Obj) -> tuple[Obj, list[Wait]]:
        """Resolve its references, and store them before any of them is used."""
        bound, unbound = await self._references.of(wanted).bound()
        return await self._say(wanted, bound), unbound

    def _of_subjects(self, binding: Obj) -> Iterable[Key]:
        """The clusters with references written by a subject of the binding."""
        found = (self._views.wanted.indexed(_BY_AUTHOR, _subject(each)) for each in binding.get("subjects") or ())
        return {Key.of(each) for listed in found for each in listed}

    def _pre_bootstrap(self) -> bool:
        return Features(self._features.objects(), self._environment).enabled(_PRE_BOOTSTRAP)

    async def _keep_schemas(self, wanted: Obj) -> Obj:
        kept = await self._configs.with_schemas(wanted)
        if kept is wanted:
            return wanted
        pools = kept["spec"]["rkeConfig"]["machinePools"]
        patch = {
            "metadata": {"resourceVersion": resource_version_of(wanted)},
            "spec": {"rkeConfig": {"machinePools": pools}},
        }
        return await self._patch(wanted, patch)

    async def _bring_back(self, wanted: Obj, plane: Obj | None) -> Obj:
        """Write the fields that a verified restore brings back. Raises SnapshotSpecError."""
        name = snapshot_to_read(wanted, plane)
        if not name:
            return wanted
        snapshot = await find(self._client, rke.ETCD_SNAPSHOTS, name, Key.of(wanted).namespace)
        if snapshot is None:
            raise SnapshotSpecError("it does not exist any more")
        return await self._write_changes(wanted, with_restored(wanted, snapshot))

    async def _write_changes(self, wanted: Obj, after: Obj) -> Obj:
        if after is wanted:
            return wanted
        patch: Obj = create_merge_patch(wanted, after)
        patch.setdefault("metadata", {})["resourceVersion"] = resource_version_of(wanted)
        return await self._patch(wanted, patch)

    async def _refuse(self, wanted: Obj, message: str, now: float) -> Result:
        await self._say(wanted, with_refusal(wanted, message, now))
        subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
        return Result(waits=(Wait(Code.MALFORMED, subject, Actor.USER, None, message),))

    async def _say(self, wanted: Obj, after: Obj) -> Obj:
        written = await write_status(
            self._client, provisioning.CLUSTERS, wanted, after, subresource="status", field_manager=CONTROLLER
        )
        return wanted if written is None else self._wrote(wanted, written)

    async def _report_to_management(self, wanted: Obj, managed: Obj, plane: Obj) -> None:
        now = self._manager.clock.time()

        def told(latest: Obj) -> Obj:
            return managed_with_control_plane(latest, wanted, plane, now)

        written = await tell_status(self._client, management.CLUSTERS, managed, told, field_manager=CONTROLLER)
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._views.managed, written)

    # --- writing --------------------------------------------------------------------------------------------------------

    async def _patch(self, wanted: Obj, patch: Obj) -> Obj:
        key = Key.of(wanted)
        written = await self._client.patch(provisioning.CLUSTERS, key.name, patch, key.namespace, field_manager=CONTROLLER)
        return self._wrote(wanted, written)

    def _wrote(self, wanted: Obj, written: Obj) -> Obj:
        self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._views.wanted, written)
        return written

    async def _set_finalizers(self, wanted: Obj, finalizers: list[str]) -> Obj:
        return await self._patch(
            wanted, {"metadata": {"resourceVersion": resource_version_of(wanted), "finalizers": finalizers or None}}
        )

    async def _release(self, wanted: Obj) -> None:
        try:
            await self._set_finalizers(wanted, [each for each in finalizers_of(wanted) if each != FINALIZER])
        except ApiError as error:
            if not error.is_not_found:
                raise

    # --- deletion -------------------------------------------------------------------------------------------------------

    async def _remove(self, wanted: Obj) -> Result:
        """The mirror deletes the Cluster API Cluster, which deletes its objects; objects that it never adopted, because of a
        crash, are deleted here."""
        key = Key.of(wanted)
        # Machines need their credential for deletion, and a user may accept another one for it.
        wanted, _ = await self._bind(wanted)
        cluster = await find(self._client, capi.CLUSTERS, key.name, key.namespace)
        if cluster is None or not is_made_for(cluster, wanted):
            left, _ = await self._graphs.prune(wanted)
        else:
            left = [cluster]
        plane = await find(self._client, rke.RKE_CONTROL_PLANES, key.name, key.namespace)
        if plane is not None and is_made_for(plane, wanted):
            await self._report_removal(wanted, plane)
            left = [*left, plane]
        if not left:
            await self._release(wanted)
            return DONE
        last = left[-1]
        on = Ref(str(last.get("apiVersion") or "").partition("/")[0], str(last.get("kind")), *Key.of(last))
        evidence = f"waiting for {last.get('kind')} {name_of(last)} to be gone"
        subject = Ref(provisioning.GROUP, "Cluster", *key)
        return Result(_AGAIN_SECONDS, (Wait(Code.DELETION, subject, Actor.OTHER_CONTROLLER, on, evidence),))

    async def _report_removal(self, wanted: Obj, plane: Obj) -> None:
        managed = self._views.managed.get("", managed_name_of(wanted))
        if managed is None or not belongs(managed, wanted):
            return
        now = self._manager.clock.time()
        try:
            await tell_status(
                self._client,
                management.CLUSTERS,
                managed,
                lambda latest: managed_with_removal(latest, plane, now),
                field_manager=CONTROLLER,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise


def _missing_in_pools(wanted: Obj, plane: Obj | None) -> tuple[Wait, ...]:
    """The wait of a cluster whose pools lack a role, before its control plane has found machines of all roles."""
    text = why_roles_are_missing(dig(wanted, "spec", "rkeConfig", "machinePools") or ())
    if not text or plane is None or (condition_of(plane, "Provisioned") or {}).get("status") == TRUE:
        return ()
    return (Wait(Code.ROLES, Ref(provisioning.GROUP, "Cluster", *Key.of(wanted)), Actor.USER, None, text),)


def _notes(wanted: Obj, *, pre_bootstrap: bool) -> Iterable[Wait]:
    """Settings without effect: fields of the spec, a feature that is enabled, a manifest that can't be applied."""
    ref = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
    if pre_bootstrap:
        yield Wait(Code.WITHOUT_EFFECT, ref, Actor.USER, None, f"the feature {NO_PRE_BOOTSTRAP}")
    if unused := "; ".join(f"{path}: {why}" for path, why, _ in without_effect(wanted)):
        yield Wait(Code.WITHOUT_EFFECT, ref, Actor.USER, None, f"fields without effect: {unused}")
    manifest = dig(wanted, "spec", "rkeConfig", "additionalManifest")
    if isinstance(manifest, str) and (why := why_not_applied(manifest)):
        yield Wait(Code.WITHOUT_EFFECT, ref, Actor.USER, None, f"spec.rkeConfig.additionalManifest can't be applied: {why}")


def _subject(subject: Obj) -> tuple[str, str]:
    kind, name = str(subject.get("kind")), str(subject.get("name"))
    return ("User", service_account_name(str(subject.get("namespace")), name)) if kind == "ServiceAccount" else (kind, name)


def _taken_away(new: Obj | None, old: Obj | None) -> bool:
    """Ignores new bindings, which remove no right."""
    return old is not None and (new is None or new.get("subjects") != old.get("subjects"))


def _of_managed(managed: Obj) -> Iterable[Key]:
    origin = origin_of(managed, FROM_WANTED)
    return () if origin is None else (origin,)


def _read_of_managed(managed: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not other changes of the cluster's health."""
    told = [condition_of(managed, kind) for kind in ("Updated", "Provisioned")]
    return is_being_deleted(managed), origin_of(managed, FROM_WANTED), dig(managed, "status", "readyReconciling"), told


_change = changed("spec", labels_of, annotations_of, finalizers_of, is_being_deleted, "status")
