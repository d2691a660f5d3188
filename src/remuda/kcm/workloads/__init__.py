"""The loops of kube-controller-manager for clusters with nodes: workloads become pods, pods of dead nodes are removed.

One module per upstream controller; the parts below the controllers and `pods` are pure. The management API runs
no pods and needs none of this; `lab/distro/cluster/apiserver` starts :func:`controllers` in simulated clusters. Not here: the
scheduler and kubelets (`lab/distro/nodes`).
Read `replicaset` first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from remuda.runtime import Manager, Reconciler
from remuda.runtime.controller_table import ControllerRow

from .nodelifecycle import GRACE_SECONDS

__all__ = ["CONTROLLERS", "GRACE_SECONDS", "Parts", "controllers"]


class Parts(NamedTuple):
    """The arguments of the controllers. A node without a heartbeat for `node_grace` seconds is given up."""

    manager: Manager
    node_grace: float = GRACE_SECONDS


def _row(name: str, made_by: str) -> ControllerRow[Parts]:
    return ControllerRow(name, f"{__name__}.{made_by}", lambda p: (p.manager,))


# All of them, in the order in which they are made.
CONTROLLERS: Final[tuple[ControllerRow[Parts], ...]] = (
    _row("deployment", "deployment:Deployments"),
    _row("replicaset", "replicaset:ReplicaSets"),
    _row("statefulset", "statefulset:StatefulSets"),
    _row("daemonset", "daemonset:DaemonSets"),
    _row("job", "job:Jobs"),
    ControllerRow("nodelifecycle", f"{__name__}.nodelifecycle:NodeLifecycle", lambda p: (p.manager, p.node_grace)),
    _row("tainteviction", "taint_eviction:TaintEviction"),
    _row("podgc", "podgc:PodCollector"),
    _row("endpointslice", "endpointslice:EndpointSlices"),
)


def controllers(manager: Manager, node_grace: float = GRACE_SECONDS) -> list[Reconciler]:
    """One of each, to be added to `manager`."""
    parts = Parts(manager, node_grace)
    return [row.make(parts) for row in CONTROLLERS]
