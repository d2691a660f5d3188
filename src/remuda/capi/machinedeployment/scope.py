"""State of one reconcile of a MachineDeployment, handed from phase to phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.encoding.go_format import IntegerError, atoi
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata, name_of, uid_of
from remuda.kube.owners import controller_of
from remuda.kube.selectors import LabelSelector
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..controller_context import PendingMachines, never_was_node
from ..well_known import DELETE_MACHINE
from .status import MachineDeploymentSnapshot, Rolled

Obj = dict[str, Any]

NAME = "machinedeployment"


@dataclass(slots=True)
class Scope:
    """`deployment` is the working copy; `cluster` is None only during a deletion after its cluster is gone.

    `machine_sets` is None until they are read; `rolled` until a plan is carried out.
    """

    deployment: Obj
    cluster: Obj | None
    now: float
    selector: LabelSelector | None = None
    machines: Sequence[Obj] = ()
    machine_sets: list[Obj] | None = None
    bootstrap_missing: bool = False
    infrastructure_missing: bool = False
    rolled: Rolled | None = None
    # The number of machines that each set (by uid) has or is making, and the number of them that a user marked for deletion.
    there: Counter[str] = field(default_factory=Counter)
    marked: Counter[str] = field(default_factory=Counter)
    # For sets with machines that never became nodes: the number of their other machines.
    alive: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return Key.of(self.deployment)

    @property
    def ref(self) -> Ref:
        return Ref(GROUP, "MachineDeployment", *self.key)

    def of(self, machine_set: Obj) -> Ref:
        return Ref(GROUP, "MachineSet", *Key.of(machine_set))

    def waits_for(self, code: Code, actor: Actor, evidence: str, on: Ref | None = None) -> Wait:
        return Wait(code, self.ref, actor, on, evidence)

    def count_machines(self, pending: PendingMachines) -> None:
        for each in self.machine_sets or ():
            self.there[uid_of(each)] = pending.count(uid_of(each))
        for machine in self.machines:
            machine_set = (controller_of(machine) or {}).get("uid") or ""
            self.there[machine_set] += 1
            if DELETE_MACHINE in annotations_of(machine) and not is_being_deleted(machine):
                self.marked[machine_set] += 1

    def count_alive(self) -> None:
        """Call it only when it is known which machines have nodes. A set deletes marked machines before all others, so if a
        marked one has a node, it is unknown which machines would go."""
        staying: dict[str, list[Obj]] = {}
        for machine in self.machines:
            if not is_being_deleted(machine):
                staying.setdefault((controller_of(machine) or {}).get("uid") or "", []).append(machine)
        for machine_set, machines in staying.items():
            alive = [machine for machine in machines if not never_was_node(machine)]
            if len(alive) < len(machines) and not any(DELETE_MACHINE in annotations_of(machine) for machine in alive):
                self.alive[machine_set] = len(alive)

    def snapshot(self) -> MachineDeploymentSnapshot:
        return MachineDeploymentSnapshot(
            self.deployment,
            self.now,
            self.selector,
            self.machine_sets,
            self.machines,
            self.bootstrap_missing,
            self.infrastructure_missing,
            self.rolled,
        )


# --- MachineDeployments and MachineSets as plans see them ---------------------------------------------------------------
#
# Names, times and counts. A count that is absent or of the wrong type reads as none. Strategies are read with admission's
# defaults, so that an object which bypassed admission is rolled out all the same.

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
class Bounds:
    """The bounds of a rollout: `surge` machines more than `replicas`, `unavailable` fewer."""

    replicas: int
    surge: int = 0
    unavailable: int = 0
    rolling: bool = True

    @classmethod
    def of(cls, deployment: Obj) -> Bounds:
        replicas = spec_replicas(deployment) or 0
        if strategy_of(deployment) != ROLLING_UPDATE:
            return cls(replicas, rolling=False)
        surge = dig(deployment, *_STRATEGY, "rollingUpdate", "maxSurge")
        return cls.between(replicas, 1 if surge is None else surge, max_unavailable_of(deployment))

    @classmethod
    def between(cls, replicas: int, max_surge: Any, max_unavailable: Any) -> Bounds:
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
