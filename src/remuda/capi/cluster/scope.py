"""State of one reconcile of a Cluster, handed from phase to phase.

:mod:`.controller` makes it, :mod:`.provider_phases` works on it, :mod:`.status` computes the status from
what is in it at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.conditions import is_false
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, name_of, owner_references_of
from remuda.kube.waits import Ref

from ..controller_context import owner_is
from ..external_objects import External
from ..machine_messages import listed
from ..well_known import CLUSTER_NAME, CONTROL_PLANE, POOL_NAME
from ..workload_clusters import Health

# --- descendants ----------------------------------------------------------------------------------------------------------
#
# The objects of a Cluster: its MachineDeployments, MachineSets and Machines, split as other modules need them.

_NAMES_SHOWN = 5


def is_owned(obj: Obj, cluster: Obj) -> bool:
    """Whether it is owned, by group, kind and name: after a move a Cluster has another uid."""
    return any(owner_is(ref, "Cluster") and ref.get("name") == name_of(cluster) for ref in owner_references_of(obj))


@dataclass(frozen=True)
class Descendants:
    """All lists are by name."""

    cluster: Obj
    machine_deployments: list[Obj]
    machine_sets: list[Obj]
    machines: list[Obj]

    @cached_property
    def control_plane_machines(self) -> list[Obj]:
        return [machine for machine in self.machines if self._is_control_plane(machine)]

    @cached_property
    def worker_machines(self) -> list[Obj]:
        return [machine for machine in self.machines if not self._is_control_plane(machine)]

    @cached_property
    def counted_workers(self) -> list[Obj]:
        """Workers that report their own state; a pool's machines don't."""
        return [machine for machine in self.worker_machines if POOL_NAME not in labels_of(machine)]

    @cached_property
    def unhealthy(self) -> list[Obj]:
        return [
            machine
            for machine in self.machines
            if is_false(machine, "HealthCheckSucceeded") and POOL_NAME not in labels_of(machine)
        ]

    @cached_property
    def to_be_remediated(self) -> list[Obj]:
        return [machine for machine in self.unhealthy if is_false(machine, "OwnerRemediated")]

    @cached_property
    def standalone_sets(self) -> list[Obj]:
        return [each for each in self.machine_sets if is_owned(each, self.cluster)]

    @cached_property
    def standalone_workers(self) -> list[Obj]:
        return [machine for machine in self.counted_workers if is_owned(machine, self.cluster)]

    def _is_control_plane(self, machine: Obj) -> bool:
        labels = labels_of(machine)
        return CONTROL_PLANE in labels and labels.get(CLUSTER_NAME) == name_of(self.cluster)

    # --- deletion -------------------------------------------------------------------------------------------------------

    @cached_property
    def pending(self) -> list[Obj]:
        """The objects that must be gone before the control plane may go. A control plane object deletes its own machines."""
        machines = [] if dig(self.cluster, "spec", "controlPlaneRef") else self.control_plane_machines
        return [*self.machine_deployments, *self.machine_sets, *self.worker_machines, *machines]

    @cached_property
    def children(self) -> list[Obj]:
        """The objects that we delete: those with the Cluster as an owner, and those without any owner."""
        return [each for each in self.pending if is_owned(each, self.cluster) or not owner_references_of(each)]

    @cached_property
    def pending_lines(self) -> list[str]:
        """The remaining objects, in the words of the Deleting condition."""
        standalone = [] if dig(self.cluster, "spec", "controlPlaneRef") else self.control_plane_machines
        groups = (
            ("Control plane Machines", standalone),
            ("MachineDeployments", self.machine_deployments),
            ("MachineSets", self.machine_sets),
            ("Worker Machines", self.worker_machines),
        )
        return [f"* {title}: {listed(sorted(map(name_of, objs)), _NAMES_SHOWN)}" for title, objs in groups if objs]


# --- scope ----------------------------------------------------------------------------------------------------------------

Obj = dict[str, Any]

CONTROLLER = "cluster"
COMPONENT = "cluster-controller"  # who its events are from

UNREADABLE = "Please check controller logs for errors"


@dataclass(slots=True)
class Referred:
    """The object that a Cluster's infrastructureRef or controlPlaneRef refers to."""

    ref: Obj  # empty when there is none
    found: External | None = None
    missing: bool = False  # it isn't there; when `found` is None for another reason, it could not be read
    trouble: str = ""  # why not, where that is known

    @property
    def obj(self) -> Obj | None:
        return None if self.found is None else self.found.obj

    @property
    def contract(self) -> str:
        return "" if self.found is None else self.found.contract

    @property
    def kind(self) -> str:
        return self.ref.get("kind") or ""

    @property
    def unreadable(self) -> str:
        """The condition message about an object that could not be read."""
        return f"{UNREADABLE}: {self.trouble}" if self.trouble else UNREADABLE

    def named(self, namespace: str) -> Ref:
        return Ref(self.ref.get("apiGroup") or "", self.kind, namespace, self.ref.get("name") or "")


@dataclass(slots=True)
class ClusterScope:
    """`cluster` is the working copy: immutable, so a phase that changes it puts a new one here; it is written at the end."""

    cluster: Obj
    now: float
    infra: Referred
    control_plane: Referred
    descendants: Descendants
    health: Health = field(default_factory=Health)
    grace: float = 50.0
    deleting_reason: str = ""
    deleting_message: str = ""
    events: list[tuple[str, str]] = field(default_factory=list)  # reason and message, sent when the status is written

    @property
    def key(self) -> Key:
        return Key.of(self.cluster)

    @property
    def ref(self) -> Ref:
        return Ref(GROUP, "Cluster", *self.key)

    @property
    def deleting(self) -> bool:
        return is_being_deleted(self.cluster)

    def initialized(self, flag: str) -> bool:
        """`infrastructureProvisioned` or `controlPlaneInitialized`."""
        return dig(self.cluster, "status", "initialization", flag) is True


def referred(cluster: Obj, field_name: str) -> Referred:
    found = dig(cluster, "spec", field_name)
    return Referred(found if isinstance(found, dict) else {})
