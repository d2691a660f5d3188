"""Deletion of a Machine's provider objects; they count as gone only when the API has confirmed it.

A Machine whose finalizer is removed while its InfraMachine still exists leaves a machine behind that costs money. So an object
missing in the cache is requested once more, and :mod:`.deletion` waits until it is really gone. But a deleted CRD leaves no
objects, so there is nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import ApiError
from remuda.kube.objects import is_being_deleted, name_of, namespace_of, uid_of
from remuda.kube.owners import controller_of, reference, same_owner
from remuda.runtime import Retry

from ..contracts import CRDS, NoContract, group_kind
from ..controller_context import Core
from ..external_objects import External
from .eviction import read_all
from .scope import CONTROLLER, Scope

Obj = dict[str, Any]


async def deleted(core: Core, scope: Scope, ref: Obj, found: External | None, missing: bool) -> bool:
    """Delete a provider's object; true if it is gone. `missing` as in :class:`Scope`. Raises ApiError."""
    if found is None:
        return await is_gone(core, scope, ref, missing)
    return not is_being_deleted(found.obj) and await _delete(core, scope, found)


async def _delete(core: Core, scope: Scope, found: External) -> bool:
    obj = found.obj
    try:
        answer = await core.client.delete(found.resource, name_of(obj), namespace_of(obj), uid=uid_of(obj))
    except ApiError as error:
        if error.is_not_found:
            return True
        raise
    core.deleted(CONTROLLER, scope.key, found.informer, obj)
    # An object without finalizers is gone with the response, which is then no longer the object.
    return answer.get("kind") == "Status"


async def is_gone(core: Core, scope: Scope, ref: Obj, missing: bool) -> bool:
    """True if there is nothing (any more) that this Machine would have to delete. Raises ApiError, Retry."""
    try:
        informer, kind = await core.externals.of(ref.get("apiGroup") or "", ref.get("kind") or "")
    except NoContract:
        return await kind_is_gone(core, ref)
    name, namespace = ref.get("name") or "", namespace_of(scope.machine)
    if not missing:
        return _is_of_another(informer.get(namespace, name), scope.machine)
    try:
        await core.client.get(kind.resource, name, namespace)
    except ApiError as error:
        if error.is_not_found:
            return True
        raise
    # An object that the cache does not have yet would be left behind.
    raise Retry(f"{kind.kind} {name} is there, but not in the cache yet")


def _is_of_another(found: Obj | None, machine: Obj) -> bool:
    """An object that another controller owns is not this Machine's to delete."""
    owner = None if found is None else controller_of(found)
    return owner is not None and not same_owner(owner, reference(machine))


async def kind_is_gone(core: Core, ref: Obj) -> bool:
    """True if no CRD defines the kind. A CRD goes after its objects, so they are gone, too."""
    wanted = (ref.get("apiGroup") or "", ref.get("kind") or "")
    if any(group_kind(crd) == wanted for crd in core.contracts.crds.objects()):
        return False
    return not any(group_kind(crd) == wanted for crd in await read_all(core.client, CRDS))
