"""Snapshots by few words, and a small world that does what decisions say: hosts that apply plans, a drain that drains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.kube.clock import rfc3339
from remuda.provisioning import well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.planner.decide import plan
from remuda.provisioning.planner.decision import Decision, SecretChange
from remuda.provisioning.planner.snapshot import (
    Address,
    CleanNodes,
    CleanPods,
    Cluster,
    ClusterSnapshot,
    Condition,
    ControlPlane,
    Join,
    Machine,
    PlanNode,
    PlanSecret,
    ResetMember,
    RestoreSnapshot,
    Rotation,
    StopForRestore,
    Task,
    Tokens,
    merged,
)
from remuda.provisioning.plans.plan import SHUTDOWN, File, Instruction, Plan, Probe

NOW = 1_800_000_000.0
VERSION, NEXT = "v1.34.1+k3s1", "v1.35.0+k3s1"
_ROLES = {"e": well_known.ETCD_ROLE, "c": well_known.CONTROL_PLANE_ROLE, "w": well_known.WORKER_ROLE}
_CONFIG = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"


def render(snapshot: ClusterSnapshot, machine: Machine, join: Join, task: Task | None = None) -> Plan:
    """As the real renderer, small: what a drain is for, what only restarts, what is minor, and a task by its name."""
    spec = snapshot.control_plane.spec
    config = {"server": join.server} if join.server else {"cluster-init": True}
    generation = snapshot.control_plane.config_generation
    felt = hashlib.sha256(f"{spec.get('kubernetesVersion')} {spec.get('felt')} {generation}".encode()).hexdigest()
    stamp = hashlib.sha256(f"{felt} {config}".encode()).hexdigest()
    files = (File.of(_CONFIG, json.dumps(config)), File.of("/manifest", str(spec.get("minor")), dynamic=True, minor=True))
    if isinstance(task, CleanPods | CleanNodes):
        more = Instruction(type(task).__name__, args=(str(task),))
        normal = render(snapshot, machine, join)
        return Plan(normal.files, (*normal.instructions, more), probes=normal.probes)
    if isinstance(task, StopForRestore | RestoreSnapshot | ResetMember):
        more = Instruction(f"{SHUTDOWN} {type(task).__name__}", args=(str(task),))
        installs = [] if isinstance(task, StopForRestore) else [Instruction("install", "image")]
        return Plan(files, (more, *installs))
    probes = {"kubelet": Probe()} | ({"kube-apiserver": Probe()} if machine.is_control_plane else {})
    if isinstance(task, Rotation):
        return Plan(files, (Instruction(type(task).__name__, args=(str(task),)),), probes=probes)
    if task is not None:
        return Plan(
            files, (Instruction("install", "image", ("SKIP_START=true",)), Instruction(type(task).__name__, args=(str(task),)))
        )
    install = Instruction("install", "image", (f"RESTART_STAMP={stamp}", f"DRAIN_HASH={felt}"), ("-c", "run.sh"), "sh")
    return Plan(files, (install,), probes=probes)


def machine(name: str, roles: str = "ecw", **fields: Any) -> Machine:
    labels = {_ROLES[role]: "true" for role in roles} | fields.pop("marks", {})
    secret = PlanSecret(f"{name}-plan", labels, fields.pop("notes", {}), fields.pop("node", None))
    return Machine(name, f"uid-{name}", secret, namespace="fleet-default", infrastructure_ready=True, phase="Running", **fields)


def control_plane(spec: Mapping[str, Any] | None = None, **fields: Any) -> ControlPlane:
    return ControlPlane("fleet-default", "demo", {"kubernetesVersion": VERSION, **(spec or {})}, **fields)


def snapshot(*machines: Machine, spec: Mapping[str, Any] | None = None, **fields: Any) -> ClusterSnapshot:
    own = {key: fields.pop(key) for key in list(fields) if key in ControlPlane.__slots__}
    cluster = fields.pop("cluster", Cluster("demo", infrastructure_provisioned=True))
    tokens = fields.pop("tokens", Tokens("server", "agent"))
    return ClusterSnapshot(fields.pop("now", NOW), control_plane(spec, **own), cluster, machines, tokens, **fields)


def done(of: Plan, **fields: Any) -> PlanNode:
    """A plan that is applied, and all is well."""
    healthy = dict.fromkeys(of.probes, True)
    return PlanNode(of, of, "succeeded", 1, True, probes=fields.pop("probes", healthy), **fields)


def url(name: str) -> str:
    return f"https://{_address(name)}:9345"


def _address(name: str) -> str:
    number = int(hashlib.sha256(name.encode()).hexdigest()[:6], 16)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def running(*members: tuple[str, str], spec: Mapping[str, Any] | None = None, **fields: Any) -> ClusterSnapshot:
    """A cluster that is up; the first machine is the init node, the others have joined it. All have just given a sign of life."""
    first = members[0][0]
    bare = snapshot(*(machine(name, roles) for name, roles in members), spec=spec, agent_connected=True, initialized=True)
    up = []
    for member in bare.machines:
        init = member.name == first
        desired = render(bare, member, Join(init=True) if init else Join(server=url(first)))
        notes = {
            well_known.JOINED_TO: "" if init else url(first),
            well_known.JOIN_URL: url(member.name),
            keys.ASKED_AT: rfc3339(NOW),
            keys.RENDERED_BY: bare.rendering,
        }
        marked = {well_known.INIT_NODE: "true"} if init else {}
        up.append(with_node(joined(member.with_plan_metadata(dict(marked), dict(notes)), VERSION), done(desired)))
    conditions = (Condition("Bootstrapped", "True"), Condition("Provisioned", "True"))
    whole = replace(bare.control_plane, conditions=conditions, applied_spec=bare.control_plane.spec)
    return replace(bare, machines=tuple(up), control_plane=whole, **fields)


def joined(member: Machine, version: str) -> Machine:
    addresses = (Address("InternalIP", _address(member.name)), Address("Hostname", member.name))
    return replace(member, node_name=member.name, kubelet_version=version.split("+")[0], addresses=addresses)


def with_node(member: Machine, node: PlanNode | None) -> Machine:
    assert member.secret is not None
    return replace(member, secret=replace(member.secret, node=node))


def with_machine(picture: ClusterSnapshot, name: str, change: Callable[[Machine], Machine]) -> ClusterSnapshot:
    return replace(picture, machines=tuple(change(m) if m.name == name else m for m in picture.machines))


def heard(picture: ClusterSnapshot) -> ClusterSnapshot:
    """All hosts have just said that they are there."""
    now: dict[str, str | None] = {keys.ASKED_AT: rfc3339(picture.now)}
    return replace(picture, machines=tuple(_answered(member).with_plan_metadata({}, now) for member in picture.machines))


def with_spec(picture: ClusterSnapshot, **spec: Any) -> ClusterSnapshot:
    return replace(picture, control_plane=replace(picture.control_plane, spec={**picture.control_plane.spec, **spec}))


def named(picture: ClusterSnapshot, name: str) -> Machine:
    return next(member for member in picture.machines if member.name == name)


def decide(picture: ClusterSnapshot) -> Decision:
    return plan(picture, render)


def written(decision: Decision) -> set[str]:
    return {name for name, change in decision.secrets.items() if change.plan is not None}


# Fields of the control plane's status, as they are in a snapshot.
_FIELDS = {
    "configGeneration": "config_generation",
    "etcdSnapshotCreate": "etcd_snapshot_create",
    "etcdSnapshotCreatePhase": "etcd_snapshot_create_phase",
    "etcdSnapshotRestore": "etcd_snapshot_restore",
    "etcdSnapshotRestorePhase": "etcd_snapshot_restore_phase",
    "certificateRotationGeneration": "certificate_rotation_generation",
    "recover": "recover",
    "recoverPhase": "recover_phase",
    "upgradeSnapshot": "upgrade_snapshot",
    "rotateEncryptionKeys": "rotate_encryption_keys",
    "rotateEncryptionKeysPhase": "rotate_encryption_keys_phase",
    "rotateEncryptionKeysLeader": "rotate_encryption_keys_leader",
}


def applied(picture: ClusterSnapshot, decision: Decision) -> ClusterSnapshot:
    """The snapshot once the decision has been written."""
    at = rfc3339(picture.now)
    conditions = {c.type: c for c in picture.control_plane.conditions} | {c.type: replace(c, at=at) for c in decision.conditions}
    head = replace(picture.control_plane, conditions=tuple(conditions.values()))
    empty = ControlPlane("", "", {})
    head = replace(
        head,
        **{_FIELDS[name]: getattr(empty, _FIELDS[name]) if value is None else value for name, value in decision.status.items()},
    )
    if decision.initialized is not None:
        head = replace(head, initialized=decision.initialized)
    if decision.applied:
        head = replace(head, applied_spec=head.spec)
    machines = []
    for member in picture.machines:
        if member.name in decision.secrets:
            member = _with_secret(member, decision.secrets[member.name])
        change = decision.machines.get(member.name)
        if change is not None:
            reconciled = replace(change.reconciled, at=at) if change.reconciled else member.reconciled
            bootstrap = merged(member.bootstrap_annotations, dict(change.bootstrap_annotations))
            own = merged(member.annotations, dict(change.annotations))
            deleted = picture.now if change.delete and member.deleted_at is None else member.deleted_at
            member = replace(member, reconciled=reconciled, annotations=own, bootstrap_annotations=bootstrap, deleted_at=deleted)
        machines.append(member)
    tokens = Tokens("server", "agent") if decision.create_tokens else picture.tokens
    cluster = picture.cluster
    if cluster is not None and decision.pause_for is not None:
        cluster = replace(cluster, paused=bool(decision.pause_for), paused_for=decision.pause_for)
    return replace(picture, control_plane=head, machines=tuple(machines), tokens=tokens, cluster=cluster)


def _with_secret(member: Machine, change: SecretChange) -> Machine:
    member = member.with_plan_metadata(change.labels, change.annotations)
    node = member.node
    if change.plan is not None:
        old = node.applied if node else None
        revision = node.revision if node else 0
        node = PlanNode(change.plan, old, "pending", revision, agent=node.agent if node else None)
    elif change.retry and node is not None:
        # Its count of failures stays until one try succeeds.
        node = replace(node, state="pending", in_sync=False)
    elif change.ask and node is not None:
        node = replace(node, asked=True)
    return with_node(member, node)


@dataclass
class World:
    """Hosts act between passes. `failing` counts how often a host still fails, with `failure`; `dead` hosts do nothing.

    What is not healthy stays so if `stubborn`, until the host gets another plan.
    """

    picture: ClusterSnapshot
    failing: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    dead: set[str] = field(default_factory=set)
    stubborn: bool = False
    seconds: float = 5.0
    # Called with each plan that a host has applied.
    on_applied: Callable[[Machine, Plan], None] = lambda member, plan: None

    def look(self) -> Decision:
        decision = decide(self.picture)
        self.picture = applied(self.picture, decision)
        return decision

    def act(self) -> None:
        machines = tuple(member if member.name in self.dead else self._acted(member) for member in self.picture.machines)
        servers = [m for m in machines if m.is_control_plane and m.node and m.node.in_sync and all(m.node.probes.values())]
        connected = self.picture.control_plane.agent_connected or bool(servers)
        head = replace(self.picture.control_plane, agent_connected=connected)
        self.picture = replace(self.picture, machines=machines, control_plane=head, now=self.picture.now + self.seconds)

    def _acted(self, member: Machine) -> Machine:
        member = _answered(_drained(member))
        node = member.node
        if node is None or node.state in ("failed", "succeeded"):
            if node is not None and node.state == "succeeded":
                version = self._version(node.plan) or f"{member.kubelet_version}+k3s1"
                if not self.stubborn or version == NEXT:
                    member = with_node(member, replace(node, probes=dict.fromkeys(node.plan.probes, True)))
                member = joined(member, version)
            return member
        if node.state == "pending":
            return with_node(member, replace(node, state="in-progress", revision=node.revision + 1, in_sync=False, failure=""))
        if self.failing.get(member.name, 0):
            self.failing[member.name] -= 1
            return with_node(member, replace(node, state="failed", failed=True, failure_count=1, failure=self.failure))
        self.on_applied(member, node.plan)
        sync = replace(node, state="succeeded", failed=False, applied=node.plan, in_sync=True)
        sync = replace(sync, probes=dict.fromkeys(node.plan.probes, False))
        return with_node(member, _with_its_successor(sync))

    def _version(self, of: Plan) -> str:
        for version in (VERSION, NEXT):
            wanted = replace(self.picture.control_plane, spec={**self.picture.control_plane.spec, "kubernetesVersion": version})
            probe = machine("any", "w")
            fresh = render(replace(self.picture, control_plane=wanted), probe, Join(server="x"))
            if fresh.instructions[0].env[1:] == of.instructions[0].env[1:]:
                return version
        return "" if len(of.instructions) > 1 else VERSION


def _with_its_successor(node: PlanNode) -> PlanNode:
    """An agent that finds another one in its plan becomes that one."""
    found = [file.path.rpartition("/")[2].removesuffix(".pyz") for file in node.plan.files if file.path.endswith(".pyz")]
    return replace(node, agent=replace(node.agent, checksum=found[0])) if found and node.agent else node


def _answered(member: Machine) -> Machine:
    return with_node(member, replace(member.node, asked=False)) if member.node is not None else member


def _drained(member: Machine) -> Machine:
    notes = member.plan_annotations
    if notes.get(well_known.UNCORDON):
        gone = (well_known.PRE_DRAIN, well_known.POST_DRAIN, well_known.DRAIN_OPTIONS, well_known.DRAIN_DONE, well_known.UNCORDON)
        return member.with_plan_metadata({}, dict.fromkeys(gone))
    if notes.get(well_known.DRAIN_OPTIONS):
        return member.with_plan_metadata({}, {well_known.DRAIN_DONE: notes[well_known.DRAIN_OPTIONS]})
    return member
