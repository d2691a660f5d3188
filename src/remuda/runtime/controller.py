"""A controller: a declaration of what it watches, and a class with `reconcile`.

    class Widgets:
        controller = Controller("widget", WIDGETS, watches=(Watch(PODS, owner("Widget", "example.com")),), concurrency=10)

        async def reconcile(self, key: Key) -> Result: ...

:mod:`.lifecycle` runs them. Mapping functions and predicates are pure: they map an object to the keys it concerns, and
decide whether a change of it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    dig,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.waits import Ref

from .informer import Transform
from .workers import Result

Obj = dict[str, Any]

# The keys of the controller's own objects that an object concerns.
Mapping = Callable[[Obj], Iterable[Key]]
# Decides whether a change matters: (new, old), one of which is None for an object that appeared or went.
Predicate = Callable[[Obj | None, Obj | None], bool]


def itself(obj: Obj) -> Iterable[Key]:
    return (Key.of(obj),)


def owner(kind: str, group: str, *, controller: bool = False) -> Mapping:
    """The owners of this kind (in any version); with `controller` only the one that controls the object."""

    def keys(obj: Obj) -> Iterable[Key]:
        for reference in owner_references_of(obj):
            if reference.get("kind") != kind or GroupVersion.parse(reference.get("apiVersion") or "").group != group:
                continue
            if not controller or reference.get("controller"):
                yield Key(namespace_of(obj), reference.get("name") or "")

    return keys


def label(name: str) -> Mapping:
    """The object in the same namespace that a label names."""

    def keys(obj: Obj) -> Iterable[Key]:
        value = labels_of(obj).get(name)
        return (Key(namespace_of(obj), value),) if value else ()

    return keys


def any_change(new: Obj | None, old: Obj | None) -> bool:
    return True


def created_or_deleted(new: Obj | None, old: Obj | None) -> bool:
    return new is None or old is None


# A part of an object: a path ("spec.paused"), the steps of a path whose keys have dots, or a function that reads it.
Part = str | tuple[str, ...] | Callable[[Obj], Any]


def changed(*parts: Part, names: Container[str] | None = None) -> Predicate:
    """True if the object was created or deleted, or one of these parts differs; with `names`, only for objects of these names."""
    readers = [_reader(part) for part in parts]

    def differs(new: Obj | None, old: Obj | None) -> bool:
        if names is not None and name_of(new or old or {}) not in names:
            return False
        return new is None or old is None or any(read(new) != read(old) for read in readers)

    return differs


def _reader(part: Part) -> Callable[[Obj], Any]:
    if callable(part):
        return part
    steps = tuple(part.split(".")) if isinstance(part, str) else part
    return lambda obj: dig(obj, *steps)


def spec_change(new: Obj | None, old: Obj | None) -> bool:
    """True if it appeared, went, or its spec or its users' metadata changed: not for a status that other writers change."""
    if new is None or old is None:
        return True
    return any(
        metadata(new).get(field) != metadata(old).get(field)
        for field in ("generation", "labels", "annotations", "deletionTimestamp", "finalizers", "ownerReferences")
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch `resource`; a change that `when` accepts queues the keys that `to` returns for the new and the old state."""

    resource: GroupVersionResource
    to: Mapping = itself
    when: Predicate = any_change
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False
    transform: Transform | None = None


def by_namespace(key: Key) -> Hashable:
    return key.namespace


@dataclass(frozen=True, slots=True)
class Controller:
    """The declaration. Times are seconds.

    resync:  every key is reconciled again at this interval, at low priority; 0 never.
    wait:    a key whose result holds waits is reconciled again at this interval.
    lane:    keys of different lanes take turns; usually the cluster that a key belongs to.
    timeout: a reconcile that takes longer is cut and tried again.
    subject: the object of a key, for a controller whose keys don't name objects of `resource`.
    """

    name: str
    resource: GroupVersionResource
    watches: tuple[Watch, ...] = ()
    when: Predicate = any_change
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    transform: Transform | None = None
    concurrency: int = 1
    timeout: float = 60.0
    resync: float = 600.0
    wait: float = 60.0
    backoff: float = 0.005
    backoff_cap: float = 300.0
    lane: Callable[[Key], Hashable] = by_namespace
    subject: Callable[[Key], Ref | None] | None = None

    @property
    def primary(self) -> Watch:
        return Watch(self.resource, itself, self.when, self.namespace, self.labels, self.fields, transform=self.transform)


class Reconciler(Protocol):
    @property
    def controller(self) -> Controller: ...

    async def reconcile(self, key: Key) -> Result | None:
        """Reconcile this object as far as possible now; the result has its waits."""
