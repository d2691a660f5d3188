"""The generated objects of clusters on the server: written, restored, and deleted when they are no longer wanted.

The objects of one cluster share a label, by which surplus ones are found (:mod:`remuda.kube.wrangler`). An object of the
same name that was made for another owner is left alone and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import plan_cattle_io as plan
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.idempotent import find, remove
from remuda.client.server_side_apply import Applier, covers, was_lost
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
    with_metadata,
)
from remuda.kube.owners import is_owned_by
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.kube.wrangler import HASH, ID, OWNER_NAME, marks, origin_of
from remuda.runtime import WARNING, Informer, Manager, Watch, logger

from ..well_known import PRUNE, SET_ID
from . import Generated, Unrenderable

log = logger(__name__)

Obj = dict[str, Any]
_Place = tuple[GroupVersionResource, Key]

# Kinds with a cache; machine templates have as many kinds as there are drivers, and are read one by one.
KINDS = (
    SECRETS,
    rke.RKE_CLUSTERS,
    rke.RKE_CONTROL_PLANES,
    capi.CLUSTERS,
    plan.BEACONS,
    rke.RKE_BOOTSTRAP_TEMPLATES,
    capi.MACHINE_DEPLOYMENTS,
    capi.MACHINE_HEALTH_CHECKS,
)
# There are many Secrets, and few of them are generated.
_LABELS = {SECRETS: HASH}
_BY_SET = "objects of one cluster"


class ObjectGraphs:
    def __init__(self, manager: Manager, controller: str) -> None:
        self._manager = manager
        self._client = manager.client
        self._controller = controller
        self._applier = Applier(manager.client, controller)
        self._events = manager.recorder(controller)
        self.caches: dict[GroupVersionResource, Informer] = {
            kind: manager.informers.of(kind, labels=_LABELS.get(kind, "")) for kind in KINDS
        }
        for cache in self.caches.values():
            cache.add_index(_BY_SET, _sets)
        # The last target of each object of a cluster, to distinguish edits of it from changes of its source.
        self._said: dict[Key, dict[_Place, Obj]] = {}

    def watches(self) -> Iterable[Watch]:
        """The control plane also for the status that is passed on; the others only for their generated fields."""
        for kind in KINDS:
            when = _told_part if kind == rke.RKE_CONTROL_PLANES else _generated_part
            yield Watch(kind, _origins, when, labels=_LABELS.get(kind, ""))

    def control_plane(self, wanted: Obj) -> Obj | None:
        """The control plane of this cluster, not one that only has its name."""
        found = self.caches[rke.RKE_CONTROL_PLANES].get(*Key.of(wanted))
        return found if found is not None and is_made_for(found, wanted) else None

    def forget(self, key: Key) -> None:
        self._said.pop(key, None)

    # --- making ---------------------------------------------------------------------------------------------------------

    async def ensure(self, wanted: Obj, graph: list[Generated]) -> list[Wait]:
        """Write objects that differ. Raises Unrenderable, before anything is written, if a name is taken."""
        found = [(each, await self._found(each)) for each in graph]
        for each, there in found:
            if there is not None and is_taken(there, wanted):
                kind = each.obj["kind"]
                raise Unrenderable(
                    f"{kind} {each.key} is there already and was not made for this cluster: delete it, or choose another name"
                )
        going = [self._wait(wanted, each) for each, there in found if there is not None and is_being_deleted(there)]
        if any(wait.on is not None and (wait.on.group, wait.on.kind) == (capi.GROUP, "Cluster") for wait in going):
            # Its deletion deletes all the others, and would never finish if they were recreated meanwhile.
            return going
        for each, there in found:
            if there is None or not is_being_deleted(there):
                await self._write(wanted, each, there)
        return going

    async def _found(self, each: Generated) -> Obj | None:
        cache = self.caches.get(each.resource)
        if cache is not None:
            return cache.get(*each.key)
        return await find(self._client, each.resource, each.key.name, each.key.namespace)

    async def _write(self, wanted: Obj, each: Generated, there: Obj | None) -> None:
        said = self._said.setdefault(Key.of(wanted), {})
        place = (each.resource, each.key)
        seen = None if there is None else _with_our_owners(there, each.obj)
        known = said.get(place)
        edited = seen is not None and known == each.obj and not covers(seen, each.obj)
        written = await self._applier.apply(each.resource, each.obj, seen)
        said[place] = each.obj
        if edited and there is not None:
            self._report_overwritten(there, wanted, "edit", "this was put back")
        if written is None:
            return
        if there is None and known is not None:
            self._report_overwritten(written, wanted, "edit or delete", "this was made anew")
        if (cache := self.caches.get(each.resource)) is not None:
            self._manager.freshness.wrote((self._controller, Key.of(wanted)), cache, written)

    def _report_overwritten(self, obj: Obj, wanted: Obj, what: str, done: str) -> None:
        """Record an event that tells the user of an overwritten object where to change it."""
        key = Key.of(wanted)
        where = f"{what} clusters.provisioning.cattle.io {key.name} in namespace {key.namespace} instead"
        self._events.event(obj, WARNING, "PutBack", f"{where}; {done}")

    def _wait(self, wanted: Obj, each: Generated) -> Wait:
        subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
        on = Ref(each.resource.group, each.obj["kind"], *each.key)
        evidence = f"{each.obj['kind']} {each.key.name} is being deleted, then it is made anew"
        return Wait(Code.DELETION, subject, Actor.OTHER_CONTROLLER, on, evidence)

    # --- deletion -------------------------------------------------------------------------------------------------------

    async def prune(self, wanted: Obj, keep: Collection[Generated] = ()) -> tuple[list[Obj], list[Wait]]:
        """Delete objects generated for this cluster that are not in `keep`; returns those still there, and waits for those
        whose deletion was refused."""
        wanted_places = {(each.resource, each.key) for each in keep}
        said = self._said.get(Key.of(wanted), {})
        left: list[Obj] = []
        refused: list[Wait] = []
        mark = marks(SET_ID, wanted).labels[HASH]
        for kind, cache in self.caches.items():
            for obj in cache.indexed(_BY_SET, mark):
                place = (kind, Key.of(obj))
                if place in wanted_places or labels_of(obj).get(PRUNE) == "false" or not is_made_for(obj, wanted):
                    continue
                left.append(obj)
                said.pop(place, None)
                self._applier.forget(uid_of(obj))
                if is_being_deleted(obj):
                    continue
                try:
                    await remove(self._client, kind, obj)
                except ApiError as error:
                    if error.code != 403:
                        raise
                    refused.append(self._refused(wanted, kind, obj, error.message))
                    continue
                self._manager.freshness.deleted((self._controller, Key.of(wanted)), cache, obj)
                log.info("deleted %s %s, which is no longer wanted", obj.get("kind"), name_of(obj))
        return left, refused

    def _refused(self, wanted: Obj, kind: GroupVersionResource, obj: Obj, why: str) -> Wait:
        subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
        return Wait(Code.REFUSED, subject, Actor.USER, Ref(kind.group, str(obj.get("kind")), *Key.of(obj)), why)


def is_made_for(obj: Obj, wanted: Obj) -> bool:
    """True if an object was made for this cluster; all its objects are in its namespace."""
    if namespace_of(obj) != namespace_of(wanted):
        return False
    return origin_of(obj, SET_ID) == Key.of(wanted) or is_owned_by(obj, wanted)


def is_taken(obj: Obj, wanted: Obj) -> bool:
    """True if it belongs to another owner. A Cluster API Cluster does, unless it is marked as made for this one: it has
    machines. Other objects without an owner may be adopted, such as an RKECluster that a user made for its endpoint."""
    if is_made_for(obj, wanted):
        return False
    group = GroupVersion.parse(obj.get("apiVersion") or "").group
    if (group, obj.get("kind")) == (capi.GROUP, "Cluster") or ID in annotations_of(obj) or OWNER_NAME in annotations_of(obj):
        return True
    return any(owner.get("name") != name_of(wanted) or owner.get("kind") != "Cluster" for owner in owner_references_of(obj))


def _with_our_owners(there: Obj, wanted: Obj) -> Obj:
    """The existing object, but without owners that others added."""
    ours = {each["uid"] for each in owner_references_of(wanted)}
    if not ours:
        return there
    return with_metadata(there, ownerReferences=[each for each in owner_references_of(there) if each.get("uid") in ours])


def _sets(obj: Obj) -> Iterable[str]:
    found = labels_of(obj).get(HASH)
    return (found,) if found else ()


def _origins(obj: Obj) -> Iterable[Key]:
    origin = origin_of(obj, SET_ID)
    return () if origin is None else (origin,)


def _generated_part(new: Obj | None, old: Obj | None) -> bool:
    """Ignores their status, which is written often and not used here."""
    if new is None or old is None or was_lost(new, old):
        return True
    return _part(new) != _part(old)


# Of a control plane's status: what is copied, and how far a restore is that brings back parts of the spec.
_TOLD = (
    "conditions",
    "appliedSpec",
    "etcdSnapshotRestore",
    "etcdSnapshotRestorePhase",
    "recover",
    "recoverPhase",
    "upgradeSnapshot",
)


def _told_part(new: Obj | None, old: Obj | None) -> bool:
    if new is None or old is None or was_lost(new, old) or _part(new) != _part(old):
        return True
    return any(dig(new, "status", field) != dig(old, "status", field) for field in _TOLD)


def _part(obj: Obj) -> tuple[Any, ...]:
    content = obj.get("spec") or obj.get("data")
    return content, labels_of(obj), annotations_of(obj), owner_references_of(obj), is_being_deleted(obj)
