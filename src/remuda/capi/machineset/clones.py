"""Infrastructure machines and bootstrap configurations of a set: made from templates, collected when no machine came of it.

A clone is owned by the set until its machine takes it over. So a clone that still is the set's, and that no machine refers to,
is what a reconcile left that was cut off in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.client.field_ownership import Operations
from remuda.client.interface import JSON_PATCH
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
from remuda.kube.owners import reference
from remuda.kube.selectors import LabelSelector
from remuda.runtime import Informer, Retry

from ..contracts import NoContract
from ..controller_context import Core, cluster_name_of, owner_is
from ..template_cloning import clone, cloned_kind, not_there
from .desired_machines import machine_annotations, machine_labels
from .managed_fields import MANAGER, handing_over
from .scope import NAME, Scope

Obj = dict[str, Any]

_BY_SET = "machine set"
_APPLIED_METADATA = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
_TRIES = 3


class NotCloned(Exception):
    """A template could not be cloned; the text is what conditions say. `missing`: somebody must make it, or its kind, first."""

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

    async def make(self, scope: Scope, ref: Obj, name: str, what: str) -> Clone:
        """The clone for the machine `name`; `what` is what messages call it. Raises NotCloned."""
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
            made = await self._hand_over(scope, resource, made)
        except ApiError as error:
            raise NotCloned(f"failed to create {what}: failed to apply {wanted['kind']}: {error.message}") from error
        self._core.wrote(NAME, scope.key, informer, made)
        return Clone(made, resource, informer)

    def _clone(self, scope: Scope, template: Obj, name: str) -> Obj:
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

    async def _hand_over(self, scope: Scope, resource: GroupVersionResource, made: Obj) -> Obj:
        labels, annotations = machine_labels(scope.machine_set), machine_annotations(scope.machine_set)
        for attempt in range(_TRIES):
            operations = handing_over(made, labels, annotations, self._core.now())
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

    async def drop(self, scope: Scope, clone: Clone) -> None:
        """Take back a clone for which there will be no machine. If that fails, it is collected later."""
        try:
            await self._core.client.delete(clone.resource, name_of(clone.obj), scope.namespace, uid=uid_of(clone.obj))
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
        self._core.deleted(NAME, scope.key, clone.informer, clone.obj)

    # --- leftovers ------------------------------------------------------------------------------------------------------

    async def collect_leftovers(self, scope: Scope, selector: LabelSelector) -> None:
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

    async def _collect(self, scope: Scope, leftover: Clone) -> None:
        name = name_of(leftover.obj)
        if await self._has_unseen_machine(Key(scope.namespace, name)):
            # Two caches need not be equally old: the clone's has it already, the machines' doesn't yet.
            raise Retry(f"the machine {name} is not in the cache yet")
        await self.drop(scope, leftover)

    async def _has_unseen_machine(self, key: Key) -> bool:
        """Whether there is a machine of this name that the cache does not have yet."""
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
    """What an apply says of a clone: nothing that only a server may write."""
    kept = {field: value for field, value in obj["metadata"].items() if field in _APPLIED_METADATA and value}
    made: Obj = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept}
    if "spec" in obj:
        made["spec"] = obj["spec"]
    return made
