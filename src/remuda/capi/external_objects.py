"""Objects of providers, read from caches that are started at the first reference to their kind.

Each kind is watched once, for all callers. A controller registers once, with :meth:`Externals.followed_by`, and is then woken
when an object that its objects refer to appears, changes or goes, or when its kind becomes known at all. An index of
references finds the objects to wake, so it works before any owner reference is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from remuda.kube.clock import deadline
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, Key, labels_of, namespace_of
from remuda.runtime import Informer, Manager, Retry, Watch
from remuda.runtime.controller import Mapping, Predicate

from .contracts import CRDS, ContractKind, Contracts, group_kind

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
    to: Mapping
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
        self._manager.follow(controller, Watch(CRDS, of_kind, _contract_changed), self.contracts.crds)

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


def _contract_changed(new: Obj | None, old: Obj | None) -> bool:
    return new is None or old is None or labels_of(new) != labels_of(old) or new.get("spec") != old.get("spec")
