"""A consistent copy of clusters: all objects at one revision, read through any `Client`, page by page.

The copy keeps uids, revisions, owners, status and managed fields; it becomes the state of a server in memory
(:meth:`ClusterCopy.state`). It has the content of Secrets, without which no plan can be rendered: it never leaves the process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.apiserver.cache.entries import encode
from remuda.apiserver.storage import key_layout
from remuda.apiserver.storage.memory import InitialState
from remuda.apiserver.storage.store import KeyValue
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, name_of, namespace_of, resource_version_of

from . import scope
from .changes import Change, unbound
from .scope import Found

Obj = dict[str, Any]

_PAGE = 500
_TRIES = 3


class NothingAffected(Exception):
    """No cluster is affected by a change; the text says so."""


@dataclass(frozen=True)
class ClusterCopy:
    """All that was read. `clusters` are the affected ones."""

    revision: int
    clusters: tuple[Key, ...]
    found: tuple[Found, ...]

    def state(self) -> InitialState:
        """The state with which a server in memory begins."""
        return InitialState([_stored(each) for each in self.found], self.revision)

    def without_budgets(self) -> ClusterCopy:
        """The same clusters, with nothing held by change budgets."""
        return replace(self, found=tuple(each._replace(obj=unbound(each.obj)) for each in self.found))

    def of(self, resource: GroupVersionResource) -> list[Obj]:
        return [each.obj for each in self.found if each.resource.group_resource == resource.group_resource]

    def revision_of(self, change: Change) -> str:
        """The revision of the object that a change is about; "" if it did not exist, or was not copied."""
        kind, key = change.resource.group_resource, change.key
        same = (each.obj for each in self.found if each.resource.group_resource == kind and Key.of(each.obj) == key)
        return next(map(resource_version_of, same), "")


def _stored(found: Found) -> KeyValue:
    group, _, plural = found.resource
    prefix = key_layout.prefix_for(group, plural, builtin=not found.custom)
    namespace, revision = namespace_of(found.obj), int(resource_version_of(found.obj))
    key = f"{prefix}{namespace}/{name_of(found.obj)}" if namespace else prefix + name_of(found.obj)
    return KeyValue(key, encode(found.obj), revision, revision)


async def read(client: Client, changes: Sequence[Change], clusters: Collection[Key] = ()) -> ClusterCopy:
    """Copy the clusters that the changes affect; with `clusters` those. Raises NothingAffected and ApiError."""
    for left in reversed(range(_TRIES)):
        try:
            return await _Reader(client).read(changes, clusters)
        except ApiError as error:
            # The revision was compacted while it was read.
            if error.code != 410 or not left:
                raise
    raise AssertionError("unreachable")


class _Reader:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._revision = ""

    async def read(self, changes: Sequence[Change], chosen: Collection[Key]) -> ClusterCopy:
        definitions = [each for each in await self._list(CRDS) if scope.is_ours(each)]
        known = await self._list(provisioning.CLUSTERS)
        clusters = sorted(chosen) or scope.affected(changes, known, await self._changed(changes))
        present = [each for each in known if Key.of(each) in clusters]
        if not present and not any(change.resource == provisioning.CLUSTERS for change in changes):
            raise NothingAffected("the change affects no cluster that there is")
        namespaces = {each.namespace for each in clusters} | {scope.managed_name(each) for each in present} - {""}
        found = [Found(CRDS, each) for each in definitions]
        wanted = namespaces | set(scope.SHARED_NAMESPACES)
        for resource in scope.GLOBAL:
            listed = await self._list(resource)
            found += [Found(resource, each) for each in listed if resource != NAMESPACES or name_of(each) in wanted]
        there = {name_of(each.obj) for each in found if each.resource == NAMESPACES}
        for resource in scope.NAMESPACED:
            found += await self._in_namespaces(resource, sorted(wanted & there))
        for kind in scope.kinds(definitions):
            if kind.namespaced:
                found += await self._in_namespaces(kind.resource, sorted(wanted & there), custom=True)
            else:
                found += [Found(kind.resource, each, custom=True) for each in await self._list(kind.resource)]
        managed = {scope.managed_name(each) for each in present}
        kept = [each for each in found if scope.is_copied(each) and _is_wanted(each, managed)]
        others = frozenset(map(Key.of, known))
        return ClusterCopy(int(self._revision), tuple(clusters), tuple(scope.without_others(kept, frozenset(clusters), others)))

    async def _changed(self, changes: Sequence[Change]) -> dict[tuple[GroupVersionResource, Key], Obj]:
        found = {}
        for change in changes:
            obj = await find(self._client, change.resource, change.key.name, change.key.namespace)
            if obj is not None:
                found[change.resource, change.key] = obj
        return found

    async def _in_namespaces(
        self, resource: GroupVersionResource, namespaces: Collection[str], *, custom: bool = False
    ) -> list[Found]:
        return [Found(resource, each, custom) for namespace in namespaces for each in await self._list(resource, namespace)]

    async def _list(self, resource: GroupVersionResource, namespace: str = "") -> list[Obj]:
        """All objects at the revision of the first list."""
        items: list[Obj] = []
        options: dict[str, Any] = {"limit": _PAGE}
        if self._revision:
            options |= {"resource_version": self._revision, "resource_version_match": "Exact"}
        while True:
            page = await self._client.list(resource, namespace, **options)
            items += page["items"]
            self._revision = self._revision or str(page["metadata"]["resourceVersion"])
            if not (continued := page["metadata"].get("continue")):
                return items
            options = {"limit": _PAGE, "continue_": continued}


def _is_wanted(found: Found, managed: Collection[str]) -> bool:
    """Of the management Clusters only those of the copied clusters, and the server's own."""
    if found.resource.group_resource != management.CLUSTERS.group_resource:
        return True
    return name_of(found.obj) in managed or name_of(found.obj) == "local"
