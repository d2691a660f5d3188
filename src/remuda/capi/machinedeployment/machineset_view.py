"""MachineDeployments and MachineSets as the plans see them: names, times and counts.

A count that is absent or of the wrong type reads as none. Strategies are read with admission's defaults, so that
an object which bypassed admission is rolled out all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding.go_format import IntegerError, atoi
from remuda.kube.objects import dig, metadata, name_of

Obj = dict[str, Any]

ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"
_STRATEGY = ("spec", "rollout", "strategy")


def count(obj: Obj | None, *path: str) -> int | None:
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def spec_replicas(obj: Obj) -> int | None:
    return count(obj, "spec", "replicas")


def created(obj: Obj) -> str:
    """The creation time; texts of this kind order as times do."""
    return metadata(obj).get("creationTimestamp") or ""


@dataclass(frozen=True, slots=True)
class MachineSet:
    """The parts of a set that a plan depends on. `marked`: machines that a user asked to be deleted first, and that still exist.
    `alive`: how many are left without those that never became nodes; None when all are to be counted on.

    A set's status may be older than its machines, above all after a crash between writing the two, so machines that can
    be seen (`there`) count in any case: a plan that misses them goes beyond its bounds.
    """

    name: str
    created: str = ""
    spec: int = 0
    replicas: int = 0
    available: int = 0
    marked: int = 0
    alive: int | None = None

    @classmethod
    def of(cls, obj: Obj, there: int = 0, marked: int = 0, alive: int | None = None) -> MachineSet:
        return cls(
            name_of(obj),
            created(obj),
            spec_replicas(obj) or 0,
            max(count(obj, "status", "replicas") or 0, there),
            count(obj, "status", "availableReplicas") or 0,
            marked,
            alive,
        )


def strategy_of(deployment: Obj) -> str:
    return dig(deployment, *_STRATEGY, "type") or ROLLING_UPDATE


def max_unavailable_of(deployment: Obj) -> Any:
    """The value as written: a number or a percentage."""
    found = dig(deployment, *_STRATEGY, "rollingUpdate", "maxUnavailable")
    return 0 if found is None else found


def scaled(value: Any, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total` rounded up or down; any other value counts as 0."""
    if isinstance(value, int):
        return value
    try:
        percent = atoi(value.removesuffix("%")) if isinstance(value, str) and value.endswith("%") else 0
    except IntegerError:
        return 0
    return -(-percent * total // 100) if up else percent * total // 100


@dataclass(frozen=True, slots=True)
class RolloutBounds:
    """The bounds of a rollout: `surge` machines more than `replicas`, `unavailable` fewer."""

    replicas: int
    surge: int = 0
    unavailable: int = 0
    rolling: bool = True

    @classmethod
    def of(cls, deployment: Obj) -> RolloutBounds:
        replicas = spec_replicas(deployment) or 0
        if strategy_of(deployment) != ROLLING_UPDATE:
            return cls(replicas, rolling=False)
        surge = dig(deployment, *_STRATEGY, "rollingUpdate", "maxSurge")
        return cls.between(replicas, 1 if surge is None else surge, max_unavailable_of(deployment))

    @classmethod
    def between(cls, replicas: int, max_surge: Any, max_unavailable: Any) -> RolloutBounds:
        """Computes both at once, since a rollout can't move when both are 0; then one may be unavailable."""
        surge, unavailable = scaled(max_surge, replicas, up=True), scaled(max_unavailable, replicas, up=False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        return cls(replicas, surge, min(unavailable, replicas))

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least(self) -> int:
        """The number of machines that must be available."""
        return max(self.replicas - self.unavailable, 0)
