"""State of one reconcile of a Machine, handed from phase to phase.

:mod:`.controller` makes it, :mod:`.status` computes the status from it at the end, :mod:`.deletion` works on it
during the Machine's deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.kube.objects import Key, is_being_deleted
from remuda.runtime.patching import Patch

from ..controller_context import cluster_key_of
from ..external_objects import External
from ..phases import Phases
from ..workload_clusters import Workload

Obj = dict[str, Any]

CONTROLLER = "machine"
COMPONENT = "machine-controller"  # who its events are from


@dataclass(slots=True)
class MachineScope:
    """`machine` is the working copy: immutable, so a phase that changes it puts a new one here; it is written at the end."""

    machine: Obj
    cluster: Obj | None
    patch: Patch
    now: float
    machine_set: Obj | None = None
    machine_deployment: Obj | None = None
    infra: External | None = None
    infra_missing: bool = False  # it isn't there; when it is None for another reason, it could not be read
    bootstrap: External | None = None
    bootstrap_missing: bool = False
    node: Obj | None = None
    node_error: Exception | None = None  # why the node could not be looked up
    workload: Workload | None = None  # None while the cluster can't be reached
    deleting_reason: str = ""
    deleting_message: str = ""
    phases: Phases = field(default_factory=Phases)

    @property
    def key(self) -> Key:
        return Key.of(self.machine)

    @property
    def cluster_key(self) -> Key:
        return cluster_key_of(self.machine)

    @property
    def deleting(self) -> bool:
        return is_being_deleted(self.machine)
