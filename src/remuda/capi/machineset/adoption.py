"""The machines of a set: those it controls, and those of nobody that its selector finds, which it adopts.

Found through indexes: what the set controls, and what nobody controls in its cluster. A set that is being deleted adopts
nothing: it would only delete what somebody has just let go of.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import Key, dig, labels_of, name_of, namespace_of, owner_references_of, resource_version_of, uid_of
from remuda.kube.owners import controller_of, with_owner
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure
from remuda.runtime import NORMAL, WARNING, Recorder, Retry, logger

from ..controller_context import BY_CLUSTER, BY_CONTROLLER, Core, cluster_key_of
from .desired_machines import owner_reference
from .scope import NAME, Scope

Obj = dict[str, Any]
log = logger(__name__)

_UNCONTROLLED = "controlled by nobody"


def selector_of(machine_set: Obj) -> LabelSelector:
    """Raises SelectorError."""
    return checked_structure(dig(machine_set, "spec", "selector") or {})


class Claiming:
    def __init__(self, core: Core, events: Recorder) -> None:
        self._core = core
        self._events = events
        core.machines.add_index(_UNCONTROLLED, _uncontrolled)

    async def run(self, scope: Scope, selector: LabelSelector) -> None:
        """Fill in the scope's machines."""
        machines = self._core.machines
        claimed = machines.indexed(BY_CONTROLLER, uid_of(scope.machine_set))
        free = [] if scope.deleting else machines.indexed(_UNCONTROLLED, cluster_key_of(scope.machine_set))
        found = [machine for machine in claimed if selector.matches(labels_of(machine))]
        for machine in free:
            if selector.matches(labels_of(machine)) and (adopted := await self._adopt(scope, machine)) is not None:
                found.append(adopted)
        scope.machines = {uid_of(machine): machine for machine in sorted(found, key=Key.of)}

    async def _adopt(self, scope: Scope, machine: Obj) -> Obj | None:
        name = name_of(machine)
        owners = owner_references_of(with_owner(machine, owner_reference(scope.machine_set)))
        # Bound to the revision: of two who adopt at the same time, one must see the other.
        patch = {"metadata": {"ownerReferences": owners, "resourceVersion": resource_version_of(machine)}}
        try:
            adopted = await self._core.client.patch(MACHINES, name, patch, namespace_of(machine))
        except ApiError as error:
            if error.is_not_found:
                return None
            if error.is_conflict:
                raise Retry(f"machine {name} was changed while it was adopted") from None
            log.warning("failed to adopt machine %s: %s", name, error.message)
            why = f"Failed to adopt Machine {go_quote(name)}: {error.message}"
            self._events.event(scope.machine_set, WARNING, "FailedAdopt", why)
            return None
        self._core.wrote(NAME, scope.key, self._core.machines, adopted)
        log.info("adopted machine %s", name)
        self._events.event(scope.machine_set, NORMAL, "SuccessfulAdopt", f"Adopted Machine {go_quote(name)}")
        return adopted

    def sets_for(self, machine: Obj) -> Iterable[Key]:
        """The sets that may adopt a machine that nobody controls."""
        if controller_of(machine) is not None:
            return
        for machine_set in self._core.machine_sets.indexed(BY_CLUSTER, cluster_key_of(machine)):
            try:
                matches = selector_of(machine_set).matches(labels_of(machine))
            except SelectorError:
                continue
            if matches:
                yield Key.of(machine_set)


def _uncontrolled(machine: Obj) -> Iterable[Hashable]:
    return (cluster_key_of(machine),) if controller_of(machine) is None else ()
