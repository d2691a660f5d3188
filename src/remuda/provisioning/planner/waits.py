"""Reasons why the planner waits, as typed waits: the texts are Rancher's where its clients read them
(docs/reference/planner.md#steps-of-a-pass).

`since` is the time of the condition that has the same message already, so that it survives passes and restarts.
"""

from __future__ import annotations

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code, Ref, Wait

from .snapshot import CAPI_GROUP, ClusterSnapshot, Machine

NO_CLUSTER = "CAPI cluster does not exist"
INFRASTRUCTURE = "waiting for infrastructure ready"
PAUSED = "CAPI cluster or RKEControlPlane is paused"
ROLES = "waiting for at least one control plane, etcd, and worker node to be registered"
ROLE_NAMES = ("etcd", "control plane", "worker")
ETCD_GOING = "waiting for all etcd machines to be deleted"
ETCD_REPLACED = (
    "rkecontrolplane was already initialized but no etcd machines exist that have plans, indicating the etcd plane has been "
    "entirely replaced. Restoration from etcd snapshot is required."
)
RESTORED_GONE = (
    "the machine that etcd was restored on is gone before another one had joined it: request a restore once more, with a new "
    "generation"
)
INIT_NODE = "waiting for viable init node"
JOIN_URL = "waiting for join url to be available on bootstrap node"
CONTROL_PLANE = "waiting for control plane to be available"
ETCD = "waiting for etcd to be available"
BOOTSTRAP_ETCD = "waiting for bootstrap etcd to be available"
CHECK_IN = "waiting for agent to check in and apply initial plan"
PLAN = "waiting for plan to be applied"
PLAN_FAILED = "failure while applying plan"
SILENT = "its agent does not answer"
VALUE_REFUSED = "its host can't use the value of"
IMAGE_MISSING = "the registry does not have the image"
IMAGE_REFUSED = "the image can't be fetched from its registry"
QUORUM = "etcd would lose its quorum"
ASKING = "before it is restarted, waiting for an answer of"
BUDGET = "waiting for the change budget"
UNCORDON = "waiting for uncordon to finish"
KUBELET = "waiting for kubelet to update"
PRE_BOOTSTRAP = "waiting for cluster pre-bootstrap to complete"
CLUSTER_AGENT = "waiting for cluster agent to connect"
WITHOUT_EFFECT = "arguments without effect:"
# The control plane's condition about agents of hosts that have nothing to do.
AGENTS_RESPONDING = "SystemAgentsResponding"
# The condition about machines that keep the plans of another version of Remuda (:mod:`.held_plans`).
PLANS_HELD = "PlansHeld"
NOT_RECONCILED = "RKEControlPlane has not been fully reconciled yet"


def of_control_plane(snapshot: ClusterSnapshot, code: Code, actor: Actor, evidence: str, on: Ref | None = None) -> Wait:
    control_plane = snapshot.control_plane
    ready = control_plane.condition("Ready")
    same = ready is not None and ready.message == evidence and ready.at
    return Wait(code, control_plane.ref(), actor, on, evidence, same or rfc3339(snapshot.now))


def of_machine(
    snapshot: ClusterSnapshot, machine: Machine, code: Code, actor: Actor, evidence: str, on: Ref | None = None
) -> Wait:
    carrier = machine.reconciled
    same = carrier is not None and carrier.message == evidence and carrier.at
    return Wait(code, machine.ref(), actor, on, evidence, same or rfc3339(snapshot.now))


def cluster_ref(snapshot: ClusterSnapshot) -> Ref:
    control_plane = snapshot.control_plane
    name = snapshot.cluster.name if snapshot.cluster else str(control_plane.spec.get("clusterName") or control_plane.name)
    return Ref(CAPI_GROUP, "Cluster", control_plane.namespace, name)


def withheld(machine: Machine) -> str:
    """The wait of a machine without a plan, by its role."""
    if machine.is_etcd:
        return BOOTSTRAP_ETCD
    return ETCD if machine.is_control_plane else CONTROL_PLANE


def some_names(names: list[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ",".join(names[:3]) + more
