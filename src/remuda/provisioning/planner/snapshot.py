"""The planner's whole input at one moment: the control plane, its cluster, its machines and their plan secrets.

The controller builds a :class:`ClusterSnapshot` (plan secrets read live, not from a cache); :mod:`.decide` and the renderer only
read it. `now` is part of it, so that the same snapshot always gives the same decision. Roles are read from the plan secret,
where registration writes them, not from the Machine.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from remuda import __version__
from remuda.capi.change_budget import Holder
from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Ref

from .. import well_known
from ..etcd.file_requests import FileRequest
from ..etcd.stored_snapshots import StoredSnapshot
from ..plans.agent_report import AgentReport
from ..plans.plan import File, Plan

# --- programs -------------------------------------------------------------------------------------------------------------
#
# The agent for the planner: one file for hosts. :mod:`.managesystemagent` decides which of them get it.


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """The agent that the server's hosts should run; `content` is base64. `at_once` hosts of a cluster get it at a time."""

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
    """A condition of any kind; `at` is the time since when it is so (RFC 3339)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    at: str = ""

    def says(self, other: Condition | None) -> bool:
        """True if `other` says the same, regardless of its time."""
        return other is not None and replace(other, at=self.at) == self


@dataclass(frozen=True, slots=True)
class Address:
    type: str  # InternalIP, ExternalIP, Hostname …
    address: str


@dataclass(frozen=True, slots=True)
class Periodic:
    """The last output of a periodic instruction."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A plan secret's data, decoded (docs/reference/plan-secret.md#reading-a-plan); None while no plan was written."""

    plan: Plan
    applied: Plan | None = None
    # `plan-state`: "", pending, in-progress, succeeded, failed. Empty with agents or plans of the older kind.
    state: str = ""
    revision: int = 0
    in_sync: bool = False
    failed: bool = False
    failure_count: int = 0
    healthy: bool = True
    # Health by name; empty if no probe has run since the plan was written.
    probes: Mapping[str, bool] = field(default_factory=dict)
    # True if one of them has failed recently, though not often enough to count.
    wavering: bool = False
    # True if its agent was asked for a sign of life and has not answered; the time is an annotation.
    asked: bool = False
    output: Mapping[str, str] = field(default_factory=dict)
    periodic: Mapping[str, Periodic] = field(default_factory=dict)
    # The last output of a failed instruction, if the agent kept it.
    failure: str = ""
    # Its agent's report; None if the agent makes none.
    agent: AgentReport | None = None


