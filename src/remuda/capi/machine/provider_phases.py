"""The phases for a Machine's references, its BootstrapConfig and its InfraMachine; and the deletion of both.

Each object becomes the Machine's own when first seen, and its values are copied (:mod:`.provider_contract` has the rules).
"""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.builtin_resources import CRDS
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, is_being_deleted, name_of, namespace_of, uid_of
from remuda.kube.owners import AlreadyControlled, controller_of, reference, same_owner
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Result, Retry, logger

from ..contracts import NoContract, group_kind
from ..controller_context import Core
from ..external_objects import External
from ..phases import Stuck
from .eviction import read_all
from .provider_contract import (
    INFRASTRUCTURE_PROVISIONED,
    UnreadableExpiry,
    bootstrapped,
    missing_bootstrap_field,
    missing_infrastructure_field,
    provisioned,
    taken_over,
    with_certificates_expiry,
    with_failures,
    with_infrastructure_lost,
)
from .scope import CONTROLLER, MachineScope

Obj = dict[str, Any]
log = logger(__name__)


def machine_ref(scope: MachineScope) -> Ref:
    return Ref(GROUP, "Machine", *scope.key)


def _ref(scope: MachineScope, ref: Obj) -> Ref:
    return Ref(ref.get("apiGroup") or "", ref.get("kind") or "", namespace_of(scope.machine), ref.get("name") or "")


async def reconcile_bootstrap(core: Core, scope: MachineScope) -> Result | None:
    ref = dig(scope.machine, "spec", "bootstrap", "configRef")
    if not ref:
        return None  # a user made the data secret by hand
    found = await _own(core, scope, ref)
    if found is None:
        scope.bootstrap_missing = True
        return None if scope.deleting else Result(waits=(_missing(scope, ref),))
    scope.bootstrap = found
    scope.machine = bootstrapped(with_failures(scope.machine, found.obj), found, scope.now)
    lacks = "" if is_being_deleted(found.obj) else missing_bootstrap_field(scope.machine, found)
    if lacks == "status.dataSecretName":
        # It reports that it is ready, but names no secret.
        raise Stuck(_lacking(scope, ref, lacks, Code.MALFORMED))
    return Result(waits=(_lacking(scope, ref, lacks),)) if lacks else None


async def reconcile_infrastructure(core: Core, scope: MachineScope) -> Result | None:
    ref = dig(scope.machine, "spec", "infrastructureRef") or {}
    found = await _own(core, scope, ref)
    if found is None:
        scope.infra_missing = True
        if scope.deleting:
            return None
        if dig(scope.machine, *INFRASTRUCTURE_PROVISIONED) is True:
            scope.machine = with_infrastructure_lost(scope.machine, namespace_of(scope.machine))
            raise Stuck(_missing(scope, ref))
        return Result(waits=(_missing(scope, ref),))
    scope.infra = found
    scope.machine = provisioned(with_failures(scope.machine, found.obj), found, scope.now)
    lacks = "" if is_being_deleted(found.obj) else missing_infrastructure_field(scope.machine, found)
    return Result(waits=(_lacking(scope, ref, lacks),)) if lacks else None


async def reconcile_certificates(scope: MachineScope) -> None:
    try:
        scope.machine = with_certificates_expiry(scope.machine, scope.bootstrap.obj if scope.bootstrap is not None else None)
    except UnreadableExpiry as error:
        raise Stuck(Wait(Code.MALFORMED, machine_ref(scope), Actor.PROVIDER, evidence=str(error))) from None


async def _own(core: Core, scope: MachineScope, ref: Obj) -> External | None:
    """The object that a reference names, as the Machine's own; None when it doesn't exist."""
    try:
        found = await core.externals.get(ref, namespace_of(scope.machine))
        if found is None:
            return None
        wanted = taken_over(found.obj, scope.machine, scope.cluster)
    except (NoContract, AlreadyControlled) as error:
        log.warning("%s %s can't be used: %s", ref.get("kind"), ref.get("name"), error)
        wait = Wait(Code.REFERENCE, machine_ref(scope), Actor.PROVIDER, _ref(scope, ref), evidence=str(error))
        raise Stuck(wait) from None
    if wanted is found.obj:
        return found
    patch = create_merge_patch(found.obj, wanted)
    try:
        written = await core.client.patch(found.resource, name_of(wanted), patch, namespace_of(wanted))
    except ApiError as error:
        if error.is_not_found:
            return None
        raise
    core.wrote(CONTROLLER, scope.key, found.informer, written)
    return found._replace(obj=written)


def _missing(scope: MachineScope, ref: Obj) -> Wait:
    return Wait(Code.REFERENCE, machine_ref(scope), Actor.USER, _ref(scope, ref), evidence="it does not exist")


def _lacking(scope: MachineScope, ref: Obj, field: str, code: Code = Code.PROVISIONING) -> Wait:
    return Wait(code, machine_ref(scope), Actor.PROVIDER, _ref(scope, ref), evidence=f"it has no usable {field} yet")


# --- deletion -------------------------------------------------------------------------------------------------------------
#
# Deletion of a Machine's provider objects; they count as gone only when the API has confirmed it.
#
# A Machine whose finalizer is removed while its InfraMachine still exists leaves a machine behind that costs money. So an object
# missing in the cache is requested once more, and :mod:`.deletion` waits until it is really gone. But a deleted CRD leaves no
# objects, so there is nothing to wait for.


async def deleted(core: Core, scope: MachineScope, ref: Obj, found: External | None, missing: bool) -> bool:
    """Delete a provider's object; true if it is gone. `missing` as in :class:`MachineScope`. Raises ApiError."""
    if found is None:
        return await is_gone(core, scope, ref, missing)
    return not is_being_deleted(found.obj) and await _delete(core, scope, found)


async def _delete(core: Core, scope: MachineScope, found: External) -> bool:
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


async def is_gone(core: Core, scope: MachineScope, ref: Obj, missing: bool) -> bool:
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
