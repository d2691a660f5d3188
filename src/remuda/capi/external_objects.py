"""Objects of providers: read from caches that are started at the first reference to their kind, and cloned from templates.

Each kind is watched once, for all callers. A controller registers once, with :meth:`Externals.followed_by`, and is then woken
when an object that its objects refer to appears, changes or goes, or when its kind becomes known at all. An index of
references finds the objects to wake, so it works before any owner reference is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import deadline
from remuda.kube.errors import go_quote
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionKind,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    labels_of,
    name_of,
    namespace_of,
)
from remuda.runtime import Informer, Manager, Retry, Watch, changed
from remuda.runtime.controller import Mapping as KeyMapping
from remuda.runtime.controller import Predicate

from .contracts import ContractKind, Contracts, group_kind
from .well_known import CLONED_FROM_GROUP_KIND, CLONED_FROM_NAME, CLUSTER_NAME

Obj = dict[str, Any]
# An object's references: {apiGroup, kind, name} each, in the object's own namespace.
References = Callable[[Obj], Iterable[Obj]]

_SYNC_SECONDS = 10.0
_BY_REFERENCE, _BY_KIND = "references", "kinds referred to"


class External(NamedTuple):
    """An object of a provider, and how to read and write it."""

    obj: Obj
    kind: ContractKind
    informer: Informer

    @property
    def resource(self) -> GroupVersionResource:
        return self.kind.resource

    @property
    def contract(self) -> str:
        return self.kind.contract


class _Follower(NamedTuple):
    controller: str
    to: KeyMapping
    when: Predicate | None


class Externals:
    def __init__(self, manager: Manager, contracts: Contracts, namespace: str = "") -> None:
        """`namespace`: the only one to watch; "" for all."""
        self._manager = manager
        self._namespace = namespace
        self.contracts = contracts
        self._followers: list[_Follower] = []
        self._started: dict[GroupVersionResource, Informer] = {}

    def followed_by(self, controller: str, informer: Informer, references: References, when: Predicate | None = None) -> None:
        """Wake `controller` for the objects that `references` names; its own objects are in `informer`."""
        informer.add_index(_BY_REFERENCE, lambda obj: [_identity(ref, namespace_of(obj)) for ref in references(obj)])
        informer.add_index(_BY_KIND, lambda obj: {(ref.get("apiGroup"), ref.get("kind")) for ref in references(obj)})

        def referring(obj: Obj) -> Iterable[Key]:
            gvk, key = GroupVersionKind.of(obj), Key.of(obj)
            found = informer.indexed(_BY_REFERENCE, (gvk.group, gvk.kind, key.namespace, key.name))
            return [Key.of(each) for each in found]

        def of_kind(crd: Obj) -> Iterable[Key]:
            return [Key.of(each) for each in informer.indexed(_BY_KIND, group_kind(crd))]

        follower = _Follower(controller, referring, when)
        self._followers.append(follower)
        for started in self._started.values():
            self._follow(follower, started)
        self._manager.follow(controller, Watch(CRDS, of_kind, changed(labels_of, "spec")), self.contracts.crds)

    async def get(self, ref: Obj, namespace: str) -> External | None:
        """The object that a reference names; None when it doesn't exist. Raises NoContract when its kind isn't known."""
        informer, kind = await self.of(ref.get("apiGroup") or "", ref.get("kind") or "")
        obj = informer.get(namespace, ref.get("name") or "")
        return None if obj is None else External(obj, kind, informer)

    async def of(self, group: str, kind: str) -> tuple[Informer, ContractKind]:
        """The cache of a provider's kind, filled. Raises NoContract."""
        found = self.contracts.find(group, kind)
        return await self._filled(found.resource, kind), found

    async def versioned(self, api_version: str, kind: str) -> Informer:
        """The cache of a kind, for a reference that names its version itself, under any contract. Raises NoContract."""
        return await self._filled(self.contracts.versioned(api_version, kind), kind)

    async def _filled(self, resource: GroupVersionResource, kind: str) -> Informer:
        informer = self._started.get(resource)
        if informer is None:
            informer = self._started[resource] = self._manager.informers.of(resource, self._namespace)
            for follower in self._followers:
                self._follow(follower, informer)
        if not informer.synced.is_set():
            try:
                async with deadline(self._manager.clock, _SYNC_SECONDS):
                    await informer.synced.wait()
            except TimeoutError:
                raise Retry(f"{kind}.{resource.group} can't be read yet") from None
        return informer

    def _follow(self, follower: _Follower, informer: Informer) -> None:
        watch = Watch(informer.resource, follower.to)
        if follower.when is not None:
            watch = Watch(informer.resource, follower.to, follower.when)
        self._manager.follow(follower.controller, watch, informer)


def _identity(ref: Obj, namespace: str) -> tuple[str, str, str, str]:
    return ref.get("apiGroup") or "", ref.get("kind") or "", namespace, ref.get("name") or ""


# --- clones of templates --------------------------------------------------------------------------------------------------
#
# Objects made from a provider's templates: what `spec.template` holds, under a name of our own.
#
# A clone of a `FooTemplate` is a `Foo` of the template's own version. Two annotations name its origin; everything
# else of the template's `spec.template` is carried over as it is. The caller writes the clone.

_SUFFIX = "Template"
# Metadata of a template that must not be carried over.
_NOT_CLONED = frozenset(["resourceVersion", "finalizers", "uid", "selfLink", "name", "namespace", "annotations", "labels"])


def is_template(kind: str) -> bool:
    return kind.endswith(_SUFFIX)


def cloned_kind(kind: str) -> str:
    """The kind of the objects that are made from a template of this kind."""
    return kind.removesuffix(_SUFFIX)


def clone(
    template: Obj,
    *,
    name: str,
    namespace: str,
    cluster: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Obj | None = None,
) -> Obj:
    """A new object from `template`; `labels` and `annotations` win over the template's own."""
    found = dig(template, "spec", "template")
    made: Obj = dict(found) if isinstance(found, dict) else {}
    kind = GroupVersionKind.of(template)
    origin = {CLONED_FROM_NAME: name_of(template), CLONED_FROM_GROUP_KIND: f"{kind.kind}.{kind.group}".rstrip(".")}
    own = made.get("metadata")
    meta = {key: value for key, value in own.items() if key not in _NOT_CLONED} if isinstance(own, dict) else {}
    meta["name"], meta["namespace"] = name, namespace
    meta["annotations"] = {**_words(annotations_of(made)), **(annotations or {}), **origin}
    meta["labels"] = {**_words(labels_of(made)), **(labels or {}), CLUSTER_NAME: cluster}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    made["metadata"] = meta
    made["apiVersion"] = made.get("apiVersion") or template.get("apiVersion")
    made["kind"] = made.get("kind") or cloned_kind(kind.kind)
    return made


def _words(found: Any) -> dict[str, str]:
    """Labels or annotations of a template, which no schema may have checked."""
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def reference_to(obj: Obj) -> Obj:
    """A reference to a provider's object, in the form that core objects use."""
    return {
        "apiGroup": GroupVersion.parse(obj.get("apiVersion") or "").group,
        "kind": obj.get("kind") or "",
        "name": name_of(obj),
    }


def not_there(ref: Obj, namespace: str) -> str:
    """The conditions' message that a referenced object does not exist."""
    group, kind, name = (ref.get(field) or "" for field in ("apiGroup", "kind", "name"))
    return f"failed to retrieve {kind} {Key(namespace, name)}: {kind}.{group} {go_quote(name)} not found"
