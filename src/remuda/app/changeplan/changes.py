"""The change that is planned: objects to apply, merge patches, deletions; and how each is written."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi.change_budget import CHANGE_BUDGET, CLUSTER_CHANGE_BUDGET
from remuda.client.interface import Client
from remuda.kube.objects import GroupVersionResource, Key, namespace_of, with_metadata
from remuda.provisioning.well_known import POOL_CHANGE_BUDGETS

Obj = dict[str, Any]

# As `kubectl apply --server-side --force-conflicts` names itself.
MANAGER = "kubectl"
_BUDGETS = frozenset({CHANGE_BUDGET, CLUSTER_CHANGE_BUDGET, POOL_CHANGE_BUDGETS})


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    resource: GroupVersionResource
    object: Obj

    @property
    def key(self) -> Key:
        return Key.of(self.object)


class Patch(msgspec.Struct, frozen=True, tag="patch"):
    """A merge patch of an existing object."""

    resource: GroupVersionResource
    namespace: str
    name: str
    patch: Obj

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    resource: GroupVersionResource
    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


Change = Apply | Patch | Delete

# Written by the server itself: no part of what a user wants.
_SERVERS_OWN = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


def applied(obj: Obj, resource: GroupVersionResource, namespace: str) -> Apply:
    """The change that applies a manifest; in `namespace` if it names none ("" for kinds without namespaces)."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS_OWN}
    if namespace:
        metadata["namespace"] = namespace_of(obj) or namespace
    return Apply(resource, {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata})


def without_budgets(change: Change) -> Change:
    """The same change, but for change budgets that it writes."""
    match change:
        case Apply(resource, obj):
            return Apply(resource, unbound(obj))
        case Patch(resource, namespace, name, patch):
            return Patch(resource, namespace, name, unbound(patch))
        case Delete():
            return change


def unbound(value: Any) -> Any:
    """The same JSON without any change budget, wherever an object has one."""
    if isinstance(value, dict):
        return {name: unbound(each) for name, each in value.items() if name not in _BUDGETS}
    return [unbound(each) for each in value] if isinstance(value, list) else value


async def write(client: Client, change: Change, revision: str = "") -> None:
    """Make the change; with a `revision` only if the object still has that one. Raises ApiError."""
    bound = {"resourceVersion": revision} if revision else {}
    match change:
        case Apply(resource, obj):
            await client.apply(resource, with_metadata(obj, **bound), field_manager=MANAGER, force=True)
        case Patch(resource, namespace, name, patch):
            body = with_metadata(patch, **bound) if bound else patch
            await client.patch(resource, name, body, namespace, field_manager=MANAGER)
        case Delete(resource, namespace, name):
            await client.delete(resource, name, namespace, resource_version=revision)