@dataclass(frozen=True, slots=True)
class PlanSecret:
    """A machine's plan secret: its metadata holds roles, join URLs and the steps of a drain."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node: PlanNode | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A Cluster API Machine with its plan secret (None until the bootstrap controller has made it)."""

    name: str
    uid: str
    secret: PlanSecret | None
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # The time of deletion, in seconds; None if it is not being deleted.
    deleted_at: float | None = None
    phase: str = ""
    infrastructure_ready: bool = False
    infrastructure_kind: str = ""  # CustomMachine, or a driver's
    bootstrap: str = ""  # the RKEBootstrap's name
    bootstrap_annotations: Mapping[str, str] = field(default_factory=dict)
    node_name: str = ""  # status.nodeRef
    kubelet_version: str = ""  # status.nodeInfo; empty until it is set
    addresses: tuple[Address, ...] = ()
    reconciled: Condition | None = None
    # Other conditions of the Machine summed up as in Rancher, without Reconciled: failing ones, and ones that are not ready yet.
    failing: str = ""
    non_ready: str = ""
    # Its MachineDeployment wants to replace it.
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
        return self.plan_labels.get(well_known.OS_LABEL) == "windows"

    @property
    def is_init(self) -> bool:
        return self.plan_labels.get(well_known.INIT_NODE) == "true"

    @property
    def join_url(self) -> str:
        return self.plan_annotations.get(well_known.JOIN_URL, "")

    @property
    def asked_at(self) -> float | None:
        """The time when its agent was last asked for a sign of life."""
        return time_of(self.plan_annotations.get(well_known.ASKED_AT))

    @property
    def joined_to(self) -> str | None:
        """The URL that its delivered plan joins; empty for an init node, None if no plan was ever written."""
        return self.plan_annotations.get(well_known.JOINED_TO)

    @property
    def has_host(self) -> bool:
        """True if a host has registered as this machine, so that it may act on any plan that it is given."""
        node = self.node
        if well_known.MACHINE_ID in self.labels or well_known.MACHINE_ID in self.plan_labels:
            return True
        return node is not None and (node.applied is not None or node.agent is not None or node.state not in ("", "pending"))

    def ref(self) -> Ref:
        return Ref(CAPI_GROUP, "Machine", self.namespace, self.name)

    def with_plan_metadata(self, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Machine:
        """The machine after these are written; None removes a key."""
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
    # The operation of ours that has paused it; empty if a user has, or if it is not paused.
    paused_for: str = ""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The RKEControlPlane: its spec as JSON, and the status fields that decisions depend on."""

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
    cluster_id: str = ""  # the uid of the cluster's kube-system, if it was ever seen
    # status.etcdSnapshotCreate and the like: the operations as last started.
    etcd_snapshot_create: Obj | None = None
    etcd_snapshot_create_phase: str = ""
    etcd_snapshot_restore: Obj | None = None
    etcd_snapshot_restore_phase: str = ""
    recover: Obj | None = None
    recover_phase: str = ""
    upgrade_snapshot: Obj | None = None
    rotate_encryption_keys: Obj | None = None
    rotate_encryption_keys_phase: str = ""
    rotate_encryption_keys_leader: str = ""

    @property
    def version(self) -> str:
        return str(self.spec.get("kubernetesVersion") or "")

    @property
    def is_recovering(self) -> bool:
        """True while a restore is part of a recovery, which leaves workers as they are."""
        return self.recover_phase == "Restoring"

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def is_true(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.status == "True"

    def ref(self) -> Ref:
        return Ref(RKE_GROUP, "RKEControlPlane", self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens with which servers and workers join the cluster (the secret `<name>-rke-state`)."""

    server: str
    agent: str

    def __repr__(self) -> str:
        return "Tokens(…)"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`machines` may come in any order. `cluster` is None while the Cluster API Cluster does not exist."""

    now: float
    control_plane: ControlPlane
    cluster: Cluster | None
    machines: tuple[Machine, ...] = ()
    tokens: Tokens | None = None
    # The reason why the Secret holds no tokens; empty if it does, or does not exist.
    tokens_error: str = ""
    supervisor_port: int = 9345
    # The reason why the requested version is unknown; empty if it is known.
    release_error: str = ""
    # The known versions of its distribution, if the requested one is not among them.
    known_versions: tuple[str, ...] = ()
    # Arguments of the spec that have no effect, each with the reason.
    ignored_arguments: tuple[str, ...] = ()
    # The version's features of the release data, with the version of each.
    features: Mapping[str, str] = field(default_factory=dict)
    pre_bootstrap: bool = False  # manifests have to be there before anything else
    # The agent that hosts should run; None if there is none.
    agent: AgentProgram | None = None
    # The ETCDSnapshot that a pending restore names; None if there is none of that name.
    stored: StoredSnapshot | None = None
    # The ETCDSnapshot that a recovery names before it requests the restore.
    surveyed: StoredSnapshot | None = None
    # What hosts are to do with the files of snapshots, by Machine.
    file_requests: Mapping[str, tuple[FileRequest, ...]] = field(default_factory=dict)
    # When the hosts of machines last printed a line of progress, as far as this server has got any.
    said_at: Mapping[str, float] = field(default_factory=dict)
    # The change budget of the namespace; None if it has none.
    namespace_budget: Holder | None = None
    # Machines whose deletion has just begun, with a drain: `machines` may not show it yet.
    leaving: frozenset[str] = frozenset()
    # The version of the program that renders the plans.
    rendering: str = __version__

    def by_name(self) -> tuple[Machine, ...]:
        return tuple(sorted(self.machines, key=lambda machine: (machine.name, machine.uid)))


@dataclass(frozen=True, slots=True)
class Join:
    """The way a machine joins the cluster: it starts one (`init`, no server), or it joins `server`."""

    init: bool = False
    server: str = ""


class CannotRender(Exception):
    """A machine's plan can't be made yet. Only this machine is blocked by it."""

    def __init__(self, message: str, actor: Actor = Actor.REMUDA, on: Ref | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.actor = actor
        self.on = on


# --- tasks ----------------------------------------------------------------------------------------------------------------
#
# A task is what an operation has a machine do once, beside its files; the service keeps the state that it has.


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Take a snapshot of etcd on a member. `name` is what its file's name begins with; empty for one on demand."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class RotateCertificates:
    """Remove the certificates of these services (of all if there are none), and restart, which makes new ones."""

    generation: int
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RotateKeys:
    """Run a step of the rotation of encryption keys, and report the rotation's stage every few seconds."""

    generation: int
    phase: str
    command: str  # of secrets-encrypt


@dataclass(frozen=True, slots=True)
class RestartServer:
    """Restart a server between two steps of the rotation of encryption keys. One with an API then reports the rotation's stage,
    once it is `stage`."""

    generation: int
    phase: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class CheckSnapshot:
    """Check that a snapshot on this host can be restored. A size of 0 and an empty sum are unknown. `uploaded`: the host gets
    the file from the management server first."""

    request: str
    file: str
    location: str = ""
    size: int = 0
    sha256: str = ""
    uploaded: bool = False


@dataclass(frozen=True, slots=True)
class FindInBucket:
    """Look for a snapshot in the bucket of `s3`, with the means that only hosts have."""

    request: str
    file: str
    s3: Obj


@dataclass(frozen=True, slots=True)
class StopForRestore:
    """Stop the distribution, and mark the data of its etcd member as void, unless it is to be kept."""

    keep: bool = False


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """Make the data of a new cluster from a snapshot, on this host, in the bucket of `s3`, or, with the hash of one that was
    `uploaded`, on the management server."""

    request: str
    file: str
    location: str = ""
    s3: Obj | None = None
    uploaded: str = ""


@dataclass(frozen=True, slots=True)
class ResetMember:
    """Make a cluster of one member of the etcd data that this host has."""

    request: str


@dataclass(frozen=True, slots=True)
class CleanPods:
    """Run the normal plan. When the nodes of these Machines are ready, delete the system's pods, which know another past."""

    request: str
    machines: tuple[str, ...]  # their uids


@dataclass(frozen=True, slots=True)
class CleanNodes:
    """Run the normal plan. Then delete the Nodes that have neither one of these names nor the label of one of these Machines."""

    request: str
    digits: str  # in the names of files
    machines: tuple[str, ...]  # their uids
    nodes: tuple[str, ...]


Rotation = RotateCertificates | RotateKeys | RestartServer
RestoreTask = CheckSnapshot | FindInBucket | StopForRestore | RestoreSnapshot | ResetMember | CleanPods | CleanNodes
Task = SaveSnapshot | Rotation | RestoreTask


class Render(Protocol):
    """The desired plan of a machine: its normal one, or the one for a task. It raises CannotRender."""

    def __call__(self, snapshot: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan: ...


def unable(reason: CannotRender) -> Render:
    """Renders nothing: work that needs no plans (releasing machines, ending a pause) is still done."""

    def render(snapshot: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
        raise reason

    return render
