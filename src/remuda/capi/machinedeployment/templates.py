"""The templates that a MachineDeployment refers to: whether they are there, and that they belong to the cluster."""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, namespace_of, owner_references_of, resource_version_of
from remuda.kube.owners import reference, with_owner
from remuda.kube.waits import Actor, Code, Ref
from remuda.runtime import Retry, logger

from ..contracts import NoContract
from ..controller_context import Core
from ..external_objects import External
from ..phases import Stuck
from .scope import NAME, Scope

Obj = dict[str, Any]

log = logger(__name__)

_TRIES = 4


def template_references(deployment: Obj) -> list[Obj]:
    """Those that name a template; other kinds are not ours to look after."""
    spec = dig(deployment, "spec", "template", "spec") or {}
    found = (dig(spec, "infrastructureRef"), dig(spec, "bootstrap", "configRef"))
    return [ref for ref in found if isinstance(ref, dict) and str(ref.get("kind") or "").endswith("Template")]


async def own_templates(core: Core, scope: Scope) -> None:
    """Note which are missing. Raises Stuck when a kind is not known."""
    spec = dig(scope.deployment, "spec", "template", "spec") or {}
    for ref in template_references(scope.deployment):
        missing = not await _own(core, scope, ref)
        if ref is spec.get("infrastructureRef"):
            scope.infrastructure_missing = missing
        else:
            scope.bootstrap_missing = missing


async def _own(core: Core, scope: Scope, ref: Obj) -> bool:
    namespace = namespace_of(scope.deployment)
    try:
        found = await core.externals.get(ref, namespace)
    except NoContract as error:
        log.warning("failed to get object from ref: %s", error)
        on = Ref(error.group, error.kind, namespace, ref.get("name") or "")
        raise Stuck(scope.waits_for(Code.REFERENCE, Actor.USER, str(error), on)) from None
    return found is not None and await _owned(core, scope, found)


async def _owned(core: Core, scope: Scope, found: External) -> bool:
    """Whether it is there; then it belongs to the cluster. MachineSets see to the same, so somebody may be faster."""
    obj, owner = found.obj, reference(scope.cluster or {})
    key = Key.of(obj)
    for _ in range(_TRIES):
        wanted = with_owner(obj, owner)
        if wanted is obj:
            return True
        # A list is written whole: only on top of what was seen.
        meta = {"ownerReferences": owner_references_of(wanted), "resourceVersion": resource_version_of(obj)}
        try:
            written = await core.client.patch(found.resource, key.name, {"metadata": meta}, key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return False
            if not error.is_conflict:
                raise
            obj = await core.client.get(found.resource, key.name, key.namespace)
            continue
        core.wrote(NAME, scope.key, found.informer, written)
        return True
    raise Retry(f"{found.kind.kind} {key} keeps changing")
