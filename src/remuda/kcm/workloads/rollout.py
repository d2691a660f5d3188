"""The next size of each ReplicaSet of a Deployment. Pure; all state between calls is in the objects.

The new set grows as far as `maxSurge` allows. Old ones shrink as far as `maxUnavailable` allows, first by pods that are not
available anyway, the oldest set first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remuda.kube.objects import dig, metadata, name_of

from ..disruption_counts import scaled

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def of(cls, deployment: Obj) -> Bounds:
        replicas = int(dig(deployment, "spec", "replicas", default=1))
        if dig(deployment, "spec", "strategy", "type") == "Recreate":
            return cls(replicas, 0, replicas)
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        surge = scaled(rolling.get("maxSurge", "25%"), replicas)
        unavailable = scaled(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        # A rollout could not move with both at 0.
        return cls(replicas, surge, min(unavailable, replicas) if surge or unavailable else 1)

    @property
    def least(self) -> int:
        return self.replicas - self.unavailable


@dataclass(frozen=True, slots=True)
class Group:
    """A ReplicaSet as the arithmetic sees it."""

    name: str
    wanted: int
    available: int
    created: str

    @classmethod
    def of(cls, replica_set: Obj) -> Group:
        return cls(
            name_of(replica_set),
            int(dig(replica_set, "spec", "replicas", default=1)),
            int(dig(replica_set, "status", "availableReplicas") or 0),
            metadata(replica_set).get("creationTimestamp") or "",
        )


def first_size(bounds: Bounds, old: Sequence[Group]) -> int:
    """The initial size of a new set."""
    return min(bounds.replicas, max(bounds.replicas + bounds.surge - sum(each.wanted for each in old), 0))


def rolling_sizes(bounds: Bounds, new: Group, old: Sequence[Group]) -> dict[str, int]:
    """The new sizes of the sets that change."""
    total = new.wanted + sum(each.wanted for each in old)
    if new.wanted > bounds.replicas:
        return {new.name: bounds.replicas}
    if new.wanted < bounds.replicas and (room := bounds.replicas + bounds.surge - total) > 0:
        return {new.name: new.wanted + min(room, bounds.replicas - new.wanted)}
    return _shrunk(bounds, new, sorted(old, key=lambda each: (each.created, each.name)), total)


def _shrunk(bounds: Bounds, new: Group, old: Sequence[Group], total: int) -> dict[str, int]:
    budget = total - bounds.least - max(new.wanted - new.available, 0)
    if budget <= 0:
        return {}
    sizes = {each.name: each.wanted for each in old}
    for each in old:
        unwell = min(each.wanted - min(each.available, each.wanted), budget)
        sizes[each.name] -= unwell
        budget -= unwell
    spare = new.available + sum(each.available for each in old) - bounds.least
    for each in old:
        taken = min(sizes[each.name], max(spare, 0), budget)
        sizes[each.name] -= taken
        spare -= taken
        budget -= taken
    return {each.name: sizes[each.name] for each in old if sizes[each.name] != each.wanted}
