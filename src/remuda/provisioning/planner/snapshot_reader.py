"""A :class:`~.snapshot.Snapshot` from the objects themselves. Pure: the controller chooses the objects and their freshness.

A host may have written garbage into its plan secret. That only affects the state of its own plan.
:mod:`.decision` has the opposite direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remuda.kube import conditions
from remuda.kube.clock import time_of
from remuda.kube.objects import (
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from remuda.kube.redaction import redacted

from ..bootstrap.machine_objects import trusted_labels
from ..etcd.file_requests import FileRequest, of_machines
from ..plans.machine_plan_secret import DeliveredPlan, PlanSecretError, decode
from ..plans.plan import Plan, PlanError, without_file_work
from ..well_known import PAUSED_FOR
from . import operations
from .snapshot import Address, Cluster, Condition, ControlPlane, Machine, Periodic, PlanNode, PlanSecret

_LONGEST_FAILURE = 4000

Obj = dict[str, Any]

_PAUSED = "cluster.x-k8s.io/paused"
# The planner's own condition, and one about plans: neither is an error of the machine itself.
_ABOUT_PLANS = frozenset({"Reconciled", "PlanApplied"})
_OF_A_MACHINE = ("BootstrapConfigReady", "InfrastructureReady", "NodeHealthy", "HealthCheckSucceeded")


def control_plane(obj: Obj) -> ControlPlane:
    status: Obj = obj.get("status") or {}
    return ControlPlane(
        namespace=namespace_of(obj),
        name=name_of(obj),
        spec=obj.get("spec") or {},
        uid=uid_of(obj),
        generation=int(metadata(obj).get("generation") or 0),
        labels=labels_of(obj),
        annotations=annotations_of(obj),
        deleting=is_being_deleted(obj),
        paused=_PAUSED in annotations_of(obj),
        applied_spec=status.get("appliedSpec"),
        conditions=tuple(_condition(found) for found in conditions.conditions_of(obj)),
        initialized=dig(status, "initialization", "controlPlaneInitialized"),
        config_generation=int(status.get("configGeneration") or 0),
        certificate_rotation_generation=int(status.get("certificateRotationGeneration") or 0),
        agent_connected=bool(status.get("agentConnected")),
        cluster_id=str(status.get("clusterID") or ""),
        etcd_snapshot_create=status.get("etcdSnapshotCreate"),
        etcd_snapshot_create_phase=status.get("etcdSnapshotCreatePhase") or "",
        etcd_snapshot_restore=status.get("etcdSnapshotRestore"),
        etcd_snapshot_restore_phase=status.get("etcdSnapshotRestorePhase") or "",
        recover=status.get("recover"),
        recover_phase=status.get("recoverPhase") or "",
        upgrade_snapshot=status.get("upgradeSnapshot"),
        rotate_encryption_keys=status.get("rotateEncryptionKeys"),
        rotate_encryption_keys_phase=status.get("rotateEncryptionKeysPhase") or "",
        rotate_encryption_keys_leader=status.get("rotateEncryptionKeysLeader") or "",
    )


def cluster(obj: Obj) -> Cluster:
    initialized = conditions.get(obj, "ControlPlaneInitialized")
    return Cluster(
        name_of(obj),
        deleting=is_being_deleted(obj),
        paused=bool(dig(obj, "spec", "paused")),
        paused_for=annotations_of(obj).get(PAUSED_FOR, ""),
        infrastructure_provisioned=bool(dig(obj, "status", "initialization", "infrastructureProvisioned")),
        control_plane_initialized=_condition(initialized) if initialized else None,
        was_initialized=dig(obj, "status", "initialization", "controlPlaneInitialized") is True,
    )


def machine(obj: Obj, secret: Obj | None, bootstrap: Obj | None) -> Machine:
    """Raises PlanSecretError for a secret of another type. The bootstrap defines a machine's roles: a worker's host that labels
    its own secret as etcd's must not get the secrets of a server."""
    reconciled, with_time = conditions.get(obj, "Reconciled"), conditions.get(obj, "Reconciled", conditions.LEGACY)
    infrastructure = conditions.get(obj, "InfrastructureReady")
    deletion = metadata(obj).get("deletionTimestamp")
    return Machine(
        name=name_of(obj),
        uid=uid_of(obj),
        secret=plan_secret(secret, trusted_labels(bootstrap, obj, secret) if bootstrap else None) if secret else None,
        namespace=namespace_of(obj),
        labels=labels_of(obj),
        annotations=annotations_of(obj),
        # An unreadable time still means deletion.
        deleted_at=(time_of(deletion) or 0.0) if deletion else None,
        phase=str(dig(obj, "status", "phase") or ""),
        infrastructure_ready=infrastructure is not None and infrastructure.get("status") == conditions.TRUE,
        infrastructure_kind=str(dig(obj, "spec", "infrastructureRef", "kind") or ""),
        bootstrap=str(dig(obj, "spec", "bootstrap", "configRef", "name") or ""),
        bootstrap_annotations=annotations_of(bootstrap) if bootstrap else {},
        node_name=str(dig(obj, "status", "nodeRef", "name") or ""),
        kubelet_version=str(dig(obj, "status", "nodeInfo", "kubeletVersion") or ""),
        addresses=tuple(_addresses(dig(obj, "status", "addresses") or ())),
        reconciled=_condition(reconciled, with_time) if reconciled else None,
        failing="; ".join(_failing(obj)),
        non_ready="; ".join(_non_ready(obj)),
        outdated=_is_outdated(obj),
    )


