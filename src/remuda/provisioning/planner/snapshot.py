"""Everything the planner may know, at one moment: the control plane, its cluster, its machines and their plan secrets.

The controller builds a :class:`Snapshot` (plan secrets read live, not from a cache); :mod:`.decide` and the renderer only read
it. `now` is part of it, so that the same snapshot always gives the same decision. Roles are read from the plan secret, since
that is where a host's registration leaves them, and not from the Machine.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Ref

from .. import well_known
from .. import well_known as keys
from ..plans.agent_report import AgentReport
from ..plans.plan import File, Plan

# --- programs -------------------------------------------------------------------------------------------------------------
#
# The agent as the planner sees it: one file for hosts. :mod:`.managesystemagent` says which of them get it.


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """The agent that the server would have its hosts run; `content` is base64. `at_once` hosts of a cluster get it at a time."""

    checksum: str
    content: str = field(repr=False)
    at_once: int = 5

    @classmethod
    def of(cls, archive: bytes) -> AgentProgram:
        return cls(hashlib.sha256(archive).hexdigest(), base64.b64encode(archive).decode())

    def file(self, directory: str) -> File:
        path = f"{directory}/{self.checksum}.pyz"
        return File(self.content, path, "0755", dynamic=True, minor=True)


# --- snapshot -------------------------------------------------------------------------------------------------------------

Obj = Mapping[str, Any]
NOTHING: Mapping[str, str] = {}

CAPI_GROUP = "cluster.x-k8s.io"
RKE_GROUP = "rke.cattle.io"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of any kind; `at` is since when it says just this (RFC 3339)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    at: str = ""

    def says(self, other: Condition | None) -> bool:
        """Whether `other` says the same, whenever it began."""
        return other is not None and replace(other, at=self.at) == self


@dataclass(frozen=True, slots=True)
class Address:
    type: str  # InternalIP, ExternalIP, Hostname …
    address: str


@dataclass(frozen=True, slots=True)
class Periodic:
    """What a periodic instruction has said the last time."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A plan secret's data, decoded (capr.md 4.2). There is none as long as no plan was written."""

    plan: Plan
    applied: Plan | None = None
    # `plan-state`: "", pending, in-progress, succeeded, failed. Empty with agents or plans of the older kind.
    state: str = ""
    revision: int = 0
    in_sync: bool = False
    failed: bool = False
    failure_count: int = 0
    healthy: bool = True
    # By name, whether it is healthy; empty if nothing was probed since the plan was written.
    probes: Mapping[str, bool] = field(default_factory=dict)
    # Whether one of them has failed of late, though not often enough to count.
    wavering: bool = False
    # Whether its agent has not answered since it was asked whether it is there; when that was is an annotation.
    asked: bool = False
    output: Mapping[str, str] = field(default_factory=dict)
    periodic: Mapping[str, Periodic] = field(default_factory=dict)
    # The last words of an instruction that failed, as far as the agent kept them.
    failure: str = ""
    # What its agent says of itself; None of agents that say nothing.
    agent: AgentReport | None = None


