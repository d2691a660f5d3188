"""Infrastructure machines and bootstrap configurations of a set: cloned from templates, deleted when they get no machine.

The set owns a clone until its machine takes it over. So a clone that the set still owns, and that no machine refers to, is a
leftover of an interrupted reconcile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.client.interface import JSON_PATCH
from remuda.client.server_side_apply import ENTRIES, Operations, entries_of, is_entry, without_leftovers
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.owners import reference, with_owner
from remuda.kube.selectors import LabelSelector
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer, Retry

from ..contracts import NoContract
from ..controller_context import Core, cluster_name_of, owner_is
from ..external_objects import clone, cloned_kind, is_template, not_there
from ..phases import Stuck
from .desired_machines import machine_annotations, machine_labels
from .remediation import is_current
from .scope import NAME, MachineSetScope

Obj = dict[str, Any]

_BY_SET = "machine set"
_APPLIED_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
_TRIES = 3


class NotCloned(Exception):
    """A template could not be cloned; the text is for conditions. `missing`: the template, or its kind, must be created first."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class Clone(NamedTuple):
    obj: Obj
    resource: GroupVersionResource
    informer: Informer


class Clones:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def make(self, scope: MachineSetScope, ref: Obj, name: str, what: str) -> Clone:
        """The clone for the machine `name`; `what` is its name in messages. Raises NotCloned."""
        doing = f"failed to create {what}: failed to compute desired {what}"
        try:
            template = await self._core.externals.get(ref, scope.namespace)
            if template is None:
                raise NotCloned(f"{doing}: {not_there(ref, scope.namespace)}", missing=True)
            wanted = _intent(self._clone(scope, template.obj, name))
            version = GroupVersion.parse(wanted["apiVersion"])
            informer, kind = await self._core.externals.of(version.group, wanted["kind"])
        except NoContract as error:
            raise NotCloned(f"{doing}: {error}", missing=True) from None
        resource = kind.resource._replace(version=version.version)
        try:
            made = await self._core.client.apply(resource, wanted, field_manager=MANAGER, force=True)
            made = await self._transfer_metadata(scope, resource, made)
        except ApiError as error:
            raise NotCloned(f"failed to create {what}: failed to apply {wanted['kind']}: {error.message}") from error
        self._core.wrote(NAME, scope.key, informer, made)
        return Clone(made, resource, informer)

    def _clone(self, scope: MachineSetScope, template: Obj, name: str) -> Obj:
        machine_set = scope.machine_set
        return clone(
            template,
            name=name,
            namespace=scope.namespace,
            cluster=cluster_name_of(machine_set),
            labels=machine_labels(machine_set),
            annotations=machine_annotations(machine_set),
            owner=reference(machine_set),
        )

    async def _transfer_metadata(self, scope: MachineSetScope, resource: GroupVersionResource, made: Obj) -> Obj:
        labels, annotations = machine_labels(scope.machine_set), machine_annotations(scope.machine_set)
        for attempt in range(_TRIES):
            operations = transfer_of_metadata(made, labels, annotations, self._core.now())
            if not operations:
                return made
            try:
                return await self.patch(resource, made, operations)
            except ApiError as error:
                if error.is_not_found or attempt == _TRIES - 1:
                    raise
            made = await self._core.client.get(resource, name_of(made), scope.namespace)
        return made

    async def patch(self, resource: GroupVersionResource, obj: Obj, operations: Operations) -> Obj:
        return await self._core.client.patch(resource, name_of(obj), operations, namespace_of(obj), patch_type=JSON_PATCH)

    async def drop(self, scope: MachineSetScope, clone: Clone) -> None:
        """Delete a clone that will get no machine. If that fails, it is collected later."""
        try:
            await self._core.client.delete(clone.resource, name_of(clone.obj), scope.namespace, uid=uid_of(clone.obj))
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        self._core.deleted(NAME, scope.key, clone.informer, clone.obj)

    # --- leftovers ------------------------------------------------------------------------------------------------------

    async def collect_leftovers(self, scope: MachineSetScope, selector: LabelSelector) -> None:
        for path, ref in ((("infrastructureRef",), scope.infrastructure), (("bootstrap", "configRef"), scope.bootstrap)):
            if not ref:
                continue
            try:
                informer, kind = await self._core.externals.of(ref.get("apiGroup") or "", cloned_kind(ref.get("kind") or ""))
            except NoContract:
                continue  # of a kind that isn't there nothing can be left
            informer.add_index(_BY_SET, _sets)
            owned = [obj for obj in informer.indexed(_BY_SET, scope.key) if not is_being_deleted(obj)]
            if not owned:
                continue
            used = {dig(machine, "spec", *path, "name") for machine in scope.listed}
            for obj in owned:
                if name_of(obj) not in used and selector.matches(labels_of(obj)):
                    await self._collect(scope, Clone(obj, kind.resource, informer))

    async def _collect(self, scope: MachineSetScope, leftover: Clone) -> None:
        name = name_of(leftover.obj)
        if await self._has_unseen_machine(Key(scope.namespace, name)):
            # Two caches may differ in age: the clone's is up to date, the machines' is not yet.
            raise Retry(f"the machine {name} is not in the cache yet")
        await self.drop(scope, leftover)

    async def _has_unseen_machine(self, key: Key) -> bool:
        """True if there is a machine of this name that the cache does not have yet."""
        if self._core.machines.get(*key) is not None:
            return False  # it is there, but refers to something else or is not ours
        try:
            await self._core.client.get(MACHINES, key.name, key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return True


def _sets(obj: Obj) -> Iterable[Hashable]:
    namespace = namespace_of(obj)
    return [Key(namespace, ref.get("name") or "") for ref in owner_references_of(obj) if owner_is(ref, "MachineSet")]


def _intent(obj: Obj) -> Obj:
    """A clone as it is applied: without the fields that only a server may write."""
    kept = {field: value for field, value in obj["metadata"].items() if field in _APPLIED_METADATA and value}
    made: Obj = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept}
    if "spec" in obj:
        made["spec"] = obj["spec"]
    return made


