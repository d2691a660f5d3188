"""Create and delete calls that tolerate an earlier or concurrent one: by this process before a restart, or by another client."""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of, namespace_of, uid_of

from .interface import Client

Obj = dict[str, Any]


async def make(client: Client, resource: GroupVersionResource, obj: Obj, field_manager: str = "") -> Obj | None:
    """Create it; None when an object of that name exists, with any content."""
    try:
        return await client.create(resource, obj, namespace_of(obj), field_manager=field_manager)
    except ApiError as error:
        if error.is_already_exists:
            return None
        raise


async def find(client: Client, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
    """The object on the server; None when it does not exist, or its kind is unknown."""
    try:
        return await client.get(resource, name, namespace)
    except ApiError as error:
        if error.code == 404:
            return None
        raise


async def discard(client: Client, resource: GroupVersionResource, name: str, namespace: str = "") -> None:
    """Delete the object of this name; it may be gone."""
    try:
        await client.delete(resource, name, namespace)
    except ApiError as error:
        if not error.is_not_found:
            raise


async def remove(client: Client, resource: GroupVersionResource, obj: Obj, propagation: str = "") -> None:
    """Delete this very object, not another of the same name; it may be gone."""
    try:
        await client.delete(resource, name_of(obj), namespace_of(obj), propagation=propagation, uid=uid_of(obj))
    except ApiError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