@dataclass(frozen=True, slots=True)
class PlanSecret:
    """A machine's plan secret: its metadata is where roles, join URLs and the steps of a drain are kept."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node: PlanNode | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A Cluster API Machine with its plan secret (None as long as the bootstrap controller has not made it)."""

    name: str
    uid: str
    secret: PlanSecret | None
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # When deletion began, in seconds; None for one that stays.
    deleted_at: float | None = None
    phase: str = ""
    infrastructure_ready: bool = False
    infrastructure_kind: str = ""  # CustomMachine, or a driver's
    bootstrap: str = ""  # the RKEBootstrap's name
    bootstrap_annotations: Mapping[str, str] = field(default_factory=dict)
    node_name: str = ""  # status.nodeRef
    kubelet_version: str = ""  # status.nodeInfo; empty as long as there is none
    addresses: tuple[Address, ...] = ()
    reconciled: Condition | None = None
    # Other conditions of the Machine summed up as Rancher does it, without Reconciled: what is failing, what is not ready yet.
    failing: str = ""
    non_ready: str = ""
    # Its MachineDeployment wants another in its place.
    outdated: bool = False

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None

    @property
    def plan_labels(self) -> Mapping[str, str]:
        return self.secret.labels if self.secret else NOTHING

    @property
    def plan_annotations(self) -> Mapping[str, str]:
        return self.secret.annotations if self.secret else NOTHING

    @property
    def node(self) -> PlanNode | None:
        return self.secret.node if self.secret else None

    @property
    def is_etcd(self) -> bool:
        return self.plan_labels.get(well_known.ETCD_ROLE) == "true"

    @property
    def is_control_plane(self) -> bool:
        return self.plan_labels.get(well_known.CONTROL_PLANE_ROLE) == "true"

    @property
    def is_worker(self) -> bool:
        return self.plan_labels.get(well_known.WORKER_ROLE) == "true"

    @property
    def is_only_etcd(self) -> bool:
        return self.is_etcd and not self.is_control_plane

    @property
    def is_only_worker(self) -> bool:
        return self.is_worker and not self.is_etcd and not self.is_control_plane

    @property
    def is_windows(self) -> bool:
        return self.plan_labels.get(keys.OS_LABEL) == "windows"

    @property
    def is_init(self) -> bool:
        return self.plan_labels.get(well_known.INIT_NODE) == "true"

    @property
    def join_url(self) -> str:
        return self.plan_annotations.get(well_known.JOIN_URL, "")

    @property
    def asked_at(self) -> float | None:
        """When its agent was last asked whether it is there."""
        return time_of(self.plan_annotations.get(keys.ASKED_AT))

    @property
    def joined_to(self) -> str | None:
        """The URL that its delivered plan joins; empty for an init node, None if no plan was ever written."""
        return self.plan_annotations.get(well_known.JOINED_TO)

    @property
    def has_host(self) -> bool:
        """Whether a host has registered as this machine, so that it may act on any plan that it is given."""
        node = self.node
        if well_known.MACHINE_ID in self.labels or well_known.MACHINE_ID in self.plan_labels:
            return True
        return node is not None and (node.applied is not None or node.agent is not None or node.state not in ("", "pending"))

    def ref(self) -> Ref:
        return Ref(CAPI_GROUP, "Machine", self.namespace, self.name)

    def with_plan_metadata(self, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Machine:
        """The machine as it is once these were written; None takes a key away."""
        if self.secret is None or not (labels or annotations):
            return self
        secret = self.secret
        secret = replace(secret, labels=merged(secret.labels, labels), annotations=merged(secret.annotations, annotations))
        return replace(self, secret=secret)


def merged(old: Mapping[str, str], new: Mapping[str, str | None]) -> Mapping[str, str]:
    kept = {key: value for key, value in old.items() if key not in new}
    return kept | {key: value for key, value in new.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The owning Cluster API Cluster."""

    name: str
    deleting: bool = False
    paused: bool = False
    infrastructure_provisioned: bool = False
    control_plane_initialized: Condition | None = None
    # status.initialization.controlPlaneInitialized, which stays true once it was.
    was_initialized: bool = False


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The RKEControlPlane: its spec as JSON, and of its status what decisions rest on."""

    namespace: str
    name: str
    spec: Obj
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    paused: bool = False  # by its own annotation
    applied_spec: Obj | None = None
    conditions: tuple[Condition, ...] = ()
    initialized: bool | None = None  # status.initialization.controlPlaneInitialized
    config_generation: int = 0
    certificate_rotation_generation: int = 0
    agent_connected: bool = False
    # status.etcdSnapshotCreate and the like: the operations as they were last taken up.
    etcd_snapshot_create: Obj | None = None
    etcd_snapshot_restore: Obj | None = None
    rotate_encryption_keys: Obj | None = None

    @property
    def version(self) -> str:
        return str(self.spec.get("kubernetesVersion") or "")

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def is_true(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.status == "True"

    def ref(self) -> Ref:
        return Ref(RKE_GROUP, "RKEControlPlane", self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens by which servers and workers of the cluster join (the secret `<name>-rke-state`)."""

    server: str
    agent: str

    def __repr__(self) -> str:
        return "Tokens(…)"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`machines` may come in any order. `cluster` is None while the Cluster API Cluster is not there."""

    now: float
    control_plane: ControlPlane
    cluster: Cluster | None
    machines: tuple[Machine, ...] = ()
    tokens: Tokens | None = None
    # Why what should hold the tokens does not; empty if it does, or is not there.
    tokens_error: str = ""
    supervisor_port: int = 9345
    # Why nothing is known about the version asked for; empty if something is.
    release_error: str = ""
    pre_bootstrap: bool = False  # manifests have to be there before anything else
    # The agent that hosts should run; None if nobody says.
    agent: AgentProgram | None = None

    def by_name(self) -> tuple[Machine, ...]:
        return tuple(sorted(self.machines, key=lambda machine: (machine.name, machine.uid)))


@dataclass(frozen=True, slots=True)
class Join:
    """How a machine comes to the cluster: it starts one (`init`, no server), or it joins `server`."""

    init: bool = False
    server: str = ""


class CannotRender(Exception):
    """A machine's plan can't be made yet. Only this machine is held up by it."""

    def __init__(self, message: str, actor: Actor = Actor.REMUDA, on: Ref | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.actor = actor
        self.on = on


Render = Callable[[Snapshot, Machine, Join], Plan]
