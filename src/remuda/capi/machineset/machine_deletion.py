"""Deletion of a set's machines, each by the uid that was seen: a new machine of an old name is not ours to delete."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP, MACHINES
from remuda.kube.clock import time_of
from remuda.kube.conditions import is_false
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata, name_of, namespace_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..change_budget import Act
from ..controller_context import Core, never_was_node
from ..machine_budgets import MachineBudgets
from ..well_known import DELETE_MACHINE
from .scope import NAME, MachineSetScope

Obj = dict[str, Any]


# Seconds until a refused deletion is tried again: another machine has to come up first.
REFUSED_AGAIN = 15.0


class DeletionRefused(Exception):
    """Admission or a change budget keeps a machine; the message says why. Trying again later may help."""

    def __init__(self, machine: Obj, why: str, code: Code = Code.REFUSED) -> None:
        super().__init__(why)
        self.machine = machine
        self.code = code

    def wait(self, scope: MachineSetScope) -> Wait:
        on = Ref(GROUP, "Machine", *Key.of(self.machine))
        return Wait(self.code, scope.ref(), Actor.USER, on, str(self))


async def check_budget(budgets: MachineBudgets, scope: MachineSetScope, machine: Obj, act: Act) -> None:
    """Raises DeletionRefused if a change budget keeps the machine now."""
    held = await budgets.claim(act, machine, scope.cluster, scope.deployment)
    if held is not None:
        raise DeletionRefused(machine, held.why, Code.BUDGET)


async def remove_machine(core: Core, scope: MachineSetScope, machine: Obj) -> None:
    """Begin to delete a machine; the scope then has its new state. Raises Refused."""
    if is_being_deleted(machine):
        return
    try:
        left = await core.client.delete(MACHINES, name_of(machine), namespace_of(machine), uid=uid_of(machine))
    except ApiError as error:
        if error.code == 403:
            raise DeletionRefused(machine, error.message) from None
        # Gone, or replaced by another one.
        if not (error.is_not_found or error.is_conflict):
            raise
        scope.lost(machine)
        return
    if left.get("kind") == "Machine" and is_being_deleted(left):
        core.wrote(NAME, scope.key, core.machines, left)
        scope.saw(left)
    else:
        core.deleted(NAME, scope.key, core.machines, machine)
        scope.lost(machine)


async def check_removal(core: Core, machine: Obj) -> None:
    """Raises Refused if admission keeps the machine, and does nothing else."""
    try:
        await core.client.delete(MACHINES, name_of(machine), namespace_of(machine), uid=uid_of(machine), dry_run=True)
    except ApiError as error:
        if error.code == 403:
            raise DeletionRefused(machine, error.message) from None


# --- deletion order -------------------------------------------------------------------------------------------------------
#
# The order in which machines are deleted when a set has too many.
#
# Machines that are being deleted already count first, so that nothing more is deleted meanwhile; then those that a user marked;
# then broken ones, of these first those that never became a node; and only then does `spec.deletion.order` matter. Pure;
# :mod:`.controller` deletes.

_DELETING, _MARKED, _UNHEALTHY, _ANY, _NEVER = 100.0, 80.0, 50.0, 20.0, 0.0
_TEN_DAYS = 864000.0


class UnknownOrder(ValueError):
    """The value of `spec.deletion.order` is unknown."""

    def __init__(self, order: str) -> None:
        super().__init__(f"Unsupported deletion order {order}. Must be one of 'Random', 'Newest', or 'Oldest'")


def is_healthy(machine: Obj) -> bool:
    """True if it has a node, and no condition reports a problem. An unknown state is not unhealthy."""
    has_node = bool(dig(machine, "status", "nodeRef", "name"))
    return has_node and not is_false(machine, "NodeHealthy") and not is_false(machine, "HealthCheckSucceeded")


def _age_priority(machine: Obj, now: float) -> float:
    """A priority from 0 for the newest towards 50 for the oldest, half of the way in a week."""
    created = time_of(metadata(machine).get("creationTimestamp"))
    if created is None or created > now:
        return _NEVER
    return _UNHEALTHY * (1.0 - math.exp((created - now) / _TEN_DAYS))


_ORDERS: dict[str, Callable[[Obj, float], float]] = {
    "Random": lambda machine, now: _ANY,
    "Oldest": _age_priority,
    "Newest": lambda machine, now: _UNHEALTHY - _age_priority(machine, now),
}


def priority(machine: Obj, order: str, now: float) -> float:
    """The priority of deletion, from 0 (keep) to 100 (already being deleted). Raises UnknownOrder."""
    by_order = _ORDERS.get(order or "Random")
    if by_order is None:
        raise UnknownOrder(order)
    if is_being_deleted(machine):
        return _DELETING
    if DELETE_MACHINE in annotations_of(machine):
        return _MARKED
    if not is_healthy(machine):
        return _UNHEALTHY
    return by_order(machine, now)


def first_to_go(machines: Iterable[Obj], count: int, order: str, now: float) -> list[Obj]:
    """The `count` machines to delete, by priority, then by name."""
    ranked = sorted(machines, key=lambda machine: (-priority(machine, order, now), not never_was_node(machine), name_of(machine)))
    return ranked[: max(count, 0)]