# --- managed fields -------------------------------------------------------------------------------------------------------
#
# Ownership of the fields of the clones that a set makes.
#
# A clone is created by one apply, of the manager :data:`MANAGER`. Its labels and annotations follow the set later, so they are
# handed to a manager of their own, :data:`METADATA_MANAGER`: entries that the set drops are then removed from the clone, while
# the rest of it stays. These functions compute the changes of `metadata.managedFields` for that, as JSON patches that are
# bound to the entries they were computed from and not to a revision; so another client's write in between is no conflict.

MANAGER, METADATA_MANAGER = "capi-machineset", "capi-machineset-metadata"
_HANDED = ("f:labels", "f:annotations")


def transfer_of_metadata(obj: Obj, labels: Iterable[str], annotations: Iterable[str], now: float) -> Operations:
    """Move the set's labels and annotations from MANAGER to METADATA_MANAGER; no operations when it is done."""
    found = _giving_up(obj)
    if not found or _position(obj, METADATA_MANAGER) is not None:
        return found
    owned = {"f:labels": _members(labels), "f:annotations": _members(annotations)}
    entry = {
        "manager": METADATA_MANAGER,
        "operation": "Apply",
        "apiVersion": obj["apiVersion"],
        "time": rfc3339(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {field: members for field, members in owned.items() if members}},
    }
    return [*found, {"op": "add", "path": f"{ENTRIES}/-", "value": entry}]


def released_leftovers(obj: Obj, manager: str) -> Operations:
    """Operations after an apply of `manager`, for managers that can't give up the same fields by themselves."""
    if manager == METADATA_MANAGER and (found := _giving_up(obj)):
        return found
    return without_leftovers(obj)


def _giving_up(obj: Obj) -> Operations:
    position = _position(obj, MANAGER)
    if position is None:
        return []
    owned = entries_of(obj)[position].get("fieldsV1", {}).get("f:metadata") or {}
    kept = {field: members for field, members in owned.items() if field not in _HANDED}
    if len(kept) == len(owned):
        return []
    path = f"{ENTRIES}/{position}/fieldsV1/f:metadata"
    change = {"op": "replace", "path": path, "value": kept} if kept else {"op": "remove", "path": path}
    return [is_entry(position, MANAGER), change]


def _position(obj: Obj, manager: str) -> int | None:
    for position, entry in enumerate(entries_of(obj)):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return position
    return None


def _members(names: Iterable[str]) -> Obj:
    return {f"f:{name}": {} for name in names}


# --- templates ------------------------------------------------------------------------------------------------------------
#
# A set's templates are owned by its cluster, so that they are moved and deleted with it.


class Templates:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def own_infrastructure(self, scope: MachineSetScope) -> None:
        scope.infrastructure_missing = await self._is_missing(scope, scope.infrastructure)
        self._must_be_there(scope, scope.infrastructure, scope.infrastructure_missing)

    async def own_bootstrap(self, scope: MachineSetScope) -> None:
        if scope.bootstrap is None:
            return
        scope.bootstrap_missing = await self._is_missing(scope, scope.bootstrap)
        self._must_be_there(scope, scope.bootstrap, scope.bootstrap_missing)

    async def _is_missing(self, scope: MachineSetScope, ref: Obj) -> bool:
        """True if a template does not exist; one that does gets its owner."""
        if not is_template(ref.get("kind") or ""):
            return False
        try:
            found = await self._core.externals.get(ref, scope.namespace)
        except NoContract as error:
            raise Stuck(_waits(scope, ref, str(error))) from None
        if found is None:
            return True
        if scope.cluster is None:
            return False
        wanted = reference(scope.cluster)
        if any(_same(owner, wanted) for owner in owner_references_of(found.obj)):
            return False
        patch = {"metadata": {"ownerReferences": owner_references_of(with_owner(found.obj, wanted))}}
        written = await self._core.client.patch(found.resource, name_of(found.obj), patch, namespace_of(found.obj))
        self._core.wrote(NAME, scope.key, found.informer, written)
        return False

    def _must_be_there(self, scope: MachineSetScope, ref: Obj, missing: bool) -> None:
        """Raises Stuck; but neither a set in deletion nor one of an old revision makes machines any more."""
        if not missing or scope.deleting:
            return
        if scope.deployment is None or is_current(scope.machine_set, scope.deployment):
            raise Stuck(_waits(scope, ref, not_there(ref, scope.namespace)))


def _same(owner: Obj, wanted: Obj) -> bool:
    return not owner.get("controller") and all(owner.get(field) == wanted[field] for field in wanted)


def _waits(scope: MachineSetScope, ref: Obj, why: str) -> Wait:
    on = Ref(ref.get("apiGroup") or "", ref.get("kind") or "", *Key(scope.namespace, ref.get("name") or ""))
    return Wait(Code.REFERENCE, scope.ref(), Actor.USER, on, why)
