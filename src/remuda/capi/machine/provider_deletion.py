"""The providers' objects of a Machine that is going: deleted, and known to be gone only when they are.

A Machine whose finalizer is dropped while its InfraMachine lives on leaves a machine behind that somebody pays for. So what a
cache does not have is asked for once more, and :mod:`.deletion` waits until it is gone indeed. But nothing is left of a kind
whose CRD was deleted, and nobody waits for that.
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
    """Ask for the deletion of a provider's object; whether it is gone. `missing` as :class:`Scope` has it. Raises ApiError."""
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
    # What no finalizer holds is gone with the answer, which is then no longer the object.
    return answer.get("kind") == "Status"


async def is_gone(core: Core, scope: Scope, ref: Obj, missing: bool) -> bool:
    """Whether there is nothing (any more) that this Machine would have to delete. Raises ApiError, Retry."""
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
    # What only the cache does not know yet would be left behind.
    raise Retry(f"{kind.kind} {name} is there, but not in the cache yet")


def _is_of_another(found: Obj | None, machine: Obj) -> bool:
    """A Machine that refers to what another controls has nothing to delete there."""
    owner = None if found is None else controller_of(found)
    return owner is not None and not same_owner(owner, reference(machine))


async def kind_is_gone(core: Core, ref: Obj) -> bool:
    """No CRD defines the kind. A CRD goes after its objects, so there is none of those either."""
    wanted = (ref.get("apiGroup") or "", ref.get("kind") or "")
    if any(group_kind(crd) == wanted for crd in core.contracts.crds.objects()):
        return False
    return not any(group_kind(crd) == wanted for crd in await read_all(core.client, CRDS))
