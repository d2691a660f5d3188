"""Typed waiting reasons: what a decision is waiting for, on whom, since when.

A controller that can't go on returns a :class:`Wait` instead of a sentence. Condition messages, events and `explain` are
all rendered from it, so a chain of waits can be followed from a stuck cluster down to the one thing to do. Nothing about
waits is stored; they are computed anew from a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Every reason anything in Remuda waits for. One list, so that docs and `explain` can name them all."""

    FINALIZERS = "Finalizers"  # an object is being deleted and others still hold finalizers on it
    NAMESPACE_CONTENT = "NamespaceContent"  # a namespace is being deleted and still holds objects
    CONTENT = "Content"  # an object is there, but what it must hold is not
    DEPENDENTS = "Dependents"  # foreground deletion waits for dependents that block it
    PAUSED = "Paused"  # nothing is done to an object until somebody unpauses it
    REFERENCE = "Reference"  # what an object refers to is not there, may not be used, or is of a kind that is not known
    PROVISIONING = "Provisioning"  # a provider has not provided yet what it was asked for
    MALFORMED = "Malformed"  # what somebody else wrote can't be used
    CONNECTION = "Connection"  # a workload cluster can't be reached
    NODE = "Node"  # no node of the workload cluster belongs to a machine (yet)
    HOOK = "Hook"  # somebody asked to be waited for, by an annotation that only they take away
    DRAIN = "Drain"  # pods are still on a node that is being drained
    VOLUMES = "Volumes"  # volumes are still attached to a node
    DELETION = "Deletion"  # another object must be gone first
    MACHINES = "Machines"  # machines that should be there are not, or are not available
    BUDGET = "Budget"  # more is wrong at once than may be repaired without somebody looking
    PREFLIGHT = "Preflight"  # machines may not be made now, since the control plane is not ready for them
    RELEASE = "Release"  # nothing is known about the Kubernetes version that is asked for
    ROLES = "Roles"  # a cluster has no machine for a role that it can't do without
    INIT_NODE = "InitNode"  # no machine can be the one that the others join
    RESTORE = "Restore"  # all etcd data went with its machines; only a snapshot brings it back
    STEP = "Step"  # something was just written; the next look goes on from there
    CHECK_IN = "CheckIn"  # a host has never fetched its plan
    PLAN = "Plan"  # a host has not applied its plan yet
    PLAN_FAILED = "PlanFailed"  # a host could not apply its plan; it is tried again
    RENDER = "Render"  # a host's plan can't be made of what is known
    PROBES = "Probes"  # a host has applied its plan, and what runs there is not healthy
    TIER = "Tier"  # machines of another role come first
    TURN = "Turn"  # as many machines change at once as may
    QUORUM = "Quorum"  # etcd would lose its majority
    JOIN_URL = "JoinURL"  # the machine that others join has no known address yet
    UNCORDON = "Uncordon"  # a drained node does not take pods again yet
    KUBELET = "Kubelet"  # a node still reports another version
    PRE_BOOTSTRAP = "PreBootstrap"  # manifests have to be in the cluster before anything else
    CLUSTER_AGENT = "ClusterAgent"  # the agent of a cluster has not connected
    AGENT = "Agent"  # the agent of a host is not the one that its server has for it
    UNSUPPORTED = "Unsupported"  # asked for, and not offered yet
    REFUSED = "Refused"  # the API refuses what has to be done, and says why
    LAST_ETCD = "LastEtcd"  # the only etcd machine of a cluster goes only when a user says so


class Actor(StrEnum):
    """Who can end the wait."""

    REMUDA = "remuda"
    USER = "user"
    PROVIDER = "provider"
    MACHINE = "machine"
    OTHER_CONTROLLER = "other-controller"


@dataclass(frozen=True, slots=True)
class Ref:
    """One object, as a reader would name it to kubectl."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Wait:
    """`subject` waits because of `code`; `on` is the object it waits for, the edge that makes a chain."""

    code: Code
    subject: Ref
    actor: Actor
    on: Ref | None = None
    evidence: str = ""
    since: str = ""

    def message(self) -> str:
        target = f" on {self.on}" if self.on else ""
        reason = f": {self.evidence}" if self.evidence else ""
        return f"waiting{target}{reason}"
