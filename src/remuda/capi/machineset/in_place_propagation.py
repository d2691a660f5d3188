"""Propagation of labels, annotations and the like from a set's template to its existing machines and their clones.

Everything goes by server-side apply: entries removed from the template are removed, entries that others added stay. A machine
that has not changed since the last look, under a set that has not, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.client.interface import JSON_PATCH
from remuda.client.server_side_apply import Applier
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer

from ..contracts import NoContract
from ..controller_context import Core
from ..phases import Stuck
from ..well_known import DEPLOYMENT_NAME
from .clones import MANAGER, METADATA_MANAGER, Clone, released_leftovers
from .desired_machines import teardown_patch, updated_machine, updated_metadata
from .scope import NAME, MachineSetScope, for_each

Obj = dict[str, Any]


class _Seen(NamedTuple):
    """A machine with its clones, as they were when all were up to date."""

    machine_set: tuple[str, int, str]
    revisions: tuple[str, ...]
    clones: tuple[str, ...]  # their uids


class Propagation:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._machines = Applier(core.client, MANAGER)
        self._metadata = Applier(core.client, METADATA_MANAGER)
        self._seen: dict[str, _Seen] = {}
        core.machines.on_change(self._forget)

    async def run(self, scope: MachineSetScope) -> None:
        """Update every machine of the set to its template. Raises Stuck when a clone is missing."""
        waits: list[Wait] = []

        async def bring(machine: Obj) -> None:
            if is_being_deleted(machine):
                await self._tear_down(scope, machine)
            elif (wait := await self._propagate_to(scope, machine)) is not None:
                waits.append(wait)

        errors = await for_each(scope.listed, bring)
        if errors:
            raise errors[0]
        if waits:
            raise Stuck(waits[0])

    def made(self, scope: MachineSetScope, machine: Obj, clones: Iterable[Clone]) -> None:
        """A machine was just made from the current template."""
        found = tuple(clones)
        self._machines.remember(updated_machine(scope.machine_set, machine))
        for clone in found:
            self._metadata.remember(updated_metadata(scope.machine_set, clone.obj))
        self._remember(scope, machine, [clone.obj for clone in found])

    async def _tear_down(self, scope: MachineSetScope, machine: Obj) -> None:
        changes = teardown_patch(scope.machine_set, machine)
        if not changes:
            return
        try:
            found = await self._core.client.patch(MACHINES, name_of(machine), changes, namespace_of(machine))
        except ApiError as error:
            if not error.is_not_found:
                raise
            scope.lost(machine)
            return
        self._core.wrote(NAME, scope.key, self._core.machines, found)
        scope.saw(found)

    async def _propagate_to(self, scope: MachineSetScope, machine: Obj) -> Wait | None:
        clones: list[tuple[Obj, Informer]] = []
        missing: Wait | None = None
        for ref in (dig(machine, "spec", "infrastructureRef"), dig(machine, "spec", "bootstrap", "configRef")):
            if not ref:
                continue
            found = await self._find(ref, scope.namespace)
            if found is None:
                missing = missing or _missing(scope, ref)
            else:
                clones.append(found)
        objs = [obj for obj, _ in clones]
        if missing is None and self._seen.get(uid_of(machine)) == _seen(scope, machine, objs):
            return None
        machine = await self._apply(scope, self._machines, MACHINES, self._core.machines, machine)
        scope.saw(machine)
        after = [await self._apply(scope, self._metadata, informer.resource, informer, obj) for obj, informer in clones]
        if missing is None:
            self._remember(scope, machine, after)
        return missing

    async def _find(self, ref: Obj, namespace: str) -> tuple[Obj, Informer] | None:
        try:
            informer, _ = await self._core.externals.of(ref.get("apiGroup") or "", ref.get("kind") or "")
        except NoContract:
            return None
        found = informer.get(namespace, ref.get("name") or "")
        return None if found is None else (found, informer)

    async def _apply(
        self, scope: MachineSetScope, applier: Applier, resource: GroupVersionResource, informer: Informer, obj: Obj
    ) -> Obj:
        of_machine = applier is self._machines
        if is_being_deleted(obj):
            return obj
        wanted = updated_machine(scope.machine_set, obj) if of_machine else updated_metadata(scope.machine_set, obj)
        found = await applier.apply(resource, wanted, obj)
        if found is None:
            return obj
        if operations := released_leftovers(found, MANAGER if of_machine else METADATA_MANAGER):
            found = await self._core.client.patch(
                resource, name_of(found), operations, namespace_of(found), patch_type=JSON_PATCH
            )
        self._core.wrote(NAME, scope.key, informer, found)
        return found

    def _remember(self, scope: MachineSetScope, machine: Obj, clones: Iterable[Obj]) -> None:
        self._seen[uid_of(machine)] = _seen(scope, machine, clones)

    def _forget(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None or old is None:
            return
        seen = self._seen.pop(uid_of(old), None)
        self._machines.forget(uid_of(old))
        for uid in seen.clones if seen is not None else ():
            self._metadata.forget(uid)


def _seen(scope: MachineSetScope, machine: Obj, clones: Iterable[Obj]) -> _Seen:
    found = tuple(clones)
    machine_set = scope.machine_set
    token = (
        uid_of(machine_set),
        int(metadata(machine_set).get("generation") or 0),
        labels_of(machine_set).get(DEPLOYMENT_NAME, ""),
    )
    return _Seen(token, tuple(resource_version_of(obj) for obj in (machine, *found)), tuple(uid_of(obj) for obj in found))


def _missing(scope: MachineSetScope, ref: Obj) -> Wait:
    on = Ref(ref.get("apiGroup") or "", ref.get("kind") or "", scope.namespace, ref.get("name") or "")
    evidence = f"failed to get {on.kind} {Key(on.namespace, on.name)}: it does not exist"
    return Wait(Code.REFERENCE, scope.ref(), Actor.USER, on, evidence)
