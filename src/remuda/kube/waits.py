"""Typed waiting reasons: the object that a decision waits for, the actor, and the time.

A controller that can't continue returns a :class:`Wait` instead of a sentence. Condition messages, events and `explain` are
all rendered from it, so a chain of waits can be followed from a stuck cluster to the one action that is needed. Waits are
not stored; they are computed again from a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Every reason for which anything in Remuda waits. One list, so that docs and `explain` can name them all."""

    FINALIZERS = "Finalizers"  # an object is being deleted and others still hold finalizers on it
    NAMESPACE_CONTENT = "NamespaceContent"  # a namespace is being deleted and still holds objects
    CONTENT = "Content"  # an object exists, but its required content is missing
    DEPENDENTS = "Dependents"  # foreground deletion waits for dependents that block it
    PAUSED = "Paused"  # nothing is done to an object until a user unpauses it
    REFERENCE = "Reference"  # a referenced object does not exist, may not be used, or is of an unknown kind
    PROVISIONING = "Provisioning"  # a provider has not finished yet
    MALFORMED = "Malformed"  # another client wrote an unusable value
    CONNECTION = "Connection"  # a workload cluster can't be reached
    NODE = "Node"  # no node of the workload cluster belongs to a machine (yet)
    HOOK = "Hook"  # an annotation delays this until its author removes it
    DRAIN = "Drain"  # pods are still on a node that is being drained
    VOLUMES = "Volumes"  # volumes are still attached to a node
    DELETION = "Deletion"  # another object must be gone first
    MACHINES = "Machines"  # machines are missing or not available
    BUDGET = "Budget"  # a change budget does not allow it now, or more is wrong at once than may be repaired without a user
    PREFLIGHT = "Preflight"  # no machines may be made now, since the control plane is not ready for them
    RELEASE = "Release"  # the requested Kubernetes version is unknown
    ROLES = "Roles"  # a cluster has no machine for a required role
    INIT_NODE = "InitNode"  # no machine can be the one that the others join
    RESTORE = "Restore"  # all etcd data was lost with its machines, or a restore has failed: only another restore brings it back
    SNAPSHOT = "Snapshot"  # an upgrade waits for the snapshot of etcd before it, which could not be taken
    STEP = "Step"  # something was just written; the next reconcile continues
    CHECK_IN = "CheckIn"  # a host has never fetched its plan
    PLAN = "Plan"  # a host has not applied its plan yet
    PLAN_FAILED = "PlanFailed"  # a host could not apply its plan; it is tried again
    RENDER = "Render"  # a host's plan can't be rendered from the known values
    PROBES = "Probes"  # a host has applied its plan, but its services are not healthy
    TIER = "Tier"  # machines of another role come first
    TURN = "Turn"  # the limit of concurrent changes is reached
    QUORUM = "Quorum"  # etcd would lose its majority
    JOIN_URL = "JoinURL"  # the machine that others join has no known address yet
    UNCORDON = "Uncordon"  # a drained node does not take pods again yet
    KUBELET = "Kubelet"  # a node still reports another version
    PRE_BOOTSTRAP = "PreBootstrap"  # manifests have to be in the cluster before anything else
    CLUSTER_AGENT = "ClusterAgent"  # the agent of a cluster has not connected
    AGENT = "Agent"  # the agent of a host is not the one that its server has for it
    UNSUPPORTED = "Unsupported"  # requested, but not supported yet
    WITHOUT_EFFECT = "WithoutEffect"  # in the spec, but it is ignored
    REFUSED = "Refused"  # the API refuses the necessary write, with a reason
    FAILED = "Failed"  # a controller can't do its work: a request, a webhook or a program fails; it is tried again
    SILENT = "Silent"  # the agent of a host does not answer
    OPERATION = "Operation"  # a requested operation on a cluster has failed, or left machines out; nothing waits for it
    LAST_ETCD = "LastEtcd"  # the only etcd machine of a cluster is deleted only if a user confirms


# Reports on a spec and its requests: nothing waits for them.
NOTES = frozenset({Code.WITHOUT_EFFECT, Code.OPERATION})


class Actor(StrEnum):
    """The party that can end the wait."""

    REMUDA = "remuda"
    USER = "user"
    PROVIDER = "provider"
    MACHINE = "machine"
    OTHER_CONTROLLER = "other-controller"


@dataclass(frozen=True, slots=True)
class Ref:
    """One object, in the terms of kubectl."""

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
