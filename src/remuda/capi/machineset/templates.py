"""The templates of a set belong to its cluster, so that they move and go with it."""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import Key, name_of, namespace_of, owner_references_of
from remuda.kube.owners import reference, with_owner
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..contracts import NoContract
from ..controller_context import Core
from ..phases import Stuck
from ..template_cloning import is_template, not_there
from .remediation import is_current
from .scope import NAME, Scope

Obj = dict[str, Any]


class Templates:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def own_infrastructure(self, scope: Scope) -> None:
        scope.infrastructure_missing = await self._is_missing(scope, scope.infrastructure)
        self._must_be_there(scope, scope.infrastructure, scope.infrastructure_missing)

    async def own_bootstrap(self, scope: Scope) -> None:
        if scope.bootstrap is None:
            return
        scope.bootstrap_missing = await self._is_missing(scope, scope.bootstrap)
        self._must_be_there(scope, scope.bootstrap, scope.bootstrap_missing)

    async def _is_missing(self, scope: Scope, ref: Obj) -> bool:
        """Whether a template does not exist; one that does gets its owner."""
        if not is_template(ref.get("kind") or ""):
            return False
        try:
            found = await self._core.externals.get(ref, scope.namespace)
        except NoContract as error:
            raise Stuck(_waits(scope, ref, str(error))) from None
        if found is None:
            return True
        if scope.cluster is None:
            return False
        wanted = reference(scope.cluster)
        if any(_same(owner, wanted) for owner in owner_references_of(found.obj)):
            return False
        patch = {"metadata": {"ownerReferences": owner_references_of(with_owner(found.obj, wanted))}}
        written = await self._core.client.patch(found.resource, name_of(found.obj), patch, namespace_of(found.obj))
        self._core.wrote(NAME, scope.key, found.informer, written)
        return False

    def _must_be_there(self, scope: Scope, ref: Obj, missing: bool) -> None:
        """Raises Stuck; but neither a set that goes nor one of an old revision makes machines any more."""
        if not missing or scope.deleting:
            return
        if scope.deployment is None or is_current(scope.machine_set, scope.deployment):
            raise Stuck(_waits(scope, ref, not_there(ref, scope.namespace)))


def _same(owner: Obj, wanted: Obj) -> bool:
    return not owner.get("controller") and all(owner.get(field) == wanted[field] for field in wanted)


def _waits(scope: Scope, ref: Obj, why: str) -> Wait:
    on = Ref(ref.get("apiGroup") or "", ref.get("kind") or "", *Key(scope.namespace, ref.get("name") or ""))
    return Wait(Code.REFERENCE, scope.ref(), Actor.USER, on, why)
