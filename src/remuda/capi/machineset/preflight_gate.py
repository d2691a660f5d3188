"""The preflight checks of one set: reads the control plane and the bootstrap template, and asks :mod:`.preflight`.

A set that may not make machines is looked at again when its control plane's versions change: the gate follows the kinds of
control planes that it meets.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from remuda.kube.errors import go_quote
from remuda.kube.objects import GroupVersionKind, Key, dig, namespace_of
from remuda.kube.waits import Actor, Code, Wait
from remuda.runtime import Informer, Result, Watch

from .. import contract_fields
from ..contracts import NoContract
from ..controller_context import BY_CLUSTER, Core
from ..phases import Stuck
from ..template_cloning import not_there
from ..well_known import SKIP_PREFLIGHT_CHECKS
from . import preflight
from .scope import NAME, Scope

Obj = dict[str, Any]

_BY_CONTROL_PLANE = "control plane"


RECHECK_SECONDS = 15.0


class Verdict(NamedTuple):
    """No messages: go. `broken` when it could not even be checked."""

    messages: tuple[str, ...] = ()
    broken: bool = False

    @property
    def joined(self) -> str:
        return "; ".join(self.messages)

    def holds_up(self, scope: Scope) -> Result:
        """What a phase gives back that may not go on. Raises Stuck when it could not be checked."""
        wait = Wait(Code.PREFLIGHT, scope.ref(), Actor.OTHER_CONTROLLER, evidence=self.joined)
        if self.broken:
            raise Stuck(wait)
        return Result(after=RECHECK_SECONDS, waits=(wait,))


class Gate:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._followed: set[Informer] = set()
        core.clusters.add_index(_BY_CONTROL_PLANE, _control_planes)

    async def verdict(self, scope: Scope, action: str) -> Verdict:
        """Whether `action` (as messages name it) may go on."""
        left_out = preflight.skipped(scope.machine_set, None)
        if not left_out and (ref := scope.bootstrap):
            found, why = await self._read(ref, scope.namespace)
            if found is None:
                return Verdict((f"failed to read {SKIP_PREFLIGHT_CHECKS} annotation: {why}",), True)
            left_out = preflight.skipped(scope.machine_set, found)
        checks = self._core.options.preflight_checks
        control_plane_ref = dig(scope.cluster, "spec", "controlPlaneRef")
        if not checks or preflight.ALL in left_out or not control_plane_ref:
            return Verdict()
        doing = f"failed to perform {go_quote(action)}: failed to perform preflight checks"
        control_plane, why = await self._read(control_plane_ref, scope.namespace, follow=True)
        if control_plane is None:
            name = Key(scope.namespace, control_plane_ref.get("name") or "")
            return Verdict((f"{doing}: failed to get ControlPlane {name}: {why}",), True)
        try:
            return Verdict(tuple(preflight.problems(scope.machine_set, control_plane, checks, left_out)))
        except preflight.Unreadable as error:
            return Verdict((f"{doing}: {error}",), True)

    async def _read(self, ref: Obj, namespace: str, follow: bool = False) -> tuple[Obj | None, str]:
        """What a reference names, or why it can't be had."""
        try:
            informer, _ = await self._core.externals.of(ref.get("apiGroup") or "", ref.get("kind") or "")
        except NoContract as error:
            return None, str(error)
        if follow:
            self._follow(informer)
        found = informer.get(namespace, ref.get("name") or "")
        return (None, not_there(ref, namespace)) if found is None else (found, "")

    def _follow(self, informer: Informer) -> None:
        if informer in self._followed:
            return
        self._followed.add(informer)
        self._core.manager.follow(NAME, Watch(informer.resource, self._sets, _versions_changed), informer)

    def _sets(self, control_plane: Obj) -> Iterable[Key]:
        kind = GroupVersionKind.of(control_plane)
        for cluster in self._core.clusters.indexed(_BY_CONTROL_PLANE, (kind.group, kind.kind, Key.of(control_plane))):
            for machine_set in self._core.machine_sets.indexed(BY_CLUSTER, Key.of(cluster)):
                yield Key.of(machine_set)


def _control_planes(cluster: Obj) -> Iterable[Hashable]:
    ref = dig(cluster, "spec", "controlPlaneRef")
    if not ref:
        return ()
    return ((ref.get("apiGroup"), ref.get("kind"), Key(namespace_of(cluster), ref.get("name") or "")),)


def _versions_changed(new: Obj | None, old: Obj | None) -> bool:
    if new is None or old is None:
        return True
    return (contract_fields.spec_version(new), contract_fields.status_versions(new)) != (
        contract_fields.spec_version(old),
        contract_fields.status_versions(old),
    )
