"""Shared work of pods' owners: find their pods, adopt matching orphans, release pods that don't match, create and delete.

An owner acts only on a cache that has seen its earlier writes (:mod:`remuda.runtime.workers`), so it makes nothing twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from remuda.kube.owners import controller_of, reference
from remuda.kube.selectors import LabelSelector, SelectorError, from_structure
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Informer, Manager, Recorder, Result, Watch
from remuda.runtime.controller import Mapping as ToKeys
from remuda.runtime.controller import owner as owner_of

from .pods import MANAGER, available_in, is_active

Obj = dict[str, Any]

_BY_CONTROLLER: Final = "controller"
_ORPHANS: Final = "orphans"
_BY_NAMESPACE: Final = "namespace"
# The limit at a time; the rest follows when these are seen.
BURST: Final = 500
_MANY: Final = 100


def _controller(obj: Obj) -> tuple[str, ...]:
    found = controller_of(obj)
    return (str(found.get("uid")),) if found is not None else ()


def _orphan(obj: Obj) -> tuple[str, ...]:
    return (namespace_of(obj),) if controller_of(obj) is None else ()


def selector_of(owner: Obj) -> LabelSelector:
    """The selector of an owner; one that matches nothing when it is invalid."""
    try:
        return from_structure((owner.get("spec") or {}).get("selector"))
    except SelectorError:
        return from_structure(None)


def would_adopt(owners: Informer) -> ToKeys:
    """Maps an object without a controller to the owners whose selector it matches."""
    owners.add_index(_BY_NAMESPACE, lambda obj: (namespace_of(obj),))

    def keys(obj: Obj) -> Iterable[Key]:
        if controller_of(obj) is not None:
            return ()
        here = owners.indexed(_BY_NAMESPACE, namespace_of(obj))
        return [Key.of(each) for each in here if selector_of(each).matches(labels_of(obj))]

    return keys


class Dependents:
    """Objects of one resource, as their owners see them. `name` is the controller's."""

    def __init__(self, manager: Manager, name: str, resource: GroupVersionResource) -> None:
        self.informer = manager.informers.of(resource)
        self.informer.add_index(_BY_CONTROLLER, _controller)
        self.informer.add_index(_ORPHANS, _orphan)
        self._client = manager.client
        self._freshness = manager.freshness
        self._recorder: Recorder = manager.recorder(name)
        self._name = name
        self._resource = resource

    async def caught_up(self, key: Key) -> None:
        await self._freshness.caught_up((self._name, key))

    def forget(self, key: Key) -> None:
        self._freshness.forget((self._name, key))

    def owned(self, owner: Obj) -> list[Obj]:
        return self.informer.indexed(_BY_CONTROLLER, uid_of(owner))

    async def claimed(self, owner: Obj) -> list[Obj]:
        """The objects that the owner controls and that match its selector; matching orphans are adopted."""
        selector = selector_of(owner)
        found: list[Obj] = []
        for each in self.owned(owner):
            if selector.matches(labels_of(each)):
                found.append(each)
            elif not is_being_deleted(each):
                await self._release(owner, each)
        if is_being_deleted(owner):
            return found
        for each in self.informer.indexed(_ORPHANS, namespace_of(owner)):
            if is_being_deleted(each) or not selector.matches(labels_of(each)):
                continue
            if (adopted := await self._adopt(owner, each)) is not None:
                found.append(adopted)
        return found

    async def _adopt(self, owner: Obj, orphan: Obj) -> Obj | None:
        meta = metadata(orphan)
        references = [*(meta.get("ownerReferences") or ()), reference(owner, controller=True)]
        # With uid and revision: if it has changed meanwhile, another owner may have adopted it.
        patch = {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "ownerReferences": references}}
        return await self._patched(owner, orphan, patch)

    async def _release(self, owner: Obj, dependent: Obj) -> None:
        kept = [each for each in metadata(dependent)["ownerReferences"] if each.get("uid") != uid_of(owner)]
        await self._patched(owner, dependent, {"metadata": {"uid": uid_of(dependent), "ownerReferences": kept}})

    async def _patched(self, owner: Obj, obj: Obj, patch: Obj) -> Obj | None:
        try:
            changed = await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None
        self._freshness.wrote((self._name, Key.of(owner)), self.informer, changed)
        return changed

    async def make(self, owner: Obj, obj: Obj) -> Obj:
        """Creates it, with an event on failure. Raises ApiError."""
        kind = obj["kind"]
        try:
            made = await self._client.create(self._resource, obj, namespace_of(owner), field_manager=MANAGER)
        except ApiError as error:
            if not _namespace_goes(error):
                self._recorder.event(owner, WARNING, "FailedCreate", f"Error creating: {error.message}")
            raise
        self._freshness.wrote((self._name, Key.of(owner)), self.informer, made)
        if kind == "Pod":
            self._recorder.event(owner, NORMAL, "SuccessfulCreate", f"Created pod: {name_of(made)}")
        return made

    async def make_many(self, owner: Obj, objs: list[Obj]) -> None:
        for obj in objs[:BURST]:
            await self.make(owner, obj)

    async def drop(self, owner: Obj, obj: Obj) -> None:
        try:
            await self._client.delete(self._resource, name_of(obj), namespace_of(obj), uid=uid_of(obj), propagation="Background")
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
            return
        self._freshness.deleted((self._name, Key.of(owner)), self.informer, obj)
        if obj.get("kind") == "Pod":
            self._recorder.event(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {name_of(obj)}")

    async def write_status(
        self, resource: GroupVersionResource, informer: Informer, owner: Obj, status: Obj, marks: Mapping[str, str] | None = None
    ) -> Obj:
        """Write the owner's whole status if it differs; the owner's new state. `marks` are annotations to write with it: a
        write with the status makes no new generation."""
        annotations = annotations_of(owner)
        wanted = {**annotations, **(marks or {})}
        if status == (owner.get("status") or {}) and wanted == annotations:
            return owner
        changed = {**(with_metadata(owner, annotations=wanted) if marks else owner), "status": status}
        written = await self._client.update(resource, changed, subresource="status", field_manager=MANAGER)
        self._freshness.wrote((self._name, Key.of(owner)), informer, written)
        return written


class OwningController(ABC):
    """A controller of an object that owns others. Subclasses implement :meth:`sync`, for an object that exists."""

    def __init__(
        self,
        manager: Manager,
        name: str,
        kind: str,
        resource: GroupVersionResource,
        owned: GroupVersionResource,
        *more: Watch,
        concurrency: int = 5,
    ) -> None:
        """`more` are further watches."""
        self.resource = resource
        self.owners = manager.informers.of(resource)
        self.made = Dependents(manager, f"{name}-controller", owned)
        self.clock = manager.clock
        watches = (
            Watch(owned, owner_of(kind, resource.group, controller=True)),
            Watch(owned, would_adopt(self.owners)),
            *more,
        )
        self.controller = Controller(name, resource, watches=watches, concurrency=concurrency)

    async def reconcile(self, key: Key) -> Result:
        await self.made.caught_up(key)
        found = self.owners.get(*key)
        if found is None:
            self.made.forget(key)
            await self.deleted(key)
            return DONE
        try:
            return await self.sync(found)
        except ApiError as error:
            if not _namespace_goes(error):
                raise
            # Nothing more can be made in this namespace; it is deleted with the rest.
            return DONE

    @abstractmethod
    async def sync(self, found: Obj) -> Result:
        """Bring the cluster to the object's spec."""

    async def deleted(self, key: Key) -> None:  # noqa: B027 - most have nothing to do then
        """The object does not exist any more."""

    def waits(self, found: Obj, pods: Iterable[Obj]) -> dict[str, float | None]:
        """Seconds until each active pod is available, by name; None while it is not ready."""
        now, least = self.clock.time(), dig(found, "spec", "minReadySeconds") or 0
        return {name_of(pod): available_in(pod, least, now) for pod in pods if is_active(pod)}

    async def write_outcome(self, found: Obj, status: Obj, waits: Mapping[str, float | None]) -> Result:
        """Write the status; come back when the next pod is available. A look at many pods costs time, so it pauses."""
        await self.made.write_status(self.resource, self.owners, found, status)
        later = [wait for wait in waits.values() if wait]
        rest = min(len(waits) * 0.0005, 0.5) if len(waits) > _MANY else 0.0
        return Result(after=min(later) + 0.001 if later else None, rest=rest)


def _namespace_goes(error: ApiError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
