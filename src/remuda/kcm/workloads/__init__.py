"""The loops of kube-controller-manager for clusters with nodes: workloads become pods, pods of dead nodes are removed.

One module per upstream controller; the parts below the controllers and `pods` are pure. The management API runs
no pods and needs none of this; `lab/distro/cluster/apiserver` and simulated clusters start :func:`controllers`. Not here: the
scheduler and kubelets (`lab/distro/nodes`).
Read `replicaset` first.
"""

from __future__ import annotations

from remuda.runtime import Manager, Reconciler

from .daemonset import DaemonSets
from .deployment import Deployments
from .endpointslice import EndpointSlices
from .job import Jobs
from .nodelifecycle import GRACE_SECONDS, NodeLifecycle
from .podgc import PodCollector
from .replicaset import ReplicaSets
from .statefulset import StatefulSets
from .taint_eviction import TaintEviction

__all__ = ["GRACE_SECONDS", "controllers"]


def controllers(manager: Manager, node_grace: float = GRACE_SECONDS) -> list[Reconciler]:
    """One of each, to be added to `manager`. A node without a heartbeat for `node_grace` seconds is given up."""
    return [
        Deployments(manager),
        ReplicaSets(manager),
        StatefulSets(manager),
        DaemonSets(manager),
        Jobs(manager),
        NodeLifecycle(manager, node_grace),
        TaintEviction(manager),
        PodCollector(manager),
        EndpointSlices(manager),
    ]
