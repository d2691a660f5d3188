"""State of one reconcile of a MachineDeployment, handed from phase to phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.objects import Key, annotations_of, is_being_deleted, uid_of
from remuda.kube.owners import controller_of
from remuda.kube.selectors import LabelSelector
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..controller_context import PendingMachines, never_was_node
from ..well_known import DELETE_MACHINE
from .status import MachineDeploymentSnapshot, Rolled

Obj = dict[str, Any]

NAME = "machinedeployment"


@dataclass(slots=True)
class MachineDeploymentScope:
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
