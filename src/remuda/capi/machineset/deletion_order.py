"""Which machines go first when a set has too many.

What is being deleted already counts first, so that nothing more is deleted while it goes; then what somebody marked, then what
is broken, of that first what never became a node, and only then does `spec.deletion.order` matter. Pure; :mod:`.controller`
deletes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.conditions import is_false
from remuda.kube.objects import annotations_of, dig, is_being_deleted, metadata, name_of

from ..stillborn import is_stillborn
from ..well_known import DELETE_MACHINE

Obj = dict[str, Any]

_DELETING, _MARKED, _UNHEALTHY, _ANY, _NEVER = 100.0, 80.0, 50.0, 20.0, 0.0
_TEN_DAYS = 864000.0


class UnknownOrder(ValueError):
    """`spec.deletion.order` is none that is known."""

    def __init__(self, order: str) -> None:
        super().__init__(f"Unsupported deletion order {order}. Must be one of 'Random', 'Newest', or 'Oldest'")


def is_healthy(machine: Obj) -> bool:
    """As far as the order goes: it has a node, and nobody says that something is wrong. Not to know is not unhealthy."""
    has_node = bool(dig(machine, "status", "nodeRef", "name"))
    return has_node and not is_false(machine, "NodeHealthy") and not is_false(machine, "HealthCheckSucceeded")


def _age_priority(machine: Obj, now: float) -> float:
    """From 0 for the newest towards 50 for the oldest, half of the way in a week."""
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
    """From 0 (keep) to 100 (it goes already). Raises UnknownOrder."""
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
    """The `count` machines to be deleted, first the most expendable, then by name."""
    ranked = sorted(machines, key=lambda machine: (-priority(machine, order, now), not is_stillborn(machine), name_of(machine)))
    return ranked[: max(count, 0)]