def planned_machine(obj: Obj, secret: Obj | None, bootstrap: Obj | None) -> Machine:
    """The machine, with the Secret only where its bootstrap and the Secret itself can be trusted."""
    try:
        # Without a bootstrap only the host's own labels define the machine.
        return machine(obj, secret if bootstrap is not None else None, bootstrap)
    except PlanSecretError:
        # It has another type; the bootstrap controller recreates it.
        return machine(obj, None, bootstrap)


def plan_secret(secret: Obj, labels: Mapping[str, str] | None = None) -> PlanSecret:
    """Raises PlanSecretError for a secret of another type. `labels` are the trusted ones, used instead of the host's."""
    delivered = decode(secret)
    said = labels_of(secret) if labels is None else labels
    return PlanSecret(name_of(secret), said, annotations_of(secret), _node(delivered) if delivered else None)


def _node(delivered: DeliveredPlan) -> PlanNode | None:
    try:
        plan = delivered.plan()
    except PlanError:
        # An unreadable plan counts as none: a new one is written.
        return None
    return PlanNode(
        plan=plan,
        applied=_applied(delivered),
        state=str(delivered.state),
        revision=delivered.revision,
        in_sync=delivered.in_sync,
        failed=delivered.failed,
        failure_count=delivered.failure_count,
        healthy=delivered.healthy,
        probes={name: status.healthy for name, status in delivered.probes.items()},
        wavering=any(status.failures for status in delivered.probes.values()),
        asked=delivered.asked,
        output={name: _text(said) for name, said in delivered.output.items()},
        periodic={
            name: Periodic(_text(said.stdout), _text(said.stderr), said.exit_code, said.failures)
            for name, said in delivered.periodic_output.items()
        },
        failure=_failure(delivered),
        agent=delivered.agent,
    )


def _failure(delivered: DeliveredPlan) -> str:
    """The reason why the plan failed or is not begun, as our own agent reports it; for other agents, the output of the failed
    plan's commands. It is shown to all users."""
    outputs = delivered.failed_output.values() if delivered.failed else ()
    said = delivered.failure_reason or "\n".join(_text(said) for said in outputs)
    # Cut twice: a secret that is cut before it is hidden would not look like one.
    return redacted(said[: 16 * _LONGEST_FAILURE])[:_LONGEST_FAILURE]


def _applied(delivered: DeliveredPlan) -> Plan | None:
    try:
        return delivered.applied_plan()
    except PlanError:
        return None


def _text(said: bytes) -> str:
    return said.decode(errors="replace")


def _condition(found: Obj, legacy: Obj | None = None) -> Condition:
    """A condition's `lastTransitionTime` stays when only the message changes; Rancher's conditions have a second time that moves,
    and so do Cluster API's older ones."""
    kind, status, reason, message = (str(found.get(key) or "") for key in ("type", "status", "reason", "message"))
    moved = legacy.get("lastTransitionTime") if legacy and legacy.get("message") == found.get("message") else None
    at = found.get("lastUpdateTime") or moved or found.get("lastTransitionTime")
    return Condition(kind, status, reason, message, str(at or ""))


def _addresses(found: Iterable[Mapping[str, Any]]) -> Iterable[Address]:
    for address in found:
        yield Address(str(address.get("type") or ""), str(address.get("address") or ""))


def _failing(obj: Obj) -> Iterable[str]:
    if dig(obj, "status", "phase") == "Failed":
        yield "machine has failed"
    for found in conditions.conditions_of(obj):
        trouble = found.get("status") == conditions.FALSE and found.get("reason") == "Error"
        if trouble and found.get("type") not in _ABOUT_PLANS:
            yield str(found.get("message") or found.get("type"))


def _is_outdated(obj: Obj) -> bool:
    """True unless only the version of Kubernetes differs: that comes by its plan."""
    found = conditions.get(obj, "UpToDate") or {}
    return found.get("status") == conditions.FALSE and found.get("reason") == "NotUpToDate"


def _non_ready(obj: Obj) -> Iterable[str]:
    for kind in _OF_A_MACHINE:
        found = conditions.get(obj, kind)
        if found is not None and found.get("status") != conditions.TRUE and found.get("reason") != "Error":
            message = str(found.get("message") or found.get("reason") or "")
            yield f"{kind}: {message}" if message else kind


def file_requests(
    control_plane: ControlPlane, machines: Iterable[Machine], snapshots: Iterable[Obj]
) -> Mapping[str, tuple[FileRequest, ...]]:
    """The requests about files of snapshots that hosts work on now, by Machine (docs/reference/operations.md#files).
    `snapshots` are the cluster's ETCDSnapshots.

    Nothing while an operation runs, which may need the very files; and a plan that has failed is not written for them, since that
    would try it again.
    """
    if operations.is_running(control_plane):
        return {}
    asked = of_machines(snapshots)
    return {each.name: asked[each.name] for each in machines if each.name in asked and _takes_work(each)}


def _takes_work(machine: Machine) -> bool:
    node = machine.node
    if node is None or machine.deleting or not machine.is_etcd:
        return False
    return not node.failed or without_file_work(node.plan) is not node.plan
